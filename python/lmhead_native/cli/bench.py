"""``lmhead-native bench``: ours beside NumPy, PyTorch and the roof, on chosen shapes, with a table, a plot, JSON.

Knows: its options and the order of the runs. Refuses to know: how samples are taken, compared and drawn.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lmhead_native as native
from lmhead_native.cli import peers, plot
from lmhead_native.cli.arguments import Commands, choice, listed, positive
from lmhead_native.cli.errors import CommandError, UsageError
from lmhead_native.cli.optional import optional_module
from lmhead_native.cli.progress import Progress
from lmhead_native.cli.results import Result, group_table, group_title
from lmhead_native.cli.roof import Roofs
from lmhead_native.cli.terminal import Terminal
from lmhead_native.cli.timing import interleave
from lmhead_native.cli.workload import (
    DTYPES,
    NAMED_SHAPES,
    OPS,
    PROJECTIONS,
    Shape,
    Workload,
    random_matrix,
    storage_dtype,
)

Group = tuple[str, list[Result]]

DESCRIPTION = f"""\
Time an operation beside NumPy and, if it is installed, PyTorch, and beside the
roof: the shortest time that the machine's read bandwidth (measured on the same
buffer) and its multiply-add peak allow. The contestants take turns within each
round, the roofs are measured in the same rounds, and medians are compared.

shapes (width x vocabulary):
{chr(10).join(f"  {name:<14} {width} x {vocabulary}" for name, (width, vocabulary) in NAMED_SHAPES.items())}

operations:
  logits, logits_topk                     hidden states times the head
  topk, softmax, log_softmax, logsumexp   on rows of logits"""

EPILOG = """\
examples:
  lmhead-native bench
  lmhead-native bench --shape llama3-8b --dtype bf16 --rows 1,8,512
  lmhead-native bench --shape 1024x32000 --op logits,logits_topk -k 10
  lmhead-native bench --op softmax,logsumexp --plot out.png --json out.json"""


def add_parser(commands: Commands) -> None:
    """Declare the command and its options."""
    parser = commands.add_parser(
        "bench",
        help="a table of ours / NumPy / PyTorch / roof on chosen shapes",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def several(flag: str, read: Callable[[str], object], metavar: str, default: str, text: str) -> None:
        parser.add_argument(
            flag,
            type=listed(read),
            action="extend",
            metavar=metavar,
            help=f"{text} (comma-separated or repeated; default: {default})",
        )

    several("--shape", Shape.parse, "SHAPE", "smollm2,gpt2", "a name above, or DxV such as 768x50257")
    several("--rows", positive(), "N", "1,8,64", "rows of hidden states or logits")
    several("--dtype", choice(tuple(DTYPES)), "DTYPE", "f32", f"{', '.join(DTYPES)}: of hidden states, weight, logits")
    several("--op", choice(OPS), "OP", "logits", "an operation above")
    several("--peers", choice((*peers.PEERS, "none")), "PEER", "all that are installed", "numpy, torch, or none")
    parser.add_argument(
        "-k", type=positive(), default=50, metavar="K", help="of the top-k lists (default: %(default)s)"
    )
    parser.add_argument(
        "--repeat", type=positive(), default=7, metavar="R", help="rounds, one sample each (default: %(default)s)"
    )
    parser.add_argument("--threads", type=positive(), metavar="T", help="threads of everyone (default: all allowed)")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the shares of the roof (needs matplotlib)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample and the conditions")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Run the command. What can be wrong is found out before the first measurement."""
    plan = planned(args)
    for path in (args.plot, args.json):
        if path is not None:
            check_writable(path)
    if args.plot is not None:
        plot.plotting()
    for dtype in dict.fromkeys(group[0].dtype for group in plan):
        storage_dtype(dtype)
    names = peers.installed_peers(args.peers)
    threads = args.threads or native.get_num_threads()
    terminal, groups = Terminal.of(sys.stdout), []
    steps = sum(len(group) for group in plan) * args.repeat * (1 + len(names))
    with peers.peer_threads(threads) as told_numpy, Progress(steps, label="preparing") as progress:
        for works in plan:
            title = group_title(works[0], threads)
            results = list(measured(works, names, threads, args.repeat, progress))
            progress.hide()
            print(f"{title}\n{group_table(results, terminal)}\n", flush=True)
            groups.append((title, results))
    for note in notes(plan, names, told_numpy, args.threads):
        print(note)
    if args.json is not None:
        args.json.write_text(json.dumps(document(groups, names, threads), indent=1) + "\n", encoding="utf-8")
    if args.plot is not None:
        plot.draw(groups, args.plot)


