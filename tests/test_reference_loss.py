"""The losses of `native.reference` against formulas that are not their own: plain Python loops, numbers by hand.

Knows the promises about values and gradients: each option, what is skipped, what is not finite, large offsets, tiny
rests. Shift, accumulation, statistics and the filter are in test_reference_loss_options.py, finite differences and
PyTorch in test_reference_loss_gradients.py, what is accepted and refused in test_loss_intake.py.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import oracle
from lmhead_native import reference

INF, NAN = math.inf, math.nan
REDUCTIONS = ("mean", "sum", "none")
Array = NDArray[Any]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20253)


# ---- values --------------------------------------------------------------------------------------------------------


def plain_loss(x: Array, targets: Array, o: dict[str, Any]) -> Any:
    """Return the loss of rows (N, V) by its definition, in loops."""
    ce, zl, tokens, classes = [], [], [], []
    for row, target, w in zip(x, targets, o["token_weight"], strict=True):
        z = [o["scale"] * o["softcap"] * math.tanh((a + b) / o["softcap"]) for a, b in zip(row, o["bias"], strict=True)]
        f = [a / o["temperature"] for a in z]
        lse = max(f) + math.log(math.fsum(math.exp(a - max(f)) for a in f))
        y = list(target) if np.ndim(target) else [float(v == target) for v in range(len(f))]
        y = [(1 - o["label_smoothing"]) * q + o["label_smoothing"] / len(f) for q in y]
        ce.append(w * math.fsum(c * q * (lse - a) for c, q, a in zip(o["class_weight"], y, f, strict=True)))
        zl.append(w * o["lse_square_scale"] * lse**2)
        tokens.append(w)
        classes.append(w * (1.0 if np.ndim(target) else o["class_weight"][target]))
    if o["reduction"] == "none":
        return [a + b for a, b in zip(ce, zl, strict=True)]
    if o["reduction"] == "sum":
        return math.fsum(ce + zl)
    by, z_by = (math.fsum(classes), math.fsum(tokens)) if o["num_items"] is None else (o["num_items"],) * 2
    return math.fsum(ce) / by + math.fsum(zl) / z_by


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("soft", [False, True], ids=["ids", "probabilities"])
@pytest.mark.parametrize("seed", range(4))
def test_all_options_together(seed: int, soft: bool, reduction: str) -> None:
    rng = np.random.default_rng(seed)
    x = 4 * rng.standard_normal((6, 9))
    targets = rng.random((6, 9)) if soft else rng.integers(0, 9, 6)
    options: dict[str, Any] = {
        "bias": rng.standard_normal(9),
        "class_weight": rng.random(9),
        "token_weight": rng.standard_normal(6),
        "label_smoothing": rng.random(),
        "softcap": 1 + 5 * rng.random(),
        "scale": rng.standard_normal(),
        "temperature": 0.2 + rng.random(),
        "lse_square_scale": rng.random(),
        "reduction": reduction,
        "num_items": 3.5 if reduction == "mean" and seed % 2 else None,
    }
    expected = plain_loss(x, targets, options)
    np.testing.assert_allclose(reference.cross_entropy(x, targets, **options), expected, rtol=1e-12, atol=1e-13)


def test_smoothing_and_class_weights_as_pytorch_has_them() -> None:
    x, targets = np.array([[1, 2, 3], [3, 0.4, 0], [9, -9, 0]]), np.array([0, 1, -100])
    assert reference.cross_entropy(x, targets, label_smoothing=0.2) == pytest.approx(2.3889435, abs=5e-8)
    assert reference.cross_entropy(x, targets, label_smoothing=0.2, reduction="sum") == pytest.approx(
        4.7778870, abs=5e-8
    )
    weighted = reference.cross_entropy(x, targets, label_smoothing=0.2, class_weight=[0.2, 0.3, 0.5])
    assert weighted == pytest.approx(2.5418426, abs=5e-8)
    for function in (reference.cross_entropy, lambda *a, **k: reference.cross_entropy_with_grad(*a, **k)[1][:2]):
        oracle.assert_same_bits(
            function(x, targets, label_smoothing=0.2), function(x[:2], targets[:2], label_smoothing=0.2)
        )


def test_large_offsets_and_small_rests() -> None:
    for dtype in (np.float32, np.float64):
        assert reference.cross_entropy(np.array([[1e8, 1e8]], dtype), [1]) == dtype(math.log(2))
        far, gradient = reference.cross_entropy_with_grad(np.array([[0, 60]], dtype), [1])
        assert far == pytest.approx(8.7565e-27, rel=1e-4, abs=0)
        np.testing.assert_allclose(gradient, [[8.7565e-27, -8.7565e-27]], rtol=1e-4)
        sure = reference.cross_entropy(np.array([[0, 1000]], dtype), [1])
        assert sure == 0
        assert not np.signbit(sure)


def test_the_true_class_has_a_gradient_where_its_probability_rounds_to_one() -> None:
    x = np.zeros((1, 2), oracle.BFLOAT16)
    x[0, 0] = 7.59375
    _, gradient = reference.cross_entropy_with_grad(x, [0])
    # p = 1 / (1 + exp(-7.59375)) is 0.9995; 1 in bfloat16.
    assert np.asarray(1 / (1 + math.exp(-7.59375))).astype(oracle.BFLOAT16) == 1
    rest = math.exp(-7.59375)
    np.testing.assert_allclose(gradient, [[-rest / (1 + rest), rest / (1 + rest)]], rtol=1e-7)
    exact = math.log(0.9995 / 0.0005)  # the same by way of float32 logits
    _, gradient = reference.cross_entropy_with_grad(np.array([[exact, 0]]), [0])
    assert gradient[0, 0] == pytest.approx(-5e-4, rel=1e-12)


def test_dweight_is_not_added_in_halves(rng: np.random.Generator) -> None:
    hidden = rng.standard_normal((4096, 8)).astype(oracle.BFLOAT16)
    weight = rng.standard_normal((16, 8)).astype(oracle.BFLOAT16)
    targets = rng.integers(0, 16, 4096)
    h, w = oracle.widen(hidden), oracle.widen(weight)
    p = np.exp(h @ w.T)
    p /= p.sum(axis=-1, keepdims=True)
    p[np.arange(4096), targets] -= 1
    results = [
        reference.linear_cross_entropy_with_grad(hidden, weight, targets, reduction="sum", chunk_rows=rows)[2]
        for rows in (None, 1, 100)
    ]
    assert results[0] is not None
    assert results[0].dtype == np.float32
    assert (np.abs(results[0] - p.T @ h) <= 2.0**-8 * (np.abs(p).T @ np.abs(h))).all()
    for other in results[1:]:
        oracle.assert_same_bits(np.asarray(other), results[0])


def test_means_divide_once() -> None:
    def logits_with_loss(loss: float) -> list[float]:
        return [0.0, math.log(math.expm1(loss))]

    live = [(0, 5.0), (3, 1.0), (4, 1.0), (9, 1.0)]
    x, targets = np.full((10, 2), NAN), np.full(10, -100)
    for at, loss in live:
        x[at], targets[at] = logits_with_loss(loss), 0
    assert reference.cross_entropy(x, targets) == pytest.approx(2.0, rel=1e-14)
    for chunk in (1, 2, 3, 7):
        assert reference.linear_cross_entropy(x, np.eye(2), targets, chunk_rows=chunk) == pytest.approx(2.0, rel=1e-14)


def test_softcap_and_its_slope() -> None:
    x = np.array([[124.0, -124.0, 0.0]])
    once = 30 * math.tanh(124 / 30)
    assert once == pytest.approx(29.984588, abs=1e-6)
    _, gradient = reference.cross_entropy_with_grad(x, [1], softcap=30.0)
    assert gradient[0, 1] / -1 == pytest.approx(0.00102723, abs=1e-8)
    # How often the cap is applied shows: no, one and two times.
    losses = [
        reference.cross_entropy(z, [1], softcap=cap) for z, cap in [(x, None), (x, 30.0), (30 * np.tanh(x / 30), 30.0)]
    ]
    assert min(abs(a - b) for a, b in itertools.combinations(losses, 2)) > 1
    hidden, weight = np.ones((1, 1)), np.array([[-35.0], [-40.0], [-40.0], [-40.0], [-40.0]])
    assert reference.linear_cross_entropy(hidden, weight, [0], softcap=30.0) == pytest.approx(0.6834268, abs=5e-8)
    # Far beyond the cap the slope is still sech^2, not 1 - 1.
    _, gradient = reference.cross_entropy_with_grad(np.array([[40.0, 0.0]]), [1], softcap=1.0)
    p = 1 / (1 + math.exp(-1))
    assert gradient[0, 0] == pytest.approx(p / math.cosh(40) ** 2, rel=1e-12, abs=0)


def test_bias_over_many_ids(rng: np.random.Generator) -> None:
    hidden, weight = rng.standard_normal((7, 5)), rng.standard_normal((1000, 5))
    bias, targets = 5 * rng.standard_normal(1000), rng.integers(0, 1000, 7)
    fused = reference.linear_cross_entropy_with_grad(hidden, weight, targets, bias=bias)
    loss, dlogits = reference.cross_entropy_with_grad(hidden @ weight.T, targets, bias=bias)
    moved = reference.linear_cross_entropy_with_grad(hidden, weight, targets, bias=bias + 100)
    for a, b, c in zip(fused, (loss, dlogits @ weight, dlogits.T @ hidden, dlogits.sum(axis=0)), moved, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(c, a, rtol=1e-9, atol=1e-13)
    assert fused[3] is not None
    assert abs(fused[3].sum()) < 1e-14


# ---- what is not finite --------------------------------------------------------------------------------------------


def test_logits_of_minus_infinity() -> None:
    x = np.array([[-INF, 0.0, 1.0]])
    loss, gradient = reference.cross_entropy_with_grad(x, [1])
    assert loss == pytest.approx(1.3132617, abs=5e-8)
    np.testing.assert_allclose(gradient, [[0, -0.7310586, 0.7310586]], atol=5e-8)
    smoothed, gradient = reference.cross_entropy_with_grad(x, [1], label_smoothing=0.1)
    assert smoothed == INF
    assert np.isfinite(gradient).all()
    loss, gradient = reference.cross_entropy_with_grad(x, [0])
    assert loss == INF
    np.testing.assert_allclose(gradient, [[-1, 0.2689414, 0.7310586]], atol=5e-8)
    # Classes without weight or probability may stand anywhere.
    padded = reference.cross_entropy(x, [1], label_smoothing=0.3, class_weight=[0, 1, 1])
    assert padded == pytest.approx(0.8 * 1.3132617 + 0.1 * 0.3132617, abs=5e-8)
    assert reference.cross_entropy(x, np.array([[0, 0.5, 0.5]])) == pytest.approx(0.8132617, abs=5e-8)


@pytest.mark.parametrize("row", [[NAN, 0.0, 1.0], [INF, 0.0, 1.0], [-INF] * 3], ids=str)
def test_undefined_rows_are_nan_and_stay_alone(row: list[float]) -> None:
    x, targets = np.array([[0.0, 1.0, 2.0], row, [3.0, 1.0, 0.0]]), [0, 1, 2]
    loss, gradient = reference.cross_entropy_with_grad(x, targets, reduction="none")
    alone, alone_gradient = reference.cross_entropy_with_grad(x[::2], targets[::2], reduction="none")
    oracle.assert_same_bits(loss[::2], alone)
    oracle.assert_same_bits(gradient[::2], alone_gradient)
    assert np.isnan(loss[1])
    assert np.isnan(gradient[1]).all()
    for reduction in ("mean", "sum"):
        assert np.isnan(reference.cross_entropy(x, targets, reduction=reduction))


def test_garbage_in_skipped_rows_reaches_nothing(rng: np.random.Generator) -> None:
    hidden, weight, bias = rng.standard_normal((8, 4)), rng.standard_normal((6, 4)), rng.standard_normal(6)
    targets, weights = rng.integers(0, 6, 8), rng.random(8)
    hidden[3], hidden[5], hidden[6] = NAN, INF, NAN
    targets[[3, 5]], weights[[5, 6]] = -7, (NAN, 0.0)
    live = [0, 1, 2, 4, 7]
    for reduction in REDUCTIONS:
        outer = rng.standard_normal(8) if reduction == "none" else None
        if outer is not None:
            outer[[3, 5, 6]] = INF, NAN, NAN
        loss, dhidden, dweight, dbias = reference.linear_cross_entropy_with_grad(
            hidden,
            weight,
            targets,
            bias=bias,
            ignore_index=-7,
            token_weight=weights,
            reduction=reduction,
            grad_output=outer,
        )
        expected = reference.linear_cross_entropy_with_grad(
            hidden[live],
            weight,
            targets[live],
            bias=bias,
            token_weight=weights[live],
            reduction=reduction,
            grad_output=None if outer is None else outer[live],
        )
        assert dhidden is not None
        np.testing.assert_array_equal(dhidden[[3, 5, 6]], np.zeros((3, 4)))
        if reduction == "none":
            np.testing.assert_array_equal(loss[[3, 5, 6]], 0)
            loss = loss[live]
        for mine, theirs in zip((loss, dhidden[live], dweight, dbias), expected, strict=True):
            oracle.assert_same_bits(np.asarray(mine), np.asarray(theirs))
    targets[3] = 0  # now it counts, and shows
    loss, _, dweight, dbias = reference.linear_cross_entropy_with_grad(
        hidden, weight, targets, bias=bias, ignore_index=-7, token_weight=weights
    )
    assert np.isnan(loss)
    assert np.isnan(np.asarray(dweight)).all()
    assert np.isnan(np.asarray(dbias)).all()


# ---- nothing to count ----------------------------------------------------------------------------------------------

NOTHING: dict[str, tuple[tuple[int, ...], Any, dict[str, Any]]] = {
    "all ignored": ((2, 3), np.full((2, 3), -100), {}),
    "no rows": ((0,), np.zeros(0, int), {}),
    "token weights of 0": ((2,), np.array([0, 1]), {"token_weight": [0.0, -0.0]}),
    "shifted out": ((2, 3), np.zeros((2, 3), int), {"shift": 3}),
    "shifted beyond": ((2, 3), np.zeros((2, 3), int), {"shift": 99}),
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(("shape", "targets", "options"), NOTHING.values(), ids=NOTHING.keys())
def test_nothing_to_count(shape: tuple[int, ...], targets: Array, options: dict[str, Any], reduction: str) -> None:
    hidden, weight, bias = np.full((*shape, 4), NAN), np.ones((5, 4)), np.ones(5)
    options = options | {"reduction": reduction, "lse_square_scale": 0.1}
    for empty in ("nan", "zero"):
        loss, *gradients = reference.linear_cross_entropy_with_grad(
            hidden, weight, targets, bias=bias, empty=empty, **options
        )
        of_logits, dlogits = reference.cross_entropy_with_grad(
            np.full((*shape, 5), NAN), targets, empty=empty, **options
        )
        oracle.assert_same_bits(loss, of_logits)
        assert np.shape(loss) == (() if reduction != "none" else shape if "shift" not in options else (2, 0))
        np.testing.assert_array_equal(loss, NAN if reduction == "mean" and empty == "nan" else np.zeros_like(loss))
        for gradient in (*gradients, dlogits):
            np.testing.assert_array_equal(gradient, np.zeros_like(gradient))
    if reduction == "mean":
        assert reference.linear_cross_entropy(hidden, weight, targets, num_items=7, **options) == 0


def test_weights_that_sum_to_zero() -> None:
    x, targets = np.array([[0.0, 1.0], [2.0, -1.0]]), [0, 1]
    weightless: list[dict[str, Any]] = [
        {"token_weight": [1, -1]},
        {"class_weight": [1, -1]},
        {"class_weight": [0, 0]},
    ]
    for weights in weightless:
        loss, gradient = reference.cross_entropy_with_grad(x, targets, **weights)
        assert np.isnan(loss)
        np.testing.assert_array_equal(gradient, np.zeros((2, 2)))
        assert reference.cross_entropy(x, targets, empty="zero", **weights) == 0
    # The z-loss has a divisor of its own.
    loss, gradient = reference.cross_entropy_with_grad(
        x, targets, class_weight=[0, 0], lse_square_scale=1.0, empty="zero"
    )
    assert loss == pytest.approx(np.mean(np.logaddexp(x[:, 0], x[:, 1]) ** 2), rel=1e-14)
    assert (gradient != 0).all()
