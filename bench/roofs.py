"""The roofs of this machine at the moment: read bandwidth of a buffer, peak of the multipliers.

Knows: how they are measured beside a sample and what time they allow. Refuses to know: who is held against them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bench.timing import Tally, median, steady
from lmhead_native import _core

Limit = Literal["bandwidth", "peak", "lower"]

# A few passes with each of four stream counts over 150 MB at 30 to 60 GB/s; a larger buffer is read once with each.
BANDWIDTH_SECONDS = 0.06
PEAK_SECONDS = 0.03
REDUCED = 0.1


@dataclass(frozen=True)
class Work:
    """What no implementation can avoid: bytes moved to or from memory, multiplications and additions."""

    bytes: int
    flops: int = 0
    kind: Literal["f32", "bf16"] = "f32"


@dataclass
class Readings:
    """Both roofs as they were read, twice a round: before and after the sample they judge.

    Attributes
    ----------
    work : Work
        What has to be done.
    bandwidths, peaks : list of float
        GB/s and GFLOP/s, two a round; no peaks for work without flops.
    """

    work: Work
    bandwidths: list[float] = field(default_factory=list)
    peaks: list[float] = field(default_factory=list)

    def seconds(self, limit: Limit) -> list[float]:
        """Return the shortest time for the work in each round, from the mean of the two readings around the sample."""
        reading = [self.work.bytes / (1e9 * rate) for rate in pair_means(self.bandwidths)]
        if limit == "bandwidth" or not self.work.flops:
            return reading
        computing = [self.work.flops / (1e9 * rate) for rate in pair_means(self.peaks)]
        return computing if limit == "peak" else [max(pair) for pair in zip(reading, computing, strict=True)]

    def limit(self) -> Limit:
        """Tell which of the two is the lower roof."""
        return "bandwidth" if median(self.seconds("lower")) <= median(self.seconds("bandwidth")) else "peak"

    def text(self, limit: Limit) -> str:
        """Write the median of the roof: ``41.3 GB/s``."""
        limit = self.limit() if limit == "lower" else limit
        return f"{median(self.bandwidths):.1f} GB/s" if limit == "bandwidth" else f"{median(self.peaks):.0f} GFLOP/s"


@dataclass
class Roofs:
    """How both roofs are read.

    Attributes
    ----------
    buffer : ndarray
        What is read: the very memory the operation reads.
    work : Work
        What has to be done; without flops the peak is not measured.
    threads : int
        Of the measurement, as many as the operation has.
    reduced : bool
        Measure for a tenth of the time.
    """

    buffer: NDArray[Any]
    work: Work
    threads: int
    reduced: bool = False

    def read(self, readings: Readings, tally: Tally, retakes: int) -> None:
        """Add one reading of each."""
        scale = REDUCED if self.reduced else 1.0
        bits = self.buffer.view(f"u{self.buffer.dtype.itemsize}")  # bfloat16 is not known to everyone

        def bandwidth() -> float:
            return _core.read_bandwidth(bits, scale * BANDWIDTH_SECONDS, self.threads)

        def peak() -> float:
            return _core.fma_peak(self.work.kind, scale * PEAK_SECONDS, self.threads)

        readings.bandwidths.append(steady(bandwidth, self.threads, tally, retakes))
        if self.work.flops:
            readings.peaks.append(steady(peak, self.threads, tally, retakes))


def pair_means(values: list[float]) -> list[float]:
    """Return the means of values 0 and 1, 2 and 3, ..."""
    array = np.asarray(values).reshape(-1, 2)
    means: list[float] = array.mean(axis=1).tolist()
    return means
