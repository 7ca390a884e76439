"""``RMSNorm`` and ``LayerNorm``: a model's final norm, as a prepared head holds it."""

from __future__ import annotations

import numpy as np

from . import _core
from ._frozen import Frozen
from ._norm import layer_norm, rms_norm
from ._typing import Array, Result


def _kept(name: str, values: Array | None) -> Result | None:
    """A copy in float64 that nobody can change any more."""
    return None if values is None else _core.kept_vector(name, values)


def _no_rows(*vectors: Result | None) -> Result:
    """States on which a norm does nothing but check its options."""
    return np.zeros((0, next((v.size for v in vectors if v is not None), 0)))


class RMSNorm(Frozen):
    """`rms_norm` with its options: ``x / sqrt(mean(x**2) + eps) * gain``.

    Parameters
    ----------
    gain : array_like, shape (D,), optional
        Any real dtype; copied. A checkpoint that stores w for a gain of 1 + w, as Gemma's do, is given as ``1 + w``.
    eps : float
        Finite, >= 0.

    Raises
    ------
    ValueError, TypeError
        As `rms_norm`, when it is made.
    """

    __slots__ = ("eps", "gain")
    gain: Result | None
    eps: float

    def __init__(self, gain: Array | None = None, *, eps: float = 1e-6) -> None:
        object.__setattr__(self, "gain", _kept("gain", gain))
        object.__setattr__(self, "eps", eps)
        self(_no_rows(self.gain))
        object.__setattr__(self, "eps", float(eps))

    def __call__(self, x: Array, *, threads: int | None = None) -> Result:
        """Return the norm of x (..., D), as `rms_norm` does."""
        return rms_norm(x, self.gain, eps=self.eps, threads=threads)

    def __reduce__(self) -> tuple[object, ...]:
        return _rms_norm_of, (self.gain, self.eps)

    def __repr__(self) -> str:
        return f"RMSNorm({'' if self.gain is None else f'gain of {self.gain.size}, '}eps={self.eps:g})"


class LayerNorm(Frozen):
    """`layer_norm` with its options: ``(x - mean) / sqrt(var + eps) * gain + bias``.

    Parameters
    ----------
    gain, bias : array_like, shape (D,), optional
        Any real dtype; copied.
    eps : float
        Finite, >= 0.

    Raises
    ------
    ValueError, TypeError
        As `layer_norm`, when it is made.
    """

    __slots__ = ("bias", "eps", "gain")
    gain: Result | None
    bias: Result | None
    eps: float

    def __init__(self, gain: Array | None = None, bias: Array | None = None, *, eps: float = 1e-5) -> None:
        object.__setattr__(self, "gain", _kept("gain", gain))
        object.__setattr__(self, "bias", _kept("bias", bias))
        object.__setattr__(self, "eps", eps)
        self(_no_rows(self.gain, self.bias))
        object.__setattr__(self, "eps", float(eps))

    def __call__(self, x: Array, *, threads: int | None = None) -> Result:
        """Return the norm of x (..., D), as `layer_norm` does."""
        return layer_norm(x, self.gain, self.bias, eps=self.eps, threads=threads)

    def __reduce__(self) -> tuple[object, ...]:
        return _layer_norm_of, (self.gain, self.bias, self.eps)

    def __repr__(self) -> str:
        gain = "" if self.gain is None else f"gain of {self.gain.size}, "
        bias = "" if self.bias is None else f"bias of {self.bias.size}, "
        return f"LayerNorm({gain}{bias}eps={self.eps:g})"


def _rms_norm_of(gain: Result | None, eps: float) -> RMSNorm:
    return RMSNorm(gain, eps=eps)


def _layer_norm_of(gain: Result | None, bias: Result | None, eps: float) -> LayerNorm:
    return LayerNorm(gain, bias, eps=eps)
