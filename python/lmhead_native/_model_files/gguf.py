"""GGUF, versions 2 and 3: the metadata that is small, and where every tensor lies.

Knows: the layout of the header and the block sizes of the tensor types. Refuses to know: what tensors are for, and how
quantised ones are decoded.

Source: the GGUF specification of the ggml project (docs/gguf.md). Arrays are passed over by length, because a
vocabulary made into Python objects takes seconds.
"""

from __future__ import annotations

import os
import struct
from typing import Any, NamedTuple, TypeAlias

from numpy.typing import NDArray

from .mapped import Cursor, Extent, MappedFile, check_disjoint, malformed, shown

Scalar: TypeAlias = int | float | bool | str

LONGEST_NAME = 65535  # of a key or tensor: the specification's bound for keys
LONGEST_VALUE = 4096  # longer texts (chat templates, licences) are passed over
DEEPEST_ARRAY = 4  # arrays of arrays are legal; nobody writes them
# What a header may make us do one by one: some ten times what the largest models have.
MOST_TENSORS, MOST_PAIRS, MOST_STRINGS, MOST_ARRAYS = 2**17, 2**16, 2**23, 2**12
DEFAULT_ALIGNMENT = 32

BOOL, STRING, ARRAY = 7, 8, 9
# Arrays of these are walked through item by item.
LONGEST_ARRAYS = {STRING: MOST_STRINGS, ARRAY: MOST_ARRAYS}
# Value types that are plain numbers.
NUMBERS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}


class Block(NamedTuple):
    """A tensor type: so many elements of a row are stored together in so many bytes."""

    name: str
    elements: int
    n_bytes: int


# The numbers are those of ggml's `enum ggml_type`; 4, 5, 31 to 33 and 36 to 38 were withdrawn.
TYPES = {
    0: Block("F32", 1, 4),
    1: Block("F16", 1, 2),
    2: Block("Q4_0", 32, 18),
    3: Block("Q4_1", 32, 20),
    6: Block("Q5_0", 32, 22),
    7: Block("Q5_1", 32, 24),
    8: Block("Q8_0", 32, 34),
    9: Block("Q8_1", 32, 40),
    10: Block("Q2_K", 256, 84),
    11: Block("Q3_K", 256, 110),
    12: Block("Q4_K", 256, 144),
    13: Block("Q5_K", 256, 176),
    14: Block("Q6_K", 256, 210),
    15: Block("Q8_K", 256, 292),
    16: Block("IQ2_XXS", 256, 66),
    17: Block("IQ2_XS", 256, 74),
    18: Block("IQ3_XXS", 256, 98),
    19: Block("IQ1_S", 256, 50),
    20: Block("IQ4_NL", 32, 18),
    21: Block("IQ3_S", 256, 110),
    22: Block("IQ2_S", 256, 82),
    23: Block("IQ4_XS", 256, 136),
    24: Block("I8", 1, 1),
    25: Block("I16", 1, 2),
    26: Block("I32", 1, 4),
    27: Block("I64", 1, 8),
    28: Block("F64", 1, 8),
    29: Block("IQ1_M", 256, 56),
    30: Block("BF16", 1, 2),
    34: Block("TQ1_0", 256, 54),
    35: Block("TQ2_0", 256, 66),
    39: Block("MXFP4", 32, 17),
    40: Block("NVFP4", 64, 36),
    41: Block("Q1_0", 128, 18),
}


class GgufTensor(NamedTuple):
    """An entry of the tensor table; shape in NumPy's order, so a head is (vocabulary, width)."""

    type_name: str
    shape: tuple[int, ...]
    offset: int
    n_bytes: int | None
    """None for a type that is not in `TYPES`: such a tensor has a name and nothing that could be read."""


