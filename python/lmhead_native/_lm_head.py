"""``LMHead``: a head that is called many times, prepared once."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np

from . import _core
from ._head_norm import LayerNorm, RMSNorm
from ._linear_cross_entropy import linear_cross_entropy
from ._logits import logits
from ._top_k import ScreenedTopK, TopK, logits_topk
from ._typing import Array, Result

if TYPE_CHECKING:
    from ._model_files import FoundHead

Progress: TypeAlias = Callable[[int, int], None]


class LMHead:
    """An output head, immutable, with what makes repeated calls fast: a copy in huge pages and an int8 screen.

    Parameters
    ----------
    weight : array_like or QuantizedWeight, shape (V, D)
        The head, as in `logits`.
    bias : array_like, shape (V,), optional
        As in `logits`; copied.
    norm : RMSNorm or LayerNorm, optional
        Applied to every hidden state that comes in, in float64 with one rounding to float32. Without it hidden states
        come after the model's final norm.
    softcap, scale : float, optional
        As in `logits`.
    screen : {"auto", "int8"} or None
        Whether `topk` reads an int8 copy of the weight first, and of the weight itself only the rows that can be among
        the best: the same result to the bit from a quarter of the bytes (half of them for a weight of halves).
        ``"auto"`` makes one for a float32, float16 or bfloat16 weight that is larger than the last-level cache.
    prepare : bool
        Whether to copy the weight to memory of huge pages, which is read up to half as fast again as a mapped file or
        another library's tensor. Without the copy the weight is read where it lies: it must not be changed while the
        head lives (with a screen, a change makes `topk` wrong; without one, calls see it).
    threads : int, optional
        Threads of the preparation; by default `get_num_threads`. Calls take their own.

    Attributes
    ----------
    shape : tuple of int
        (V, D).
    dtype : str
        How the weight is stored: "float32", "float16", "bfloat16", "float64" or a quantised form such as "Q8_0".
    memory : dict of str to int
        Bytes that the head keeps, by what they are for; 0 for a weight that is read where it lies.
    screen : str or None
        "int8" where `topk` is screened.
    norm, bias, softcap, scale
        As given.
    source : str or None
        The file it came from.
    notes : tuple of str
        What was assumed or converted on the way from a file.

    Raises
    ------
    ValueError, TypeError
        As `logits`; ``screen="int8"`` for a weight of float64 or a quantised one.

    See Also
    --------
    logits, logits_topk, linear_cross_entropy : the same without preparation.

    Notes
    -----
    Accumulation: every method returns the bits of the function it stands for, screened or not.

    Memory: the copy has the weight's bytes, the screen V (D + 12) bytes, D rounded up to 4 and V to 16. The arrays that
    were given are kept alive where they are not copied, and can go otherwise.

    Threads: methods may be called from any number of threads.
    """

    __slots__ = ("_weight", "bias", "dtype", "memory", "norm", "notes", "scale", "screen", "shape", "softcap", "source")
    shape: tuple[int, int]
    dtype: str
    memory: dict[str, int]
    bias: Result | None
    norm: RMSNorm | LayerNorm | None
    softcap: float | None
    scale: float | None
    screen: Literal["int8"] | None
    source: str | None
    notes: tuple[str, ...]

    def __init__(
        self,
        weight: Array,
        bias: Array | None = None,
        *,
        norm: RMSNorm | LayerNorm | None = None,
        softcap: float | None = None,
        scale: float | None = None,
        screen: Literal["auto", "int8"] | None = "auto",
        prepare: bool = True,
        threads: int | None = None,
    ) -> None:
        stored = _core.stored_weight(weight)
        _check_choice(screen)
        kept = None if bias is None else np.array(bias)
        if kept is not None:
            kept.setflags(write=False)
        vocabulary, width = stored.shape
        no_rows = np.zeros((0, width), np.float64 if stored.dtype == "float64" else np.float32)
        # Checks every option in the words of `logits`, before anything is prepared.
        logits(no_rows if norm is None else _normed(norm, no_rows), stored, bias=kept, softcap=softcap, scale=scale)
        if screen == "auto":
            pays = stored.screenable and stored.nbytes > _core.last_level_cache_bytes()
            screen = "int8" if pays else None
        if prepare:
            stored = _core.prepared_copy(stored, threads)
        certified = None if screen is None else _core.Screen(stored, threads)
        self._set(
            _weight=stored,
            _screen=certified,
            shape=(vocabulary, width),
            dtype=stored.dtype,
            memory={
                "weight": stored.nbytes if prepare else 0,
                "screen": 0 if certified is None else certified.nbytes,
                "bias": 0 if kept is None else kept.nbytes,
            },
            bias=kept,
            norm=norm,
            softcap=softcap,
            scale=scale,
            screen=screen,
            source=None,
            notes=(),
        )

    @classmethod
    def from_gguf(
        cls,
        path: str | PathLike[str],
        *,
        norm: bool = False,
        screen: Literal["auto", "int8"] | None = "auto",
        prepare: bool = True,
        progress: Progress | None = None,
        threads: int | None = None,
    ) -> Self:
        """The head of a GGUF file: ``output.weight``, or the tied ``token_embd.weight``, with softcap and scale.

        Parameters
        ----------
        path : path_like
            A file of GGUF version 2 or 3, little-endian. It is mapped: with ``prepare=False`` it must stay as it is while
            the head lives.
        norm : bool
            Whether hidden states come before the model's final norm, which is then the head's `norm`. By default they
            come after it, as ``last_hidden_state`` of Hugging Face's models does.
        screen, prepare, threads
            As in `LMHead`.
        progress : callable, optional
            ``progress(done, total)`` is called while a weight is converted that is not computed in its own form.

        Returns
        -------
        LMHead
            F32, F16, BF16 and Q8_0 weights are computed as they are stored. Others are converted to float32 by the package
            ``gguf``, and `notes` says so.

        Raises
        ------
        ValueError
            A damaged file, or one without a head; the message names file and field. Nothing outside the file is read.
        OSError
            The file cannot be opened.
        ImportError
            A weight that needs the package ``gguf``, which is not installed.
        """
        from ._model_files import head_of_gguf

        found = head_of_gguf(path, progress=progress)
        return cls._from_file(found, norm=norm, screen=screen, prepare=prepare, threads=threads)

    @classmethod
    def from_safetensors(
        cls,
        path: str | PathLike[str],
        *,
        norm: bool = False,
        screen: Literal["auto", "int8"] | None = "auto",
        prepare: bool = True,
        progress: Progress | None = None,
        threads: int | None = None,
    ) -> Self:
        """The head of a safetensors file, or of a model's folder (sharded or not): ``lm_head.weight`` or the tied embedding.

        Parameters
        ----------
        path : path_like
            A ``.safetensors`` file, its ``.index.json``, or the folder with either. ``config.json`` beside it says softcap,
            scale and the norm's eps; what had to be assumed without it is in `notes`.
        norm, screen, prepare, progress, threads
            As in `from_gguf`.

        Returns
        -------
        LMHead
            F32, F16 and BF16 weights are computed as they are stored.

        Raises
        ------
        ValueError, OSError
            As `from_gguf`.
        """
        from ._model_files import head_of_safetensors

        found = head_of_safetensors(path, progress=progress)
        return cls._from_file(found, norm=norm, screen=screen, prepare=prepare, threads=threads)

    def logits(self, hidden: Array, *, out: Result | None = None, threads: int | None = None) -> Result:
        """`logits` of this head, (..., V)."""
        states = self._normed(hidden, threads)
        return logits(states, self._weight, **self._options(), out=out, threads=threads)

    def topk(self, hidden: Array, k: int, *, threads: int | None = None) -> TopK:
        """`logits_topk` of this head: values and indices, (..., k) each.

        Returns
        -------
        TopK
            With a screen a `ScreenedTopK`, whose ``rescored`` (...) says how many rows of the weight were read for each
            hidden state; V where all of them were.
        """
        states = self._normed(hidden, threads)
        if self._screen is None:
            return logits_topk(states, self._weight, k, **self._options(), threads=threads)
        found = _core.screened_topk(
            self._screen, states, self._weight, k, self.bias, self.softcap, self.scale, threads
        )
        return ScreenedTopK.of(*found)

    def cross_entropy(self, hidden: Array, targets: Array, **options: Any) -> Any:
        """`linear_cross_entropy` of this head, which brings weight, bias, softcap and scale; all other options are its."""
        states = self._normed(hidden, options.get("threads"))
        return linear_cross_entropy(states, self._weight, targets, **self._options(), **options)

    def __repr__(self) -> str:
        vocabulary, width = self.shape
        parts = [f"{vocabulary} x {width} {self.dtype}"]
        parts += [f"{name}={value!r}" for name in ("norm", "softcap", "scale", "screen") if (value := getattr(self, name))]
        parts += [f"{sum(self.memory.values()) / 1e6:.1f} MB kept"]
        return f"LMHead({', '.join(parts)})"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"LMHead is immutable: {name} cannot be set; make another")

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)
