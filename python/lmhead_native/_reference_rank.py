"""The total order of a row, best first: part of `lmhead_native.reference`.

Knows where NaN, ties and what is not allowed stand. Refuses to know what the values mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def best_first(values: NDArray[Any], allowed: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """Return the ids of every row, best first: NaN, then descending values; equals by ascending id.

    What is not allowed, whose value must be -inf, comes after all that is, even after an allowed -inf.
    """
    is_nan = np.isnan(values)
    # lexsort is stable, its last key is the primary one, and ascending: False (NaN) before True.
    keys = [np.where(is_nan, 0.0, -values), ~is_nan]
    if allowed is not None:
        keys.append(~allowed)
    return np.lexsort(keys, axis=-1).astype(np.int64)


def best_ids(values: NDArray[Any], allowed: NDArray[np.bool_], n: int) -> NDArray[np.int64]:
    """Return the ids of the n best of every row, -1 where fewer are allowed."""
    order = best_first(values, allowed)[..., :n]
    return np.where(np.take_along_axis(allowed, order, axis=-1), order, -1)


def at_ids(values: NDArray[Any], ids: NDArray[np.int64], elsewhere: float) -> NDArray[Any]:
    """Return the values of every row at its ids, and a number where the id is -1."""
    if values.shape[-1] == 0:
        return np.full(ids.shape, elsewhere, values.dtype)
    return np.where(ids == -1, elsewhere, np.take_along_axis(values, np.maximum(ids, 0), axis=-1))
