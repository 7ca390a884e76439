"""``layer_norm`` and ``rms_norm``: the final norm before the head."""

from __future__ import annotations

from . import _core
from ._typing import Array, Result


def layer_norm(
    x: Array,
    gain: Array | None = None,
    bias: Array | None = None,
    *,
    eps: float = 1e-5,
    out: Result | None = None,
    threads: int | None = None,
) -> Result:
    """``(x - mean) / sqrt(var + eps) * gain + bias`` along the last axis (Ba, Kiros and Hinton, 2016).

    Parameters
    ----------
    x : array_like, shape (..., D)
        float32, float16, bfloat16 or float64; any strides.
    gain, bias : array_like, shape (D,), optional
        Any real dtype.
    eps : float
        Finite, >= 0.
    out : ndarray, shape (..., D), optional
        Filled and returned; exactly the result's shape and dtype, any strides. May be `x` itself, but not otherwise
        overlap an input.
    threads : int, optional
        Threads of this call; by default `get_num_threads`.

    Returns
    -------
    ndarray, shape (..., D)
        float32, or float64 for float64 x.

    Raises
    ------
    ValueError
        Shapes that do not fit, a negative or infinite eps, an `out` of the wrong shape or that overlaps.
    TypeError
        x or `out` of another dtype, a gain or bias that is not real.

    Notes
    -----
    Accumulation: the mean and the biased variance (divided by D) in two passes, everything in float64, one rounding at
    the end.

    Memory: the result and two rows of D for each thread.

    Determinism: the same bits for every batch, thread count, stride and instruction set.

    NaN and inf: a row that holds either is NaN (an infinity because its mean is), and no other row. D = 0 gives (...,
    0)."""
    return _core.layer_norm(x, gain, bias, eps, out, threads)


def rms_norm(
    x: Array,
    gain: Array | None = None,
    *,
    eps: float = 1e-6,
    out: Result | None = None,
    threads: int | None = None,
) -> Result:
    """``x / sqrt(mean(x**2) + eps) * gain`` along the last axis (Zhang and Sennrich, 2019).

    Parameters
    ----------
    x, gain, out, threads
        As in `layer_norm`.
    eps : float
        Finite, >= 0.

    Returns
    -------
    ndarray, shape (..., D)
        float32, or float64 for float64 x.

    Raises
    ------
    ValueError, TypeError
        As `layer_norm`.

    Notes
    -----
    Accumulation, memory, determinism: as `layer_norm`.

    NaN and inf: a row with NaN is NaN; in a row with an infinity finite elements become 0 and infinite ones NaN.
    """
    return _core.rms_norm(x, gain, eps, out, threads)
