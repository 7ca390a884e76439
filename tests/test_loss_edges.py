"""The losses at the edges of their arithmetic, native and reference alike: divisors of 0, numbers of extreme size.

Knows both modules by the same calls; the reference's own values at these edges are held to numbers by hand.
"""

from __future__ import annotations

import itertools
import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
import oracle
from lmhead_native import reference
from parameters import every_dtype

Array = NDArray[Any]
DType = np.dtype[Any]
INF, NAN = math.inf, math.nan
each_table = pytest.mark.usefixtures("each_isa")


@pytest.fixture(params=[native, reference], ids=["native", "reference"])
def of(request: pytest.FixtureRequest) -> ModuleType:
    module: ModuleType = request.param
    return module


# ---- divisors of 0 -------------------------------------------------------------------------------------------------

# Rows that spoil whatever they reach, and weights that leave a mean without a divisor.
SPOILT = [[[NAN, 1], [0, 1]], [[INF, 1], [0, -INF]], [[1, 2], [3, 4]]]
NO_DIVISOR: list[dict[str, Any]] = [
    {"targets": [0, 0], "class_weight": [0, 1]},
    {"targets": [0, 1], "class_weight": [1, -1]},
    {"targets": [0, 0], "token_weight": [1, -1]},
    {"targets": [0, 0], "token_weight": [1, -1], "lse_square_scale": 0.5},
    {"targets": [0, 0], "class_weight": [0, 1], "label_smoothing": 0.1, "softcap": 3.0},
    {"targets": [-100, 0], "class_weight": [0, 1], "grad_output": NAN},
]


@each_table
@every_dtype
@pytest.mark.parametrize("options", NO_DIVISOR, ids="+".join)
def test_without_a_divisor_no_row_reaches_a_gradient(of: ModuleType, dtype: DType, options: dict[str, Any]) -> None:
    """Not even by 0 * NaN in a product, and an array that is added to keeps what is there."""
    result = oracle.result_dtype(dtype)
    for rows, empty in itertools.product(SPOILT, ("nan", "zero")):
        x = np.array(rows, dtype)
        given = options | {"empty": empty}
        loss, dlogits = of.cross_entropy_with_grad(x, **given)
        np.testing.assert_equal(loss, result.type(NAN if empty == "nan" else 0))
        oracle.assert_same_bits(dlogits, np.zeros((2, 2), result))
        kept = np.full((2, 2), -0.0, result)
        of.cross_entropy_with_grad(x, **given, dlogits_out=kept, accumulate=True)
        oracle.assert_same_bits(kept, np.full((2, 2), -0.0, result))
        for h, w in ((x, np.eye(2)), (np.ones((2, 2)), x), (x, x)):
            head = h.astype(dtype), w.astype(dtype)
            found = of.linear_cross_entropy_with_grad(*head, bias=[0, 1], **given)
            np.testing.assert_equal(found[0], loss)
            for gradient, shape in zip(found[1:], [(2, 2), (2, 2), (2,)], strict=True):
                oracle.assert_same_bits(gradient, np.zeros(shape, result))
            outs = [np.full(shape, -0.0, result) for shape in [(2, 2), (2, 2), (2,)]]
            names = ("dhidden_out", "dweight_out", "dbias_out")
            arrays = dict(zip(names, outs, strict=True))
            of.linear_cross_entropy_with_grad(*head, bias=[0, 1], **given, **arrays, accumulate=True)
            for out in outs:
                oracle.assert_same_bits(out, np.full(out.shape, -0.0, result))


@each_table
@every_dtype
def test_without_a_divisor_the_filter_leaves_nothing_out(of: ModuleType, dtype: DType) -> None:
    x = np.array([[1, 2], [0, 1]], dtype)
    found = of.linear_cross_entropy_with_grad(x, x, [0, 0], class_weight=[0, 1], filter_eps=0.5, stats=True)
    assert found[0].skipped_mass == 0


