"""Masked calls: the bits of the unmasked call where an id is allowed, -inf elsewhere, and nothing of what stands there.

Knows storages of weights, sets of ids and what `masks` makes of them. The forms in which arguments come, and what is
refused, are in test_mask_arguments.py; how good the logits are is in test_logits.py.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fresh
import lmhead_native as native
from masks import best, disallow, id_lists, packed, sets
from oracle import BFLOAT16, assert_same_bits
from parameters import every_pair
from quantized_samples import hidden_states, storages

Array = NDArray[Any]
DType = np.dtype[Any]
INF, NAN = math.inf, math.nan


def poisoned(values: Array, allowed: Array) -> Array:
    """Return a weight, or a bias, with NaN and inf where no hidden row is allowed."""
    copy = values.copy()
    unused = np.flatnonzero(~allowed.reshape(-1, allowed.shape[-1]).any(axis=0))
    copy[unused] = NAN
    copy[unused[::2]] = INF
    return copy


def storages_of(weight: Array) -> list[Array]:
    """Return a weight as rows, as columns, with gaps between elements, and in the other byte order."""
    gaps = np.repeat(weight, 2, axis=1)[:, ::2]
    swapped = [] if weight.dtype == BFLOAT16 else [weight.astype(weight.dtype.newbyteorder())]
    return [weight, np.asfortranarray(weight), gaps, *swapped]


def check(hidden: Array, weight: Any, allowed: Array, threads: int, expected: Array, **options: Any) -> None:
    """Compare both forms of a set with logits of the call without one."""
    lists = id_lists(allowed) if allowed.ndim > 1 else np.flatnonzero(allowed)
    logits = disallow(expected, allowed)
    assert_same_bits(native.logits(hidden, weight, mask=packed(allowed), threads=threads, **options), logits)
    assert_same_bits(native.logits(hidden, weight, allowed_ids=lists, threads=threads, **options), logits)
    k = min(7, allowed.shape[-1])
    values, indices = best(expected, allowed, k)
    top = native.logits_topk(hidden, weight, k, mask=packed(allowed), threads=threads, **options)
    assert_same_bits(top.values, values)
    assert_same_bits(top.indices, indices)


@every_pair
def test_every_storage(each_isa: str, threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    """Few and many hidden rows take other ways through the weight; sets of one row, or of each."""
    rng = np.random.default_rng(1)
    for rows, vocabulary, width in [(1, 1061, 37), (2, 70, 16), (3, 300, 40), (17, 515, 19), (40, 257, 5)]:
        hidden = rng.standard_normal((rows, width)).astype(hidden_dtype)
        weight = rng.standard_normal((vocabulary, width)).astype(weight_dtype)
        bias = rng.standard_normal(vocabulary)
        options: list[dict[str, Any]] = [{}, {"bias": bias, "softcap": 3.0, "scale": -2.0}]
        for (i, allowed), storage in zip(enumerate(sets(rng, rows, vocabulary).values()), itertools.cycle(range(4))):
            given = dict(options[i % 2])
            expected = native.logits(hidden, weight, threads=1, **given)
            stored = storages_of(poisoned(weight, allowed))
            if "bias" in given:
                given["bias"] = poisoned(bias, allowed)
            check(hidden, stored[storage % len(stored)], allowed, threads, expected, **given)


@pytest.mark.parametrize("width", [32, 96])
def test_integers(each_isa: str, threads: int, width: int) -> None:
    rng = np.random.default_rng(2)
    for weight in storages(301, width).values():
        for rows in ((1, 3, 17)[threads - 1],):
            hidden = hidden_states(rows, width)
            expected = native.logits(hidden, weight, threads=1)
            for allowed in sets(rng, rows, 301).values():
                check(hidden, weight, allowed, threads, expected)


def test_nothing_but_the_row_itself(each_isa: str) -> None:
    """A row whose logits are infinite or NaN keeps that to itself, and to the rows that are allowed it."""
    hidden, weight = np.ones((9, 16), np.float32), np.ones((600, 16), np.float32)
    weight[5], weight[300], weight[301, 3] = NAN, INF, -INF
    allowed = np.ones((9, 600), bool)
    allowed[::2, [5, 300, 301]] = False
    logits = native.logits(hidden, weight, mask=packed(allowed))
    assert_same_bits(logits, disallow(native.logits(hidden, weight), allowed))
    assert (logits[::2][:, [5, 300, 301]] == -INF).all()
    np.testing.assert_array_equal(
        native.logits_topk(hidden, weight, 2, mask=packed(allowed)).indices[:2], [[0, 1], [5, 300]]
    )


def test_many_rows(each_isa: str, threads: int) -> None:
    """More than a block of rows: of the same set, of sets apart, and of none at all for most of them."""
    rng = np.random.default_rng(3)
    hidden, weight = rng.standard_normal((300, 20)).astype("f4"), rng.standard_normal((700, 20)).astype("f4")
    expected = native.logits(hidden, weight)
    seldom = np.zeros((300, 700), bool)
    seldom[290:, 600:] = True
    apart = np.arange(300)[:, None] * 2 == np.arange(700) // 2 * 2
    for allowed in (np.tile(rng.random(700) < 0.3, (300, 1)), seldom, apart, rng.random((300, 700)) < 0.02):
        check(hidden, weight, allowed, threads, expected)


def test_large_and_sparse(each_isa: str, threads: int) -> None:
    """Tasks that run over many tiles, and work that stands in one stretch of ids."""
    rng = np.random.default_rng(4)
    hidden, weight = rng.standard_normal((2, 24)).astype("f4"), rng.standard_normal((40_003, 24)).astype("f4")
    expected = native.logits(hidden, weight)
    ids = np.arange(40_003)
    few = np.isin(ids, rng.choice(ids, 100))
    for allowed in (
        few,
        ids >= 39_000,
        (ids > 20_000) & (ids < 21_500),
        np.stack([few, ids < 700]),
        np.stack([few, ~few]),
    ):
        check(hidden, weight, allowed, threads, expected)


# ---- lists ---------------------------------------------------------------------------------------------------------


def test_fewer_than_k(each_isa: str, threads: int) -> None:
    """Allowed ids with a logit of -inf are listed, by id, before the places of no id."""
    hidden = np.array([[1.0, 0.0], [1.0, 1.0]], np.float32)
    weight = np.tile(np.array([[-INF, 0.0]], np.float32), (900, 1))
    weight[[3, 700]] = [[1.0, NAN], [2.0, 0.0]]
    hidden[0, 1] = 0.0
    ids = [899, 700, 3, 20, 20, 256]
    top = native.logits_topk(hidden[1:], weight, 8, allowed_ids=ids, threads=threads)
    np.testing.assert_array_equal(top.indices, [[3, 700, 20, 256, 899, -1, -1, -1]])
    np.testing.assert_array_equal(top.values, [[NAN, 2.0, *[-INF] * 6]])
    everything = native.logits_topk(hidden[1:], weight, 900, mask=np.full(29, -1, np.int32), threads=threads)
    assert_same_bits(everything.indices, native.logits_topk(hidden[1:], weight, 900, threads=threads).indices)
    assert native.logits_topk(hidden, weight, 0, allowed_ids=ids).values.shape == (2, 0)
    nothing = native.logits_topk(hidden, weight, 3, allowed_ids=[], threads=threads)
    np.testing.assert_array_equal(nothing.indices, -np.ones((2, 3)))
    np.testing.assert_array_equal(nothing.values, np.full((2, 3), -INF))


def test_lists_of_many_lengths(each_isa: str, threads: int) -> None:
    """Ties everywhere, every k, rows with sets of their own."""
    rng = np.random.default_rng(5)
    hidden = rng.integers(-1, 2, (6, 3)).astype("f4")
    weight = rng.integers(-1, 2, (1100, 3)).astype("f4")
    logits = native.logits(hidden, weight)
    allowed = rng.random((6, 1100)) < np.array([[0.0], [0.01], [0.2], [0.5], [0.9], [1.0]])
    for k in (1, 2, 20, 257, 600, 1100):
        values, indices = best(logits, allowed, k)
        top = native.logits_topk(hidden, weight, k, mask=packed(allowed), threads=threads)
        assert_same_bits(top.indices, indices)
        np.testing.assert_array_equal(top.values, values)


# ---- pruned heads --------------------------------------------------------------------------------------------------


@every_pair
def test_pruned_head(each_isa: str, threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    """Rows of some ids answer as the full head does under a mask, alone and with a mask of full ids; each number of
    threads has a k of its own.
    """
    rng = np.random.default_rng(6)
    for rows, vocabulary in [(1, 900), (5, 70), (18, 600)]:
        hidden = rng.standard_normal((rows, 21)).astype(hidden_dtype)
        weight = rng.standard_normal((vocabulary, 21)).astype(weight_dtype)
        bias = rng.standard_normal(vocabulary)
        for share in (0.02, 0.5, 0.98):
            exists = rng.random(vocabulary) < share
            exists[-1] = True
            ids = np.flatnonzero(exists)
            pruned: dict[str, Any] = {
                "weight": weight[ids],
                "bias": bias[ids],
                "vocab_ids": ids,
                "threads": threads,
                "softcap": 2.0,
            }
            full: dict[str, Any] = {"weight": weight, "bias": bias, "softcap": 2.0}
            for k in ((1, 5, vocabulary)[threads - 1],):
                alone = native.logits_topk(hidden, k=k, **pruned)
                for mine, theirs in zip(
                    alone, native.logits_topk(hidden, k=k, mask=packed(exists), **full), strict=True
                ):
                    assert_same_bits(mine, theirs)
                allowed = rng.random((rows, vocabulary)) < 0.5
                both = native.logits_topk(hidden, k=k, mask=packed(allowed & exists), **full)
                masked = native.logits_topk(hidden, k=k, mask=packed(allowed), **pruned)
                listed = native.logits_topk(hidden, k=k, allowed_ids=id_lists(allowed), **pruned)
                for mine, list_, theirs in zip(masked, listed, both, strict=True):
                    assert_same_bits(mine, theirs)
                    assert_same_bits(list_, theirs)


def test_ids_of_every_row() -> None:
    """A head with the ids 0 to V - 1 is no pruned one."""
    hidden, weight = np.eye(3, 4, dtype=np.float32), np.arange(20, dtype=np.float32).reshape(5, 4)
    for mine, theirs in zip(
        native.logits_topk(hidden, weight, 5, vocab_ids=range(5)), native.logits_topk(hidden, weight, 5), strict=True
    ):
        assert_same_bits(mine, theirs)


# ---- prepared heads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("screen", [None, "int8"])
def test_prepared_head(each_isa: str, threads: int, screen: Any) -> None:
    rng = np.random.default_rng(7)
    hidden, weight = rng.standard_normal((3, 32)).astype("f4"), rng.standard_normal((2000, 32)).astype("f4")
    bias = rng.standard_normal(2000)
    head = native.LMHead(weight, bias, softcap=3.0, norm=native.RMSNorm(np.ones(32)), screen=screen)
    normed = native.rms_norm(hidden)
    options: dict[str, Any] = {"bias": bias.astype("f4"), "softcap": 3.0}
    allowed = rng.random((3, 2000)) < np.array([[0.5], [0.001], [1.0]])
    expected = disallow(native.logits(normed, weight, **options), allowed)
    assert_same_bits(head.logits(hidden, mask=packed(allowed), threads=threads), expected)
    assert_same_bits(head.logits(hidden, allowed_ids=id_lists(allowed), threads=threads), expected)
    forms: list[dict[str, Any]] = [{"mask": packed(allowed)}, {"allowed_ids": id_lists(allowed)}]
    for form in forms:
        top = head.topk(hidden, 9, **form, threads=threads)
        for mine, theirs in zip(top, native.logits_topk(normed, weight, 9, **form, **options), strict=True):
            assert_same_bits(mine, theirs)
        assert type(top) is (native.TopK if screen is None else native.ScreenedTopK)
        if screen is not None:
            np.testing.assert_array_equal(top.rescored, allowed.sum(axis=1))  # type: ignore[attr-defined]
    unmasked = head.topk(hidden, 9, mask=np.full(63, -1, np.int32), threads=threads)
    assert_same_bits(unmasked.indices, head.topk(hidden, 9, threads=threads).indices)
    full = 3 * np.arange(2000)
    pruned = head.topk(hidden, 9, vocab_ids=full, threads=threads)
    assert_same_bits(pruned.indices, 3 * unmasked.indices)
    assert_same_bits(pruned.values, unmasked.values)


# ---- memory --------------------------------------------------------------------------------------------------------

UNREADABLE = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import ctypes, mmap
import numpy as np
import lmhead_native as native
from guarded import PAGE, _libc
from masks import id_lists, packed
from oracle import assert_same_bits

V = 700
rng = np.random.default_rng(8)
memory = mmap.mmap(-1, V * PAGE)
weight = np.frombuffer(memory, "f4").reshape(V, PAGE // 4)
weight[:] = rng.standard_normal(weight.shape)
exists = rng.random(V) < 0.3
ids = np.flatnonzero(exists)
for rows in (1, 2, 9, 40):
    hidden = rng.standard_normal((rows, PAGE // 4)).astype("f4")
    expected = native.logits(hidden, weight)
    for v in np.flatnonzero(~exists):
        assert _libc.mprotect(ctypes.c_void_p(weight.ctypes.data + int(v) * PAGE), ctypes.c_size_t(PAGE), 0) == 0
    for allowed in (np.tile(exists, (rows, 1)), exists & (rng.random((rows, V)) < 0.05)):
        for order in (1, -1):
            found = native.logits(hidden, weight[::order], mask=packed(allowed[:, ::order]), threads=2)[:, ::order]
            assert_same_bits(found, np.where(allowed, expected, np.float32(-np.inf)))
        top = native.logits_topk(hidden, weight, 3, allowed_ids=id_lists(allowed), threads=2)
        assert allowed[np.arange(rows)[:, None], top.indices][top.indices >= 0].all()
    assert _libc.mprotect(ctypes.c_void_p(weight.ctypes.data), ctypes.c_size_t(V * PAGE), 3) == 0
print(native.isa())
"""


def test_other_rows_are_not_read(each_isa: str) -> None:
    """They lie in pages that must not be touched."""
    assert fresh.output(UNREADABLE, environment={"LMHEAD_ISA": each_isa}) == f"{each_isa}\n"
