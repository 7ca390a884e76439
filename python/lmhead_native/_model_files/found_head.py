"""An output head as a model file describes it: the result of looking for one.

Knows: the parts of a head, and what a scale before a softcap amounts to. Refuses to know: files.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .mapped import malformed, shown
from .stored_matrix import StoredMatrix


@dataclass(frozen=True, eq=False)
class FoundNorm:
    """The final norm: ``kind`` of mean square ("rms") or of mean and variance ("layer"), float32 gain and bias."""

    kind: Literal["rms", "layer"]
    gain: NDArray[np.float32] | None = field(repr=False)
    bias: NDArray[np.float32] | None = field(repr=False)
    eps: float


@dataclass(frozen=True, eq=False)
class FoundHead:
    """``logits = scale * softcap(weight @ norm(h) + bias)``, with None for what the model does not have.

    Attributes
    ----------
    paths : tuple of Path
        The files that the head was read from, config.json included.
    architecture : str or None
        What the model calls itself.
    weight : StoredMatrix
        Mapped where its storage allows; the mapping lives as long as its arrays.
    bias : ndarray or None
        float32 (V,).
    norm : FoundNorm or None
        None if there is none in the file.
    softcap, scale : float or None
        In the order of the formula above, whatever order the model has them in.
    notes : tuple of str
        What a user may want to know: ties, assumptions, conversions.
    """

    paths: tuple[Path, ...]
    architecture: str | None
    weight: StoredMatrix
    bias: NDArray[np.float32] | None = field(repr=False)
    norm: FoundNorm | None
    softcap: float | None
    scale: float | None
    notes: tuple[str, ...]


def softcap_of_scaled(path: Path, field: str, softcap: float, scale: float | None) -> float:
    """Return the softcap to apply before the scale when the model applies it after.

    ``c tanh(s z / c) = s (c / |s|) tanh(z / (c / |s|))``, as tanh is odd.
    """
    inner = softcap if scale is None else softcap / abs(scale)
    if not _in_float32(inner):
        got = f"{softcap:g}" if scale is None else f"{softcap:g} of logits times {scale:g}"
        raise malformed(path, field, "a cap in the range of float32", got)
    return inner


def finite_number(path: Path, field: str, value: Any, *, positive: bool = False) -> float:
    """Return a value of a file's metadata as a float, if it is one."""
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) and _fits(value) else None
    if number is None or not math.isfinite(number) or (positive and number < 0):
        raise malformed(path, field, f"a finite number{' >= 0' if positive else ''}", shown(repr(value)[:200]))
    return number


def scale_or_none(path: Path, field: str, value: float, *, divides: bool) -> float | None:
    """Return what logits are multiplied by, None for 1 (and for 0, which stands for "none" in GGUF files)."""
    if value in (0, 1):
        return None
    scale = 1 / value if divides else value
    if not _in_float32(scale):
        raise malformed(path, field, "a scale in the range of float32", f"{value:g}")
    return scale


def _in_float32(value: float) -> bool:
    """Tell whether logits can be scaled by a value without all of them becoming 0 or infinite."""
    return 2.0**-126 <= abs(value) < 2.0**128


def _fits(value: float) -> bool:
    return isinstance(value, float) or abs(value) < 2**1000  # float() of a larger integer may overflow
