"""The losses of `native.reference`: shift, weights of gradients, accumulation, statistics, the filter, empty axes.

Knows laws that connect calls with each other. What single values must be is in test_reference_loss.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import oracle
from lmhead_native import reference

INF, NAN = math.inf, math.nan
REDUCTIONS = ("mean", "sum", "none")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20254)


@pytest.mark.parametrize("shift", [1, True, 2])
def test_shift_pairs_inputs_with_later_ids(rng: np.random.Generator, shift: int) -> None:
    hidden, weight = rng.standard_normal((2, 6, 4)), rng.standard_normal((5, 4))
    ids, weights = rng.integers(0, 5, (2, 6)), rng.random((2, 6))
    ids[:, 0] = 77  # nobody's target
    ids[1, 4] = -100
    s = int(shift)
    outer = rng.standard_normal((2, 6 - s))
    shifted = reference.linear_cross_entropy_with_grad(
        hidden, weight, ids, token_weight=weights, shift=shift, reduction="none", grad_output=outer
    )
    sliced = reference.linear_cross_entropy_with_grad(
        hidden[:, :-s], weight, ids[:, s:], token_weight=weights[:, s:], reduction="none", grad_output=outer
    )
    assert shifted[0].shape == (2, 6 - s)
    assert shifted[1] is not None
    np.testing.assert_array_equal(shifted[1][:, -s:], 0)
    for mine, theirs in zip((shifted[0], shifted[1][:, :-s], shifted[2]), sliced, strict=False):
        oracle.assert_same_bits(np.asarray(mine), np.asarray(theirs))
    stats = reference.linear_cross_entropy(hidden, weight, ids, shift=shift, stats=True)
    assert stats.logsumexp.shape == stats.per_token.shape == stats.argmax.shape == (2, 6 - s)
    soft = rng.random((2, 6, 5))
    logits = hidden @ weight.T
    oracle.assert_same_bits(
        reference.cross_entropy(logits, soft, shift=shift), reference.cross_entropy(logits[:, :-s], soft[:, s:])
    )


def test_each_token_has_its_own_grad_output(rng: np.random.Generator) -> None:
    hidden, weight, bias = rng.standard_normal((5, 4)), rng.standard_normal((7, 4)), rng.standard_normal(7)
    targets, outer = rng.integers(0, 7, 5), rng.standard_normal(5)
    outer[0] = 0
    together = reference.linear_cross_entropy_with_grad(
        hidden, weight, targets, bias=bias, reduction="none", grad_output=outer
    )
    single = [
        reference.linear_cross_entropy_with_grad(hidden[n], weight, targets[n], bias=bias, grad_output=outer[n])
        for n in range(5)
    ]
    assert all(row[1] is not None and row[1].shape == (4,) for row in single)
    np.testing.assert_allclose(together[1], [row[1] for row in single], rtol=1e-13)  # type: ignore[arg-type]
    for at in (2, 3):
        np.testing.assert_allclose(np.asarray(together[at]), sum(np.asarray(row[at]) for row in single), atol=1e-14)


def test_gradients_of_parts_add_up_to_that_of_the_whole(rng: np.random.Generator) -> None:
    hidden, weight = rng.standard_normal((9, 4)), rng.standard_normal((7, 4))
    targets = rng.integers(0, 7, 9)
    targets[4] = -100
    whole = reference.linear_cross_entropy_with_grad(hidden, weight, targets, lse_square_scale=0.1)
    dweight, loss = np.zeros((7, 4)), 0.0
    for part in (slice(0, 2), slice(2, 5), slice(5, 9)):
        found = reference.linear_cross_entropy_with_grad(
            hidden[part],
            weight,
            targets[part],
            lse_square_scale=0.1,
            num_items=8,
            dweight_out=dweight,
            accumulate=True,
        )
        loss += found[0]
    assert loss == pytest.approx(whole[0], rel=1e-14)
    np.testing.assert_allclose(dweight, whole[2], rtol=1e-12)  # type: ignore[arg-type]


def test_stats(rng: np.random.Generator) -> None:
    x, targets = 3 * rng.standard_normal((2, 3, 6)), rng.integers(0, 6, (2, 3))
    targets[0, 1], weights = -100, rng.random((2, 3))
    weights[1, 2] = 0
    live = (targets != -100) & (weights != 0)
    options: dict[str, Any] = {"temperature": 0.7, "token_weight": weights, "lse_square_scale": 0.01}
    log_p = reference.log_softmax(x, temperature=0.7)
    for reduction in REDUCTIONS:
        plain = reference.cross_entropy(x, targets, reduction=reduction, **options)
        stats = reference.cross_entropy(x, targets, reduction=reduction, stats=True, **options)
        assert len(stats) == 7
        oracle.assert_same_bits(stats.loss, plain)
        oracle.assert_same_bits(stats.per_token, reference.cross_entropy(x, targets, reduction="none", **options))
        np.testing.assert_allclose(
            stats.logsumexp, np.where(live, reference.logsumexp(x, temperature=0.7), NAN), rtol=1e-15
        )
        z = np.where(live, weights * 0.01 * stats.logsumexp**2, 0.0)
        expected = {"none": z, "sum": z.sum(), "mean": z.sum() / weights[live].sum()}[reduction]
        np.testing.assert_allclose(stats.z_loss, expected, rtol=1e-14)
        np.testing.assert_array_equal(stats.argmax, np.where(live, x.argmax(axis=-1), -1), strict=True)
        assert stats.accuracy == (x.argmax(axis=-1) == targets)[live].mean()
        entropy = -(np.exp(log_p) * log_p).sum(axis=-1)
        np.testing.assert_allclose(stats.entropy, np.where(live, entropy, NAN), rtol=1e-13)
        assert stats.skipped_mass == 0
    nothing = reference.cross_entropy(x, np.full((2, 3), -100), stats=True)
    assert np.isnan(nothing.accuracy)
    assert reference.cross_entropy(x, np.full((2, 3), -100), stats=True, empty="zero").accuracy == 0
    best = np.array([[0.0, 2.0, 2.0], [NAN, 1.0, NAN], [-INF, -INF, -INF]])
    assert reference.cross_entropy(best, [1, 0, 0], stats=True).argmax.tolist() == [1, 0, 0]
    certain = reference.cross_entropy(np.array([[0.0, 800.0, -INF]]), [1], stats=True)
    assert certain.entropy.tolist() == [0.0]


def test_filter_leaves_small_entries_out(rng: np.random.Generator) -> None:
    hidden, weight, bias = 2 * rng.standard_normal((6, 4)), rng.standard_normal((30, 4)), rng.standard_normal(30)
    targets, weights = rng.integers(0, 30, 6), rng.random(6)
    common: dict[str, Any] = {"bias": bias, "token_weight": weights, "reduction": "sum"}
    exact = reference.linear_cross_entropy_with_grad(hidden, weight, targets, **common)
    p = reference.softmax(reference.logits(hidden, weight, bias=bias))
    p[np.arange(6), targets] -= 1
    for eps in (1e-3, 0.02, 2.0):
        stats, dhidden, dweight, dbias = reference.linear_cross_entropy_with_grad(
            hidden, weight, targets, filter_eps=eps, stats=True, **common
        )
        kept = np.where(np.abs(p) < eps, 0, p) * weights[:, None]
        np.testing.assert_allclose(np.asarray(dhidden), kept @ weight, atol=1e-14)
        np.testing.assert_allclose(np.asarray(dweight), kept.T @ hidden, atol=1e-14)
        np.testing.assert_allclose(np.asarray(dbias), kept.sum(axis=0), atol=1e-14)
        skipped = np.where(np.abs(p) < eps, np.abs(p), 0).sum(axis=-1)
        assert stats.skipped_mass == pytest.approx(skipped.max(), rel=1e-12)
        error = np.linalg.norm(np.asarray(dhidden) - np.asarray(exact[1]), axis=-1)
        assert (error <= skipped.max() * weights * np.linalg.norm(weight, axis=-1).max() + 1e-14).all()
        oracle.assert_same_bits(stats.loss, exact[0])
    unfiltered = reference.linear_cross_entropy_with_grad(hidden, weight, targets, filter_eps=0.0, **common)
    for mine, theirs in zip(unfiltered, exact, strict=True):
        oracle.assert_same_bits(np.asarray(mine), np.asarray(theirs))


def test_the_filter_looks_at_probabilities_before_any_weight(rng: np.random.Generator) -> None:
    logits, weight, targets = rng.standard_normal((4, 9)), np.eye(9), rng.integers(0, 9, 4)
    options: dict[str, Any] = {
        "class_weight": 100 * rng.random(9),
        "label_smoothing": 0.3,
        "lse_square_scale": 2.0,
        "reduction": "sum",
    }
    distance = np.abs(reference.softmax(logits) - 0.7 * np.eye(9)[targets] - 0.3 / 9)
    eps = float(np.median(distance))
    exact = reference.cross_entropy_with_grad(logits, targets, **options)[1]
    stats, filtered, _, _ = reference.linear_cross_entropy_with_grad(
        logits, weight, targets, filter_eps=eps, stats=True, **options
    )
    np.testing.assert_allclose(np.asarray(filtered), np.where(distance < eps, 0, exact), rtol=1e-13)
    assert stats.skipped_mass == pytest.approx(np.where(distance < eps, distance, 0).sum(axis=-1).max(), rel=1e-12)


def test_empty_axes() -> None:
    bias = np.array([0.5, 0.0, -1.0])
    fused = reference.linear_cross_entropy_with_grad(np.zeros((2, 0)), np.zeros((3, 0)), [0, 2], bias=bias)
    loss, dlogits = reference.cross_entropy_with_grad(np.tile(bias, (2, 1)), [0, 2])
    oracle.assert_same_bits(fused[0], loss)
    assert [np.asarray(g).shape for g in fused[1:]] == [(2, 0), (3, 0), (3,)]
    np.testing.assert_allclose(np.asarray(fused[3]), dlogits.sum(axis=0), rtol=1e-15)
    ignored = reference.linear_cross_entropy_with_grad(np.ones((2, 4)), np.zeros((0, 4)), [-100, -100])
    assert np.isnan(ignored[0])
    assert np.asarray(ignored[2]).shape == (0, 4)
    np.testing.assert_array_equal(np.asarray(ignored[1]), np.zeros((2, 4)))
    loss, dlogits = reference.cross_entropy_with_grad(np.zeros((2, 0)), np.zeros((2, 0)))
    assert np.isnan(loss)
    assert dlogits.shape == (2, 0)
    assert reference.cross_entropy(np.zeros(3), 1).shape == ()
