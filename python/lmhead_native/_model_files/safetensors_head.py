"""The head of a safetensors checkpoint, with what its config.json says.

Knows: the names of its tensors and of the config's keys. Refuses to know: the layout of the files (`safetensors`),
storages (`stored_matrix`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from . import families
from .found_head import FoundHead, FoundNorm, finite_number, scale_or_none, softcap_of_scaled
from .json_object import kind_of, read_object
from .mapped import malformed, shown
from .safetensors import Checkpoint
from .stored_matrix import matrix_from_safetensors, vector_from_safetensors

CONFIG = "config.json"
LARGEST_CONFIG = 10_000_000


def find_safetensors_head(path: str | os.PathLike[str]) -> FoundHead:
    """Find the output head of a model in safetensors files.

    Parameters
    ----------
    path : path
        The folder; or its ``model.safetensors`` or ``model.safetensors.index.json``, or another such file. A
        ``config.json`` beside it is read.

    Returns
    -------
    FoundHead
        The matrix is ``lm_head.weight`` under its several names, or the tied embedding.

    Raises
    ------
    OSError
        What opening a file says; a folder without either file.
    ValueError
        A damaged file, one of several parts, a head that is missing or packed (GPTQ, AWQ, fp8), or one that the
        config says is not tied but that is not there; the message names file and field.

    Notes
    -----
    Memory: F32, F16 and BF16 stay in the file, whatever their alignment; F64 becomes float32. Norm and bias are
    copies. Neither torch nor ml_dtypes is needed.

    A file that is cut short while the head is in use ends the process, as with any mapped file.
    """
    return _Model(Checkpoint(path)).head()


class _Model:
    """A checkpoint and the merged part of its config that is about the language model."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.config_path = checkpoint.folder / CONFIG
        self.has_config = os.path.lexists(self.config_path)  # a link to nothing is an error, not an absence
        self.config = self._read_config() if self.has_config else {}
        self.model_type: str | None = self._kind("model_type", str)
        self._kind("tie_word_embeddings", bool)

    def _read_config(self) -> dict[str, Any]:
        config = read_object(self.config_path, LARGEST_CONFIG)
        for name in families.TEXT_CONFIGS:
            if isinstance(config.get(name), dict):
                return {**config, **config[name]}  # what the language model says of itself comes first
        return config

    def _kind(self, key: str, kind: type) -> Any:
        """Return a value of the config, which is null or absent where it is not of this kind."""
        value = self.config.get(key)
        if value is not None and not isinstance(value, kind):
            raise malformed(self.config_path, key, "a text" if kind is str else "true or false", kind_of(value))
        return value

    def head(self) -> FoundHead:
        name, notes = self._head_name()
        tied = name.removesuffix(".weight") not in families.HEADS
        self._refuse_normalised_rows()
        file, _ = self.checkpoint.find(name)
        weight, converted = matrix_from_safetensors(file, name)
        rows, width = weight.shape
        if self.model_type == "baichuan" and rows == 125696:
            raise malformed(file.path, name, "a head that is used as stored", "Baichuan 2's, whose rows are normalised")
        paths = [file.path]
        bias_name = self._first((name.removesuffix("weight") + "bias",) if not tied else _named(families.HEADS, "bias"))
        bias = None if bias_name is None else self._vector(bias_name, rows, paths)
        norm, assumed = self._norm(width, paths)
        scale, scaled = self._scale(width, tied)
        softcap, capped = self._softcap(scale)
        if self.has_config:
            paths.append(self.config_path)
        else:
            notes.append(f"no {CONFIG} beside the file: no scale and no softcap assumed")
        everything = (*notes, *converted, *assumed, *scaled, *capped)
        return FoundHead(tuple(dict.fromkeys(paths)), self.model_type, weight, bias, norm, softcap, scale, everything)

    def _first(self, names: Iterable[str]) -> str | None:
        return next((name for name in names if name in self.checkpoint), None)

    def _head_name(self) -> tuple[str, list[str]]:
        head = self._first(_named(families.HEADS, "weight"))
        embedding = self._first(_named(families.EMBEDDINGS, "weight"))
        tie = self.config.get("tie_word_embeddings")
        path = self.checkpoint.path
        if head is not None:
            both = f"{CONFIG} says tied, but the file has {head}, which is used"
            return head, [both] if tie is True and embedding is not None else []
        if embedding is None:
            raise malformed(path, "lm_head.weight", "that tensor or an embedding tied to it", "neither")
        if tie is False:
            expected = f"that tensor, as {CONFIG} says tie_word_embeddings = false"
            raise malformed(path, "lm_head.weight", expected, f"only {shown(embedding)}")
        return embedding, [f"tied: the head is {embedding}"]

    def _refuse_normalised_rows(self) -> None:
        if self.config.get("norm_head"):
            raise malformed(self.config_path, "norm_head", "a head that is used as stored", "one whose rows are normed")

    def _vector(self, name: str, length: int, paths: list[Path]) -> NDArray[np.float32]:
        file, _ = self.checkpoint.find(name)
        paths.append(file.path)
        return vector_from_safetensors(file, name, length)

    def _number(self, keys: Iterable[str], *, positive: bool = False) -> tuple[str, float] | None:
        """Return the first of these keys that the config has, and its value."""
        key = next((key for key in keys if self.config.get(key) is not None), None)
        return None if key is None else (key, finite_number(self.config_path, key, self.config[key], positive=positive))

    def _norm(self, width: int, paths: list[Path]) -> tuple[FoundNorm | None, list[str]]:
        name = self._first(_named(families.NORMS, "weight"))
        bare = families.NORM_WITHOUT_GAIN.get(self.model_type or "")
        if name is None and bare is None:
            return None, []
        gain = None if name is None else self._vector(name, width, paths)
        if gain is not None and self.model_type in families.GAIN_PLUS_ONE:
            gain = 1 + gain
        bias_name = None if name is None else self._first((name.removesuffix("weight") + "bias",))
        bias = None if bias_name is None else self._vector(bias_name, width, paths)
        rms = any(key in self.config for key in families.RMS_EPS_KEYS)
        is_layer = bias is not None or (self.model_type in families.LAYER_NORM and not rms)
        kind: Literal["rms", "layer"] = "layer" if is_layer else "rms"
        keys = (families.RMS_EPS_KEYS, families.LAYER_EPS_KEYS)
        found = self._number((*keys[is_layer], *keys[not is_layer]), positive=True)
        if found is not None:
            return FoundNorm(kind, gain, bias, found[1]), []
        usual = families.USUAL_EPS[kind]
        where = CONFIG if self.has_config else "the file"
        return FoundNorm(kind, gain, bias, usual), [f"no epsilon of the final norm in {where}: {usual:g} assumed"]

    def _scale(self, width: int, tied: bool) -> tuple[float | None, list[str]]:
        multiplies, divides = self._number(families.MULTIPLIER_KEYS), self._number(families.DIVISOR_KEYS)
        if divides is not None and self.model_type in families.LOGITS_SCALING_MULTIPLIES:
            multiplies, divides = divides, None
        if multiplies is not None or divides is not None:
            key, value = multiplies or divides or ("", 1.0)
            scale = scale_or_none(self.config_path, key, value, divides=multiplies is None)
            return scale, self._said(scale, key)
        if (base := self._number(("dim_model_base",), positive=True)) is not None:  # MiniCPM: h / (width / base)
            scale = scale_or_none(self.config_path, base[0], base[1] / width, divides=False)
            return scale, self._said(scale, base[0])
        if (alpha := self._number(("mup_output_alpha",))) and (factor := self._number(("mup_width_scale",))):  # Jais
            scale = scale_or_none(self.config_path, alpha[0], alpha[1] * factor[1], divides=False)
            return scale, self._said(scale, f"{alpha[0]} * {factor[0]}")
        if tied and self.model_type in families.TIED_SCALED_BY_WIDTH:
            return width**-0.5, self._said(width**-0.5, "tied head of a T5")
        scale = families.SCALE_WITHOUT_KEY.get(self.model_type or "")
        return scale, self._said(scale, f"the usual for {self.model_type}, not in {CONFIG}")

    @staticmethod
    def _said(scale: float | None, why: str) -> list[str]:
        return [] if scale is None else [f"logits multiplied by {scale:g} ({why})"]

    def _softcap(self, scale: float | None) -> tuple[float | None, list[str]]:
        found = self._number(families.SOFTCAP_KEYS, positive=True)
        said: list[str] = []
        # A key that is there and null is the model's own "none".
        if found is None and not any(key in self.config for key in families.SOFTCAP_KEYS):
            usual = families.SOFTCAP_WITHOUT_KEY.get(self.model_type or "")
            if usual is not None:
                found = (families.SOFTCAP_KEYS[0], usual)
                said = [f"no softcap in {CONFIG}: {usual:g}, usual for {self.model_type}, assumed"]
        if found is None or not found[1]:
            return None, said
        # Every known model with both (Grok, Muse Glimmer) scales before it caps.
        return softcap_of_scaled(self.config_path, *found, scale), said


def _named(stems: Iterable[str], parameter: str) -> Iterable[str]:
    return (f"{stem}.{parameter}" for stem in stems)
