"""One row has one answer, to the bit: whatever the batch, threads, memory, vocabulary around it and kernel table.

Knows equality only; what the answers should be is in the tests of each function. Memory of the projection's operands
is in test_logits_layouts.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
import oracle
from layouts import dlpack, layouts
from lmhead_native import _core
from parameters import every_dtype

Array = NDArray[Any]
DType = np.dtype[Any]
FLOAT64 = np.dtype(np.float64)
PAIRS = [*itertools.product(oracle.NARROW, repeat=2), (FLOAT64, FLOAT64)]
every_pair = pytest.mark.parametrize(("hidden_dtype", "weight_dtype"), PAIRS, ids=str)
each_table = pytest.mark.usefixtures("each_isa")


def best_of(x: Any) -> int:
    """Return 9, or all there are (DLPack tensors, which do not tell, have 9 here)."""
    return min(9, *getattr(x, "shape", ())[-1:], 9)


# Functions of rows of V numbers.
ROW_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "softmax": native.softmax,
    "log_softmax": native.log_softmax,
    "logsumexp": native.logsumexp,
    "softmax at 0.7": lambda x, **o: native.softmax(x, temperature=0.7, **o),
    "log_softmax at 0.7": lambda x, **o: native.log_softmax(x, temperature=0.7, **o),
    "logsumexp at 0.7": lambda x, **o: native.logsumexp(x, temperature=0.7, **o),
    "topk values": lambda x, **o: native.topk(x, best_of(x), **o).values,
    "topk indices": lambda x, **o: native.topk(x, best_of(x), **o).indices,
    "layer_norm": native.layer_norm,
    "rms_norm": native.rms_norm,
}
HEAD_OPTIONS: list[dict[str, Any]] = [{}, {"softcap": 5.0, "scale": 0.3}]


@contextmanager
def table(isa: str) -> Iterator[None]:
    before = _core.isa()
    _core.use_isa(isa)
    try:
        yield
    finally:
        _core.use_isa(before)


@cache
def some_rows(rows: int, width: int, dtype: DType) -> Array:
    """Return normal numbers: ordinary, far apart, all alike, with infinities, with NaN."""
    x = np.random.default_rng([rows, width]).standard_normal((rows, width))
    x[1::5] *= 40
    x[2::5] = 1.5
    x[3::5, -1] = -np.inf
    x[4::10, width // 2] = np.nan
    x[9::10, 0] = np.inf
    return x.astype(dtype)


@cache
def some_head(rows: int, vocabulary: int, width: int, hidden: DType, weight: DType) -> tuple[Array, Array]:
    rng = np.random.default_rng([rows, vocabulary, width])
    return rng.standard_normal((rows, width)).astype(hidden), rng.standard_normal((vocabulary, width)).astype(weight)


# ---- batch, threads, vocabulary ------------------------------------------------------------------------------------


@each_table
@every_pair
def test_logits_do_not_know_their_batch(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    for rows, vocabulary, width in [(64, 19, 37), (33, 70, 129), (17, 300, 64), (2, 1025, 131)]:
        hidden, weight = some_head(rows, vocabulary, width, hidden_dtype, weight_dtype)
        for storage in (weight, np.asfortranarray(weight)):
            alone = np.stack([native.logits(h, storage, threads=1) for h in hidden])
            for n in {2, 7, 15, 16, rows} - set(range(rows + 1, 99)):
                oracle.assert_same_bits(native.logits(hidden[:n], storage, threads=threads), alone[:n])
            oracle.assert_same_bits(native.logits(hidden[1:], storage, threads=threads), alone[1:])


@each_table
@every_pair
def test_logits_do_not_know_their_vocabulary(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    for rows, width in [(1, 37), (2, 100), (5, 64), (17, 131)]:
        hidden, weight = some_head(rows, 600, width, hidden_dtype, weight_dtype)
        for storage in (weight, np.asfortranarray(weight)):
            whole = native.logits(hidden, storage, threads=threads)
            for first, last in [(0, 1), (0, 255), (1, 258), (37, 38), (250, 513), (599, 600), (587, 600)]:
                part = native.logits(hidden, storage[first:last], threads=threads)
                oracle.assert_same_bits(part, whole[:, first:last])
            picked = np.array([5, 599, 5, 0, 256, 255] * 3)
            oracle.assert_same_bits(native.logits(hidden, weight[picked], threads=threads), whole[:, picked])


@each_table
@every_pair
def test_fused_top_k_has_the_bits_of_logits(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    for (rows, vocabulary, width), options in itertools.product([(3, 300, 37), (20, 600, 64)], HEAD_OPTIONS):
        hidden, weight = some_head(rows, vocabulary, width, hidden_dtype, weight_dtype)
        logits = native.logits(hidden, weight, threads=1, **options)
        for storage in (weight, np.asfortranarray(weight)):
            fused = native.logits_topk(hidden, storage, 50, threads=threads, **options)
            for actual, expected in zip(fused, native.topk(logits, 50, threads=threads), strict=True):
                oracle.assert_same_bits(actual, expected)


@each_table
@every_dtype
@pytest.mark.parametrize("name", ROW_FUNCTIONS)
def test_rows_do_not_know_their_batch(threads: int, name: str, dtype: DType) -> None:
    function = ROW_FUNCTIONS[name]
    for rows, width in [(33, 1), (33, 5), (33, 37), (17, 257), (10, 1025), (64, 600), (10, 5000)]:
        x = some_rows(rows, width, dtype)
        alone = np.stack([function(row, threads=1) for row in x])
        for first, last in [(0, rows), (1, 2), (3, 10), (rows - 2, rows)]:
            oracle.assert_same_bits(function(x[first:last], threads=threads), alone[first:last])


@each_table
@every_dtype
@pytest.mark.parametrize("name", ROW_FUNCTIONS)
def test_long_rows_do_not_know_their_threads(name: str, dtype: DType) -> None:
    """Rows fewer than the threads are shared out in blocks: from 32,768 ids for the sums, 2^18 for top-k."""
    function = ROW_FUNCTIONS[name]
    for rows, width in [(1, 2**15), (2, 40001), (1, 2**18 + 77)]:
        x = np.random.default_rng(width).integers(-900, 900, (rows, width)).astype("f4") / 64
        x[0, width // 3] = 25.0
        x = x.astype(dtype)
        expected = function(x, threads=1)
        for threads in (2, 3):
            oracle.assert_same_bits(function(x, threads=threads), expected)


# ---- memory --------------------------------------------------------------------------------------------------------


@each_table
@every_dtype
@pytest.mark.parametrize("name", ROW_FUNCTIONS)
def test_rows_do_not_know_their_memory(threads: int, name: str, dtype: DType) -> None:
    function = ROW_FUNCTIONS[name]
    for shape in [(5, 1), (5, 2), (10, 37), (5, 600)]:
        x = some_rows(*shape, dtype)
        expected = function(x, threads=1)
        views = layouts(x)
        views["both axes reversed"] = x[::-1, ::-1].copy()[::-1, ::-1]
        tensors = [dlpack(x), dlpack(np.asfortranarray(x))] if shape[1] >= 9 else []
        for view in (*views.values(), *tensors):
            oracle.assert_same_bits(function(view, threads=threads), expected)


@each_table
@every_dtype
@pytest.mark.parametrize("name", ROW_FUNCTIONS)
def test_long_rows_do_not_know_their_memory(name: str, dtype: DType) -> None:
    """Where one row is shared out, what has to be converted first is too."""
    function = ROW_FUNCTIONS[name]
    width = 2**18 + 77 if name.startswith("topk") else 40001
    x = np.random.default_rng(1).standard_normal((1, width)).astype(dtype)
    expected = function(x, threads=1)
    for number, view in enumerate(layouts(x).values()):
        oracle.assert_same_bits(function(view, threads=2 + number % 2), expected)


# ---- kernel tables -------------------------------------------------------------------------------------------------


def on_every_table(function: Callable[[], list[Array]]) -> None:
    answers = []
    for isa in _core.usable_isas():
        with table(isa):
            assert _core.isa() == isa
            answers.append(function())
    for other in answers[1:]:
        for actual, expected in zip(other, answers[0], strict=True):
            oracle.assert_same_bits(actual, expected)


@every_pair
def test_tables_agree_on_logits(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    for rows, vocabulary, width in [
        (1, 70, 1),
        (2, 19, 70),
        (3, 300, 67),
        (17, 257, 257),
        (16, 40, 1025),
        (5, 1025, 31),
    ]:
        hidden, weight = some_head(rows, vocabulary, width, hidden_dtype, weight_dtype)
        bias = np.random.default_rng(2).standard_normal(vocabulary)
        spread = np.exp2(np.random.default_rng(3).integers(-12, 12, width))
        wide = (hidden * spread).astype(hidden_dtype)  # no product near the subnormals of float32
        for options, (h, w) in itertools.product(
            (*HEAD_OPTIONS, {"bias": bias}), ((hidden, weight), (wide, weight), (hidden, np.asfortranarray(weight)))
        ):
            on_every_table(lambda h=h, w=w, o=options: [native.logits(h, w, threads=threads, **o)])  # type: ignore[misc]


@every_pair
def test_tables_agree_on_every_width(hidden_dtype: DType, weight_dtype: DType) -> None:
    hidden, weight = some_head(7, 13, 130, hidden_dtype, weight_dtype)
    on_every_table(
        lambda: [
            native.logits(h[:, :width], w[:, :width])
            for width in range(131)
            for h, w in ((hidden, weight), (hidden[:1], np.asfortranarray(weight)))
        ]
    )


@every_pair
def test_tables_agree_on_what_is_not_finite(hidden_dtype: DType, weight_dtype: DType) -> None:
    hidden, weight = some_rows(33, 70, hidden_dtype), some_rows(40, 70, weight_dtype)
    with np.errstate(invalid="ignore"):
        on_every_table(lambda: [native.logits(hidden, w) for w in (weight, np.asfortranarray(weight))])
        on_every_table(lambda: [*native.logits_topk(hidden, weight, 40)])


@every_pair
def test_tables_agree_on_subnormals(hidden_dtype: DType, weight_dtype: DType) -> None:
    """Apart from bfloat16 with bfloat16, where ``vdpbf16ps`` may count them as 0."""
    if hidden_dtype == weight_dtype == oracle.BFLOAT16:
        hidden, weight = np.full((3, 5), 2.0**-130, hidden_dtype), np.full((2, 5), 2.0, weight_dtype)
        values = set()
        for isa in _core.usable_isas():
            with table(isa):
                values |= set(native.logits(hidden, weight).ravel().tolist())
        assert {5 * 2.0**-129} <= values <= {5 * 2.0**-129, 0.0}
        return
    exponent = -520 if hidden_dtype == FLOAT64 else -60
    rng = np.random.default_rng(4)
    for rows, width in [(1, 37), (5, 70), (17, 64)]:
        scale = np.exp2(exponent + rng.integers(-15, 5, width).astype(np.float64))
        hidden = (rng.standard_normal((rows, width)) * scale).astype(hidden_dtype)
        weight = (rng.standard_normal((13, width)) * scale).astype(weight_dtype)
        with np.errstate(under="ignore"):
            on_every_table(lambda h=hidden, w=weight: [native.logits(h, w), native.logits(h, w.T.copy().T)])  # type: ignore[misc]


@every_dtype
@pytest.mark.parametrize("name", ROW_FUNCTIONS)
def test_tables_agree_on_rows(threads: int, name: str, dtype: DType) -> None:
    function = ROW_FUNCTIONS[name]
    for rows, width in [(20, 1), (20, 5), (20, 17), (20, 37), (20, 256), (20, 1025), (3, 40001)]:
        x = some_rows(rows, width, dtype)
        on_every_table(lambda x=x: [function(x, threads=threads), function(x[:, ::-1], threads=threads)])  # type: ignore[misc]


def test_tables_agree_on_half_precision_values() -> None:
    """Every float16 and bfloat16, through the conversion of rows and through the projection."""
    for dtype in (np.dtype(np.float16), oracle.BFLOAT16):
        every = np.arange(2**16, dtype=np.uint16).view(dtype)
        exact = every.astype(np.float32)
        one = np.ones(1, np.float32)

        def values(every: Array = every, one: Array = one) -> list[Array]:
            by_rows, by_columns = every[:, None], np.broadcast_to(every, (2, 2**16))[:1].T
            many = np.ones((16, 1), np.float32)
            return [native.logits(one, by_rows), native.logits(one, by_columns), native.logits(many, by_rows)[7]]

        on_every_table(values)
        for isa in _core.usable_isas():
            with table(isa):
                for actual in values():
                    np.testing.assert_array_equal(actual, exact)
                top = native.topk(every, 2**16)
                oracle.assert_same_bits(top.values, exact[top.indices])
