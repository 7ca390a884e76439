"""Drafted tokens of sequences as rows for a sampler: what `verify` and its reference have in common.

Knows which seed, position, parameters and earlier ids each position of a sequence has, and how tokens are handed back.
Refuses to know distributions: how a draft is accepted is for others to say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _reference_checks as checks
from ._reference_allowed import integers, is_list_of_rows, range_text
from ._reference_sample_checks import LARGEST_64_BITS, Rows, check_shape, positions_of, seeds_of
from ._verified import Verified

# Parameters that a sequence has one of, besides seed and position.
PER_SEQUENCE = (
    *("temperature", "top_k", "top_p", "min_p", "typical_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
)
# What goes to the sampler as it is.
WHOLE = ("order", "logprobs", "top_n")


class Drafts(NamedTuple):
    """The drafts (S, K) of S sequences, whose leading shape may have any number of axes; seeds and first positions."""

    shape: tuple[int, ...]
    ids: NDArray[np.int64]
    seed: NDArray[np.uint64]
    position: NDArray[np.uint64]
    name: str
    n_ids: int

    @property
    def sequences(self) -> Rows:
        return Rows(self.shape, self.name, self.n_ids, "sequence")

    def keywords(self, given: Mapping[str, Any], length: int) -> dict[str, Any]:
        """Return the keywords of a sampler whose rows are the first positions, so many, of every sequence."""
        rows = (*self.shape, length)
        found = {name: given[name] for name in WHOLE}
        for name in PER_SEQUENCE:
            found[name] = self._spread(name, given[name], rows)
        found["seed"] = self.row_seed(length).reshape(rows)
        found["position"] = self.row_position(length).reshape(rows)
        found["logit_bias"] = self._repeated(given["logit_bias"], length)
        for name in ("history", "output"):
            found[name] = self._extended(name, given[name], length)
        full = self.ids.shape[1] + 1
        found["mask"] = self._masks(given["mask"], length, full)
        found["allowed_ids"] = self._lists(given["allowed_ids"], length, full)
        return found

    def row_seed(self, length: int) -> NDArray[np.uint64]:
        """Return the seed of each row; it is the sequence's."""
        return np.repeat(self.seed, length)

    def row_position(self, length: int) -> NDArray[np.uint64]:
        """Return the position of each row, counted on from the sequence's."""
        return np.add.outer(self.position, np.arange(length, dtype=np.uint64)).reshape(-1)

    def _spread(self, argument: str, value: Any, rows: tuple[int, ...]) -> Any:
        if isinstance(value, (int, float, str, bytes)) or value is None:
            return value
        given = checks.read(argument, value)
        check_shape(argument, given.array.shape, self.sequences)
        array = checks.widen(given) if given.dtype == "bfloat16" else given.array
        return value if array.ndim == 0 else np.broadcast_to(array[..., None], rows)

    def _repeated(self, value: Any, length: int) -> Any:
        if not isinstance(value, (list, tuple)):
            return value
        self._check_items("logit_bias", len(value))
        return [item for item in value for _ in range(length)]

    def _extended(self, argument: str, value: Any, length: int) -> Any:
        """Return the ids so far of each row: those of the sequence, and the drafts before the row."""
        if value is None:
            return None
        n = len(self.ids)
        items = list(value) if is_list_of_rows(value) or (n == 0 and np.size(value) == 0) else [value]
        self._check_items(argument, len(items))
        return [
            _with_drafts(argument, item, drafts[:j])
            for item, drafts in zip(items, self.ids, strict=True)
            for j in range(length)
        ]

    def _masks(self, value: Any, length: int, full: int) -> Any:
        """Return the masks of the rows out of those of all K + 1 positions, if there is one for each."""
        if value is None or length == full:
            return value
        array = checks.read("mask", value).array
        return array[..., :length, :] if array.shape[:-1] == (*self.shape, full) else array

    def _lists(self, value: Any, length: int, full: int) -> Any:
        if length == full or not is_list_of_rows(value) or len(value) != len(self.ids) * full:
            return value
        return [item for row, item in enumerate(value) if row % full < length]

    def _check_items(self, argument: str, items: int) -> None:
        n = len(self.ids)
        if items != n:
            raise ValueError(f"{argument}: expected a list of {n}, one for each sequence of {self.name}, got {items}")

    def verified(
        self,
        tokens: NDArray[np.int64],
        accepted: NDArray[np.int64],
        logprob: NDArray[Any] | None,
        top_ids: NDArray[np.int64] | None,
        top_logprobs: NDArray[Any] | None,
    ) -> Verified:
        """Return the result from tokens (S, K + 1), accepted (S,) and the rows' other answers, all blank after the
        token that follows the accepted ones.
        """
        n, length = tokens.shape
        is_blank = np.arange(length) > accepted[:, None]
        shape = (*self.shape, length)

        def blanked(values: NDArray[Any] | None, blank: float) -> Any:
            if values is None:
                return None
            flat = values.reshape(n, length, *values.shape[len(shape) :])
            where = is_blank.reshape(n, length, *[1] * (flat.ndim - 2))
            return np.where(where, flat.dtype.type(blank), flat).reshape(*shape, *flat.shape[2:])

        return Verified(
            blanked(tokens.reshape(shape), -1),
            accepted.reshape(self.shape),
            blanked(logprob, 0.0),
            blanked(top_ids, -1),
            blanked(top_logprobs, -np.inf),
        )


