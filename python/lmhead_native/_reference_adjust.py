"""From raw to adjusted logits, and the derivative: part of `lmhead_native.reference`.

Knows the order of bias, softcap and scale. Refuses to know where logits come from; temperature belongs to the
log-sum-exp, which divides differences by it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def adjust(z: Array, bias: Array | None, softcap: float | None, scale: float | None) -> Array:
    """Return ``scale * softcap * tanh((z + bias) / softcap)``; each part may be missing."""
    if bias is not None:
        z = z + bias
    if softcap is not None:
        z = softcap * np.tanh(z / softcap)
    return z if scale is None else z * scale


def adjust_backward(gradient: Array, z: Array, bias: Array | None, softcap: float | None, scale: float | None) -> Array:
    """Turn a gradient with respect to ``adjust(z, ...)`` into one with respect to z (and to the bias)."""
    if scale is not None:
        gradient = gradient * scale
    if softcap is None:
        return gradient
    # 1 - tanh^2 would be 0 from 19 caps on, while the slope there is still 1e-16.
    return gradient / np.square(np.cosh((z if bias is None else z + bias) / softcap))
