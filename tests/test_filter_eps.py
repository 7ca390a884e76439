"""``filter_eps``: which entries of the gradient it leaves out, what they weigh, and how far off the rest is.

Knows the bounds that the docstring states. Operands that are not finite beside a filter are in test_loss_edges.py.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
import oracle
from loss_bounds import one_hot
from loss_cases import some_head
from parameters import every_pair, wide_dtypes

Array = NDArray[Any]
DType = np.dtype[Any]
each_table = pytest.mark.usefixtures("each_isa")


def with_grad(*given: Any, **options: Any) -> tuple[Any, ...]:
    """Return the loss and the three gradients."""
    return native.linear_cross_entropy_with_grad(*given, **options)


def threshold_apart(values: Array, wanted: float) -> float:
    """Return a number near the wanted one that no value is close to: rounding puts none on the other side."""
    ascending = np.sort(values.ravel())
    at = int(np.searchsorted(ascending, wanted))
    around = ascending[max(at - 50, 0) : at + 50]
    widest = int(np.argmax(np.diff(around)))
    threshold = float(around[widest : widest + 2].mean())
    assert np.abs(values / threshold - 1).min() > 1e-4
    return threshold


@each_table
@every_pair
def test_filtered_gradients(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    h, w, targets = some_head(40, 300, 33, hidden_dtype, weight_dtype)
    targets = targets.clip(0)
    exact = with_grad(h, w, targets, reduction="sum")
    # Behind a filter nothing is rounded to bfloat16.
    unrounded = exact if hidden_dtype != oracle.BFLOAT16 else with_grad(h.astype("f4"), w, targets, reduction="sum")
    z = oracle.widen(h) @ oracle.widen(w).T
    p = np.exp(z - z.max(axis=-1, keepdims=True))
    distance = np.abs(p / p.sum(axis=-1, keepdims=True) - one_hot(targets, 300))
    for wanted in (2.0**-20, 2.0**-12, 2.0**-8, 0.01):
        eps = threshold_apart(distance, wanted)
        kept = distance >= eps
        stats, *found = with_grad(h, w, targets, reduction="sum", filter_eps=eps, stats=True, threads=threads)
        oracle.assert_same_bits(stats.loss, exact[0])
        mass = np.where(kept, 0, distance).sum(axis=-1)
        assert stats.skipped_mass == pytest.approx(mass.max(), rel=1e-3)
        off = np.linalg.norm(oracle.widen(found[0]) - oracle.widen(unrounded[1]), axis=-1)
        longest = np.linalg.norm(oracle.widen(w), axis=-1).max()
        assert (off <= 1.01 * stats.skipped_mass * longest + 1e-4 * longest).all()
        again = with_grad(h, w, targets, reduction="sum", filter_eps=eps, chunk_rows=6)
        oracle.assert_same(again[1:], tuple(found))
    same = with_grad(h, w, targets, reduction="sum", filter_eps=0.0)
    oracle.assert_same(same, exact)
    stats, *nothing = with_grad(h, w, targets, filter_eps=2.0, stats=True)
    assert all((g == 0).all() for g in nothing if g is not None)
    assert stats.skipped_mass == pytest.approx(distance.sum(axis=-1).max(), rel=1e-3)


@each_table
@wide_dtypes
def test_errors_of_the_filter_are_as_documented(threads: int, dtype: DType) -> None:
    h, w, targets = some_head(40, 300, 33, dtype, dtype)
    targets = targets.clip(0)
    rng = np.random.default_rng(4)
    classes, tokens = rng.random(300) + 0.5, rng.random(40)
    cases: list[dict[str, Any]] = [
        {"scale": -0.5, "temperature": 0.7, "token_weight": tokens},
        {"label_smoothing": 0.2, "softcap": 4.0},
        {"class_weight": classes},
        {"class_weight": classes, "label_smoothing": 0.3},
        {"lse_square_scale": 0.01, "class_weight": classes, "label_smoothing": 0.3},
    ]
    for options, eps in itertools.product(cases, (2.0**-12, 2.0**-7, 0.1)):
        given = options | {"reduction": "sum", "threads": threads}
        exact = with_grad(h, w, targets, **given)
        stats, dhidden, dweight, _ = with_grad(h, w, targets, **given, filter_eps=eps, stats=True)
        assert stats.skipped_mass > 0
        largest, spread = (classes.max(), np.ptp(classes)) if "class_weight" in options else (1.0, 0.0)
        more = 2 * options.get("label_smoothing", 0.0) * spread
        more = more + 2 * options.get("lse_square_scale", 0.0) * np.abs(stats.logsumexp)
        g = np.abs(options.get("token_weight", 1.0) * options.get("scale", 1.0) / options.get("temperature", 1.0))
        g = np.broadcast_to(g, 40)
        rounding = 2.0**-14 if dtype == np.float32 else 2.0**-40
        longest, lengths = np.linalg.norm(w, axis=-1).max(), np.linalg.norm(h, axis=-1)
        by_mass, by_entry = stats.skipped_mass * largest + more, eps * largest + more
        assert (np.linalg.norm(dhidden - exact[1], axis=-1) <= (by_mass * g + rounding) * longest).all()
        off = np.linalg.norm(dweight - exact[2], axis=-1)
        assert (off <= (by_entry * g * lengths).sum() + rounding * lengths.sum()).all()
        assert np.sqrt(np.square(off).sum()) <= (by_mass * g * lengths).sum() + rounding * lengths.sum()
