"""Masks, lists of allowed ids and pruned vocabularies in `native.reference`: logits, top-k lists, scores.

Knows which bit is which id, and that what is not allowed reaches nothing. Samplers under masks are in
test_reference_sample.py.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import oracle
from lmhead_native import reference as ref
from sample_cases import some_mask

INF, NAN = math.inf, math.nan


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20257)


def head(rng: np.random.Generator, vocabulary: int, n: int = 3) -> tuple[NDArray[Any], NDArray[Any]]:
    return rng.standard_normal((n, 4)).astype(np.float32), rng.standard_normal((vocabulary, 4)).astype(np.float32)


def bits_of(row: NDArray[Any], vocabulary: int) -> list[int]:
    """Return the allowed ids by Python's integers."""
    number = sum((int(word) & 0xFFFFFFFF) << (32 * i) for i, word in enumerate(row))
    return [v for v in range(vocabulary) if number >> v & 1]


@pytest.mark.parametrize("vocabulary", [1, 31, 32, 33, 64, 70])
def test_bits_are_ids(rng: np.random.Generator, vocabulary: int) -> None:
    hidden, weight = head(rng, vocabulary)
    plain, mask = ref.logits(hidden, weight), some_mask(3, vocabulary)
    masked = ref.logits(hidden, weight, mask=mask)
    for row in range(3):
        ids = bits_of(mask[row], vocabulary)
        expected = np.full(vocabulary, -INF, np.float32)
        expected[ids] = plain[row, ids]
        oracle.assert_same_bits(masked[row], expected)
    lists = [bits_of(row, vocabulary) for row in mask]
    oracle.assert_same_bits(ref.logits(hidden, weight, allowed_ids=lists), masked)
    longer = np.concatenate([mask, np.full((3, 2), -1, np.int32)], axis=1)
    oracle.assert_same_bits(ref.logits(hidden, weight, mask=longer), masked)
    oracle.assert_same_bits(ref.logits(hidden, weight, mask=mask.view(np.uint32)), masked)
    oracle.assert_same_bits(
        ref.logits(hidden, weight, mask=mask[1]), ref.logits(hidden, weight, mask=np.stack([mask[1]] * 3))
    )
    cube = ref.logits(hidden.reshape(3, 1, 4), weight, mask=mask.reshape(3, 1, -1))
    oracle.assert_same_bits(cube.reshape(3, vocabulary), masked)


def test_lists_of_ids(rng: np.random.Generator) -> None:
    hidden, weight = head(rng, 9)
    plain = ref.logits(hidden, weight)
    for ids in ([8, 0, 3, 3], (8, 0, 3), np.array([0, 3, 8], np.uint8), range(9)):
        expected = np.full((3, 9), -INF, np.float32)
        expected[:, list(ids)] = plain[:, list(ids)]
        oracle.assert_same_bits(ref.logits(hidden, weight, allowed_ids=ids), expected)
    lists: list[Any] = [np.array([1]), [], range(2, 4)]
    allowed = np.isfinite(ref.logits(hidden, weight, allowed_ids=lists))
    assert [np.flatnonzero(row).tolist() for row in allowed] == [[1], [], [2, 3]]
    assert not np.isfinite(ref.logits(hidden, weight, allowed_ids=[])).any()


def test_what_is_not_allowed_reaches_nothing(rng: np.random.Generator) -> None:
    hidden, weight = head(rng, 40)
    allowed = [3, 5, 17, 39]
    spoilt = np.full((40, 4), NAN, np.float32)
    spoilt[::2] = INF
    spoilt[allowed] = weight[allowed]
    bias = np.full(40, NAN)
    bias[allowed] = 0.5
    calls: list[Callable[..., Any]] = [
        lambda w, b: ref.logits(hidden, w, bias=b, allowed_ids=allowed),
        lambda w, b: ref.logits_topk(hidden, w, 10, bias=b, allowed_ids=allowed),
        lambda w, b: ref.logits_scores(hidden, w, [3, 39, 4], bias=b, allowed_ids=allowed, top_n=9, chosen=[5, 6])[:7],
        lambda w, b: ref.logits_sample(hidden, w, bias=b, allowed_ids=allowed, seed=1),
    ]
    for call in calls:
        for mine, theirs in zip(call(spoilt, bias), call(weight, np.full(40, 0.5)), strict=True):
            oracle.assert_same_bits(np.asarray(mine), np.asarray(theirs))


