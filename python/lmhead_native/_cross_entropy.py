"""``cross_entropy`` and ``cross_entropy_with_grad``: the loss of rows of logits, and its gradient."""

from __future__ import annotations

from typing import Any

from . import _core
from ._loss_stats import LossStats
from ._typing import Array, Result


def cross_entropy(
    logits: Array,
    targets: Array,
    *,
    bias: Array | None = None,
    class_weight: Array | None = None,
    token_weight: Array | None = None,
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
    """The cross entropy of logits and targets, ``-log softmax(f)[target]`` of the final logits f.

    Parameters
    ----------
    logits : array_like, shape (..., V)
        float32, float16, bfloat16 or float64; any strides.
    targets : array_like, shape (...) or (..., V)
        Ids of any integer dtype; or probabilities of a floating dtype and the logits' shape (float64 with float64
        only), which are taken as they are, whatever they sum to. A floating array of the shape of ids is refused.
    bias : array_like, shape (V,), optional
        Added to the logits first. Any real dtype; rounded to the result's.
    class_weight : array_like, shape (V,), optional
        Multiplies what each class contributes, PyTorch's ``weight``. Any real dtype; may be negative.
    token_weight : array_like, shape (...), optional
        Multiplies the loss of each target, under every reduction. Any real dtype; may be negative. Where it is 0, the
        position is skipped as an ignored one is.
    reduction : {"mean", "sum", "none"}
        "mean" divides the sum by that of ``class_weight[target] * token_weight`` (probabilities: of `token_weight`),
        the z-loss by the sum of `token_weight`. It divides once, at the end.
    ignore_index : int, default -100
        Positions with this target are skipped. Any Python integer, compared exactly: no target is narrowed first, so
        the uint16 65436 is not -100.
    label_smoothing : float, default 0.0
        eps in ``(1 - eps) * y + eps / V``, which replaces the one-hot or given probabilities y; 0 to 1. At 0 nothing
        is done, so that logits of -inf stay legal.
    softcap : float, optional
        ``c`` in ``c * tanh(z / c)``, applied after the bias; above 0 and finite.
    scale : float, optional
        Finite factor, applied after the cap.
    temperature : float, default 1.0
        Divides at the end, which gives the final logits; above 0 and finite.
    lse_square_scale : float, default 0.0
        Adds the z-loss ``lse_square_scale * logsumexp(f)**2`` of each position; 0 or above.
    shift : int or bool, default 0
        Pairs the logits at t with the target at ``t + shift`` (and its token weight), along the last leading axis T:
        with 1 the targets are the input ids. The last `shift` rows of logits and the first `shift` targets have no
        partner; these rows are skipped, and these targets are not looked at.
    empty : {"nan", "zero"}
        What a mean over nothing is: over no position, or over weights that sum to 0.
    num_items : float, optional
        Replaces both divisors of "mean", and goes with no other reduction; above 0. For gradients accumulated over
        several calls.
    stats : bool, default False
        Return `LossStats` instead of the loss, at no second pass over the logits.
    threads : int, optional
        Threads of this call; by default `get_num_threads`.

    Returns
    -------
    scalar, ndarray or LossStats
        The loss in nats: float64 for float64 logits, else float32. A NumPy scalar, or with "none" an array of the
        targets' shape (with `shift`, of ``T - shift`` columns) that is 0 at skipped positions.

    Raises
    ------
    IndexError
        A target that is neither ignored nor an id; names the first and its position. Those of token weight 0 are
        looked at as well.
    ValueError
        Shapes that do not match; options out of range; `num_items` without "mean"; `shift` without an axis.
    TypeError
        A dtype outside the table; targets of another kind, bool and masked arrays too; options of another kind.

    See Also
    --------
    cross_entropy_with_grad : with the gradient.
    linear_cross_entropy : from hidden states, without the (..., V) array of logits.

    Notes
    -----
    Accumulation: with ``rest = sum exp((z - max) / T)`` over all but the first maximum, summed as in `softmax`, the
    loss of a position is ``(max - z[target]) / T + log1p(rest)``: never negative, log 2 for two equal logits at 1e8,
    8.8e-27 for a gap of 60. Sums over positions, and their weights, are float64, and rounded once.

    Memory: the result, a few numbers for each position, for each thread at most two rows of V, and V numbers with
    class weights.

    Determinism: what a position gives has the same bits whatever the batch, threads, strides and instruction set, and
    the loss whatever the threads, strides and instruction set: it is the sum in the order of the positions. Deleting
    skipped positions changes no bit. Ties: `LossStats.argmax` is the lower id of equals.

    NaN and inf: NaN, +inf or nothing but -inf in a row that counts make its loss NaN. A target at -inf gives +inf;
    other logits at -inf are probabilities of 0 and legal, also under label smoothing where their class weight is 0
    (else the loss is +inf, never NaN). Rows that are skipped cost no time, and what stands in them reaches nothing.
    With nothing to count, "sum" is 0, "none" zeros, "mean" `empty`, or 0 with `num_items`.

    Range, where the result is float32: the bias, and what bias, cap and scale make of the logits, are float32 as in
    `logits`: infinite beyond 3.4e38, of fewer digits below 1.2e-38, also where the temperature would bring them back.
    Temperature, weights and divisors may be of any size that float64 has, if what they give is in range: the loss and,
    with `label_smoothing`, what each class costs.

    Source: the options as in ``torch.nn.functional.cross_entropy``; label smoothing, Szegedy et al., 2016
    (arXiv:1512.00567), section 7; z-loss, de Brebisson and Vincent, 2016 (arXiv:1604.08859), as used by PaLM
    (arXiv:2204.02311), section 5.
    """
    found = _core.cross_entropy(
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
    )
    return LossStats.of(found) if stats else found


def cross_entropy_with_grad(
    logits: Array,
    targets: Array,
    *,
    bias: Array | None = None,
    class_weight: Array | None = None,
    token_weight: Array | None = None,
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
    grad_output: Array | None = None,
    dlogits_out: Result | None = None,
    accumulate: bool = False,
    threads: int | None = None,
) -> tuple[Any, Result]:
    """The cross entropy of logits and targets, and its gradient with respect to the logits as they are given.

    Parameters
    ----------
    logits, targets, bias, class_weight, token_weight, reduction, ignore_index, label_smoothing
        As in `cross_entropy`.
    softcap, scale, temperature, lse_square_scale, shift, empty, num_items, stats, threads
        As in `cross_entropy`.
    grad_output : array_like, of the loss's shape, optional
        Multiplies the gradient: of shape () for "mean" and "sum", one number a position for "none" (nothing is
        broadcast). Any real dtype.
    dlogits_out : ndarray, shape (..., V), optional
        Filled and returned: writeable, any strides. float64 for float64 logits; else float32, or float16 or bfloat16,
        to which the gradient is rounded once. It may be exactly the memory of `logits`, unless `accumulate`; any other
        overlap with an argument is refused.
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
        As `cross_entropy`; a `grad_output` of another shape; an unfit `dlogits_out`; `accumulate` without one. All
        before anything is written.

    See Also
    --------
    linear_cross_entropy_with_grad : from hidden states, with the gradients of those, the weight and the bias.

    Notes
    -----
    Accumulation: the gradient of the final logits is ``p - y``, where the true class has its ``p - 1`` from the other
    terms (``-rest / (1 + rest)`` at the maximum), so that it is not 0 where p rounds to 1. Then come temperature,
    scale and the slope of the cap. `logits` is not written, unless it is `dlogits_out`.

    Memory: the gradient, a few numbers for each position, for each thread at most four rows of V, and V numbers with
    class weights.

    Determinism: a row of the gradient has the same bits whatever the batch, threads, strides and instruction set.

    NaN and inf: rows that are skipped have gradient exactly 0, and keep their bits where something is added. If the
    weights of a mean sum to 0, so do all rows, whatever stands in them (with a z-loss, whose divisor is another, if
    both are 0). Otherwise a row whose loss is NaN has a gradient of NaN, also where `grad_output` is 0; one whose loss
    is +inf a finite one.

    Range, where the gradient is float32: what multiplies ``p - y`` may be of any size that float64 has (a scale after a
    cap: that float32 has). An entry beyond 3.4e38 counts as that, with its sign; the target's is infinite.

    Source: that the gradient is ``p - y``, Bridle, "Probabilistic interpretation of feedforward classification network
    outputs", 1990.
    """
    found, dlogits = _core.cross_entropy_with_grad(
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
        grad_output=grad_output,
        dlogits_out=dlogits_out,
        accumulate=accumulate,
        threads=threads,
    )
    return LossStats.of(found) if stats else found, dlogits