@each_table
@every_dtype
def test_a_z_loss_with_a_divisor_of_its_own_still_has_a_gradient(of: ModuleType, dtype: DType) -> None:
    x = np.array([[NAN, 1], [0, 1]], dtype)
    options: dict[str, Any] = {"class_weight": [0, 1], "lse_square_scale": 0.5, "empty": "zero"}
    _, dlogits = of.cross_entropy_with_grad(x, [0, 0], **options)
    assert np.isnan(dlogits[0]).all()
    # d/dz of (lse^2 / 2) / 2 tokens: lse * p / 2.
    lse = math.log1p(math.e)
    np.testing.assert_allclose(dlogits[1], lse / 2 * np.exp([-lse, 1 - lse]), rtol=1e-6)
    _, dhidden, dweight, _ = of.linear_cross_entropy_with_grad(x, np.eye(2, dtype=dtype), [0, 0], **options)
    assert np.isnan(dhidden[0]).all()
    assert np.isfinite(dhidden[1]).all()
    assert np.isnan(dweight).all()


@each_table
def test_with_a_divisor_a_row_of_nan_shows(of: ModuleType) -> None:
    x = np.array([[NAN, 1], [0, 1]], np.float32)
    for options in ({}, {"grad_output": 0.0}, {"reduction": "sum", "class_weight": [0, 1]}):
        _, dlogits = of.cross_entropy_with_grad(x, [0, 0], **options)
        assert np.isnan(dlogits[0]).all()
        assert np.isfinite(dlogits[1]).all()
        _, dhidden, dweight, dbias = of.linear_cross_entropy_with_grad(
            x, np.eye(2, dtype=np.float32), [0, 0], bias=[0, 0], **options
        )
        assert np.isnan(dhidden[0]).all()
        assert np.isfinite(dhidden[1]).all()
        assert np.isnan(dweight).all()
        assert np.isnan(dbias).all()


# ---- infinite operands beside a filter -----------------------------------------------------------------------------


