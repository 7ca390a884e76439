"""A step: many requests become one call of the library, whose results are told apart again.

Knows: the head's methods, and that a row's result does not depend on its batch. Refuses to know: HTTP, queues.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmhead_native import LMHead

from .schemas import NextRequest, ScoreRequest

Alternatives = list[tuple[int, float]]


class Draw(NamedTuple):
    """A token; its log-probability and the best others where they were asked for."""

    token: int
    logprob: float | None
    top: Alternatives


@dataclass(frozen=True, eq=False)
class Piece:
    """Some states of a text with their targets: a long text goes into several steps."""

    states: NDArray[np.float32]
    targets: NDArray[np.int64]
    top_logprobs: int
    first: int  # the place of its first state in the text


class Scored(NamedTuple):
    """What the head says of each token of a piece; an ignored one has rank -1."""

    logprob: list[float]
    rank: list[int]
    entropy: list[float]
    argmax: list[int]
    top: list[Alternatives]


def pieces_of(request: ScoreRequest, rows: int) -> list[Piece]:
    """Pair states with targets and cut them into pieces of so many rows."""
    states = request.hidden[: len(request.hidden) - request.shift]
    targets = request.ids[request.shift :]
    starts = range(0, len(targets), rows)
    return [Piece(states[i : i + rows], targets[i : i + rows], request.top_logprobs, i) for i in starts]


def draw(head: LMHead, requests: Sequence[NextRequest], threads: int | None = None) -> list[Draw]:
    """Draw a token for each request by one call with parameters for each row.

    Seeds are an array also for one request: one number would have the row's folded in where there are several.
    """

    def of_each(name: str, dtype: type = np.float64) -> NDArray[Any]:
        return np.array([getattr(request, name) for request in requests], dtype)

    def if_any(name: str) -> list[Any] | None:
        items = [getattr(request, name) for request in requests]
        return None if all(item is None for item in items) else items

    top_n = max(request.top_logprobs for request in requests)
    drawn = head.sample(
        np.stack([request.hidden for request in requests]),
        mask=mask_of([request.allowed_words for request in requests]),
        temperature=of_each("temperature"),
        top_k=of_each("top_k", np.int64),
        top_p=of_each("top_p"),
        min_p=of_each("min_p"),
        typical_p=of_each("typical_p"),
        logit_bias=if_any("logit_bias"),
        repetition_penalty=of_each("repetition_penalty"),
        presence_penalty=of_each("presence_penalty"),
        frequency_penalty=of_each("frequency_penalty"),
        history=if_any("history"),
        output=if_any("output"),
        seed=of_each("seed", np.uint64),
        position=of_each("position", np.uint64),
        logprobs="raw" if any(request.logprobs for request in requests) else None,
        top_n=top_n,
        threads=threads,
    )
    tokens = drawn.token.tolist()
    logprobs = [None] * len(tokens) if drawn.logprob is None else drawn.logprob.tolist()
    tops = alternatives(drawn.top_ids, drawn.top_logprobs, len(tokens))
    return [
        Draw(token, logprob if request.logprobs else None, top[: request.top_logprobs])
        for request, token, logprob, top in zip(requests, tokens, logprobs, tops, strict=True)
    ]


def score(head: LMHead, pieces: Sequence[Piece], threads: int | None = None) -> list[Scored]:
    """Score all pieces by one call.

    Raises
    ------
    ValueError
        A state whose logits are not finite: there is nothing to be said of its token.
    """
    found = head.scores(
        np.concatenate([piece.states for piece in pieces]),
        np.concatenate([piece.targets for piece in pieces]),
        top_n=max(piece.top_logprobs for piece in pieces),
        threads=threads,
    )
    ranks, totals = found.rank.tolist(), found.logsumexp.tolist()
    logprobs, entropies, argmaxes = found.logprob.tolist(), found.entropy.tolist(), found.argmax.tolist()
    tops = alternatives(found.top_ids, found.top_logprobs, len(ranks))
    results = []
    end = 0
    for piece in pieces:
        rows = slice(end, end := end + len(piece.targets))
        for at, (rank, total) in enumerate(zip(ranks[rows], totals[rows], strict=True), piece.first):
            if rank != -1 and not math.isfinite(total):
                raise ValueError(f"hidden: expected finite logits, got a log-sum-exp of {total} in row {at}")
        top = [one[: piece.top_logprobs] for one in tops[rows]]
        results.append(Scored(logprobs[rows], ranks[rows], entropies[rows], argmaxes[rows], top))
    return results


def mask_of(words: Sequence[NDArray[np.uint32] | None]) -> NDArray[np.uint32] | None:
    """Stack masks of rows; one that has none beside one that has allows everything."""
    width = next((len(row) for row in words if row is not None), None)
    if width is None:
        return None
    everything = np.full(width, 0xFFFFFFFF, np.uint32)
    return np.stack([everything if row is None else row for row in words])


def alternatives(ids: NDArray[np.int64] | None, logprobs: NDArray[Any] | None, n: int) -> list[Alternatives]:
    """Pair the lists of n rows; where fewer ids are allowed than were wanted, the list is shorter."""
    if ids is None or logprobs is None:
        return [[] for _ in range(n)]
    pairs = zip(ids.tolist(), logprobs.tolist(), strict=True)
    return [[(i, p) for i, p in zip(*row, strict=True) if i != -1] for row in pairs]
