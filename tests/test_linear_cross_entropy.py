"""``linear_cross_entropy`` and its gradients against the float64 reference: dtypes, tables, threads, options.

Knows the fused loss, and that it is the unfused one to the bit. Arrays for gradients are in test_gradient_out.py, what
a filter leaves out in test_filter_eps.py, peaks of memory in test_loss_memory.py; what is accepted and refused in
test_loss_intake.py and test_errors.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
import oracle
from layouts import dlpack, layouts
from lmhead_native import _core, reference
from loss_bounds import assert_argmax, bounds_of, head_bounds, one_hot, raw_bound
from loss_cases import REDUCTIONS, random_options, single_options, some_head
from parameters import every_dtype, every_pair

Array = NDArray[Any]
DType = np.dtype[Any]
INF, NAN = math.inf, math.nan
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
each_table = pytest.mark.usefixtures("each_isa")


@contextmanager
def table(isa: str) -> Iterator[None]:
    before = _core.isa()
    _core.use_isa(isa)
    try:
        yield
    finally:
        _core.use_isa(before)


def with_grad(*given: Any, **options: Any) -> tuple[Any, ...]:
    """Return the loss and the three gradients."""
    return native.linear_cross_entropy_with_grad(*given, **options)


def check(given: tuple[Array, Array, Array], options: dict[str, Any], **how: Any) -> None:
    """Compare everything that a call gives with the reference on the same numbers as float64."""
    h, w, targets = given
    found = with_grad(*given, stats=True, **options, **how)
    exact: tuple[Any, ...] = reference.linear_cross_entropy_with_grad(
        oracle.widen(h), oracle.widen(w), targets, stats=True, **options
    )
    result = oracle.result_dtype(h.dtype)
    weights = oracle.widen(options.get("token_weight", np.ones(len(h))))
    counted = (weights != 0) & (targets != -100)
    mine = options | {"token_weight": weights[counted], "result": result.name}
    if np.ndim(options.get("grad_output", 0)) == 1:
        mine["grad_output"] = options["grad_output"][counted]
    raw = oracle.widen(h)[counted] @ oracle.widen(w).T
    rows = bounds_of(raw, raw_bound(h[counted], w, result.name), one_hot(targets[counted], len(w)), **mine)
    bounds = head_bounds(h[counted], w, rows, result=result.name)
    stats, expected = found[0], exact[0]
    for field in ("per_token", "logsumexp", "entropy"):
        oracle.assert_within(getattr(stats, field)[counted], getattr(expected, field)[counted], getattr(rows, field))
    if options.get("reduction") == "none":
        oracle.assert_same_bits(stats.loss, stats.per_token)
    else:
        oracle.assert_within(stats.loss, expected.loss, rows.loss)
        oracle.assert_within(stats.z_loss, expected.z_loss, rows.z_loss)
    assert_argmax(stats.argmax[counted], rows)
    assert stats.skipped_mass == 0
    oracle.assert_within(found[1][counted], exact[1][counted], bounds.hidden)
    oracle.assert_within(found[2], exact[2], bounds.weight)
    if "bias" in options:
        oracle.assert_within(found[3], exact[3], bounds.bias)
    assert (found[1][~counted] == 0).all()
    assert {found[1].dtype, found[2].dtype, stats.loss.dtype} == {result}
    # Alone, and from the logits, the loss has the same bits.
    forward = {name: value for name, value in options.items() if name != "grad_output"}
    oracle.assert_same_bits(native.linear_cross_entropy(h, w, targets, **forward, **how), stats.loss)
    threads = {name: value for name, value in how.items() if name == "threads"}
    oracle.assert_same_bits(native.cross_entropy(native.logits(h, w), targets, **forward, **threads), stats.loss)
    unfused = native.cross_entropy(native.logits(h, w), targets, stats=True, **forward)
    for field, other in zip(stats, unfused, strict=True):
        oracle.assert_same_bits(field, other)


# ---- values --------------------------------------------------------------------------------------------------------


@each_table
@every_pair
def test_sizes(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    sizes = [(1, 1, 1), (2, 3, 5), (7, 2, 70), (3, 19, 16), (17, 33, 67), (5, 257, 33), (15, 300, 129), (33, 65, 64)]
    for size in sizes:
        options: dict[str, Any] = {"bias": np.arange(size[1]) % 7 / 4}
        check(some_head(*size, hidden_dtype, weight_dtype), options, threads=threads)


@each_table
@every_dtype
def test_every_width_and_vocabulary(dtype: DType) -> None:
    for n, width in enumerate((*range(1, 36), 63, 64, 65, 127, 128, 129, 257)):
        check(some_head(1 + n % 9, 70 - n, width, dtype, dtype), {})


@each_table
@every_dtype
@pytest.mark.parametrize("name", single_options(7, 300))
def test_every_option_alone(name: str, dtype: DType) -> None:
    for n, vocabulary in [(7, 5), (7, 300)]:
        check(some_head(n, vocabulary, 20, dtype, dtype), single_options(n, vocabulary)[name])


@each_table
@every_dtype
def test_options_together(threads: int, dtype: DType) -> None:
    for seed, (n, vocabulary, width) in itertools.product(range(12), [(9, 6, 5), (5, 270, 33)]):
        options = random_options(seed, n, vocabulary)
        check(some_head(n, vocabulary, width, dtype, dtype), options, threads=threads, chunk_rows=1 + seed)


@each_table
@every_pair
def test_several_chunks_and_blocks(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    options = random_options(3, 130, 600)
    check(some_head(130, 600, 70, hidden_dtype, weight_dtype), options, threads=threads, chunk_rows=48)


# ---- the same bits -------------------------------------------------------------------------------------------------


@every_pair
def test_chunks_threads_and_tables_change_no_bit(hidden_dtype: DType, weight_dtype: DType) -> None:
    for seed, (n, vocabulary, width) in enumerate([(21, 40, 17), (70, 530, 65)], start=1):
        given = some_head(n, vocabulary, width, hidden_dtype, weight_dtype)
        options = random_options(seed, n, vocabulary) | {"bias": np.arange(vocabulary) % 5 / 8}
        answers = []
        for isa in _core.usable_isas():
            with table(isa):
                ways = [(None, 1), (5, 3), (16, 2), (10**30, 2)]
                answers += [with_grad(*given, **options, chunk_rows=rows, threads=threads) for rows, threads in ways]
        for other in answers[1:]:
            oracle.assert_same(other, answers[0])


@each_table
@every_dtype
def test_memory_changes_no_bit(threads: int, dtype: DType) -> None:
    h, w, targets = some_head(11, 300, 40, dtype, dtype)
    options = {"bias": np.arange(300) % 5 / 8, "softcap": 5.0, "chunk_rows": 4}
    expected = with_grad(h, w, targets, **options)
    for hidden, weight in [*zip(layouts(h).values(), layouts(w).values(), strict=True), (dlpack(h), dlpack(w))]:
        for pair in ((hidden, weight), (hidden, w), (h, weight)):
            found = with_grad(*pair, targets, **options, threads=threads)
            oracle.assert_same(found, expected)


@each_table
@every_pair
def test_rows_of_dhidden_do_not_know_their_batch(hidden_dtype: DType, weight_dtype: DType) -> None:
    h, w, targets = some_head(23, 300, 50, hidden_dtype, weight_dtype)
    whole = with_grad(h, w, targets, reduction="none")
    for rows in (np.s_[:1], np.s_[3:4], np.s_[5:12], np.s_[::-1], np.s_[::5]):
        part = with_grad(h[rows], w, targets[rows], reduction="none", wrt=["hidden"])
        oracle.assert_same_bits(part[0], whole[0][rows])
        assert part[1] is not None
        oracle.assert_same_bits(part[1], np.ascontiguousarray(whole[1][rows]))


# ---- what is skipped, what is not finite ---------------------------------------------------------------------------


@each_table
@every_dtype
def test_skipped_rows_reach_nothing(threads: int, dtype: DType) -> None:
    """NaN and infinities in rows that are ignored, shifted out or of weight 0: as if the rows were not there."""
    h, w, targets = (array.copy() for array in some_head(12, 70, 33, dtype, dtype))
    targets[:] = np.arange(12)
    targets[[3, 5]] = -100
    weights = np.where(np.arange(12) == 8, 0.0, np.arange(12) + 1.0)
    kept = ~np.isin(np.arange(12), [3, 5, 8])
    options: dict[str, Any] = {"bias": np.arange(70) / 64, "label_smoothing": 0.1, "lse_square_scale": 0.01}
    for reduction in REDUCTIONS:
        expected = with_grad(h[kept], w, targets[kept], reduction=reduction, token_weight=weights[kept], **options)
        spoilt = h.copy()
        spoilt[3], spoilt[5], spoilt[8] = NAN, INF, -INF
        found = with_grad(spoilt, w, targets, reduction=reduction, token_weight=weights, threads=threads, **options)
        oracle.assert_same((found[0][kept] if reduction == "none" else found[0], found[1][kept]), expected[:2])
        oracle.assert_same(found[2:], expected[2:])
        oracle.assert_same_bits(found[1][~kept], np.zeros((3, 33), found[1].dtype))
        if reduction == "none":
            assert (found[0][~kept] == 0).all()
        # What stands in a row that counts still shows.
        spoilt[0, 1] = NAN
        found = with_grad(spoilt, w, targets, reduction=reduction, token_weight=weights, threads=threads, **options)
        assert np.isnan(found[0]).any()
        assert np.isnan(found[1][0]).all()
        assert np.isfinite(found[1][1:]).all()
        assert np.isnan(found[2]).all()
        assert np.isnan(found[3]).all()


@each_table
@every_dtype
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nothing_that_counts(reduction: str, dtype: DType) -> None:
    result, bias = oracle.result_dtype(dtype), np.ones(7)
    h, w = np.full((3, 5), NAN, dtype), np.ones((7, 5), dtype)
    cases: list[dict[str, Any]] = [
        {"targets": [-100] * 3},
        {"targets": [1, 2, 3], "token_weight": [0, 0, 0]},
        {"targets": [1, 2, 3], "shift": 3},
        {"targets": [], "hidden": h[:0]},
    ]
    for case, empty in itertools.product(cases, ("nan", "zero")):
        given = {"hidden": h, "weight": w, "reduction": reduction, "empty": empty, "bias": bias} | case
        loss, dhidden, dweight, dbias = with_grad(**given)
        if reduction == "none":
            assert (loss == 0).all()
        else:
            np.testing.assert_equal(loss, result.type(NAN if (reduction, empty) == ("mean", "nan") else 0))
        oracle.assert_same(
            (dhidden, dweight, dbias), tuple(np.zeros(s, result) for s in (given["hidden"].shape, (7, 5), 7))
        )
        outs = {"dweight_out": np.full((7, 5), -0.0, result), "dbias_out": np.full(7, 3, result)}
        with_grad(**given, **outs, accumulate=True)
        assert np.signbit(outs["dweight_out"]).all()
        assert (outs["dbias_out"] == 3).all()


@each_table
@every_dtype
def test_empty_sizes(dtype: DType) -> None:
    result = oracle.result_dtype(dtype)
    # D = 0: the logits are the bias.
    found = with_grad(np.zeros((2, 0), dtype), np.zeros((3, 0), dtype), [0, 2], bias=[1, 2, 3])
    alone = native.cross_entropy_with_grad(np.array([[1, 2, 3]] * 2, result), [0, 2])
    oracle.assert_same_bits(found[0], alone[0])
    assert found[1].shape == (2, 0)
    assert found[2].shape == (3, 0)
    bound = 8 * oracle.UNIT["bfloat16" if dtype == oracle.BFLOAT16 else result.name]
    np.testing.assert_allclose(found[3], alone[1].sum(axis=0), rtol=bound, atol=bound)
    none = with_grad(np.zeros((2, 4), dtype), np.zeros((0, 4), dtype), [-100, -100])
    assert [a.shape for a in none[1:3] if a is not None] == [(2, 4), (0, 4)]


# ---- numbers by hand -----------------------------------------------------------------------------------------------


@each_table
def test_sums_over_tokens_are_not_taken_in_halves() -> None:
    rng = np.random.default_rng(2)
    h, w = rng.standard_normal((4096, 8)).astype(oracle.BFLOAT16), rng.standard_normal((16, 8)).astype(oracle.BFLOAT16)
    targets = rng.integers(0, 16, 4096)
    exact_h = oracle.widen(h)
    p = np.exp(exact_h @ oracle.widen(w).T)
    p /= p.sum(axis=-1, keepdims=True)
    p[np.arange(4096), targets] -= 1
    found = [with_grad(h, w, targets, reduction="sum", chunk_rows=rows)[2] for rows in (None, 2, 100, 1000)]
    assert found[0] is not None
    assert found[0].dtype == np.float32
    assert (np.abs(found[0] - p.T @ exact_h) <= 2.0**-8 * (np.abs(p).T @ np.abs(exact_h))).all()
    for other in found[1:]:
        oracle.assert_same_bits(np.asarray(other), found[0])


@each_table
@every_pair
def test_the_gradient_of_the_true_class_survives_rounding(hidden_dtype: DType, weight_dtype: DType) -> None:
    """p of 0.9995, which is 1 in bfloat16: minus a rest, not 0."""
    h, w = np.ones((1, 1), hidden_dtype), np.array([[7.59375], [0]]).astype(weight_dtype)
    rest = math.exp(-7.59375)
    _, _, dweight, _ = with_grad(h, w, [0])
    np.testing.assert_allclose(dweight, [[-rest / (1 + rest)], [rest / (1 + rest)]], rtol=2**-8)


@each_table
def test_grad_output_of_each_token_weighs_dweight() -> None:
    h, w, targets = some_head(9, 30, 12, FLOAT64, FLOAT64)
    grad = np.random.default_rng(0).standard_normal(9)
    grad[0] = 0
    options: dict[str, Any] = {"bias": np.arange(30) / 8, "reduction": "none"}
    whole = with_grad(h, w, targets, grad_output=grad, **options)
    rows = [np.s_[i : i + 1] for i in range(9)]
    single = [with_grad(h[r], w, targets[r], grad_output=grad[r], **options) for r in rows]
    np.testing.assert_allclose(whole[2], sum(np.asarray(s[2]) for s in single), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(whole[3], sum(np.asarray(s[3]) for s in single), rtol=1e-12, atol=1e-14)
    assert (whole[1][0] == 0).all()


@each_table
def test_softcap_and_its_slope(threads: int) -> None:
    """124 gives 29.984588 with slope 0.00102723; no cap, one cap and two caps are three different things."""
    w = np.array([[124.0], [-124.0], [0.0]], np.float32)
    h = np.ones((1, 1), np.float32)
    once = np.array([29.984588, -29.984588, 0.0])
    p = np.exp(once - once.max())
    p /= p.sum()
    loss, _, dweight, _ = with_grad(h, w, [2], softcap=30.0, threads=threads)
    assert loss == pytest.approx(29.984588, abs=4e-6)
    assert native.linear_cross_entropy(h, w, [2]) == 124.0
    twice = native.cross_entropy(native.logits(h, w, softcap=30.0), [2], softcap=30.0)
    assert twice == pytest.approx(30 * math.tanh(29.984588 / 30), abs=1e-5)
    slopes = np.array([0.00102723, 0.00102723, 1.0])
    np.testing.assert_allclose(dweight[:, 0], slopes * (p - [0, 0, 1]), rtol=2e-3, atol=1e-9)
    five = np.array([[-35.0], [-40], [-40], [-40], [-40]], np.float32)
    capped = native.linear_cross_entropy(h, five, [0], softcap=30.0)
    assert capped == pytest.approx(0.6834268, abs=1e-6)
    rng = np.random.default_rng(1)
    given = rng.standard_normal((4, 6)), 40 * rng.standard_normal((9, 6)), rng.integers(0, 9, 4)
    # Where the cap is flat, the smallest gradients are at the limits of what differences can tell.
    found = native.check_gradients(*given, softcap=30.0, function=native.linear_cross_entropy_with_grad)
    assert max(found.values()) < 2e-4
    wide, exact = (m.linear_cross_entropy_with_grad(*given, softcap=30.0)[1:3] for m in (native, reference))
    for mine, theirs in zip(wide, exact, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)


@each_table
def test_bias_over_several_blocks(threads: int) -> None:
    h, w, targets = some_head(20, 900, 30, FLOAT32, FLOAT32)
    bias = (5 * np.random.default_rng(3).standard_normal(900)).astype(np.float32)
    fused = with_grad(h, w, targets, bias=bias, threads=threads)
    oracle.assert_same_bits(native.cross_entropy(native.logits(h, w), targets, bias=bias), fused[0])
    oracle.assert_same_bits(native.cross_entropy(native.logits(h, w, bias=bias), targets), fused[0])
    moved = with_grad(h, w, targets, bias=bias + 100, threads=threads)
    for mine, theirs in zip(moved, fused, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=2e-5 * max(1.0, np.abs(theirs).max()))
    assert abs(float(np.sum(fused[3], dtype=np.float64))) < 900 * 2.0**-24


# ---- which gradients -----------------------------------------------------------------------------------------------


@each_table
@every_pair
def test_what_is_not_asked_for_is_not_made(hidden_dtype: DType, weight_dtype: DType) -> None:
    given, bias = some_head(9, 70, 33, hidden_dtype, weight_dtype), np.arange(70) / 64
    everything = with_grad(*given, bias=bias)
    names = ("hidden", "weight", "bias")
    for wrt in itertools.chain.from_iterable(itertools.combinations(names, k) for k in range(4)):
        found = with_grad(*given, bias=bias, wrt=wrt)
        expected = [g if name in wrt else None for name, g in zip(names, everything[1:], strict=True)]
        oracle.assert_same(found, (everything[0], *expected))


@each_table
def test_gradients_are_those_of_finite_differences() -> None:
    """Of the float64 op, directly; the narrow ones are held to the reference by the bounds above."""
    rng = np.random.default_rng(6)
    for seed in range(6):
        options = random_options(seed, 5, 7) | {"bias": rng.standard_normal(7)}
        found = native.check_gradients(
            rng.standard_normal((5, 4)),
            rng.standard_normal((7, 4)),
            rng.integers(0, 7, 5),
            function=native.linear_cross_entropy_with_grad,
            **options,
        )
        assert max(found.values()) < 1e-5, options
