"""Hidden states and token ids from files of NumPy's.

Knows: .npy and .npz. Refuses to know: what they are for.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmhead_native.cli.errors import CommandError


def read_array(path: Path, name: str) -> NDArray[Any]:
    """Read the array of a .npy file, or the one of that name in a .npz file.

    Raises
    ------
    CommandError
        The file is no .npy or .npz, or an archive has no such array.
    """
    if path.exists() and not path.is_file():
        raise CommandError(f"{path}: expected a file, got a folder, pipe or device")
    try:
        with open(path, "rb") as stream:  # np.load leaves a file that it cannot read open
            stored: Any = np.load(stream, allow_pickle=False)
            if isinstance(stored, np.lib.npyio.NpzFile):
                with stored as archive:
                    if name not in archive:
                        names = ", ".join(archive)
                        raise CommandError(f"{path}: expected an array named {name!r}, got {names}")
                    stored = archive[name]
    except (ValueError, EOFError, KeyError, SyntaxError, zipfile.BadZipFile, zlib.error) as error:
        raise CommandError(f"{path}: expected a .npy or .npz file, got one that NumPy cannot read: {error}") from error
    array: NDArray[Any] = stored
    return array


def read_states(path: Path) -> NDArray[np.float32]:
    """Read hidden states (..., D) as float32; in an archive they are named ``hidden``.

    Raises
    ------
    CommandError
        As `read_array`, or the array is no floating one with an axis.
    """
    states = read_array(path, "hidden")
    if states.dtype.kind != "f" or states.dtype.itemsize > 8:
        raise CommandError(f"{path}: expected float32, float16 or float64 hidden states, got {states.dtype}")
    if states.ndim == 0 or states.shape[-1] == 0:
        raise CommandError(f"{path}: expected shape (..., D), D > 0, got shape {states.shape}")
    with np.errstate(over="ignore"):
        return np.asarray(states, dtype=np.float32, order="C")


def read_hidden_states(path: Path) -> NDArray[np.float32]:
    """Read states (..., D) as float32 rows (N, D), as `read_states` does."""
    states = read_states(path)
    return states.reshape(-1, states.shape[-1])


def read_ids(path: Path) -> NDArray[Any]:
    """Read token ids of any integer dtype; in an archive they are named ``ids``.

    Raises
    ------
    CommandError
        As `read_array`, or the array is of another dtype.
    """
    ids = read_array(path, "ids")
    if ids.dtype.kind not in "iu":
        raise CommandError(f"{path}: expected ids of an integer dtype, got {ids.dtype}")
    return ids
