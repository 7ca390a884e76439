"""What a benchmark computes: an operation on a shape in a dtype, the arrays for it, and what it must cost.

Knows: the named heads, the operations, the bytes and flops that no implementation can avoid. Refuses to know:
who computes it, and how fast the machine is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmhead_native.cli.errors import MissingExtraError
from lmhead_native.cli.optional import optional_module

# (D, V) of the output heads of published models, from their configuration files.
NAMED_SHAPES = {
    "smollm2": (576, 49152),
    "gpt2": (768, 50257),
    "qwen2.5-0.5b": (896, 151936),
    "llama3-8b": (4096, 128256),
    "gemma2-2b": (2304, 256000),
}
DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
# Operations on hidden states and a weight; the others work on rows of logits.
PROJECTIONS = ("logits", "logits_topk")
ROW_OPS = ("topk", "softmax", "log_softmax", "logsumexp")
OPS = PROJECTIONS + ROW_OPS
FLOAT32_BYTES = 4


@dataclass(frozen=True)
class Shape:
    """A head's width and vocabulary, and the name it goes by."""

    name: str
    width: int
    vocabulary: int

    @classmethod
    def parse(cls, text: str) -> Shape:
        """Read a name of :data:`NAMED_SHAPES` or ``DxV``, such as ``768x50257``.

        Raises
        ------
        ValueError
            Neither of the two.
        """
        if text in NAMED_SHAPES:
            return cls(text, *NAMED_SHAPES[text])
        width, _, vocabulary = text.partition("x")
        if not (width.isdecimal() and vocabulary.isdecimal() and int(width) and int(vocabulary)):
            raise ValueError(f"expected DxV such as 768x50257 or one of {', '.join(NAMED_SHAPES)}, got {text!r}")
        return cls(text, int(width), int(vocabulary))

    def __str__(self) -> str:
        size = f"{self.width}x{self.vocabulary}"
        return size if self.name == size else f"{self.name} {size}"


@dataclass(frozen=True)
class Workload:
    """One line of the benchmark's table."""

    op: str
    dtype: str
    shape: Shape
    rows: int
    k: int

    @property
    def bytes_moved(self) -> int:
        """Count the bytes that must be read once, and for the softmaxes also written (float32)."""
        item = 4 if self.dtype == "f32" else 2
        if self.op in PROJECTIONS:
            return item * self.shape.width * (self.shape.vocabulary + self.rows)
        written = FLOAT32_BYTES if self.op in ("softmax", "log_softmax") else 0
        return (item + written) * self.rows * self.shape.vocabulary

    @property
    def flops(self) -> int:
        """Count the multiplications and additions of the projection; 0 for the operations on logits."""
        return 2 * self.rows * self.shape.width * self.shape.vocabulary if self.op in PROJECTIONS else 0


def storage_dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype of ``f32``, ``f16`` or ``bf16`` (the last from ml_dtypes).

    Raises
    ------
    MissingExtraError
        ``bf16`` without ml_dtypes.
    """
    if name != "bf16":
        return np.dtype(DTYPES[name])
    ml_dtypes = optional_module("ml_dtypes")
    if ml_dtypes is None:
        raise MissingExtraError("--dtype bf16", "ml_dtypes", "bench")
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def random_matrix(rows: int, columns: int, dtype: str, seed: int) -> NDArray[Any]:
    """Draw a C-ordered matrix of standard normal numbers, rounded to ``dtype``.

    Drawn in float32 and, for the halves, 4096 rows at a time, so that no second whole matrix stands in memory.
    """
    generator = np.random.default_rng(seed)
    matrix = np.empty((rows, columns), dtype=storage_dtype(dtype))
    for start in range(0, rows, 4096):
        block = matrix[start : start + 4096]
        block[...] = generator.standard_normal(block.shape, dtype=np.float32)
    return matrix
