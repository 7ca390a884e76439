"""The benchmark's picture: for every table the share of the roof that each contestant reached, as a PNG.

Knows: matplotlib, imported only here. Refuses to know: how anything was measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmhead_native.cli.errors import MissingExtraError
from lmhead_native.cli.optional import optional_module
from lmhead_native.cli.peers import TITLES
from lmhead_native.cli.results import Result

COLOURS = {"ours": "#1b7f5c", "numpy": "#4d77cf", "torch": "#d9662b"}
PANEL_INCHES = (4.6, 3.2)
GROUP_WIDTH = 0.8  # of the distance between two groups of bars


def plotting() -> Any:
    """Import matplotlib's Figure, which needs no display.

    Raises
    ------
    MissingExtraError
        matplotlib is not installed.
    """
    figure = optional_module("matplotlib.figure")
    if figure is None:
        raise MissingExtraError("--plot", "matplotlib", "bench")
    return figure.Figure


def draw(groups: Sequence[tuple[str, Sequence[Result]]], path: Path) -> None:
    """Draw one panel for every table and write the picture.

    Parameters
    ----------
    groups : sequence of (str, sequence of Result)
        The title and the results of each table.
    path : Path
        The PNG file.
    """
    columns = min(len(groups), 2)
    lines = math.ceil(len(groups) / columns)
    figure = plotting()(figsize=(PANEL_INCHES[0] * columns, PANEL_INCHES[1] * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).flat
    for panel, (title, results) in zip(panels, groups, strict=False):
        names = list(results[0].samples)
        width = GROUP_WIDTH / len(names)
        for place, name in enumerate(names):
            offset = (place - (len(names) - 1) / 2) * width
            bars = panel.bar(
                [index + offset for index in range(len(results))],
                [100 * result.share(name) for result in results],
                width,
                label=TITLES[name],
                color=COLOURS[name],
            )
            panel.bar_label(bars, fmt="%.0f", fontsize=7)
        panel.axhline(100, color="black", linewidth=0.8, linestyle="--")
        panel.set_xticks(range(len(results)), [str(result.work.rows) for result in results])
        panel.set_xlabel("rows")
        panel.set_ylabel("% of the roof")
        panel.set_title(title, fontsize=8)
    for panel in panels:  # what is left of the grid
        panel.set_axis_off()
    figure.axes[0].legend(fontsize=7)
    figure.savefig(path, format="png", dpi=150)
