"""The service behind the endpoints: one head, its two queues, and what it says of itself.

Knows: what a request needs, from its body to its answer as plain values. Refuses to know: HTTP, sockets, signals.
"""

from __future__ import annotations

import asyncio
import functools
import math
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from lmhead_native import LMHead

from .batching import Batcher, Batching, QueueFull, StepTook
from .errors import ApiError, busy
from .schemas import Limits, NextRequest, ScoreRequest
from .steps import Alternatives, Draw, Piece, Scored, draw, pieces_of, score

Answer = dict[str, Any]


class Vocabulary(Protocol):
    """Texts of tokens."""

    def text(self, token: int) -> str:
        """Return the text of a token."""


class Service:
    """A head that is asked by many.

    Parameters
    ----------
    head : LMHead
        What answers.
    vocabulary : Vocabulary, optional
        Adds the texts of tokens to the answers.
    name : str
        What clients see as the model.
    limits : Limits
        Of a request and of the queues.
    max_batch : int
        Requests of a step; 1 answers one by one.
    score_rows : int
        States of a scoring step: long texts are cut into pieces of it, so that a token to be drawn waits for one step.
    window : float
        Seconds that the first request of a step waits for others.
    threads : int, optional
        Threads of a step; by default all that are allowed.
    """

    def __init__(
        self,
        head: LMHead,
        *,
        vocabulary: Vocabulary | None = None,
        name: str = "head",
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        max_batch: int = 32,
        score_rows: int = 256,
        window: float = 0.002,
        threads: int | None = None,
    ) -> None:
        self.head, self.vocabulary, self.name, self.limits = head, vocabulary, name, limits
        self.score_rows = score_rows
        self.draining = False
        self.counts: defaultdict[str, float] = defaultdict(float)
        # One thread: a step takes all cores, and two at once would only halve each other's.
        self._executor = ThreadPoolExecutor(1, "step")
        self.draws: Batcher[NextRequest, Draw] = Batcher(
            functools.partial(draw, head, threads=threads),
            self._executor,
            Batching(jobs=max_batch, rows=max_batch, window=window, queued=limits.queued),
            functools.partial(self._stepped, "next"),
        )
        self.scores: Batcher[Piece, Scored] = Batcher(
            functools.partial(score, head, threads=threads),
            self._executor,
            Batching(jobs=max_batch, rows=score_rows, window=window, queued=limits.queued),
            functools.partial(self._stepped, "score"),
        )

    def start(self) -> None:
        """Begin to answer, in the running event loop."""
        self.draws.start()
        self.scores.start()

    async def close(self) -> None:
        """Answer what is queued, and end."""
        self.draining = True
        await asyncio.gather(self.draws.close(), self.scores.close())
        self._executor.shutdown()

    async def next(self, body: object) -> Answer:
        """Answer ``POST /v1/next``."""
        request = self._read(NextRequest.read, body)
        (drawn,) = await self._answers(self.draws, [request])
        answer: Answer = {"object": "next_token", "model": self.name, "token": drawn.token}
        if self.vocabulary is not None:
            answer["text"] = self.vocabulary.text(drawn.token)
        if request.logprobs:
            answer["logprob"] = finite(drawn.logprob)
            answer["top_logprobs"] = self._alternatives(drawn.top)
        usage = {"prompt_tokens": 0, "completion_tokens": 1, "total_tokens": 1}
        return answer | {"seed": request.seed, "position": request.position, "usage": usage}

    async def score(self, body: object) -> Answer:
        """Answer ``POST /v1/score``."""
        request = self._read(ScoreRequest.read, body)
        scored = await self._answers(self.scores, pieces_of(request, self.score_rows), lambda piece: len(piece.targets))
        ranks = [rank for piece in scored for rank in piece.rank]
        live = [rank != -1 for rank in ranks]
        before: list[None] = [None] * request.shift

        def column(name: str) -> list[Any]:
            """Values of each token; null for one that is not scored."""
            values = [value for piece in scored for value in getattr(piece, name)]
            return before + [value if counts else None for value, counts in zip(values, live, strict=True)]

        logprobs, argmaxes, tops = column("logprob"), column("argmax"), column("top")
        ids = request.ids.tolist()
        counted = [value for value in logprobs if value is not None]
        total, n = math.fsum(counted), len(counted)
        answer: Answer = {"object": "score", "model": self.name, "ids": ids}
        if self.vocabulary is not None:
            answer["tokens"] = [None if i < 0 else self.vocabulary.text(i) for i in ids]
        if request.top_logprobs:
            answer["top_logprobs"] = [None if top is None else self._alternatives(top) for top in tops]
        return answer | {
            "token_logprobs": [finite(value) for value in logprobs],
            "ranks": column("rank"),
            "entropies": [finite(value) for value in column("entropy")],
            "argmax": argmaxes,
            "totals": {
                "tokens": n,
                "logprob": finite(total),
                "perplexity": perplexity(total, n),
                "greedy_matches": ranks.count(1),
            },
            "usage": {"prompt_tokens": len(ids), "completion_tokens": 0, "total_tokens": len(ids)},
        }

    def health(self) -> Answer:
        """Say whether requests are taken, and what by."""
        return {
            "status": "draining" if self.draining else "ready",
            "model": self.name,
            "vocabulary": self.head.shape[0],
            "width": self.head.shape[1],
            "waiting": self.waiting(),
            "pid": os.getpid(),
        }

    def waiting(self) -> int:
        """How many draws and pieces have not been answered."""
        return len(self.draws) + len(self.scores)

    def metrics(self) -> str:
        """Write the counters in Prometheus's text form."""
        lines = [f"{name} {value:.12g}" for name, value in sorted(self.counts.items())]
        return "\n".join([*lines, f"waiting {self.waiting()}", ""])

    def _read(self, read: Callable[[object, tuple[int, int], Limits], Any], body: object) -> Any:
        if self.draining:
            raise busy("the server is shutting down", "draining")
        try:
            return read(body, self.head.shape, self.limits)
        except (ValueError, TypeError, IndexError) as error:
            raise ApiError.of(error, 400) from error

    async def _answers(
        self, batcher: Batcher[Any, Any], jobs: Sequence[Any], rows: Callable[[Any], int] = lambda job: 1
    ) -> list[Any]:
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await batcher.answers(jobs, rows)
        except QueueFull as error:
            raise busy(str(error), "queue_full") from error
        except TimeoutError as error:
            raise ApiError(504, f"no answer within {self.limits.seconds} s", code="timeout") from error
        except (ValueError, IndexError) as error:  # well formed, but no distribution comes of these numbers
            raise ApiError.of(error, 422) from error

    def _alternatives(self, top: Alternatives) -> list[Answer]:
        texts = self.vocabulary
        return [{"token": i, "logprob": finite(p)} | ({"text": texts.text(i)} if texts else {}) for i, p in top]

    def _stepped(self, name: str, jobs: int, rows: int, took: StepTook) -> None:
        counts = {"steps": 1, "step_jobs": jobs, "step_rows": rows}
        for what, count in {**counts, "step_calls": took.calls, "step_seconds": took.seconds}.items():
            self.counts[f'{what}_total{{step="{name}"}}'] += count


def finite(value: float | None) -> float | None:
    """Return what JSON can write: it has no infinities."""
    return value if value is not None and math.isfinite(value) else None


def perplexity(total: float, n: int) -> float | None:
    """Return exp of the mean negative log-probability; None where there is none, or it is beyond float64."""
    try:
        return finite(math.exp(-total / n)) if n else None
    except OverflowError:
        return None
