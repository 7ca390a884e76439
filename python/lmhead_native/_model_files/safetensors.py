"""safetensors: one file, or a folder or index of several, and where every tensor lies.

Knows: the header, the dtypes' sizes, the index. Refuses to know: what tensors are for.

Source: the format section of the safetensors project's README. A header is a 64-bit length and so many bytes of JSON;
offsets count from its end, and nothing is aligned.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from .json_object import kind_of, parse_object, read_object
from .mapped import Cursor, Extent, MappedFile, check_disjoint, malformed, shown

LARGEST_HEADER = 100_000_000  # the bound of the format's own reader
LARGEST_INDEX = 100_000_000
LARGEST_SIZE = 2**63 - 1
MOST_DIMENSIONS = 32  # NumPy's bound; a product of millions of sizes would take hours

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
# One of several, as "model-00001-of-00004.safetensors".
PART = re.compile(r"-\d+-of-0*(?!1\.)[1-9]\d*\.safetensors$")

# In bits: some types are smaller than a byte.
DTYPE_BITS = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E5M2FNUZ": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E8M0": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}


class SafeTensor(NamedTuple):
    """An entry of the header, its offset counted from the start of the file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    n_bytes: int


class SafetensorsFile:
    """One safetensors file whose header has been read and checked.

    Attributes
    ----------
    tensors : dict
        `SafeTensor` by name. Every extent has been checked to have the size of its dtype and shape, to lie inside the
        file, and apart from every other.

    Raises
    ------
    OSError, ValueError
        As `MappedFile`; the header is damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.file = MappedFile(path)
        self.path = self.file.path
        cursor = Cursor(self.file)
        length = cursor.u64("header length")
        if length > LARGEST_HEADER:
            raise malformed(self.path, "header length", f"at most {LARGEST_HEADER} bytes", length)
        octets = cursor.octets("header", length)
        self._start = cursor.position
        header = parse_object(self.path, "header", octets, strict=True)
        self._check_metadata(header.pop("__metadata__", {}))
        self.tensors = {name: self._tensor(name, entry) for name, entry in header.items()}
        check_disjoint(self.path, (Extent(name, t.offset, t.n_bytes) for name, t in self.tensors.items()))

    def _check_metadata(self, metadata: Any) -> None:
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            raise malformed(self.path, "__metadata__", "an object of strings", "something else")

    def _tensor(self, name: str, entry: Any) -> SafeTensor:
        if not isinstance(entry, dict):
            raise malformed(self.path, name, "an object", kind_of(entry))
        if set(entry) != {"dtype", "shape", "data_offsets"}:
            got = ", ".join(sorted(map(shown, entry))[:5]) or "nothing"
            raise malformed(self.path, name, "dtype, shape and data_offsets", got)
        dtype = entry["dtype"]
        if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
            got = shown(dtype) if isinstance(dtype, str) else kind_of(dtype)
            raise malformed(self.path, f"{name}.dtype", "a dtype of the format", got)
        shape = self._sizes(f"{name}.shape", entry["shape"])
        if len(shape) > MOST_DIMENSIONS:
            raise malformed(self.path, f"{name}.shape", f"at most {MOST_DIMENSIONS} dimensions", len(shape))
        bits = DTYPE_BITS[dtype]
        for size in shape:  # exact: Python's integers have no width to overflow
            bits *= size
        offsets = self._sizes(f"{name}.data_offsets", entry["data_offsets"])
        if len(offsets) != 2 or offsets[1] < offsets[0]:
            raise malformed(self.path, f"{name}.data_offsets", "a begin and an end not before it", list(offsets[:3]))
        begin, end = offsets
        if 8 * (end - begin) != bits:
            what = f"{shown(str(list(shape)))} of {dtype}"
            n_bytes = shown(f"{bits // 8}{f'{bits % 8 / 8:g}'[1:]}")  # of any length, in halves and quarters
            raise malformed(self.path, f"{name}.data_offsets", f"{n_bytes} bytes for {what}", f"{end - begin}")
        tensor = SafeTensor(dtype, shape, self._start + begin, end - begin)
        self.file.check_extent(Extent(name, tensor.offset, tensor.n_bytes))
        return tensor

    def _sizes(self, field: str, values: Any) -> tuple[int, ...]:
        if not isinstance(values, list):
            raise malformed(self.path, field, "an array", kind_of(values))
        for value in values:
            if type(value) is not int or not 0 <= value <= LARGEST_SIZE:  # a bool is an int, and refused
                got = shown(repr(value)) if isinstance(value, int | float) else kind_of(value)
                raise malformed(self.path, field, "integers from 0 to 2**63 - 1", got)
        return tuple(values)


class Checkpoint:
    """The tensors of a model by name, in one file or several; a file is opened when one of its tensors is asked for.

    Parameters
    ----------
    path : path
        A safetensors file, an index (``*.index.json``), or a folder with either under its usual name.

    Raises
    ------
    OSError
        What opening a file says; a folder that holds neither.
    ValueError
        A damaged file or index, a file name that leads out of the folder, one of several parts without the others.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = self._entry(Path(path))
        self.folder = self.path.parent
        self._opened: dict[str, SafetensorsFile] = {}
        if self.path.name.endswith(".json"):
            self._files = self._read_index()
        else:
            only = SafetensorsFile(self.path)
            self._opened[self.path.name] = only
            self._files = dict.fromkeys(only.tensors, self.path.name)

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def find(self, name: str) -> tuple[SafetensorsFile, SafeTensor]:
        """Return a tensor that is contained, and the file it is in."""
        file_name = self._files[name]
        if file_name not in self._opened:
            self._opened[file_name] = SafetensorsFile(self.folder / file_name)
        file = self._opened[file_name]
        if name not in file.tensors:
            raise malformed(file.path, name, f"a tensor of that name, as {self.path.name} says", "none")
        return file, file.tensors[name]

    @staticmethod
    def _entry(path: Path) -> Path:
        if path.is_dir():
            for name in (SINGLE, INDEX):
                if os.path.lexists(path / name):
                    return path / name
            raise FileNotFoundError(errno.ENOENT, f"no {SINGLE} and no {INDEX} in this folder", str(path))
        if PART.search(path.name):
            expected = "the folder or its index, as the head may be in any part"
            raise malformed(path, "file", expected, "one part of several")
        return path

    def _read_index(self) -> dict[str, str]:
        files = read_object(self.path, LARGEST_INDEX).get("weight_map")
        if not isinstance(files, dict):
            raise malformed(self.path, "weight_map", "an object", kind_of(files))
        for name, file_name in files.items():
            if not isinstance(file_name, str):
                raise malformed(self.path, f"weight_map.{name}", "a file name", kind_of(file_name))
            # Links inside the folder are followed: caches of models are made of them.
            parts = re.split(r"[/\\]", file_name)
            if {"", ".", ".."} & set(parts) or ":" in file_name or not file_name.isprintable():
                raise malformed(self.path, f"weight_map.{name}", "a file inside the folder", shown(file_name))
        return files
