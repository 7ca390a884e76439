"""Findings as a Markdown report: the conditions, one table a section, how many bars are reached.

Knows: what is written where. Refuses to know: how anything was measured.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lmhead_native as native
from bench import peers
from bench.contest import Outcome, UnavailableError
from bench.demand import Case, Demand
from bench.setting import Setting
from lmhead_native.cli.table import duration, three_digits

COLUMNS = ("case", "figure", "what it is", "bar", "holds", "ours", "roof", "others")

METHOD = """\
Everyone takes turns within each round; times are medians over 5 to 15 rounds, and a ratio is one of medians. The roofs
are measured right before and after each sample of ours, on the same buffer (the best of several stream counts) and with
the same threads; a share is the median of the shares in each round. Bytes are those that must be read, for a softmax
also those written. A sample during which the process did not have its CPUs is taken again. Every result was checked
against float64 after the timing. Results go into arrays made beforehand, except in `linear` of PyTorch where its
allocator recycles them, in FAISS, and in the smallest call. Hidden states, weights and logits are normal numbers."""


@dataclass(frozen=True)
class Finding:
    """One demand and what came of it: a figure, or a problem that says why there is none."""

    case: Case
    demand: Demand
    value: float | None = None
    outcome: Outcome | None = None
    problem: str = ""
    detail: str = ""

    @classmethod
    def of(cls, case: Case, demand: Demand, outcome: Outcome) -> Finding:
        """Read the figure off an outcome."""
        try:
            return cls(case, demand, demand.figure(outcome), outcome)
        except UnavailableError as reason:
            return cls(case, demand, None, outcome, problem=f"not measured: {reason}")

    @property
    def holds(self) -> bool | None:
        """Whether the bar is reached; None if there is no figure or no bar."""
        return None if self.value is None else self.demand.holds(self.value)

    def figure(self) -> str:
        """Write the figure or the problem."""
        return self.problem if self.value is None else written(self.value, self.demand.unit)

    def bar(self) -> str:
        """Write the bar, nothing if there is none."""
        demand = self.demand
        return "" if demand.bar is None else f"{demand.relation} {written(demand.bar, demand.unit)}"

    def verdict(self) -> str:
        """Write whether the bar is reached."""
        return {True: "yes", False: "**no**", None: ""}[self.holds]

    def cells(self, *, judged: bool = True) -> list[str]:
        """Return the row of the table, one text for each of :data:`COLUMNS`."""
        ours = roof = others = ""
        if self.outcome is not None:
            ours = duration(self.outcome.seconds())
            others = ", ".join(
                f"{peers.TITLES.get(name, name)} {duration(self.outcome.seconds(name))}" for name in self.outcome.others
            )
            if self.outcome.roofs is not None:
                roof = self.outcome.roofs.text(self.demand.roof or "lower")
        verdict = self.verdict() if judged else ""
        return [f"`{self.case.name}`", self.figure(), self.demand.what, self.bar(), verdict, ours, roof, others]

    def line(self) -> str:
        """Write everything in one line of text."""
        _, figure, what, bar, verdict, ours, roof, others = self.cells()
        times = [f"ours {ours}" if ours else "", others, f"roof {roof}" if roof else ""]
        judged = f" [{bar}: {verdict.strip('*') or '-'}]" if bar else ""
        return f"{self.case.name}: {figure} {what}{judged} {'; '.join(filter(None, times))}{self.disturbed()}"

    def disturbed(self) -> str:
        """Say how many samples stayed disturbed, nothing if none did."""
        tally = None if self.outcome is None else self.outcome.tally
        return f"; {tally.disturbed} of {tally.taken} samples disturbed" if tally and tally.disturbed else ""

    def record(self) -> dict[str, Any]:
        """Return everything as JSON can hold it, seconds and GB/s and GFLOP/s in round order."""
        outcome = self.outcome
        roofs = None if outcome is None else outcome.roofs
        return {
            "name": f"{self.case.name}/{self.demand.name}",
            "what": self.demand.what,
            "relation": self.demand.relation,
            "bar": self.demand.bar,
            "value": self.value,
            "holds": self.holds,
            "disturbed_samples": None if outcome is None else outcome.tally.disturbed,
            "problem": self.problem,
            "samples_seconds": None if outcome is None else outcome.samples,
            "read_bandwidths_gb_per_s": None if roofs is None else roofs.bandwidths,
            "fma_peaks_gflop_per_s": None if roofs is None else roofs.peaks,
        }


def written(value: float, unit: str) -> str:
    """Write a figure or a bar: two decimals for shares and ratios near 1, three digits elsewhere."""
    number = f"{value:.3f}" if value < 2 and unit in ("", "x") else three_digits(value)
    return f"{number} {unit}" if unit in ("us", "ms", "MiB") else f"{number}{unit}"


def document(findings: Sequence[Finding], *, judged: bool) -> str:
    """Lay out the tables and, if the figures count, what came of the bars."""
    parts = []
    for section in dict.fromkeys(finding.case.section for finding in findings):
        parts += [f"## {section}", "", row(COLUMNS), row(["---"] * len(COLUMNS))]
        parts += [row(finding.cells(judged=judged)) for finding in findings if finding.case.section == section]
        parts.append("")
    return "\n".join(parts + (verdicts(findings) if judged else []))


def verdicts(findings: Sequence[Finding]) -> list[str]:
    """Count the bars that are reached and list the others."""
    judged = [finding for finding in findings if finding.demand.bar is not None]
    reached = sum(finding.holds is True for finding in judged)
    lines = ["## bars", "", f"{reached} of {len(judged)} are reached.", ""]
    for finding in judged:
        told = f"`{finding.case.name}`: {finding.figure()} {finding.demand.what}, {finding.bar()} is asked"
        lines += [f"- missed: {told}"] if finding.holds is False else []
        lines += [f"- without a figure: {told}"] if finding.holds is None else []
    return lines


def row(cells: Sequence[str]) -> str:
    """Return one line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def heading(setting: Setting, command: str, seconds: float, findings: Sequence[Finding]) -> str:
    """Write title, command, machine, versions and how to read the tables."""
    return "\n".join(
        [
            "# Results",
            "",
            *(["**Reduced sizes: none of these figures counts.**", ""] if setting.reduced else []),
            *(f"- {name}: {text}" for name, text in conditions(setting, command, seconds)),
            f"- disturbed: {disturbed(findings)}",
            "",
            METHOD,
            "",
        ]
    )


