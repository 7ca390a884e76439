"""Which ids of a row ``top_k``, ``top_p``, ``min_p`` and ``typical_p`` keep, and what they weigh, against a plain sort.

Knows float64 formulas over a sorted row. Refuses to know how a token is drawn from what is kept.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import oracle
from lmhead_native import _core
from parameters import every_dtype, wide_dtypes

pytestmark = pytest.mark.usefixtures("each_isa")

Array = NDArray[Any]
DType = np.dtype[Any]
INF, NAN = math.inf, math.nan
ORDERS = {
    "hf": ("top_k", "top_p", "min_p", "typical_p"),
    "vllm": ("min_p", "top_k", "top_p", "typical_p"),
    "llama.cpp": ("top_k", "typical_p", "top_p", "min_p"),
}
every_order = pytest.mark.parametrize("order", ORDERS)
OFF: dict[str, float] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0}
SMALLEST_NORMAL = 2.0**-126


def masses(y: Array, temperature: float) -> Array:
    """Return exp((y - max y) / temperature)."""
    with np.errstate(under="ignore", over="ignore"):  # also of (max - y) / temperature
        return np.asarray(np.exp((y / 2 - y.max() / 2) / temperature * 2))


def one_filter(name: str, value: float, y: Array, ids: Array, temperature: float) -> Array:
    """Return which of `ids`, the best first, one filter keeps, the best first."""
    m = masses(y[ids], temperature)
    if name == "top_k":
        return ids[: int(value)] if value > 0 else ids
    if name == "min_p":
        return ids[m >= value]
    if value >= 1:
        return ids
    by = np.arange(len(ids))
    q = m / m.sum()
    if name == "typical_p":
        # |log q + entropy| without the logarithm of the sum, which is in both and would drown small differences.
        log_q = (y[ids] / 2 - y[ids].max() / 2) / temperature * 2
        entropy = -np.where(q > 0, q * np.maximum(log_q, -1e300), 0).sum()
        by = np.lexsort((ids, np.abs(log_q + entropy)))
    before = np.concatenate([[0.0], np.cumsum(q[by])[:-1]])
    return ids[np.sort(by[before < value])]


def kept_exact(row: Array, order: str = "hf", temperature: float = 1.0, **filters: float) -> list[int]:
    """Return the ids that are kept, the best first."""
    y = oracle.widen(row)
    ids = np.lexsort((np.arange(len(y)), -y))
    ids = ids[y[ids] > -INF]
    if temperature < SMALLEST_NORMAL:
        return [int(ids[0])]
    for name in ORDERS[order]:
        ids = one_filter(name, {**OFF, **filters}[name], y, ids, 1.0 if order == "llama.cpp" else temperature)
    return [int(i) for i in ids]


def check(rows: Array, *, threads: int = 1, **options: Any) -> None:
    """Compare what is kept of each row, from the row and from its best logits, and the probabilities."""
    temperature = options.get("temperature", 1.0)
    found = _core.kept_ids(rows, threads=threads, **options)
    again = _core.kept_ids(rows, from_best=True, threads=threads, **options)
    probabilities = _core.processed_probabilities(rows, threads=threads, **options).reshape(-1, rows.shape[-1])
    flat = rows.reshape(-1, rows.shape[-1])
    for row, (ids, greatest, mass, is_list, _), best, p in zip(flat, found, again, probabilities, strict=True):
        expected = kept_exact(row, **options)
        assert sorted(ids) == sorted(expected)
        # By rank where the best of the row are enough to tell, else by id.
        assert list(ids) in ([expected] if best[4] else [expected, sorted(expected)])
        assert is_list or not best[4]
        y = oracle.widen(row)
        assert greatest == y[expected].max()
        np.testing.assert_array_equal(best[0], ids)
        assert best[1:3] == (greatest, mass)
        if temperature < SMALLEST_NORMAL:
            assert mass == 1
            assert p[ids] == 1
        else:
            m = masses(y[expected], temperature)
            np.testing.assert_allclose(mass, m.sum(), rtol=1e-12)
            np.testing.assert_allclose(p[expected], m / m.sum(), rtol=1e-12, atol=1e-300)
        assert not np.delete(p, expected).any()


# ---- small, worked ------------------------------------------------------------------------------------------------


@wide_dtypes
@every_order
def test_a_nucleus(dtype: DType, order: str) -> None:
    for p, top_p, expected in [
        ([0.5, 0.35, 0.1, 0.05], 0.9, [0, 1, 2]),
        ([0.5, 0.25, 0.125, 0.125], 0.75 - 1e-6, [0, 1]),
        ([0.5, 0.25, 0.125, 0.125], 0.75 + 1e-6, [0, 1, 2]),
        ([0.125, 0.25, 0.125, 0.5], 0.75 + 1e-6, [3, 1, 0]),
        ([0.25] * 4, 0.5, [0, 1]),
        ([0.25] * 4, math.nextafter(0.5, 1), [0, 1, 2]),
    ]:
        ((ids, *_),) = _core.kept_ids(np.log(p).astype(dtype), top_p=top_p, order=order)
        np.testing.assert_array_equal(ids, expected)


@every_dtype
@every_order
def test_the_smallest_nucleus_is_the_argmax(dtype: DType, order: str) -> None:
    """Never an empty support, however small top_p is; of equal logits the lowest id."""
    rng = np.random.default_rng(1)
    for vocabulary in (1, 37, 1000):
        rows = np.stack([rng.standard_normal(vocabulary), np.zeros(vocabulary), np.full(vocabulary, -1e4)])
        rows[0, vocabulary // 2] = 9
        for top_p in (1e-2, 1e-4, 1e-8, SMALLEST_NORMAL, 2.0**-149, 5e-324):
            if vocabulary * top_p < 1:
                found = _core.kept_ids(rows.astype(dtype), top_p=top_p, order=order, threads=1)
                assert [list(ids) for ids, *_ in found] == [[vocabulary // 2], [0], [0]]


@every_order
def test_exactly_k(order: str) -> None:
    """One token with 45 % of the mass and top_k = 5: five tokens, and ties at the fifth place by id."""
    rest = 1000
    row = np.log(np.array([0.55 / rest] * 400 + [0.45] + [0.55 / rest] * 600))
    ((ids, *_),) = _core.kept_ids(row, top_k=5, order=order)
    np.testing.assert_array_equal(ids, [400, 0, 1, 2, 3])
    for k in (-1, 0, 1001, 5000):
        ((ids, *_),) = _core.kept_ids(row, top_k=k, order=order)
        np.testing.assert_array_equal(ids, np.arange(1001))


@wide_dtypes
def test_min_p_keeps_what_reaches_it(dtype: DType) -> None:
    row = np.array([0.0, -1.0, 0.0, -INF, -2.0], dtype)
    for min_p, expected in [
        (1.0, [0, 2]),
        (math.exp(-1) + 1e-9, [0, 2]),
        (math.exp(-1) - 1e-9, [0, 2, 1]),
        (1e-300, [0, 2, 1, 4]),
        (5e-324, [0, 2, 1, 4]),
    ]:
        ((ids, *_),) = _core.kept_ids(row, min_p=min_p)
        np.testing.assert_array_equal(ids, expected)
    halves = np.log(np.array([0.5, 0.25, 0.25]))
    np.testing.assert_array_equal(_core.kept_ids(halves, min_p=0.5)[0][0], [0, 1, 2])


def test_min_p_after_typical_p_is_relative_to_what_is_left() -> None:
    """In the order of llama.cpp typical_p may drop the most probable token; min_p keeps the best of the others."""
    p = np.array([0.4] + [0.6 / 30] * 30)
    options: dict[str, Any] = {"typical_p": 0.3, "min_p": 0.9, "order": "llama.cpp", "temperature": 0.01}
    ((ids, greatest, mass, *_),) = _core.kept_ids(np.log(p), **options)
    np.testing.assert_array_equal(ids, np.arange(1, 16))
    assert greatest == np.log(p[1])
    assert mass == 15.0


@wide_dtypes
def test_what_cannot_be_drawn_from(dtype: DType) -> None:
    for vocabulary, at in itertools.product((1, 3, 300, 1000), (0, -1)):
        for bad in (NAN, -NAN, INF):
            row = np.zeros(vocabulary, dtype)
            row[at] = bad
            for options in ({}, {"top_k": 1}, {"top_p": 0.5}, {"min_p": 0.1}, {"typical_p": 0.5}):
                greatest = _core.kept_ids(row, **options)[0][1]
                assert greatest == INF if bad == INF else math.isnan(greatest)
                with pytest.raises(ValueError, match=r"^logits: expected finite logits to draw from in row 0, got "):
                    _core.processed_probabilities(row, **options)
        ((ids, greatest, *_),) = _core.kept_ids(np.full(vocabulary, -INF, dtype), top_p=0.5)
        assert (len(ids), greatest) == (0, -INF)
    row = np.array([1, INF, INF], dtype)
    np.testing.assert_array_equal(_core.processed_probabilities(row, temperature=0.0), [0, 1, 0])


# ---- against a sort -----------------------------------------------------------------------------------------------

CASES: list[dict[str, Any]] = [
    {},
    {"top_k": 1},
    {"top_k": 7},
    {"top_p": 0.5},
    {"top_p": 0.999},
    {"min_p": 0.05},
    {"typical_p": 0.6},
    {"top_k": 40, "top_p": 0.9, "min_p": 0.02, "typical_p": 0.8, "temperature": 0.7},
    {"top_p": 0.97, "min_p": 0.3, "typical_p": 0.9, "temperature": 3.0},
]


@wide_dtypes
@every_order
def test_every_vocabulary(dtype: DType, order: str) -> None:
    rng = np.random.default_rng(2)
    for vocabulary in (*range(1, 71), 255, 256, 257, 511, 513, 1000):
        rows = np.stack(
            [
                3 * rng.standard_normal(vocabulary),
                rng.integers(0, 4, vocabulary) * 0.7,
                np.where(rng.random(vocabulary) < 0.3, -INF, 0.01 * rng.standard_normal(vocabulary)),
            ]
        ).astype(dtype)
        rows[2, rng.integers(vocabulary)] = 0.5
        for options in CASES if vocabulary in (1, 2, 17, 64, 256) else CASES[vocabulary % 4 :: 4]:
            check(rows, order=order, **options)


@wide_dtypes
@every_order
def test_wide_nuclei(dtype: DType, order: str, each_isa: str) -> None:
    """More than the best few: thresholds, ties at them, peaked and flat rows, k beyond what is listed."""
    rng = np.random.default_rng(3)
    vocabulary = 10007 if each_isa != "scalar" else 6007
    normal = rng.standard_normal(vocabulary)
    peaked = 3 * normal
    peaked[[5, 100, 3000]] = [19.5, 18, 17.25]
    with_holes = np.where(rng.random(vocabulary) < 0.5, -INF, normal)
    ties = np.round(normal * 2) / 2
    rows = np.stack([normal, peaked, 1e-3 * normal + 100, with_holes, ties, normal**3]).astype(dtype)
    for options in (
        {"top_p": 0.1},
        {"top_p": 0.95},
        {"min_p": 1e-3},
        {"typical_p": 0.3},
        {"typical_p": 0.97},
        {"top_k": 5000},
        {"top_k": 5500, "top_p": 0.9, "min_p": 0.01, "typical_p": 0.9, "temperature": 1.5},
        {"top_p": 0.9, "typical_p": 0.9, "min_p": 1e-4, "temperature": 0.8},
    ):
        check(rows, order=order, **options)


def test_equal_rows() -> None:
    for vocabulary, value, share in itertools.product((2, 70, 256, 1000, 30000), (0.0, 1e8, -1e8), (0.5, 0.25)):
        row = np.full(vocabulary, value, np.float32)
        for name in ("top_p", "typical_p"):
            options: dict[str, Any] = {name: share}
            ((ids, _, mass, *_),) = _core.kept_ids(row, **options)
            np.testing.assert_array_equal(ids, np.arange(math.ceil(vocabulary * share)))
            assert mass == math.ceil(vocabulary * share)


@wide_dtypes
def test_any_temperature(dtype: DType) -> None:
    """From the smallest to far beyond any use, with logits of 1e8: always the sort's answer, 0 is the argmax."""
    rng = np.random.default_rng(4)
    for temperature in (0.0, -0.0, 1e-45, SMALLEST_NORMAL, 1.2e-38, 1e-20, 1e-3, 1.0, 1e8, 1e30):
        for scale in (1e-3, 1.0, 1e8):
            rows = (scale * rng.standard_normal((2, 700))).astype(dtype)
            rows[1, ::3] = -INF
            rows[1, [100, 401]] = rows[1].max()  # a tie for the first place
            for options in ({"top_p": 0.7}, {"top_k": 20}, {"min_p": 0.4, "typical_p": 0.7}):
                check(rows, temperature=temperature, **options)


