"""The specification one can run: the public functions of `lmhead_native` in plain float64 NumPy.

Knows the formulas, the order of operations and what happens to NaN, infinities, ties and empty axes. Refuses to know
about speed, threads, tiles and instruction sets; the norms live in `_reference_norm`, the losses in
`_reference_cross_entropy` and `_reference_linear_cross_entropy`, scores in `_reference_scores`, samplers in
`_reference_sample` and `_reference_verify`, argument checks in `_reference_checks`.

Shared by every function here:

- Operands are widened exactly to float64, computed in float64, and the result is rounded once: to float32 when the
  operands are float32, float16 or bfloat16, not at all when they are float64.
- Whole float64 copies of the operands are made, and the order of additions is NumPy's, so the last bits of a float64
  result may depend on the NumPy build. The native functions make neither concession.
- Inputs are never written. `out`, if given, is filled and returned; every check comes before the first write.
- `threads` is checked and otherwise unused.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _reference_checks as checks
from ._reference_adjust import adjust
from ._reference_allowed import Allowed, allowed
from ._reference_cross_entropy import cross_entropy, cross_entropy_with_grad
from ._reference_linear_cross_entropy import linear_cross_entropy, linear_cross_entropy_with_grad
from ._reference_log_sum_exp import log_probabilities, log_sum_exp
from ._reference_norm import layer_norm, rms_norm
from ._reference_rank import at_ids, best_first, best_ids
from ._reference_sample import logits_sample, sample
from ._reference_scores import logits_scores, perplexity, scores
from ._reference_verify import verify
from ._top_k import TopK
from ._typing import Weight

__all__ = [
    "cross_entropy",
    "cross_entropy_with_grad",
    "layer_norm",
    "linear_cross_entropy",
    "linear_cross_entropy_with_grad",
    "log_softmax",
    "logits",
    "logits_sample",
    "logits_scores",
    "logits_topk",
    "logsumexp",
    "perplexity",
    "rms_norm",
    "sample",
    "scores",
    "softmax",
    "topk",
    "verify",
]


def logits(
    hidden: ArrayLike,
    weight: Weight,
    *,
    bias: ArrayLike | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    mask: ArrayLike | None = None,
    allowed_ids: Any = None,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Project hidden states onto the vocabulary: ``scale * cap(hidden @ weight.T + bias)``.

    Parameters
    ----------
    hidden : array_like, shape (..., D)
        Hidden states after the final norm: float32, float16, bfloat16 or float64.
    weight : array_like, shape (V, D)
        One row per token id. float64 goes with float64 only. A head stored as (D, V) is passed as its ``.T``. A
        `QuantizedWeight` stands for what its ``dequantize()`` returns.
    bias : array_like, shape (V,), optional
        Added first. Any real dtype.
    softcap : float, optional
        ``c`` in ``c * tanh(z / c)``, applied after the bias; above 0 and finite.
    scale : float, optional
        Finite factor, applied last.
    mask : array_like of int32 or uint32, shape (..., W) or (W,), optional
        Bits of allowed ids, id 0 the least significant bit of the first word: W is V / 32 or more, rounded up, and bits
        past V are ignored. One row of words may stand for all. Logits of other ids are -inf.
    allowed_ids : array_like of ids, or list of such, optional
        The same as a list of ids for all rows, or a list with one for each row. Not together with `mask`.
    out : ndarray, shape (..., V), optional
        Filled and returned: the result's dtype, writeable, any strides, apart from every input in memory.
    threads : int, optional
        Checked, otherwise unused.

    Returns
    -------
    ndarray, shape (..., V)
        float64 for float64 operands, else float32.

    Raises
    ------
    ValueError
        Shapes that do not match, a softcap or scale out of range, a mask that is too short, both a mask and
        `allowed_ids`, an `out` of another shape, read-only or overlapping.
    TypeError
        A dtype outside the table, float64 beside something narrower, an `out` of another dtype.
    IndexError
        An allowed id that is none.

    Notes
    -----
    Accumulation in float64. Memory: float64 copies of all operands and of the result. NaN and infinities follow IEEE
    arithmetic within their own row (``0 * inf`` is NaN). D = 0 gives exactly the bias, 0 without one; N = 0 and V = 0
    give empty results. Unlike ``vdpbf16ps``, bfloat16 subnormals count.

    Source: the linear output layer with shared embeddings, Press and Wolf, "Using the output embedding to improve
    language models", EACL 2017; the soft cap, Bello et al., "Neural combinatorial optimization with reinforcement
    learning", 2016 (arXiv:1611.09940), section 4.1, as used by Gemma 2 (arXiv:2408.00118).
    """
    h, w = checks.hidden_and_weight(hidden, weight)
    b = checks.vector("bias", bias, "V", w.memory.shape[0], f"weight of shape {w.memory.shape}")
    cap, factor = checks.softcap_of(softcap), checks.scale_of(scale)
    usable = _usable(h, w, mask, allowed_ids, None)
    checks.check_threads(threads)
    shape, dtype = (*h.memory.shape[:-1], w.memory.shape[0]), checks.result_dtype(h)
    checks.check_out(out, shape, dtype, {"hidden": h, "weight": w, "bias": b, **usable.inputs})
    with np.errstate(all="ignore"):
        z_nv = adjust(h.rows() @ w.values.T, None if b is None else b.values, cap, factor)
    return checks.deliver(usable.spread(z_nv).reshape(shape), dtype, out)


