"""How exact the exponential and tanh are, seen through the public functions that use them.

exp: the two-token row [0, x] has ``logsumexp`` log1p(exp(x)), which is exp(x) itself once x < -20, and probabilities
whose quotient is exp(x). tanh: a head of width 1 with ``softcap=1``. Exact values are float64 for float32, and decimals
of 60 digits for float64. Refuses to know sums of many terms.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
import oracle

pytestmark = pytest.mark.usefixtures("each_isa")

Floats = NDArray[np.float64]
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
DTYPES = pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)
DIGITS = Context(prec=60)
# What the exponential may be off by: units in the last place of its result, and a relative error for each unit of its
# argument, which is reduced by ln 2 / 16 as one float32 (2.7e-9 of it short; a rounding of the argument is 6e-8).
EXP_ULP = {"float32": 1.26, "float64": 1.5}
EXP_REDUCTION = {"float32": 2.7e-9, "float64": 0.0}


@cache
def arguments(dtype: np.dtype[Any], end: float) -> Floats:
    """Return values from 0 to `end` > 0, and where the reduction by ln 2 or ln 2 / 16 changes its multiple."""
    step = math.log(2) / 16
    halves = np.clip((np.arange(end / step) + 0.5) * step, 0, end).astype(dtype)
    around = [halves, np.nextafter(halves, dtype.type(0)), np.nextafter(halves, dtype.type(end))]
    count = 100_000 if dtype == FLOAT32 else 800
    tiny = np.geomspace(1e-30, 1, count // 10)
    picked = around if dtype == FLOAT32 else [a[::7] for a in around]
    return np.concatenate([np.linspace(0, end, count), tiny, *picked]).astype(dtype).astype(np.float64)


@cache
def exp_minus(dtype: np.dtype[Any], end: float) -> tuple[Floats, Floats]:
    """Return x and exp(-x): rounded to float64, and what that lacks."""
    x = arguments(dtype, end)
    if dtype == FLOAT32:
        return np.exp(-x), np.zeros_like(x)
    exact = [DIGITS.exp(Decimal(-float(v))) for v in x]
    rounded = [float(e) for e in exact]
    lack = [float(e - Decimal(r)) for e, r in zip(exact, rounded, strict=True)]
    return np.array(rounded), np.array(lack)


@cache
def tanh_of(dtype: np.dtype[Any], end: float) -> tuple[Floats, Floats]:
    x = arguments(dtype, end)
    if dtype == FLOAT32:
        return np.tanh(x), np.zeros_like(x)
    exact = []
    for v in x:
        e = DIGITS.exp(Decimal(2 * float(v)))
        # Below 2^-20 the next term, 2 x^5 / 15, is less than 2^-80 of the whole.
        small = Decimal(float(v)) - Decimal(float(v)) ** 3 / 3
        exact.append(small if v < 2.0**-20 else (e - 1) / (e + 1))
    rounded = [float(t) for t in exact]
    lack = [float(t - Decimal(r)) for t, r in zip(exact, rounded, strict=True)]
    return np.array(rounded), np.array(lack)


def error(actual: NDArray[Any], exact: tuple[Floats, Floats]) -> Floats:
    return np.abs(oracle.widen(actual) - exact[0] - exact[1])


# ---- exp -----------------------------------------------------------------------------------------------------------


@DTYPES
def test_exp_is_within_its_ulps(dtype: np.dtype[Any]) -> None:
    end = 87.33 if dtype == FLOAT32 else 708.39
    x, (rounded, lack) = arguments(dtype, end), exp_minus(dtype, end)
    rows = np.stack([np.zeros_like(x), -x], axis=-1).astype(dtype)
    ulp = np.spacing(rounded.astype(dtype)).astype(np.float64)
    reduction = EXP_REDUCTION[dtype.name] * x * rounded

    # log1p(e) = e - e^2 / 2: the second term counts up to exp(-20) for float32, exp(-40) for float64.
    far = x > (20 if dtype == FLOAT32 else 40)
    total = native.logsumexp(rows[far])
    logarithm = rounded[far] - rounded[far] ** 2 / 2, lack[far]
    # A float32 is rounded once more, by half an ulp.
    last = 0.5 if dtype == FLOAT32 else 0.0
    assert (error(total, logarithm) <= (EXP_ULP[dtype.name] + last) * ulp[far] + reduction[far]).all()

    p = native.softmax(rows)
    # Both tokens have the same factor, exactly; one product is rounded.
    quotient_bound = (2 * EXP_ULP[dtype.name] + 1) * oracle.UNIT[dtype.name] * rounded + reduction
    product = oracle.widen(p[:, 0]) * rounded, oracle.widen(p[:, 0]) * lack
    normal = p[:, 1] >= oracle.SMALLEST_NORMAL[dtype.name]
    assert (error(p[:, 1], product) <= oracle.SECOND_ORDER * quotient_bound)[normal].all()
    assert normal[x < end - 1].all()


@DTYPES
def test_exp_of_zero_is_one(dtype: np.dtype[Any]) -> None:
    for size in (2, 4, 64, 256, 1024):
        np.testing.assert_array_equal(native.softmax(np.zeros(size, dtype)), np.full(size, 1 / size, dtype))


@DTYPES
def test_exp_below_the_normal_numbers(dtype: np.dtype[Any]) -> None:
    """0 or right from the smallest normal number on, 0 from where nothing is representable, never anything else."""
    normal_end, end, tiny = (87.34, 105.0, 2.0**-149) if dtype == FLOAT32 else (708.4, 746.0, 2.0**-1074)
    x = np.linspace(normal_end - 1, end, 4001).astype(dtype).astype(np.float64)
    p = native.softmax(np.stack([np.zeros_like(x), -x], axis=-1).astype(dtype))[:, 1]
    with np.errstate(under="ignore"):
        exact = np.exp(-x)
    right = np.abs(p - exact) <= (4 * oracle.UNIT[dtype.name] + 2.0**-44 + EXP_REDUCTION[dtype.name] * x) * exact + tiny
    assert right[x < normal_end - 0.01].all()
    assert (right | (p == 0)).all()
    far = np.geomspace(end, float(np.finfo(dtype).max) / 2, 1000).astype(dtype)
    np.testing.assert_array_equal(native.softmax(np.stack([0 * far, -far], axis=-1)), [[1, 0]] * 1000)
    assert native.softmax(np.array([0, -np.inf], dtype)).tolist() == [1, 0]


@DTYPES
def test_exp_in_another_block_is_a_product_of_two(dtype: np.dtype[Any]) -> None:
    """The best token is 300 ids away: exp(x - block maximum) times exp(block maximum - maximum)."""
    x = np.linspace(0, 40, 257)
    row = np.concatenate([-x[:256], np.full(300, -np.inf), [25.0]]).astype(dtype)
    exact = oracle.row_answers(row, result=dtype.name)
    p = native.softmax(row)
    bound = (4 * EXP_ULP[dtype.name] + 4) * oracle.UNIT[dtype.name] + EXP_REDUCTION[dtype.name] * 65
    oracle.assert_within(p, exact.softmax, bound * exact.softmax + 100 * oracle.UNIT[dtype.name] ** 2)
    assert p[-1] == pytest.approx(1 / (1 + np.exp(oracle.widen(row[:256]) - 25).sum()), rel=4 * oracle.UNIT[dtype.name])


# ---- tanh ----------------------------------------------------------------------------------------------------------


def tanh(x: NDArray[Any]) -> NDArray[Any]:
    return native.logits(np.ones(1, x.dtype), x[:, None], softcap=1.0)


@DTYPES
def test_tanh_is_within_two_ulp(dtype: np.dtype[Any]) -> None:
    x, exact = arguments(dtype, 25.0), tanh_of(dtype, 25.0)
    y = tanh(x.astype(dtype))
    assert (error(y, exact) <= oracle.FUNCTION_ULP * oracle.UNIT[dtype.name] * exact[0]).all()
    oracle.assert_same_bits(tanh(-x.astype(dtype))[x > 0], -y[x > 0])
    assert (np.abs(y) <= 1).all()


@DTYPES
def test_tanh_at_its_ends(dtype: np.dtype[Any]) -> None:
    large = np.geomspace(25, float(np.finfo(dtype).max) / 2, 1000).astype(dtype)
    np.testing.assert_array_equal(tanh(large), np.ones_like(large))
    np.testing.assert_array_equal(tanh(-large), -np.ones_like(large))
    ends = np.array([np.inf, -np.inf, np.nan, 0.0], dtype)
    np.testing.assert_array_equal(tanh(ends), np.array([1, -1, np.nan, 0], dtype), strict=True)
    small = np.geomspace(np.finfo(dtype).smallest_subnormal, 2.0**-30, 1000).astype(dtype)
    oracle.assert_within(tanh(small), small, 4 * oracle.UNIT[dtype.name] * small + np.finfo(dtype).smallest_subnormal)


@DTYPES
def test_a_cap_far_above_the_logits_leaves_them(dtype: np.dtype[Any]) -> None:
    """Also one that float32 cannot hold: a softcap and a scale are finite float64 numbers."""
    x = np.array([-3.0, 0.0, 1e-3, 7.0], dtype)
    for cap in (1e9, 1e30, 1e39, 1e300):
        y = native.logits(np.ones(1, dtype), x[:, None], softcap=cap)
        # z / cap is known to half the smallest subnormal.
        lost = 2 * oracle.UNDERFLOW[dtype.name] * min(cap, float(np.finfo(dtype).max))
        oracle.assert_within(y, x, 8 * oracle.UNIT[dtype.name] * np.abs(x) + lost)


@DTYPES
def test_caps_and_scales_outside_the_range_of_float32(dtype: np.dtype[Any]) -> None:
    """No 0 / 0 and no inf * 0."""
    ones, x = np.ones(1, dtype), np.array([-3.0, 0.0, 7.0], dtype)
    for cap in (1e-50, 1e-300):
        y = native.logits(ones, x[:, None], softcap=cap)
        oracle.assert_within(y, cap * np.sign(x), 8 * oracle.UNIT[dtype.name] * cap + 2 * oracle.UNDERFLOW[dtype.name])
    y = native.logits(ones, x[:, None], scale=1e200)
    with np.errstate(over="ignore"):
        expected = (oracle.widen(x) * 1e200).astype(dtype)
    np.testing.assert_allclose(y, expected, rtol=4 * oracle.UNIT[dtype.name])
    large = np.array([1e38, -2e30, 0, np.inf], dtype)
    y = native.logits(ones, large[:, None], scale=1e-50)
    expected = (oracle.widen(large) * 1e-50).astype(dtype)
    np.testing.assert_allclose(y, expected, rtol=4 * oracle.UNIT[dtype.name])
