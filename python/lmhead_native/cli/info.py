"""``lmhead-native info``: what this build is, what the processor can do, and how fast its memory and multipliers are.

Knows: how to lay the facts out. Refuses to know: the facts; the native module reports them.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import lmhead_native as native
from lmhead_native import _core
from lmhead_native.cli.arguments import Commands, positive
from lmhead_native.cli.progress import Progress
from lmhead_native.cli.roof import READ_BUFFER_BYTES, read_buffer
from lmhead_native.cli.table import byte_size, three_digits
from lmhead_native.cli.terminal import Terminal

DESCRIPTION = """\
Show the version, the instruction set in use and those compiled in, the
processor's features, the threads, and two measurements: the read bandwidth of
the memory and the peak of fused multiply-adds, the limits of every benchmark."""

EPILOG = """\
examples:
  lmhead-native info
  lmhead-native info --threads 1     measure with one thread
  lmhead-native info --json          the same as one JSON object
  LMHEAD_ISA=avx2 lmhead-native info

environment:
  LMHEAD_ISA          force an instruction set
  LMHEAD_NUM_THREADS  default number of threads"""

LABEL_COLUMNS = 20


def add_parser(commands: Commands) -> None:
    """Declare the command and its options."""
    parser = commands.add_parser(
        "info",
        help="version, processor, threads, measured bandwidth and peak",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--threads", type=positive(), metavar="N", help="threads of the measurement (default: all allowed)"
    )
    parser.add_argument("--no-measure", dest="measure", action="store_false", help="only the facts, at once")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    facts: dict[str, Any] = dict(native.show_config(mode="dicts"))
    facts["cpu_features"] = _core.cpu_features()
    if args.measure:
        facts["measured"] = measured(args.threads)
    if args.json:
        print(json.dumps(facts, indent=2))
    else:
        show(facts, Terminal.of(sys.stdout))


def measured(threads: int | None) -> dict[str, float]:
    """Measure both roofs; GB/s are 1e9 bytes, GFLOP/s count a multiply-add as two."""
    with Progress(3, label="read bandwidth") as progress:
        bandwidth = _core.read_bandwidth(read_buffer(), threads=threads)
        progress.step("multiply-add peak, float32")
        peak_f32 = _core.fma_peak("f32", threads=threads)
        progress.step("multiply-add peak, bfloat16")
        peak_bf16 = _core.fma_peak("bf16", threads=threads)
    return {
        "threads": threads or native.get_num_threads(),
        "read_bandwidth_gb_per_s": bandwidth,
        "fma_peak_f32_gflop_per_s": peak_f32,
        "fma_peak_bf16_gflop_per_s": peak_bf16,
    }


def show(facts: dict[str, Any], terminal: Terminal) -> None:
    """Print the facts one a line."""
    features = [name for name, present in facts.pop("cpu_features").items() if present]
    roofs = facts.pop("measured", None)
    lines = [(key.replace("_", " "), worded(value)) for key, value in facts.items()]
    lines.append(("cpu features", " ".join(features)))
    if roofs is not None:
        what = f"({byte_size(READ_BUFFER_BYTES)}, threads = {roofs['threads']})"
        lines.append(("read bandwidth", f"{three_digits(roofs['read_bandwidth_gb_per_s'])} GB/s {what}"))
        lines.append(("fma peak, float32", f"{three_digits(roofs['fma_peak_f32_gflop_per_s'])} GFLOP/s"))
        lines.append(("fma peak, bfloat16", f"{three_digits(roofs['fma_peak_bf16_gflop_per_s'])} GFLOP/s"))
    for label, text in lines:
        print(terminal.style(label.ljust(LABEL_COLUMNS), "bold") + text)


def worded(value: object) -> str:
    """Write a value of the configuration for people."""
    if isinstance(value, list | tuple):
        return " ".join(str(item) for item in value) or "none"
    return "none" if value is None or value == "" else str(value)
