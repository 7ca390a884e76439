"""The results of a benchmark: samples of each contestant and the roofs beside them, as a table or as JSON.

Knows: medians, ratios, shares of the roof. Refuses to know: how samples are taken and plots are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lmhead_native.cli.peers import TITLES
from lmhead_native.cli.roof import Roofs
from lmhead_native.cli.table import byte_size, duration, table, three_digits
from lmhead_native.cli.terminal import Terminal
from lmhead_native.cli.timing import median
from lmhead_native.cli.workload import PROJECTIONS, Workload


@dataclass(frozen=True)
class Result:
    """One workload: seconds a call for each contestant, in round order, and the roofs of the same rounds."""

    work: Workload
    samples: dict[str, list[float]]
    roofs: Roofs

    def seconds(self, name: str) -> float:
        """Return a contestant's median time."""
        return median(self.samples[name])

    def ratio(self, name: str) -> float:
        """Return how many times as long as ours a contestant took, from the medians."""
        return self.seconds(name) / self.seconds("ours")

    def share(self, name: str) -> float:
        """Return the share of the roof a contestant reached: 1 is the fastest this machine allows."""
        return self.roofs.seconds(self.work) / self.seconds(name)

    @property
    def peers(self) -> list[str]:
        """The contestants other than ours."""
        return [name for name in self.samples if name != "ours"]

    def record(self) -> dict[str, Any]:
        """Return everything as JSON can hold it; times in seconds, bandwidth in 1e9 bytes a second."""
        work, roofs = self.work, self.roofs
        return {
            "op": work.op,
            "dtype": work.dtype,
            "shape": work.shape.name,
            "width": work.shape.width if work.op in PROJECTIONS else None,
            "vocabulary": work.shape.vocabulary,
            "rows": work.rows,
            "k": work.k if work.op in ("topk", "logits_topk") else None,
            "median_seconds": {name: self.seconds(name) for name in self.samples},
            "times_ours": {name: self.ratio(name) for name in self.peers},
            "share_of_roof": {name: self.share(name) for name in self.samples},
            "roof_seconds": roofs.seconds(work),
            "roof_limit": roofs.limit(work),
            "read_bandwidth_gb_per_s": median(roofs.gigabytes_per_second),
            "fma_peak_gflop_per_s": median(roofs.gigaflops_per_second) if roofs.gigaflops_per_second else None,
            "samples_seconds": self.samples,
        }


def group_title(work: Workload, threads: int) -> str:
    """Name what the lines of one table have in common."""
    k = f", k = {work.k}" if work.op in ("topk", "logits_topk") else ""
    if work.op in PROJECTIONS:
        item = 4 if work.dtype == "f32" else 2
        what = f"{work.shape} ({byte_size(item * work.shape.width * work.shape.vocabulary)})"
    else:
        what = f"rows of {work.shape.vocabulary} logits"
    return f"{work.op}{k}, {work.dtype}, {what}, threads = {threads}"


def group_table(results: Sequence[Result], terminal: Terminal) -> str:
    """Lay out results that differ in their rows only."""
    peers = results[0].peers
    head = ["rows", "ours", *(TITLES[name] for name in peers), "roof", "limit", "ours/roof"]
    head += [f"{TITLES[name]}/ours" for name in peers]
    lines = []
    for result in results:
        line = [str(result.work.rows), *(duration(result.seconds(name)) for name in ("ours", *peers))]
        line += [duration(result.roofs.seconds(result.work)), result.roofs.limit(result.work)]
        line += [f"{100 * result.share('ours'):.0f}%", *(f"{three_digits(result.ratio(name))}x" for name in peers)]
        lines.append(line)
    return table(head, lines, terminal, gap=2)