class GgufFile:
    """A GGUF file whose header has been read and checked.

    Attributes
    ----------
    metadata : dict
        Numbers, booleans and texts up to 4096 bytes; bytes that are no UTF-8 come escaped.
    tensors : dict
        `GgufTensor` by name. Every extent of a known type has been checked to lie inside the file, at an aligned
        offset, apart from every other.

    Raises
    ------
    OSError, ValueError
        As `MappedFile`; the header is damaged, or of version 1, or big-endian.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.file = MappedFile(path)
        self.path = self.file.path
        self.metadata: dict[str, Scalar] = {}
        self._arrays: dict[str, tuple[int, int, int]] = {}  # type of the items, their number, offset of the first
        cursor = Cursor(self.file)
        self._check_version(cursor)
        # A tensor takes a length, one character, the number of dimensions, one of them, a type and an offset.
        tensor_count = cursor.count("tensor_count", 8 + 1 + 4 + 8 + 4 + 8, MOST_TENSORS)
        for _ in range(cursor.count("metadata_kv_count", 8 + 1 + 4 + 1, MOST_PAIRS)):
            self._read_pair(cursor)
        self.tensors = self._read_tensors(cursor, tensor_count)

    def scalar(self, key: str) -> Scalar | None:
        """Return a number, boolean or text, or None where there is nothing of that name.

        Raises
        ------
        ValueError
            It is an array, or a text of more than 4096 bytes.
        """
        if key in self._arrays:
            raise malformed(self.path, key, "a number or a short text", "an array or a long text")
        return self.metadata.get(key)

    def has_strings(self, key: str) -> bool:
        """Tell whether there is an array of strings of that name."""
        return self._arrays.get(key, (None, 0, 0))[0] == STRING

    def strings(self, key: str) -> list[bytes]:
        """Return an array of strings of the metadata, a vocabulary for instance, which takes a while."""
        if not self.has_strings(key):
            raise malformed(self.path, key, "an array of strings", "none of that name")
        _, count, offset = self._arrays[key]
        cursor = Cursor(self.file, offset)
        return [cursor.octets(key, cursor.u64(key)) for _ in range(count)]

    def numbers(self, key: str) -> NDArray[Any]:
        """Return an array of numbers of the metadata, read-only memory of the file."""
        item, count, offset = self._arrays.get(key, (ARRAY, 0, 0))
        # A text that was passed over is kept as an array of offset 0.
        if item not in NUMBERS or not offset:
            raise malformed(self.path, key, "an array of numbers", "none of that name")
        layout = NUMBERS[item]
        return self.file.view(Extent(key, offset, count * layout.size), layout.format, (count,))

    def _check_version(self, cursor: Cursor) -> None:
        magic = cursor.octets("magic", 4)
        if magic != b"GGUF":
            raise malformed(self.path, "magic", "b'GGUF'", magic)
        version = cursor.u32("version")
        if version not in (2, 3):
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            got = f"{swapped} in a big-endian file" if swapped in (2, 3) else version
            raise malformed(self.path, "version", "2 or 3, little-endian", got)

    def _name(self, cursor: Cursor, field: str) -> str:
        name = cursor.text(field, LONGEST_NAME)
        if not name:
            raise malformed(self.path, field, "a name", "an empty one")
        return name

    def _read_pair(self, cursor: Cursor) -> None:
        key = self._name(cursor, "metadata key")
        if key in self.metadata or key in self._arrays:
            raise malformed(self.path, key, "one value", "a second one")
        kind = cursor.u32(key)
        if kind == ARRAY:
            item = cursor.u32(key)
            count = cursor.count(key, self._smallest(key, item), LONGEST_ARRAYS.get(item))
            self._arrays[key] = (item, count, cursor.position)
            self._skip_array(cursor, key, item, count, depth=1)
        elif kind == STRING:
            length = cursor.u64(key)
            if length <= LONGEST_VALUE:
                self.metadata[key] = cursor.octets(key, length).decode(errors="backslashreplace")
            else:
                cursor.skip(key, length)
                self._arrays[key] = (0, 0, 0)  # known, so that a second one is noticed
        elif kind == BOOL:
            self.metadata[key] = cursor.boolean(key)
        else:
            self.metadata[key] = cursor.number(key, self._layout(key, kind))

    def _layout(self, key: str, kind: int) -> struct.Struct:
        if kind not in NUMBERS:
            raise malformed(self.path, key, "a value type from 0 to 12", kind)
        return NUMBERS[kind]

    def _smallest(self, key: str, item: int) -> int:
        """Return how many bytes an item of an array takes at least (all of them, unless strings or arrays)."""
        smallest = {STRING: 8, ARRAY: 12, BOOL: 1}.get(item)
        return self._layout(key, item).size if smallest is None else smallest

    def _skip_array(self, cursor: Cursor, key: str, item: int, count: int, depth: int) -> None:
        if item == STRING:
            cursor.skip_strings(key, count)
        elif item != ARRAY:
            cursor.skip(key, count * self._smallest(key, item))
        elif depth == DEEPEST_ARRAY:
            raise malformed(self.path, key, f"arrays nested at most {DEEPEST_ARRAY} deep", "deeper ones")
        else:
            for _ in range(count):
                inner = cursor.u32(key)
                inner_count = cursor.count(key, self._smallest(key, inner), LONGEST_ARRAYS.get(inner))
                self._skip_array(cursor, key, inner, inner_count, depth + 1)

    def _read_tensors(self, cursor: Cursor, count: int) -> dict[str, GgufTensor]:
        table: dict[str, GgufTensor] = {}
        for _ in range(count):
            name = self._name(cursor, "tensor name")
            if name in table:
                raise malformed(self.path, name, "one tensor of that name", "a second one")
            table[name] = self._read_tensor(cursor, name)
        alignment = self._alignment()
        start = -(-cursor.position // alignment) * alignment
        placed = {name: tensor._replace(offset=start + tensor.offset) for name, tensor in table.items()}
        for name, tensor in placed.items():
            if tensor.offset % alignment:
                raise malformed(self.path, name, f"an offset that is a multiple of {alignment}", tensor.offset - start)
            self.file.check_extent(Extent(name, tensor.offset, tensor.n_bytes or 0))
        check_disjoint(self.path, (Extent(name, t.offset, t.n_bytes or 0) for name, t in placed.items()))
        return placed

    def _alignment(self) -> int:
        alignment = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        power = isinstance(alignment, int) and alignment >= 8 and alignment & (alignment - 1) == 0
        if not power or not isinstance(alignment, int) or "general.alignment" in self._arrays:
            got = "an array" if "general.alignment" in self._arrays else shown(repr(alignment))
            raise malformed(self.path, "general.alignment", "a power of two, 8 or more", got)
        return alignment

    def _read_tensor(self, cursor: Cursor, name: str) -> GgufTensor:
        """Read an entry, its offset still counted from the start of the data."""
        n_dims = cursor.u32(name)
        if not 1 <= n_dims <= 4:
            raise malformed(self.path, name, "1 to 4 dimensions", n_dims)
        shape = tuple(cursor.u64(name) for _ in range(n_dims))[::-1]  # stored fastest first
        number, offset = cursor.u32(name), cursor.u64(name)
        if number not in TYPES:
            return GgufTensor(f"type {number}", shape, offset, None)
        block = TYPES[number]
        if shape[-1] % block.elements:
            got = f"rows of {shape[-1]} elements"
            raise malformed(self.path, name, f"rows of whole {block.name} blocks of {block.elements}", got)
        n_bytes = shape[-1] // block.elements * block.n_bytes
        for size in shape[:-1]:  # exact: Python's integers have no width to overflow
            n_bytes *= size
        return GgufTensor(block.name, shape, offset, n_bytes)
