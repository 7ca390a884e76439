"""Cross entropy from hidden states, and its three gradients: part of `lmhead_native.reference`.

Knows the two public functions, their order of checks, and the two products that carry a gradient of logits back.
Refuses to know the formulas of the loss, which are in `_reference_loss`. What every reference function promises stands
in `lmhead_native.reference`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _reference_checks as checks
from . import _reference_loss as loss_of
from . import _reference_loss_checks as loss_checks
from ._reference_targets import counted
from ._typing import Weight

__all__ = ["linear_cross_entropy", "linear_cross_entropy_with_grad"]

Array = NDArray[np.float64]


def linear_cross_entropy(
    hidden: ArrayLike,
    weight: Weight,
    targets: ArrayLike,
    *,
    bias: ArrayLike | None = None,
    class_weight: ArrayLike | None = None,
    token_weight: ArrayLike | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    softcap: float | None = None,
    scale: float | None = None,
    temperature: float = 1.0,
    lse_square_scale: float = 0.0,
    shift: int | bool = 0,
    empty: str = "nan",
    num_items: float | None = None,
    chunk_rows: int | None = None,
    filter_eps: float | None = None,
    stats: bool = False,
    threads: int | None = None,
) -> Any:
    """Return the cross entropy of projected hidden states: ``cross_entropy(hidden @ weight.T, targets, ...)``.

    Parameters
    ----------
    hidden : array_like, shape (..., D)
        Hidden states after the final norm: float32, float16, bfloat16 or float64.
    weight : array_like, shape (V, D)
        One row per token id. float64 goes with float64 only. A head stored as (D, V) is passed as its ``.T``. A
        `QuantizedWeight` stands for what its ``dequantize()`` returns.
    targets : array_like, shape (...)
        Ids of any integer dtype.
    bias, class_weight, token_weight, reduction, ignore_index, label_smoothing
        As in `cross_entropy`.
    softcap, scale, temperature, lse_square_scale, shift, empty, num_items, stats, threads
        As in `cross_entropy`.
    chunk_rows : int, optional
        Checked, otherwise unused: no result depends on it.
    filter_eps : float, optional
        Checked, otherwise unused: it concerns gradients.

    Returns
    -------
    scalar, ndarray or LossStats
        As from `cross_entropy`; float64 for float64 operands, else float32.

    Raises
    ------
    IndexError, ValueError, TypeError
        As `cross_entropy` and `logits`.

    Notes
    -----
    The logits stay float64, where the native function has them in the result's dtype. Memory: several arrays of N x V.
    NaN and infinities: as `cross_entropy`; a hidden state that is skipped reaches nothing. D = 0 gives the bias as
    logits.
    """
    return linear_cross_entropy_with_grad(
        hidden,
        weight,
        targets,
        bias=bias,
        class_weight=class_weight,
        token_weight=token_weight,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        softcap=softcap,
        scale=scale,
        temperature=temperature,
        lse_square_scale=lse_square_scale,
        shift=shift,
        empty=empty,
        num_items=num_items,
        chunk_rows=chunk_rows,
        filter_eps=filter_eps,
        stats=stats,
        wrt=(),
        threads=threads,
    )[0]


def linear_cross_entropy_with_grad(
    hidden: ArrayLike,
    weight: Weight,
    targets: ArrayLike,
    *,
    bias: ArrayLike | None = None,
    class_weight: ArrayLike | None = None,
    token_weight: ArrayLike | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    softcap: float | None = None,
    scale: float | None = None,
    temperature: float = 1.0,
    lse_square_scale: float = 0.0,
    shift: int | bool = 0,
    empty: str = "nan",
    num_items: float | None = None,
    chunk_rows: int | None = None,
    filter_eps: float | None = None,
    stats: bool = False,
    grad_output: ArrayLike | None = None,
    wrt: Collection[str] = ("hidden", "weight", "bias"),
    dhidden_out: NDArray[Any] | None = None,
    dweight_out: NDArray[Any] | None = None,
    dbias_out: NDArray[Any] | None = None,
    accumulate: bool = False,
    threads: int | None = None,
) -> tuple[Any, NDArray[Any] | None, NDArray[Any] | None, NDArray[Any] | None]:
    """Return the cross entropy of projected hidden states, and its gradients with respect to hidden, weight and bias.

    Parameters
    ----------
    hidden, weight, targets, bias, class_weight, token_weight, reduction, ignore_index, label_smoothing
        As in `linear_cross_entropy`.
    softcap, scale, temperature, lse_square_scale, shift, empty, num_items, chunk_rows, stats, threads
        As in `linear_cross_entropy`.
    filter_eps : float, optional
        Leave entries with ``|p - y| < filter_eps`` out of all gradients, where p is the softmax of the final logits
        and y the smoothed target, before any weight; 0 or above. None and 0 are exact.
    grad_output : array_like, of the loss's shape, optional
        Multiplies the gradients: of shape () for "mean" and "sum", one number a position for "none". Any real dtype.
    wrt : collection of str, default ("hidden", "weight", "bias")
        Which gradients to make; of a `QuantizedWeight` there is none.
    dhidden_out, dweight_out, dbias_out : ndarray, optional
        Of shapes (..., D), (V, D) and (V,), filled and returned: writeable, any strides, apart from every input and
        from each other. float64 for float64 operands; else float32, or float16 or bfloat16, to which the gradient is
        rounded once.
    accumulate : bool, default False
        Add each gradient to what its array holds; gradients without an array are returned as they are.

    Returns
    -------
    loss : scalar, ndarray or LossStats
        As from `linear_cross_entropy`, the same bits. The stats tell the largest `skipped_mass`.
    dhidden : ndarray, shape (..., D), or None
        The array given for it, or a new one of the loss's dtype; None if not in `wrt`.
    dweight : ndarray, shape (V, D), or None
        Likewise.
    dbias : ndarray, shape (V,), or None
        Likewise; None without a bias.

    Raises
    ------
    IndexError, ValueError, TypeError
        As `linear_cross_entropy`; a `grad_output` of another shape; unknown names in `wrt`; an unfit array for a
        gradient, or one for a gradient that is not made; `accumulate` without any.

    Notes
    -----
    ``dhidden = dz @ weight`` and ``dweight = dz.T @ hidden`` for the gradient dz of `cross_entropy_with_grad`; dbias is
    the sum of dz over positions. All in float64: unlike in the native function, dz is not rounded to bfloat16 where
    both operands are.

    Positions that are skipped have dhidden exactly 0 (or unchanged bits where something is added) and reach neither
    dweight nor dbias. If the weights of a mean sum to 0, this is so for all positions, whatever stands in the operands
    (with a z-loss, whose divisor is another, if both are 0). Otherwise NaN in a position that counts shows in its row
    of dhidden and all over dweight and dbias, also where `grad_output` is 0.

    Entries that `filter_eps` leaves out reach nothing, not even by way of an infinite operand.

    What `filter_eps` changes, with m the `skipped_mass`, Euclidean norms, and g of a position what multiplies its loss:
    ``|grad_output * token weight / divisor * scale / temperature|``. A row of dhidden is off by at most ``m * g *
    max |weight row|``, a row of dweight by ``filter_eps * sum g |hidden row|``, dweight as a whole by ``m * sum g
    |hidden row|``. With class weights, m and `filter_eps` are to be multiplied here by their largest magnitude, and
    with label smoothing as well, to be increased by ``2 * label_smoothing * (largest - smallest class weight)``. A
    z-loss adds ``2 * lse_square_scale * |logsumexp|`` to both, with its own divisor in g: where p of the target is so
    close to 1 that the target is left out, nearly all of its gradient goes with it.

    Memory: several float64 arrays of N x V, and copies of all operands and gradients.

    Source: the chain rule; that the logits' gradient is ``p - y``, Bridle, "Probabilistic interpretation of feedforward
    classification network outputs", 1990.
    """
    h, w = checks.hidden_and_weight(hidden, weight)
    shape_h, shape_w, dtype = h.memory.shape, w.memory.shape, checks.result_dtype(h)
    options = loss_checks.options(
        shape_w[0],
        f"weight of shape {shape_w}",
        bias=bias,
        class_weight=class_weight,
        reduction=reduction,
        label_smoothing=label_smoothing,
        softcap=softcap,
        scale=scale,
        temperature=temperature,
        lse_square_scale=lse_square_scale,
        empty=empty,
        num_items=num_items,
        stats=stats,
    )
    loss_checks.check_chunk_rows(chunk_rows)
    threshold = loss_checks.filter_eps_of(filter_eps)
    checks.check_threads(threads)
    count = counted(
        "hidden",
        h,
        shape_w[0],
        targets,
        token_weight=token_weight,
        ignore_index=ignore_index,
        shift=shift,
        or_probabilities=False,
    )
    outer = loss_checks.grad_output_of(grad_output, options, count)
    names = loss_checks.names_of(wrt)
    if "weight" in names and checks.is_quantized(weight):
        raise ValueError(
            "wrt: expected names without 'weight' for a quantised weight, which has no gradient, "
            f"got {tuple(wrt)}; pass wrt={('hidden',) if options.bias is None else ('hidden', 'bias')}"
        )
    unasked = {name: "" if name in names else f"wrt is {tuple(wrt)}" for name in ("hidden", "weight", "bias")}
    no_bias = unasked["bias"] or ("" if options.bias is not None else "there is no bias")
    slots = [
        loss_checks.Slot("dhidden_out", shape_h, dhidden_out, unasked["hidden"]),
        loss_checks.Slot("dweight_out", shape_w, dweight_out, unasked["weight"]),
        loss_checks.Slot("dbias_out", shape_w[:1], dbias_out, no_bias),
    ]
    inputs = {"hidden": h, "weight": w, **options.inputs(), **count.inputs, "grad_output": outer.given}
    adds = loss_checks.check_gradients_out(slots, dtype, inputs, accumulate)

    with np.errstate(all="ignore"):
        raw_nv = h.rows()[count.rows] @ w.values.T
        rows = loss_of.final_rows(raw_nv, count, options)
        found = loss_of.summarise(rows, count, options, dtype)
        dhidden = dweight = dbias = None
        if names:
            gradient = loss_of.backward(raw_nv, rows, count, options, outer.values, threshold)
            found = found.with_skipped_mass(gradient.skipped_mass)
            hidden_nd = h.rows()[gradient.rows]
            if "hidden" in names:
                dhidden = loss_checks.deliver_rows(
                    gradient.rows, _product(gradient.raw_nv, w.values, threshold), shape_h, dtype, dhidden_out, adds
                )
            if "weight" in names:
                dweight = loss_checks.deliver_gradient(
                    _product(gradient.raw_nv.T, hidden_nd, threshold), dtype, dweight_out, adds
                )
            if not no_bias:
                dbias = loss_checks.deliver_gradient(gradient.raw_nv.sum(axis=0), dtype, dbias_out, adds)
    return found if options.stats else found.loss, dhidden, dweight, dbias


def _product(coefficients: Array, rows: Array, filter_eps: float | None) -> Array:
    """Return ``coefficients @ rows``; behind a filter without the terms that are 0, as 0 * inf would be NaN."""
    if not filter_eps:
        return coefficients @ rows
    sums = np.empty((len(coefficients), rows.shape[1]))
    for each, into in zip(coefficients, sums, strict=True):
        left = each != 0
        into[:] = each[left] @ rows[left]
    return sums
