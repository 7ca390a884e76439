"""The limits a computation cannot pass on this machine: read bandwidth and multiply-add peak.

Knows: how they are measured and combined. Refuses to know: who is held against them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmhead_native import _core
from lmhead_native.cli.timing import median
from lmhead_native.cli.workload import Workload

# Eight times a third-level cache of 32 MiB (one chiplet of a Zen CPU): what is read comes from memory.
READ_BUFFER_BYTES = 256 * 2**20
# The least that `_core.read_bandwidth` takes.
SMALLEST_BUFFER = 64 * 1024
# Long enough for a few passes over a buffer of that size, short enough to be taken in every round.
BANDWIDTH_SECONDS, PEAK_SECONDS = 0.06, 0.03


@dataclass
class Roofs:
    """Repeated measurements of both roofs around one buffer."""

    threads: int | None
    gigabytes_per_second: list[float] = field(default_factory=list)
    gigaflops_per_second: list[float] = field(default_factory=list)

    def measure(self, buffer: NDArray[Any], dtype: str, *, flops: bool = True) -> None:
        """Take one more measurement of each; the bandwidth on ``buffer`` itself, the peak only if ``flops``."""
        bits = buffer.view(np.uint8 if buffer.dtype.itemsize == 1 else f"u{buffer.dtype.itemsize}")
        if bits.nbytes < SMALLEST_BUFFER:  # lives in the first caches, as any other buffer of that size does
            bits = np.ones(SMALLEST_BUFFER, np.uint8)
        self.gigabytes_per_second.append(_core.read_bandwidth(bits, seconds=BANDWIDTH_SECONDS, threads=self.threads))
        if flops:
            kind = "bf16" if dtype == "bf16" else "f32"
            self.gigaflops_per_second.append(_core.fma_peak(kind, seconds=PEAK_SECONDS, threads=self.threads))

    def seconds(self, work: Workload) -> float:
        """Return the shortest time for ``work``: that of its bytes or of its flops, whichever is longer."""
        return max(self._seconds_of_each(work))

    def limit(self, work: Workload) -> str:
        """Tell which of the two it is: ``memory`` or ``flops``."""
        reading, computing = self._seconds_of_each(work)
        return "memory" if reading >= computing else "flops"

    def _seconds_of_each(self, work: Workload) -> tuple[float, float]:
        reading = work.bytes_moved / (median(self.gigabytes_per_second) * 1e9)
        return reading, work.flops / (median(self.gigaflops_per_second) * 1e9) if work.flops else 0.0


def read_buffer() -> NDArray[Any]:
    """Make a buffer for the read bandwidth of the memory, every page of it written once."""
    return np.ones(READ_BUFFER_BYTES // 4, dtype=np.float32)
