"""What a prepared head is made of besides its screen: a copy of the weight in rows, and when it pays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import oracle
from layouts import dlpack
from lmhead_native import _core


@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
def test_prepared_copy(dtype: np.dtype[Any], threads: int) -> None:
    rng = np.random.default_rng(11)
    for shape in [(1, 1), (33, 7), (300, 70), (1500, 800), (0, 4), (4, 0)]:
        weight = rng.standard_normal(shape).astype(dtype)
        for variant in (weight, np.asfortranarray(weight), weight[::-1], weight.astype(weight.dtype.newbyteorder(">"))):
            copy = _core.prepared_copy(variant, threads)
            assert copy.flags.c_contiguous
            oracle.assert_same_bits(copy, variant.astype(dtype))
            assert not np.shares_memory(copy, variant)


def test_prepared_copy_of_a_tensor() -> None:
    weight = np.random.default_rng(12).standard_normal((33, 7))
    for dtype in oracle.FLOATS:
        array = weight.astype(dtype)
        copy = _core.prepared_copy(dlpack(array), 2)
        expected = array.view("u2") if dtype == oracle.BFLOAT16 else array
        oracle.assert_same_bits(copy, expected)


def test_cache() -> None:
    assert 2**15 <= _core.last_level_cache_bytes() <= 2**40
