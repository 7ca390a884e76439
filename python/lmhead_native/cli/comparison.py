"""A small table of ours beside the peers: medians and ratios of one operation for several numbers of rows.

Knows: the columns the demo prints. Refuses to know: roofs and files; the benchmark has those.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from numpy.typing import NDArray

import lmhead_native as native
from lmhead_native.cli import peers
from lmhead_native.cli.progress import Progress
from lmhead_native.cli.table import duration, table, three_digits
from lmhead_native.cli.terminal import Terminal
from lmhead_native.cli.timing import interleave, median


def show_times(
    hidden_nd: NDArray[Any],
    weight_vd: NDArray[Any],
    head: native.LMHead,
    k: int,
    *,
    repeat: int,
    threads: int | None,
    terminal: Terminal,
) -> None:
    """Time ``logits_topk`` on the last hidden state alone and on all of them, and print a table.

    Parameters
    ----------
    hidden_nd : (N, D) array
        Hidden states.
    weight_vd : (V, D) array
        The matrix that ``logits_topk`` and the peers multiply.
    head : LMHead
        The same matrix prepared, in whatever storage; takes part as well.
    k, repeat, threads, terminal
        Length of the lists, rounds, threads of everyone, where it is shown.

    Notes
    -----
    Printed are a sentence about the conditions, and a line for each number of rows: median times, and how many times as
    long as ours the peers took.
    """
    print()
    threads = threads or native.get_num_threads()
    names = peers.installed_peers()
    absent = "" if "torch" in names else "; PyTorch is not installed"
    vocabulary, width = weight_vd.shape
    lines = []
    cases = [hidden_nd[-1:], hidden_nd] if len(hidden_nd) > 1 else [hidden_nd]
    with peers.peer_threads(threads), Progress(len(cases) * repeat * (2 + len(names)), label="timing") as progress:
        for hidden in cases:
            racers = peers.contestants("logits_topk", hidden, weight_vd, k, threads=threads, peers=names)
            prepared = partial(head.topk, hidden, k, threads=threads)
            calls: list[Callable[[], object]] = [racers[0].call, prepared, *(racer.call for racer in racers[1:])]
            samples = interleave(calls, repeat, tick=progress.step)
            ours, *others = (median(times) for times in samples)
            ratios = [f"{three_digits(other / ours)}x" for other in others]
            lines.append([str(len(hidden)), *(duration(seconds) for seconds in (ours, *others)), *ratios])
    titles = ["LMHead", *(peers.TITLES[name] for name in names)]
    print(
        f"logits_topk(hidden, weight, k={k}) on a head of {vocabulary} x {width}: medians of {repeat}, "
        f"threads = {threads}{absent}\n"
        + table(["rows", "ours", *titles, *(f"{title}/ours" for title in titles)], lines, terminal)
    )
