"""The head of a GGUF file, or of one in several parts.

Knows: the names of its tensors and keys. Refuses to know: the layout of the file (`gguf`), storages (`stored_matrix`).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from . import families
from .found_head import FoundHead, FoundNorm, finite_number, scale_or_none, softcap_of_scaled
from .gguf import GgufFile
from .mapped import malformed, shown
from .stored_matrix import Progress, matrix_from_gguf, vector_from_gguf

PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


def find_gguf_head(path: str | os.PathLike[str], *, progress: Progress | None = None) -> FoundHead:
    """Find the output head of a GGUF model.

    Parameters
    ----------
    path : path
        The file; of a model in parts (``-00001-of-00003.gguf``) any part, with the others beside it.
    progress : callable, optional
        ``progress(done, total)`` in rows, while a type is dequantised that is not computed from directly.

    Returns
    -------
    FoundHead
        The matrix is ``output.weight``, or the tied ``token_embd.weight``.

    Raises
    ------
    OSError
        What opening the file says.
    ValueError
        No GGUF file, a damaged one, or one without a head that can be used; the message names file and field.
    ImportError
        The head is of a type that the ``gguf`` package dequantises, and the package is missing.

    Notes
    -----
    Memory: F32, F16, BF16 and Q8_0 stay in the file. Other types become float32, V * D * 4 bytes. Norm and bias are
    copies.

    A file that is cut short while the head is in use ends the process, as with any mapped file.
    """
    model = _Model(Path(path))
    return model.head(progress)


class _Model:
    """The parts of one model; the first has the metadata."""

    def __init__(self, path: Path) -> None:
        self.files = [GgufFile(part) for part in _parts(path)]
        self.path = self.files[0].path
        self.architecture = self._architecture()
        self.where: dict[str, GgufFile] = {}
        for file in self.files:
            for name in file.tensors:
                if name in self.where:
                    raise malformed(file.path, name, "one tensor of that name in all parts", "a second one")
                self.where[name] = file

    def _architecture(self) -> str:
        name, parts = self.files[0].scalar("general.architecture"), self.files[0].scalar("split.count")
        if not isinstance(name, str):
            got = "none" if name is None else shown(repr(name))
            raise malformed(self.path, "general.architecture", "a text", got)
        if len(self.files) == 1 and parts not in (None, 0, 1):
            expected = "one file, or a name that ends in -00001-of-00002.gguf"
            raise malformed(self.path, "split.count", expected, f"part of {shown(repr(parts))}")
        return name

    def head(self, progress: Progress | None) -> FoundHead:
        name = next((n for n in ("output.weight", "token_embd.weight") if n in self.where), None)
        if name is None:
            some = ", ".join(map(shown, list(self.where)[:3])) or "no tensors"
            raise malformed(self.path, "output.weight", "that tensor or token_embd.weight", some)
        if "output.scale" in self.where:  # of NVFP4, a second scale beside those in the blocks
            raise malformed(self.path, "output.scale", "no separate scale of the head", "one")
        weight, notes = matrix_from_gguf(self.where[name], name, progress)
        rows, width = weight.shape
        if name == "token_embd.weight":
            notes = ("tied: the head is token_embd.weight", *notes)
        bias = vector_from_gguf(self.where["output.bias"], "output.bias", rows) if "output.bias" in self.where else None
        norm, assumed = self._norm(width)
        scale, said = self._scale(width)
        softcap, capped = self._softcap(scale)
        paths = tuple(file.path for file in self.files)
        return FoundHead(
            paths, self.architecture, weight, bias, norm, softcap, scale, (*notes, *assumed, *said, *capped)
        )

    def _number(self, name: str, *, positive: bool = False) -> float | None:
        key = f"{self.architecture}.{name}"
        value = self.files[0].scalar(key)
        return None if value is None else finite_number(self.path, key, value, positive=positive)

    def _norm(self, width: int) -> tuple[FoundNorm | None, tuple[str, ...]]:
        names = families.GGUF_NORM_NAMES.get(self.architecture, families.GGUF_USUAL_NORM_NAMES)
        name = next((n for n in names if f"{n}.weight" in self.where), None)
        bare = families.GGUF_NORM_WITHOUT_GAIN.get(self.architecture)
        if name is None and bare is None:
            return None, ()
        gain = None if name is None else self._vector(f"{name}.weight", width)
        bias = self._vector(f"{name}.bias", width) if name and f"{name}.bias" in self.where else None
        rms = self._number("attention.layer_norm_rms_epsilon", positive=True)
        layer = self._number("attention.layer_norm_epsilon", positive=True)
        # Which epsilon a file has says which norm it is (a 0 stands for none); only a LayerNorm has a bias.
        is_layer = bias is not None or bare == "layer" or (not rms and layer is not None)
        kind: Literal["rms", "layer"] = "layer" if is_layer else "rms"
        eps = layer if is_layer else rms
        if eps is not None:
            return FoundNorm(kind, gain, bias, eps), ()
        usual = families.USUAL_EPS[kind]
        return FoundNorm(kind, gain, bias, usual), (f"no epsilon of the final norm in the file: {usual:g} assumed",)

    def _vector(self, name: str, length: int) -> NDArray[np.float32]:
        return vector_from_gguf(self.where[name], name, length)

    def _scale(self, width: int) -> tuple[float | None, tuple[str, ...]]:
        key = f"{self.architecture}.logit_scale"
        value = self._number("logit_scale")
        divides = self.architecture.startswith(families.GGUF_DIVIDES)
        if value is not None:
            scale = scale_or_none(self.path, key, value, divides=divides)
            said = () if scale is None else (f"logits {'divided' if divides else 'multiplied'} by {value:g} ({key})",)
            return scale, said
        base = families.GGUF_BASE_WIDTH_WITHOUT_KEY.get(self.architecture)
        scale = families.GGUF_SCALE_WITHOUT_KEY.get(self.architecture) if base is None else base / width
        return scale, () if scale is None else (f"no {key} in the file: logits multiplied by {scale:g}",)

    def _softcap(self, scale: float | None) -> tuple[float | None, tuple[str, ...]]:
        key = f"{self.architecture}.final_logit_softcapping"
        cap = self._number("final_logit_softcapping", positive=True)
        said: tuple[str, ...] = ()
        if cap is None and (cap := families.GGUF_SOFTCAP_WITHOUT_KEY.get(self.architecture)) is not None:
            said = (f"no {key} in the file: {cap:g} assumed",)
        # llama.cpp scales first wherever a model has both.
        return softcap_of_scaled(self.path, key, cap, scale) if cap else None, said


def _parts(path: Path) -> list[Path]:
    """Return all parts of a model, the first first; each is opened, so each must be there."""
    named = PART.search(path.name)
    if named is None or int(named[2]) < 2:
        return [path]
    stem = path.name[: named.start()]
    return [path.with_name(f"{stem}-{i:05d}-of-{named[2]}.gguf") for i in range(1, int(named[2]) + 1)]
