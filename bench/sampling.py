"""Contests on sampling: ``logits_sample`` beside ``logits_topk`` and PyTorch, ``sample`` of given logits.

Knows: the kinds of draws, how ours is called, what others do instead. Refuses to know: bars and clocks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import lmhead_native as native
from bench import answers, peers
from bench.contest import OURS, Contest
from bench.projection import K, hidden_states, others, roofs_of
from bench.projection import group as head_group
from bench.rows import group, logits_rows, title
from bench.setting import Setting
from bench.shapes import Array
from bench.timing import Racer
from lmhead_native.cli import peers as users
from lmhead_native.cli.workload import Shape

TEMPERATURE = 0.8
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "pure": {"temperature": TEMPERATURE},
    "top_k=40": {"temperature": TEMPERATURE, "top_k": 40},
    "top_p=0.95": {"temperature": TEMPERATURE, "top_p": 0.95},
    "min_p=0.05": {"temperature": TEMPERATURE, "min_p": 0.05},
}
SEED = 5


def logits_sample(setting: Setting, shape: Shape, dtype: str, rows: int, kind: str) -> Contest:
    """Set up one kind of draw from hidden states beside ``logits_topk`` and what PyTorch's users write."""
    hidden, weight = hidden_states(shape, dtype, rows), setting.weights.get(shape, dtype)
    call = partial(native.logits_sample, hidden, weight, seed=SEED, threads=setting.threads, **KINDS[kind])
    top_k = partial(native.logits_topk, hidden, weight, K, threads=setting.threads)
    theirs: dict[str, peers.Call] = {}
    if "torch" in setting.peers:
        torch = peers.module("torch")
        states, head = users.as_tensor(hidden), users.as_tensor(weight)
        draw = torch_draw(KINDS[kind])
        theirs["torch"] = lambda: draw(torch.nn.functional.linear(states, head).float())
    return Contest(
        f"logits_sample {kind} {dtype} {shape} N={rows}",
        head_group(shape, rows),
        [Racer(OURS, call, setting.threads), Racer("logits_topk", top_k, setting.threads), *others(theirs)],
        partial(check, hidden, weight, kind),
        roofs_of(setting, hidden, weight),
    )


def sample(setting: Setting, rows: int, vocabulary: int, kind: str) -> Contest:
    """Set up one kind of draw from logits that have just been computed."""
    logits = logits_rows(setting, rows, vocabulary)
    call = partial(native.sample, logits, seed=SEED, logprobs=None, threads=setting.threads, **KINDS[kind])
    theirs: dict[str, peers.Call] = {}
    if "torch" in setting.peers:
        theirs["torch"] = partial(torch_draw(KINDS[kind]), users.as_tensor(logits))
    if peers.module("transformers") is not None and "torch" in setting.peers and kind != "greedy":
        theirs["transformers"] = partial(transformers_draw(KINDS[kind]), users.as_tensor(logits))
    return Contest(
        title(f"sample {kind}", logits),
        group(logits),
        [Racer(OURS, call, setting.threads), *others(theirs)],
        partial(check_tokens, logits, kind),
    )


def check(hidden_nd: Array, weight_vd: Array, kind: str, drawn: native.Sample) -> None:
    """Assert the tokens that ``sample`` draws from logits that are themselves checked."""
    logits = native.logits(hidden_nd, weight_vd)
    answers.check_logits(hidden_nd, weight_vd, logits)
    check_tokens(logits, kind, drawn)


def check_tokens(logits_nv: Array, kind: str, drawn: native.Sample) -> None:
    """Assert the same tokens on one thread, and that the best token is the greedy one."""
    expected = native.sample(logits_nv, seed=SEED, threads=1, **KINDS[kind])
    np.testing.assert_array_equal(drawn.token, expected.token)
    if kind == "greedy":
        np.testing.assert_array_equal(drawn.token, logits_nv.argmax(axis=-1))


def torch_draw(kind: dict[str, Any]) -> Callable[[Any], object]:
    """Return softmax, sort, cumulative sum and ``multinomial``, as far as a kind needs them."""
    torch = peers.module("torch")
    temperature = kind["temperature"]

    def greedy(logits: Any) -> object:
        return torch.argmax(logits, dim=-1)

    def filtered(logits: Any) -> object:
        p = torch.softmax(logits / temperature, dim=-1)
        if "top_k" in kind:
            values, ids = torch.topk(p, kind["top_k"], dim=-1)
            return ids.gather(-1, torch.multinomial(values, 1))
        if "top_p" in kind:
            values, ids = torch.sort(p, dim=-1, descending=True)
            values = values.masked_fill(values.cumsum(-1) - values >= kind["top_p"], 0.0)
            return ids.gather(-1, torch.multinomial(values, 1))
        if "min_p" in kind:
            p = p.masked_fill(p < kind["min_p"] * p.amax(-1, keepdim=True), 0.0)
        return torch.multinomial(p, 1)

    return greedy if temperature == 0 else filtered


def transformers_draw(kind: dict[str, Any]) -> Callable[[Any], object]:
    """Return Hugging Face's processors and the draw of its ``generate``."""
    torch, package = peers.module("torch"), peers.module("transformers")
    makers = {
        "temperature": package.TemperatureLogitsWarper,
        "top_k": package.TopKLogitsWarper,
        "top_p": package.TopPLogitsWarper,
        "min_p": package.MinPLogitsWarper,
    }
    processors = package.LogitsProcessorList([makers[name](value) for name, value in kind.items()])

    def draw(logits: Any) -> object:
        scores = processors(None, logits)
        return torch.multinomial(torch.softmax(scores, dim=-1), 1)

    return draw
