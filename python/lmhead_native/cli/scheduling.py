"""Where the kernel runs the threads of this process: preemptions counted, threads crowded on one CPU spread out.

Knows: Linux's thread list, affinity and accounting. Refuses to know: what the threads do. Elsewhere than on Linux
it counts what it can and moves nothing.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from pathlib import Path

TASKS = Path("/proc/self/task")


def preemptions() -> int:
    """Count the involuntary context switches of all threads of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def spread_threads() -> None:
    """Put this thread and those that are running at the moment on different CPUs, as far as there are any.

    A kernel, above all a virtual machine's, may leave two threads of a pool on one CPU beside an idle one: each
    spins at the barrier until its time slice ends, and a call of 0.2 ms takes 32. Each thread is bound to a CPU
    of its own and at once allowed all of them again, so that it moves but is not pinned.
    """
    if not (TASKS.is_dir() and hasattr(os, "sched_setaffinity")):
        return
    cpus, mine = sorted(os.sched_getaffinity(0)), threading.get_native_id()
    others = {int(task.name) for task in TASKS.iterdir()} - {mine}
    for index, thread in enumerate([mine, *filter(is_running, others)]):
        with contextlib.suppress(OSError):  # the thread has ended, or its affinity is not ours to change
            before = os.sched_getaffinity(thread)
            os.sched_setaffinity(thread, {cpus[index % len(cpus)]})
            os.sched_setaffinity(thread, before)


def is_running(thread: int) -> bool:
    """Tell whether a thread of this process is running or wants to, from the state after its name in ``stat``."""
    try:
        return (TASKS / str(thread) / "stat").read_text().rpartition(") ")[2].startswith("R")
    except OSError:
        return False
