"""``softmax``, ``log_softmax`` and ``logsumexp`` of rows of logits."""

from __future__ import annotations

from . import _core
from ._typing import Array, Result


def softmax(
    logits: Array, *, temperature: float = 1.0, out: Result | None = None, threads: int | None = None
) -> Result:
    """Probabilities: ``exp(z / T) / sum(exp(z / T))`` along the last axis.

    Parameters
    ----------
    logits : array_like, shape (..., V)
        float32, float16, bfloat16 or float64; any strides.
    temperature : float
        T > 0, finite.
    out : ndarray, shape (..., V), optional
        Filled and returned; exactly the result's shape and dtype, any strides. May be `logits` itself, but not
        otherwise overlap it.
    threads : int, optional
        Threads of this call; by default `get_num_threads`.

    Returns
    -------
    ndarray, shape (..., V)
        float32, or float64 for float64 logits.

    Raises
    ------
    ValueError
        A temperature that is not finite and positive, a 0-d array, an `out` of the wrong shape or that overlaps.
    TypeError
        Logits or `out` of another dtype.

    Notes
    -----
    Accumulation: float32 (float64) exponentials relative to the maximum of each block of 256 ids, summed in 16 (8)
    lanes without the maximum's own 1; the blocks are combined relative to the row's maximum. About 3 ulp, plus the
    rounding of ``(z - max) / T``, which an exponential turns into a relative error of ``|z - max| / T * 2**-24``.

    Memory: the result and at most two rows of V for each thread.

    Determinism: a row has the same bits whatever the batch, threads, strides and instruction set.

    NaN and inf: a row that holds NaN or +inf, or only -inf, is NaN throughout; -inf has probability 0. Probabilities
    below the smallest normal number (1.2e-38 in float32) may be returned as 0.
    """
    return _core.softmax(logits, temperature, out, threads)


def log_softmax(
    logits: Array, *, temperature: float = 1.0, out: Result | None = None, threads: int | None = None
) -> Result:
    """Log-probabilities: ``z / T - log(sum(exp(z / T)))`` along the last axis.

    Parameters
    ----------
    logits, temperature, out, threads
        As in `softmax`.

    Returns
    -------
    ndarray, shape (..., V)
        float32, or float64 for float64 logits. Never positive.

    Raises
    ------
    ValueError, TypeError
        As `softmax`.

    Notes
    -----
    Accumulation: ``(z - max) / T - log1p(rest)``, where rest is the sum without the maximum's own 1: large offsets of
    the logits cancel exactly, and the best token's log-probability is not rounded to 0 while it is representable.

    Memory: the result; at most two rows of V for each thread besides where logits are not aligned float32 (float64).

    Determinism: as `softmax`.

    NaN and inf: a row that holds NaN or +inf, or only -inf, is NaN throughout; -inf stays -inf.
    """
    return _core.log_softmax(logits, temperature, out, threads)


def logsumexp(
    logits: Array, *, temperature: float = 1.0, out: Result | None = None, threads: int | None = None
) -> Result:
    """``log(sum(exp(z / T)))`` along the last axis.

    Parameters
    ----------
    logits : array_like, shape (..., V)
        As in `softmax`.
    temperature : float
        T > 0, finite.
    out : ndarray, shape (...), optional
        Filled and returned; exactly the result's shape and dtype, any strides, apart from `logits` in memory.
    threads : int, optional
        Threads of this call; by default `get_num_threads`.

    Returns
    -------
    ndarray, shape (...)
        float32, or float64 for float64 logits; 0-d for a single row.

    Raises
    ------
    ValueError, TypeError
        As `softmax`.

    Notes
    -----
    Accumulation: ``max / T + log1p(rest)``, see `log_softmax`; the last sum is taken in float64 and rounded once.

    Memory: the result and, for each thread, 8 (16) bytes for each 256 ids of a row.

    Determinism: as `softmax`.

    NaN and inf: NaN gives NaN; else +inf gives +inf; a row of -inf, or with no ids at all, gives -inf.
    """
    return _core.logsumexp(logits, temperature, out, threads)