def planned(args: argparse.Namespace) -> list[list[Workload]]:
    """List the workloads, grouped into tables; repeated values count once.

    Raises
    ------
    UsageError
        k is larger than a vocabulary it is used on.
    """
    shapes = dict.fromkeys(args.shape or [Shape.parse("smollm2"), Shape.parse("gpt2")])
    kinds = itertools.product(dict.fromkeys(args.op or ["logits"]), shapes, dict.fromkeys(args.dtype or ["f32"]))
    rows = dict.fromkeys(args.rows or [1, 8, 64])
    if args.peers is not None and "none" in args.peers and len(args.peers) > 1:
        raise UsageError("argument --peers: expected none alone or names of peers, got both")
    plan = [[Workload(op, dtype, shape, n, args.k) for n in rows] for op, shape, dtype in kinds]
    for work, *_ in plan:
        if "topk" in work.op and work.k > work.shape.vocabulary:
            raise UsageError(f"argument -k: expected at most V = {work.shape.vocabulary} of {work.shape}, got {work.k}")
    return plan


def measured(
    works: list[Workload], names: tuple[str, ...], threads: int, repeat: int, progress: Progress
) -> Iterator[Result]:
    """Run workloads that share a weight, one after another."""
    op, dtype, shape = works[0].op, works[0].dtype, works[0].shape
    progress.step(f"preparing {shape} {dtype}", advance=0)
    weight_vd = random_matrix(shape.vocabulary, shape.width, dtype, seed=1) if op in PROJECTIONS else None
    for work in works:
        data = random_matrix(work.rows, shape.vocabulary if weight_vd is None else shape.width, dtype, seed=2)
        buffer: NDArray[Any] = data if weight_vd is None else weight_vd
        roofs = Roofs(threads)
        racers = peers.contestants(op, data, weight_vd, work.k, threads=threads, peers=names)
        progress.step(f"{op} {shape} {dtype} rows={work.rows}", advance=0)
        samples = interleave(
            [racer.call for racer in racers],
            repeat,
            each_round=partial(roofs.measure, buffer, dtype, flops=work.flops > 0),
            tick=progress.step,
        )
        yield Result(work, {racer.name: times for racer, times in zip(racers, samples, strict=True)}, roofs)


def notes(plan: list[list[Workload]], names: tuple[str, ...], told_numpy: bool, threads: int | None) -> Iterator[str]:
    """Say what a reader of the tables must know to judge them."""
    if "numpy" in names and any(works[0].dtype != "f32" and works[0].op in PROJECTIONS for works in plan):
        yield "NumPy multiplies float32 copies of the half-precision operands, made outside the timing."
    if "numpy" in names and threads is not None and not told_numpy:
        yield "NumPy keeps its own number of threads: threadpoolctl, which could set it, is not installed."


def document(groups: list[Group], names: tuple[str, ...], threads: int) -> dict[str, Any]:
    """Collect the conditions and every result for the JSON file."""
    torch = optional_module("torch") if "torch" in names else None
    versions = {"numpy": np.__version__} | ({} if torch is None else {"torch": str(torch.__version__)})
    return {
        "config": native.show_config(mode="dicts"),
        "threads": threads,
        "versions": versions,
        "results": [result.record() for _, results in groups for result in results],
    }


def check_writable(path: Path) -> None:
    """Refuse a file that could not be written later.

    Raises
    ------
    CommandError
        The folder does not exist, or the file or the folder may not be written.
    """
    if not path.absolute().parent.is_dir():
        raise CommandError(f"{path}: no such folder: {path.parent}")
    if path.is_dir() or not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise CommandError(f"{path}: cannot be written")
