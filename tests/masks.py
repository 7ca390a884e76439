"""Sets of allowed ids, in the forms that callers have them, and what a masked call must give.

Knows bits and -inf. Refuses to know how logits are computed: they are those of the call without a mask.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def packed(allowed: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Return the bits of rows of booleans, the lowest first, in int32 words."""
    words = -(-allowed.shape[-1] // 32)
    padded = np.zeros((*allowed.shape[:-1], 32 * words), bool)
    padded[..., : allowed.shape[-1]] = allowed
    return np.packbits(padded, axis=-1, bitorder="little").view("<i4").reshape(*allowed.shape[:-1], words)


def id_lists(allowed: NDArray[np.bool_]) -> list[Array]:
    """Return the ids of each row, flattened leading axes."""
    rows = math.prod(allowed.shape[:-1])
    return [np.flatnonzero(row) for row in allowed.reshape(rows, allowed.shape[-1])]


def disallow(logits: Array, allowed: NDArray[np.bool_]) -> Array:
    """Return logits with -inf where an id is not allowed."""
    return np.where(allowed, logits, logits.dtype.type(-math.inf))


def best(logits: Array, allowed: NDArray[np.bool_], k: int) -> tuple[Array, NDArray[np.int64]]:
    """Return the lists of rows, by Python's sort: NaN first, descending, ascending id; -inf of id -1 at the end."""
    values = np.full((len(logits), k), -math.inf, logits.dtype)
    indices = np.full((len(logits), k), -1, np.int64)
    for row, (z, ids) in enumerate(zip(logits, id_lists(np.broadcast_to(allowed, logits.shape)), strict=True)):
        order = sorted(ids.tolist(), key=lambda i: (not math.isnan(z[i]), 0 if math.isnan(z[i]) else -z[i], i))[:k]
        values[row, : len(order)], indices[row, : len(order)] = z[order], order
    return values, indices


def sets(rng: np.random.Generator, rows: int, vocabulary: int) -> dict[str, NDArray[np.bool_]]:
    """Return sets of every density and arrangement: one for all rows (V,), or one for each (N, V)."""
    ids = np.arange(vocabulary)
    stretch = (ids >= vocabulary // 3) & (ids < vocabulary // 3 + max(1, vocabulary // 5))
    few = np.zeros((rows, vocabulary), bool)
    few[np.arange(rows), rng.integers(0, vocabulary, rows)] = True
    apart = np.zeros((rows, vocabulary), bool)
    apart[np.arange(rows), np.arange(rows) * 37 % vocabulary] = True
    apart[0] = False
    return {
        "one": ids == vocabulary // 2,
        "half": rng.random(vocabulary) < 0.5,
        "stretch": stretch,
        "all but one": ids != vocabulary // 2,
        "nothing": np.zeros(vocabulary, bool),
        "halves": rng.random((rows, vocabulary)) < 0.5,
        "nearly all": rng.random((rows, vocabulary)) < 0.95,
        "few each": few,
        "others each": apart,
        "the same each": np.tile(rng.random(vocabulary) < 0.2, (rows, 1)),
    }