def logits_topk(
    hidden: ArrayLike,
    weight: Weight,
    k: int,
    *,
    bias: ArrayLike | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    mask: ArrayLike | None = None,
    allowed_ids: Any = None,
    vocab_ids: ArrayLike | None = None,
    threads: int | None = None,
) -> TopK:
    """Return the k largest logits of every hidden state: ``topk(logits(hidden, weight, ...), k)``.

    Parameters
    ----------
    hidden, weight, bias, softcap, scale, mask, allowed_ids, threads
        As in `logits`.
    k : int
        0 to V.
    vocab_ids : array_like of ids, shape (V,), optional
        What the rows of a pruned weight stand for, strictly ascending. All ids, here and in `mask` and `allowed_ids`,
        are then these, the vocabulary ends with the last of them (and so does k), and others are not allowed.

    Returns
    -------
    TopK
        ``values`` (..., k) of the logits' dtype and ``indices`` (..., k) int64, best first; where fewer are allowed,
        -inf and -1 at the end.

    Raises
    ------
    ValueError, TypeError, IndexError
        As `logits` and `topk`; `vocab_ids` of another length or that do not ascend.

    Notes
    -----
    The logits are rounded to the result's dtype before they are compared, so two that round to the same value are a
    tie and the lower index comes first. Memory: all N x V logits, which the native function never holds.
    NaN, infinities and ties: as `topk`.
    """
    h, w = checks.hidden_and_weight(hidden, weight)
    usable = _usable(h, w, mask, allowed_ids, vocab_ids)
    count = checks.k_of(k, usable.n_ids)
    z = logits(hidden, weight, bias=bias, softcap=softcap, scale=scale, threads=threads)
    z = usable.spread(z.reshape(math.prod(z.shape[:-1]), z.shape[-1]))
    ids = best_ids(z, usable.has, count)
    shape = (*h.memory.shape[:-1], count)
    return TopK(at_ids(z, ids, -np.inf).reshape(shape), ids.reshape(shape))


def topk(logits: ArrayLike, k: int, *, threads: int | None = None) -> TopK:
    """Return the k largest entries of every row, best first.

    Parameters
    ----------
    logits : array_like, shape (..., V)
        float32, float16, bfloat16 or float64.
    k : int
        0 to V. NumPy integers are welcome; bool and float are not.
    threads : int, optional
        Checked, otherwise unused.

    Returns
    -------
    TopK
        ``values`` (..., k), float64 for float64 logits and else float32, and ``indices`` (..., k) int64.

    Raises
    ------
    ValueError
        Logits without an axis; k outside 0 to V.
    TypeError
        A dtype outside the table; k that is no integer.

    Notes
    -----
    The order is total, so the list for k is a prefix of the list for k + 1: NaN first, of either sign, by index; then
    descending values, +inf before all others; equal values by ascending index, with -0.0 equal to +0.0. Values are the
    row's own, widened exactly. Memory: a few arrays of the logits' size, for a full sort.

    Source: the order of NaN is that of ``numpy.sort`` read backwards, and of ``torch.topk``.
    """
    x = checks.rows("logits", logits, "V")
    count = checks.k_of(k, x.memory.shape[-1])
    checks.check_threads(threads)
    order = best_first(x.values)[..., :count]
    values = np.take_along_axis(x.values, order, axis=-1)
    return TopK(checks.deliver(values, checks.result_dtype(x), None), order)


