"""How the time of a training step grows with N, V and D: `python bench/scaling.py`, prints a Markdown table.

Each is doubled three times with the others held; the slope is that of the least-squares line through the logarithms, 1
for a time that is linear. Knows: this one question. Refuses to know: contests, bars and roofs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lmhead_native as native
from bench.shapes import normal

SMALLEST = {"N": 256, "V": 8192, "D": 256}
DOUBLINGS, ROUNDS = 4, 7


def step(size: dict[str, int]) -> Callable[[], object]:
    """Return one call, its gradients into arrays made beforehand."""
    hidden, weight = normal((size["N"], size["D"]), "f32", seed=1), normal((size["V"], size["D"]), "f32", seed=2)
    targets = np.random.default_rng(3).integers(0, size["V"], size["N"])
    return partial(
        native.linear_cross_entropy_with_grad,
        hidden,
        weight,
        targets,
        dhidden_out=np.empty_like(hidden),
        dweight_out=np.empty_like(weight),
    )


def main() -> None:
    """Measure and print; the sizes of a row take turns."""
    print("| grows | sizes | milliseconds | slope |")
    print("| --- | --- | --- | --- |")
    for name in SMALLEST:
        sizes = [SMALLEST | {name: SMALLEST[name] << octave} for octave in range(DOUBLINGS)]
        calls = [step(size) for size in sizes]
        seconds: list[list[float]] = [[] for _ in calls]
        for _ in range(ROUNDS):
            for call, times in zip(calls, seconds, strict=True):
                call()  # the data where they usually are, the threads awake
                began = perf_counter()
                call()
                times.append(perf_counter() - began)
        middle = [median(times) for times in seconds]
        slope = np.polyfit(np.log([size[name] for size in sizes]), np.log(middle), 1)[0]
        grown = ", ".join(str(size[name]) for size in sizes)
        print(f"| {name} | {grown} | {', '.join(f'{1e3 * m:.1f}' for m in middle)} | {slope:.3f} |")


if __name__ == "__main__":
    main()
