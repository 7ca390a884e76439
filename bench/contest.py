"""A contest: ours and its peers on one piece of work, and the outcome with its medians, ratios and shares of the roof.

Knows: how a race and its roofs belong together and what is read off them. Refuses to know: which operation it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.roofs import Limit, Readings, Roofs
from bench.timing import RETAKES, Racer, Tally, median, nothing, race
from lmhead_native import _core

OURS = "ours"


class UnavailableError(Exception):
    """A figure needs a package or an instruction set that is not there."""


@contextmanager
def kept_table() -> Iterator[None]:
    """Put the kernel table of the beginning in use again at the end."""
    before = _core.isa()
    try:
        yield
    finally:
        _core.use_isa(before)


@dataclass
class Outcome:
    """What a contest measured.

    Attributes
    ----------
    samples : dict of str to list of float
        Seconds a call in round order, for each racer.
    tally : Tally
        Of samples and readings of the roofs.
    roofs : Readings, optional
        The roofs of the same rounds.
    """

    samples: dict[str, list[float]]
    tally: Tally
    roofs: Readings | None = None

    @property
    def others(self) -> list[str]:
        """Everyone but ours."""
        return [name for name in self.samples if name != OURS]

    def seconds(self, name: str = OURS) -> float:
        """Return the median time of a racer.

        Raises
        ------
        UnavailableError
            It did not take part.
        """
        if name not in self.samples:
            raise UnavailableError(f"{name} did not take part")
        return median(self.samples[name])

    def times_ours(self, name: str) -> float:
        """Return how many times as long as ours a racer took, from the medians."""
        return self.seconds(name) / self.seconds()

    def times_other(self, name: str) -> float:
        """Return how many times as long as another racer ours took, from the medians."""
        return self.seconds() / self.seconds(name)

    def share(self, limit: Limit) -> float:
        """Return the share of a roof that ours reached: the median of the shares in each round."""
        assert self.roofs is not None
        shares = [roof / ours for roof, ours in zip(self.roofs.seconds(limit), self.samples[OURS], strict=True)]
        return median(shares)

    def figures(self) -> dict[str, float | str]:
        """Return every figure by a name that says what it is, for a benchmark's extra information."""
        found: dict[str, float | str] = {"ours_seconds": self.seconds()}
        if self.roofs is not None:
            work = self.roofs.work
            found["GB/s"] = work.bytes / self.seconds() / 1e9
            found["read_bandwidth_GB/s"] = median(self.roofs.bandwidths)
            if work.flops:
                found["GFLOP/s"] = work.flops / self.seconds() / 1e9
                found["fma_peak_GFLOP/s"] = median(self.roofs.peaks)
            found["lower_roof"] = self.roofs.limit()
            found["share_of_roof"] = self.share("lower")
        return found | {f"{name}/ours": self.times_ours(name) for name in self.others}


@dataclass
class Contest:
    """A piece of work set up for everyone.

    Attributes
    ----------
    title : str
        Operation, dtype, shape and rows.
    group : str
        Shape and rows: what contests of other operations and dtypes have in common with this one.
    racers : list of Racer
        The first is ours.
    check : callable
        Takes what ours returned and asserts that it is right.
    roofs : Roofs, optional
        What ours is judged by.
    """

    title: str
    group: str
    racers: list[Racer]
    check: Callable[[Any], None]
    roofs: Roofs | None = None

    @property
    def ours(self) -> Racer:
        """The racer that is judged."""
        return self.racers[0]

    def run(self, *, rounds: int | None = None, retakes: int = RETAKES) -> Outcome:
        """Time everyone in turn, with the roofs beside ours; the kernel table in use is restored."""
        tally, readings, beside = Tally(), None, nothing
        if self.roofs is not None:
            readings = Readings(self.roofs.work)
            beside = partial(self.roofs.read, readings, tally, retakes)
        with kept_table():
            samples = race(self.racers, tally, rounds=rounds, retakes=retakes, beside_first=beside)
        return Outcome(samples, tally, readings)

    def result(self) -> Any:
        """Return the answer of ours, computed once more on the table it was timed on."""
        with kept_table():
            self.ours.prepare()
            return self.ours.call()
