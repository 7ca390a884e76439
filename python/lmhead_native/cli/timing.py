"""Times that can be compared: contestants take turns within each round, and medians are taken over rounds.

Knows: clocks, warm-up, how often to repeat a short call, when a sample was disturbed and must be taken again.
Refuses to know: what is called.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence

from lmhead_native.cli.scheduling import preemptions, spread_threads

# A sample of a short call is a loop that takes at least this long: 1000 times the clock's call (about 50 ns)
# and still short beside a scheduler's time slice.
SAMPLE_SECONDS = 2e-3
# Thread pools spin for a while after a parallel region before they sleep, on the CPUs the next one needs.
SETTLE_SECONDS = 2e-3
# A sample during which the kernel took a CPU away from us is taken again, at most so many times. One such
# preemption in 20 ms (five ticks of 4 ms) is the ordinary housekeeping of a machine.
RETAKES = 5
PREEMPTIONS_PER_SECOND = 50


def once(call: Callable[[], object], loops: int) -> float:
    """Return the mean seconds of ``loops`` calls in a row."""
    start = time.perf_counter()
    for _ in range(loops):
        call()
    return (time.perf_counter() - start) / loops


def undisturbed(call: Callable[[], object], loops: int) -> float:
    """Return the mean seconds of ``loops`` calls in a row during which the process kept its CPUs.

    Between a disturbed sample and the next one the threads are spread over the CPUs. If every retake was
    disturbed, the one with the fewest preemptions counts.
    """
    time.sleep(SETTLE_SECONDS)
    least, kept = math.inf, math.inf
    for _ in range(1 + RETAKES):
        call()
        before = preemptions()
        seconds = once(call, loops)
        taken = preemptions() - before
        if taken < least:
            least, kept = taken, seconds
        if taken <= PREEMPTIONS_PER_SECOND * seconds * loops:
            break
        spread_threads()
    return kept


def interleave(
    calls: Sequence[Callable[[], object]],
    rounds: int,
    *,
    each_round: Callable[[], None] | None = None,
    tick: Callable[[], None] | None = None,
) -> list[list[float]]:
    """Time several calls so that the state of the machine is shared fairly.

    Parameters
    ----------
    calls : sequence of callable
        What to time.
    rounds : int
        Samples of each. In every round each call gets one sample; the first one rotates.
    each_round : callable, optional
        Called at the start of every round, to measure the roofs in the same moments.
    tick : callable, optional
        Called after every sample, for a progress bar.

    Returns
    -------
    list of list of float
        Seconds a call, one list for each of ``calls``, in round order.

    Notes
    -----
    Each sample is preceded by a pause of :data:`SETTLE_SECONDS` and one untimed call, which wakes the call's own
    threads and brings its data to where they usually are. The number of calls in a sample comes from one such
    call, after a first one that is thrown away. Disturbed samples are taken again, see :func:`undisturbed`.
    """
    for call in calls:
        call()
    loops = [max(1, math.ceil(SAMPLE_SECONDS / max(once(call, 1), 1e-9))) for call in calls]
    samples: list[list[float]] = [[] for _ in calls]
    for index in range(rounds):
        if each_round is not None:
            each_round()
        for turn in range(len(calls)):
            who = (index + turn) % len(calls)
            samples[who].append(undisturbed(calls[who], loops[who]))
            if tick is not None:
                tick()
    return samples


def median(values: Sequence[float]) -> float:
    """Return the median, the mean of the two middle values of an even number."""
    return statistics.median(values)
