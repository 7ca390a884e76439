"""`native.reference` against formulas that are not its own: exact fractions, 50-digit decimals, plain Python loops.

Knows the promises about values: rounding, large offsets, NaN, infinities, ties, empty axes. What the reference accepts
and refuses is in test_reference_intake.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import oracle
from lmhead_native import reference

INF, NAN = math.inf, math.nan
DIGITS = Context(prec=50)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20250)


def decimal_row(row: Sequence[float], temperature: float = 1.0) -> tuple[list[Decimal], list[Decimal], Decimal]:
    """Return softmax, log_softmax and logsumexp of finite numbers to about 50 digits."""
    scaled = [DIGITS.divide(Decimal(x), Decimal(temperature)) for x in row]
    total = sum((DIGITS.exp(s) for s in scaled), Decimal(0))
    log_total = DIGITS.ln(total)
    return (
        [DIGITS.divide(DIGITS.exp(s), total) for s in scaled],
        [DIGITS.subtract(s, log_total) for s in scaled],
        log_total,
    )


def some_logits(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    return (3 * rng.standard_normal(shape)).astype(dtype)


# ---- logits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
def test_logits_are_the_exact_sum_rounded_once(rng: np.random.Generator, dtype: np.dtype[Any]) -> None:
    hidden, weight = rng.standard_normal((3, 13)).astype(dtype), rng.standard_normal((7, 13)).astype(dtype)
    actual = reference.logits(hidden, weight)
    assert actual.dtype == oracle.result_dtype(dtype)
    for n, v in itertools.product(range(3), range(7)):
        terms = [Fraction(float(h)) * Fraction(float(w)) for h, w in zip(hidden[n], weight[v], strict=True)]
        bound = oracle.gamma(13, oracle.UNIT["float64"]) * float(sum(abs(t) for t in terms))
        if actual.dtype == np.float32:
            bound += oracle.UNIT["float32"] * abs(float(sum(terms)))
        assert abs(Fraction(float(actual[n, v])) - sum(terms)) <= bound


def test_integers_come_out_exactly_in_every_shape() -> None:
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    hidden = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    expected = [[[sum(a * b for a, b in zip(h, w, strict=True)) for w in weight] for h in t] for t in hidden]
    np.testing.assert_array_equal(reference.logits(hidden, weight), np.array(expected, np.float32), strict=True)
    np.testing.assert_array_equal(reference.logits(hidden[1], weight), np.array(expected[1], np.float32), strict=True)
    np.testing.assert_array_equal(reference.logits(hidden[1, 2], weight), np.array(expected[1][2], np.float32))


def test_bias_then_softcap_then_scale() -> None:
    z = reference.logits([[1.0]], [[3.0], [-5.0]], bias=[0.5, 1.0], softcap=2.0, scale=-4.0)
    assert z[0, 0] == pytest.approx(-4 * 2 * math.tanh(3.5 / 2), rel=4e-16)
    assert z[0, 1] == pytest.approx(-4 * 2 * math.tanh(-4 / 2), rel=4e-16)
    capped = reference.logits([[1.0]], [[-35.0], [-40.0], [-40.0], [-40.0], [-40.0]], softcap=30.0)
    assert -reference.log_softmax(capped)[0, 0] == pytest.approx(0.6834268, abs=5e-8)


def test_empty_axes_of_the_projection() -> None:
    bias = np.array([0.5, -0.0, INF], np.float32)
    nothing = np.zeros((2, 0), np.float32)
    out = np.full((2, 3), NAN, np.float32)
    assert reference.logits(nothing, np.zeros((3, 0), np.float32), bias=bias, out=out) is out
    np.testing.assert_array_equal(out, [bias, bias])
    np.testing.assert_array_equal(reference.logits(nothing, np.zeros((3, 0), np.float32)), np.zeros((2, 3)))
    assert reference.logits(np.zeros((0, 4)), np.zeros((3, 4))).shape == (0, 3)
    assert reference.logits(np.zeros((5, 2, 4)), np.zeros((0, 4))).shape == (5, 2, 0)
    assert [a.shape for a in reference.logits_topk(np.zeros((5, 4)), np.zeros((0, 4)), 0)] == [(5, 0), (5, 0)]


def test_what_is_not_finite_stays_in_its_row() -> None:
    weight = np.array([[1, 2], [3, -4], [0, 1]], np.float32)
    hidden = np.array([[1, 1], [NAN, 0], [INF, 1], [1, 2]], np.float32)
    expected = [[3, -1, 1], [NAN, NAN, NAN], [INF, INF, NAN], [5, -5, 2]]
    np.testing.assert_array_equal(reference.logits(hidden, weight), expected)


# ---- softmax, log_softmax, logsumexp -------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.25, 7.0])
@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
def test_row_functions_to_the_last_bits(rng: np.random.Generator, dtype: np.dtype[Any], temperature: float) -> None:
    logits = some_logits(rng, (2, 37), dtype)
    result = oracle.result_dtype(dtype)
    probabilities = reference.softmax(logits, temperature=temperature)
    log_probabilities = reference.log_softmax(logits, temperature=temperature)
    totals = reference.logsumexp(logits, temperature=temperature)
    assert probabilities.dtype == log_probabilities.dtype == totals.dtype == result
    for row in range(2):
        p, log_p, total = decimal_row([float(x) for x in logits[row]], temperature)
        # 200 float64 roundings bound a sum of 37 terms whose arguments reach 50; then one rounding to the result.
        rate = oracle.gamma(200, oracle.UNIT["float64"]) + oracle.UNIT[result.name]
        for v in range(37):
            assert abs(Decimal(float(probabilities[row, v])) - p[v]) <= Decimal(rate) * p[v]
            assert abs(Decimal(float(log_probabilities[row, v])) - log_p[v]) <= Decimal(rate) * (abs(log_p[v]) + 1)
        assert abs(Decimal(float(totals[row])) - total) <= Decimal(rate) * (abs(total) + 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_offsets_and_small_rests(dtype: type[Any]) -> None:
    equal = np.array([1e8, 1e8], dtype)
    np.testing.assert_array_equal(reference.log_softmax(equal), np.full(2, -math.log(2), dtype))
    np.testing.assert_array_equal(reference.softmax(equal), [0.5, 0.5])
    far = reference.log_softmax(np.array([0, 60], dtype))
    assert far[1] == pytest.approx(-8.7565e-27, rel=1e-4, abs=0)
    assert far[0] == -60
    assert reference.softmax(np.array([0, 60], dtype))[0] == pytest.approx(8.7565e-27, rel=1e-4, abs=0)
    np.testing.assert_array_equal(np.signbit(reference.log_softmax(np.array([0, 1000], dtype))), [True, False])


def test_equal_logits_in_bfloat16_are_uniform() -> None:
    np.testing.assert_array_equal(reference.softmax(np.zeros(512, oracle.BFLOAT16)), np.full(512, 1 / 512, np.float32))


@pytest.mark.parametrize(
    ("row", "softmax", "logsumexp"),
    [
        ([-INF] * 4, [NAN] * 4, -INF),
        ([1.0, INF, 2.0, 3.0], [NAN] * 4, INF),
        ([INF, INF, -INF, 0.0], [NAN] * 4, INF),
        ([INF, NAN, -INF, 0.0], [NAN] * 4, NAN),
        ([-INF, NAN, -INF, -INF], [NAN] * 4, NAN),
        ([-INF, 7.0, -INF, 7.0], [0.0, 0.5, 0.0, 0.5], 7.0 + math.log(2)),
    ],
    ids=str,
)
def test_rows_with_infinities_and_nan(row: list[float], softmax: list[float], logsumexp: float) -> None:
    neighbour = [0.0, 1.0, 2.0, 3.0]
    rows = np.array([neighbour, row, neighbour])
    alone = np.array(neighbour)
    for function in (reference.softmax, reference.log_softmax, reference.logsumexp):
        for at in (0, 2):
            oracle.assert_same_bits(function(rows)[at], function(alone))
    np.testing.assert_array_equal(reference.softmax(rows)[1], softmax)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(reference.log_softmax(rows)[1], np.log(softmax), rtol=4e-16)
    np.testing.assert_allclose(reference.logsumexp(rows)[1], logsumexp, rtol=4e-16)


def test_infinities_far_from_the_maximum() -> None:
    masked = [-INF] * 64
    assert reference.logsumexp([*masked, 0.0]) == 0
    assert reference.logsumexp([0.0, *masked]) == 0


def test_temperature_at_its_ends() -> None:
    row = np.array([1.0, 3.0, 3.0, 2.0], np.float32)
    for tiny in (1e-3, 1e-40, 5e-324):
        np.testing.assert_array_equal(reference.softmax(row, temperature=tiny), [0, 0.5, 0.5, 0])
    for huge in (1e12, 1e300):
        np.testing.assert_array_equal(reference.softmax(row, temperature=huge), [0.25] * 4)
    assert reference.logsumexp(row, temperature=1e300) == np.float32(math.log(4))


def test_empty_rows() -> None:
    nothing = np.zeros((2, 3, 0), np.float32)
    assert reference.softmax(nothing).shape == reference.log_softmax(nothing).shape == (2, 3, 0)
    np.testing.assert_array_equal(reference.logsumexp(nothing), np.full((2, 3), -INF, np.float32), strict=True)
    assert reference.logsumexp(np.zeros((0, 5))).shape == (0,)
    assert [a.shape for a in reference.topk(nothing, 0)] == [(2, 3, 0), (2, 3, 0)]
    assert [a.shape for a in reference.topk(np.zeros((0, 5)), 2)] == [(0, 2), (0, 2)]


# ---- top-k ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
def test_top_k_order_for_every_k(rng: np.random.Generator, dtype: np.dtype[Any]) -> None:
    special = np.array([NAN, -NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 2.0, 5.0])
    for size in (1, 2, 9, 40):
        row = rng.choice(special, size).astype(dtype)
        for k in range(size + 1):
            values, indices = reference.topk(row, k)
            assert indices.tolist() == oracle.top_k_exact(row, k)
            assert indices.dtype == np.int64
            oracle.assert_same_bits(values, row[indices].astype(oracle.result_dtype(dtype)))


def test_ties_go_to_the_lower_index_after_rounding() -> None:
    assert reference.topk([5, 5, 5, 1, 5], 4).indices.tolist() == [0, 1, 2, 4]
    assert reference.topk([-0.0, 0.0, -1.0], 2).indices.tolist() == [0, 1]
    # As float64 the second logit is larger; as float32, the dtype of the result, they are equal.
    hidden, weight = np.array([1, 2**-30], np.float32), np.array([[1, 0], [1, 1]], np.float32)
    values, indices = reference.logits_topk(hidden, weight, 2)
    assert indices.tolist() == [0, 1]
    np.testing.assert_array_equal(values, np.ones(2, np.float32), strict=True)


def test_logits_topk_is_topk_of_logits(rng: np.random.Generator) -> None:
    hidden, weight, bias = rng.standard_normal((2, 3, 5)), rng.standard_normal((11, 5)), rng.standard_normal(11)
    fused = reference.logits_topk(hidden, weight, 4, bias=bias, softcap=1.5, scale=-2.0)
    rows = reference.topk(reference.logits(hidden, weight, bias=bias, softcap=1.5, scale=-2.0), 4)
    for mine, theirs in zip(fused, rows, strict=True):
        assert mine.shape == (2, 3, 4)
        oracle.assert_same_bits(mine, theirs)


# ---- norms ---------------------------------------------------------------------------------------------------------


def test_norms_by_hand() -> None:
    # mean 5, variance 4: exact in binary.
    x, gain, bias = [3.0, 7.0, 3.0, 7.0], [1.0, 2.0, 4.0, -1.0], [0.0, 0.5, 0.0, 1.0]
    np.testing.assert_array_equal(reference.layer_norm(x, eps=0.0), [-1, 1, -1, 1])
    np.testing.assert_array_equal(reference.layer_norm(x, gain, bias, eps=0.0), [-1, 2.5, -4, 0])
    np.testing.assert_array_equal(reference.layer_norm(x, eps=12.0), [-0.5, 0.5, -0.5, 0.5])
    np.testing.assert_array_equal(reference.rms_norm([1.0, 7.0, 5.0, 5.0], gain, eps=0.0), [0.2, 2.8, 4, -1])
    np.testing.assert_array_equal(reference.rms_norm([1.0, 7.0, 5.0, 5.0], eps=75.0), [0.1, 0.7, 0.5, 0.5])


@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
def test_norms_with_decimals(rng: np.random.Generator, dtype: np.dtype[Any]) -> None:
    x = (rng.standard_normal((2, 11)) + 4).astype(dtype)
    layer, rms = reference.layer_norm(x), reference.rms_norm(x)
    result = oracle.result_dtype(dtype)
    assert layer.dtype == rms.dtype == result
    rate = Decimal(oracle.gamma(200, oracle.UNIT["float64"]) + oracle.UNIT[result.name])
    for n in range(2):
        row = [Decimal(float(v)) for v in x[n]]
        mean = sum(row, Decimal(0)) / 11
        deviation = (sum(((v - mean) ** 2 for v in row), Decimal(0)) / 11 + Decimal("1e-5")).sqrt(DIGITS)
        root = (sum((v**2 for v in row), Decimal(0)) / 11 + Decimal("1e-6")).sqrt(DIGITS)
        for d in range(11):
            assert abs(Decimal(float(layer[n, d])) - (row[d] - mean) / deviation) <= rate * (
                1 + abs(row[d] / deviation)
            )
            assert abs(Decimal(float(rms[n, d])) - row[d] / root) <= rate * abs(row[d] / root)


def test_norms_of_odd_rows() -> None:
    rows = np.array([[1.0, 2.0], [NAN, 1.0], [INF, 1.0], [3.0, 3.0], [0.0, 0.0]], np.float32)
    layer = reference.layer_norm(rows, eps=0.0)
    np.testing.assert_array_equal(layer, [[-1, 1], [NAN, NAN], [NAN, NAN], [NAN, NAN], [NAN, NAN]])
    rms = reference.rms_norm(rows, eps=0.0)
    np.testing.assert_array_equal(rms[1:], [[NAN, NAN], [NAN, 0], [1, 1], [NAN, NAN]])
    for norm in (reference.layer_norm, reference.rms_norm):
        assert norm(np.zeros((3, 0)), np.zeros(0)).shape == (3, 0)
        assert norm(np.zeros((0, 3))).shape == (0, 3)
        np.testing.assert_array_equal(norm(rows[4]), [0, 0])
