"""Damaged and hostile model files: a ValueError that names file and field, or a head that lies inside the file.

Every truncation and every changed byte of small files, bounded memory. Deliberate lies stand in
test_lying_files.py.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from lmhead_native._model_files import FoundHead, find_gguf_head, find_safetensors_head
from lmhead_native._model_files.gguf import GgufFile
from lmhead_native._model_files.safetensors import SafetensorsFile
from model_file_samples import GGUF, GGUF_HEADER, NAMED, SAFETENSORS, SAFETENSORS_HEADER, find, little_memory


@pytest.fixture
def dequantiser() -> None:
    """A changed type may be one that is dequantised; the import takes memory of its own."""
    pytest.importorskip("gguf.quants")


@pytest.fixture
def bounded() -> Iterator[None]:
    """A test allocates little at any time."""
    with little_memory():
        yield


def survive(path: Path, octets: bytes) -> bool:
    """Read a file that may be damaged; tell whether it was taken, having looked at all that was found."""
    # Anew each time: truncating a file that an earlier, still mapped head lies in is another matter.
    path.unlink(missing_ok=True)
    path.write_bytes(octets)
    said = None
    try:
        head = find(path)
    except ValueError as error:
        said = str(error)
    if said is not None:
        assert re.match(rf"{re.escape(str(path))}: .+: expected .+, got ", said), said
        return False
    file = GgufFile(path) if path.suffix == ".gguf" else SafetensorsFile(path)
    for one in file.tensors.values():
        assert 0 <= one.offset <= one.offset + (one.n_bytes or 0) <= len(octets)
    rows, width = head.weight.shape
    assert head.weight.data.shape == (rows, width // 32 * 34 if head.weight.storage == "Q8_0" else width)
    with np.errstate(all="ignore"):  # every byte is touched
        np.sum(head.weight.data, dtype=np.float64)
    assert head.bias is None or head.bias.shape == (rows,)
    assert head.norm is None or head.norm.gain is None or head.norm.gain.shape == (width,)
    return True


# --- truncations and changed bytes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("octets", "suffix"), [(GGUF, ".gguf"), (SAFETENSORS, ".safetensors")])
def test_every_truncation_is_refused(octets: bytes, suffix: str, tmp_path: Path, bounded: None) -> None:
    path = tmp_path / f"cut{suffix}"
    assert survive(path, octets)
    assert [length for length in range(len(octets)) if survive(path, octets[:length])] == []


@pytest.mark.parametrize(
    ("octets", "header", "suffix"), [(GGUF, GGUF_HEADER, ".gguf"), (SAFETENSORS, SAFETENSORS_HEADER, ".safetensors")]
)
def test_every_changed_byte_of_a_header(
    octets: bytes, header: int, suffix: str, tmp_path: Path, dequantiser: None, bounded: None
) -> None:
    path, taken = tmp_path / f"changed{suffix}", 0
    for place in range(header):
        for byte in {0, 0xFF, (octets[place] + 1) % 256} - {octets[place]}:
            taken += survive(path, octets[:place] + bytes([byte]) + octets[place + 1 :])
    # Most bytes are of names and numbers that may be others as well.
    assert 0 < taken < 3 * header


@pytest.mark.parametrize(
    ("octets", "header", "suffix"), [(GGUF, GGUF_HEADER, ".gguf"), (SAFETENSORS, SAFETENSORS_HEADER, ".safetensors")]
)
def test_random_damage(
    octets: bytes, header: int, suffix: str, tmp_path: Path, dequantiser: None, bounded: None
) -> None:
    random, path = np.random.default_rng(13), tmp_path / f"random{suffix}"
    for _ in range(400):
        damaged = bytearray(octets)
        for _ in range(random.integers(1, 6)):
            place, length = random.integers(header), random.integers(1, 9)
            kind = random.integers(3)
            if kind == 0:
                damaged[place : place + length] = random.bytes(int(length))
            elif kind == 1:
                del damaged[place : place + length]
            else:
                damaged[place:place] = damaged[place : place + length]
        survive(path, bytes(damaged))


def test_changed_bytes_of_an_index(tmp_path: Path, bounded: None) -> None:
    (tmp_path / "a.st").write_bytes(SAFETENSORS)
    index = json.dumps({"weight_map": {one.name: "a.st" for one in NAMED}}).encode()
    path = tmp_path / "x.index.json"
    for place in range(len(index)):
        for byte in (0, 0xFF, index[place] + 1):
            path.write_bytes(index[:place] + bytes([byte]) + index[place + 1 :])
            try:
                find_safetensors_head(path)
                continue
            except (ValueError, FileNotFoundError) as error:
                refusal = error
            if isinstance(refusal, FileNotFoundError):  # of a file that the index now names
                assert refusal.filename not in (str(path), str(tmp_path / "a.st"))
            else:
                assert re.match(rf"{re.escape(str(tmp_path))}/.*: expected .+, got ", str(refusal)), refusal


# --- what is no file -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("find_head", [find_gguf_head, find_safetensors_head])
def test_paths_that_are_no_files(find_head: Callable[[Path], FoundHead], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        find_head(tmp_path / "missing.gguf")
    assert missing.value.filename == str(tmp_path / "missing.gguf")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe: file: expected a regular file, got a pipe, socket or device"):
        find_head(tmp_path / "pipe")
    with pytest.raises(ValueError, match="/dev/zero: file: expected a regular file, got a pipe, socket or device"):
        find_head(Path("/dev/zero"))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(OSError) as loop:
        find_head(tmp_path / "loop")
    assert loop.value.errno == errno.ELOOP


def test_folders(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        find_gguf_head(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no model\.safetensors and no model\.safetensors\.index\.json"):
        find_safetensors_head(tmp_path)
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(IsADirectoryError):
        find_safetensors_head(tmp_path)
