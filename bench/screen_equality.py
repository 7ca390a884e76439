"""Whether the screen ever changes a list: `python bench/screen_equality.py`, prints a Markdown table.

Every (hidden, k) pair is asked twice, by way of the screen and by the full pass, and compared to the bit. Knows: this
one question, and inputs that make it hard. Refuses to know: clocks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lmhead_native as native
from lmhead_native import _core
from lmhead_native.cli.model import ModelMissingError, model_file, read_model

PASSAGE = Path(__file__).resolve().parents[1] / "tests" / "data" / "smollm2_passage.npz"
KS = (1, 10, 50)
ROWS = 4  # of a call: more of them take the full pass on a CPU whose screen does not outrun float32
VOCABULARY = 4001

Array = NDArray[Any]
Case = tuple[str, Array, Array, dict[str, Any]]


def gaussian(rng: np.random.Generator, vocabulary: int, width: int) -> Array:
    """Return rows of normal numbers of different lengths."""
    lengths = np.exp(0.3 * rng.standard_normal((vocabulary, 1)))
    return (lengths * rng.standard_normal((vocabulary, width))).astype(np.float32)


def last_bits(rng: np.random.Generator, vocabulary: int, width: int) -> Array:
    """Return copies of 40 rows, two thirds of them with one element a last bit off."""
    rows = gaussian(rng, 40, width)[rng.integers(0, 40, vocabulary)]
    changed = np.flatnonzero(np.arange(vocabulary) % 3)
    rows[changed, rng.integers(0, width, len(changed))] *= np.float32(1 + 2.0**-23)
    return rows


def outliers(rng: np.random.Generator, vocabulary: int, width: int) -> Array:
    """Return rows with three dimensions that dwarf the others."""
    rows = gaussian(rng, vocabulary, width)
    rows[:, rng.integers(0, width, 3)] *= np.float32(300)
    return rows


OPTIONS: list[dict[str, Any]] = [{}, {"softcap": 30.0}, {"scale": -0.5}, {"bias": True, "softcap": 5.0, "scale": 2.0}]
MAKERS = {"Gaussian rows": gaussian, "last bits and ties": last_bits, "outlier dimensions": outliers}


def made_up() -> Iterator[Case]:
    """Give a name, hidden states, a weight and options for each kind of random input."""
    rng = np.random.default_rng(1)
    for name, maker in MAKERS.items():
        for width in (64, 256):
            weight = maker(rng, VOCABULARY, width)
            hidden = rng.standard_normal((1500, width)).astype(np.float32)
            hidden[1::2] += 2 * weight[rng.integers(0, VOCABULARY, 750)]
            hidden[::50] = 0
            for options in OPTIONS:
                bias = {"bias": rng.standard_normal(VOCABULARY)} if "bias" in options else {}
                yield name, hidden, weight, options | bias
    for exponent in (-40, -30, -20, 20, 30):
        weight, scale = gaussian(rng, VOCABULARY, 64), np.float32(10.0**exponent)
        hidden = rng.standard_normal((600, 64)).astype(np.float32)
        yield "huge and tiny scales", hidden, weight * scale, {}
        yield "huge and tiny scales", hidden * scale, weight, {}


def real() -> Iterator[Case]:
    """Give the hidden states of a passage and the head that belongs to them, if it is installed."""
    try:
        weight = read_model(model_file()).weight_vd
    except ModelMissingError as missing:
        print(f"the real head is left out: {missing}", file=sys.stderr)
        return
    with np.load(PASSAGE) as passage:
        hidden = passage["hidden"]
    rng = np.random.default_rng(2)
    for options in OPTIONS[:2]:
        yield "real head, real states", hidden, weight, options
    for strength in (0.02, 0.1, 0.5):
        disturbed = hidden * (1 + strength * rng.standard_normal(hidden.shape))
        yield "real head, disturbed states", disturbed.astype(np.float32), weight, {}


def main() -> None:
    """Compare and print."""
    pairs: dict[str, int] = {}
    different: dict[str, int] = {}
    shares: dict[str, list[Array]] = {}
    for name, hidden, weight, options in [*made_up(), *real()]:
        screen = _core.Screen(weight)
        bias, softcap, scale = (options.get(key) for key in ("bias", "softcap", "scale"))
        for k in KS:
            for first in range(0, len(hidden), ROWS):
                some = hidden[first : first + ROWS]
                values, indices, rescored = _core.screened_topk(
                    screen, some, weight, k, bias, softcap, scale, *[None] * 4
                )
                full = native.logits_topk(some, weight, k, **options)
                wrong = (values.view(np.uint32) != full.values.view(np.uint32)) | (indices != full.indices)
                pairs[name] = pairs.get(name, 0) + len(some)
                different[name] = different.get(name, 0) + int(wrong.any(axis=1).sum())
                shares.setdefault(name, []).append(rescored / len(weight))
    print("| input | (hidden, k) pairs | different | ids computed, median | full passes |")
    print("| --- | --- | --- | --- | --- |")
    for name, count in pairs.items():
        of_all = np.concatenate(shares[name])
        print(f"| {name} | {count} | {different[name]} | {np.median(of_all):.2%} | {np.mean(of_all == 1):.1%} |")
    print(f"| all | {sum(pairs.values())} | {sum(different.values())} | | |")
    sys.exit(sum(different.values()) > 0)


if __name__ == "__main__":
    main()
