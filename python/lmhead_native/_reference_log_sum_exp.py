"""The log-sum-exp of rows as (maximum, its first index, rest): part of `lmhead_native.reference`.

Knows how to take it without losing large offsets or tiny rests. Refuses to know what is made of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class LogSumExp(NamedTuple):
    """log sum exp(x / T) of every row as (maximum, its first index, rest); axes of size 1 are kept.

    ``rest`` is the sum of ``terms = exp((x - maximum) / T)`` without the maximum's own 1, so that nothing is lost when
    it is tiny. A maximum that is not finite decides its row alone; NaN wins over both infinities.
    """

    maximum: NDArray[np.float64]
    first: NDArray[np.int64]
    rest: NDArray[np.float64]
    terms: NDArray[np.float64]


def log_sum_exp(x: NDArray[np.float64], temperature: float) -> LogSumExp:
    """Take the log-sum-exp over the last axis, which must not be empty."""
    first = np.argmax(x, axis=-1, keepdims=True)  # the first of equals; the first NaN if there is one
    maximum = np.take_along_axis(x, first, axis=-1)
    # Dividing the difference, not its two ends, neither overflows nor rounds away small gaps between large logits.
    terms = np.exp((x - maximum) / temperature)
    np.put_along_axis(terms, first, 0.0, axis=-1)
    return LogSumExp(maximum, first.astype(np.int64, copy=False), terms.sum(axis=-1, keepdims=True), terms)


def log_probabilities(x: NDArray[np.float64], temperature: float = 1.0) -> NDArray[np.float64]:
    """Return ``x / T - log sum exp(x / T)`` over the last axis; rows of which that is undefined are NaN throughout."""
    if x.size == 0:
        return x
    lse = log_sum_exp(x, temperature)
    found = (x - lse.maximum) / temperature - np.log1p(lse.rest)
    return np.where(np.isfinite(lse.maximum), found, np.nan)
