"""What a prepared head is made of besides its screen: a copy of the weight in rows, and when it pays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
import oracle
from layouts import dlpack, layouts
from lmhead_native import _core


def elements(copy: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a copy's elements; bfloat16, which NumPy lacks, is kept as its bits."""
    array: NDArray[Any] = copy.stored.view(dtype) if dtype == oracle.BFLOAT16 else copy
    return array


@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
def test_prepared_copy(dtype: np.dtype[Any], threads: int) -> None:
    rng = np.random.default_rng(11)
    for shape in [(1, 1), (33, 7), (300, 70), (1500, 800), (0, 4), (4, 0)]:
        weight = rng.standard_normal(shape).astype(dtype)
        for variant in [*layouts(weight).values(), dlpack(weight)]:
            copy = elements(_core.prepared_copy(variant, threads), dtype)
            assert copy.flags.c_contiguous
            oracle.assert_same_bits(copy, weight)
            assert not isinstance(variant, np.ndarray) or not np.shares_memory(copy, variant)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("group", [None, 32])
def test_prepared_copy_of_integers(bits: int, group: int | None, threads: int) -> None:
    weight = np.random.default_rng(12).standard_normal((1500, 800))
    quantized = native.quantize(weight, bits, group)
    copy = _core.prepared_copy(quantized, threads)
    oracle.assert_same_bits(copy.stored, quantized.values)
    assert not np.shares_memory(copy.stored, quantized.values)
    oracle.assert_same_bits(copy.dequantize(), quantized.dequantize())


def test_prepared_copy_of_a_files_blocks() -> None:
    rng = np.random.default_rng(13)
    blocks = rng.integers(0, 256, (9, 2, 34)).astype(np.uint8)
    blocks[..., 1] = 0x2C  # scales of about 1/16
    file = np.concatenate([np.zeros(1, np.uint8), blocks.ravel()])[1:].reshape(9, 68)  # at an odd address
    quantized = native.QuantizedWeight._from_q8_0(file)
    copy = _core.prepared_copy(quantized)
    oracle.assert_same_bits(copy.stored, file)
    oracle.assert_same_bits(copy.dequantize(), quantized.dequantize())


def test_cache() -> None:
    assert 2**15 <= _core.last_level_cache_bytes() <= 2**40
