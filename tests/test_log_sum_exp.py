"""``logsumexp`` against float64: every length of row, temperature, infinities, large offsets and small rests.

Knows the sum alone; probabilities are in test_softmax.py.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
import oracle
from parameters import ROW_SIZES, every_dtype, wide_dtypes

pytestmark = pytest.mark.usefixtures("each_isa")

Array = NDArray[Any]
DType = np.dtype[Any]
INF, NAN = math.inf, math.nan


@cache
def some_logits(rows: int, vocabulary: int, dtype: DType, spread: float) -> Array:
    rng = np.random.default_rng([rows, vocabulary])
    return (spread * rng.standard_normal((rows, vocabulary))).astype(dtype)


def check(logits: Array, temperature: float, threads: int) -> None:
    result = oracle.result_dtype(logits.dtype)
    exact = oracle.row_answers(logits, temperature=temperature, result=result.name)
    total = native.logsumexp(logits, temperature=temperature, threads=threads)
    assert total.dtype == result
    oracle.assert_within(total, exact.logsumexp, exact.logsumexp_bound)


# ---- sizes, temperatures -------------------------------------------------------------------------------------------


@every_dtype
def test_every_vocabulary(threads: int, dtype: DType) -> None:
    """Padding never counts: neither zeros beside negative logits nor anything beside the last id."""
    for vocabulary, spread in itertools.product(ROW_SIZES, (0.1, 6.0)):
        logits = some_logits(3, vocabulary, dtype, spread)
        check(logits, 1.0, threads)
        check((logits - 40).astype(dtype), 1.7, threads)


@every_dtype
def test_rows_that_are_shared_out(threads: int, dtype: DType) -> None:
    for rows, vocabulary in [(1, 129920), (2, 40001), (70, 1025), (40, 5003)]:
        check(some_logits(rows, vocabulary, dtype, 2.0), 1.0, threads)


@every_dtype
def test_temperatures(threads: int, dtype: DType) -> None:
    """It is log sum exp(x / T), not T times that."""
    for temperature in (1e-3, 0.1, 0.5, 1.5, 10.0, 1e6):
        for rows, vocabulary in [(2, 5), (1, 300)]:
            check(some_logits(rows, vocabulary, dtype, 3.0), temperature, threads)
    for wrong in (0.0, -0.0, -1.0, NAN, INF, -INF):
        with pytest.raises(ValueError, match=r"^temperature: expected a finite number > 0, got "):
            native.logsumexp(np.ones(3, dtype), temperature=wrong)


# ---- infinities and NaN --------------------------------------------------------------------------------------------


@every_dtype
def test_infinities_around_a_finite_logit(threads: int, dtype: DType) -> None:
    """Whole registers and blocks of -inf before or after the one finite logit leave exactly that."""
    for before, after in itertools.product((0, 1, 7, 64, 255, 256, 700), repeat=2):
        for value in (0.0, -7.0, 96.0):
            row = np.repeat(np.array([-INF, value, -INF]), [before, 1, after]).astype(dtype)
            assert native.logsumexp(row, threads=threads) == value
    for vocabulary in ROW_SIZES:
        assert native.logsumexp(np.full(vocabulary, -INF).astype(dtype), threads=threads) == -INF


@every_dtype
def test_infinity_and_nan_at_every_lane(threads: int, dtype: DType) -> None:
    """NaN beats +inf, +inf beats the rest; the neighbours keep the bits they have alone."""
    for vocabulary in (*range(1, 70), 300):
        clean = np.repeat(some_logits(1, vocabulary, dtype, 2.0), 2 * vocabulary + 1, axis=0)
        expected = np.repeat(native.logsumexp(clean[0], threads=1), len(clean))
        for value in (NAN, -NAN, INF):
            spoilt = clean.copy()
            spoilt[range(1, 2 * vocabulary, 2), range(vocabulary)] = value
            expected[1::2] = value
            oracle.assert_same_bits(native.logsumexp(spoilt, threads=threads), expected)
        both = clean[:2].copy()
        both[0, [0, -1]], both[1, [0, -1]] = (NAN, INF), (INF, NAN)
        if vocabulary > 1:
            assert np.isnan(native.logsumexp(both, threads=threads)).all()


# ---- offsets and rests ---------------------------------------------------------------------------------------------


@wide_dtypes
def test_small_rests(threads: int, dtype: DType) -> None:
    """The maximum's own 1 is left out of the sum, so what is below an ulp of 1 is not lost."""
    u = oracle.UNIT[dtype.name]
    for gap in (20.0, 60.0, 80.0):
        for vocabulary, best in itertools.product((2, 17, 300, 600), (0, 1, -1)):
            row = np.full(vocabulary, -INF, dtype)
            row[vocabulary // 2 - 1], row[best] = -gap, 0
            rest = 0.0 if best == vocabulary // 2 - 1 else math.exp(-gap)
            assert native.logsumexp(row, threads=threads) == pytest.approx(math.log1p(rest), rel=8 * u, abs=0)
        far = np.array([-gap] * 40 + [0.0] + [-gap] * 700, dtype)  # in the best token's block and beyond
        expected = math.log1p(740 * math.exp(-gap))
        assert native.logsumexp(far, threads=threads) == pytest.approx(expected, rel=64 * u, abs=0)


@every_dtype
def test_equal_logits(threads: int, dtype: DType) -> None:
    result = oracle.result_dtype(dtype)
    for vocabulary, value in itertools.product((1, 2, 17, 256, 257, 512, 2**17), (0.0, -3.0, 2.0**15)):
        total = native.logsumexp(np.full(vocabulary, value).astype(dtype), threads=threads)
        # The sum of ones is exact, the last addition is float64, rounded once.
        assert total == result.type(value + math.log(vocabulary))
    for offset in (1e8, -1e8, 2.0**100):
        if dtype in (np.float32, np.float64):
            total = native.logsumexp(np.full(300, offset, dtype), threads=threads)
            assert total == result.type(offset + math.log(300))


# ---- shapes, out ---------------------------------------------------------------------------------------------------


@every_dtype
def test_shapes(threads: int, dtype: DType) -> None:
    logits = some_logits(24, 11, dtype, 2.0)
    flat = native.logsumexp(logits, threads=threads)
    oracle.assert_same_bits(native.logsumexp(logits.reshape(2, 3, 4, 11), threads=threads), flat.reshape(2, 3, 4))
    single = native.logsumexp(logits[5], threads=threads)
    assert isinstance(single, np.ndarray)
    oracle.assert_same_bits(single, flat[5])
    for shape in [(0,), (2, 3, 0), (0, 5), (3, 0, 5)]:
        empty = np.full(shape[:-1], -INF, oracle.result_dtype(dtype))
        oracle.assert_same_bits(native.logsumexp(np.zeros(shape, dtype), threads=threads), empty)
    with pytest.raises(ValueError, match=r"^logits: expected shape \(\.\.\., V\), got shape \(\)"):
        native.logsumexp(logits[0, 0])


@wide_dtypes
def test_out(threads: int, dtype: DType) -> None:
    logits = some_logits(24, 300, dtype, 2.0).reshape(4, 6, 300)
    expected = native.logsumexp(logits, threads=1)
    whole = np.full((8, 12), NAN, dtype)
    for out in (np.empty((4, 6), dtype), np.empty((6, 4), dtype).T, whole[::-2, 1::2]):
        assert native.logsumexp(logits, out=out, threads=threads) is out
        oracle.assert_same_bits(out, expected)
    assert np.count_nonzero(~np.isnan(whole)) == expected.size
    scalar = np.full((), NAN, dtype)
    assert native.logsumexp(logits[1, 2], out=scalar, threads=threads) is scalar
    oracle.assert_same_bits(scalar, expected[1, 2])
    nothing = np.full(3, NAN, dtype)
    np.testing.assert_array_equal(native.logsumexp(np.zeros((3, 0), dtype), out=nothing), [-INF] * 3)
    with pytest.raises(ValueError, match=r"^out: expected memory apart from logits"):
        native.logsumexp(logits, out=logits[..., 0])