@each_table
@every_dtype
def test_what_the_filter_leaves_out_reaches_nothing(of: ModuleType, dtype: DType) -> None:
    """A weight row whose logits are all -inf has probabilities of 0, which times -inf would be NaN."""
    h = (np.arange(1, 13).reshape(3, 4) / 8).astype(dtype)
    w = (np.arange(24).reshape(6, 4) % 5 / 4).astype(dtype)
    w[2] = -INF
    exact = of.linear_cross_entropy_with_grad(h, w, [0, 1, 5])
    assert np.isnan(exact[1]).all()
    found = of.linear_cross_entropy_with_grad(h, w, [0, 1, 5], filter_eps=1e-30, stats=True)
    kept = np.arange(6) != 2
    expected = of.linear_cross_entropy_with_grad(h, w[kept], [0, 1, 4], filter_eps=1e-30)
    assert found[0].skipped_mass == 0
    for mine, theirs in zip((found[1], found[2][kept]), expected[1:3], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    assert (found[2][2] == 0).all()


# ---- numbers of extreme size ---------------------------------------------------------------------------------------

TEMPERATURES: list[tuple[DType, float]] = [
    *((np.dtype(np.float32), t) for t in (1e-39, 1e-35, 1e35, 1e39, 1e300)),
    *((np.dtype(np.float64), t) for t in (1e-310, 1e308)),
]


def assert_near(found: Any, exact: Any, absolute: float) -> None:
    """Assert a few roundings; where a number is beyond the dtype, one that is as good as beyond it."""
    actual, wide = oracle.widen(found), oracle.widen(exact)
    limits, u = np.finfo(np.asarray(found).dtype), oracle.UNIT[np.asarray(found).dtype.name]
    beyond = np.abs(wide) > float(limits.max)
    np.testing.assert_allclose(
        np.where(beyond, 0, actual),
        np.where(beyond, 0, wide),
        rtol=32 * u,
        atol=absolute + 4 * limits.smallest_subnormal,
    )
    np.testing.assert_array_equal(np.sign(actual[beyond]), np.sign(wide[beyond]))
    assert (np.abs(actual[beyond]) >= float(limits.max) / 4).all()


@each_table
@pytest.mark.parametrize(("dtype", "temperature"), TEMPERATURES, ids=str)
def test_extreme_temperatures(dtype: DType, temperature: float) -> None:
    """A gap of 1 may be 0 or more than any number; logits near the largest number, whose gaps are none."""
    big = 3e38 if dtype == np.float32 else 8e307
    rows = [[0, 1, 2], [1, 1, 0], [5, -3, 4], [big, -big, 0], [big, big, -big], [0, -200, 1]]
    x, targets = np.array(rows, dtype), [0, 1, 2, 0, 2, 1]
    cases: list[dict[str, Any]] = [{}]
    if temperature > 1e-36:  # below, what a class of small weight costs is beyond the numbers on the way
        cases += [{"label_smoothing": 0.1}, {"lse_square_scale": 0.1}]
    for options in cases:
        given = options | {"temperature": temperature, "reduction": "none", "stats": True}
        stats, dlogits = native.cross_entropy_with_grad(x, targets, **given)
        exact, slope = reference.cross_entropy_with_grad(oracle.widen(x), targets, **given)
        for field in ("loss", "per_token", "logsumexp", "z_loss", "entropy"):
            assert_near(getattr(stats, field), getattr(exact, field), 4 * oracle.UNIT[dtype.name])
        np.testing.assert_array_equal(stats.argmax, exact.argmax)
        assert_near(dlogits, slope, 0)
        # The same logits from hidden states; an infinite slope would spoil its row of dhidden by way of the zeros.
        fused, dhidden, _, _ = native.linear_cross_entropy_with_grad(x, np.eye(3, dtype=dtype), targets, **given)
        for mine, theirs in zip(fused, stats, strict=True):
            oracle.assert_same_bits(mine, theirs)
        assert dhidden is not None
        finite = (np.abs(slope) <= float(np.finfo(dtype).max)).all(axis=-1)
        assert_near(dhidden[finite], slope[finite], 0)


@each_table
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("temperature", [1.0, 1e38, 1e39])
def test_a_gap_beyond_the_largest_number(of: ModuleType, temperature: float, smoothing: float) -> None:
    """6e38, which float32 has not, over a temperature that brings it back."""
    x, eye = np.array([[3e38, -3e38]], np.float32), np.eye(2, dtype=np.float32)
    options: dict[str, Any] = {"temperature": temperature, "label_smoothing": smoothing, "stats": True}
    gap, y = 2 * float(x[0, 0]) / temperature, 1 - smoothing / 2
    rest = math.exp(-gap)
    p = rest / (1 + rest)
    for found in (of.cross_entropy(x, [1], **options), of.linear_cross_entropy(x, eye, [1], **options)):
        assert_near(found.loss, y * gap + math.log1p(rest), 1e-6)
        assert_near(found.entropy, [math.log1p(rest) + gap * p], 1e-6)
        assert_near(found.logsumexp, [float(x[0, 0]) / temperature + math.log1p(rest)], 1e-6)
    expected = np.array([[y - p, p - y]]) / temperature
    assert_near(of.cross_entropy_with_grad(x, [1], **options)[1], expected, 1e-7 / temperature)
    assert_near(of.linear_cross_entropy_with_grad(x, eye, [1], **options)[1], expected, 1e-7 / temperature)


@each_table
@pytest.mark.parametrize("outer", [1e39, -1e39, 1e300])
def test_a_huge_grad_output_times_nothing_is_nothing(of: ModuleType, outer: float) -> None:
    """A probability that underflows stays 0 under a coefficient that float32 has not."""
    x, eye = np.array([[0, -200, 0.5]], np.float32), np.eye(3, dtype=np.float32)
    for targets, logits in (([0], x[:, :2]), ([2], x)):
        n = logits.shape[-1]
        for options in ({}, {"bias": np.zeros(n)}, {"softcap": 1e4}):
            _, dlogits = of.cross_entropy_with_grad(logits, targets, grad_output=outer, **options)
            assert not np.isnan(dlogits).any()
            if outer != 1e300:
                assert dlogits[0, 1] == 0
            if n == 2:
                head = logits, eye[:2, :2]
                _, dhidden, _, _ = of.linear_cross_entropy_with_grad(*head, targets, grad_output=outer, **options)
                assert not np.isnan(dhidden).any()


@each_table
@pytest.mark.parametrize("unit", [1e-300, 1e-50, 1e-42, 1e39, 1e50, 1e300])
def test_class_weights_that_float32_has_not(of: ModuleType, unit: float) -> None:
    """A mean divides by them, and token weights may bring them back: the answers are those of ordinary weights."""
    x, eye = np.array([[0, 1, 2], [3, -1, 0.5], [2, 2, -30]], np.float32), np.eye(3, dtype=np.float32)
    ids, soft = [2, 1, 0], np.array([[0.2, 0.3, 0.5], [1, 0, 0], [0.1, 0.1, 0.8]], np.float32)
    classes, back = np.array([1, 2, 0.5]), {"reduction": "sum", "token_weight": np.full(3, 1 / unit)}
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
        (of.cross_entropy_with_grad, (x, ids), {}),
        (of.cross_entropy_with_grad, (x, ids), back),
        (of.cross_entropy_with_grad, (x, soft), back),
        (of.linear_cross_entropy_with_grad, (x, eye, ids), {}),
        (of.linear_cross_entropy_with_grad, (x, eye, ids), back),
    ]
    for (function, given, options), smoothing in itertools.product(calls, (0.0, 0.1)):
        reduction = options.get("reduction", "mean")
        loss, *gradients = function(*given, class_weight=classes, label_smoothing=smoothing, reduction=reduction)
        found, *mine = function(*given, class_weight=classes * unit, label_smoothing=smoothing, **options)
        np.testing.assert_allclose(found, loss, rtol=1e-6)
        for actual, exact in zip(mine[:2], gradients[:2], strict=True):
            np.testing.assert_allclose(actual, exact, rtol=1e-5, atol=1e-7)


