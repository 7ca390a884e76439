"""A figure and its bar, and a contest with the figures that are demanded of it.

Knows: how a figure is read off an outcome. Refuses to know: which contests there are, and what they must reach.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from bench.contest import Contest, Outcome, UnavailableError
from bench.peers import PEERS, TITLES
from bench.roofs import Limit
from bench.setting import Setting
from bench.shapes import head

Relation = Literal[">=", ">", "<="]

Build = Callable[[Setting], Contest]


@dataclass(frozen=True)
class Demand:
    """One figure and its bar.

    Attributes
    ----------
    name : str
        Distinguishes it within its case.
    what : str
        The figure in words.
    figure : callable
        Reads it off an outcome; `UnavailableError` if it cannot.
    unit : str
        Printed after figure and bar: ``x``, ``us``, ``ms``, ``MiB`` or nothing for a share.
    relation, bar
        What must hold; no bar: shown, not judged.
    roof : str, optional
        The roof that the figure is a share of.
    """

    name: str
    what: str
    figure: Callable[[Outcome], float]
    unit: str
    relation: Relation = ">="
    bar: float | None = None
    roof: Limit | None = None

    def holds(self, value: float) -> bool | None:
        """Tell whether a figure reaches the bar; None without a bar."""
        if self.bar is None:
            return None
        return {">=": value >= self.bar, ">": value > self.bar, "<=": value <= self.bar}[self.relation]


@dataclass(frozen=True)
class Case:
    """A contest and what is demanded of it; `section` is the table it belongs to."""

    name: str
    section: str
    build: Build
    demands: tuple[Demand, ...]

    def names(self) -> list[str]:
        """Return the name of each demand, that of the case first: ``logits/f32/gpt2/n1/torch``."""
        return [f"{self.name}/{demand.name}" for demand in self.demands]


def share(limit: Limit, bar: float | None) -> Demand:
    """Demand a share of a roof."""
    what = {"bandwidth": "of the read bandwidth", "peak": "of the FMA peak", "lower": "of the lower roof"}[limit]
    return Demand(limit, what, lambda outcome: outcome.share(limit), "", ">=", bar, limit)


def faster(peer: str, bar: float, relation: Relation = ">=") -> Demand:
    """Demand a multiple of a peer's speed."""
    return Demand(
        peer, f"times the speed of {TITLES[peer]}", lambda outcome: outcome.times_ours(peer), "x", relation, bar
    )


def faster_than(other: str, what: str, bar: float | None) -> Demand:
    """Demand a multiple of the speed of a call that is no peer's usual one."""
    return Demand(other.replace(" ", "-"), what, lambda outcome: outcome.times_ours(other), "x", ">=", bar)


def slower(other: str, what: str, bar: float | None) -> Demand:
    """Demand that ours takes at most so many times as long as another call of ours."""
    return Demand(f"per-{other.strip('()').replace(', ', '')}", what, lambda o: o.times_other(other), "x", "<=", bar)


def shorter(other: str, what: str, bar: float) -> Demand:
    """Demand that another call of ours takes at most so many times as long as ours."""
    return Demand(other.replace(" ", "-"), what, lambda outcome: outcome.times_ours(other), "x", "<=", bar)


def best_of_torch(outcome: Outcome) -> float:
    """Return how many times as long as ours the faster of PyTorch's two ways took."""
    present = [name for name in outcome.others if name.startswith("torch")]
    if not present:
        raise UnavailableError("torch did not take part")
    return min(outcome.times_ours(name) for name in present)


def best_of_peers(outcome: Outcome) -> float:
    """Return how many times as long as ours the fastest peer took."""
    present = [name for name in outcome.others if name in PEERS]
    if not present:
        raise UnavailableError("no peer took part")
    return min(outcome.times_ours(name) for name in present)


FASTEST = Demand("best", "times the speed of the best peer", best_of_peers, "x", ">", 1.0)


def on_head(name: str, build: Callable[..., Contest], *arguments: object) -> Build:
    """Return what builds a contest on the head of that name, in the size of the setting."""
    return lambda setting: build(setting, head(name, reduced=setting.reduced), *arguments)


def without_peers(build: Build) -> Build:
    """Return what builds a contest without peers: where no bar concerns them, they would only make the race longer."""
    return lambda setting: build(replace(setting, peers=()))
