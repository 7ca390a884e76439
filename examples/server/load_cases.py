"""What the load test asks, and what the library answers to each alone.

Knows: requests of every kind of parameter, and the head's methods called for one row at a time. Refuses to know:
servers. It shares no code with the server, so that a mistake there is no mistake here.
"""

from __future__ import annotations

import base64
import importlib.resources
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmhead_native import LMHead

CASES = 640
TEXT_LENGTHS = (8, 17, 32)


@dataclass(frozen=True)
class Case:
    """A request's body, and the fields that its answer must have to the bit."""

    kind: str
    body: bytes
    expected: dict[str, Any]

    @property
    def path(self) -> str:
        """The endpoint."""
        return f"/v1/{self.kind}"

    def difference(self, answer: dict[str, Any]) -> str | None:
        """Say what is different, if anything is."""
        for name, value in self.expected.items():
            if answer.get(name) != value:
                return f"{name}: expected {value}, got {answer.get(name)}"
        return None


def cases_for(head: LMHead, score_share: float) -> list[Case]:
    """Make requests of all kinds, some of them texts to be scored, and answer them."""
    rng = np.random.default_rng(0)
    states = real_states(head, rng)
    cases = []
    for i in range(CASES):
        if rng.random() < score_share:
            start, length = int(rng.integers(len(states) - 32)), TEXT_LENGTHS[i % len(TEXT_LENGTHS)]
            cases.append(score_case(head, states[start : start + length], rng))
        else:
            cases.append(next_case(head, states[i % len(states)], i, rng))
    return cases


def real_states(head: LMHead, rng: np.random.Generator) -> NDArray[np.float32]:
    """Take the states of the packaged demo with a little noise, as texts of a model would have them; or noise alone."""
    width = head.shape[1]
    with importlib.resources.files("lmhead_native").joinpath("data/smollm2_demo.npz").open("rb") as stream:
        demo: NDArray[np.float32] = np.load(stream)["hidden"]
    base = demo if demo.shape[1] == width else rng.standard_normal((20, width)).astype(np.float32)
    noise = 0.1 * rng.standard_normal((256, width)) * base.std()
    states: NDArray[np.float32] = (base[np.arange(256) % len(base)] + noise).astype(np.float32)
    return states


def next_case(head: LMHead, hidden: NDArray[np.float32], i: int, rng: np.random.Generator) -> Case:
    """Draw a token: eight kinds of parameters, every one with a seed and a position of its own."""
    vocabulary = head.shape[0]
    some = [int(x) for x in rng.integers(vocabulary, size=24)]
    seed = int(rng.integers(2**64, dtype=np.uint64))
    kinds: list[dict[str, Any]] = [
        {"temperature": 0},
        {"temperature": 0.8, "top_k": 40},
        {"temperature": 0.8, "top_p": 0.95},
        {"temperature": 1.2, "min_p": 0.05},
        {"temperature": 1.0},
        {"temperature": 0.7, "top_p": 0.9, "top_k": 50, "repetition_penalty": 1.2, "history": some},
        {"temperature": 0.9, "presence_penalty": 0.5, "frequency_penalty": 0.3, "output": some, "top_k": 20},
        {"temperature": 1.0, "allowed_ids": some, "top_p": 0.8},
    ]
    options = kinds[i % len(kinds)] | {"seed": seed, "position": i}
    n = (0, 5, 1)[i % 3]
    drawn = head.sample(hidden, top_n=n, **options)
    top: list[tuple[int, float]] = []
    if drawn.top_ids is not None and drawn.top_logprobs is not None:
        top = list(zip(drawn.top_ids.tolist(), drawn.top_logprobs.tolist(), strict=True))
    expected = {"token": int(drawn.token), "logprob": float(np.asarray(drawn.logprob)), "seed": seed, "position": i}
    body = options | {"hidden": encoded(hidden), "logprobs": True, "top_logprobs": n}
    return Case("next", json.dumps(body).encode(), expected | {"top_logprobs": Alternatives(top)})


def score_case(head: LMHead, hidden: NDArray[np.float32], rng: np.random.Generator) -> Case:
    """Score a text of ids that the head finds likely and of others."""
    likely = head.topk(hidden, 3).indices[:, 1]
    ids = np.where(rng.random(len(hidden)) < 0.5, likely, rng.integers(head.shape[0], size=len(hidden)))
    found = head.scores(hidden, ids, shift=1)
    expected = {
        "token_logprobs": [None, *found.logprob.tolist()],
        "ranks": [None, *found.rank.tolist()],
        "entropies": [None, *found.entropy.tolist()],
        "argmax": [None, *found.argmax.tolist()],
    }
    return Case("score", json.dumps({"hidden": encoded(hidden), "ids": ids.tolist()}).encode(), expected)


class Alternatives(list[tuple[int, float]]):
    """Ids with log-probabilities, compared with the objects that the server writes, whose texts are not looked at."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list) and [(one["token"], one["logprob"]) for one in other] == list(self)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None


def encoded(hidden: NDArray[np.float32]) -> str:
    """Write states as the server reads them fastest."""
    return base64.b64encode(hidden.astype("<f4").tobytes()).decode()
