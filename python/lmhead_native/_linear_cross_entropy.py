"""``linear_cross_entropy`` and ``linear_cross_entropy_with_grad``: loss and gradients without the array of logits."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from . import _core
from ._loss_stats import LossStats
from ._typing import Array, Result, Weight


def linear_cross_entropy(
    hidden: Array,
    weight: Weight,
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
    chunk_rows: int | None = None,
    filter_eps: float | None = None,
    stats: bool = False,
    threads: int | None = None,
) -> Any:
    """The cross entropy of projected hidden states, ``cross_entropy(logits(hidden, weight), targets, ...)``.

    Parameters
    ----------
    hidden : array_like, shape (..., D)
        Hidden states after the final norm: float32, float16, bfloat16 or float64; any strides.
    weight : array_like, shape (V, D)
        One row per token id; any strides. float64 goes with float64 only. A head stored as (D, V) is passed as its
        transpose, ``W_U.T``, which copies nothing. Or a `QuantizedWeight`.
    targets : array_like, shape (...)
        Ids of any integer dtype.
    bias, class_weight, token_weight, reduction, ignore_index, label_smoothing
        As in `cross_entropy`.
    softcap, scale, temperature, lse_square_scale, shift, empty, num_items, stats, threads
        As in `cross_entropy`.
    chunk_rows : int, optional
        Checked, otherwise unused: it concerns gradients.
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

    See Also
    --------
    linear_cross_entropy_with_grad : with the gradients.
    cross_entropy : of given logits.

    Notes
    -----
    Accumulation: the very logits that `logits` gives, and from these the loss that `cross_entropy` gives, bit for bit.

    Memory: a few numbers for each position, up to 20 (36) bytes for each 256 ids of the positions in work (256 or
    more), and the scratch of `logits`; nothing of N x V.

    Determinism: as `cross_entropy`, and the same bits for every `chunk_rows` and for a weight stored as (V, D) or
    (D, V). bfloat16 with bfloat16 counts subnormal numbers as 0 where the CPU's ``vdpbf16ps`` is used.

    NaN and inf: as `cross_entropy`. A hidden state that is skipped costs no time and reaches nothing. With D = 0 the
    logits are the bias.

    Source: the loss in chunks, Wijmans et al., "Cut your losses in large-vocabulary language models", 2024
    (arXiv:2411.09009).
    """
    found = _core.linear_cross_entropy(
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
        threads=threads,
    )
    return LossStats.of(found) if stats else found


def linear_cross_entropy_with_grad(
    hidden: Array,
    weight: Weight,
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
    chunk_rows: int | None = None,
    filter_eps: float | None = None,
    stats: bool = False,
    grad_output: Array | None = None,
    wrt: Collection[str] = ("hidden", "weight", "bias"),
    dhidden_out: Result | None = None,
    dweight_out: Result | None = None,
    dbias_out: Result | None = None,
    accumulate: bool = False,
    threads: int | None = None,
) -> tuple[Any, Result | None, Result | None, Result | None]:
    """The cross entropy of projected hidden states, and its gradients with respect to hidden, weight and bias.

    Parameters
    ----------
    hidden, weight, targets, bias, class_weight, token_weight, reduction, ignore_index, label_smoothing
        As in `linear_cross_entropy`.
    softcap, scale, temperature, lse_square_scale, shift, empty, num_items, stats, threads
        As in `linear_cross_entropy`.
    chunk_rows : int, optional
        How many positions have their logits in memory at once, rounded up to an even number; by default about 256, or
        more where V and D are so small that 4 MiB hold more. No result depends on it.
    filter_eps : float, optional
        Leave entries with ``|p - y| < filter_eps`` out of all gradients, where p is the softmax of the final logits
        and y the smoothed target, before any weight; 0 or above. None and 0 are exact. It pays only
        where most are left out: see below.
    grad_output : array_like, of the loss's shape, optional
        Multiplies the gradients: of shape () for "mean" and "sum", one number a position for "none", which weighs the
        position inside dweight and dbias. Any real dtype; nothing is broadcast.
    wrt : collection of str, default ("hidden", "weight", "bias")
        Which gradients to make; one that is not made costs nothing. A `QuantizedWeight` has no gradient: beside one,
        ``("hidden",)`` or ``("hidden", "bias")`` has to be asked for.
    dhidden_out, dweight_out, dbias_out : ndarray, optional
        Of shapes (..., D), (V, D) and (V,), filled and returned: writeable, any strides (``dweight_out=dW_U.T``),
        apart from every argument and from each other. float64 for float64 operands; else float32, or float16 or
        bfloat16, to which the gradient is rounded once.
    accumulate : bool, default False
        Add each gradient to what its array holds; gradients without an array are returned as they are. With tied
        weights the head's gradient is added to the embedding's.

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
        gradient, or one for a gradient that is not made; `accumulate` without any. All before anything is written.

    See Also
    --------
    check_gradients : compares these with finite differences.

    Notes
    -----
    Accumulation: ``dhidden = dz @ weight`` and ``dweight = dz.T @ hidden`` for the gradient dz of
    `cross_entropy_with_grad`; dbias is the sum of dz over positions. Each element is one chain of float32 (float64)
    additions, over ids or over positions in ascending order; with `accumulate` it starts from what is there. If hidden
    and weight are both bfloat16, dz is rounded once to bfloat16, as PyTorch's autograd does: an error of at most
    ``2**-8 * sum |dz| |x|`` in each element. Whoever wants float32 there passes float32 hidden states.

    Memory, beside the gradients themselves, in numbers of 4 (8) bytes: a chunk of ``chunk_rows * V`` logits; a few for
    each block of 256 ids and row of the chunk; the chunk's hidden states, prepared, ``chunk_rows * D``, and as many
    again for a `dhidden_out` that is strided or of half precision; for each thread 256 for each row of the chunk, which
    is `chunk_rows` KiB (twice that), and about half a MiB; a few for each position; V for dbias and V for class
    weights; for a `dweight_out` of float16 or bfloat16 ``V * D``. With `filter_eps`, for each thread, lists of up to
    twice its 256 for each row, and where the operands are not plain float32 (float64), widened copies of the chunk's
    hidden states and, for each thread, of 256 weight rows.

    Operations: 6 N V D, or 4 N V D for one of the two large gradients; nothing is computed twice.

    Determinism: the same bits for every number of threads, `chunk_rows`, strides and instruction set (bfloat16 with
    bfloat16: apart from subnormal numbers); a row of dhidden whatever the batch.

    NaN and inf: positions that are skipped have dhidden exactly 0 (or unchanged bits where something is added) and
    reach neither dweight nor dbias. If the weights of a mean sum to 0, this is so for all positions, whatever stands in
    the operands (with a z-loss, whose divisor is another, if both are 0). Otherwise NaN in a position that counts shows
    in its row of dhidden and all over dweight and dbias, also where `grad_output` is 0.

    Range, where the result is float32: dz as in `cross_entropy_with_grad`; an infinite entry makes NaN of the zeros
    that it meets in the products.

    With `filter_eps` above 0 the products are sums over lists of the entries that are left, in float32 (float64) for
    all dtypes: if hidden and weight are both bfloat16, dz is then not rounded. Entries that are left out reach nothing,
    not even by way of an infinite operand. Lists are slower, entry by entry. On a real head of 49152 x 576, 2**-20
    takes 0.68 of the time of an exact call, but 2**-24 takes 1.1; where p is flat, it may be 2.6 times as long.

    What `filter_eps` changes, with m the `skipped_mass`, Euclidean norms, and g of a position what multiplies its loss:
    ``|grad_output * token weight / divisor * scale / temperature|``. A row of dhidden is off by at most ``m * g *
    max |weight row|``, a row of dweight by ``filter_eps * sum g |hidden row|``, dweight as a whole by ``m * sum g
    |hidden row|``. With class weights, m and `filter_eps` are to be multiplied here by their largest magnitude, and
    with label smoothing as well, to be increased by ``2 * label_smoothing * (largest - smallest class weight)``. A
    z-loss adds ``2 * lse_square_scale * |logsumexp|`` to both, with its own divisor in g: where p of the target is so
    close to 1 that the target is left out, nearly all of its gradient goes with it.

    Source: that the logits' gradient is ``p - y``, Bridle, "Probabilistic interpretation of feedforward classification
    network outputs", 1990; leaving small entries out, Wijmans et al., 2024 (arXiv:2411.09009).
    """
    found, dhidden, dweight, dbias = _core.linear_cross_entropy_with_grad(
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
        grad_output=grad_output,
        wrt=wrt,
        dhidden_out=dhidden_out,
        dweight_out=dweight_out,
        dbias_out=dbias_out,
        accumulate=accumulate,
        threads=threads,
    )
    return LossStats.of(found) if stats else found, dhidden, dweight, dbias
