"""``LMHead``: a head that is called many times, prepared once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np

from . import _core
from ._frozen import Frozen
from ._head_norm import LayerNorm, RMSNorm
from ._linear_cross_entropy import linear_cross_entropy
from ._logits import logits
from ._sample import head_sample
from ._sample_result import Sample
from ._scores import logits_scores
from ._token_scores import TokenScores
from ._top_k import ScreenedTopK, TopK
from ._typing import AllowedIds, Array, Result, Weight
from ._verified import Verified
from ._verify import verify

if TYPE_CHECKING:
    from ._model_files import FoundHead

Progress: TypeAlias = Callable[[int, int], None]

# What has a screen: not float64, whose logits are no float32, and not integers, which are as small as it.
SCREENED = ("float32", "float16", "bfloat16")
SCREENED_TEXT = f"float32, float16 or bfloat16 of D <= {_core.SCREEN_WIDTH} for a screen"


class LMHead(Frozen):
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
        Whether `topk`, and `sample` where it can, read an int8 copy of the weight first, and of the weight itself only
        the rows that can be among the best: the same result to the bit from a quarter of the bytes (half of them for a
        weight of halves). ``"auto"`` makes one for a float32, float16 or bfloat16 weight that is larger than the
        last-level cache.
    prepare : bool
        Whether to copy the weight to memory of huge pages, which is read up to half as fast again as a mapped file or
        another library's tensor. Without the copy the weight is read where it lies: it must not be changed while the
        head lives (with a screen, a change makes these two wrong; without one, calls see it).
    threads : int, optional
        Threads of the preparation; by default `get_num_threads`. Calls take their own.

    Attributes
    ----------
    shape : tuple of int
        (V, D).
    dtype : str
        How the weight is stored: "float32", "float16", "bfloat16", "float64", "int8" or "int4".
    memory : mapping of str to int
        Bytes that the head has allocated, by what they are for; 0 for a weight that is read where it lies.
    screen : str or None
        "int8" where `topk` and `sample` are screened.
    norm, bias, softcap, scale
        As given.
    source : str or None
        The file it came from.
    notes : tuple of str
        What was assumed or converted on the way from a file.

    Raises
    ------
    ValueError, TypeError
        As `logits`; ``screen="int8"`` for a weight of float64, a quantised one, or one of D > 131072.

    See Also
    --------
    logits, logits_topk, logits_scores, linear_cross_entropy : the same without preparation.

    Notes
    -----
    Accumulation: every method returns the bits of the function it stands for, screened or not.

    Memory: the copy has the weight's bytes, the screen V (D + 12) bytes, D rounded up to 4 and V to 16. The arrays that
    were given are kept alive where they are not copied, and can go otherwise. A screened call takes scratch of 8 V
    bytes for each of up to 8 hidden rows at a time, at most 32 MiB or what one row needs.

    Threads: methods may be called from any number of threads.
    """

    __slots__ = (
        "_screen",
        "_weight",
        "bias",
        "dtype",
        "memory",
        "norm",
        "notes",
        "scale",
        "screen",
        "shape",
        "softcap",
        "source",
    )
    _weight: Any
    _screen: _core.Screen | None
    shape: tuple[int, int]
    dtype: str
    memory: Mapping[str, int]
    bias: Result | None
    norm: RMSNorm | LayerNorm | None
    softcap: float | None
    scale: float | None
    screen: Literal["int8"] | None
    source: str | None
    notes: tuple[str, ...]

    def __init__(
        self,
        weight: Weight,
        bias: Array | None = None,
        *,
        norm: RMSNorm | LayerNorm | None = None,
        softcap: float | None = None,
        scale: float | None = None,
        screen: Literal["auto", "int8"] | None = "auto",
        prepare: bool = True,
        threads: int | None = None,
    ) -> None:
        if hasattr(self, "shape"):
            raise AttributeError("LMHead is immutable: it cannot be made again; make another")
        vocabulary, width, dtype, n_bytes = _core.weight_facts(weight)
        _check(screen, norm, prepare)
        screenable = dtype in SCREENED and width <= _core.SCREEN_WIDTH
        kept = None if bias is None else _core.kept_vector("bias", bias, dtype == "float64")
        no_states = np.zeros((0, width), np.float64 if dtype == "float64" else np.float32)
        # Every other option is checked by the function that takes it, before anything is prepared.
        logits(
            no_states if norm is None else norm(no_states),
            weight,
            bias=kept,
            softcap=softcap,
            scale=scale,
            threads=threads,
        )
        if screen == "auto":
            screen = "int8" if screenable and n_bytes > _core.last_level_cache_bytes() else None
        if screen == "int8" and not screenable:
            what = f"{dtype} of D = {width}"
            raise TypeError(f"weight: expected {SCREENED_TEXT}, got {what}; take screen=None")
        stored = _core.prepared_copy(weight, threads) if prepare else weight
        certified = None if screen is None else _core.Screen(stored, threads)
        for name, value in {
            "_weight": stored,
            "_screen": certified,
            "shape": (vocabulary, width),
            "dtype": dtype,
            "memory": MappingProxyType(
                {
                    "weight": n_bytes if prepare else 0,
                    "screen": 0 if certified is None else certified.nbytes,
                    "bias": 0 if kept is None else kept.nbytes,
                }
            ),
            "bias": kept,
            "norm": norm,
            "softcap": None if softcap is None else float(softcap),
            "scale": None if scale is None else float(scale),
            "screen": screen,
            "source": None,
            "notes": (),
        }.items():
            object.__setattr__(self, name, value)

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
            A file of GGUF version 2 or 3, little-endian. It is mapped: with ``prepare=False`` it must stay as it is
            while the head lives.
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
            F32, F16, BF16 and Q8_0 weights are computed as they are stored. Others are converted to float32 by the
            package ``gguf``, and `notes` says so.

        Raises
        ------
        ValueError
            A damaged file, or one without a head; the message names file and field. Nothing outside the file is read.
        OSError
            The file cannot be opened.
        ImportError
            A weight that needs the package ``gguf``, which is not installed.
        """
        from ._model_files import find_gguf_head

        found = find_gguf_head(path, progress=progress)
        return cls._of(found, norm=norm, screen=screen, prepare=prepare, threads=threads)

    @classmethod
    def from_safetensors(
        cls,
        path: str | PathLike[str],
        *,
        norm: bool = False,
        screen: Literal["auto", "int8"] | None = "auto",
        prepare: bool = True,
        threads: int | None = None,
    ) -> Self:
        """The head of a safetensors file or a model's folder: ``lm_head.weight``, or the tied embedding.

        Parameters
        ----------
        path : path_like
            A ``.safetensors`` file, the ``.index.json`` of several, or the folder with either. ``config.json`` beside
            it says softcap, scale and the norm's eps; what had to be assumed without it is in `notes`.
        norm, screen, prepare, threads
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
        from ._model_files import find_safetensors_head

        found = find_safetensors_head(path)
        return cls._of(found, norm=norm, screen=screen, prepare=prepare, threads=threads)

    @classmethod
    def _of(cls, found: FoundHead, *, norm: bool, **options: Any) -> Self:
        """Prepare what was found in a file."""
        from ._found_operands import norm_of, weight_of

        if norm and found.norm is None:
            raise ValueError(f"{found.paths[0]}: norm: expected the model's final norm in the file, got none")
        head = cls(
            weight_of(found.weight),
            found.bias,
            norm=norm_of(found.norm) if norm and found.norm is not None else None,
            softcap=found.softcap,
            scale=found.scale,
            **options,
        )
        object.__setattr__(head, "source", str(found.paths[0]))
        object.__setattr__(head, "notes", found.notes)
        return head

    def logits(
        self,
        hidden: Array,
        *,
        mask: Array | None = None,
        allowed_ids: AllowedIds | None = None,
        out: Result | None = None,
        threads: int | None = None,
    ) -> Result:
        """`logits` of this head, (..., V)."""
        states = self._normed(hidden, threads)
        return logits(
            states, self._weight, **self._options(), mask=mask, allowed_ids=allowed_ids, out=out, threads=threads
        )

    def topk(
        self,
        hidden: Array,
        k: int,
        *,
        mask: Array | None = None,
        allowed_ids: AllowedIds | None = None,
        vocab_ids: Array | None = None,
        threads: int | None = None,
    ) -> TopK:
        """`logits_topk` of this head: values and indices, (..., k) each.

        Returns
        -------
        TopK
            With a screen a `ScreenedTopK`, whose ``rescored`` (...) says how many rows of the weight were read for each
            hidden state; V where all of them were, the number of its allowed ids where these are not all.
        """
        states = self._normed(hidden, threads)
        allowed = mask, allowed_ids, vocab_ids
        if self._screen is None:
            return TopK(
                *_core.logits_topk(states, self._weight, k, self.bias, self.softcap, self.scale, *allowed, threads)
            )
        return ScreenedTopK(
            *_core.screened_topk(
                self._screen, states, self._weight, k, self.bias, self.softcap, self.scale, *allowed, threads
            )
        )

    def sample(self, hidden: Array, **options: Any) -> Sample:
        """`logits_sample` of this head, which brings weight, bias, softcap and scale; other options are its.

        Notes
        -----
        With a screen, ``logprobs=None`` and every row greedy, of ``1 <= top_k <= 64`` or with ``min_p`` as its first
        filter and no greater top_k, without a mask, biases and penalties, only the rows of the weight are read that can
        be among the best: the same tokens. A row of which ``min_p`` keeps more than 64 is drawn from all logits.
        """
        _check_brought(options)
        return head_sample(
            self._normed(hidden, options.get("threads")), self._weight, self._screen, **self._options(), **options
        )

    def verify(self, hidden: Array, draft_tokens: Array, **options: Any) -> Verified:
        """`verify` of this head, the target's, which brings weight, bias, softcap and scale, without its screen."""
        _check_brought(options)
        states = self._normed(hidden, options.get("threads"))
        return verify(states, self._weight, draft_tokens, **self._options(), **options)

    def gather(self, ids: Array) -> Result:
        """Rows of the weight by token id, (..., D): with a tied head, the embeddings of these tokens.

        Parameters
        ----------
        ids : array_like, shape (...)
            0 to V - 1, of any integer dtype.

        Returns
        -------
        ndarray, shape (..., D)
            float32 (float64 for a float64 head), exactly what the weight holds.

        Raises
        ------
        IndexError
            An id out of range (a negative one too); it names its position.
        TypeError
            Ids that are no integers.
        """
        return _core.gather(self._weight, ids)

    def cross_entropy(self, hidden: Array, targets: Array, **options: Any) -> Any:
        """`linear_cross_entropy` of this head, which brings weight, bias, softcap and scale; other options are its."""
        _check_brought(options)
        states = self._normed(hidden, options.get("threads"))
        return linear_cross_entropy(states, self._weight, targets, **self._options(), **options)

    def scores(self, hidden: Array, targets: Array | None = None, **options: Any) -> TokenScores:
        """`logits_scores` of this head, which brings weight, bias, softcap and scale; other options are its."""
        _check_brought(options)
        states = self._normed(hidden, options.get("threads"))
        return logits_scores(states, self._weight, targets, **self._options(), **options)

    def _normed(self, hidden: Array, threads: int | None) -> Array:
        if self.norm is None:
            return hidden
        if isinstance(hidden, list | tuple):  # takes the dtype of what is beside it, which the norm does not see
            hidden = _numbers(hidden, "float64" if self.dtype == "float64" else "float32")
        return self.norm(hidden, threads=threads)

    def _options(self) -> dict[str, Any]:
        return {"bias": self.bias, "softcap": self.softcap, "scale": self.scale}

    def __repr__(self) -> str:
        vocabulary, width = self.shape
        given = ((name, getattr(self, name)) for name in ("norm", "softcap", "scale", "screen"))
        parts = [f"{name}={value!r}" for name, value in given if value is not None]
        kept = sum(self.memory.values()) / 2**20
        return f"LMHead({', '.join([f'{vocabulary} x {width} {self.dtype}', *parts, f'{kept:.1f} MiB kept'])})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("LMHead: expected to be made where it is used, got an attempt to pickle or copy it")


def _numbers(sequence: Array, dtype: str) -> Array:
    """Give a sequence of numbers a dtype; anything else is left to those who refuse it."""
    try:
        array = np.asarray(sequence)
    except ValueError:
        return sequence
    return array.astype(dtype) if array.dtype.kind in "fiu" else sequence


def _check_brought(options: Mapping[str, Any]) -> None:
    for name in ("weight", "bias", "softcap", "scale"):
        if name in options:
            raise TypeError(f"{name}: expected no such option, as the head brings it, got {options[name]!r}")


def _check(screen: object, norm: object, prepare: object) -> None:
    if screen is not None and not (isinstance(screen, str) and screen in ("auto", "int8")):
        raise ValueError(f"screen: expected 'auto', 'int8' or None, got {screen!r}")
    if norm is not None and not isinstance(norm, RMSNorm | LayerNorm):
        raise TypeError(f"norm: expected an RMSNorm, a LayerNorm or None, got {type(norm).__name__}")
    if not isinstance(prepare, bool | np.bool_):
        raise TypeError(f"prepare: expected True or False, got {prepare!r}")
