"""Ranks and entropies of single rows, exactly or with what arithmetic may be off by.

Knows one row. Refuses to know who else says the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import oracle

Array = NDArray[Any]


def rank_exact(row: Array, target: int) -> int:
    """Return 1 + how many come before the target: NaN first, then greater ones, of equal ones those of lower ids."""
    x = oracle.widen(row)
    before = np.isnan(x) & ~np.isnan(x[target])
    if np.isnan(x[target]):
        equal = np.isnan(x)
    else:
        before |= x > x[target]
        equal = x == x[target]
    return 1 + int(np.count_nonzero(before)) + int(np.count_nonzero(equal[:target]))


def entropy_exact(x: Array, temperature: float = 1.0) -> tuple[float, float]:
    """Return -sum p log p of one row without NaN and +inf, and what arithmetic of the row's result may be off by."""
    result = oracle.result_dtype(x.dtype).name
    answers = oracle.row_answers(x, temperature=temperature, result=result)
    p, log_p = answers.softmax, answers.log_softmax
    at = p > 0
    terms = -(p[at] * log_p[at])
    u = oracle.UNIT[result]
    error = (answers.softmax_bound[at] * -log_p[at] + p[at] * answers.log_softmax_bound[at]).sum()
    error += (oracle.gamma(min(len(x), 256) + len(x) // 256 + 8, u)) * terms.sum() + answers.log_softmax_bound[at].max()
    return float(terms.sum()), float(oracle.SECOND_ORDER * error + oracle.UNDERFLOW[result])