def disturbed(findings: Sequence[Finding]) -> str:
    """Say how many samples of all races stayed disturbed."""
    tallies = {id(f.outcome): f.outcome.tally for f in findings if f.outcome is not None}.values()
    count, taken = sum(tally.disturbed for tally in tallies), sum(tally.taken for tally in tallies)
    return f"{count} of {taken} samples, in spite of retakes"


def conditions(setting: Setting, command: str, seconds: float) -> Iterator[tuple[str, str]]:
    """Yield what a reader must know to repeat the run."""
    config = native.show_config(mode="dicts")
    yield "command", f"`{command}` ({seconds / 60:.1f} minutes)"
    yield "processor", f"{processor()}, {os.cpu_count()} CPUs, {setting.threads} threads for everyone"
    yield "memory", f"{memory_gigabytes():.0f} GB, transparent huge pages: {huge_pages()}"
    yield "system", f"{platform.system()} {platform.release()}"
    yield "lmhead_native", f"{native.__version__}, tables {', '.join(config['usable_isas'])}, in use {native.isa()}"
    yield "Python", f"{platform.python_version()}, compiler of the tables: {compiler()}"
    for name, version in peers.versions().items():
        absent = "left out" if version else "not installed, left out"
        yield peers.TITLES[name], f"{version}" if name in setting.peers else absent


def processor() -> str:
    """Return the name of the CPU."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def memory_gigabytes() -> float:
    """Return the size of the memory in 2**30 bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def huge_pages() -> str:
    """Return the kernel's mode for transparent huge pages."""
    mode = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return mode.read_text().partition("[")[2].partition("]")[0] if mode.exists() else "unknown"


def compiler() -> str:
    """Return the version of the system's C++ compiler, which built the package unless it came as a wheel."""
    try:
        shown = subprocess.run(["c++", "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return shown.splitlines()[0]
