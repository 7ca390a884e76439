"""``topk`` and ``logits_topk`` against Python's own sort: order, ties, NaN, every k.

Knows what stands in a list and where; values are the logits' own bits. How good the logits are is in test_logits.py.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

import fresh
import lmhead_native as native
import oracle
from parameters import every_dtype

pytestmark = pytest.mark.usefixtures("each_isa")

Array = NDArray[Any]
DType = np.dtype[Any]
INF, NAN = math.inf, math.nan
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
PAIRS = [*itertools.product(oracle.NARROW, repeat=2), (FLOAT64, FLOAT64)]
every_pair = pytest.mark.parametrize(("hidden_dtype", "weight_dtype"), PAIRS, ids=str)

SIZES = [*range(1, 71), 101, 127, 128, 129, 255, 256, 257, 511, 513, 769, 1023, 1024, 1025]
# NaN of either sign, infinities, zeros of either sign; the rest so few that ties are everywhere.
SPECIAL = np.array([NAN, -NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 2.0, 5.0])


def check(logits: Array, k: int, threads: int, order: list[list[int]] | None = None) -> None:
    """Compare with `oracle.top_k_exact`, or with `order`, the lists for k = V."""
    lists = [oracle.top_k_exact(row, k) for row in logits] if order is None else [row[:k] for row in order]
    values, indices = native.topk(logits, k, threads=threads)
    expected = np.array(lists, np.int64).reshape(len(logits), k)
    np.testing.assert_array_equal(indices, expected, strict=True)
    rows = np.take_along_axis(logits, expected, axis=-1)
    oracle.assert_same_bits(values, rows.astype(oracle.result_dtype(logits.dtype)))


# ---- order ---------------------------------------------------------------------------------------------------------


@every_dtype
def test_every_vocabulary(threads: int, dtype: DType) -> None:
    rng = np.random.default_rng(1)
    for vocabulary in SIZES:
        rows = rng.standard_normal((2, vocabulary)).astype(dtype)
        rows[1] = rng.choice(SPECIAL, vocabulary)
        order = [oracle.top_k_exact(row, vocabulary) for row in rows]
        for k in {0, 1, 2, 5, vocabulary // 2, vocabulary - 1, vocabulary}:
            if 0 <= k <= vocabulary:
                check(rows, k, threads, order)


@every_dtype
def test_ties_for_every_k(threads: int, dtype: DType) -> None:
    """The list for k is the beginning of the list for V, however many are equal."""
    rng = np.random.default_rng(2)
    rows = [
        [5.0, 5.0, 5.0, 1.0, 5.0],
        [-0.0, 0.0, -0.0, 0.0, -1.0],
        [NAN, 1.0, -NAN, INF, NAN],
        [7.0] * 600,
        [NAN] * 600,
        [-INF] * 600,
        rng.choice(SPECIAL, 600),
        rng.choice([0.0, -0.0], 600),
        rng.integers(0, 3, 600),
    ]
    for row in rows:
        logits = np.array(row, dtype)[None]
        vocabulary = logits.shape[1]
        order = [oracle.top_k_exact(logits[0], vocabulary)]
        for k in range(vocabulary + 1) if vocabulary < 9 else (*range(0, 600, 37), 255, 256, 257, 512, 599, 600):
            check(logits, k, threads, order)


@every_dtype
def test_sequences_that_are_hard_to_select_from(threads: int, dtype: DType) -> None:
    ramp = np.repeat(np.arange(2000.0), 3)[:5003]
    saw = np.arange(5003.0) % 97
    late_nan = np.where(np.arange(5003) % 1009 == 1008, NAN, saw)
    with np.errstate(over="ignore"):
        rows = np.stack([ramp, ramp[::-1], -ramp, saw, late_nan, np.where(ramp < 700, NAN, ramp)]).astype(dtype)
    order = [oracle.top_k_exact(row, 5003) for row in rows]
    for k in (1, 2, 50, 255, 257, 600, 3000, 5003):
        check(rows, k, threads, order)


def test_a_long_row_is_shared_out(threads: int) -> None:
    """A row of 2^18 ids and more goes to several threads in parts; equal logits stand in all of them."""
    vocabulary = 2**18 + 77
    rng = np.random.default_rng(3)
    for dtype in oracle.FLOATS:
        row = rng.integers(0, 50, vocabulary).astype(dtype)
        row[[70_000, 140_000, 262_200]] = [60, 60, 61]
        order = np.argsort(-row.astype("f4"), kind="stable")
        for logits, k in itertools.product((row, row[::-1][::-1], np.repeat(row, 2)[::2]), (1, 3, 700)):
            values, indices = native.topk(logits, k, threads=threads)
            np.testing.assert_array_equal(indices, order[:k])
            np.testing.assert_array_equal(values, row[order[:k]].astype(values.dtype), strict=True)
        ties = np.broadcast_to(row[:1], (2, vocabulary))
        np.testing.assert_array_equal(native.topk(ties, 1000, threads=threads).indices, [range(1000)] * 2)


def test_fuzz_with_nan(threads: int) -> None:
    """No arrangement of NaN may confuse a sort."""
    rng = np.random.default_rng(4)
    for dtype in oracle.FLOATS:
        for _ in range(30):
            share, vocabulary = rng.choice([0.01, 0.5, 0.99]), rng.integers(1, 900)
            row = rng.standard_normal((1, vocabulary)).astype(dtype)
            row[rng.random((1, vocabulary)) < share] = rng.choice([NAN, -NAN])
            check(row, int(rng.integers(0, vocabulary + 1)), threads)


@every_dtype
def test_nan_at_every_lane(threads: int, dtype: DType) -> None:
    for vocabulary in (1, 2, 15, 16, 17, 69):
        rows = np.tile(np.arange(vocabulary), (vocabulary, 1)).astype(dtype)
        np.fill_diagonal(rows, -NAN)
        values, indices = native.topk(rows, 1, threads=threads)
        np.testing.assert_array_equal(indices[:, 0], range(vocabulary))
        assert np.isnan(values).all()
        if vocabulary > 1:
            second = native.topk(rows, 2, threads=threads).indices[:, 1]
            np.testing.assert_array_equal(second, [vocabulary - 1] * (vocabulary - 1) + [vocabulary - 2])


# ---- fused ---------------------------------------------------------------------------------------------------------


@every_pair
def test_fused_is_topk_of_logits(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    """Bit for bit, on both storages of the weight, for heads smaller than a register and larger than a task."""
    rng = np.random.default_rng(5)
    for rows, vocabulary, width in [(1, 5, 3), (2, 11, 37), (7, 101, 16), (17, 1025, 19), (33, 257, 70), (70, 300, 5)]:
        hidden = rng.standard_normal((rows, width)).astype(hidden_dtype)
        weight = rng.integers(-2, 3, (vocabulary, width)).astype(weight_dtype)
        weight[:, width // 2 :] = 0  # few different rows: ties
        hidden[-1, 0] = NAN
        cases: list[dict[str, Any]] = [{}, {"bias": rng.integers(-3, 3, vocabulary), "softcap": 3.0, "scale": -2.0}]
        for options in cases:
            logits = native.logits(hidden, weight, **options)
            for k in (0, 1, min(300, vocabulary)):
                expected = native.topk(logits, k, threads=1)
                for w in (weight, np.asfortranarray(weight)):
                    values, indices = native.logits_topk(hidden, w, k, threads=threads, **options)
                    oracle.assert_same_bits(values, expected.values)
                    oracle.assert_same_bits(indices, expected.indices)


@every_pair
def test_padding_never_wins(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    """Every real logit is negative; k = V lists every id once."""
    rng = np.random.default_rng(6)
    for rows, vocabulary in itertools.product((1, 2, 5, 16), (1, 3, 101, 257)):
        hidden = np.full((rows, 3), -1.0).astype(hidden_dtype)
        weight = (1 + rng.random((vocabulary, 3))).astype(weight_dtype)
        for w in (weight, np.asfortranarray(weight)):
            values, indices = native.logits_topk(hidden, w, vocabulary, threads=threads)
            assert (values < 0).all()
            np.testing.assert_array_equal(np.sort(indices), [range(vocabulary)] * rows)
        nothing = np.zeros((rows, 0), hidden_dtype), np.zeros((vocabulary, 0), weight_dtype)
        top = native.logits_topk(*nothing, vocabulary, bias=-1 - np.arange(vocabulary), threads=threads)
        np.testing.assert_array_equal(top.indices, [range(vocabulary)] * rows)
        np.testing.assert_array_equal(top.values, -1.0 - top.indices)


def test_more_rows_than_one_block_of_rows(threads: int) -> None:
    """4 MiB of hidden rows are 256 of this width; beyond them the lists start anew."""
    sign = np.where(np.arange(261) % 2, -1.0, 2.0).astype(np.float32)
    hidden, weight = np.zeros((261, 4080), np.float32), np.zeros((20, 4080), np.float32)
    hidden[:, 4079] = sign
    weight[:, 4079] = np.random.default_rng(7).permutation(20)
    best = np.argsort(weight[:, 4079])
    top = native.logits_topk(hidden, weight, 3, threads=threads)
    np.testing.assert_array_equal(top.indices[::2], [best[:-4:-1]] * 131)
    np.testing.assert_array_equal(top.indices[1::2], [best[:3]] * 130)
    np.testing.assert_array_equal(top.values, sign[:, None] * weight[top.indices, 4079])


# ---- k, shapes, memory ---------------------------------------------------------------------------------------------


def test_k() -> None:
    logits, head = np.zeros((2, 3, 5), np.float32), (np.zeros((2, 3, 4), np.float32), np.zeros((5, 4), np.float32))
    for k in (0, 3, 5, np.int64(2), np.uint8(5)):
        k = cast("int", k)
        for top in (native.topk(logits, k), native.logits_topk(*head, k)):
            values, indices = top
            assert values is top.values
            assert indices is top.indices
            assert isinstance(top, tuple)
            assert values.shape == indices.shape == (2, 3, int(k))
            assert values.dtype == np.float32
            assert indices.dtype == np.int64
    for wrong, error in [(6, ValueError), (-1, ValueError), (2**63, ValueError), (True, TypeError), (1.0, TypeError)]:
        with pytest.raises(error, match=r"^k: expected an integer from 0 to V = 5, got "):
            native.topk(logits, wrong)  # type: ignore[arg-type]
        with pytest.raises(error, match=r"^k: expected an integer from 0 to V = 5, got "):
            native.logits_topk(*head, wrong)  # type: ignore[arg-type]


@every_dtype
def test_empty_axes(threads: int, dtype: DType) -> None:
    for shape, k in [((0, 5), 2), ((2, 0, 5), 5), ((3, 0), 0), ((0,), 0), ((5,), 0)]:
        values, indices = native.topk(np.zeros(shape, dtype), k, threads=threads)
        assert values.shape == indices.shape == (*shape[:-1], k)
        head = np.zeros((*shape[:-1], 4), dtype), np.zeros((shape[-1], 4), dtype)
        values, indices = native.logits_topk(*head, k, threads=threads)
        assert values.shape == indices.shape == (*shape[:-1], k)
        assert values.dtype == oracle.result_dtype(dtype)


CHILD = """
import sys
import numpy as np
import lmhead_native as native

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

hidden, weight = np.ones((64, 5), "f4"), np.arange(129920 * 5, dtype="f4").reshape(-1, 5)
native.logits_topk(hidden[:20], weight[:3000], 50, threads=2)
before = peak()
top = native.logits_topk(hidden, weight, 50, threads=2)
grown = peak() - before
assert (top.indices == np.arange(129919, 129869, -1)).all()
print(native.isa(), grown)
"""


def test_no_array_of_all_logits(each_isa: str) -> None:
    isa, grown = fresh.output(CHILD, environment={"LMHEAD_ISA": each_isa}).split()
    assert isa == each_isa
    # Lists take 64 rows x 2 threads x (2 x 50 + 512) x 16 bytes = 1.3 MB, the logits would take 33 MB.
    assert int(grown) < 64 * 129920 * 4 / 4
