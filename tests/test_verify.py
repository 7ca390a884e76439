"""Drafted tokens checked by the native sampler, against the reference and against draws one step at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lmhead_native as native
from lmhead_native import reference

D, E = 12, 5


def operands(rng: np.random.Generator, sequences: int, k: int, vocabulary: int) -> tuple[Any, Any, Any]:
    hidden = rng.standard_normal((sequences, k + 1, D), dtype=np.float32)
    weight = rng.standard_normal((vocabulary, D), dtype=np.float32)
    return hidden, weight, rng.integers(0, vocabulary, (sequences, k))


def options_of(rng: np.random.Generator, sequences: int, vocabulary: int) -> dict[str, Any]:
    """Make options of a draw, some of them one for each sequence."""
    options: dict[str, Any] = {
        "seed": int(rng.integers(2**40)),
        "position": int(rng.integers(100)),
        "temperature": float(rng.choice([0, 0.3, 1, 2])),
        "top_k": int(rng.choice([0, 1, 5])),
        "top_p": rng.choice([1, 0.9, 0.5], sequences),
        "min_p": float(rng.choice([0, 0.05])),
        "order": str(rng.choice(["hf", "vllm", "llama.cpp"])),
        "logprobs": str(rng.choice(["raw", "processed"])),
        "top_n": int(rng.choice([0, 2])),
    }
    if rng.random() < 0.5:
        options |= {"repetition_penalty": 1.3, "history": [rng.integers(0, vocabulary, 3) for _ in range(sequences)]}
    if rng.random() < 0.3:
        options |= {"presence_penalty": 0.5, "output": [rng.integers(0, vocabulary, 2) for _ in range(sequences)]}
    if rng.random() < 0.3:
        options |= {"logit_bias": {0: 1.5}}
    if rng.random() < 0.3:
        options |= {"allowed_ids": rng.integers(0, vocabulary, 4)}
    return options


@pytest.mark.parametrize("seed", range(60))
def test_it_agrees_with_the_reference(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sequences, k, vocabulary = (int(rng.integers(low, high)) for low, high in ((1, 4), (0, 5), (2, 40)))
    hidden, weight, drafts = operands(rng, sequences, k, vocabulary)
    options = options_of(rng, sequences, vocabulary)
    if seed % 2:
        options["draft_hidden"] = rng.standard_normal((sequences, k, E), dtype=np.float32)
        options["draft_weight"] = rng.standard_normal((vocabulary, E), dtype=np.float32)
    found = native.verify(hidden, weight, drafts, **options)
    expected = reference.verify(hidden, weight, drafts, **options)
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    np.testing.assert_array_equal(found.accepted, expected.accepted)
    np.testing.assert_allclose(found.logprob, expected.logprob, rtol=1e-5, atol=1e-5)
    if options["top_n"]:
        np.testing.assert_array_equal(found.top_ids, expected.top_ids)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.5])
def test_drafts_save_time_and_change_nothing(each_isa: str, threads: int, temperature: float) -> None:
    """Tokens are bit for bit those of one step after the other, whatever was drafted."""
    rng = np.random.default_rng(1)
    k, vocabulary = 6, 300
    hidden, weight, _ = operands(rng, 1, k, vocabulary)
    options: dict[str, Any] = {"temperature": temperature, "top_p": 0.9, "repetition_penalty": 1.2, "threads": threads}
    prompt: list[int] = [3, 5]
    alone: list[int] = []
    logprobs: list[Any] = []
    for j in range(k + 1):
        step = native.logits_sample(hidden[0, j], weight, seed=9, position=40 + j, history=prompt + alone, **options)
        alone.append(int(step.token))
        logprobs.append(step.logprob)
    for wrong in (*range(k), None):
        drafts = np.array(alone[:k])
        if wrong is not None:
            drafts[wrong] = (drafts[wrong] + 1) % vocabulary
        found = native.verify(hidden[0], weight, drafts, seed=9, position=40, history=prompt, **options)
        right = k if wrong is None else wrong
        assert found.accepted == right
        np.testing.assert_array_equal(found.tokens, alone[: right + 1] + [-1] * (k - right))
        np.testing.assert_array_equal(found.logprob[: right + 1], logprobs[: right + 1])


@pytest.mark.parametrize("dtype", [np.uint64, np.int8, np.uint16])
def test_histories_of_any_integers(dtype: Any) -> None:
    rng = np.random.default_rng(6)
    hidden, weight, drafts = operands(rng, 1, 3, 30)
    given: dict[str, Any] = {"seed": 1, "repetition_penalty": 1.5, "presence_penalty": 0.5}
    ids = np.array([3, 7, 7])
    expected = native.verify(hidden, weight, drafts, history=[ids], output=[ids[:2]], **given)
    found = native.verify(hidden, weight, drafts, history=[ids.astype(dtype)], output=[ids[:2].astype(dtype)], **given)
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    with pytest.raises(IndexError, match=r"^output: .*got 18446744073709551615 at position 1"):
        native.verify(hidden, weight, drafts, output=[np.array([1, 2**64 - 1], np.uint64)], **given)


def test_a_top_k_beyond_64_bits_is_off() -> None:
    rng = np.random.default_rng(7)
    hidden, weight, drafts = operands(rng, 2, 3, 30)
    draft: dict[str, Any] = {"draft_hidden": hidden[:, :3], "draft_weight": weight, "seed": 2}
    found = native.verify(hidden, weight, drafts, top_k=2**70, **draft)
    np.testing.assert_array_equal(found.tokens, native.verify(hidden, weight, drafts, **draft).tokens)


def test_a_pruned_head_has_full_ids() -> None:
    rng = np.random.default_rng(2)
    hidden, weight, _ = operands(rng, 3, 4, 50)
    ids = np.sort(rng.choice(50, 20, replace=False))
    drafts = ids[rng.integers(0, 20, (3, 4))]
    draft: dict[str, Any] = {"draft_hidden": rng.standard_normal((3, 4, E), dtype=np.float32)}
    draft_weight = rng.standard_normal((50, E), dtype=np.float32)
    full = native.verify(hidden, weight, drafts, seed=1, allowed_ids=ids, draft_weight=draft_weight, **draft)
    pruned = native.verify(hidden, weight[ids], drafts, seed=1, vocab_ids=ids, draft_weight=draft_weight[ids], **draft)
    for found, expected in zip(pruned, full, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("logprobs", ["raw", "processed", None])
def test_a_sequence_alone_is_that_of_a_batch(logprobs: str | None) -> None:
    rng = np.random.default_rng(5)
    hidden, weight, drafts = operands(rng, 1, 3, 20)
    draft: dict[str, Any] = {"draft_weight": rng.standard_normal((20, E), dtype=np.float32), "logprobs": logprobs}
    states = rng.standard_normal((1, 3, E), dtype=np.float32)
    alone = native.verify(hidden[0], weight, drafts[0], draft_hidden=states[0], seed=1, **draft)
    batch = native.verify(hidden, weight, drafts, draft_hidden=states, seed=1, **draft)
    np.testing.assert_array_equal(alone.tokens, batch.tokens[0])
    if logprobs:
        np.testing.assert_array_equal(alone.logprob, batch.logprob[0])


def test_a_draft_equal_to_the_target_is_always_accepted() -> None:
    rng = np.random.default_rng(3)
    hidden, weight, drafts = operands(rng, 5, 3, 30)
    found = native.verify(hidden, weight, drafts, draft_hidden=hidden[:, :3], draft_weight=weight, seed=2)
    np.testing.assert_array_equal(found.accepted, 3)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"draft_tokens": np.zeros((2, 3), int)}, ValueError, r"draft_tokens: expected shape \(2, 4\)"),
        ({"draft_tokens": np.full((2, 4), 30)}, IndexError, r"draft_tokens: .*got 30 at position \(0, 0\)"),
        ({"draft_tokens": np.zeros((2, 4))}, TypeError, "draft_tokens: expected an integer dtype"),
        ({"draft_hidden": np.zeros((2, 4, E), "f")}, ValueError, "draft_weight: expected an array beside draft_hidden"),
        ({"draft_weight": np.zeros((30, E), "f")}, ValueError, "draft_hidden: expected an array beside draft_weight"),
        ({"temperature": [1, np.nan]}, ValueError, "temperature: "),
        ({"position": 2**64 - 3}, ValueError, "position: "),
        ({"hidden": np.full((2, 5, D), np.nan, "f")}, ValueError, "hidden: expected finite logits to draw from"),
        (
            {"draft_hidden": np.full((2, 4, E), np.inf, "f"), "draft_weight": np.ones((30, E), "f")},
            ValueError,
            "draft_hidden: expected finite logits to draw from",
        ),
    ],
)
def test_what_is_refused(change: dict[str, Any], error: type[Exception], message: str) -> None:
    rng = np.random.default_rng(4)
    hidden, weight, drafts = operands(rng, 2, 4, 30)
    given: dict[str, Any] = {"hidden": hidden, "weight": weight, "draft_tokens": drafts} | change
    with pytest.raises(error, match=message):
        native.verify(**given)
