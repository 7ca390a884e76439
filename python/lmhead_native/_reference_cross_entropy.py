"""Cross entropy of given logits, and its gradient: part of `lmhead_native.reference`.

Knows the two public functions and their order of checks. Refuses to know the formulas, which are in
`_reference_loss`. What every reference function promises stands in `lmhead_native.reference`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _reference_checks as checks
from . import _reference_loss as loss_of
from . import _reference_loss_checks as loss_checks
from ._reference_targets import counted

__all__ = ["cross_entropy", "cross_entropy_with_grad"]


def cross_entropy(
    logits: ArrayLike,
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
    stats: bool = False,
    threads: int | None = None,
) -> Any:
    """Return the cross entropy of logits and targets, ``-log softmax(f)[target]`` of the final logits f.

    Parameters
    ----------
    logits : array_like, shape (..., V)
        float32, float16, bfloat16 or float64.
    targets : array_like, shape (...) or (..., V)
        Ids of any integer dtype; or probabilities of a floating dtype and the logits' shape (float64 with float64
        only), which are taken as they are, whatever they sum to.
    bias : array_like, shape (V,), optional
        Added to the logits first. Any real dtype.
    class_weight : array_like, shape (V,), optional
        Multiplies what each class contributes, PyTorch's ``weight``. Any real dtype; may be negative.
    token_weight : array_like, shape (...), optional
        Multiplies the loss of each target, under every reduction. Any real dtype; may be negative. Where it is 0, the
        position is skipped as an ignored one is.
    reduction : {"mean", "sum", "none"}
        "mean" divides the sum by that of ``class_weight[target] * token_weight`` (probabilities: of `token_weight`),
        the z-loss by the sum of `token_weight`.
    ignore_index : int, default -100
        Positions with this target are skipped; any integer, compared with the targets in their own dtype.
    label_smoothing : float, default 0.0
        eps in ``(1 - eps) * y + eps / V``, which replaces the one-hot or given probabilities y; 0 to 1.
    softcap : float, optional
        ``c`` in ``c * tanh(z / c)``, applied after the bias; above 0 and finite.
    scale : float, optional
        Finite factor, applied after the cap.
    temperature : float, default 1.0
        Divides at the end, which gives the final logits; above 0 and finite.
    lse_square_scale : float, default 0.0
        Adds the z-loss ``lse_square_scale * logsumexp(f)**2`` of each position; 0 or above.
    shift : int or bool, default 0
        Pairs the logits at t with the target at ``t + shift`` (and its token weight), along the last leading axis T.
        The last `shift` rows of logits and the first `shift` targets have no partner and are skipped.
    empty : {"nan", "zero"}
        What a mean over nothing is: over no position, or over weights that sum to 0.
    num_items : float, optional
        Replaces both divisors of "mean", and goes with no other reduction; above 0. For gradients accumulated over
        several calls.
    stats : bool, default False
        Return `LossStats` instead of the loss.
    threads : int, optional
        Checked, otherwise unused.

    Returns
    -------
    scalar, ndarray or LossStats
        The loss: float64 for float64 logits, else float32. A NumPy scalar, or with "none" an array of the targets'
        shape (with `shift`, of ``T - shift`` columns) that is 0 at skipped positions.

    Raises
    ------
    IndexError
        A target that is neither ignored nor an id; names the first and its position.
    ValueError
        Shapes that do not match; options out of range; `num_items` without "mean"; `shift` without an axis.
    TypeError
        A dtype outside the table; targets of another kind; options of another kind.

    Notes
    -----
    With ``rest = sum exp((z - max) / T)`` over all but the first maximum, the loss of a position is
    ``(max - z[target]) / T + log1p(rest)``: never negative, log 2 for two equal logits at 1e8, 8.8e-27 for a gap of 60.

    NaN, +inf or nothing but -inf in a row that counts make its loss NaN. A target at -inf gives +inf; other logits at
    -inf are probabilities of 0 and legal, also under label smoothing where their class weight is 0 (else the loss is
    +inf, never NaN). What stands in skipped rows reaches nothing. With nothing to count, "sum" is 0, "none" zeros,
    "mean" `empty`, or 0 with `num_items`.

    Memory: several float64 arrays of the logits' size.

    Source: the options as in ``torch.nn.functional.cross_entropy``; label smoothing, Szegedy et al., 2016
    (arXiv:1512.00567), section 7; z-loss, de Brebisson and Vincent, 2016 (arXiv:1604.08859), as used by PaLM
    (arXiv:2204.02311), section 5.
    """
    return cross_entropy_with_grad(
        logits,
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
        stats=stats,
        threads=threads,
    )[0]


def cross_entropy_with_grad(
    logits: ArrayLike,
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
    stats: bool = False,
    grad_output: ArrayLike | None = None,
    dlogits_out: NDArray[Any] | None = None,
    accumulate: bool = False,
    threads: int | None = None,
) -> tuple[Any, NDArray[Any]]:
    """Return the cross entropy of logits and targets, and its gradient with respect to the logits as they are given.

    Parameters
    ----------
    logits, targets, bias, class_weight, token_weight, reduction, ignore_index, label_smoothing
        As in `cross_entropy`.
    softcap, scale, temperature, lse_square_scale, shift, empty, num_items, stats, threads
        As in `cross_entropy`.
    grad_output : array_like, of the loss's shape, optional
        Multiplies the gradient: of shape () for "mean" and "sum", one number a position for "none". Any real dtype.
    dlogits_out : ndarray, shape (..., V), optional
        Filled and returned: writeable, any strides. float64 for float64 logits; else float32, or float16 or bfloat16,
        to which the gradient is rounded once. It may be exactly the memory of `logits`, unless `accumulate`.
    accumulate : bool, default False
        Add the gradient to what `dlogits_out` holds.

    Returns
    -------
    loss : scalar, ndarray or LossStats
        As from `cross_entropy`, the same bits.
    dlogits : ndarray, shape (..., V)
        `dlogits_out`, or a new array of the loss's dtype. That of the bias is its sum over all rows.

    Raises
    ------
    IndexError, ValueError, TypeError
        As `cross_entropy`; a `grad_output` of another shape; an unfit `dlogits_out`; `accumulate` without one.

    Notes
    -----
    The gradient of the final logits is ``p - y``, where the true class has its ``p - 1`` from the other terms
    (``-rest / (1 + rest)`` at the maximum), so that it is not 0 where p rounds to 1. Then come temperature, scale and
    the slope of the cap.

    Rows that are skipped have gradient exactly 0, and keep their bits where something is added. If the weights of a
    mean sum to 0, so do all rows, whatever stands in them (with a z-loss, whose divisor is another, if both are 0).
    Otherwise a row whose loss is NaN has a gradient of NaN, also where `grad_output` is 0; one whose loss is +inf a
    finite one.

    Memory: as `cross_entropy`.
    """
    x = checks.rows("logits", logits, "V")
    shape, dtype = x.memory.shape, checks.result_dtype(x)
    options = loss_checks.options(
        shape[-1],
        f"logits of shape {shape}",
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
    checks.check_threads(threads)
    count = counted(
        "logits",
        x,
        shape[-1],
        targets,
        token_weight=token_weight,
        ignore_index=ignore_index,
        shift=shift,
        or_probabilities=True,
    )
    outer = loss_checks.grad_output_of(grad_output, options, count)
    inputs = {"logits": x, **options.inputs(), **count.inputs, "grad_output": outer.given}
    slot = loss_checks.Slot("dlogits_out", shape, dlogits_out)
    adds = loss_checks.check_gradients_out([slot], dtype, inputs, accumulate, in_place="logits")
    with np.errstate(all="ignore"):
        raw = x.rows()[count.rows]
        rows = loss_of.final_rows(raw, count, options)
        found = loss_of.summarise(rows, count, options, dtype)
        gradient = loss_of.backward(raw, rows, count, options, outer.values)
    dlogits = loss_checks.deliver_rows(gradient.rows, gradient.raw_nv, shape, dtype, dlogits_out, adds)
    return found if options.stats else found.loss, dlogits