def softmax(
    logits: ArrayLike, *, temperature: float = 1.0, out: NDArray[Any] | None = None, threads: int | None = None
) -> NDArray[Any]:
    """Return ``exp(x / T) / sum exp(x / T)`` over the last axis.

    Parameters
    ----------
    logits : array_like, shape (..., V)
        float32, float16, bfloat16 or float64.
    temperature : float, default 1.0
        T, above 0 and finite.
    out : ndarray, shape (..., V), optional
        Filled and returned: the result's dtype, writeable, any strides. It may be exactly the memory of `logits`.
    threads : int, optional
        Checked, otherwise unused.

    Returns
    -------
    ndarray, shape (..., V)
        float64 for float64 logits, else float32.

    Raises
    ------
    ValueError
        Logits without an axis; a temperature out of range; an `out` of another shape, read-only or partly overlapping.
    TypeError
        A dtype outside the table; an `out` of another dtype.

    Notes
    -----
    Every term is ``exp((x - max) / T)``, at most 1; the maximum's own 1 is added to the others at the end. A row with
    NaN or +inf, or of nothing but -inf, is NaN throughout, and no other row is touched; a single -inf gives 0. Tied
    maxima share equally as T goes to 0. V = 0 gives (..., 0). Memory: a few float64 arrays of the logits' size.

    Source: Blanchard, Higham and Higham, "Accurately computing the log-sum-exp and softmax functions", IMA J. Numer.
    Anal. 41 (2021), the shifted formulas; temperature as in Hinton et al., 2015 (arXiv:1503.02531), equation 1.
    """
    x, t, dtype = _row_arguments(logits, temperature, threads)
    checks.check_out(out, x.memory.shape, dtype, {"logits": x}, in_place="logits")
    if x.values.size == 0:
        return checks.deliver(x.values, dtype, out)
    with np.errstate(all="ignore"):
        lse = log_sum_exp(x.values, t)
        np.put_along_axis(lse.terms, lse.first, 1.0, axis=-1)
        probabilities = lse.terms / (1.0 + lse.rest)
    return checks.deliver(np.where(np.isfinite(lse.maximum), probabilities, np.nan), dtype, out)


def log_softmax(
    logits: ArrayLike, *, temperature: float = 1.0, out: NDArray[Any] | None = None, threads: int | None = None
) -> NDArray[Any]:
    """Return ``x / T - log sum exp(x / T)`` over the last axis.

    Parameters
    ----------
    logits, temperature, out, threads
        As in `softmax`.

    Returns
    -------
    ndarray, shape (..., V)
        float64 for float64 logits, else float32; never above 0.

    Raises
    ------
    ValueError, TypeError
        As `softmax`.

    Notes
    -----
    Computed as ``(x - max) / T - log1p(rest)`` with ``rest`` the sum of the other terms, so a large common offset
    costs nothing (equal logits at 1e8 give -log 2) and a gap of 60 gives -8.8e-27 at the top, not 0. Rows with NaN or
    +inf, or of nothing but -inf: NaN throughout, as `softmax`; a single -inf gives -inf. V = 0 gives (..., 0).

    Source: as `softmax`, the formula with log1p.
    """
    x, t, dtype = _row_arguments(logits, temperature, threads)
    checks.check_out(out, x.memory.shape, dtype, {"logits": x}, in_place="logits")
    with np.errstate(all="ignore"):
        return checks.deliver(log_probabilities(x.values, t), dtype, out)


def logsumexp(
    logits: ArrayLike, *, temperature: float = 1.0, out: NDArray[Any] | None = None, threads: int | None = None
) -> NDArray[Any]:
    """Return ``log sum exp(x / T)`` over the last axis.

    Parameters
    ----------
    logits, temperature, threads
        As in `softmax`.
    out : ndarray, shape (...), optional
        Filled and returned: the result's dtype, writeable, any strides, apart from `logits` in memory.

    Returns
    -------
    ndarray, shape (...)
        float64 for float64 logits, else float32; of shape () for a single row.

    Raises
    ------
    ValueError, TypeError
        As `softmax`.

    Notes
    -----
    Computed as ``max / T + log1p(rest)``. A row of nothing but -inf, and one with V = 0, give -inf; +inf without NaN
    gives +inf; NaN gives NaN. Memory: a few float64 arrays of the logits' size.

    Source: as `softmax`.
    """
    x, t, dtype = _row_arguments(logits, temperature, threads)
    shape = x.memory.shape[:-1]
    checks.check_out(out, shape, dtype, {"logits": x})
    if x.values.size == 0:
        return checks.deliver(np.full(shape, -np.inf), dtype, out)
    with np.errstate(all="ignore"):
        lse = log_sum_exp(x.values, t)
        total = np.where(np.isfinite(lse.maximum), lse.maximum / t + np.log1p(lse.rest), lse.maximum)
    return checks.deliver(total[..., 0], dtype, out)


def _usable(h: checks.Operand, w: checks.Operand, mask: Any, allowed_ids: Any, vocab_ids: Any) -> Allowed:
    """Read which ids the rows of hidden may use of those of the weight."""
    shape = h.memory.shape
    return allowed(mask, allowed_ids, vocab_ids, shape[:-1], w.memory.shape[0], f"hidden of shape {shape}")


def _row_arguments(
    logits: ArrayLike, temperature: float, threads: int | None
) -> tuple[checks.Operand, float, np.dtype[Any]]:
    """Read what the row functions share: the logits, the temperature, and the result's dtype."""
    x = checks.rows("logits", logits, "V")
    t = checks.temperature_of(temperature)
    checks.check_threads(threads)
    return x, t, checks.result_dtype(x)