def test_top_k_beyond_what_is_allowed(rng: np.random.Generator) -> None:
    z = [[2.0, NAN, -INF, 5.0, -INF]]
    found = ref.logits_topk([[1.0]], np.array(z).T, 5, allowed_ids=[0, 2, 4])
    np.testing.assert_array_equal(found.values, [[2, -INF, -INF, -INF, -INF]])
    assert found.indices.tolist() == [[0, 2, 4, -1, -1]]
    none = ref.logits_topk([[1.0]], np.array(z).T, 2, mask=np.zeros(1, np.int32))
    np.testing.assert_array_equal(none.values, [[-INF, -INF]])
    assert none.indices.tolist() == [[-1, -1]]
    whole = ref.logits_topk([[1.0]], np.array(z).T, 3, mask=np.full(1, -1, np.int32))
    assert whole.indices.tolist() == ref.logits_topk([[1.0]], np.array(z).T, 3).indices.tolist()


def test_scores_under_a_mask() -> None:
    z = np.log([0.5, 0.25, 0.125, 0.125])
    found = ref.scores(np.tile(z, (3, 1)), [1, 0, 3], allowed_ids=[1, 3], top_n=3, chosen=[0, 1])
    p = np.log([2 / 3, 1 / 3])
    np.testing.assert_allclose(np.asarray(found.logprob), [p[0], -INF, p[1]])
    assert np.asarray(found.rank).tolist() == [1, -1, 2]
    assert found.argmax.tolist() == [1, 1, 1]
    np.testing.assert_allclose(found.logsumexp, [math.log(0.375)] * 3)
    np.testing.assert_allclose(found.entropy, [-(2 / 3) * p[0] - p[1] / 3] * 3)
    assert np.asarray(found.top_ids).tolist() == [[1, 3, -1]] * 3
    np.testing.assert_allclose(np.asarray(found.top_logprobs), [[*p, -INF]] * 3)
    np.testing.assert_allclose(np.asarray(found.chosen_logprobs), [[-INF, p[0]]] * 3)
    # An allowed logit of -inf is better than what is not allowed, whatever their ids.
    assert np.asarray(ref.scores([0.0, 1.0, 2.0, -INF], 3, allowed_ids=[0, 3]).rank) == 2
    none = ref.scores(np.tile(z, (2, 1)), [1, -100], mask=np.zeros((2, 1), np.int32), top_n=1)
    assert (np.asarray(none.rank).tolist(), none.argmax.tolist()) == ([-1, -1], [-1, -1])
    np.testing.assert_array_equal(none.logsumexp, [-INF, NAN])
    np.testing.assert_array_equal(np.asarray(none.logprob), [NAN, 0])


def test_a_pruned_weight_speaks_in_full_ids(rng: np.random.Generator) -> None:
    hidden, weight = head(rng, 90)
    bias, kept = rng.standard_normal(90), np.sort(rng.choice(90, 30, replace=False))
    kept[-1] = 89
    full: dict[str, Any] = {"bias": bias}
    pruned: dict[str, Any] = {"bias": bias[kept], "vocab_ids": kept}
    targets = np.array([kept[3], 0 if kept[0] else 1, kept[20]])
    mask = some_mask(3, 90)
    mask_of_kept = np.zeros((3, 3), np.uint32)
    for row, v in itertools.product(range(3), kept):
        mask_of_kept[row, v // 32] |= np.uint32(int(mask[row, v // 32]) & 0xFFFFFFFF & (1 << int(v) % 32))
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"allowed_ids": kept}, {}),
        ({"mask": mask_of_kept}, {"mask": mask}),
    ]
    for theirs_of, mine_of in pairs:
        mine = ref.logits_topk(hidden, weight[kept], 90, **pruned, **mine_of)
        theirs = ref.logits_topk(hidden, weight, 90, **full, **theirs_of)
        assert mine.indices.tolist() == theirs.indices.tolist()
        np.testing.assert_allclose(mine.values, theirs.values, rtol=1e-6)
        scored = ref.logits_scores(hidden, weight[kept], targets, **pruned, **mine_of, top_n=5)
        expected = ref.logits_scores(hidden, weight, targets, **full, **theirs_of, top_n=5)
        for a, b in zip(scored, expected, strict=True):
            if a is not None:
                np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-6)


