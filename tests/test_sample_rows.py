"""A row's draw is its own: the same in every batch, layout, mask and head, and from fused or given logits."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

import lmhead_native as native
import oracle
from lmhead_native import _core
from sample_checks import keywords
from sample_oracle import Parameters, assert_same

pytestmark = pytest.mark.usefixtures("each_isa")

INF, NAN = np.inf, np.nan
SCREENS: tuple[Literal["int8"], None] = ("int8", None)
every_dtype = pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)


# ---- one row, one draw ---------------------------------------------------------------------------------------------


def mixed(n: int) -> list[Parameters]:
    """Return rows as different as a continuous batch has them."""
    kinds = [
        Parameters(temperature=0.0),
        Parameters(temperature=0.8),
        Parameters(temperature=1.0, top_k=40),
        Parameters(temperature=1.0, logit_bias={3: 2.0}, history=(1, 2, 3), repetition_penalty=1.2),
        Parameters(temperature=2.5, top_k=1),
        Parameters(temperature=0.8, top_p=0.9),
        Parameters(temperature=0.9, min_p=0.05, output=(4, 4), frequency_penalty=0.5),
    ]
    return [replace(kinds[i % len(kinds)], seed=1000 + i, position=i) for i in range(n)]


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), oracle.BFLOAT16, np.dtype(np.float64)], ids=str)
def test_a_row_is_the_same_everywhere(dtype: np.dtype[Any]) -> None:
    """Alone and at places 0, 5 and 63 of a batch with other rows around it, with 1 to 3 threads, fused and not."""
    rng = np.random.default_rng(8)
    hidden = rng.standard_normal((64, 12)).astype(dtype)
    weight = rng.standard_normal((530, 12)).astype(dtype)
    logits = native.logits(hidden, weight)
    for mine in (
        Parameters(temperature=0.8),
        Parameters(temperature=0.8, top_k=40),
        Parameters(top_p=0.9),
        Parameters(temperature=0.0),
    ):
        p = replace(mine, seed=0, position=7)
        alone = native.sample(logits[9], temperature=p.temperature, top_k=p.top_k, top_p=p.top_p, seed=0, position=7)
        for place, threads in itertools.product((0, 5, 63), (1, 2, 3)):
            rows, states = mixed(64), hidden.copy()
            rows[place], states[place] = p, hidden[9]
            drawn = native.logits_sample(states, weight, **keywords(rows), threads=threads)
            assert drawn.logprob is not None
            assert alone.logprob is not None
            assert drawn.token[place] == alone.token
            assert_same(drawn.logprob[place], alone.logprob)


@every_dtype
def test_fused_is_sample_of_logits(threads: int, dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(9)
    for rows, vocabulary, width in [(1, 5, 3), (2, 257, 16), (17, 700, 19), (70, 300, 5)]:
        hidden = rng.standard_normal((rows, width)).astype(dtype)
        weight = rng.standard_normal((vocabulary, width)).astype(dtype)
        options: list[dict[str, Any]] = [
            {},
            {"bias": rng.standard_normal(vocabulary), "softcap": 3.0, "scale": -2.0},
        ]
        for option, (logprobs, top_n) in itertools.product(options, [("raw", 4), ("processed", 3), (None, 0)]):
            given: dict[str, Any] = keywords(mixed(rows)) | {"logprobs": logprobs, "top_n": top_n}
            expected = native.sample(native.logits(hidden, weight, **option), threads=1, **given)
            for w in (weight, np.asfortranarray(weight)):
                drawn = native.logits_sample(hidden, w, **option, threads=threads, **given)
                for a, b in zip(drawn.__getnewargs__(), expected.__getnewargs__(), strict=True):
                    assert_same(a, b)


def test_raw_is_the_loss(threads: int) -> None:
    """The log-probability of the drawn token is the negated cross entropy, to the bit."""
    rng = np.random.default_rng(10)
    hidden, weight = rng.standard_normal((40, 30)).astype("f4"), rng.standard_normal((800, 30)).astype("f4")
    drawn = native.logits_sample(hidden, weight, **keywords(mixed(40)), threads=threads)
    loss = native.linear_cross_entropy(hidden, weight, drawn.token, reduction="none")
    assert_same(drawn.logprob, -loss)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_small_rest_is_not_lost(threads: int, dtype: Any) -> None:
    """The log-probability of what is nearly certain is -log1p(rest), whatever keeps the rest."""
    few = np.array([[0.0, -60.0, -100.0]], dtype)
    many = np.array([[0.0] + [-26.7] * 4000 + [-80.0]], dtype)
    cases: list[tuple[Any, float, list[dict[str, Any]]]] = [
        (few, math.exp(-60), [{}, {"top_k": 2}, {"min_p": 1e-30}]),
        (many, 4000 * math.exp(float(many[0, 1])), [{}, {"top_k": 4001}, {"min_p": 1e-13}]),
    ]
    for logits, rest, some in cases:
        for given in some:
            drawn = native.sample(logits, seed=1, logprobs="processed", threads=threads, **given)
            assert drawn.token[0] == 0
            np.testing.assert_allclose(drawn.logprob, -math.log1p(rest), rtol=1e-6 if dtype is np.float32 else 1e-12)


def test_layouts() -> None:
    logits = np.random.default_rng(11).standard_normal((6, 2, 400)).astype("f4")
    given: dict[str, Any] = {"seed": 5, "temperature": 0.9, "top_k": np.array([0, 7] * 6).reshape(6, 2)}
    expected = native.sample(logits, **given)
    views = [
        np.repeat(logits, 2, axis=-1)[..., ::2],
        logits[:, :, ::-1].copy()[:, :, ::-1],
        logits.astype(">f4"),
        np.asfortranarray(logits),
    ]
    for view in views:
        drawn = native.sample(view, **given)
        np.testing.assert_array_equal(drawn.token, expected.token)
        assert_same(drawn.logprob, expected.logprob)
    before = logits.copy()
    native.sample(logits, **given, logit_bias={3: 5.0})
    np.testing.assert_array_equal(logits, before)


# ---- ids that are allowed ------------------------------------------------------------------------------------------


@every_dtype
def test_masks(threads: int, dtype: np.dtype[Any]) -> None:
    """A draw under a mask is that of a row with -inf elsewhere, whatever stands there; and that of a pruned head."""
    rng = np.random.default_rng(18)
    vocabulary, width = 1000, 24
    hidden = rng.standard_normal((14, width)).astype(dtype)
    weight = rng.standard_normal((vocabulary, width)).astype(dtype)
    for share in (0.9, 0.02):
        shared = np.flatnonzero(rng.random(vocabulary) < share)
        lists = [np.flatnonzero(rng.random(vocabulary) < share) for _ in hidden]
        for allowed in ([shared] * len(hidden), lists):
            logits = native.logits(hidden, weight)
            plain = np.full_like(logits, -INF)
            poisoned = np.full_like(logits, NAN)
            for row, ids in enumerate(allowed):
                plain[row, ids] = poisoned[row, ids] = logits[row, ids]
            one = shared if allowed[0] is shared else allowed
            given: dict[str, Any] = keywords(mixed(len(hidden))) | {"top_n": 30, "threads": threads}
            expected = native.sample(plain, **given)
            bad = weight.copy()
            bad[np.setdiff1d(np.arange(vocabulary), np.concatenate(allowed))] = NAN
            answers = [
                native.sample(poisoned, allowed_ids=one, **given),
                native.logits_sample(hidden, bad, allowed_ids=one, **given),
            ]
            if allowed[0] is shared:
                pruned = native.logits_sample(hidden, weight[shared], vocab_ids=shared, **given)
                full = native.logits_sample(
                    hidden, weight, allowed_ids=np.intersect1d(shared, np.arange(shared[-1] + 1)), **given
                )
                answers += [pruned, full]
            for drawn in answers:
                np.testing.assert_array_equal(drawn.token, expected.token)
                assert_same(drawn.logprob, expected.logprob)
                assert drawn.top_ids is not None
                assert drawn.top_logprobs is not None
                assert_same(drawn.top_logprobs, expected.top_logprobs)
                for row, ids in enumerate(allowed):
                    listed = min(30, len(ids))
                    assert np.isin(drawn.top_ids[row, :listed], ids).all()
                    assert (drawn.top_ids[row, listed:] == -1).all()


def test_nothing_allowed() -> None:
    logits = np.zeros((3, 70), "f4")
    mask = np.full((3, 3), -1, np.int32)
    mask[1] = 0
    some: list[dict[str, Any]] = [{}, {"temperature": 0.0}, {"top_k": 3}, {"top_p": 0.5}]
    for given in some:
        with pytest.raises(ValueError, match=r"^mask: expected an allowed id in row 1, got none$"):
            native.sample(logits, mask=mask, **given)
        with pytest.raises(ValueError, match=r"^allowed_ids: expected an allowed id in row 2, got none$"):
            native.sample(logits, allowed_ids=[[1], [2], []], **given)


# ---- prepared heads ------------------------------------------------------------------------------------------------


def test_a_screened_head_draws_the_same_tokens_by_min_p(threads: int) -> None:
    """Rows of which 1 to all ids are kept, so that short lists suffice for some of a call's rows and not for others."""
    rng = np.random.default_rng(20)
    hidden = (rng.standard_normal((12, 40)) * np.geomspace(0.01, 3, 12)[:, None]).astype("f4")
    weight = rng.standard_normal((3000, 40)).astype("f4")
    logits = native.logits(hidden, weight)
    heads = [native.LMHead(weight, screen=screen) for screen in SCREENS]
    some: list[dict[str, Any]] = [
        {"min_p": np.geomspace(1e-3, 0.9, 12), "temperature": 0.7},
        {"min_p": 0.05, "typical_p": 0.9},
        {"min_p": 0.05, "top_p": 0.9, "typical_p": 0.8, "order": "vllm"},
        {"min_p": 0.05, "temperature": 1.3, "order": "llama.cpp"},
        {"min_p": 0.05, "top_p": 0.9, "order": "llama.cpp"},  # needs all logits, like the next
        {"min_p": 0.05, "top_p": 0.9},
        {"min_p": 0.05, "temperature": [0, 1] * 6, "top_k": [0, 0, 5] * 4},
        {"min_p": 0.05, "top_k": 100},
    ]
    for given in some:
        kept = [len(ids) for ids, *_ in _core.kept_ids(logits, **given)]
        assert min(kept) < 64 < max(kept)
        expected = native.logits_sample(hidden, weight, seed=8, logprobs=None, **given)
        for head in heads:
            drawn = head.sample(hidden, seed=8, threads=threads, logprobs=None, **given)
            np.testing.assert_array_equal(drawn.token, expected.token)


