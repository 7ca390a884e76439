"""``linear_cross_entropy`` and its gradients against the float64 reference: dtypes, tables, threads, options, memory.

Knows the fused loss, that it is the unfused one to the bit, and the arrays of its gradients. What is accepted and
refused is in test_loss_intake.py and test_errors.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fresh
import lmhead_native as native
import oracle
from layouts import dlpack, layouts
from lmhead_native import _core, reference
from loss_bounds import assert_argmax, bounds_of, head_bounds, one_hot, raw_bound
from loss_cases import REDUCTIONS, random_options, single_options
from parameters import every_dtype

Array = NDArray[Any]
DType = np.dtype[Any]
INF, NAN = math.inf, math.nan
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
PAIRS = [*itertools.product(oracle.NARROW, repeat=2), (FLOAT64, FLOAT64)]
every_pair = pytest.mark.parametrize(("hidden_dtype", "weight_dtype"), PAIRS, ids=str)
each_table = pytest.mark.usefixtures("each_isa")
GRADIENTS = ("dhidden", "dweight", "dbias")


@contextmanager
def table(isa: str) -> Iterator[None]:
    before = _core.isa()
    _core.use_isa(isa)
    try:
        yield
    finally:
        _core.use_isa(before)


@cache
def some_head(n: int, vocabulary: int, width: int, hidden: DType, weight: DType) -> tuple[Array, Array, Array]:
    """Return hidden states, a weight whose logits have a spread of a few, and targets, one in five of them ignored."""
    rng = np.random.default_rng([n, vocabulary, width])
    h = rng.standard_normal((n, width)).astype(hidden)
    w = (3 / math.sqrt(max(width, 1)) * rng.standard_normal((vocabulary, width))).astype(weight)
    targets = rng.integers(0, vocabulary, n)
    targets[4::5] = -100
    return h, w, targets


def assert_same(found: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    for mine, theirs in zip(found, expected, strict=True):
        if theirs is None:
            assert mine is None
        else:
            oracle.assert_same_bits(np.array(mine), theirs)


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
            assert_same(other, answers[0])


@each_table
@every_dtype
def test_memory_changes_no_bit(threads: int, dtype: DType) -> None:
    h, w, targets = some_head(11, 300, 40, dtype, dtype)
    options = {"bias": np.arange(300) % 5 / 8, "softcap": 5.0, "chunk_rows": 4}
    expected = with_grad(h, w, targets, **options)
    for hidden, weight in [*zip(layouts(h).values(), layouts(w).values(), strict=True), (dlpack(h), dlpack(w))]:
        for pair in ((hidden, weight), (hidden, w), (h, weight)):
            found = with_grad(*pair, targets, **options, threads=threads)
            assert_same(found, expected)


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
        assert_same((found[0][kept] if reduction == "none" else found[0], found[1][kept]), expected[:2])
        assert_same(found[2:], expected[2:])
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
        assert_same((dhidden, dweight, dbias), tuple(np.zeros(s, result) for s in (given["hidden"].shape, (7, 5), 7)))
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


# ---- wrt, filter_eps -----------------------------------------------------------------------------------------------


@each_table
@every_pair
def test_what_is_not_asked_for_is_not_made(hidden_dtype: DType, weight_dtype: DType) -> None:
    given, bias = some_head(9, 70, 33, hidden_dtype, weight_dtype), np.arange(70) / 64
    everything = with_grad(*given, bias=bias)
    names = ("hidden", "weight", "bias")
    for wrt in itertools.chain.from_iterable(itertools.combinations(names, k) for k in range(4)):
        found = with_grad(*given, bias=bias, wrt=wrt)
        expected = [g if name in wrt else None for name, g in zip(names, everything[1:], strict=True)]
        assert_same(found, (everything[0], *expected))


def threshold_apart(values: Array, wanted: float) -> float:
    """Return a number near the wanted one that no value is close to: rounding puts none on the other side."""
    ascending = np.sort(values.ravel())
    at = int(np.searchsorted(ascending, wanted))
    around = ascending[max(at - 50, 0) : at + 50]
    widest = int(np.argmax(np.diff(around)))
    threshold = float(around[widest : widest + 2].mean())
    assert np.abs(values / threshold - 1).min() > 1e-4
    return threshold


@each_table
@every_pair
def test_filtered_gradients(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    h, w, targets = some_head(40, 300, 33, hidden_dtype, weight_dtype)
    targets = targets.clip(0)
    exact = with_grad(h, w, targets, reduction="sum")
    # Behind a filter nothing is rounded to bfloat16.
    unrounded = exact if hidden_dtype != oracle.BFLOAT16 else with_grad(h.astype("f4"), w, targets, reduction="sum")
    z = oracle.widen(h) @ oracle.widen(w).T
    p = np.exp(z - z.max(axis=-1, keepdims=True))
    distance = np.abs(p / p.sum(axis=-1, keepdims=True) - one_hot(targets, 300))
    for wanted in (2.0**-20, 2.0**-12, 2.0**-8, 0.01):
        eps = threshold_apart(distance, wanted)
        kept = distance >= eps
        stats, *found = with_grad(h, w, targets, reduction="sum", filter_eps=eps, stats=True, threads=threads)
        oracle.assert_same_bits(stats.loss, exact[0])
        mass = np.where(kept, 0, distance).sum(axis=-1)
        assert stats.skipped_mass == pytest.approx(mass.max(), rel=1e-3)
        off = np.linalg.norm(oracle.widen(found[0]) - oracle.widen(unrounded[1]), axis=-1)
        longest = np.linalg.norm(oracle.widen(w), axis=-1).max()
        assert (off <= 1.01 * stats.skipped_mass * longest + 1e-4 * longest).all()
        again = with_grad(h, w, targets, reduction="sum", filter_eps=eps, chunk_rows=6)
        assert_same(again[1:], tuple(found))
    same = with_grad(h, w, targets, reduction="sum", filter_eps=0.0)
    assert_same(same, exact)
    stats, *nothing = with_grad(h, w, targets, filter_eps=2.0, stats=True)
    assert all((g == 0).all() for g in nothing if g is not None)
    assert stats.skipped_mass == pytest.approx(distance.sum(axis=-1).max(), rel=1e-3)


@each_table
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)
def test_errors_of_the_filter_are_as_documented(threads: int, dtype: DType) -> None:
    h, w, targets = some_head(40, 300, 33, dtype, dtype)
    targets = targets.clip(0)
    rng = np.random.default_rng(4)
    classes, tokens = rng.random(300) + 0.5, rng.random(40)
    cases: list[dict[str, Any]] = [
        {"scale": -0.5, "temperature": 0.7, "token_weight": tokens},
        {"label_smoothing": 0.2, "softcap": 4.0},
        {"class_weight": classes},
        {"class_weight": classes, "label_smoothing": 0.3},
        {"lse_square_scale": 0.01, "class_weight": classes, "label_smoothing": 0.3},
    ]
    for options, eps in itertools.product(cases, (2.0**-12, 2.0**-7, 0.1)):
        given = options | {"reduction": "sum", "threads": threads}
        exact = with_grad(h, w, targets, **given)
        stats, dhidden, dweight, _ = with_grad(h, w, targets, **given, filter_eps=eps, stats=True)
        assert stats.skipped_mass > 0
        largest, spread = (classes.max(), np.ptp(classes)) if "class_weight" in options else (1.0, 0.0)
        more = 2 * options.get("label_smoothing", 0.0) * spread
        more = more + 2 * options.get("lse_square_scale", 0.0) * np.abs(stats.logsumexp)
        g = np.abs(options.get("token_weight", 1.0) * options.get("scale", 1.0) / options.get("temperature", 1.0))
        g = np.broadcast_to(g, 40)
        rounding = 2.0**-14 if dtype == FLOAT32 else 2.0**-40
        longest, lengths = np.linalg.norm(w, axis=-1).max(), np.linalg.norm(h, axis=-1)
        by_mass, by_entry = stats.skipped_mass * largest + more, eps * largest + more
        assert (np.linalg.norm(dhidden - exact[1], axis=-1) <= (by_mass * g + rounding) * longest).all()
        off = np.linalg.norm(dweight - exact[2], axis=-1)
        assert (off <= (by_entry * g * lengths).sum() + rounding * lengths.sum()).all()
        assert np.sqrt(np.square(off).sum()) <= (by_mass * g * lengths).sum() + rounding * lengths.sum()


# ---- memory --------------------------------------------------------------------------------------------------------

CHILD = """
import sys
import numpy as np
import lmhead_native as native

