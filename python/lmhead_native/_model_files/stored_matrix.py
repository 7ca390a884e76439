"""A matrix or vector as a model file stores it: mapped where we compute from the file, converted where not.

Knows: which storages are computed from as they lie, how the others become float32. Refuses to know: which tensor is
the head.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .gguf import TYPES, GgufFile
from .mapped import Extent, MappedFile, malformed
from .safetensors import SafetensorsFile

Progress: TypeAlias = Callable[[int, int], object]
"""Called with the rows done and all rows; what it returns is ignored, what it raises ends the work."""

# Storage -> dtype of the mapped array; bfloat16 as its bits, which needs no other package.
MAPPED: dict[str, np.dtype[Any]] = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(np.uint16),
}
Q8_0_ELEMENTS, Q8_0_BYTES = 32, 34  # a float16 scale and 32 int8

# Rows dequantised at a time: a few megabytes at a usual width, so that progress moves several times a second.
ROWS_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class StoredMatrix:
    """A matrix of logical `shape` (rows, width).

    Attributes
    ----------
    storage : str
        What `data` holds: ``"F32"``, ``"F16"``, ``"BF16"`` or ``"Q8_0"``.
    shape : tuple of int
        (V, D) in elements, whatever the storage.
    data : ndarray
        float32 (V, D), float16 (V, D), uint16 (V, D) with the bits of bfloat16, or uint8 (V, D / 32 * 34) with Q8_0
        blocks. Read-only memory of the file at any alignment, or, for what was converted, a float32 array of its own.
    """

    storage: str
    shape: tuple[int, int]
    data: NDArray[Any] = field(repr=False)


def matrix_from_gguf(
    file: GgufFile, name: str, progress: Progress | None = None
) -> tuple[StoredMatrix, tuple[str, ...]]:
    """Return a tensor of two dimensions, and notes on what had to be done to it.

    Raises
    ------
    ValueError
        Not two dimensions, one of them 0, or a type that cannot be read.
    ImportError
        A type that the ``gguf`` package decodes, and the package is missing.
    """
    tensor = file.tensors[name]
    shape = _matrix_shape(file.path, name, tensor.shape)
    if tensor.n_bytes is None:
        raise malformed(file.path, name, "a tensor type known here", tensor.type_name)
    extent = Extent(name, tensor.offset, tensor.n_bytes)
    if tensor.type_name in MAPPED or tensor.type_name == "F64":
        return _mapped_or_rounded(file.file, extent, tensor.type_name, shape)
    if tensor.type_name == "Q8_0":
        data = file.file.view(extent, np.uint8, (shape[0], shape[1] // Q8_0_ELEMENTS * Q8_0_BYTES))
        return StoredMatrix("Q8_0", shape, data), ()
    if tensor.type_name.startswith("I") and tensor.type_name[1:].isdigit():
        raise malformed(file.path, name, "floating-point or quantised elements", tensor.type_name)
    blocks = file.file.view(extent, np.uint8, (shape[0], tensor.n_bytes // shape[0]))
    data = _dequantised(file.path, name, tensor.type_name, blocks, shape, progress)
    return StoredMatrix("F32", shape, data), (f"{name} is {tensor.type_name} in the file: dequantised to float32",)


def matrix_from_safetensors(file: SafetensorsFile, name: str) -> tuple[StoredMatrix, tuple[str, ...]]:
    """Return a tensor of two dimensions, and notes on what had to be done to it.

    Raises
    ------
    ValueError
        Not two dimensions, one of them 0, or elements that are no F32, F16, BF16 or F64: what packed checkpoints
        (GPTQ, AWQ, fp8) store means nothing without their scales.
    """
    tensor = file.tensors[name]
    shape = _matrix_shape(file.path, name, tensor.shape)
    if tensor.dtype not in MAPPED and tensor.dtype != "F64":
        raise malformed(file.path, f"{name}.dtype", "F32, F16, BF16 or F64", tensor.dtype)
    return _mapped_or_rounded(file.file, Extent(name, tensor.offset, tensor.n_bytes), tensor.dtype, shape)


def vector_from_gguf(file: GgufFile, name: str, length: int) -> NDArray[np.float32]:
    """Return a tensor of one dimension as a float32 copy."""
    tensor = file.tensors[name]
    return _vector(file.file, Extent(name, tensor.offset, tensor.n_bytes or 0), tensor.type_name, tensor.shape, length)


def vector_from_safetensors(file: SafetensorsFile, name: str, length: int) -> NDArray[np.float32]:
    """Return a tensor of one dimension as a float32 copy."""
    tensor = file.tensors[name]
    return _vector(file.file, Extent(name, tensor.offset, tensor.n_bytes), tensor.dtype, tensor.shape, length)


def _matrix_shape(path: Path, name: str, shape: tuple[int, ...]) -> tuple[int, int]:
    if len(shape) != 2 or 0 in shape:
        raise malformed(path, name, "shape (vocabulary, width), neither 0", f"shape {shape}")
    return shape


def _mapped_or_rounded(
    file: MappedFile, extent: Extent, storage: str, shape: tuple[int, int]
) -> tuple[StoredMatrix, tuple[str, ...]]:
    if storage in MAPPED:
        return StoredMatrix(storage, shape, file.view(extent, MAPPED[storage], shape)), ()
    # A float64 head would refuse the float32 hidden states that models give.
    with np.errstate(over="ignore"):
        data = file.view(extent, np.float64, shape).astype(np.float32)
    return StoredMatrix("F32", shape, data), (f"{extent.field} is F64 in the file: rounded to float32",)


def _vector(file: MappedFile, extent: Extent, storage: str, shape: tuple[int, ...], length: int) -> NDArray[np.float32]:
    if shape != (length,):
        raise malformed(file.path, extent.field, f"shape ({length},), as the head has", f"shape {shape}")
    if storage == "BF16":
        bits = file.view(extent, np.uint16, shape).astype(np.uint32)
        return (bits << 16).view(np.float32)
    if storage not in ("F32", "F16", "F64"):
        raise malformed(file.path, extent.field, "F32, F16, BF16 or F64", storage)
    with np.errstate(over="ignore"):
        return file.view(extent, MAPPED.get(storage, np.dtype(np.float64)), shape).astype(np.float32)


def _dequantised(
    path: Path, name: str, type_name: str, blocks: NDArray[np.uint8], shape: tuple[int, int], progress: Progress | None
) -> NDArray[np.float32]:
    try:
        package, quants = importlib.import_module("gguf"), importlib.import_module("gguf.quants")
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{path}: {name} is {type_name}, which the gguf package dequantises, and {error.name} is not installed; "
            "pip install gguf, or '.[demo]' in a clone",
            name=error.name,
        ) from error
    number = next(number for number, block in TYPES.items() if block.name == type_name)
    # Blocks of a hostile file may hold any scale: infinities and NaN are values like others.
    with np.errstate(all="ignore"):
        try:
            kind = package.GGMLQuantizationType(number)
            quants.dequantize(blocks[:1], kind)
        except (NotImplementedError, ValueError, KeyError) as error:
            raise malformed(path, name, "a type that the installed gguf package decodes", type_name) from error
        values = np.empty(shape, np.float32)
        for first in range(0, shape[0], ROWS_AT_ONCE):
            last = min(first + ROWS_AT_ONCE, shape[0])
            values[first:last] = quants.dequantize(blocks[first:last], kind)
            if progress is not None:
                progress(last, shape[0])
    return values