def test_a_screened_head_reads_only_what_it_needs() -> None:
    """Rows of the weight that a draw cannot keep are spoiled after the screen was made: nobody looks at them."""
    rng = np.random.default_rng(21)
    hidden = rng.standard_normal((2, 64)).astype("f4")
    weight = rng.standard_normal((20_000, 64)).astype("f4")
    head = native.LMHead(weight, screen="int8", prepare=False)
    read = head.topk(hidden, 64)
    some: list[dict[str, Any]] = [{"temperature": 0.0}, {"top_k": 64}, {"min_p": 0.3}]
    expected = [native.logits_sample(hidden, weight, seed=2, logprobs=None, **given).token for given in some]
    spared = np.unique(native.logits_topk(hidden, weight, 4000).indices)
    assert read.rescored.max() < 4000  # type: ignore[attr-defined]
    spoiled = np.setdiff1d(np.arange(len(weight)), spared)
    weight[spoiled] = NAN
    for given, tokens in zip(some, expected, strict=True):
        np.testing.assert_array_equal(head.sample(hidden, seed=2, logprobs=None, **given).token, tokens)
        with pytest.raises(ValueError, match=r"NaN$"):
            native.logits_sample(hidden, weight, seed=2, logprobs=None, **given)


@pytest.mark.parametrize("n", [2, 5, 12])
def test_a_screened_head_over_subnormals(n: int, threads: int) -> None:
    """Few rows of a call meet a (D, V) weight of bfloat16 in other kernels than many, whose subnormals differ."""
    rng = np.random.default_rng(22)
    hidden = (rng.standard_normal((n, 32)) * 1e-19).astype(oracle.BFLOAT16)
    weight = (rng.standard_normal((4000, 32)) * 1e-20).astype(oracle.BFLOAT16)
    turned = np.asfortranarray(weight)
    head = native.LMHead(turned, screen="int8", prepare=False)
    for seed in range(20):
        given: dict[str, Any] = {"temperature": [2e-38, *[0.0] * (n - 1)], "min_p": 1e-30, "seed": seed}
        given["logprobs"] = None
        expected = native.logits_sample(hidden, turned, **given)
        np.testing.assert_array_equal(head.sample(hidden, threads=threads, **given).token, expected.token)


