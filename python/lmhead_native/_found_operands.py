"""What a model file holds, as arguments of `LMHead`.

Knows the storages that have a form of their own here. Refuses to know files.
"""

from __future__ import annotations

from typing import Any

from . import _core
from ._head_norm import LayerNorm, RMSNorm
from ._model_files import FoundNorm, StoredMatrix
from ._quantized_weight import QuantizedWeight


def weight_of(matrix: StoredMatrix) -> Any:
    """Return a stored matrix as a weight, without a copy."""
    if matrix.storage == "Q8_0":
        return QuantizedWeight._from_q8_0(matrix.data)
    return _core.bfloat16_weight(matrix.data) if matrix.storage == "BF16" else matrix.data


def norm_of(norm: FoundNorm) -> RMSNorm | LayerNorm:
    """Return a model's final norm."""
    if norm.kind == "rms":
        return RMSNorm(norm.gain, eps=norm.eps)
    return LayerNorm(norm.gain, norm.bias, eps=norm.eps)
