"""What holds for every shape, memory and number that hypothesis can think of, on every kernel table.

Knows laws and the float64 answers of `native.reference`; sweeps of sizes are in the tests of each function. Examples
are drawn the same way in every run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray

import lmhead_native as native
import oracle
from lmhead_native import _core, reference

Array = NDArray[Any]
DType = np.dtype[Any]
FLOAT64 = np.dtype(np.float64)
PAIRS = [*itertools.product(oracle.NARROW, repeat=2), (FLOAT64, FLOAT64)]

every_run_alike = settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=300,
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine is no failure
)
pairs = st.sampled_from(PAIRS)
dtypes = st.sampled_from(oracle.FLOATS)
seeds = st.integers(0, 2**32 - 1)
threads = st.sampled_from([1, 2, 3])
# Mostly small, now and then around a register or a block.
lengths = st.one_of(st.integers(0, 40), st.sampled_from([63, 64, 65, 129, 255, 256, 257, 530]))
row_counts = st.sampled_from([0, 1, 2, 3, 4, 5, 16, 17])


def on_every_table(function: Callable[[], list[Array]]) -> list[Array]:
    """Return the answers of the last table, once all of them have given the same bits."""
    before, answers = _core.isa(), []
    try:
        for isa in _core.usable_isas():
            _core.use_isa(isa)
            answers.append(function())
    finally:
        _core.use_isa(before)
    for other in answers[1:]:
        for actual, expected in zip(other, answers[0], strict=True):
            oracle.assert_same_bits(actual, expected)
    return answers[-1]


def normal(seed: int, shape: tuple[int, ...], dtype: DType) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@st.composite
def views(draw: st.DrawFn, array: Array) -> Array:
    """Draw other memory for the same values: any order of axes, steps, offset, byte order, perhaps read-only."""
    order = draw(st.permutations(range(array.ndim)))
    steps = [draw(st.sampled_from([1, 1, -1, 2, -2, 3])) for _ in array.shape]
    offset = draw(st.sampled_from([0, 0, 1, array.itemsize]))
    extents = [abs(step) * n + draw(st.integers(0, 2)) for step, n in zip(steps, array.shape, strict=True)]
    dtype = array.dtype
    if dtype != oracle.BFLOAT16 and draw(st.integers(0, 4)) == 0:
        dtype = dtype.newbyteorder()
    raw = np.zeros(math.prod(extents) * dtype.itemsize + offset, np.uint8)
    memory = raw[offset:].view(dtype).reshape([extents[axis] for axis in order]).transpose(np.argsort(order))
    slices = [
        slice(None, n * step, step) if step > 0 else slice(-1, -1 - n * -step, step)
        for step, n in zip(steps, array.shape, strict=True)
    ]
    view = memory[tuple(s if n else slice(0, 0) for s, n in zip(slices, array.shape, strict=True))]
    assert view.shape == array.shape
    view[...] = array
    view.flags.writeable = draw(st.booleans())
    return view


@st.composite
def heads(draw: st.DrawFn) -> tuple[Array, Array]:
    """Draw (hidden, weight) of any sizes, in contiguous memory."""
    (hidden, weight), width = draw(pairs), draw(lengths)
    shape = draw(row_counts), width
    return normal(draw(seeds), shape, hidden), normal(draw(seeds), (draw(lengths), width), weight)


def rows_of_numbers(dtype: DType, elements: st.SearchStrategy[float]) -> st.SearchStrategy[Array]:
    shapes = st.tuples(st.integers(1, 3), st.one_of(st.integers(1, 20), st.sampled_from([33, 257])))
    wide = hnp.arrays(np.float64, shapes, elements=elements, fill=st.sampled_from([0.0, -1.0, math.inf, -math.inf]))

    def narrow(x: Array) -> Array:
        with np.errstate(over="ignore"):
            return x.astype(dtype)

    return wide.map(narrow)


any_number = st.one_of(st.floats(width=32), st.sampled_from([0.0, -0.0, 1.0, math.inf, -math.inf, math.nan]))
# Gaps and quotients by a temperature of 0.01 stay within float32.
row_number = st.one_of(st.floats(-1e36, 1e36), st.floats(-90, 90), st.sampled_from([math.inf, -math.inf, math.nan]))


# ---- projection ----------------------------------------------------------------------------------------------------


@every_run_alike
@given(data=st.data(), head=heads(), threads=threads)
def test_logits_of_any_memory(data: st.DataObject, head: tuple[Array, Array], threads: int) -> None:
    hidden, weight = head
    h, w = data.draw(views(hidden)), data.draw(views(weight))
    options: dict[str, Any] = {
        "bias": data.draw(st.sampled_from([None, normal(1, weight.shape[:1], FLOAT64)])),
        "softcap": data.draw(st.sampled_from([None, 3.0])),
        "scale": data.draw(st.sampled_from([None, -0.7])),
    }
    (z,) = on_every_table(lambda: [native.logits(h, w, threads=threads, **options)])
    result = oracle.result_dtype(hidden.dtype)
    oracle.assert_same_bits(z, native.logits(hidden, weight, **options))
    bound = oracle.logits_bound(hidden, weight, result=result.name, **options)
    exact = oracle.logits_exact(hidden, weight, **options)
    oracle.assert_within(z, exact, bound)
    specified = reference.logits(h, w, threads=threads, **options)
    assert specified.dtype == z.dtype == result
    oracle.assert_within(z, specified, bound + oracle.UNIT[result.name] * np.abs(exact))


@every_run_alike
@given(data=st.data(), head=heads(), threads=threads)
def test_fused_top_k_of_any_memory(data: st.DataObject, head: tuple[Array, Array], threads: int) -> None:
    hidden, weight = head
    k = data.draw(st.integers(0, len(weight)))
    h, w = data.draw(views(hidden)), data.draw(views(weight))
    fused = on_every_table(lambda: [*native.logits_topk(h, w, k, threads=threads)])
    for actual, expected in zip(fused, native.topk(native.logits(hidden, weight), k), strict=True):
        oracle.assert_same_bits(actual, expected)


@every_run_alike
@given(head=heads(), seed=seeds, threads=threads)
def test_laws_of_the_projection(head: tuple[Array, Array], seed: int, threads: int) -> None:
    """Exact ones: ids do not see each other, powers of two and signs factor out, zeros add nothing."""
    hidden, weight = head
    order = np.random.default_rng(seed).permutation(len(weight))
    zeros = [np.zeros((len(a), seed % 40), a.dtype) for a in head]

    def answers() -> list[Array]:
        z = native.logits(hidden, weight, threads=threads)
        oracle.assert_same_bits(native.logits(hidden, weight[order], threads=threads), z[:, order])
        np.testing.assert_array_equal(native.logits(hidden * hidden.dtype.type(4), weight, threads=threads), 4 * z)
        np.testing.assert_array_equal(native.logits(hidden, -weight, threads=threads), -z)
        np.testing.assert_array_equal(native.logits(hidden, weight, scale=-0.5, threads=threads), -0.5 * z)
        wider = [np.concatenate(pair, axis=1) for pair in zip(head, zeros, strict=True)]
        np.testing.assert_array_equal(native.logits(*wider, threads=threads), z)
        bias = np.zeros(len(weight))
        np.testing.assert_array_equal(native.logits(hidden, weight, bias=bias, threads=threads), z)
        return [z]

    on_every_table(answers)


@every_run_alike
@given(data=st.data(), dtype=dtypes, lead=st.lists(st.integers(0, 3), max_size=3), threads=threads)
def test_leading_axes(data: st.DataObject, dtype: DType, lead: list[int], threads: int) -> None:
    """Any number of them, in any memory, for inputs and `out`."""
    hidden, weight = normal(1, (*lead, 7), dtype), normal(2, (5, 7), dtype)
    z = native.logits(hidden.reshape(-1, 7), weight).reshape(*lead, 5)
    view, out = data.draw(views(hidden)), np.asarray(data.draw(views(np.zeros_like(z))))
    oracle.assert_same_bits(native.logits(view, weight, threads=threads), z)
    if out.flags.writeable and out.dtype.isnative:
        assert native.logits(view, weight, out=out, threads=threads) is out
        oracle.assert_same_bits(out, z)
    for function in (native.softmax, native.log_softmax, native.logsumexp, native.layer_norm, native.rms_norm):
        flat = function(hidden.reshape(-1, 7))
        oracle.assert_same_bits(function(view, threads=threads), flat.reshape((*lead, *flat.shape[1:])))


# ---- rows ----------------------------------------------------------------------------------------------------------


@every_run_alike
@given(data=st.data(), dtype=dtypes, threads=threads)
def test_top_k_of_any_numbers(data: st.DataObject, dtype: DType, threads: int) -> None:
    logits = data.draw(rows_of_numbers(dtype, any_number))
    k = data.draw(st.integers(0, logits.shape[-1]))
    view = data.draw(views(logits))
    values, indices = on_every_table(lambda: [*native.topk(view, k, threads=threads)])
    np.testing.assert_array_equal(indices, [oracle.top_k_exact(row, k) for row in logits])
    specified = reference.topk(logits, k)
    np.testing.assert_array_equal(indices, specified.indices, strict=True)
    oracle.assert_same_bits(values, specified.values)


@every_run_alike
@given(data=st.data(), dtype=dtypes, temperature=st.sampled_from([1.0, 0.01, 0.3, 2.5, 100.0]), threads=threads)
def test_probabilities_of_any_numbers(data: st.DataObject, dtype: DType, temperature: float, threads: int) -> None:
    logits = data.draw(rows_of_numbers(dtype, row_number))
    view = data.draw(views(logits))
    functions = native.softmax, native.log_softmax, native.logsumexp
    actual = on_every_table(lambda: [f(view, temperature=temperature, threads=threads) for f in functions])
    result = oracle.result_dtype(dtype).name
    exact = oracle.row_answers(logits, temperature=temperature, result=result)
    for answer, expected, bound in zip(actual, exact[:3], exact[3:], strict=True):
        oracle.assert_within(answer, expected, bound)
    for answer, function, bound in zip(
        actual, (reference.softmax, reference.log_softmax, reference.logsumexp), exact[3:], strict=True
    ):
        specified = function(view, temperature=temperature)
        assert specified.dtype == answer.dtype
        with np.errstate(invalid="ignore"):
            slack = np.where(np.isfinite(specified), oracle.UNIT[result] * np.abs(oracle.widen(specified)), 0)
        oracle.assert_within(answer, specified, bound + slack)


@every_run_alike
@given(data=st.data(), dtype=dtypes, seed=seeds, shift=st.integers(-2000, 2000), threads=threads)
def test_laws_of_probabilities(data: st.DataObject, dtype: DType, seed: int, shift: int, threads: int) -> None:
    """A common offset changes no bit where it is added exactly; what is masked has no say."""
    vocabulary = data.draw(st.integers(1, 600))
    result = oracle.result_dtype(dtype)
    grid = (np.random.default_rng(seed).integers(-512, 512, (2, vocabulary)) / 16).astype(result)
    masked = np.concatenate([grid, np.full((2, vocabulary), -np.inf, result)], axis=1)

    def answers() -> list[Array]:
        p, log_p = native.softmax(grid, threads=threads), native.log_softmax(grid, threads=threads)
        oracle.assert_same_bits(native.softmax(grid + result.type(shift), threads=threads), p)
        oracle.assert_same_bits(native.log_softmax(grid + result.type(shift), threads=threads), log_p)
        np.testing.assert_array_equal(native.softmax(masked)[:, vocabulary:], np.zeros_like(p))
        bound = oracle.row_answers(grid, result=result.name).softmax_bound
        oracle.assert_within(native.softmax(masked)[:, :vocabulary], p, 2 * bound)
        assert (p.max(axis=-1) == p[[0, 1], grid.argmax(axis=-1)]).all()
        assert (log_p <= 0).all()
        return [p, log_p, native.logsumexp(grid, threads=threads)]

    on_every_table(answers)


@every_run_alike
@given(data=st.data(), dtype=dtypes, seed=seeds, threads=threads)
def test_norms_of_any_memory(data: st.DataObject, dtype: DType, seed: int, threads: int) -> None:
    shape = data.draw(row_counts), data.draw(lengths)
    x, gain, bias = normal(seed, shape, dtype), normal(1, shape[1:], FLOAT64), normal(2, shape[1:], FLOAT64)
    view, g, b = (data.draw(views(a)) for a in (x, gain, bias))

    def answers() -> list[Array]:
        with np.errstate(invalid="ignore"):
            return [native.layer_norm(view, g, b, threads=threads), native.rms_norm(view, g, threads=threads)]

    layer, rms = on_every_table(answers)
    if x.size == 0:
        assert layer.shape == rms.shape == x.shape
        return
    result = oracle.result_dtype(dtype).name
    for actual, specified, exact, bound in [
        (
            layer,
            reference.layer_norm(view, g, b),
            oracle.layer_norm_exact(x, gain, bias),
            oracle.layer_norm_bound(x, gain, bias, result="float64"),
        ),
        (
            rms,
            reference.rms_norm(view, g),
            oracle.rms_norm_exact(x, gain),
            oracle.rms_norm_bound(x, gain, result="float64"),
        ),
    ]:
        rounded = bound + oracle.UNIT[result] * np.abs(exact)
        oracle.assert_within(actual, exact, rounded)
        oracle.assert_within(actual, specified, 2 * rounded)
    scaled = native.rms_norm(x * x.dtype.type(2), eps=4.0)
    oracle.assert_same_bits(scaled, native.rms_norm(x, eps=1.0))
