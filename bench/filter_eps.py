"""What `filter_eps` saves and costs on a real model: `python bench/filter_eps.py`, prints a Markdown table.

Hidden states of SmolLM2 that belong to a passage of 255 tokens, and its tied head of 49152 x 576, from the model
package of the demo. Knows: this one question. Refuses to know: contests, bars and roofs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lmhead_native as native
from lmhead_native.cli.model import model_file, read_model

PASSAGE = Path(__file__).resolve().parents[1] / "tests" / "data" / "smollm2_passage.npz"
EXPONENTS = (None, 24, 20, 16, 12)
ROUNDS = 9


def error(found: NDArray[Any], exact: NDArray[Any]) -> float:
    """Return the relative error of a gradient, in the Euclidean norm."""
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def main() -> None:
    """Measure and print; everyone takes turns."""
    passage, weight = np.load(PASSAGE), read_model(model_file()).weight_vd
    hidden, targets = passage["hidden"], passage["ids"]
    filters = [None if exponent is None else 2.0**-exponent for exponent in EXPONENTS]

    def step(eps: float | None, *, stats: bool = False) -> Any:
        return native.linear_cross_entropy_with_grad(hidden, weight, targets, shift=1, filter_eps=eps, stats=stats)

    answers = [step(eps, stats=True) for eps in filters]
    seconds: list[list[float]] = [[] for _ in filters]
    for _ in range(ROUNDS):
        for eps, times in zip(filters, seconds, strict=True):
            began = perf_counter()
            step(eps)
            times.append(perf_counter() - began)
    exact = answers[0]
    print("| filter_eps | time of the exact call | largest skipped mass of a token | error of dhidden | of dweight |")
    print("| --- | --- | --- | --- | --- |")
    for exponent, found, times in zip(EXPONENTS, answers, seconds, strict=True):
        share = median(times) / median(seconds[0])
        errors = [error(found[i].astype(float), exact[i].astype(float)) for i in (1, 2)]
        name = "none" if exponent is None else f"2^-{exponent}"
        print(f"| {name} | {share:.2f} | {found[0].skipped_mass:.2e} | {errors[0]:.1e} | {errors[1]:.1e} |")


if __name__ == "__main__":
    main()
