"""What a prepared head is made of besides its screen: a copy of the weight in rows, and when it pays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lmhead_native as native
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
            assert isinstance(copy, np.ndarray)
            assert copy.flags.c_contiguous
            oracle.assert_same_bits(copy, variant.astype(dtype))
            assert not np.shares_memory(copy, variant)


def test_copy_of_a_tensor() -> None:
    weight = np.random.default_rng(12).standard_normal((33, 7))
    for dtype in (np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.float64)):
        copy = _core.prepared_copy(dlpack(weight.astype(dtype)), 2)
        assert isinstance(copy, np.ndarray)
        oracle.assert_same_bits(copy, weight.astype(dtype))


def test_copy_of_a_bfloat16_tensor_is_one() -> None:
    """NumPy may have no dtype for it. Consumers share the memory; capsules that nobody takes free nothing twice."""
    array = np.random.default_rng(13).standard_normal((33, 7)).astype(oracle.BFLOAT16)
    copy = _core.prepared_copy(dlpack(array), 2)
    assert not isinstance(copy, np.ndarray)
    assert copy.shape == (33, 7)
    assert copy.nbytes == 33 * 7 * 2
    for _ in range(3):
        copy.__dlpack__()
    hidden = np.eye(7, dtype=oracle.BFLOAT16)
    oracle.assert_same_bits(native.logits(hidden, copy), array.T.astype("f4"))
    again = _core.prepared_copy(copy)
    del copy
    oracle.assert_same_bits(native.logits(hidden, again), array.T.astype("f4"))
    assert _core.Screen(again).shape == (33, 7)


def test_cache() -> None:
    assert 2**15 <= _core.last_level_cache_bytes() <= 2**40