def test_values_crowded_on_every_scale() -> None:
    """Distances from the best that grow a thousandfold again and again: equal buckets alone do not part them."""
    row = -np.concatenate([np.full(3000, 10.0**-e) + np.arange(3000) * 10.0 ** (-e - 4) for e in (0, 3, 6, 9, 12)])
    for top_p in (0.1, 0.3, 0.55, 0.77, 0.99):
        check(row[None], top_p=top_p, temperature=1.0)
        check(row[::-1][None].copy(), typical_p=top_p)


def test_the_range_of_float64() -> None:
    row = np.linspace(-0.85, 0.85, 1001) * 1e308 * 2
    row[::2] = row[::2][::-1]
    cases: list[dict[str, Any]] = [{"top_p": 0.5}, {"top_k": 3, "top_p": 0.999}, {"min_p": 0.2}]
    for temperature, options in itertools.product((1.0, 1e300, 1e308), cases):
        check(row[None], temperature=temperature, **options)


# ---- same answers everywhere ----------------------------------------------------------------------------------------


@every_dtype
def test_same_bits_for_every_table_and_batch(dtype: DType, each_isa: str) -> None:
    rng = np.random.default_rng(5)
    rows = (2 * rng.standard_normal((5, 5003))).astype(dtype)
    rows[3] = np.round(rows[3].astype("f4"))
    for order, options in itertools.product(
        ORDERS, (*CASES[4:], {"top_p": 0.99, "temperature": 2.0}, {"typical_p": 0.99})
    ):
        _core.use_isa("scalar")
        expected = [_core.kept_ids(row, order=order, threads=1, **options)[0] for row in rows]
        probabilities = _core.processed_probabilities(rows, order=order, threads=1, **options)
        _core.use_isa(each_isa)
        found = _core.kept_ids(rows[::-1], order=order, threads=3, **options)[::-1]
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine[0], theirs[0])
            assert mine[1:] == theirs[1:]
        again = _core.processed_probabilities(np.asfortranarray(rows), order=order, threads=2, **options)
        oracle.assert_same_bits(again, probabilities)


