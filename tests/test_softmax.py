"""``softmax`` and ``log_softmax`` against float64, over every length of row, temperature and kind of number.

Knows values, rows with NaN and infinities, large offsets and `out`. The sum alone is in test_log_sum_exp.py, the
accuracy of the exponential in test_exp.py, equality of bits in test_same_bits.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
import oracle
from lmhead_native import reference
from parameters import ROW_SIZES, every_dtype, wide_dtypes

pytestmark = pytest.mark.usefixtures("each_isa")

Array = NDArray[Any]
DType = np.dtype[Any]
INF, NAN = math.inf, math.nan
FUNCTIONS: list[Callable[..., Array]] = [native.softmax, native.log_softmax]


@cache
def some_logits(rows: int, vocabulary: int, dtype: DType, spread: float = 4.0) -> Array:
    rng = np.random.default_rng([rows, vocabulary])
    return (spread * rng.standard_normal((rows, vocabulary))).astype(dtype)


@cache
def answers(rows: int, vocabulary: int, dtype: DType, temperature: float) -> oracle.RowAnswers:
    result = oracle.result_dtype(dtype).name
    return oracle.row_answers(some_logits(rows, vocabulary, dtype), temperature=temperature, result=result)


def check(rows: int, vocabulary: int, dtype: DType, temperature: float, threads: int) -> None:
    logits, exact = some_logits(rows, vocabulary, dtype), answers(rows, vocabulary, dtype, temperature)
    p = native.softmax(logits, temperature=temperature, threads=threads)
    log_p = native.log_softmax(logits, temperature=temperature, threads=threads)
    assert p.dtype == log_p.dtype == oracle.result_dtype(dtype)
    oracle.assert_within(p, exact.softmax, exact.softmax_bound)
    oracle.assert_within(log_p, exact.log_softmax, exact.log_softmax_bound)
    assert (log_p <= 0).all()
    u = oracle.UNIT[p.dtype.name]
    assert np.abs(oracle.widen(p).sum(axis=-1) - 1).max() <= exact.softmax_bound.sum(axis=-1).max() + vocabulary * u**2


# ---- sizes ---------------------------------------------------------------------------------------------------------


@every_dtype
def test_every_vocabulary(threads: int, dtype: DType) -> None:
    for vocabulary in ROW_SIZES:
        check(3, vocabulary, dtype, (1.0, 0.7, 3.0)[vocabulary % 3], threads)


@every_dtype
def test_rows_that_are_shared_out(threads: int, dtype: DType) -> None:
    """One long row in blocks over several threads, many rows one by one."""
    for rows, vocabulary in [(1, 129920), (2, 40001), (70, 1025)]:
        check(rows, vocabulary, dtype, 1.0, threads)


@wide_dtypes
def test_results_that_go_past_the_caches(threads: int, dtype: DType) -> None:
    """Above 8 MiB: the bits of a result of every other element, which takes the ordinary way."""
    vocabulary = 2**23 // dtype.itemsize + 13
    logits = some_logits(1, vocabulary, dtype)[0]
    for function in FUNCTIONS:
        scattered, whole = np.full((2, 2 * vocabulary), NAN, dtype)
        expected = function(logits, out=scattered[::2], threads=1)
        for first in (0, 9):  # also from the middle of a cache line
            actual = function(logits, out=whole[first : first + vocabulary], threads=threads)
            oracle.assert_same_bits(actual, expected)
        assert np.isnan(whole[vocabulary + 9 :]).all()


@wide_dtypes
def test_empty_rows(threads: int, dtype: DType) -> None:
    for function in FUNCTIONS:
        for shape in [(2, 3, 0), (0,), (0, 5), (3, 0, 5)]:
            actual = function(np.zeros(shape, dtype), threads=threads)
            assert actual.shape == shape
            assert actual.dtype == dtype


def test_leading_axes_and_lists() -> None:
    logits = some_logits(30, 11, np.dtype(np.float32))
    for function in FUNCTIONS:
        flat = function(logits)
        oracle.assert_same_bits(function(logits.reshape(2, 3, 5, 11)), flat.reshape(2, 3, 5, 11))
        oracle.assert_same_bits(function(logits[4]), flat[4])
        for sequence in ([1, 2.5], (1, 2.5), [[1.0, 2.5]]):
            oracle.assert_same_bits(function(sequence), function(np.array(sequence)))
        with pytest.raises(ValueError, match=r"^logits: expected shape \(\.\.\., V\), got shape \(\)"):
            function(np.float32(1))


# ---- rows with NaN and infinities ----------------------------------------------------------------------------------


def special_rows(vocabulary: int, dtype: DType) -> Array:
    """Return rows with NaN, +inf or nothing but -inf, which have no softmax, and rows with some -inf, which do."""
    rng = np.random.default_rng(vocabulary)
    rows = []
    for at in (0, vocabulary // 2, vocabulary - 1):
        for values in ([NAN], [-NAN], [INF], [NAN, INF], [INF, NAN], [INF, -INF], [-INF]):
            row = 3 * rng.standard_normal(vocabulary)
            row[at] = values[0]
            row[rng.integers(vocabulary)] = values[-1]
            rows.append(row)
    rows += [np.full(vocabulary, -INF), np.where(np.arange(vocabulary) == vocabulary // 2, -5.0, -INF)]
    return np.array(rows, dtype)


@every_dtype
def test_rows_with_nan_and_infinities(threads: int, dtype: DType) -> None:
    """NaN throughout, whatever the lane; -inf alone has probability 0."""
    for vocabulary in (*range(1, 35), 63, 64, 65, 255, 256, 257, 600):
        logits = special_rows(vocabulary, dtype)
        undefined = ~(logits < INF).all(axis=-1) | (logits == -INF).all(axis=-1)
        exact = oracle.row_answers(logits, result=oracle.result_dtype(dtype).name)
        np.testing.assert_array_equal(np.isnan(exact.softmax).all(axis=-1), undefined)
        p, log_p = (function(logits, threads=threads) for function in FUNCTIONS)
        oracle.assert_within(p, exact.softmax, exact.softmax_bound)
        oracle.assert_within(log_p, exact.log_softmax, exact.log_softmax_bound)


@every_dtype
def test_nan_at_every_lane(threads: int, dtype: DType) -> None:
    """The row is NaN, its neighbours keep the bits they have alone."""
    for vocabulary in range(1, 70):
        clean = np.repeat(some_logits(1, vocabulary, dtype), 2 * vocabulary + 1, axis=0)
        spoilt = clean.copy()
        spoilt[range(1, 2 * vocabulary, 2), range(vocabulary)] = NAN
        for function in FUNCTIONS:
            expected = np.repeat(function(clean[0], threads=1)[None], len(clean), axis=0)
            expected[1::2] = NAN
            oracle.assert_same_bits(function(spoilt, threads=threads), expected)


@wide_dtypes
def test_blocks_of_infinities(threads: int, dtype: DType) -> None:
    """Whole blocks of 256 ids without a finite logit, before, between and after finite ones."""
    for blocks in itertools.product((0, 1), repeat=4):
        for tail in (0, 1, 100):
            finite = np.repeat(np.array([*blocks, 1], bool), [256, 256, 256, 256, tail])
            logits = np.where(finite, 2.0, -INF).astype(dtype)
            n = np.count_nonzero(finite)
            p, log_p = (function(logits, threads=threads) for function in FUNCTIONS)
            if n == 0:
                assert np.isnan([p, log_p]).all()
                continue
            np.testing.assert_allclose(p, finite / n, rtol=4 * oracle.UNIT[dtype.name])
            np.testing.assert_allclose(log_p, np.where(finite, -math.log(n), -INF), rtol=4 * oracle.UNIT[dtype.name])


# ---- sums that narrow accumulators lose ----------------------------------------------------------------------------


@every_dtype
def test_equal_logits_are_uniform(threads: int, dtype: DType) -> None:
    """A bfloat16 running sum sticks at 256."""
    for vocabulary in (1, 2, 64, 512, 2048, 2**17):
        for value in (0.0, -3.0, 96.0, 2.0**15):
            p = native.softmax(np.full(vocabulary, value).astype(dtype), threads=threads)
            np.testing.assert_array_equal(p, np.full(vocabulary, 1 / vocabulary, p.dtype), strict=True)


@wide_dtypes
def test_large_offsets(threads: int, dtype: DType) -> None:
    for offset in (1e8, -1e8, 2.0**100, -(2.0**100)):
        for vocabulary in (2, 3, 17, 300):
            equal = np.full(vocabulary, offset, dtype)
            log_p = native.log_softmax(equal, threads=threads)
            np.testing.assert_array_equal(log_p, np.full(vocabulary, -math.log(vocabulary), dtype), strict=True)
    for gap in (20.0, 60.0, 80.0):
        for vocabulary, best in [(2, 1), (17, 16), (300, 3), (300, 290)]:
            logits = np.full(vocabulary, -INF, dtype)
            logits[[best, 0]] = gap, 0
            log_p = native.log_softmax(logits, threads=threads)
            loss = math.log1p(math.exp(-gap))  # 8.8e-27 for 60
            assert -log_p[best] == pytest.approx(loss, rel=8 * oracle.UNIT[dtype.name], abs=0)
            assert log_p[0] == -gap - loss
    certain = native.log_softmax(np.array([0, 1000], dtype))
    np.testing.assert_array_equal(certain, np.array([-1000, 0], dtype), strict=True)


@wide_dtypes
def test_the_smallest_probabilities(threads: int, dtype: DType) -> None:
    """Below the smallest normal number 0 may stand for a probability; its logarithm is unaffected."""
    end = 110.0 if dtype == np.float32 else 750.0
    for offset in (0, 256):  # in the best token's block and in another
        logits = np.concatenate([[0.0], np.full(offset, -INF), -np.linspace(1, end, 1025)]).astype(dtype)[None]
        exact = oracle.row_answers(logits, result=dtype.name)
        p, log_p = (function(logits, threads=threads) for function in FUNCTIONS)
        normal = exact.softmax >= oracle.SMALLEST_NORMAL[dtype.name] * (1 + 1e-4)
        assert (p[normal] > 0).all()
        tight = exact.softmax_bound - oracle.SMALLEST_NORMAL[dtype.name]
        oracle.assert_within(p[normal], exact.softmax[normal], tight[normal])
        oracle.assert_within(p, exact.softmax, exact.softmax_bound)
        oracle.assert_within(log_p, exact.log_softmax, exact.log_softmax_bound)


# ---- temperature, out ----------------------------------------------------------------------------------------------


@every_dtype
def test_temperatures(threads: int, dtype: DType) -> None:
    for temperature in (1e-3, 0.1, 0.5, 1.5, 10.0, 1e6):
        for rows, vocabulary in [(2, 5), (1, 300)]:
            check(rows, vocabulary, dtype, temperature, threads)
    for wrong in (0.0, -0.0, -1.0, NAN, INF, -INF):
        for function in FUNCTIONS:
            with pytest.raises(ValueError, match=r"^temperature: expected a finite number > 0, got "):
                function(some_logits(2, 5, dtype), temperature=wrong)


def test_temperatures_and_gaps_outside_the_range_of_float32(threads: int) -> None:
    """Neither a gap of 6e38 nor the reciprocal of a temperature has to be a float32."""
    pairs = np.array([[3e38, -3e38], [1, 0.5], [1e-38, 0], [1e-44, 0], [-2e38, 2e38]], np.float32)
    for logits in (pairs, np.insert(pairs, 1, np.full((300, 1), -INF), axis=1)):  # alone, and in two blocks
        for temperature in (1e-300, 1e-39, 1e-30, 10.0, 1e38, 1e300):
            for function, specified in [
                (native.softmax, reference.softmax),
                (native.log_softmax, reference.log_softmax),
            ]:
                expected = specified(logits, temperature=temperature)
                actual = function(logits, temperature=temperature, threads=threads)
                # The largest finite gap that is no certainty is 87: 3 roundings of it, and those of exp and log.
                np.testing.assert_allclose(actual, expected, rtol=300 * oracle.UNIT["float32"], atol=1e-38)


@wide_dtypes
def test_in_place(threads: int, dtype: DType) -> None:
    for vocabulary, function in itertools.product((5, 300, 40001), FUNCTIONS):
        logits = some_logits(3, vocabulary, dtype)
        expected = function(logits, temperature=0.5, threads=1)
        whole = np.full((6, 2 * vocabulary), NAN, dtype)
        for memory in (np.empty_like(logits), whole[::-2, ::2], np.empty(logits.shape[::-1], dtype).T):
            memory[...] = logits
            assert function(memory, temperature=0.5, out=memory, threads=threads) is memory
            oracle.assert_same_bits(memory, expected)
        assert np.isnan(whole[::2]).all()
        with pytest.raises(ValueError, match=r"^out: expected memory apart from logits or exactly its memory"):
            function(logits[:, :-1], out=logits[:, 1:])
