"""The scores of `native.reference` against values by hand and against its own losses, top-k lists and log-softmax.

Knows worked distributions and laws that connect calls. What is allowed is in test_reference_allowed.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import oracle
from lmhead_native import reference

INF, NAN = math.inf, math.nan
P = [0.5, 0.25, 0.125, 0.125]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20256)


def test_a_row_by_hand() -> None:
    z = np.log(P) + 7.0
    found = reference.scores(np.tile(z, (4, 1)), [0, 1, 2, 3], top_n=3, chosen=[3, 0])
    np.testing.assert_allclose(np.asarray(found.logprob), np.log(P), rtol=1e-14)
    np.testing.assert_allclose(found.logsumexp, [7.0] * 4, rtol=1e-15)
    np.testing.assert_allclose(found.entropy, [1.75 * math.log(2)] * 4, rtol=1e-14)
    assert np.asarray(found.rank).tolist() == [1, 2, 3, 4]
    assert found.argmax.tolist() == [0, 0, 0, 0]
    assert np.asarray(found.top_ids).tolist() == [[0, 1, 2]] * 4
    np.testing.assert_allclose(np.asarray(found.top_logprobs), np.log([P[:3]] * 4), rtol=1e-14)
    np.testing.assert_allclose(np.asarray(found.chosen_logprobs), np.log([[P[3], P[0]]] * 4), rtol=1e-14)


def test_temperature_softcap_bias_and_scale() -> None:
    hidden, weight, bias = np.array([[1.0, -2.0]]), np.array([[0.5, 1.0], [2.0, 0.0], [0.0, -1.0]]), [0.5, 0.0, 1.0]
    z = [-2 * 4 * math.tanh(x / 4) / 0.5 for x in (-1.0, 2.0, 3.0)]
    found = reference.logits_scores(hidden, weight, [1], bias=bias, softcap=4.0, scale=-2.0, temperature=0.5)
    total = math.log(sum(math.exp(x) for x in z))
    assert np.asarray(found.logprob).tolist() == pytest.approx([z[1] - total])
    assert found.logsumexp.tolist() == pytest.approx([total])
    assert np.asarray(found.rank).tolist() == [2]
    assert found.argmax.tolist() == [0]


@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
def test_agreement_with_losses_and_lists(rng: np.random.Generator, dtype: np.dtype[Any]) -> None:
    hidden, weight = rng.standard_normal((2, 7, 9)).astype(dtype), rng.standard_normal((13, 9)).astype(dtype)
    targets = rng.integers(0, 13, (2, 7))
    targets[0, 3] = targets[1, 6] = -100
    both: list[dict[str, Any]] = [{}, {"temperature": 0.6, "shift": 2, "softcap": 5.0}]
    for options in both:
        found = reference.logits_scores(hidden, weight, targets, top_n=4, **options)
        stats = reference.linear_cross_entropy(hidden, weight, targets, stats=True, reduction="none", **options)
        result = oracle.result_dtype(dtype)
        np.testing.assert_allclose(np.asarray(found.logprob), -stats.per_token, rtol=4 * oracle.UNIT[result.name])
        oracle.assert_same_bits(found.logsumexp, stats.logsumexp)
        np.testing.assert_allclose(found.entropy, stats.entropy, rtol=8 * oracle.UNIT[result.name])
        oracle.assert_same_bits(found.argmax, stats.argmax)
        assert found.logsumexp.dtype == found.entropy.dtype == np.asarray(found.top_logprobs).dtype == result
        assert np.asarray(found.logprob).dtype == result
        live = found.argmax >= 0
        z = reference.logits(hidden, weight, softcap=options.get("softcap"))
        rows = z[:, : found.argmax.shape[1]][live]
        if dtype == np.float64:
            assert np.asarray(found.top_ids)[live].tolist() == reference.topk(rows, 4).indices.tolist()
            paired = targets[:, options.get("shift", 0) :][live]
            better = (rows > np.take_along_axis(rows, paired[:, None], axis=-1)).sum(axis=-1)
            assert np.asarray(found.rank)[live].tolist() == (better + 1).tolist()


def test_ignored_rows_are_not_computed() -> None:
    logits = np.array([[NAN, 1.0], [0.0, 0.0], [INF, INF]])
    found = reference.scores(logits, [-7, 1, -7], ignore_index=-7, top_n=2, chosen=[[99], [0], [-1]])
    half = -math.log(2)
    np.testing.assert_array_equal(np.asarray(found.logprob), [0, half, 0])
    np.testing.assert_array_equal(found.logsumexp, [NAN, -half, NAN])
    np.testing.assert_allclose(found.entropy, [NAN, -half, NAN], rtol=1e-15)
    assert np.asarray(found.rank).tolist() == [-1, 2, -1]
    assert found.argmax.tolist() == [-1, 0, -1]
    assert np.asarray(found.top_ids).tolist() == [[-1, -1], [0, 1], [-1, -1]]
    np.testing.assert_array_equal(np.asarray(found.top_logprobs), [[NAN] * 2, [half] * 2, [NAN] * 2])
    np.testing.assert_array_equal(np.asarray(found.chosen_logprobs), [[NAN], [half], [NAN]])


def test_without_targets() -> None:
    found = reference.scores(np.log([P, P[::-1]]), top_n=2)
    assert (found.logprob, found.rank, found.chosen_logprobs) == (None, None, None)
    assert np.asarray(found.top_ids).tolist() == [[0, 1], [3, 2]]
    assert found.argmax.tolist() == [0, 3]
    plain = reference.scores(np.log(P))
    assert (plain.top_ids, plain.top_logprobs) == (None, None)
    assert plain.entropy == pytest.approx(1.75 * math.log(2))


@pytest.mark.parametrize(
    ("row", "target", "logprob", "logsumexp", "rank", "argmax", "entropy"),
    [
        ([-INF, 0.0, 0.0, -INF], 1, -math.log(2), math.log(2), 1, 1, math.log(2)),
        ([-INF, 0.0, 0.0, -INF], 3, -INF, math.log(2), 4, 1, math.log(2)),
        ([0.0, 800.0, -INF, 0.0], 1, 0.0, 800.0, 1, 1, 0.0),
        ([-INF] * 4, 2, NAN, -INF, 3, 0, NAN),
        ([0.0, INF, INF, 1.0], 2, NAN, INF, 2, 1, NAN),
        ([0.0, INF, INF, 1.0], 3, NAN, INF, 3, 1, NAN),
        ([0.0, NAN, INF, -NAN], 3, NAN, NAN, 2, 1, NAN),
        ([0.0, NAN, INF, -NAN], 0, NAN, NAN, 4, 1, NAN),
        ([-0.0, 0.0, -0.0, 0.0], 2, -math.log(4), math.log(4), 3, 0, math.log(4)),
    ],
    ids=str,
)
def test_ties_infinities_and_nan(
    row: list[float], target: int, logprob: float, logsumexp: float, rank: int, argmax: int, entropy: float
) -> None:
    found = reference.scores([[1.0, 2.0, 3.0, 4.0], row], [0, target])
    np.testing.assert_allclose(np.asarray(found.logprob)[1], logprob, rtol=1e-15)
    np.testing.assert_allclose(found.logsumexp[1], logsumexp, rtol=1e-15)
    np.testing.assert_allclose(found.entropy[1], entropy, rtol=1e-15)
    assert (np.asarray(found.rank)[1], found.argmax[1]) == (rank, argmax)
    assert np.isfinite(found.entropy[0])
    assert not np.signbit(found.entropy[1]) or np.isnan(entropy)


def test_large_offsets_and_small_rests() -> None:
    found = reference.scores([[1e8, 1e8], [0.0, 60.0]], [1, 1])
    np.testing.assert_allclose(np.asarray(found.logprob), [-math.log(2), -8.7565e-27], rtol=1e-4)


def test_chosen_ids_of_each_position(rng: np.random.Generator) -> None:
    logits, targets = rng.standard_normal((2, 5, 6)), rng.integers(0, 6, (2, 5))
    log_p, ids = reference.log_softmax(logits), rng.integers(0, 6, (2, 4, 3), dtype=np.uint8)
    found = reference.scores(logits, targets, shift=1, chosen=ids)
    expected = np.take_along_axis(log_p[:, :4], ids.astype(int), axis=-1)
    np.testing.assert_allclose(np.asarray(found.chosen_logprobs), expected, rtol=1e-13)
    assert np.asarray(reference.scores(logits, targets, chosen=[]).chosen_logprobs).shape == (2, 5, 0)


def test_perplexity(rng: np.random.Generator) -> None:
    weight = np.log(np.array([P]).T)
    targets = np.array([0, 1, -100, 2])
    product = Fraction(1, 2) * Fraction(1, 4) * Fraction(1, 8)
    found = reference.perplexity(np.ones((4, 1)), weight, targets)
    assert type(found) is np.float64
    assert found == pytest.approx(float(product) ** (-1 / 3), rel=1e-14)
    shifted = reference.perplexity(np.ones((4, 1)), weight, [9, 0, 1, 2], shift=1)
    assert shifted == pytest.approx(found, rel=1e-14)
    assert np.isnan(reference.perplexity(np.ones((2, 1)), weight, [-1, -1], ignore_index=-1))
    assert reference.perplexity(np.ones((1, 1)), weight, [3], allowed_ids=[0, 1]) == INF
    hidden, w = rng.standard_normal((2, 9, 4)), rng.standard_normal((7, 4))
    ids = rng.integers(0, 7, (2, 9))
    loss = reference.linear_cross_entropy(hidden, w, ids, shift=1, temperature=0.7)
    assert reference.perplexity(hidden, w, ids, shift=1, temperature=0.7) == pytest.approx(math.exp(loss), rel=1e-14)
    with pytest.raises(TypeError, match=r"^targets: expected an integer dtype, got None"):
        reference.perplexity(hidden, w, None)  # type: ignore[arg-type]


def test_empty_axes() -> None:
    found = reference.scores(np.zeros((0, 5)), np.zeros(0, int), top_n=2, chosen=[1])
    assert np.asarray(found.logprob).shape == found.entropy.shape == (0,)
    assert np.asarray(found.top_ids).shape == (0, 2)
    nothing = reference.scores(np.zeros((2, 0)), [-100, -100])
    assert np.asarray(nothing.rank).tolist() == [-1, -1]
    rows = reference.scores(np.zeros((2, 0)))
    np.testing.assert_array_equal(rows.logsumexp, [-INF, -INF])
    assert rows.argmax.tolist() == [-1, -1]
    biased = reference.logits_scores(np.zeros((1, 0)), np.zeros((4, 0)), [1], bias=np.log(P))
    assert np.asarray(biased.logprob).tolist() == pytest.approx([math.log(0.25)])


X = np.zeros((5, 11), np.float32)
REFUSED: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: reference.scores(X, temperature=0), ValueError, "temperature: expected a real number above 0 and finite"),
    (lambda: reference.scores(X, [0] * 4), ValueError, "targets: expected shape (5,) as in logits of shape (5, 11)"),
    (
        lambda: reference.scores(X, [0, 1, 2, 3, 11]),
        IndexError,
        "targets: expected an id from 0 to V - 1 = 10 or ignore",
    ),
    (lambda: reference.scores(X, [0.0] * 5), TypeError, "targets: expected an integer dtype, got float64"),
    (lambda: reference.scores(X, shift=1), ValueError, "shift: expected 0 without targets, got 1"),
    (lambda: reference.scores(X, shift=-1), ValueError, "shift: expected an integer of at least 0, got -1"),
    (lambda: reference.scores(X, top_n=12), ValueError, "top_n: expected an integer from 0 to V = 11, got 12"),
    (lambda: reference.scores(X, top_n=-1), ValueError, "top_n: expected an integer from 0 to V = 11, got -1"),
    (lambda: reference.scores(X, chosen=3), ValueError, "chosen: expected shape (m,) or (5, m) as the scores have"),
    (
        lambda: reference.scores(X, chosen=[[1]] * 4),
        ValueError,
        "chosen: expected shape (m,) or (5, m) as the scores",
    ),
    (lambda: reference.scores(X, chosen=[1.0]), TypeError, "chosen: expected an integer dtype, got float64"),
    (
        lambda: reference.scores(X, chosen=[1, 11]),
        IndexError,
        "chosen: expected an id from 0 to V - 1 = 10, got 11 at position (1,)",
    ),
    (
        lambda: reference.scores(X, chosen=[[1], [1], [-1], [0], [1]]),
        IndexError,
        "chosen: expected an id from 0 to V - 1 = 10, got -1 at position (2, 0)",
    ),
    (lambda: reference.scores(X, threads=0), ValueError, "threads: expected"),
    (lambda: reference.scores(np.zeros(3, int)), TypeError, "logits: expected dtype"),
    (lambda: reference.logits_scores(X, X.T), ValueError, "weight: expected shape (V, D)"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED, ids=[m for _, _, m in REFUSED])
def test_refusals(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        call()
