"""Quantised weights of every storage, for tests to ask.

Knows storages. Refuses to know what is asked of them.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lmhead_native as native

Array = NDArray[Any]

WIDTHS = (1, 31, 32, 33, 63, 64, 65, 127, 576)
PLANAR = list(itertools.product((8, 4), (None, 32, 64, 128), ("float32", "float16")))
V = 37


def blocks_q8_0(vocabulary: int, width: int, *, offset: int = 1) -> Array:
    """Make blocks of a model file at an odd address, with integers of -128 and scales of either sign."""
    rng = np.random.default_rng(width)
    row = width // 32 * 34
    memory = np.empty(vocabulary * row + offset, np.uint8)
    blocks = memory[offset:].reshape(vocabulary, row)
    blocks[...] = rng.integers(0, 256, blocks.shape)
    scales = (rng.standard_normal((vocabulary, width // 32)) / 64).astype("<f2")
    blocks.reshape(vocabulary, -1, 34)[:, :, :2] = scales.view(np.uint8).reshape(vocabulary, -1, 2)
    return blocks


def storages(vocabulary: int, width: int) -> dict[str, native.QuantizedWeight]:
    """Return weights of one shape in every storage."""
    weight = np.random.default_rng(width).standard_normal((vocabulary, width)).astype(np.float32)
    found = {
        f"{bits} bits, group {group}, {scale}": native.quantize(weight, bits, group, scale_dtype=scale)
        for bits, group, scale in PLANAR
    }
    if width % 32 == 0:
        found["Q8_0"] = native.QuantizedWeight._from_q8_0(blocks_q8_0(vocabulary, width))
    return found


def some_storages(vocabulary: int, width: int) -> dict[str, native.QuantizedWeight]:
    """Return one of each kind of kernel."""
    all_of_them = storages(vocabulary, width)
    return {
        name: w
        for name, w in all_of_them.items()
        if name == "Q8_0" or "group 32, float16" in name or "None, float32" in name
    }


def hidden_states(rows: int, width: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(rows).standard_normal((rows, width)).astype(dtype)
