"""``logits``: the projection of hidden states on the vocabulary."""

from __future__ import annotations

from . import _core
from ._typing import AllowedIds, Array, Result, Weight


def logits(
    hidden: Array,
    weight: Weight,
    *,
    bias: Array | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    mask: Array | None = None,
    allowed_ids: AllowedIds | None = None,
    out: Result | None = None,
    threads: int | None = None,
) -> Result:
    """Logits of hidden states: ``scale * cap(hidden @ weight.T + bias)``.

    Parameters
    ----------
    hidden : array_like, shape (..., D)
        Hidden states after the final norm: float32, float16, bfloat16 (``ml_dtypes``, or a CPU tensor that speaks
        DLPack) or float64.
    weight : array_like, shape (V, D)
        One row per token of the vocabulary, any of the same dtypes; float64 only together with float64. Any strides are
        read in place: a matrix stored as (D, V) is passed as its transpose, a view. Or a `QuantizedWeight`.
    bias : array_like, shape (V,), optional
        Added to the products. Any real dtype.
    softcap : float, optional
        ``c > 0`` replaces each logit z by ``c * tanh(z / c)`` (Gemma 2), after the bias.
    scale : float, optional
        Finite factor, after the cap (Cohere's logit scale).
    mask : array_like of int32 or uint32, shape (..., ceil(V / 32)) or (ceil(V / 32),), optional
        The ids that are allowed, a bit for each: id v is bit ``v % 32``, from the lowest on, of word ``v // 32`` (the
        bit masks of xgrammar and llguidance). Leading axes broadcast to those of `hidden`; words and bits past V are
        ignored. Logits of other ids are -inf, and their rows of the weight are not read.
    allowed_ids : array_like of int, shape (n,), or a list of such, optional
        The same as ids, in any order, repeated or not: one array for all hidden states, or a list with one for each (of
        all leading axes, in C order), in which None allows every id. Not together with `mask`.
    out : ndarray, shape (..., V), optional
        Filled and returned. Exactly the result's shape and dtype, any strides, apart from the inputs in memory.
    threads : int, optional
        Threads of this call; by default `get_num_threads`.

    Returns
    -------
    ndarray, shape (..., V)
        float32, or float64 for float64 operands.

    Raises
    ------
    ValueError
        Shapes that do not fit, a mask too short for V, both `mask` and `allowed_ids`, softcap or scale out of range, an
        `out` of the wrong shape or that overlaps an input.
    IndexError
        An allowed id out of range; it names its position.
    TypeError
        Integer, boolean, complex or object operands; float64 beside a narrower dtype or a `QuantizedWeight`; a mask of
        another dtype, allowed ids that are no integers; an `out` of the wrong dtype.

    See Also
    --------
    logits_topk : the best k without the (..., V) array.
    reference.logits : the same in plain NumPy float64.

    Notes
    -----
    Accumulation: operands are widened exactly; products and sums are float32 FMAs in 16 lanes (lane j takes the
    elements j modulo 16) and one reduction tree, nothing is flushed to zero. bfloat16 with bfloat16 adds in pairs, the
    odd element first (``vdpbf16ps`` where the CPU has it). The error is at most
    ``gamma(D / 16 + 4) * sum |h| |w|`` with ``gamma(n) = n u / (1 - n u)``, u = 2**-24. A `QuantizedWeight` gives the
    bits of the float32 matrix that its ``dequantize()`` returns.

    Memory: the result, and scratch that grows with D but not with V: the prepared rows of a block (256 rows, or 4 MiB
    of them), and for each thread up to 8 MiB of converted weight rows (more only where 12 rows of D need it) and of
    logits. Allowed ids are kept as V / 8 bytes, for each row where they are given for each. Leading axes of `hidden` or
    `out` that are no single stride cost 8 bytes a row.

    Determinism: a row has the same bits whatever the batch, threads, strides, alignment and instruction set. The one
    exception: bfloat16 with bfloat16 on a CPU with ``vdpbf16ps`` counts subnormal elements and subnormal sums as 0,
    except where few rows meet a weight stored as (D, V).

    Allowed ids: their logits have the bits of the call without a mask. Rows of the weight that any hidden state of a
    block may need are read once for all of them, or for each hidden state by itself where that reads less.

    NaN and inf: as IEEE arithmetic gives them, in the logits they concern and nowhere else; what stands in rows of the
    weight, and elements of the bias, that are not allowed reaches nothing. D = 0 gives the bias alone.
    """
    return _core.logits(hidden, weight, bias, softcap, scale, mask, allowed_ids, out, threads)