@each_table
def test_the_filter_knows_no_class_weights(of: ModuleType) -> None:
    x, eye = np.array([[0, 1, 2], [3, -1, 0.5]], np.float32), np.eye(3, dtype=np.float32)
    options: dict[str, Any] = {"label_smoothing": 0.1, "filter_eps": 0.05, "stats": True}
    classes = np.array([1, 2, 0.5])
    found, exact = (
        of.linear_cross_entropy_with_grad(x, eye, [2, 1], class_weight=classes * unit, **options)
        for unit in (1e50, 1.0)
    )
    assert found[0].skipped_mass == exact[0].skipped_mass > 0
    for mine, theirs in zip(found[1:3], exact[1:3], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-7)


@each_table
@pytest.mark.parametrize("outer", [1e39, -1e45, 1e60])
def test_what_small_probabilities_make_of_a_huge_grad_output(outer: float) -> None:
    x, targets = np.array([[0, -30, -40], [0, -50, -80]], np.float32), [0, 0]
    cases: list[dict[str, Any]] = [{}, {"softcap": 90.0}, {"label_smoothing": 1e-20}]
    for options in cases:
        given = options | {"grad_output": outer}
        exact = reference.cross_entropy_with_grad(oracle.widen(x), targets, **given)[1]
        found = native.cross_entropy_with_grad(x, targets, **given)[1]
        in_range = np.abs(exact) < float(np.finfo(np.float32).max)
        np.testing.assert_allclose(found[in_range], exact[in_range], rtol=2**-14)
        np.testing.assert_array_equal(np.sign(found), np.sign(exact))
        assert (np.abs(found[~in_range]) > 3e38).all()
        if in_range.all():
            fused = native.linear_cross_entropy_with_grad(x, np.eye(3, dtype=np.float32), targets, **given)
            assert_near(fused[1], found, 0)
