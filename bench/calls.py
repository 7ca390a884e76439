"""Contests in which the work is nothing: the smallest call, and the import.

Knows: a call's overhead and a fresh interpreter. Refuses to know: bars.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from functools import partial

import lmhead_native as native
from bench import answers, peers
from bench.contest import OURS, Contest
from bench.projection import others
from bench.setting import Setting
from bench.shapes import normal
from bench.timing import Racer

# Five positions, width 4, twelve tokens: a head one can compute by hand.
SMALLEST = 5, 4, 12
# What a fresh interpreter needs for the second module after the first; what the package loads only on demand must not
# have come along.
IMPORTS = """
import sys, time
start = time.perf_counter()
import numpy
between = time.perf_counter()
import lmhead_native
end = time.perf_counter()
assert not {"lmhead_native.reference", "lmhead_native.cli", "torch", "ml_dtypes"} & set(sys.modules)
print(between - start, end - between)
"""


def smallest_call(setting: Setting) -> Contest:
    """Set up ``logits`` of 5 x 4 hidden states and 12 x 4 weights, the result a new array for everyone."""
    rows, width, vocabulary = SMALLEST
    hidden, weight = normal((rows, width), "f32", seed=6), normal((vocabulary, width), "f32", seed=7)
    calls: dict[str, peers.Call] = {}
    if "numpy" in setting.peers:
        calls["numpy"] = partial(lambda h, w: h @ w.T, hidden, weight)
    if "torch" in setting.peers:
        calls |= peers.projections(hidden, weight, ("torch",))
    return Contest(
        f"logits f32 {rows} x {width} x {vocabulary}",
        "smallest call",
        [Racer(OURS, partial(native.logits, hidden, weight), cpus=1), *others(calls)],
        partial(answers.check_logits, hidden, weight),
    )


def import_seconds() -> tuple[float, float]:
    """Return what NumPy, and after it this package, take in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", IMPORTS], check=True, capture_output=True, text=True)
    numpy_seconds, our_seconds = map(float, done.stdout.split())
    return numpy_seconds, our_seconds


@dataclass(frozen=True)
class ImportRacer(Racer):
    """A racer whose time is measured inside an interpreter of its own; ``call`` returns both times."""

    which: int = 1

    def seconds(self, loops: int) -> float:
        """Return what one interpreter says: an import happens once, whatever ``loops``."""
        return import_seconds()[self.which]


def import_time() -> Contest:
    """Set up the import of this package after NumPy's, beside NumPy's own."""

    def check(seconds: tuple[float, float]) -> None:
        assert min(seconds) > 0

    return Contest(
        "import",
        "import",
        [ImportRacer(OURS, import_seconds, which=1), ImportRacer("numpy", import_seconds, which=0)],
        check,
    )
