"""Hidden states from a file of NumPy's.

Knows: .npy and .npz. Refuses to know: what they are multiplied by.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmhead_native.cli.errors import CommandError

NAME_IN_ARCHIVE = "hidden"


def read_hidden_states(path: Path) -> NDArray[np.float32]:
    """Read states (..., D) as float32 rows (N, D).

    Raises
    ------
    CommandError
        The file is no .npy or .npz, an archive has no array ``hidden``, or the array is no floating one with an axis.
    """
    if path.exists() and not path.is_file():
        raise CommandError(f"{path}: expected a file, got a folder, pipe or device")
    try:
        with open(path, "rb") as stream:  # np.load leaves a file that it cannot read open
            stored: Any = np.load(stream, allow_pickle=False)
            if isinstance(stored, np.lib.npyio.NpzFile):
                with stored as archive:
                    if NAME_IN_ARCHIVE not in archive:
                        names = ", ".join(archive)
                        raise CommandError(f"{path}: expected an array named {NAME_IN_ARCHIVE!r}, got {names}")
                    stored = archive[NAME_IN_ARCHIVE]
    except (ValueError, EOFError, KeyError, SyntaxError, zipfile.BadZipFile, zlib.error) as error:
        raise CommandError(f"{path}: expected a .npy or .npz file, got one that NumPy cannot read: {error}") from error
    states: NDArray[Any] = stored
    if states.dtype.kind != "f" or states.dtype.itemsize > 8:
        raise CommandError(f"{path}: expected float32, float16 or float64 hidden states, got {states.dtype}")
    if states.ndim == 0 or states.shape[-1] == 0:
        raise CommandError(f"{path}: expected shape (..., D), D > 0, got shape {states.shape}")
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(states, dtype=np.float32).reshape(-1, states.shape[-1])
