"""A transformer's body from a GGUF file: its numbers from the metadata, its weights as float32.

Knows: what the llama architecture calls its keys and tensors, and their shapes. Refuses to know: arithmetic (`body`),
how a file is laid out and its types are decoded.
"""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from lmhead_native import get_num_threads
from lmhead_native._found_operands import weight_of
from lmhead_native._model_files import GgufFile, Progress
from lmhead_native._model_files.found_head import finite_number
from lmhead_native._model_files.mapped import malformed, shown
from lmhead_native._model_files.stored_matrix import matrix_from_gguf, vector_from_gguf
from lmhead_native.cli.body import Body, Config, Floats, Layer

ARCHITECTURE = "llama"
PARTS = {"attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"}
# A layer has nine tensors, so a file of at most 2^17 has no more layers than this: a number to refuse lies by.
MOST_LAYERS = 2**14


def read_body(path: str | os.PathLike[str], *, progress: Progress | None = None, threads: int | None = None) -> Body:
    """Read the body of a GGUF model of the llama architecture.

    Parameters
    ----------
    path : path
        The file, the whole model in it.
    progress : callable, optional
        ``progress(done, total)`` in layers.
    threads : int, optional
        Of the conversion; by default `get_num_threads`.

    Returns
    -------
    Body
        Its layers as float32, 4 bytes for each element; the embedding stays in the file where its type allows.

    Raises
    ------
    OSError
        What opening the file says.
    ValueError
        A damaged file, another architecture, or a variant of it that is not computed here (experts, biases, scaled
        rotary positions); the message names file and field.
    ImportError
        A type that the ``gguf`` package dequantises, and the package is missing.
    """
    file = GgufFile(path)
    config = _config(file)
    _refuse_variants(file, config)
    layers: list[Layer] = []
    with ThreadPoolExecutor(threads or get_num_threads()) as pool:  # NumPy's loops let go of the GIL
        try:
            for layer in pool.map(partial(_layer, file, config), range(config.layers)):
                layers.append(layer)
                if progress is not None:
                    progress(len(layers), config.layers)
        finally:
            pool.shutdown(cancel_futures=True)
    name = "token_embd.weight"
    embedding, _ = matrix_from_gguf(file, _present(file, name))
    if embedding.shape[1] != config.width:
        raise malformed(file.path, name, f"rows of {config.width} elements", f"shape {embedding.shape}")
    return Body(config, weight_of(embedding), layers, _vector(file, "output_norm.weight", config.width))


def _config(file: GgufFile) -> Config:
    architecture = file.scalar("general.architecture")
    if architecture != ARCHITECTURE:
        got = "none" if architecture is None else shown(repr(architecture))
        raise malformed(file.path, "general.architecture", f"{ARCHITECTURE!r}", got)
    heads, width = _count(file, "attention.head_count"), _count(file, "embedding_length")
    key_heads = _count(file, "attention.head_count_kv", heads)
    head_width = _count(file, "attention.key_length", width // heads)
    rotated = _count(file, "rope.dimension_count", head_width)
    if heads % key_heads:
        raise malformed(file.path, "llama.attention.head_count", f"a multiple of the {key_heads} key heads", heads)
    if _count(file, "attention.value_length", head_width) != head_width:
        raise malformed(file.path, "llama.attention.value_length", f"{head_width}, the length of keys", "another")
    if rotated % 2 or rotated > head_width:
        raise malformed(file.path, "llama.rope.dimension_count", f"an even number up to {head_width}", rotated)
    return Config(
        layers=_count(file, "block_count", most=MOST_LAYERS),
        width=width,
        inner_width=_count(file, "feed_forward_length"),
        heads=heads,
        key_heads=key_heads,
        head_width=head_width,
        rotated_width=rotated,
        rope_base=_positive(file, "rope.freq_base", 10000.0),
        eps=_positive(file, "attention.layer_norm_rms_epsilon"),
        context=_count(file, "context_length"),
    )


def _count(file: GgufFile, name: str, otherwise: int | None = None, *, most: int = 2**31) -> int:
    key = f"{ARCHITECTURE}.{name}"
    value: Any = file.scalar(key)
    value = otherwise if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise malformed(file.path, key, f"an integer from 1 to {most}", "none" if value is None else shown(repr(value)))
    return value


def _positive(file: GgufFile, name: str, otherwise: float | None = None) -> float:
    key = f"{ARCHITECTURE}.{name}"
    value = file.scalar(key)
    number = finite_number(file.path, key, otherwise if value is None else value)
    if number <= 0:
        raise malformed(file.path, key, "a number above 0", number)
    return number


def _refuse_variants(file: GgufFile, config: Config) -> None:
    """Refuse what would silently give other states: the tensors and keys of variants of the architecture."""
    for key, usual in (("expert_count", 0), ("rope.scaling.type", "none")):
        value = file.scalar(f"{ARCHITECTURE}.{key}")
        if value not in (None, usual):
            raise malformed(file.path, f"{ARCHITECTURE}.{key}", f"{usual!r} or none", shown(repr(value)))
    if (parts := file.scalar("split.count")) not in (None, 0, 1):
        raise malformed(file.path, "split.count", "a model in one file", f"a part of {shown(repr(parts))}")
    for name in file.tensors:
        layer = re.fullmatch(r"blk\.(\d{1,6})\.(\w+)\.weight", name)
        in_layers = layer is not None and layer[2] in PARTS and int(layer[1]) < config.layers
        if not in_layers and name.startswith(("blk.", "rope_freqs.", "rope_factors_", "token_embd_norm.")):
            expected = f"no tensor but those of {config.layers} plain llama layers"
            raise malformed(file.path, name, expected, "one")


def _present(file: GgufFile, name: str) -> str:
    if name not in file.tensors:
        raise malformed(file.path, name, "a tensor of that name", "none")
    return name


def _vector(file: GgufFile, name: str, length: int) -> Floats:
    return vector_from_gguf(file, _present(file, name), length)


def _layer(file: GgufFile, config: Config, i: int) -> Layer:
    query_rows, key_rows = config.heads * config.head_width, config.key_heads * config.head_width
    width, inner = config.width, config.inner_width

    def matrix(*parts: tuple[str, int], width: int = width) -> Floats:
        return _stacked(file, [(f"blk.{i}.{part}.weight", rows) for part, rows in parts], width)

    return Layer(
        attention_gain=_vector(file, f"blk.{i}.attn_norm.weight", width),
        query_key_value=matrix(("attn_q", query_rows), ("attn_k", key_rows), ("attn_v", key_rows)),
        attention_output=matrix(("attn_output", width), width=query_rows),
        inner_gain=_vector(file, f"blk.{i}.ffn_norm.weight", width),
        gate_up=matrix(("ffn_gate", inner), ("ffn_up", inner)),
        down=matrix(("ffn_down", width), width=inner),
    )


def _stacked(file: GgufFile, parts: list[tuple[str, int]], width: int) -> Floats:
    """Read matrices of so many rows as float32, one below the other."""
    for name, rows in parts:  # before anything of that size is allocated
        if file.tensors[_present(file, name)].shape != (rows, width):
            raise malformed(file.path, name, f"shape {(rows, width)}", f"shape {file.tensors[name].shape}")
    whole = np.empty((sum(rows for _, rows in parts), width), np.float32)
    first = 0
    for name, rows in parts:
        found = weight_of(matrix_from_gguf(file, name)[0])
        whole[first : first + rows] = found if isinstance(found, np.ndarray) else found.dequantize()
        first += rows
    return whole
