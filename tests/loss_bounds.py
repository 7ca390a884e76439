"""How far a loss and its gradients may be from their exact values, in float32 or float64 arithmetic.

Knows the formulas of the losses as far as a first-order rounding analysis needs them (in float64 NumPy, of its own, on
top of `oracle`), not the answers themselves: those are `lmhead_native.reference`'s on widened operands. Every bound is
a sum of what comes in (an error of the raw logits) and of what each step adds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import oracle

Array = NDArray[np.float64]


class Bounds(NamedTuple):
    """Allowed errors: of n positions, of sums over them, of the (n, V) gradient of raw logits; and their sources."""

    per_token: Array
    loss: float
    z_loss: float
    logsumexp: Array
    entropy: Array
    gradient: Array
    size: Array  # |gradient|
    final: Array  # logits after the scale, before the temperature, and their error: which of them is the greatest
    final_error: Array


def one_hot(targets: NDArray[np.int64], vocabulary: int) -> Array:
    """Return 1 where a target is, else 0."""
    return np.asarray(targets[:, None] == np.arange(vocabulary), np.float64)


def raw_bound(hidden: Any, weight: Any, result: str) -> Array:
    """Bound the error of the logits before bias, cap and scale."""
    return oracle.logits_bound(hidden, weight, result=result)


def bounds_of(
    raw: Array,
    raw_error: Array,
    y: Array,
    *,
    result: str,
    bias: Any = None,
    class_weight: Any = None,
    token_weight: Any = None,
    grad_output: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    softcap: float | None = None,
    scale: float | None = None,
    temperature: float = 1.0,
    lse_square_scale: float = 0.0,
    num_items: float | None = None,
    soft: bool = False,
) -> Bounds:
    """Bound the errors of n counted rows of raw logits (n, V) that are off by `raw_error`, against targets y (n, V).

    V is at least 1, all numbers are finite. `soft`: y are probabilities, which have divisors of their own.
    """
    u, (n, vocabulary) = oracle.UNIT[result], raw.shape
    c = np.ones(vocabulary) if class_weight is None else oracle.widen(class_weight)
    w = np.ones(n) if token_weight is None else oracle.widen(token_weight)
    outer = np.ones(n) if grad_output is None else np.broadcast_to(oracle.widen(grad_output), (n,))
    b = np.zeros(vocabulary) if bias is None else oracle.widen(bias)
    factor = 1.0 if scale is None else scale

    # Adjusted logits: tanh and the rest as in `oracle.logits_bound`, and the slope of the cap for later.
    x = raw + b
    error = raw_error + 2 * u * (np.abs(raw) + np.abs(b)) * (bias is not None)
    slope, slope_error = np.full(raw.shape, abs(factor)), np.zeros(raw.shape)
    if softcap is not None:
        t = np.tanh(x / softcap)
        # 1 - t^2 rounds where t is close to 1, and |d sech^2| <= 0.77 |dx|.
        slope_error = abs(factor) * ((2 * oracle.FUNCTION_ULP + 8) * u + 0.77 * error / softcap)
        slope = abs(factor) * (1 - t**2)
        error = error + (3 + oracle.FUNCTION_ULP) * u * np.minimum(np.abs(x), softcap)
        x = softcap * t
    z = factor * x
    error = (error * abs(factor) + 2 * u * np.abs(z)) if scale is not None else error
    moved = error.max(axis=-1, keepdims=True) / temperature  # of any difference in the final logits, half

    exact = oracle.row_answers(z, temperature=temperature, result=result)
    p, log_total = exact.softmax, -exact.log_softmax.max(axis=-1, keepdims=True)
    # p changes by a factor of at most exp(2 moved).
    p_error = exact.softmax_bound + p * np.expm1(2 * moved)
    cost_error = exact.log_softmax_bound + 2 * moved
    lse_error = exact.logsumexp_bound + moved[:, 0]
    gap = (z.max(axis=-1, keepdims=True) - z) / temperature
    chain = min(vocabulary, oracle.BLOCK) + -(-vocabulary // oracle.BLOCK) + 8

    smooth = (1 - label_smoothing) * y + label_smoothing / vocabulary
    wanted = c * smooth
    cost = np.abs(wanted) * (gap + log_total)
    ce_error = (np.abs(wanted) * cost_error).sum(axis=-1) + oracle.gamma(chain, u) * cost.sum(axis=-1)
    lse = np.abs(exact.logsumexp)
    z_loss = lse_square_scale * lse**2
    z_error = lse_square_scale * (2 * lse * lse_error + lse_error**2) + 3 * u * z_loss
    entropy = log_total[:, 0] + (p * gap).sum(axis=-1)
    entropy_error = (
        cost_error.max(axis=-1) + (p_error * gap + p * cost_error).sum(axis=-1) + oracle.gamma(chain, u) * entropy
    )

    # Over positions: float64 sums, rounded once.
    a = z_by = 1.0
    if reduction == "mean" and num_items is not None:
        a = z_by = num_items
    elif reduction == "mean":
        z_by = float(w.sum())
        a = z_by if soft else float((w * (y * c).sum(axis=-1)).sum())
    tokens = np.abs(w)
    sums = (tokens * (cost.sum(axis=-1) / abs(a) + z_loss / abs(z_by))).sum()
    tiny = oracle.UNDERFLOW[result]
    loss_error = float((tokens * (ce_error / abs(a) + z_error / abs(z_by))).sum() + 2 * u * sums) + tiny
    z_loss_error = float((tokens * z_error).sum() / abs(z_by) + 2 * u * (tokens * z_loss).sum() / abs(z_by)) + tiny

    # C p - c y, taken as (C - c y) p - c y (1 - p).
    total = wanted.sum(axis=-1, keepdims=True)
    total_size = np.abs(wanted).sum(axis=-1, keepdims=True)
    size = np.abs(total - wanted) * p + np.abs(wanted) * (1 - p)
    entry_error = (total_size + 2 * np.abs(wanted)) * p_error + 8 * u * (size + total_size * p + np.abs(wanted) * p)
    entry = np.abs(total * p - wanted)
    coefficient = np.abs(outer * w)[:, None]
    entry, entry_error = coefficient / abs(a) * entry, coefficient / abs(a) * entry_error
    if lse_square_scale:
        k = coefficient / abs(z_by) * 2 * lse_square_scale
        entry = entry + k * lse[:, None] * p
        entry_error = entry_error + k * (lse[:, None] * (p_error + 6 * u * p) + lse_error[:, None] * (p + p_error))
    gradient = entry * slope / temperature
    gradient_error = (entry_error * (slope + slope_error) + entry * slope_error) / temperature + 6 * u * gradient
    smallest = oracle.SMALLEST_NORMAL[result] * (1 + coefficient * total_size)
    second = oracle.SECOND_ORDER
    return Bounds(
        second * tokens * (ce_error + z_error) + 2 * u * tokens * (cost.sum(axis=-1) + z_loss) + tiny,
        second * loss_error,
        second * z_loss_error,
        second * lse_error,
        second * entropy_error + tiny,
        second * gradient_error + smallest,
        gradient,
        z,
        second * error,
    )


def assert_argmax(found: NDArray[np.int64], bounds: Bounds) -> None:
    """Assert that each is the first of the greatest logits, or may be for all that is known of them."""
    z, error = bounds.final, bounds.final_error
    at = found[:, None]
    highest = np.take_along_axis(z + error, at, axis=-1)
    assert (highest >= (z - error).max(axis=-1, keepdims=True)).all()
    sure = (error == 0).all(axis=-1)
    np.testing.assert_array_equal(found[sure], z[sure].argmax(axis=-1))


class HeadBounds(NamedTuple):
    """Allowed errors of the gradients of hidden (n, D), weight (V, D) and bias (V,)."""

    hidden: Array
    weight: Array
    bias: Array


def head_bounds(hidden: Any, weight: Any, rows: Bounds, *, result: str) -> HeadBounds:
    """Bound the products with the gradient of raw logits; bfloat16 with bfloat16 rounds that once more."""
    h, w, u = np.abs(oracle.widen(hidden)), np.abs(oracle.widen(weight)), oracle.UNIT[result]
    (n, vocabulary), error, size = rows.size.shape, rows.gradient, rows.size
    if np.asarray(hidden).dtype == np.asarray(weight).dtype == oracle.BFLOAT16:
        error = error + oracle.UNIT["bfloat16"] * (size + error) + oracle.SMALLEST_NORMAL[result]
    size = size + error
    tiny = oracle.UNDERFLOW[result]
    return HeadBounds(
        error @ w + oracle.gamma(vocabulary + 2, u) * (size @ w) + vocabulary * tiny,
        error.T @ h + oracle.gamma(n + 2, u) * (size.T @ h) + n * tiny,
        error.sum(axis=0) + oracle.gamma(n + 2, u) * size.sum(axis=0),
    )
