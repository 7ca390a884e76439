"""``logits_scores`` and ``scores`` against float64: log-probability, rank, entropy, alternatives, of every row.

Knows what a row's scores are, and which other functions must say the same to the bit. How good logits are is in
test_logits.py, the sums of exponentials in test_log_sum_exp.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
import oracle
from parameters import every_dtype, every_pair, wide_dtypes
from quantized_samples import some_storages
from score_oracle import entropy_exact, rank_exact

pytestmark = pytest.mark.usefixtures("each_isa")

Array = NDArray[Any]
INF, NAN = math.inf, math.nan
SPECIAL = np.array([NAN, -NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 2.0, 5.0])
SIZES = (1, 2, 3, 15, 16, 17, 33, 65, 101, 255, 256, 257, 513, 4097)


def same(found: native.TokenScores, expected: native.TokenScores) -> None:
    """Assert the same bits in every field."""
    oracle.assert_same(found, expected)


# ---- given logits --------------------------------------------------------------------------------------------------


@every_dtype
def test_against_float64(threads: int, dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(1)
    result = oracle.result_dtype(dtype).name
    for vocabulary in SIZES:
        x = (3 * rng.standard_normal((3, vocabulary))).astype(dtype)
        x[1] = np.round(x[1])  # ties
        x[2, rng.random(vocabulary) < 0.3] = -INF
        x[2, 0] = 1
        targets, chosen = rng.integers(0, vocabulary, 3), rng.integers(0, vocabulary, (3, 4))
        top_n, temperature = min(5, vocabulary), rng.choice([1.0, 0.7])
        found = native.scores(x, targets, temperature=temperature, top_n=top_n, chosen=chosen, threads=threads)
        answers = oracle.row_answers(x, temperature=temperature, result=result)
        best = np.array([oracle.top_k_exact(row, top_n) for row in x])

        def check(field: Any, ids: Array, answers: oracle.RowAnswers = answers) -> None:
            sides = answers.log_softmax, answers.log_softmax_bound
            oracle.assert_within(field, *(np.take_along_axis(side, ids, axis=-1) for side in sides))

        check(found.logprob[:, None], targets[:, None])
        check(found.chosen_logprobs, chosen)
        check(found.top_logprobs, best)
        np.testing.assert_array_equal(found.top_ids, best, strict=True)
        np.testing.assert_array_equal(found.argmax, best[:, 0], strict=True)
        np.testing.assert_array_equal(found.rank, [rank_exact(*pair) for pair in zip(x, targets, strict=True)])
        oracle.assert_within(found.logsumexp, answers.logsumexp, answers.logsumexp_bound)
        for row, entropy in zip(x, found.entropy, strict=True):
            exact, bound = entropy_exact(row, temperature)
            assert abs(float(entropy) - exact) <= bound
        for field in (found.logprob, found.logsumexp, found.entropy, found.top_logprobs, found.chosen_logprobs):
            assert field.dtype == result


@every_dtype
def test_ranks_of_every_id(dtype: np.dtype[Any]) -> None:
    """Whatever stands in a row, ranks are places in its sorted list."""
    rng = np.random.default_rng(2)
    for vocabulary in (1, 7, 17, 70, 257):
        same_everywhere = [np.full(vocabulary, value) for value in (0, NAN, -INF)]
        for row in (rng.choice(SPECIAL, vocabulary), np.arange(vocabulary) // 3, *same_everywhere):
            x = np.broadcast_to(row.astype(dtype), (vocabulary, vocabulary))
            rank = native.scores(x, np.arange(vocabulary)).rank
            order = oracle.top_k_exact(x[0], vocabulary)
            np.testing.assert_array_equal(rank[order], np.arange(1, vocabulary + 1))


def test_rows_without_probabilities(threads: int) -> None:
    """NaN, +inf and nothing but -inf are told by logsumexp; ids are ordered all the same."""
    for at in (0, 5, 16, 299):
        x = np.zeros((4, 300), np.float32)
        x[0, at], x[1, at], x[2] = NAN, INF, -INF
        found = native.scores(x, np.full(4, 7), top_n=2, chosen=[at, 7], threads=threads)
        np.testing.assert_array_equal(found.logsumexp[:3], [NAN, INF, -INF])
        for field in (found.logprob, found.entropy, found.top_logprobs, found.chosen_logprobs):
            assert np.isnan(field[:3]).all()
            assert np.isfinite(field[3]).all()
        np.testing.assert_array_equal(found.argmax, [at, at, 0, 0])
        np.testing.assert_array_equal(found.rank, [8 + (at > 7), 8 + (at > 7), 8, 8])
        np.testing.assert_array_equal(found.top_ids[:, 0], [at, at, 0, 0])


def test_small_numbers_are_kept() -> None:
    """A gap of 60 is 8.8e-27, not 0; equal logits at 1e8 are log 2; certainty is 0, without a sign."""
    x = np.array([[60, 0], [1e8, 1e8], [1e30, 0], [-INF, 3]], np.float32)
    found = native.scores(x, [0, 1, 0, 1], chosen=[1])
    np.testing.assert_allclose(found.logprob, [-math.exp(-60), -math.log(2), 0, 0], rtol=1e-6)
    assert not np.signbit(found.logprob[2:]).any()
    np.testing.assert_allclose(found.entropy, [61 * math.exp(-60), math.log(2), 0, 0], rtol=1e-6)
    np.testing.assert_array_equal(found.chosen_logprobs[2:, 0], np.array([-1e30, 0], np.float32))
    minus = native.scores(x, [0, 1, 0, 0]).logprob
    assert minus[3] == -INF


@wide_dtypes
def test_temperatures(dtype: np.dtype[Any]) -> None:
    x = np.array([[1, 3, 3, -2]], dtype)
    for tiny in (1e-30, 1e-300):
        found = native.scores(x, [2], temperature=tiny)
        np.testing.assert_allclose([found.logprob[0], found.entropy[0]], [-math.log(2), math.log(2)], rtol=1e-6)
    for huge in (1e30, 1e300):
        found = native.scores(x, [2], temperature=huge)
        np.testing.assert_allclose([found.logprob[0], found.entropy[0]], [-math.log(4), math.log(4)], rtol=1e-6)
    assert found.rank[0] == 2


# ---- the same as others --------------------------------------------------------------------------------------------


@every_pair
def test_fused_is_scores_of_logits(threads: int, hidden_dtype: np.dtype[Any], weight_dtype: np.dtype[Any]) -> None:
    """Bit for bit, on both storages of the weight; and what the loss and the list say."""
    rng = np.random.default_rng(3)
    cases: list[tuple[tuple[int, int, int], float, bool, dict[str, Any]]] = [
        ((1, 17, 3), 1.0, False, {}),
        ((4, 300, 19), 0.7, True, {"softcap": 3.0, "scale": -2.0}),
        ((19, 257, 33), 2.0, True, {"softcap": 1e-33, "scale": 1e35}),
        ((70, 600, 5), 1.0, False, {}),
    ]
    for (rows, vocabulary, width), temperature, with_bias, head in cases:
        hidden = rng.standard_normal((rows, width)).astype(hidden_dtype)
        weight = rng.integers(-2, 3, (vocabulary, width)).astype(weight_dtype)
        targets, chosen = rng.integers(0, vocabulary, rows), rng.integers(0, vocabulary, (rows, 3))
        targets[1::4] = -100
        if with_bias:
            head = {**head, "bias": rng.standard_normal(vocabulary)}
        options: dict[str, Any] = {"temperature": temperature, "threads": threads}
        asked = options | {"top_n": 6, "chosen": chosen}
        found = native.logits_scores(hidden, weight, targets, **head, **asked)
        same(native.logits_scores(hidden, weight.T.copy().T, targets, **head, **asked), found)
        z = native.logits(hidden, weight, **head)
        same(native.scores(z, targets, **asked), found)
        same(native.scores(z.T.copy().T, targets, **asked), found)
        loss = native.linear_cross_entropy(hidden, weight, targets, reduction="none", stats=True, **head, **options)
        oracle.assert_same_bits(0 - found.logprob, 0 + loss.loss)
        oracle.assert_same_bits(found.logsumexp, loss.logsumexp)
        oracle.assert_same_bits(found.argmax, loss.argmax)
        oracle.assert_same_bits(found.entropy, loss.entropy)
        live = targets != -100
        best = native.logits_topk(hidden, weight, 6, **head, threads=threads)
        oracle.assert_same_bits(found.top_ids[live], best.indices[live])


def test_every_field_tells_the_same_of_an_id(threads: int) -> None:
    rng = np.random.default_rng(4)
    hidden, weight = rng.standard_normal((9, 40), np.float32), rng.standard_normal((333, 40), np.float32)
    targets = rng.integers(0, 333, 9)
    found = native.logits_scores(hidden, weight, targets, top_n=333, chosen=np.arange(333), threads=threads)
    at = np.arange(9)
    oracle.assert_same_bits(found.top_ids[at, found.rank - 1], targets)
    oracle.assert_same_bits(found.top_logprobs[at, found.rank - 1], found.logprob)
    oracle.assert_same_bits(found.chosen_logprobs[at, targets], found.logprob)
    oracle.assert_same_bits(np.take_along_axis(found.chosen_logprobs, found.top_ids, -1), found.top_logprobs)


def test_quantized_weights(threads: int) -> None:
    rng = np.random.default_rng(5)
    for weight in some_storages(301, 64).values():
        for rows in (1, 5, 20):
            hidden = rng.standard_normal((rows, 64), np.float32)
            targets, chosen = rng.integers(0, 301, rows), [5, 300]
            found = native.logits_scores(hidden, weight, targets, chosen=chosen, top_n=3, threads=threads)
            same(native.scores(native.logits(hidden, weight), targets, chosen=chosen, top_n=3), found)


def test_a_row_is_the_same_in_any_batch(threads: int) -> None:
    """Alone, in a batch that goes in several blocks, and in one that is split."""
    rng = np.random.default_rng(6)
    hidden, weight = rng.standard_normal((700, 24), np.float32), rng.standard_normal((2100, 24), np.float32)
    targets = rng.integers(0, 2100, 700)
    found = native.logits_scores(hidden, weight, targets, top_n=4, threads=threads)
    for rows in (slice(0, 1), slice(3, 11), slice(255, 300), slice(699, 700)):
        alone = native.logits_scores(hidden[rows], weight, targets[rows], top_n=4)
        oracle.assert_same(alone, tuple(None if field is None else field[rows] for field in found))


def test_long_rows(threads: int) -> None:
    """Many blocks of ids and a target in each kind of place."""
    rng = np.random.default_rng(7)
    vocabulary = 70_001
    x = rng.integers(-50, 50, (3, vocabulary)).astype(np.float32)
    for target in (0, 255, 256, 4095, 4096, 65_536, vocabulary - 1):
        rank = native.scores(x, np.full(3, target), threads=threads).rank
        np.testing.assert_array_equal(rank, [rank_exact(row, target) for row in x])


# ---- who is scored -------------------------------------------------------------------------------------------------


def test_ignored_positions(threads: int) -> None:
    """They read as the table says; what stands in them reaches nothing, and their chosen ids are not looked at."""
    rng = np.random.default_rng(8)
    hidden, weight = rng.standard_normal((6, 12), np.float32), rng.standard_normal((50, 12), np.float32)
    targets, chosen = np.array([3, -100, 49, -100, -100, 0]), np.arange(12).reshape(6, 2)
    live = targets != -100
    hidden[~live] = [[NAN], [INF], [-NAN]]
    chosen[~live] = 10**12
    found = native.logits_scores(hidden, weight, targets, top_n=3, chosen=chosen, threads=threads)
    expected = native.logits_scores(hidden[live], weight, targets[live], top_n=3, chosen=chosen[live])
    for field, theirs in zip(found, expected, strict=True):
        oracle.assert_same_bits(field[live], theirs)
    gone = [field[~live] for field in found if field is not None]
    for field, value in zip(gone, (0, NAN, -1, NAN, -1, NAN, -1, NAN), strict=True):
        np.testing.assert_array_equal(field, np.full(field.shape, value, field.dtype))
    same(native.scores(native.logits(hidden, weight), targets, top_n=3, chosen=chosen, threads=threads), found)
    nobody = native.logits_scores(hidden, weight, np.full(6, 7), ignore_index=7, top_n=3, chosen=chosen)
    np.testing.assert_array_equal(nobody.rank, np.full(6, -1))
    with pytest.raises(IndexError, match=r"got 65436 at position \(0,\)$"):  # which is not -100
        native.scores(np.zeros((1, 5)), np.array([65436], np.uint16))


def test_shift() -> None:
    """The targets are the input ids; what has no partner is not looked at."""
    rng = np.random.default_rng(9)
    hidden, weight = rng.standard_normal((2, 7, 5), np.float32), rng.standard_normal((30, 5), np.float32)
    ids = rng.integers(0, 30, (2, 7))
    hidden[:, -1], ids[:, 0] = NAN, 10**9
    chosen = rng.integers(0, 30, (2, 6, 2))
    found = native.logits_scores(hidden, weight, ids, shift=True, top_n=2, chosen=chosen)
    same(native.logits_scores(hidden[:, :-1], weight, ids[:, 1:], top_n=2, chosen=chosen), found)
    assert native.logits_scores(hidden, weight, ids, shift=7, top_n=2).top_ids.shape == (2, 0, 2)
    assert native.logits_scores(hidden, weight, ids, shift=9).logsumexp.shape == (2, 0)


def test_without_targets() -> None:
    rng = np.random.default_rng(10)
    hidden, weight = rng.standard_normal((2, 3, 5), np.float32), rng.standard_normal((30, 5), np.float32)
    found = native.logits_scores(hidden, weight, top_n=2, chosen=[1])
    assert found.logprob is None
    assert found.rank is None
    expected = native.logits_scores(hidden, weight, np.zeros((2, 3), int), top_n=2, chosen=[1])
    oracle.assert_same(found, expected._replace(logprob=None, rank=None))
    same(native.scores(native.logits(hidden, weight), top_n=2, chosen=[1]), found)
    bare = native.logits_scores(hidden, weight)
    assert (bare.top_ids, bare.top_logprobs, bare.chosen_logprobs) == (None, None, None)


def test_shapes() -> None:
    weight = np.eye(6, 4, dtype=np.float32)
    one = native.logits_scores(weight[2], weight, 2, top_n=3, chosen=[2, 5])
    assert [np.shape(field) for field in one] == [(), (), (), (), (), (3,), (3,), (2,)]
    assert one.rank == 1
    assert one.argmax == 2
    states, per_position = np.zeros((2, 0, 4), np.float32), np.zeros((2, 0, 3), np.uint8)
    none = native.logits_scores(states, weight, np.zeros((2, 0), int), top_n=1, chosen=per_position)
    assert [np.shape(field) for field in none] == [(2, 0)] * 5 + [(2, 0, 1)] * 2 + [(2, 0, 3)]
    many = native.logits_scores(np.zeros((2, 3, 4), np.float32), weight, np.zeros((2, 3), int), chosen=[])
    assert many.chosen_logprobs.shape == (2, 3, 0)


def test_empty_widths_and_vocabularies(threads: int) -> None:
    """Without a width the logits are the bias; without a vocabulary nothing can be a target."""
    bias = np.array([1, 4, 2], np.float32)
    found = native.logits_scores(np.zeros((2, 0), "f4"), np.zeros((3, 0), "f4"), [2, 1], bias=bias, threads=threads)
    same(native.scores(np.stack([bias, bias]), [2, 1]), found)
    for empty in (
        native.logits_scores(np.zeros((2, 3), "f4"), np.zeros((0, 3), "f4"), threads=threads),
        native.scores(np.zeros((2, 0), "f4"), threads=threads),
        native.scores(np.zeros((2, 0), "f4"), [-100, -100], ignore_index=-100)._replace(logsumexp=np.full(2, -INF)),
    ):
        np.testing.assert_array_equal(empty.logsumexp, [-INF, -INF])
        assert np.isnan(empty.entropy).all()
        np.testing.assert_array_equal(empty.argmax, [-1, -1])
