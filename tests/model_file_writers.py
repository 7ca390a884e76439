"""GGUF and safetensors files made by hand, byte by byte, apart from the readers that the package has.

Knows: the formats as their specifications describe them. Refuses to know: what is valid; a test may ask for anything.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Value types of GGUF's metadata.
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
LETTERS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}

# Tensor types of GGUF that tests use: number, elements of a block, bytes of a block.
GGUF_TYPES = {
    "F32": (0, 1, 4),
    "F16": (1, 1, 2),
    "Q4_0": (2, 32, 18),
    "Q8_0": (8, 32, 34),
    "F64": (28, 1, 8),
    "BF16": (30, 1, 2),
    "I8": (24, 1, 1),
}


class Tensor(NamedTuple):
    """A tensor of a file to be written; `shape` in NumPy's order."""

    name: str
    type_name: str
    shape: tuple[int, ...]
    data: bytes


def tensor(name: str, values: NDArray[Any], type_name: str = "F32") -> Tensor:
    """Store values as F32, F16 or F64, or as bfloat16 those that are exact in it."""
    if type_name == "BF16":
        data = (np.ascontiguousarray(values, "<f4").view("<u4") >> 16).astype("<u2").tobytes()
    else:
        data = values.astype({"F32": "<f4", "F16": "<f2", "F64": "<f8", "I8": "i1"}[type_name]).tobytes()
    return Tensor(name, type_name, values.shape, data)


def text(value: str | bytes) -> bytes:
    """Write a GGUF string."""
    octets = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(octets)) + octets


def value(kind: int, content: Any) -> bytes:
    """Write a GGUF value; that of an array is (type of the items, items)."""
    if kind == STRING:
        return text(content)
    if kind == ARRAY:
        item, items = content
        return struct.pack("<IQ", item, len(items)) + b"".join(value(item, one) for one in items)
    return struct.pack("<" + LETTERS[kind], content)


def gguf(
    pairs: Sequence[tuple[str, int, Any]], tensors: Sequence[Tensor], *, version: int = 3, alignment: int = 32
) -> bytes:
    """Write a GGUF file; what follows a tensor's data up to the next is 0xAA."""
    header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs))
    header += b"".join(text(key) + struct.pack("<I", kind) + value(kind, content) for key, kind, content in pairs)
    data = b""
    for one in tensors:
        data += b"\xaa" * (-len(data) % alignment)
        number = GGUF_TYPES[one.type_name][0]
        sizes = struct.pack(f"<I{len(one.shape)}Q", len(one.shape), *one.shape[::-1])
        header += text(one.name) + sizes + struct.pack("<IQ", number, len(data))
        data += one.data
    return header + b"\xaa" * (-len(header) % alignment) + data


def safetensors_header(tensors: Sequence[Tensor], gap: int = 0) -> dict[str, Any]:
    """Describe tensors that follow each other, so many bytes apart."""
    entries, end = {}, 0
    for one in tensors:
        begin = end + gap
        end = begin + len(one.data)
        entries[one.name] = {"dtype": one.type_name, "shape": list(one.shape), "data_offsets": [begin, end]}
    return entries


def safetensors(tensors: Sequence[Tensor], *, header: dict[str, Any] | bytes | None = None, pad: int = 0) -> bytes:
    """Write a safetensors file, under a header of the test's own if it has one; `pad` spaces end the header."""
    entries = safetensors_header(tensors) if header is None else header
    octets = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    octets += b" " * pad
    return struct.pack("<Q", len(octets)) + octets + b"".join(one.data for one in tensors)


def q8_0(values: NDArray[np.int8], scales: NDArray[np.float16]) -> bytes:
    """Store rows as Q8_0: of every 32 elements a float16 scale, then the integers."""
    rows, width = values.shape
    blocks = np.empty((rows, width // 32, 34), np.uint8)
    blocks[..., :2] = scales.astype("<f2")[..., np.newaxis].view(np.uint8)
    blocks[..., 2:] = values.reshape(rows, width // 32, 32).view(np.uint8)
    return blocks.tobytes()
