"""What the two endpoints are asked for: a token to be drawn, a text to be scored. All of it is checked here.

Knows: names and defaults of the fields (OpenAI's where it has them), and limits. Refuses to know: HTTP, other requests.
A request that has been read does not fail later for its parameters, so that it cannot spoil the batch it goes into.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lmhead_native as native

from .fields import Fields

# Fields of OpenAI's that say nothing to one head: taken and not looked at.
NOT_USED = ("model", "user")
IGNORED = -100


@dataclass(frozen=True)
class Limits:
    """What one request may bring, and how many may wait."""

    body_bytes: int = 8 << 20
    states: int = 2048
    ids: int = 32768
    top_logprobs: int = 20
    queued: int = 1024
    seconds: float = 30.0


@dataclass(frozen=True, eq=False)
class NextRequest:
    """One token to be drawn, by every parameter of `logits_sample` that may differ from row to row."""

    hidden: NDArray[np.float32]
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    logit_bias: dict[int, float] | None
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    history: NDArray[np.int64] | None
    output: NDArray[np.int64] | None
    allowed_words: NDArray[np.uint32] | None
    seed: int
    position: int
    logprobs: bool
    top_logprobs: int

    @classmethod
    def read(cls, body: object, shape: tuple[int, int], limits: Limits) -> NextRequest:
        """Read the body of ``POST /v1/next`` for a head of that shape (V, D).

        Raises
        ------
        ValueError, TypeError, IndexError
            In the library's form; the sentence begins with the field's name.
        """
        vocabulary, width = shape
        fields = Fields(body)
        hidden = fields.states("hidden", width, None)
        parameters: dict[str, Any] = {
            "temperature": fields.number("temperature", 1.0),
            "top_k": fields.integer("top_k", 0),
            "top_p": fields.number("top_p", 1.0),
            "min_p": fields.number("min_p", 0.0),
            "typical_p": fields.number("typical_p", 1.0),
            "repetition_penalty": fields.number("repetition_penalty", 1.0),
            "presence_penalty": fields.number("presence_penalty", 0.0),
            "frequency_penalty": fields.number("frequency_penalty", 0.0),
            "seed": fields.integer("seed", secrets.randbits(64)),
            "position": fields.integer("position", 0),
        }
        # The library's ranges in the library's words, of no rows at all: nothing is computed.
        native.sample(np.empty((0, vocabulary), np.float32), **parameters)
        logit_bias = fields.biases("logit_bias", vocabulary, limits.ids)
        history = fields.ids("history", vocabulary, limits.ids)
        output = fields.ids("output", vocabulary, limits.ids)
        for name in ("presence_penalty", "frequency_penalty"):
            if parameters[name] != 0 and output is None:
                expected = f"the ids generated so far, which {name} counts"
                raise ValueError(f"output: expected {expected}, got none; send [] before the first")
        allowed = fields.ids("allowed_ids", vocabulary, vocabulary)
        logprobs, top_logprobs = read_alternatives(fields, limits, vocabulary)
        read_rest(fields)
        parameters["top_k"] = min(parameters["top_k"], vocabulary)  # which is off, and fits in 64 bits
        return cls(
            hidden=hidden,
            logit_bias=logit_bias,
            history=history,
            output=output,
            allowed_words=None if allowed is None else bit_mask(allowed, vocabulary),
            logprobs=logprobs,
            top_logprobs=top_logprobs,
            **parameters,
        )


@dataclass(frozen=True, eq=False)
class ScoreRequest:
    """A text to be scored: the state at t predicts the id at ``t + shift``."""

    hidden: NDArray[np.float32]
    ids: NDArray[np.int64]
    shift: int
    top_logprobs: int

    @classmethod
    def read(cls, body: object, shape: tuple[int, int], limits: Limits) -> ScoreRequest:
        """Read the body of ``POST /v1/score``; raises as `NextRequest.read`."""
        vocabulary, width = shape
        fields = Fields(body)
        hidden = fields.states("hidden", width, limits.states)
        ids = fields.ids("ids", vocabulary, limits.states, ignored=IGNORED)
        if ids is None or len(ids) != len(hidden):
            got = "none" if ids is None else str(len(ids))
            raise ValueError(f"ids: expected one id for each of the {len(hidden)} states of hidden, got {got}")
        shift = fields.integer("shift", 1)
        if shift not in (0, 1):
            raise ValueError(f"shift: expected 1 for ids of the text itself or 0 for targets, got {shift}")
        logprobs, top_logprobs = read_alternatives(fields, limits, vocabulary, default=True)
        if not logprobs:
            raise ValueError("logprobs: expected true, as they are what scoring is for, got false")
        read_rest(fields)
        return cls(hidden, ids, shift, top_logprobs)


def read_alternatives(fields: Fields, limits: Limits, vocabulary: int, default: bool = False) -> tuple[bool, int]:
    """Read ``logprobs`` and ``top_logprobs``, of which the second needs the first."""
    logprobs, top_logprobs = fields.flag("logprobs", default), fields.integer("top_logprobs", 0)
    most = min(limits.top_logprobs, vocabulary)
    if not 0 <= top_logprobs <= most:
        raise ValueError(f"top_logprobs: expected an integer from 0 to {most}, got {top_logprobs}")
    if top_logprobs and not logprobs:
        raise ValueError(f"top_logprobs: expected logprobs to be true beside it, got {top_logprobs} without")
    return logprobs, top_logprobs


def read_rest(fields: Fields) -> None:
    """Pass over what other servers need, and refuse the rest."""
    for name in NOT_USED:
        fields.take(name)
    fields.finish()


def bit_mask(allowed: NDArray[np.int64], vocabulary: int) -> NDArray[np.uint32]:
    """Set a bit for each allowed id, as `mask` of the library wants them."""
    if allowed.size == 0:
        raise ValueError("allowed_ids: expected at least one id, got none")
    bits = np.zeros(-(-vocabulary // 32) * 32, np.uint8)
    bits[allowed] = 1
    return np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32, copy=False)
