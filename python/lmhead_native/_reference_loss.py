"""Cross entropy of rows of logits, its means and its gradient: part of `lmhead_native.reference`.

Knows the formulas, from adjusted logits to a loss and back. Refuses to know where the logits come from, and leaves
arguments to `_reference_loss_checks` and `_reference_targets`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._loss_stats import LossStats
from ._reference_adjust import adjust, adjust_backward
from ._reference_log_sum_exp import log_sum_exp
from ._reference_loss_checks import Options
from ._reference_targets import Counted

Array = NDArray[np.float64]


class Rows(NamedTuple):
    """What n counted rows give, before any weight of tokens: n numbers, or (n, V) of them."""

    cross_entropy: Array
    z_loss: Array
    logsumexp: Array
    argmax: NDArray[np.int64]
    entropy: Array
    hits: NDArray[np.bool_]
    p: Array
    not_p: Array  # 1 - p, without the loss of digits where p is close to 1
    y: Array  # what p should be, smoothed
    class_y: Array  # the same with class weights


def final_rows(raw_nv: Array, counted: Counted, options: Options) -> Rows:
    """Compute every row from raw logits; errors of arithmetic become NaN and infinities in their own row."""
    n, vocabulary = raw_nv.shape
    y, best = _desired(counted, vocabulary, options.label_smoothing)
    class_y = y if options.class_weight is None else y * options.class_weight.values
    if vocabulary == 0:  # the sum over nothing: as a row of nothing but -inf
        nothing, nan = np.zeros((n, 0)), np.full(n, np.nan)
        return Rows(
            nan, _z_loss(nan, options), np.full(n, -np.inf), np.full(n, -1), nan, np.zeros(n, bool), *[nothing] * 4
        )
    z = adjust(raw_nv, _values(options.bias), options.softcap, options.scale)
    lse = log_sum_exp(z, options.temperature)
    log_total = np.log1p(lse.rest)
    gap = (lse.maximum - z) / options.temperature
    p, not_p = lse.terms / (1 + lse.rest), np.empty_like(z)
    np.put_along_axis(p, lse.first, 1 / (1 + lse.rest), axis=-1)
    np.subtract(1, p, out=not_p)
    np.put_along_axis(not_p, lse.first, lse.rest / (1 + lse.rest), axis=-1)
    undefined = ~np.isfinite(lse.maximum)
    for each in (p, not_p, gap):
        each[undefined[:, 0]] = np.nan
    logsumexp = np.where(undefined, lse.maximum, lse.maximum / options.temperature + log_total)[:, 0]
    # A class without weight adds nothing, not even where its logit is -inf: 0 * inf would be NaN.
    cost = np.where(class_y == 0, 0.0, class_y * (gap + log_total)).sum(axis=-1)
    spread = np.where(p == 0, 0.0, p * gap).sum(axis=-1)
    return Rows(
        np.where(undefined[:, 0], np.nan, cost),
        _z_loss(logsumexp, options),
        logsumexp,
        lse.first[:, 0],
        log_total[:, 0] + spread,
        lse.first[:, 0] == best,
        p,
        not_p,
        y,
        class_y,
    )


def _values(vector: Any) -> Array | None:
    return None if vector is None else vector.values


def _z_loss(logsumexp: Array, options: Options) -> Array:
    if options.lse_square_scale == 0:
        return np.zeros(logsumexp.shape)
    return options.lse_square_scale * np.square(logsumexp)


def _desired(counted: Counted, vocabulary: int, smoothing: float) -> tuple[Array, NDArray[np.int64]]:
    """Return what p should be, (n, V), and the class of its first maximum, (n,)."""
    if counted.probabilities is None:
        assert counted.ids is not None
        y, best = np.zeros((counted.ids.size, vocabulary)), counted.ids
        y[np.arange(best.size), best] = 1.0
    else:
        y = counted.probabilities
        best = y.argmax(axis=-1) if vocabulary else np.full(len(y), -1)
    return (y if smoothing == 0 else (1 - smoothing) * y + smoothing / vocabulary), best


# ---- over rows -----------------------------------------------------------------------------------------------------


def _divisors(counted: Counted, options: Options) -> tuple[float, float]:
    """Return what the cross entropy and the z-loss are divided by."""
    if options.reduction != "mean":
        return 1.0, 1.0
    if options.num_items is not None:
        return options.num_items, options.num_items
    tokens = counted.token_weight.sum()
    if options.class_weight is None or counted.ids is None:
        return tokens, tokens
    return (options.class_weight.values[counted.ids] * counted.token_weight).sum(), tokens


def summarise(rows: Rows, counted: Counted, options: Options, dtype: np.dtype[Any]) -> LossStats:
    """Weigh, add up, divide once, and round."""
    weight = counted.token_weight
    cross_entropy, z_loss = weight * rows.cross_entropy, weight * rows.z_loss
    per_token = _placed(cross_entropy + z_loss, counted, 0.0, dtype)
    loss: Any = per_token
    z: Any = _placed(z_loss, counted, 0.0, dtype)
    if options.reduction != "none":
        by, z_by = _divisors(counted, options)
        z_mean = _ratio(z_loss.sum(), z_by, options.empty) if options.lse_square_scale else 0.0
        loss = dtype.type(_ratio(cross_entropy.sum(), by, options.empty) + z_mean)
        z = dtype.type(z_mean)
    return LossStats(
        loss,
        per_token,
        _placed(rows.logsumexp, counted, np.nan, dtype),
        z,
        _placed(rows.argmax, counted, -1, np.dtype(np.int64)),
        np.float64(_ratio(rows.hits.sum(), rows.hits.size, options.empty)),
        _placed(rows.entropy, counted, np.nan, dtype),
    )


def _ratio(total: float, divisor: float, empty: float) -> float:
    return empty if divisor == 0 else total / divisor


def _placed(values: NDArray[Any], counted: Counted, elsewhere: float, dtype: np.dtype[Any]) -> NDArray[Any]:
    whole = np.full(counted.shape, elsewhere, dtype)
    whole.reshape(-1)[counted.places] = values
    return whole


# ---- and back ------------------------------------------------------------------------------------------------------


class Gradient(NamedTuple):
    """The gradient with respect to raw logits, (n, V), and the largest sum of |p - y| of a row that was left out.

    ``rows`` are the flat indices of its rows among those of hidden or logits: all that count, or none of them.
    """

    rows: NDArray[np.int64]
    raw_nv: Array
    skipped_mass: float


def backward(
    raw_nv: Array,
    rows: Rows,
    counted: Counted,
    options: Options,
    grad_output: Array,
    filter_eps: float | None = None,
) -> Gradient:
    """Differentiate the loss times `grad_output`, one number for each counted row.

    Where neither the cross entropy nor the z-loss has a divisor, nothing of any row reaches the gradient.
    """
    weight = (grad_output * counted.token_weight)[:, None]
    by, z_by = _divisors(counted, options)
    has_z_loss = z_by != 0 and options.lse_square_scale != 0
    if by == 0 and not has_z_loss:
        return Gradient(counted.rows[:0], raw_nv[:0], 0.0)
    gradient = np.zeros(raw_nv.shape)
    if by != 0:
        # C p - y for C = sum of y, as (C - y) p - y (1 - p): for a single class the first term is exactly 0.
        others = rows.class_y.sum(axis=-1, keepdims=True) - rows.class_y
        gradient += weight / by * (others * rows.p - rows.class_y * rows.not_p)
    if has_z_loss:
        slope = 2 * options.lse_square_scale * rows.logsumexp[:, None]
        gradient += weight / z_by * (slope * rows.p)
    skipped = 0.0
    if filter_eps is not None:
        distance = np.abs((1 - rows.y) * rows.p - rows.y * rows.not_p)
        small = distance < filter_eps
        gradient[small] = 0.0
        skipped = float(np.where(small, distance, 0.0).sum(axis=-1).max(initial=0.0))
    gradient = adjust_backward(
        gradient / options.temperature, raw_nv, _values(options.bias), options.softcap, options.scale
    )
    return Gradient(counted.rows, gradient, skipped)
