"""What the losses are given in numeric tests: logits, heads and targets, and options, each alone or drawn at random.

Knows names and ranges. Refuses to know what a loss makes of them.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
DType = np.dtype[Any]

REDUCTIONS = ("mean", "sum", "none")


@cache
def some_rows(rows: int, vocabulary: int, dtype: DType) -> tuple[Array, Array]:
    """Return logits, some far apart, and targets, one in five of them ignored."""
    rng = np.random.default_rng([rows, vocabulary])
    logits = 3 * rng.standard_normal((rows, vocabulary))
    logits[1::3] *= 4
    targets = rng.integers(0, vocabulary, rows)
    targets[4::5] = -100
    return logits.astype(dtype), targets


@cache
def some_head(n: int, vocabulary: int, width: int, hidden: DType, weight: DType) -> tuple[Array, Array, Array]:
    """Return hidden states, a weight whose logits have a spread of a few, and targets, one in five of them ignored."""
    rng = np.random.default_rng([n, vocabulary, width])
    h = rng.standard_normal((n, width)).astype(hidden)
    w = (3 / math.sqrt(max(width, 1)) * rng.standard_normal((vocabulary, width))).astype(weight)
    targets = rng.integers(0, vocabulary, n)
    targets[4::5] = -100
    return h, w, targets


def single_options(rows: int, vocabulary: int) -> dict[str, dict[str, Any]]:
    """Return every option alone, by a name; vectors hold numbers that float32 and bfloat16 have."""
    rng = np.random.default_rng([rows, vocabulary])
    eighths = rng.integers(1, 16, vocabulary) / 8
    return {
        "none": {},
        "bias": {"bias": rng.integers(-40, 40, vocabulary) / 8},
        "class_weight": {"class_weight": eighths},
        "negative class_weight": {"class_weight": eighths - 0.75, "reduction": "sum"},
        "token_weight": {"token_weight": np.arange(1, rows + 1) % 5 / 4},
        "sum": {"reduction": "sum"},
        "unreduced": {"reduction": "none"},
        "label_smoothing": {"label_smoothing": 0.2},
        "all smooth": {"label_smoothing": 1.0},
        "softcap": {"softcap": 3.0},
        "scale": {"scale": -0.5},
        "temperature": {"temperature": 0.7},
        "lse_square_scale": {"lse_square_scale": 0.01},
        "num_items": {"num_items": 3.5},
        "grad_output": {"grad_output": -2.5},
        "grad_output of each": {"grad_output": rng.integers(-8, 8, rows) / 4, "reduction": "none"},
    }


def random_options(seed: int, rows: int, vocabulary: int) -> dict[str, Any]:
    """Return a random set of random options."""
    rng = np.random.default_rng([seed, rows, vocabulary])
    reduction = REDUCTIONS[seed % 3]
    drawn: dict[str, Any] = {
        "bias": rng.integers(-40, 40, vocabulary) / 8,
        "class_weight": rng.integers(1, 16, vocabulary) / 8,
        "token_weight": rng.integers(0, 8, rows) / 4,
        "label_smoothing": rng.random(),
        "softcap": 1 + 9 * rng.random(),
        "scale": 2 * rng.standard_normal(),
        "temperature": 0.4 + rng.random(),
        "lse_square_scale": 0.1 * rng.random(),
        "num_items": 1 + 9 * rng.random(),
        "grad_output": rng.integers(-8, 8, rows) / 4 if reduction == "none" else rng.standard_normal(),
    }
    chosen = {name: value for name, value in drawn.items() if rng.random() < 0.6}
    if reduction != "mean":
        chosen.pop("num_items", None)
    return chosen | {"reduction": reduction}
