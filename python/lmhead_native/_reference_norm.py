"""The final norm before the head, in plain float64 NumPy: part of `lmhead_native.reference`.

Knows layer norm and RMS norm over the last axis. Refuses to know the head that follows, and leaves argument checks to
`_reference_checks`. What every reference function promises stands in `lmhead_native.reference`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _reference_checks as checks

__all__ = ["layer_norm", "rms_norm"]


def layer_norm(
    x: ArrayLike,
    gain: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    eps: float = 1e-5,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Return ``(x - mean) / sqrt(variance + eps) * gain + bias`` over the last axis.

    Parameters
    ----------
    x : array_like, shape (..., D)
        float32, float16, bfloat16 or float64.
    gain, bias : array_like, shape (D,), optional
        Any real dtype; 1 and 0 when left out.
    eps : float, default 1e-5
        At least 0 and finite.
    out : ndarray, shape (..., D), optional
        Filled and returned: the result's dtype, writeable, any strides. It may be exactly the memory of `x`.
    threads : int, optional
        Checked, otherwise unused.

    Returns
    -------
    ndarray, shape (..., D)
        float64 for float64 `x`, else float32.

    Raises
    ------
    ValueError
        `x` without an axis; gain or bias of another size; eps out of range; an unfit `out`.
    TypeError
        A dtype outside the table; a gain or bias that is not real; an `out` of another dtype.

    Notes
    -----
    The variance is the biased one (divided by D), taken from the centred values. A row with NaN or an infinity is NaN
    throughout, and so is a constant row at eps = 0. D = 0 gives (..., 0). Memory: a few float64 arrays of the size
    of `x`.

    Source: Ba, Kiros and Hinton, "Layer normalization", 2016 (arXiv:1607.06450), equation 4.
    """
    rows = checks.rows("x", x, "D")
    width, origin = rows.memory.shape[-1], f"x of shape {rows.memory.shape}"
    g = checks.vector("gain", gain, "D", width, origin)
    b = checks.vector("bias", bias, "D", width, origin)
    epsilon = checks.eps_of(eps)
    checks.check_threads(threads)
    dtype = checks.result_dtype(rows)
    checks.check_out(out, rows.memory.shape, dtype, {"x": rows, "gain": g, "bias": b}, in_place="x")
    if width == 0:
        return checks.deliver(rows.values, dtype, out)
    with np.errstate(all="ignore"):
        centred = rows.values - rows.values.mean(axis=-1, keepdims=True)
        variance = np.square(centred).mean(axis=-1, keepdims=True)
        y = centred / np.sqrt(variance + epsilon)
        if g is not None:
            y = y * g.values
        if b is not None:
            y = y + b.values
    return checks.deliver(y, dtype, out)


def rms_norm(
    x: ArrayLike,
    gain: ArrayLike | None = None,
    *,
    eps: float = 1e-6,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Return ``x / sqrt(mean(x^2) + eps) * gain`` over the last axis.

    Parameters
    ----------
    x, gain, out, threads
        As in `layer_norm`.
    eps : float, default 1e-6
        At least 0 and finite.

    Returns
    -------
    ndarray, shape (..., D)
        float64 for float64 `x`, else float32.

    Raises
    ------
    ValueError, TypeError
        As `layer_norm`.

    Notes
    -----
    A NaN makes its whole row NaN; an infinity becomes NaN and its row's finite entries 0; a row of zeros at eps = 0 is
    NaN. The gain multiplies the normalised value as it is (models that store ``gain - 1`` add the 1 first). D = 0
    gives (..., 0). Memory: a few float64 arrays of the size of `x`.

    Source: Zhang and Sennrich, "Root mean square layer normalization", 2019 (arXiv:1910.07467), equation 4.
    """
    rows = checks.rows("x", x, "D")
    width = rows.memory.shape[-1]
    g = checks.vector("gain", gain, "D", width, f"x of shape {rows.memory.shape}")
    epsilon = checks.eps_of(eps)
    checks.check_threads(threads)
    dtype = checks.result_dtype(rows)
    checks.check_out(out, rows.memory.shape, dtype, {"x": rows, "gain": g}, in_place="x")
    if width == 0:
        return checks.deliver(rows.values, dtype, out)
    with np.errstate(all="ignore"):
        y = rows.values / np.sqrt(np.square(rows.values).mean(axis=-1, keepdims=True) + epsilon)
        if g is not None:
            y = y * g.values
    return checks.deliver(y, dtype, out)