def test_the_best_suffice_where_they_can() -> None:
    """A fold that keeps the best logits and the row's mass needs the row itself only for what is wide."""
    rng = np.random.default_rng(6)
    peaked = 3 * rng.standard_normal(5003)
    peaked[7] = 16
    for options, enough in (
        ({"top_k": 40}, True),
        ({"top_p": 0.5}, True),
        ({"min_p": 0.05}, True),
        ({"top_k": 50, "typical_p": 0.5}, True),
        ({"typical_p": 0.5}, False),
        ({"top_p": 0.999999}, False),
        ({"min_p": 1e-9}, False),
    ):
        assert _core.kept_ids(peaked, from_best=True, **options)[0][4] is enough, options


def test_parameters_of_each_row() -> None:
    row = np.log([0.5, 0.35, 0.1, 0.05])
    rows = np.tile(row, (3, 1))
    found = _core.kept_ids(rows, temperature=[1.0, 0.0, 1.0], top_k=[0, 0, 3], top_p=np.array([0.8, 0.8, 1.0]))
    assert [list(ids) for ids, *_ in found] == [[0, 1], [0], [0, 1, 2]]
    p = _core.processed_probabilities(rows.reshape(3, 1, 4), top_k=[[1], [2], [4]])
    expected = np.array([[1, 0, 0, 0], [0.5 / 0.85, 0.35 / 0.85, 0, 0], [0.5, 0.35, 0.1, 0.05]])
    np.testing.assert_allclose(p[:, 0], expected)