def drafts_of(hidden_shape: tuple[int, ...], draft_tokens: Any, n_ids: int, seed: Any, position: Any) -> Drafts:
    """Read drafted tokens beside hidden states of a shape (..., K + 1, D)."""
    name = f"hidden of shape {hidden_shape}"
    if len(hidden_shape) < 2 or hidden_shape[-2] == 0:
        raise ValueError(f"hidden: expected shape (..., K + 1, D) with K of at least 0, got shape {hidden_shape}")
    shape, k = hidden_shape[:-2], hidden_shape[-2] - 1
    ids = integers("draft_tokens", draft_tokens)
    if k == 0 and ids.size == 0:
        ids = ids.reshape(*shape, 0)
    if ids.shape != (*shape, k):
        raise ValueError(
            f"draft_tokens: expected shape {(*shape, k)}, a token less than {name} has positions, got shape {ids.shape}"
        )
    wrong = np.argwhere((ids < 0) | (ids >= n_ids))
    if wrong.size:
        place = tuple(int(i) for i in wrong[0])
        raise IndexError(f"draft_tokens: expected {range_text(n_ids)}, got {int(ids[place])} at position {place}")
    sequences = Rows(shape, name, n_ids, "sequence")
    return Drafts(
        shape,
        ids.reshape(math.prod(shape), k).astype(np.int64),
        seeds_of(seed, sequences),
        positions_of(position, sequences, LARGEST_64_BITS - k),
        name,
        n_ids,
    )


def _with_drafts(argument: str, item: Any, drafts: NDArray[np.int64]) -> Any:
    """Return ids, or how often each is there, with some more; what is neither is left for the sampler to refuse."""
    if item is None:
        return drafts
    if isinstance(item, Mapping):
        counts = dict(item)
        for draft in drafts.tolist():
            counts[draft] = counts.get(draft, 0) + 1
        return counts
    given = checks.read(argument, item)
    is_ids = given.array.ndim == 1 and given.array.dtype.kind in "iu" and given.dtype != "bfloat16"
    if given.is_sequence and given.array.shape == (0,):  # NumPy takes it for float64
        return drafts
    if not is_ids or not drafts.size or (given.array.size and given.array.max() > np.iinfo(np.int64).max):
        return item
    return np.concatenate([given.array.astype(np.int64), drafts])


def accepted_alike(draws: NDArray[np.int64], drafts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each sequence how many of its first drafts (S, K) are the very draws (S, K + 1)."""
    alike = draws[:, : drafts.shape[1]] == drafts
    accepted: NDArray[np.int64] = np.cumprod(alike, axis=-1, dtype=np.int64).sum(axis=-1, dtype=np.int64)
    return accepted
