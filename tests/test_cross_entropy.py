"""``cross_entropy`` and its gradient against the float64 reference: dtypes, kernel tables, threads, options.

Knows values, what is skipped, what is not finite. Arrays for the gradient are in test_gradient_out.py, what is
accepted and refused in test_loss_intake.py and test_errors.py, the fused loss in test_linear_cross_entropy.py.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
import oracle
from layouts import dlpack, layouts
from lmhead_native import _core, reference
from loss_bounds import assert_argmax, bounds_of, one_hot
from loss_cases import REDUCTIONS, random_options, single_options, some_rows
from parameters import every_dtype, wide_dtypes

Array = NDArray[Any]
DType = np.dtype[Any]
INF, NAN = math.inf, math.nan
each_table = pytest.mark.usefixtures("each_isa")
STATS = ("loss", "per_token", "logsumexp", "z_loss", "argmax", "accuracy", "entropy")


def with_grad(*given: Any, **options: Any) -> tuple[Any, Any]:
    """Return the loss and its gradient."""
    return native.cross_entropy_with_grad(*given, **options)


def check(logits: Array, targets: Array, options: dict[str, Any], threads: int | None = None) -> None:
    """Compare everything that a call gives with the reference on the same numbers as float64."""
    found, dlogits = with_grad(logits, targets, stats=True, threads=threads, **options)
    wide_targets = oracle.widen(targets) if targets.dtype.kind not in "iu" else targets
    exact, dlogits_exact = reference.cross_entropy_with_grad(oracle.widen(logits), wide_targets, stats=True, **options)
    result, soft = oracle.result_dtype(logits.dtype), wide_targets.dtype.kind == "f"
    assert dlogits.dtype == found.loss.dtype == found.per_token.dtype == result
    weights = oracle.widen(options.get("token_weight", np.ones(len(logits))))
    counted = (weights != 0) & (soft or targets != -100)
    y = wide_targets[counted] if soft else one_hot(targets[counted], logits.shape[-1])
    mine = options | {"token_weight": weights[counted], "result": result.name, "soft": soft}
    if np.ndim(options.get("grad_output", 0)) == 1:
        mine["grad_output"] = options["grad_output"][counted]
    raw = oracle.widen(logits)[counted]
    bounds = bounds_of(raw, np.zeros(raw.shape), y, **mine)
    oracle.assert_within(found.per_token[counted], exact.per_token[counted], bounds.per_token)
    oracle.assert_within(found.logsumexp[counted], exact.logsumexp[counted], bounds.logsumexp)
    oracle.assert_within(found.entropy[counted], exact.entropy[counted], bounds.entropy)
    oracle.assert_within(dlogits[counted], dlogits_exact[counted], bounds.gradient)
    if options.get("reduction") == "none":
        oracle.assert_same_bits(found.loss, found.per_token)
    else:
        oracle.assert_within(found.loss, exact.loss, bounds.loss)
        oracle.assert_within(found.z_loss, exact.z_loss, bounds.z_loss)
    assert_argmax(found.argmax[counted], bounds)
    np.testing.assert_equal(found.accuracy, np.mean(found.argmax[counted] == y.argmax(axis=-1)))
    skipped = ~counted
    assert (dlogits[skipped] == 0).all()
    assert (found.per_token[skipped] == 0).all()
    assert np.isnan(found.logsumexp[skipped]).all()
    assert np.isnan(found.entropy[skipped]).all()
    assert (found.argmax[skipped] == -1).all()
    # The loss alone has the same bits, and so has the gradient without stats.
    forward = {name: value for name, value in options.items() if name != "grad_output"}
    oracle.assert_same_bits(native.cross_entropy(logits, targets, threads=threads, **forward), found.loss)
    again = with_grad(logits, targets, threads=threads, **options)
    oracle.assert_same_bits(again[0], found.loss)
    oracle.assert_same_bits(again[1], dlogits)


# ---- values --------------------------------------------------------------------------------------------------------


@each_table
@every_dtype
def test_every_vocabulary(threads: int, dtype: DType) -> None:
    for vocabulary in (*range(1, 40), 63, 64, 65, 127, 255, 256, 257, 511, 513, 1023, 1025):
        check(*some_rows(7, vocabulary, dtype), {"temperature": (1.0, 0.7)[vocabulary % 2]}, threads)


@each_table
@every_dtype
@pytest.mark.parametrize("name", single_options(7, 300))
def test_every_option_alone(name: str, dtype: DType) -> None:
    for rows, vocabulary in [(7, 5), (7, 300)]:
        check(*some_rows(rows, vocabulary, dtype), single_options(rows, vocabulary)[name])


@each_table
@every_dtype
def test_options_together(threads: int, dtype: DType) -> None:
    for seed, (rows, vocabulary) in itertools.product(range(12), [(9, 6), (5, 270)]):
        check(*some_rows(rows, vocabulary, dtype), random_options(seed, rows, vocabulary), threads)


@each_table
@every_dtype
def test_probabilities(dtype: DType) -> None:
    for seed, (rows, vocabulary) in itertools.product(range(6), [(6, 1), (6, 7), (5, 270)]):
        logits, _ = some_rows(rows, vocabulary, dtype)
        soft = np.random.default_rng(seed).random((rows, vocabulary))
        soft[:, ::3] = 0
        for targets in (soft, soft / soft.sum(axis=-1, keepdims=True).clip(0.5)):
            check(logits, targets.astype(dtype), random_options(seed, rows, vocabulary))
            check(logits, targets.astype(dtype), {})


@each_table
def test_rows_past_the_caches(threads: int) -> None:
    """Enough work for all threads, one long row included."""
    for rows, vocabulary in [(1, 70_001), (65, 1025)]:
        check(*some_rows(rows, vocabulary, np.dtype(np.float32)), {"label_smoothing": 0.1, "softcap": 20.0}, threads)


@every_dtype
def test_the_same_bits_everywhere(dtype: DType) -> None:
    """On every table, for every thread count, in any memory, whatever the other rows are."""
    answers = []
    before = _core.isa()
    for (rows, vocabulary), seed in itertools.product([(9, 5), (9, 300), (40, 2000)], range(4)):
        logits, targets = some_rows(rows, vocabulary, dtype)
        options = random_options(seed, rows, vocabulary) | {"reduction": "none", "grad_output": np.arange(rows) / 4}
        options.pop("num_items", None)
        try:
            for isa, threads in itertools.product(_core.usable_isas(), (1, 2, 3)):
                _core.use_isa(isa)
                answers.append(with_grad(logits, targets, threads=threads, **options))
        finally:
            _core.use_isa(before)
        for given in (*layouts(logits).values(), dlpack(logits)):
            answers.append(with_grad(given, targets, **options))
        for found in answers[1:]:
            oracle.assert_same_bits(found[0], answers[0][0])
            oracle.assert_same_bits(found[1], answers[0][1])
        for row in range(0, rows, 3):
            own = {k: v[row : row + 1] if np.shape(v) == (rows,) else v for k, v in options.items()}
            alone = with_grad(logits[row : row + 1], targets[row : row + 1], **own)
            oracle.assert_same_bits(alone[0], answers[0][0][row : row + 1])
            oracle.assert_same_bits(alone[1], answers[0][1][row : row + 1])
        answers.clear()


# ---- numbers by hand -----------------------------------------------------------------------------------------------


@each_table
@wide_dtypes
def test_large_offsets_and_small_rests(dtype: DType) -> None:
    u = oracle.UNIT[dtype.name]
    assert native.cross_entropy(np.array([[1e8, 1e8]], dtype), [1]) == dtype.type(math.log(2))
    far, gradient = with_grad(np.array([[0, 60]], dtype), [1])
    rest = math.exp(-60)
    assert far == pytest.approx(rest, rel=8 * u, abs=0)
    np.testing.assert_allclose(gradient, [[rest, -rest]], rtol=16 * u)
    sure = native.cross_entropy(np.array([[0, 1000]], dtype), [1])
    assert sure == 0
    assert not np.signbit(sure)


@each_table
def test_the_true_class_has_a_gradient_where_its_probability_rounds_to_one() -> None:
    logits = np.array([[7.59375, 0]], oracle.BFLOAT16)
    rest = math.exp(-7.59375)
    _, gradient = with_grad(logits, [0])
    np.testing.assert_allclose(gradient, [[-rest / (1 + rest), rest / (1 + rest)]], rtol=2**-20)
    half = np.zeros((1, 2), oracle.BFLOAT16)
    with_grad(logits, [0], dlogits_out=half)
    np.testing.assert_allclose(oracle.widen(half), gradient, rtol=2**-8)
    exact = np.array([[math.log(0.9995 / 0.0005), 0]], np.float32)
    assert with_grad(exact, [0])[1][0, 0] == pytest.approx(-5e-4, rel=1e-5)


@each_table
def test_means_divide_once(threads: int) -> None:
    """Losses 5, 1, 1, 1 among ignored rows: not a mean of means, however they are shared out."""
    logits, targets = np.full((10, 2), NAN), np.full(10, -100)
    for at, loss in [(0, 5.0), (3, 1.0), (4, 1.0), (9, 1.0)]:
        logits[at], targets[at] = [0.0, math.log(math.expm1(loss))], 0
    assert native.cross_entropy(logits, targets, threads=threads) == pytest.approx(2.0, rel=1e-14)
    for chunk in (1, 2, 3, 7, None):
        loss = native.linear_cross_entropy(logits, np.eye(2), targets, chunk_rows=chunk, threads=threads)
        assert loss == pytest.approx(2.0, rel=1e-14)


@each_table
@wide_dtypes
def test_smoothing_and_class_weights_as_pytorch_has_them(dtype: DType) -> None:
    x, targets = np.array([[1, 2, 3], [3, 0.4, 0], [9, -9, 0]], dtype), np.array([0, 1, -100])
    weights = [0.2, 0.3, 0.5]
    assert native.cross_entropy(x, targets, label_smoothing=0.2) == pytest.approx(2.3889435, abs=3e-7)
    total = native.cross_entropy(x, targets, label_smoothing=0.2, reduction="sum")
    assert total == pytest.approx(4.7778870, abs=6e-7)
    weighted = native.cross_entropy(x, targets, label_smoothing=0.2, class_weight=weights)
    assert weighted == pytest.approx(2.5418426, abs=3e-7)
    for options in ({}, {"label_smoothing": 0.2}, {"class_weight": weights, "lse_square_scale": 0.1}):
        whole, few = (with_grad(x[:n], targets[:n], **options) for n in (3, 2))
        oracle.assert_same_bits(whole[0], few[0])
        oracle.assert_same_bits(whole[1][:2], few[1])


# ---- what is skipped, what is not finite ---------------------------------------------------------------------------


@each_table
@every_dtype
def test_logits_at_minus_infinity(dtype: DType) -> None:
    x = np.array([[-INF, 0, 1]], dtype)
    loss, gradient = with_grad(x, [1])
    assert loss == pytest.approx(1.3132617, abs=2e-7)
    assert np.isfinite(gradient).all()
    assert gradient[0, 0] == 0
    loss, gradient = with_grad(x, [1], label_smoothing=0.1)
    assert loss == INF
    assert np.isfinite(gradient).all()
    masked = native.cross_entropy(x, [1], label_smoothing=0.3, class_weight=[0, 1, 1])
    assert np.isfinite(masked)
    loss, gradient = with_grad(x, [0])
    assert loss == INF
    np.testing.assert_allclose(gradient, [[-1, 1 / (1 + math.e), math.e / (1 + math.e)]], rtol=1e-6)


@each_table
@every_dtype
def test_rows_without_a_loss(threads: int, dtype: DType) -> None:
    """NaN, +inf or nothing but -inf: NaN there, and the other rows have the bits they have without it."""
    for vocabulary in (1, 2, 17, 64, 257, 600):
        clean, _ = some_rows(9, vocabulary, dtype)
        targets = np.arange(9) % vocabulary
        expected = with_grad(clean, targets, reduction="none", stats=True)
        for bad, at in itertools.product((NAN, INF, -INF), (0, vocabulary // 2, vocabulary - 1)):
            x = clean.copy()
            x[3, at] = bad
            if bad == -INF:
                x[3] = bad
            found = with_grad(x, targets, reduction="none", stats=True, threads=threads)
            others = np.arange(9) != 3
            for field in ("per_token", "logsumexp", "entropy", "argmax"):
                mine, theirs = getattr(found[0], field), getattr(expected[0], field)
                oracle.assert_same_bits(mine[others], theirs[others])
            oracle.assert_same_bits(found[1][others], expected[1][others])
            assert np.isnan(found[1][3]).all()
            assert np.isnan(found[0].per_token[3])
            assert np.isnan(found[0].entropy[3])
            assert found[0].argmax[3] == (0 if bad == -INF else at)
            np.testing.assert_equal(found[0].logsumexp[3], bad)
            assert np.isnan(native.cross_entropy(x, targets, threads=threads))
            targets_without = np.where(others, targets, -100)
            ignored = with_grad(x, targets_without, threads=threads)
            clean_ignored = with_grad(clean, targets_without)
            oracle.assert_same_bits(ignored[0], clean_ignored[0])
            oracle.assert_same_bits(ignored[1], clean_ignored[1])


@each_table
@every_dtype
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nothing_that_counts(reduction: str, dtype: DType) -> None:
    result = oracle.result_dtype(dtype)
    x = np.full((3, 5), NAN, dtype)
    cases: list[tuple[Array, dict[str, Any]]] = [
        (x, {"targets": [-100] * 3}),
        (x, {"targets": [1, 2, 3], "token_weight": np.zeros(3)}),
        (x[:0], {"targets": []}),
        (x, {"targets": [1, 2, 3], "shift": 3}),
    ]
    for rows, options in cases:
        for empty, mean in (("nan", NAN), ("zero", 0.0)):
            given: dict[str, Any] = {"logits": rows, "reduction": reduction, "empty": empty} | options
            stats, gradient = with_grad(**given, stats=True)
            if reduction == "none":
                places = 0 if "shift" in options else len(rows)
                oracle.assert_same_bits(stats.loss, np.zeros(places, result))
            else:
                np.testing.assert_equal(stats.loss, result.type(mean if reduction == "mean" else 0.0))
            np.testing.assert_equal(stats.accuracy, mean)
            oracle.assert_same_bits(gradient, np.zeros(rows.shape, result))
    # Weights of classes that sum to 0, on rows that are live.
    live = np.ones((2, 2), dtype)
    for targets, weights in (([0, 0], [0, 1]), ([0, 1], [1, -1])):
        loss, gradient = with_grad(live, targets, class_weight=weights)
        assert np.isnan(loss)
        oracle.assert_same_bits(gradient, np.zeros((2, 2), result))


def test_no_classes() -> None:
    empty = np.zeros((2, 0), np.float32)
    assert np.isnan(native.cross_entropy(empty, empty))
    assert with_grad(empty, empty)[1].shape == (2, 0)
    assert native.cross_entropy(empty, [-100, -100], reduction="sum") == 0
    for value in ("nan", "zero"):
        for targets in (empty, [-100, -100]):
            mine, theirs = (m.cross_entropy(empty, targets, empty=value, stats=True) for m in (native, reference))
            for field, a, b in zip(STATS, mine, theirs, strict=True):
                np.testing.assert_array_equal(a, b, err_msg=field)


# ---- shift, stats, num_items ---------------------------------------------------------------------------------------


@each_table
@every_dtype
def test_shift_is_a_slice(dtype: DType) -> None:
    logits = some_rows(24, 9, dtype)[0].reshape(2, 3, 4, 9)
    targets = np.arange(24).reshape(2, 3, 4) % 9
    weights = targets % 3 / 2
    for shift, reduction in itertools.product((0, False, True, 2, 3, 4, 9, 2**70), REDUCTIONS):
        n = min(int(shift), 4)
        grad = np.ones(()) if reduction != "none" else np.arange(6 * (4 - n)).reshape(2, 3, 4 - n) / 4
        options: dict[str, Any] = {"reduction": reduction, "grad_output": grad}
        loss, gradient = with_grad(logits, targets, shift=shift, token_weight=weights, **options)
        cut = with_grad(logits[:, :, : 4 - n], targets[:, :, n:], token_weight=weights[:, :, n:], **options)
        oracle.assert_same_bits(loss, cut[0])
        oracle.assert_same_bits(gradient[:, :, : 4 - n], cut[1])
        assert (gradient[:, :, 4 - n :] == 0).all()


@each_table
def test_stats_are_those_of_the_reference() -> None:
    logits, targets = some_rows(20, 30, np.dtype(np.float64))
    for reduction in REDUCTIONS:
        cases: list[dict[str, Any]] = [{}, {"lse_square_scale": 0.1, "token_weight": np.arange(20) % 3 / 2}]
        for options in cases:
            mine = native.cross_entropy(logits, targets, reduction=reduction, stats=True, **options)
            theirs = reference.cross_entropy(logits, targets, reduction=reduction, stats=True, **options)
            assert type(mine) is type(theirs) is native.LossStats
            assert mine._fields == STATS
            assert mine.skipped_mass == 0.0
            for a, b in zip(mine, theirs, strict=True):
                assert type(a) is type(b)
                assert np.asarray(a).dtype == np.asarray(b).dtype
                np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)


def test_gradients_accumulate_over_calls() -> None:
    """With `num_items` of the whole, parts add up to it."""
    logits, targets = some_rows(20, 30, np.dtype(np.float64))
    live = (targets != -100).sum()
    loss, gradient = with_grad(logits, targets)
    parts = [with_grad(logits[s], targets[s], num_items=live) for s in (np.s_[:3], np.s_[3:4], np.s_[4:])]
    assert sum(part[0] for part in parts) == pytest.approx(loss, rel=1e-14)
    np.testing.assert_allclose(np.concatenate([part[1] for part in parts]), gradient, rtol=1e-14)
