"""The checking of drafts in `native.reference`: the tokens are those of a loop without drafts, or distributed as them.

Knows a model whose hidden state depends on the last token alone, so that a loop can be written out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lmhead_native import reference
from lmhead_native._reference_random import rejection_uniforms

V, D = 23, 6
INF = math.inf


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20258)


@pytest.fixture
def model(rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """The hidden state after each token, and the head."""
    return rng.standard_normal((V, D)), rng.standard_normal((V, D))


def loop(
    model: tuple[NDArray[Any], NDArray[Any]], last: int, steps: int, seed: int, position: int, **options: Any
) -> list[int]:
    """Return what is generated after the token `last`, one call a step; `history` and `output` grow."""
    states, weight = model
    tokens: list[int] = []
    for step in range(steps):
        given = dict(options)
        for name in ("history", "output"):
            if name in options:
                given[name] = [*options[name], *tokens]
        state = states[[last, *tokens][-1]]
        tokens.append(int(reference.logits_sample(state, weight, seed=seed, position=position + step, **given).token))
    return tokens


PENALTIES: dict[str, Any] = {
    "repetition_penalty": 1.4,
    "presence_penalty": 0.3,
    "frequency_penalty": 0.6,
    "history": [4, 4, 9],
    "output": [9],
}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0},
        {"temperature": 1.5, "top_k": 9, "top_p": 0.9, "order": "vllm"},
        PENALTIES,
        PENALTIES | {"allowed_ids": [*range(0, V, 2), 9], "logit_bias": {2: 1.5}, "min_p": 0.05},
    ],
    ids=["plain", "greedy", "filtered", "penalties", "everything"],
)
def test_by_shared_noise_the_tokens_are_those_of_the_loop(
    model: tuple[NDArray[Any], NDArray[Any]], options: dict[str, Any]
) -> None:
    k, last = 4, 7
    for seed in (1, 2, 2**64 - 1):
        own = loop(model, last, k + 1, seed, 30, **options)
        for wrong_at in range(k + 1):
            drafts = own[:k]
            if wrong_at < k:
                drafts[wrong_at] = (drafts[wrong_at] + 2) % V
            hidden = model[0][[last, *drafts]]
            found = reference.verify(hidden, model[1], drafts, seed=seed, position=30, logprobs="raw", **options)
            assert found.accepted == wrong_at
            assert found.tokens.tolist() == own[: wrong_at + 1] + [-1] * (k - wrong_at)
            assert found.logprob is not None
            plain = {name: options[name] for name in ("allowed_ids",) if name in options}
            scored = reference.logits_scores(hidden[: wrong_at + 1], model[1], own[: wrong_at + 1], **plain)
            np.testing.assert_allclose(found.logprob[: wrong_at + 1], np.asarray(scored.logprob), rtol=1e-14)
            assert found.logprob[wrong_at + 1 :].tolist() == [0.0] * (k - wrong_at)


def test_sequences_have_parameters_and_seeds_of_their_own(model: tuple[NDArray[Any], NDArray[Any]]) -> None:
    k, lasts = 3, [1, 2, 3, 4]
    given: dict[str, Any] = {
        "temperature": [0.0, 0.7, 1.0, 3.0],
        "top_k": [0, 5, -1, 50],
        "logit_bias": [None, {3: 1.0}, {}, {5: -INF}],
        "repetition_penalty": np.array([1, 1.2, 1.5, 2]),
        "history": [[], {1: 2}, np.array([3, 4]), [6]],
    }
    seeds, positions = [5, 6, 6, 2**63], [0, 1, 2, 2**40]
    own = []
    for s, last in enumerate(lasts):
        of_one = {name: values[s] for name, values in given.items()}
        of_one["history"] = list(of_one["history"]) if s != 1 else [1, 1]
        own.append(loop(model, last, k + 1, seeds[s], positions[s], **of_one))
    drafts = np.array(own)[:, :k]
    drafts[1, 1] = (drafts[1, 1] + 1) % V
    drafts[3, 0] = (drafts[3, 0] + 1) % V
    hidden = model[0][np.concatenate([np.array(lasts)[:, None], drafts], axis=1)]
    found = reference.verify(hidden, model[1], drafts, seed=seeds, position=positions, **given)
    assert found.accepted.tolist() == [k, 1, k, 0]
    for s, accepted in enumerate([k, 1, k, 0]):
        assert found.tokens[s].tolist() == own[s][: accepted + 1] + [-1] * (k - accepted)
    # A scalar seed is folded with the number of the sequence, as it is with rows that are drawn one step at a time.
    first = reference.logits_sample(hidden[:, 0], model[1], seed=8, position=2).token
    together = reference.verify(hidden, model[1], drafts, seed=8, position=2).tokens
    assert together[:, 0].tolist() == first.tolist()


def test_masks_of_positions(model: tuple[NDArray[Any], NDArray[Any]]) -> None:
    hidden, drafts = model[0][[[1, 2, 3], [4, 5, 6]]], [[2, 3], [5, 6]]
    lists = [[v] for v in (2, 3, 11, 5, 7, 12)]
    mask = np.array([[1 << v for (v,) in lists]], np.int32).reshape(2, 3, 1)
    equal: dict[str, Any] = {"draft_hidden": hidden[:, :2], "draft_weight": model[1]}
    for model_of_drafts in ({}, equal):
        for allowed in ({"allowed_ids": lists}, {"mask": mask}):
            found = reference.verify(hidden, model[1], drafts, seed=1, **allowed, **model_of_drafts)
            assert found.tokens.tolist() == [[2, 3, 11], [5, 7, -1]]
            assert found.accepted.tolist() == [2, 1]


def test_what_is_returned(model: tuple[NDArray[Any], NDArray[Any]]) -> None:
    hidden = model[0][[[1, 2, 3]]].astype(np.float32)
    found = reference.verify(hidden, model[1].astype(np.float32), [[0, 0]], temperature=0, top_n=4)
    tokens, accepted, logprob = found
    assert logprob is not None
    assert (tokens.shape, accepted.shape, logprob.shape) == ((1, 3), (1,), (1, 3))
    assert [a.dtype.name for a in (tokens, accepted, logprob)] == ["int64", "int64", "float32"]
    n = int(accepted[0]) + 1
    assert np.asarray(found.top_ids).shape == np.asarray(found.top_logprobs).shape == (1, 3, 4)
    assert np.asarray(found.top_ids)[0, :n, 0].tolist() == tokens[0, :n].tolist()
    assert (np.asarray(found.top_ids)[0, n:] == -1).all()
    assert (np.asarray(found.top_logprobs)[0, n:] == -INF).all()
    plain = reference.verify(hidden, model[1].astype(np.float32), [[0, 0]], logprobs=None)
    assert (plain.logprob, plain.top_ids, plain.top_logprobs) == (None, None, None)


@pytest.mark.parametrize("with_model", [False, True])
def test_nothing_to_check(model: tuple[NDArray[Any], NDArray[Any]], with_model: bool) -> None:
    states, weight = model
    of_drafts: dict[str, Any] = {"draft_hidden": states[:0], "draft_weight": weight} if with_model else {}
    one = reference.verify(states[3:4], weight, [], seed=4, position=9, **of_drafts)
    drawn = reference.logits_sample(states[3], weight, seed=4, position=9).token
    assert [one.tokens.tolist(), int(one.accepted)] == [[int(drawn)], 0]
    of_drafts = {"draft_hidden": np.zeros((0, 2, D)), "draft_weight": weight} if with_model else {}
    none = reference.verify(np.zeros((0, 3, D)), weight, np.zeros((0, 2), int), **of_drafts)
    assert (none.tokens.shape, none.accepted.shape) == ((0, 3), (0,))


# ---- with the draft model's distribution ---------------------------------------------------------------------------


def test_equal_models_accept_everything(model: tuple[NDArray[Any], NDArray[Any]], rng: np.random.Generator) -> None:
    hidden = rng.standard_normal((50, 4, D))
    options: dict[str, Any] = {"top_p": 0.9, "temperature": 0.8}
    drafts = reference.logits_sample(hidden[:, :3], model[1], seed=99, **options).token
    found = reference.verify(
        hidden, model[1], drafts, draft_hidden=hidden[:, :3], draft_weight=model[1], seed=1, **options
    )
    assert (found.accepted == 3).all()
    assert found.tokens[:, :3].tolist() == drafts.tolist()
    bonus = reference.verify(hidden, model[1], drafts, seed=1, **options)
    same = bonus.accepted == 3
    assert found.tokens[same].tolist() == bonus.tokens[same].tolist()


def test_greedy_rows_are_decided_by_the_best_token(model: tuple[NDArray[Any], NDArray[Any]]) -> None:
    hidden = model[0][[1, 2, 3]]
    best = reference.logits(hidden, model[1]).argmax(axis=-1)
    far = -hidden[:2]
    draft = reference.logits_sample(far, model[1], temperature=0).token
    assert draft[0] != best[0]
    found = reference.verify(hidden, model[1], draft, draft_hidden=far, draft_weight=model[1], temperature=0)
    assert [found.tokens.tolist(), int(found.accepted)] == [[int(best[0]), -1, -1], 0]
    right = reference.verify(hidden, model[1], best[:2], draft_hidden=hidden[:2], draft_weight=model[1], temperature=0)
    assert [right.tokens.tolist(), int(right.accepted)] == [best.tolist(), 2]


def test_rejections_use_the_noise_of_their_positions(rng: np.random.Generator) -> None:
    n, seeds, positions = 40, np.arange(40), np.arange(40) * 2**40
    p, q = rng.dirichlet(np.ones(7), (n, 3)), rng.dirichlet(np.ones(7), (n, 2))
    drafts = reference.sample(np.log(q), seed=1234).token
    found = reference.verify(
        np.log(p), np.eye(7), drafts, draft_hidden=np.log(q), draft_weight=np.eye(7), seed=seeds, position=positions
    )
    own = reference.verify(np.log(p), np.eye(7), drafts, seed=seeds, position=positions).tokens
    assert set(found.accepted.tolist()) == {0, 1, 2}
    for s in range(n):
        for j in range(2):
            u = rejection_uniforms(np.array([s], np.uint64), np.array([s * 2**40 + j], np.uint64))[0]
            x = drafts[s, j]
            if u >= p[s, j, x] / q[s, j, x]:
                break
            assert found.tokens[s, j] == x
        else:
            assert found.accepted[s] == 2
            bonus = reference.sample(np.log(p[s, 2]), seed=s, position=s * 2**40 + 2).token
            assert found.tokens[s, 2] == bonus
            continue
        assert found.accepted[s] == j
        with np.errstate(divide="ignore"):
            residual = np.log(np.maximum(p[s, j] - q[s, j], 0))
        assert found.tokens[s, j] == reference.sample(residual, seed=s, position=s * 2**40 + j).token
    assert (found.tokens != own).any()


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 0.7, "top_k": 4, "logprobs": "processed"}],
    ids=["plain", "filtered"],
)
def test_the_targets_distribution_is_preserved(options: dict[str, Any]) -> None:
    n = 2500
    p = np.array([[0.4, 0.3, 0.15, 0.1, 0.05], [0.05, 0.15, 0.2, 0.5, 0.1], [0.2] * 5])
    q = np.array([[0.1, 0.2, 0.4, 0.1, 0.2], [0.3, 0.3, 0.1, 0.1, 0.2]])
    hidden, draft_hidden = np.tile(np.log(p), (n, 1, 1)), np.tile(np.log(q), (n, 1, 1))
    draft_options = {name: value for name, value in options.items() if name != "logprobs"}
    drafts = reference.sample(draft_hidden, seed=1234, logprobs=None, **draft_options).token
    found = reference.verify(
        hidden, np.eye(5), drafts, draft_hidden=draft_hidden, draft_weight=np.eye(5), seed=77, **options
    )
    t, k = options.get("temperature", 1.0), options.get("top_k", 5)
    processed = []
    for row in (*p, *q):
        mass = row ** (1 / t)
        mass[np.argsort(-row, kind="stable")[k:]] = 0
        processed.append(mass / mass.sum())
    assert found.logprob is not None
    for j in range(3):
        reached = found.accepted >= j
        tokens, m = found.tokens[reached, j], int(reached.sum())
        counts, expected = np.bincount(tokens, minlength=5), m * processed[j]
        assert (np.abs(counts - expected) <= 4 * np.sqrt(expected * (1 - processed[j]))).all(), (j, counts, expected)
        if options.get("logprobs") == "processed":
            np.testing.assert_allclose(found.logprob[reached, j], np.log(processed[j][tokens]), rtol=1e-12)
    # A draft is accepted as often as it can be: with the overlap of both distributions.
    for j, reached in ((0, np.full(n, True)), (1, found.accepted >= 1)):
        m, overlap = int(reached.sum()), np.minimum(processed[j], processed[j + 3]).sum()
        assert abs((found.accepted[reached] > j).sum() - m * overlap) <= 4 * math.sqrt(m * overlap * (1 - overlap))


# ---- what is refused -----------------------------------------------------------------------------------------------

H, W = np.zeros((2, 4, D)), np.zeros((V, D))
IDS = np.zeros((2, 3), int)
REFUSED: list[tuple[Callable[[], object], type[Exception], str]] = [
    (
        lambda: reference.verify(H[0, 0], W, IDS),
        ValueError,
        "hidden: expected shape (..., K + 1, D) with K of at least 0",
    ),
    (
        lambda: reference.verify(H[:, :0], W, IDS),
        ValueError,
        "hidden: expected shape (..., K + 1, D) with K of at least 0",
    ),
    (
        lambda: reference.verify(H, W, IDS[:, :2]),
        ValueError,
        "draft_tokens: expected shape (2, 3), a token less than hidden of shape (2, 4, 6) has positions, got shape",
    ),
    (lambda: reference.verify(H, W, IDS * 1.0), TypeError, "draft_tokens: expected an integer dtype, got float64"),
    (
        lambda: reference.verify(H, W, np.array([[0, 0, 0], [0, V, 0]])),
        IndexError,
        "draft_tokens: expected an id from 0 to V - 1 = 22, got 23 at position (1, 1)",
    ),
    (
        lambda: reference.verify(H, W, IDS, temperature=[1.0] * 8),
        ValueError,
        "temperature: expected a number or shape (2,), one for each sequence of hidden of shape (2, 4, 6), got shape",
    ),
    (
        lambda: reference.verify(H, W, IDS, temperature=[1.0, -1.0]),
        ValueError,
        "temperature: expected >= 0 and finite, got -1.0 in row (1, 0)",
    ),
    (
        lambda: reference.verify(H, W, IDS, seed=[1, -1]),
        ValueError,
        "seed: expected an integer from 0 to 2^64 - 1, got -1 in sequence 1",
    ),
    (
        lambda: reference.verify(H, W, IDS, position=2**64 - 3),
        ValueError,
        "position: expected an integer from 0 to 18446744073709551612, got 18446744073709551613",
    ),
    (
        lambda: reference.verify(H, W, IDS, history=[1, 2]),
        ValueError,
        "history: expected a list of 2, one for each sequence of hidden of shape (2, 4, 6), got 1",
    ),
    (
        lambda: reference.verify(H, W, IDS, logit_bias=[{}] * 3),
        ValueError,
        "logit_bias: expected a list of 2, one for each",
    ),
    (
        lambda: reference.verify(H, W, IDS, output=[[1], [V]]),
        IndexError,
        "output: expected an id from 0 to V - 1 = 22, got 23 at position 0 in row (1, 0)",
    ),
    (
        lambda: reference.verify(H, W, IDS, draft_hidden=H[:, :3]),
        ValueError,
        "draft_weight: expected an array beside draft_hidden, got None",
    ),
    (
        lambda: reference.verify(H, W, IDS, draft_weight=W),
        ValueError,
        "draft_hidden: expected an array beside draft_weight, got None",
    ),
    (
        lambda: reference.verify(H, W, IDS, draft_hidden=H, draft_weight=W),
        ValueError,
        "draft_hidden: expected shape (2, 3, E), a state for each draft, got shape (2, 4, 6)",
    ),
    (
        lambda: reference.verify(H, W, IDS, draft_hidden=H[:, :3], draft_weight=W[:5]),
        ValueError,
        "draft_weight: expected V = 23 rows as weight has, got shape (5, 6)",
    ),
    (
        lambda: reference.verify(H, W, IDS, draft_hidden=H[:, :3], draft_weight=W.T),
        ValueError,
        "draft_weight: expected shape (V, D) with D = 6 as in draft_hidden of shape (2, 3, 6), got shape (6, 23)",
    ),
    (
        lambda: reference.verify(H + np.array([0, np.nan])[:, None, None], W, IDS),
        ValueError,
        "hidden: expected finite logits to draw from in row (1, 0), got NaN",
    ),
    (lambda: reference.verify(H, W, IDS, threads=0), ValueError, "threads: expected"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED, ids=[m for _, _, m in REFUSED])
def test_refusals(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        call()
