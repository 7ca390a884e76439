"""The races of a bench run as lines of text.

Knows: columns. Refuses to know: how anything was measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.contest import Outcome
from bench.peers import TITLES
from lmhead_native.cli.table import duration, table, three_digits
from lmhead_native.cli.terminal import Terminal


def summary(outcomes: Sequence[tuple[str, Outcome]]) -> str:
    """Lay out one line a contest: our time, rates, share of the lower roof, how many times as long the others took."""
    others = list(dict.fromkeys(name for _, outcome in outcomes for name in outcome.others))
    head = ["contest", "ours", "GB/s", "GFLOP/s", "roof", "share"]
    head += [f"{TITLES.get(name, name)}/ours" for name in others]
    lines = []
    for title, outcome in outcomes:
        line = [title, duration(outcome.seconds())]
        if outcome.roofs is None:
            line += ["", "", "", ""]
        else:
            work, seconds = outcome.roofs.work, outcome.seconds()
            line.append(three_digits(work.bytes / seconds / 1e9))
            line.append(three_digits(work.flops / seconds / 1e9) if work.flops else "")
            line += [outcome.roofs.text("lower"), f"{outcome.share('lower'):.2f}"]
        line += [f"{three_digits(outcome.times_ours(name))}x" if name in outcome.samples else "" for name in others]
        lines.append(line)
    return table(head, lines, Terminal())
