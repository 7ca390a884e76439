"""The heads that are measured and the matrices made for them.

Knows: names and sizes, their reduced forms, how to fill gigabytes cheaply, which weights to keep. Refuses to know:
what is computed with them.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lmhead_native.cli.workload import NAMED_SHAPES, Shape, storage_dtype

Array = NDArray[Any]
Layout = Literal["vd", "dv"]

# Random numbers are drawn for so many elements and repeated: a prime, so that no two rows of a matrix begin at the same
# place of the period (equal rows would be ties, which real heads do not have), and 16 MiB of float32, drawn in 50 ms.
PERIOD = 4194319
# What `reduced` divides by: a 128256 x 4096 head becomes 2673 x 512, whose float64 oracle takes milliseconds.
WIDTH_DIVISOR, VOCABULARY_DIVISOR, ROWS_DIVISOR = 8, 48, 8


def head(name: str, *, reduced: bool) -> Shape:
    """Return the head of that name, or a small one with an odd vocabulary that goes by its name."""
    width, vocabulary = NAMED_SHAPES[name]
    return Shape(name, width // WIDTH_DIVISOR, odd(vocabulary)) if reduced else Shape(name, width, vocabulary)


def logits_shape(rows: int, vocabulary: int, *, reduced: bool) -> tuple[int, int]:
    """Return the shape of rows of logits, or a small one."""
    return (max(1, rows // ROWS_DIVISOR), odd(vocabulary)) if reduced else (rows, vocabulary)


def odd(vocabulary: int) -> int:
    """Return the reduced vocabulary: odd, so that every tail is met."""
    return vocabulary // VOCABULARY_DIVISOR | 1


def normal(shape: tuple[int, int], dtype: str, *, seed: int, scale: float = 1.0) -> Array:
    """Make a C-ordered matrix of normal numbers that repeat after :data:`PERIOD` elements.

    Parameters
    ----------
    shape : tuple of int
        Rows and columns.
    dtype : {"f32", "f16", "bf16"}
        What they are rounded to.
    seed : int
        Of the generator.
    scale : float
        Standard deviation.

    Returns
    -------
    ndarray
        Allocated by NumPy, which advises huge pages from 4 MiB.
    """
    size = shape[0] * shape[1]
    drawn = np.random.default_rng(seed).standard_normal(min(size, PERIOD), dtype=np.float32) * np.float32(scale)
    block = drawn.astype(storage_dtype(dtype))
    matrix = np.empty(size, dtype=block.dtype)
    for start in range(0, size, PERIOD):
        part = matrix[start : start + PERIOD]
        part[...] = block[: len(part)]
    return matrix.reshape(shape)


class Weights:
    """Weights of one head at a time; asking for another head frees them."""

    def __init__(self) -> None:
        self._shape: Shape | None = None
        self._made: dict[tuple[str, Layout], Array] = {}

    def get(self, shape: Shape, dtype: str, layout: Layout = "vd") -> Array:
        """Return the weight, of shape (V, D); with layout ``dv`` it is a view of a C-ordered (D, V) matrix."""
        if shape != self._shape:
            self.clear()
            self._shape = shape
        key = dtype, layout
        if key not in self._made:
            size = (shape.vocabulary, shape.width) if layout == "vd" else (shape.width, shape.vocabulary)
            self._made[key] = normal(size, dtype, seed=1)
        return self._made[key] if layout == "vd" else self._made[key].T

    def clear(self) -> None:
        """Free every weight."""
        self._shape = None
        self._made.clear()