X, W = np.zeros((5, 12), np.float32), np.zeros((11, 12), np.float32)
REFUSED: list[tuple[Callable[[], object], type[Exception], str]] = [
    (
        lambda: ref.logits(X, W, mask=np.ones((5, 0), np.int32)),
        ValueError,
        "mask: expected shape (1,) or (5, 1) for V = 11 and the rows of hidden of shape (5, 12), got shape (5, 0)",
    ),
    (
        lambda: ref.logits(X[0], np.zeros((33, 12), np.float32), mask=np.array([[1]])),
        TypeError,
        "mask: expected dtype int32 or uint32, got int64",
    ),
    (
        lambda: ref.logits(X[0], np.zeros((33, 12), np.float32), mask=np.ones(1, np.int32)),
        ValueError,
        "mask: expected shape (2,) for V = 33 and the rows of hidden of shape (12,), got shape (1,)",
    ),
    (lambda: ref.logits(X, W, mask=np.int32(3)), ValueError, "mask: expected shape (1,) or (5, 1) for V = 11"),
    (lambda: ref.logits(X, W, mask=np.ones(1, bool)), TypeError, "mask: expected dtype int32 or uint32, got bool"),
    (
        lambda: ref.logits(X, W, mask=np.ones(1, np.int32), allowed_ids=[1]),
        ValueError,
        "allowed_ids: expected None beside a mask, got both; pass one of them",
    ),
    (
        lambda: ref.logits(X, W, allowed_ids=[0, 11]),
        IndexError,
        "allowed_ids: expected an id from 0 to V - 1 = 10, got 11 at position 1",
    ),
    (
        lambda: ref.logits(X.reshape(5, 1, 12), W, allowed_ids=[[0], [1], [2], [3, -4], []]),
        IndexError,
        "allowed_ids: expected an id from 0 to V - 1 = 10, got -4 at position 1 in row (3, 0)",
    ),
    (
        lambda: ref.logits(X, W, allowed_ids=[[0]] * 6),
        ValueError,
        "allowed_ids: expected a list of 5, one for each row of hidden of shape (5, 12), got 6",
    ),
    (
        lambda: ref.logits(X, W, allowed_ids=np.zeros((5, 2), int)),
        ValueError,
        "allowed_ids: expected ids of one dimension, got shape (5, 2)",
    ),
    (lambda: ref.logits(X, W, allowed_ids=[True]), TypeError, "allowed_ids: expected an integer dtype, got bool"),
    (
        lambda: ref.logits_topk(X, W, 3, vocab_ids=[1, 2]),
        ValueError,
        "vocab_ids: expected shape (V,) with V = 11 as the weight has rows, got shape (2,)",
    ),
    (
        lambda: ref.logits_topk(X, W, 3, vocab_ids=[*range(10), 9]),
        ValueError,
        "vocab_ids: expected strictly ascending ids of at least 0, got 9 after 9 at position 10",
    ),
    (
        lambda: ref.logits_topk(X, W, 3, vocab_ids=range(-1, 10)),
        ValueError,
        "vocab_ids: expected strictly ascending ids of at least 0, got -1 at position 0",
    ),
    (
        lambda: ref.logits_topk(X, W, 23, vocab_ids=range(0, 22, 2)),
        ValueError,
        "k: expected an integer from 0 to V = 21, got 23",
    ),
    (
        lambda: ref.logits_topk(X, W, 3, vocab_ids=range(0, 22, 2), allowed_ids=[21]),
        IndexError,
        "allowed_ids: expected an id from 0 to V - 1 = 20, got 21 at position 0",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED, ids=[m for _, _, m in REFUSED])
def test_refusals(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        call()


def test_out_is_apart_from_the_mask() -> None:
    memory = np.zeros((5, 11), np.float32)
    mask = memory.view(np.int32)[:, :1]
    with pytest.raises(ValueError, match=r"^out: expected memory apart from mask"):
        ref.logits(X, W, mask=mask, out=memory)
