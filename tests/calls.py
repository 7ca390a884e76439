"""Every computing function of the package as a call with small arguments that fit together.

Knows names, operands and shapes. Refuses to know what the answers are.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lmhead_native as native
from oracle import result_dtype

N, V, D = 5, 11, 12

# What each function takes: large operands, small vectors, and the shape of `out` where it has one.
OPERANDS: dict[str, tuple[str, ...]] = {
    "logits": ("hidden", "weight"),
    "logits_topk": ("hidden", "weight"),
    "topk": ("logits",),
    "softmax": ("logits",),
    "log_softmax": ("logits",),
    "logsumexp": ("logits",),
    "layer_norm": ("x",),
    "rms_norm": ("x",),
}
VECTORS: dict[str, tuple[str, ...]] = {
    "logits": ("bias",),
    "logits_topk": ("bias",),
    "layer_norm": ("gain", "bias"),
    "rms_norm": ("gain",),
}
OUT_SHAPES: dict[str, tuple[int, ...]] = {
    "logits": (N, V),
    "softmax": (N, V),
    "log_softmax": (N, V),
    "logsumexp": (N,),
    "layer_norm": (N, D),
    "rms_norm": (N, D),
}
# `out` may be the very memory of the operand.
IN_PLACE = ("softmax", "log_softmax", "layer_norm", "rms_norm")

SHAPES = {"hidden": (N, D), "weight": (V, D), "logits": (N, V), "x": (N, D)}


def arguments(name: str, dtype: Any = np.float32) -> dict[str, Any]:
    """Return fresh arguments of the function `name`: operands of `dtype`, vectors of the result's dtype, k."""
    rng = np.random.default_rng(5)
    found: dict[str, Any] = {operand: rng.standard_normal(SHAPES[operand]).astype(dtype) for operand in OPERANDS[name]}
    if "logits" in found:  # of one row nearly the whole probability is in one place
        found["logits"][0, 3] += 40
    length = V if name.startswith("logits") else D
    found |= {
        vector: rng.standard_normal(length).astype(result_dtype(np.dtype(dtype))) for vector in VECTORS.get(name, ())
    }
    if name.endswith("topk"):
        found["k"] = 4
    return found


def call(name: str, given: dict[str, Any], module: ModuleType = native) -> Any:
    """Call the function `name` of `module` with keyword arguments."""
    return getattr(module, name)(**given)


def results(answer: Any) -> tuple[NDArray[Any], ...]:
    """Return what a function answered as arrays: one, or the two of a top-k list."""
    return tuple(answer) if isinstance(answer, tuple) else (answer,)