def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

N, V, D = map(int, sys.argv[1:4])
options = {"threads": 2, "chunk_rows": int(sys.argv[4]) or None}
rng = np.random.default_rng(0)
hidden, weight = rng.standard_normal((N, D), dtype="f4"), rng.standard_normal((V, D), dtype="f4")
targets = rng.integers(0, V, N)
outs = {"dhidden_out": np.ones_like(hidden), "dweight_out": np.ones_like(weight)}
tiny = {"dhidden_out": np.ones((9, D), "f4"), "dweight_out": np.ones((2, D), "f4")}
native.linear_cross_entropy_with_grad(hidden[:9], weight[:2], targets[:9] % 2, threads=2, **tiny)
before = status("VmRSS")
assert status("VmHWM") - before < 2**20, "a peak before the call would hide its own"
native.linear_cross_entropy_with_grad(hidden, weight, targets, **options, **outs)
print(native.isa(), status("VmHWM") - before)
"""


@pytest.mark.parametrize(
    ("n", "vocabulary", "width", "chunk_rows", "beside"),
    [
        # Prepared hidden states of 256 KiB, and for each thread half a MiB and the chunk's 256 KiB.
        (768, 32064, 256, 256, 3 * 2**20),
        # Few classes: some 60 bytes for the loss of each position, and chunks that are small in all of their parts.
        (200_000, 2, 16, 0, 24 * 2**20),
    ],
)
def test_no_copy_of_a_chunk(each_isa: str, n: int, vocabulary: int, width: int, chunk_rows: int, beside: int) -> None:
    """The peak of memory is the chunk's logits and little beside them."""
    vocabulary = min(vocabulary, 2048) if each_isa == "scalar" else vocabulary  # which takes half a minute for more
    sizes = map(str, (n, vocabulary, width, chunk_rows))
    isa, grown = fresh.output(CHILD, *sizes, environment={"LMHEAD_ISA": each_isa}).split()
    assert isa == each_isa
    assert int(grown) <= chunk_rows * vocabulary * 4 + beside


