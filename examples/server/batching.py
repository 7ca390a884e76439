"""Dynamic batching: what arrives within a short time, or while a step runs, goes into the next step together.

Knows: a queue, a window, a worker thread, and that a step may fail for one job's sake. Refuses to know: what jobs are.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

J = TypeVar("J")
A = TypeVar("A")
Step = Callable[[Sequence[J]], Sequence[A]]


class QueueFull(Exception):
    """More jobs wait than may; or none are taken any more."""


@dataclass(eq=False)
class Waiting(Generic[J, A]):
    """A job and where its answer goes."""

    job: J
    rows: int
    answer: asyncio.Future[A]


class StepTook(NamedTuple):
    """What a step took: more than one call where one job failed."""

    calls: int
    seconds: float


@dataclass(frozen=True)
class Batching:
    """How jobs are put together; `window` in seconds from the first one's arrival."""

    jobs: int = 32
    rows: int = 32
    window: float = 0.002
    queued: int = 1024


class Batcher(Generic[J, A]):
    """Answers jobs by steps of many, one step at a time, in the order of their arrival.

    Parameters
    ----------
    step : callable
        Returns an answer for each of some jobs. It runs in a thread of `executor`: the event loop goes on meanwhile, as
        the library holds no lock of the interpreter while it computes. What one job gets must not depend on the others.
    executor : Executor
        Shared by batchers whose steps use the same cores: with one thread they take turns.
    batching : Batching
        Limits of a step and of the queue.
    stepped : callable, optional
        Told the number of jobs and rows of each step, and what it took.
    """

    def __init__(
        self,
        step: Step[J, A],
        executor: Executor,
        batching: Batching,
        stepped: Callable[[int, int, StepTook], None] = lambda jobs, rows, took: None,
    ) -> None:
        self._step = step
        self._executor = executor
        self._batching = batching
        self._stepped = stepped
        self._queue: deque[Waiting[J, A]] = deque()
        self._running = 0
        self._arrived = asyncio.Event()
        self._full = asyncio.Event()
        self._closed = False
        self._worker: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """How many jobs have not been answered."""
        return len(self._queue) + self._running

    def start(self) -> None:
        """Begin to work, in the running event loop."""
        self._worker = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """Take no more jobs, answer those that wait, and end."""
        self._closed = True
        self._arrived.set()
        self._full.set()
        if self._worker is not None:
            await self._worker

    async def answers(self, jobs: Sequence[J], rows: Callable[[J], int] = lambda job: 1) -> list[A]:
        """Answer jobs that belong together: all or none of them are queued.

        Raises
        ------
        QueueFull
            There is no room; try again later.
        Exception
            What the step raised for one of these jobs alone.
        """
        if self._closed:
            raise QueueFull("the server is shutting down")
        if len(self._queue) + len(jobs) > self._batching.queued:
            raise QueueFull(f"{len(self._queue)} of at most {self._batching.queued} jobs are waiting")
        loop = asyncio.get_running_loop()
        waiting = [Waiting[J, A](job, rows(job), loop.create_future()) for job in jobs]
        self._queue.extend(waiting)
        self._arrived.set()
        if self._fills_a_step():
            self._full.set()
        futures = [one.answer for one in waiting]
        try:
            return list(await asyncio.gather(*futures))
        finally:
            for future in futures:  # of a request that failed or was given up: not worth a row of a step
                future.cancel()

    def _fills_a_step(self) -> bool:
        if len(self._queue) >= self._batching.jobs:
            return True
        return sum(one.rows for one in self._queue) >= self._batching.rows

    async def _work(self) -> None:
        while True:
            await self._arrived.wait()
            if not self._queue:
                if self._closed:
                    return
                self._arrived.clear()
                continue
            if not self._full.is_set() and self._batching.jobs > 1:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._batching.window):
                        await self._full.wait()
            batch = self._take()
            if not self._closed and not self._fills_a_step():
                self._full.clear()
            if batch:
                await self._answer(batch)

    def _take(self) -> list[Waiting[J, A]]:
        """Take as many as a step holds from the front; at least one, however many rows it has."""
        batch: list[Waiting[J, A]] = []
        rows = 0
        while self._queue and len(batch) < self._batching.jobs:
            if self._queue[0].answer.done():  # given up
                self._queue.popleft()
                continue
            rows += self._queue[0].rows
            if batch and rows > self._batching.rows:
                break
            batch.append(self._queue.popleft())
        return batch

    async def _answer(self, batch: list[Waiting[J, A]]) -> None:
        self._running = len(batch)
        jobs = [one.job for one in batch]
        try:
            loop = asyncio.get_running_loop()
            results, took = await loop.run_in_executor(self._executor, timed, self._step, jobs)
        except Exception as error:  # no thread to be had: the next batch may have more luck
            results, took = [error] * len(batch), StepTook(0, 0.0)
        self._running = 0
        self._stepped(len(batch), sum(one.rows for one in batch), took)
        for one, result in zip(batch, results, strict=True):
            if one.answer.done():
                continue
            if isinstance(result, Exception):
                one.answer.set_exception(result)
            else:
                one.answer.set_result(result)


def timed(step: Step[J, A], jobs: Sequence[J]) -> tuple[list[A | Exception], StepTook]:
    """Answer jobs, and say what it took."""
    start = time.perf_counter()
    results, calls = answer_apart(step, jobs)
    return results, StepTook(calls, time.perf_counter() - start)


def answer_apart(step: Step[J, A], jobs: Sequence[J]) -> tuple[list[A | Exception], int]:
    """Answer jobs together; if that fails, by halves, until what failed is alone: 2 log2(n) calls more, not n.

    Returns
    -------
    list, int
        An answer, or what was raised, for each job; how often `step` was called.
    """
    try:
        results: list[A | Exception] = list(step(jobs))
        if len(results) != len(jobs):
            raise RuntimeError(f"the step gave {len(results)} answers to {len(jobs)} jobs")
        return results, 1
    except Exception as error:
        if len(jobs) == 1:
            return [error], 1
    middle = len(jobs) // 2
    (first, calls), (second, more) = answer_apart(step, jobs[:middle]), answer_apart(step, jobs[middle:])
    return first + second, 1 + calls + more
