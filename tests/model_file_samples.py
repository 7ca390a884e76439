"""A small valid GGUF file and a small valid safetensors file, for tests to damage, and what all such tests ask for.

Knows: the files, and how much memory a look at them may take. Refuses to know: how they are damaged.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import model_file_writers as write
from lmhead_native._model_files import FoundHead, find_gguf_head, find_safetensors_head
from model_file_writers import ARRAY, F32, STRING, U8, U32, Tensor, tensor

V, D = 3, 32
WEIGHT = np.arange(V * D, dtype=np.float32).reshape(V, D)
GAIN = np.ones(D, np.float32)
PAIRS = [
    ("general.architecture", STRING, "grok"),
    ("grok.attention.layer_norm_rms_epsilon", F32, 0.5),
    ("grok.logit_scale", F32, 0.5),
    ("general.alignment", U32, 32),
    ("tokens", ARRAY, (STRING, ["a", "bc", ""])),
    ("types", ARRAY, (U8, [1, 2, 3])),
    ("deep", ARRAY, (ARRAY, [(U8, [1]), (STRING, ["x"])])),
]
TENSORS = [
    Tensor("token_embd.weight", "Q8_0", (V, D), write.q8_0(np.ones((V, D), np.int8), np.ones((V, 1), np.float16))),
    tensor("output.weight", WEIGHT, "BF16"),
    tensor("output_norm.weight", GAIN),
]
GGUF = write.gguf(PAIRS, TENSORS)
GGUF_HEADER = len(GGUF) - sum(len(one.data) + -len(one.data) % 32 for one in TENSORS[:-1]) - len(TENSORS[-1].data)

NAMED = [
    tensor("lm_head.weight", WEIGHT, "BF16"),
    tensor("lm_head.bias", WEIGHT[:, 1]),
    tensor("model.norm.weight", GAIN, "F16"),
]
SAFETENSORS = write.safetensors(NAMED)
SAFETENSORS_HEADER = len(SAFETENSORS) - sum(len(one.data) for one in NAMED)

# Far above what files of a kilobyte need, far below what their lies ask for.
MOST_MEMORY = 2_000_000


def find(path: Path) -> FoundHead:
    """Find the head of a file by its name's ending."""
    return find_gguf_head(path) if path.suffix == ".gguf" else find_safetensors_head(path)


def floats(head: FoundHead) -> NDArray[np.float32]:
    """Return the matrix as float32, by hand."""
    data = head.weight.data
    if head.weight.storage == "BF16":
        bits: NDArray[np.float32] = (data.astype(np.uint32) << 16).view(np.float32)
        return bits
    return data.astype(np.float32)


@contextmanager
def little_memory() -> Iterator[None]:
    """Assert that little is allocated at any time."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST_MEMORY