def test_a_screened_head_draws_the_same_tokens(threads: int) -> None:
    rng = np.random.default_rng(19)
    hidden = rng.standard_normal((6, 40)).astype("f4")
    weight = rng.standard_normal((3000, 40)).astype("f4")
    bias = rng.standard_normal(3000)
    heads = [native.LMHead(weight, bias, softcap=5.0, screen=screen) for screen in SCREENS]
    some: list[dict[str, Any]] = [
        {"temperature": [0.0, 0.8, 1.5, 0.0, 1.0, 2.0], "top_k": [0, 40, 64, 7, 1, 3], "logprobs": None},
        {"top_k": 40, "top_p": 0.8, "min_p": 0.02, "order": "vllm", "logprobs": None},
        {"temperature": 0.8},
        {"top_k": 40, "allowed_ids": [5, 6, 7], "logprobs": None},
        {"top_k": 40, "logit_bias": {5: 60.0}, "logprobs": None},
    ]
    for given in some:
        expected = native.logits_sample(hidden, weight, bias=bias, softcap=5.0, seed=8, **given)
        for head in heads:
            drawn = head.sample(hidden, seed=8, threads=threads, **given)
            np.testing.assert_array_equal(drawn.token, expected.token)
            assert_same(drawn.logprob, expected.logprob)
    hidden[3] = NAN
    for head in heads:
        with pytest.raises(ValueError, match=r"in row 3, got NaN$"):
            head.sample(hidden, temperature=0.0, logprobs=None)
        with pytest.raises(ValueError, match=r"in row 3, got NaN$"):
            head.sample(hidden, min_p=0.1, logprobs=None)
        with pytest.raises(TypeError, match=r"^softcap: expected no such option"):
            head.sample(hidden, softcap=1.0)
        with pytest.raises(TypeError, match=r"unexpected keyword argument .heat.$"):
            head.sample(hidden, heat=1.0)