# ---- arrays for gradients ------------------------------------------------------------------------------------------


def views(shape: tuple[int, ...], dtype: Any) -> Iterator[tuple[Array, Array]]:
    """Return arrays of a shape in all sorts of memory, and the whole of that."""
    doubled = [2 * n for n in shape]
    first = tuple(slice(n) for n in shape)
    for whole in (np.zeros(doubled, dtype), np.asfortranarray(np.zeros(doubled, dtype))):
        yield whole[first], whole
        yield whole[tuple(slice(None, None, -2) for _ in shape)], whole
        yield whole[(*first[:-1], slice(1, None, 2))], whole
    yield np.zeros(shape[::-1], dtype).T, np.zeros(0)
    raw = np.zeros(int(np.prod(shape)) * np.dtype(dtype).itemsize + 1, np.uint8)
    yield raw[1:].view(dtype).reshape(shape), np.zeros(0)


@each_table
@every_pair
def test_outs(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    """Filled in place whatever their strides and dtype; what lies between their elements stays."""
    h, w, targets = some_head(7, 70, 17, hidden_dtype, weight_dtype)
    options: dict[str, Any] = {"bias": np.arange(70) / 64, "threads": threads, "chunk_rows": 3}
    expected = with_grad(h, w, targets, **options)
    for dtype in [FLOAT64] if hidden_dtype == FLOAT64 else oracle.NARROW:
        shapes = [(7, 17), (70, 17), (70,)]
        for trio in zip(*(views(shape, dtype) for shape in shapes), strict=True):
            outs = {f"{name}_out": out for name, (out, _) in zip(GRADIENTS, trio, strict=True)}
            for out, whole in trio:
                whole.fill(9)
                out.fill(-3)
            found = with_grad(h, w, targets, **options, **outs)
            oracle.assert_same_bits(found[0], expected[0])
            for (out, whole), mine, exact in zip(trio, found[1:], expected[1:], strict=True):
                assert mine is out
                oracle.assert_same_bits(np.array(out), np.asarray(exact).astype(dtype))
                out.fill(9)
                assert (whole == 9).all()


@each_table
@every_pair
def test_accumulation_starts_from_what_is_there(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    h, w, targets = some_head(9, 70, 17, hidden_dtype, weight_dtype)
    bias, result = np.arange(70) / 64, oracle.result_dtype(hidden_dtype)
    expected = with_grad(h, w, targets, bias=bias)
    shapes = [(9, 17), (70, 17), (70,)]
    for dtype in [FLOAT64] if hidden_dtype == FLOAT64 else oracle.NARROW:
        first: list[Array] | None = None
        for chunk, number in itertools.product((None, 1, 2, 5), range(8)):
            outs = [list(views(shape, dtype))[number][0] for shape in shapes]
            for out in outs:
                out[...] = 0.25
            with_grad(
                *(h, w, targets),
                bias=bias,
                chunk_rows=chunk,
                threads=threads,
                accumulate=True,
                dhidden_out=outs[0],
                dweight_out=outs[1],
                dbias_out=outs[2],
            )
            dense = [np.array(out) for out in outs]
            first = first or dense
            assert_same(tuple(dense), tuple(first))
            assert (oracle.widen(outs[0][targets == -100]) == 0.25).all()
            for out, gradient in zip(outs, expected[1:], strict=True):
                exact = oracle.widen(gradient) + 0.25
                u, tiny = oracle.UNIT[np.dtype(dtype).name], 100 * oracle.UNIT[result.name]
                assert (np.abs(oracle.widen(out) - exact) <= u * np.abs(exact) + tiny * (1 + np.abs(exact))).all()
    # A gradient without an array is as it is without the others.
    partly = with_grad(h, w, targets, bias=bias, dbias_out=np.ones(70, result), accumulate=True)
    assert_same(partly[:3], expected[:3])


@each_table
def test_a_head_stored_the_other_way_is_filled_in_place(threads: int) -> None:
    h, w, targets = some_head(30, 300, 40, FLOAT32, FLOAT32)
    w_u = np.ascontiguousarray(w.T)
    stored = np.full((40, 300), 7, np.float32)
    expected = with_grad(h, w, targets)
    found = with_grad(h, w_u.T, targets, dweight_out=stored.T, threads=threads)
    assert_same(found, expected)
    assert found[2] is not None
    assert np.shares_memory(found[2], stored)
    oracle.assert_same_bits(np.ascontiguousarray(stored.T), np.asarray(expected[2]))


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
