"""Which ids of a row may be drawn: top-k, top-p, min-p and typical-p; part of `lmhead_native.reference`.

Knows one row at a time: its logits after edits, in float64, and the ids that former filters left. Sorts it each time.
Refuses to know noise, and leaves the range of parameters to `_reference_sample_checks`.

Source: top-k, Fan et al., 2018 (arXiv:1805.04833); top-p, Holtzman et al., 2020 (arXiv:1904.09751); min-p, Nguyen et
al., 2024 (arXiv:2407.01082); typical-p, Meister et al., 2023 (arXiv:2202.00666).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._reference_rank import best_first

Array = NDArray[np.float64]
Ids = NDArray[np.int64]

ORDERS: dict[str, tuple[str, ...]] = {
    "hf": ("top_k", "top_p", "min_p", "typical_p"),
    "vllm": ("min_p", "top_k", "top_p", "typical_p"),
    "llama.cpp": ("top_k", "typical_p", "top_p", "min_p"),
}


class Filters(NamedTuple):
    """The parameters of one row; the temperature is above 0."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    order: str

    def is_off(self, name: str, vocabulary: int) -> bool:
        """Whether a filter keeps everything, exactly."""
        if name == "top_k":
            return self.top_k in (-1, 0) or self.top_k >= vocabulary
        return bool(getattr(self, name) == (0 if name == "min_p" else 1))


def log_masses(y: Array, temperature: float) -> Array:
    """Return ``(y - max) / temperature``, whose exponentials are the masses: the best of them has 1."""
    masses: Array = (y - y.max()) / temperature
    return masses


def kept_ids(y: Array, filters: Filters) -> Ids:
    """Return the ids that are left, ascending: those above -inf that pass every filter, in the given order."""
    kept = np.flatnonzero(y > -np.inf)
    # llama.cpp takes the temperature last: its filters see the masses at temperature 1.
    log_mass = log_masses(y, 1.0 if filters.order == "llama.cpp" else filters.temperature)
    for name in ORDERS[filters.order]:
        if not filters.is_off(name, y.size):
            kept = np.sort(kept[_FILTERS[name](y[kept], log_mass[kept], filters)])
    return kept


def _top_k(y: Array, log_mass: Array, filters: Filters) -> Ids:
    return best_first(y)[: filters.top_k]


def _top_p(y: Array, log_mass: Array, filters: Filters) -> Ids:
    order = best_first(y)
    mass = np.exp(log_mass[order])
    kept: Ids = order[_mass_before(mass) / mass.sum() < filters.top_p]
    return kept


def _min_p(y: Array, log_mass: Array, filters: Filters) -> Ids:
    # Relative to the best that is left. That is the best of the row, unless typical_p came before and dropped it.
    return np.flatnonzero(np.exp(log_mass - log_mass.max()) >= filters.min_p)


def _typical_p(y: Array, log_mass: Array, filters: Filters) -> Ids:
    mass = np.exp(log_mass)
    total = mass.sum()
    q, log_q = mass / total, log_mass - np.log(total)
    entropy = -np.where(q == 0, 0.0, q * log_q).sum()
    order = np.argsort(np.abs(log_q + entropy), kind="stable")
    before: Array = _mass_before(mass[order]) / total
    return order[before < filters.typical_p]


def _mass_before(mass: Array) -> Array:
    """Return the sum of what comes before each: exactly 0 for the first, so that one is always kept."""
    return np.concatenate([[0.0], np.cumsum(mass)[:-1]])


_FILTERS = {"top_k": _top_k, "top_p": _top_p, "min_p": _min_p, "typical_p": _typical_p}
