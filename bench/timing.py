"""Samples of calls that take turns: in every round each racer gets one, and a disturbed one is taken again.

Knows: clocks, warm-up, repetition of short calls, CPU time and preemptions. Refuses to know: what is called and how
it is judged.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lmhead_native.cli.scheduling import preemptions, spread_threads

# A sample of a short call is a loop of about this time: a few time slices of the scheduler, so that one interrupt is
# small beside it, and as long as a few passes over a buffer that the roof is measured on.
SAMPLE_SECONDS = 20e-3
# Before its sample a call runs once untimed, which wakes its own threads and brings its data to where they usually are.
# Beside a call this long both are nothing.
LONG_SECONDS = 0.25
# Thread pools spin for some milliseconds after a parallel region before they sleep, on the CPUs the next racer needs.
SETTLE_SECONDS = 10e-3
# A virtual machine may leave two threads of a pool on one CPU for seconds, or run somebody else. A sample with more
# preemptions than the ordinary ticks, or with less CPU time than this share of what it asked for, is taken again.
PREEMPTIONS_PER_SECOND = 50
CPU_SHARE = 0.93
RETAKES = 6

ROUNDS, FEWEST_ROUNDS, MOST_ROUNDS = 7, 5, 15
# Cheap calls get more rounds, slow ones fewer, so that a race takes about this long.
RACE_SECONDS = 6.0


def nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Racer:
    """Someone who computes the operation.

    Attributes
    ----------
    name : str
        ``ours`` or that of a peer.
    call : callable
        Computes it once.
    cpus : int
        CPUs that a call keeps busy from beginning to end, 0 if that is not known.
    prepare : callable
        Called before each sample, outside the clock.
    """

    name: str
    call: Callable[[], object]
    cpus: int = 0
    prepare: Callable[[], object] = nothing

    def seconds(self, loops: int) -> float:
        """Return the mean seconds of ``loops`` calls in a row."""
        call, count = self.call, itertools.repeat(None, loops)
        start = time.perf_counter()
        for _ in count:
            call()
        return (time.perf_counter() - start) / loops


class Tally:
    """How many measurements there were, and how many of them stayed disturbed in spite of every retake."""

    def __init__(self) -> None:
        self.taken = self.disturbed = 0


def steady(measure: Callable[[], float], cpus: int, tally: Tally, retakes: int = RETAKES) -> float:
    """Return what ``measure`` returns once it ran with its CPUs for itself, or else its least disturbed result.

    Parameters
    ----------
    measure : callable
        Takes one measurement.
    cpus : int
        CPUs it keeps busy; 0: only preemptions tell.
    tally : Tally
        Counts it.
    retakes : int
        How often a disturbed measurement is taken again at most.
    """
    least, kept = math.inf, math.nan
    for _ in range(1 + retakes):
        taken, used, start = preemptions(), time.process_time(), time.perf_counter()
        value = measure()
        wall = time.perf_counter() - start
        used, taken = time.process_time() - used, preemptions() - taken
        disturbance = max(taken / (1 + PREEMPTIONS_PER_SECOND * wall), CPU_SHARE * cpus * wall / max(used, 1e-9))
        if disturbance < least:
            least, kept = disturbance, value
        if disturbance <= 1:
            break
        spread_threads()
    tally.taken += 1
    tally.disturbed += least > 1
    return kept


def sample(racer: Racer, loops: int, expected: float, tally: Tally, retakes: int) -> float:
    """Take one undisturbed sample: mean seconds a call, where one is expected to take ``expected``."""

    def measure() -> float:
        if expected < LONG_SECONDS:
            racer.call()
        return racer.seconds(loops)

    time.sleep(SETTLE_SECONDS)
    return steady(measure, racer.cpus, tally, retakes)


def race(
    racers: Sequence[Racer],
    tally: Tally,
    *,
    rounds: int | None = None,
    retakes: int = RETAKES,
    beside_first: Callable[[], object] = nothing,
) -> dict[str, list[float]]:
    """Time racers in turn.

    Parameters
    ----------
    racers : sequence of Racer
        Who takes part; the order rotates from round to round.
    tally : Tally
        Counts the samples.
    rounds : int, optional
        Samples of each; by default 5 to 15, as many as fit :data:`RACE_SECONDS`.
    retakes : int
        How often a disturbed sample is taken again at most.
    beside_first : callable
        Called right before and right after each sample of the first racer: the roofs it is judged by.

    Returns
    -------
    dict of str to list of float
        Seconds a call, in round order.
    """
    expected = []
    for racer in racers:
        racer.prepare()
        racer.call()  # the first call of all: code is loaded, pages are touched
        expected.append(racer.seconds(1))
    loops = [max(1, math.ceil(SAMPLE_SECONDS / max(seconds, 1e-9))) for seconds in expected]
    samples: dict[str, list[float]] = {racer.name: [] for racer in racers}
    start = time.perf_counter()
    for index in itertools.count():
        for turn in range(len(racers)):
            who = (index + turn) % len(racers)
            racers[who].prepare()
            if who == 0:
                time.sleep(SETTLE_SECONDS)
                beside_first()
            samples[racers[who].name].append(sample(racers[who], loops[who], expected[who], tally, retakes))
            if who == 0:
                beside_first()
        if index == 0 and rounds is None:
            rounds = fitting_rounds(time.perf_counter() - start)
        if rounds is not None and index + 1 >= rounds:
            break
    return samples


def fitting_rounds(round_seconds: float) -> int:
    """Return an odd number of rounds for which there is time."""
    fitting = int(RACE_SECONDS / round_seconds) | 1
    return min(max(fitting, ROUNDS if round_seconds < RACE_SECONDS / 2 else FEWEST_ROUNDS), MOST_ROUNDS)


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)
