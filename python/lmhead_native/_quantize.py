"""``quantize``: a floating weight as integers with scales."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _core
from ._quantized_weight import QuantizedWeight
from ._typing import Weight


def quantize(
    weight: Weight,
    bits: int = 8,
    group_size: int | None = None,
    *,
    scale_dtype: Any = "float32",
    threads: int | None = None,
) -> QuantizedWeight:
    """Round a weight to integers of 8 or 4 bits, symmetric about 0, with a scale for each row or group.

    Parameters
    ----------
    weight : array_like, shape (V, D)
        One row per token: float32, float16, bfloat16 or float64, any strides. All values finite.
    bits : {8, 4}, default 8
        Integers from -127 to 127, or from -7 to 7.
    group_size : {None, 32, 64, 128}, optional
        Elements of a row that share a scale; None: one scale for the whole row.
    scale_dtype : {"float32", "float16"}, default "float32"
        In which scales are kept. float16 halves them and makes ``scale * q`` exact in float32.
    threads : int, optional
        Threads of this call; by default `get_num_threads`.

    Returns
    -------
    QuantizedWeight
        Of the same shape.

    Raises
    ------
    ValueError
        NaN or infinity in the weight, which the message locates; a group whose scale is beyond the range of
        `scale_dtype`: for float16, a greatest magnitude above 65504 * 127 (7) or, unless it is 0, below 2**-24 * 127
        (7); `bits`, `group_size` or `scale_dtype` that are none of the above.
    TypeError
        A weight of another dtype, such as integers.

    See Also
    --------
    QuantizedWeight : what the result means, and what it can do.

    Notes
    -----
    Accumulation: ``scale = max |w| / 127`` (7) of the group, to the nearest number of `scale_dtype`, or the next one
    above where ``127.5 * scale`` (7.5) would not reach ``max |w|``; then ``q = w / scale`` to the nearest integer, ties
    to even, in float64. So ``|w - scale * q| <= scale / 2``, for rows of subnormal numbers too; a dequantised value is
    off by that and its own rounding to float32. A group of nothing but zeros has scale 0.

    Memory: the result, and for each thread 32 rows. Determinism: the same integers and scales for every number of
    threads, strides and instruction set. NaN and inf: refused.
    """
    try:
        dtype = np.dtype(scale_dtype)
    except TypeError:
        dtype = None
    if dtype not in (np.dtype(np.float32), np.dtype(np.float16)):
        raise ValueError(f"scale_dtype: expected 'float32' or 'float16', got {scale_dtype!r}")
    return QuantizedWeight._of(*_core.quantize(weight, bits, group_size, dtype == np.float16, threads))
