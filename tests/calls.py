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
    "cross_entropy": ("logits",),
    "cross_entropy_with_grad": ("logits",),
    "linear_cross_entropy": ("hidden", "weight"),
    "linear_cross_entropy_with_grad": ("hidden", "weight"),
}
LOSSES = tuple(name for name in OPERANDS if "cross_entropy" in name)
VECTORS: dict[str, tuple[str, ...]] = {
    "logits": ("bias",),
    "logits_topk": ("bias",),
    "layer_norm": ("gain", "bias"),
    "rms_norm": ("gain",),
    "cross_entropy": ("bias", "class_weight", "token_weight"),
    "cross_entropy_with_grad": ("bias", "class_weight", "token_weight", "grad_output"),
    "linear_cross_entropy": ("bias", "class_weight", "token_weight"),
    "linear_cross_entropy_with_grad": ("bias", "class_weight", "token_weight", "grad_output"),
}
# Arguments of a loss that have an element for each row of its first operand.
PER_ROW = ("targets", "token_weight", "grad_output")
OUT_SHAPES: dict[str, tuple[int, ...]] = {
    "logits": (N, V),
    "softmax": (N, V),
    "log_softmax": (N, V),
    "logsumexp": (N,),
    "layer_norm": (N, D),
    "rms_norm": (N, D),
}
# The arrays that gradients may be written into.
GRADIENT_SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "cross_entropy_with_grad": {"dlogits_out": (N, V)},
    "linear_cross_entropy_with_grad": {"dhidden_out": (N, D), "dweight_out": (V, D), "dbias_out": (V,)},
}
# `out` may be the very memory of the operand.
IN_PLACE = ("softmax", "log_softmax", "layer_norm", "rms_norm")

SHAPES = {"hidden": (N, D), "weight": (V, D), "logits": (N, V), "x": (N, D)}


def vector_length(name: str, vector: str) -> int:
    """Return how many elements a small argument of the function `name` has."""
    return N if vector in PER_ROW else D if OPERANDS[name] == ("x",) else V


def arguments(name: str, dtype: Any = np.float32) -> dict[str, Any]:
    """Return fresh arguments of the function `name`: operands of `dtype`, vectors of the result's dtype, k, targets.

    Losses come unreduced, as arrays, with one position that is ignored.
    """
    rng = np.random.default_rng(5)
    found: dict[str, Any] = {operand: rng.standard_normal(SHAPES[operand]).astype(dtype) for operand in OPERANDS[name]}
    if "logits" in found:  # of one row nearly the whole probability is in one place
        found["logits"][0, 3] += 40
    found |= {
        vector: rng.standard_normal(vector_length(name, vector)).astype(result_dtype(np.dtype(dtype)))
        for vector in VECTORS.get(name, ())
    }
    if name.endswith("topk"):
        found["k"] = 4
    if name in LOSSES:
        found |= {"targets": np.array([3, V - 1, -100, 0, 3]), "reduction": "none"}
    return found


def with_rows(name: str, given: dict[str, Any], values: NDArray[Any]) -> dict[str, Any]:
    """Return the arguments with other rows as first operand, and what has an element for each row repeated to fit."""
    fitting = {k: np.resize(given[k], values.shape[:-1]) for k in PER_ROW if k in given}
    return given | {OPERANDS[name][0]: values} | fitting


def row_results(name: str, answer: Any) -> tuple[NDArray[Any], ...]:
    """Return those results that have a row for each row of the first operand."""
    return results(answer)[: 2 if name == "linear_cross_entropy_with_grad" else None]


def call(name: str, given: dict[str, Any], module: ModuleType = native) -> Any:
    """Call the function `name` of `module` with keyword arguments."""
    return getattr(module, name)(**given)


def results(answer: Any) -> tuple[NDArray[Any], ...]:
    """Return what a function answered as arrays: one, the two of a top-k list, a loss and its gradients."""
    return tuple(answer) if isinstance(answer, tuple) else (answer,)
