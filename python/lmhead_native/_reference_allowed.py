"""Which ids of the vocabulary a row may use: bit masks, lists of ids, pruned vocabularies; part of
`lmhead_native.reference`.

Knows the three arguments, the sentences that refuse them, lists of ids in general, and how logits are spread over the
full vocabulary. Refuses to know what is done with the logits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _reference_checks as checks
from ._reference_checks import Given, Operand

MASK_BITS = 32

# A set of allowed ids has a bit for each.
MOST_IDS = 2**31


class Allowed(NamedTuple):
    """What n rows may use of the ids from 0 to n_ids - 1: ``has`` is (n, n_ids), perhaps a view of one row.

    ``vocab_ids`` are the ids of the weight's rows where it is pruned. ``inputs`` are the arguments that no output may
    overlap, ``argument`` the one that a row may blame for having nothing.
    """

    n_ids: int
    vocab_ids: NDArray[np.int64] | None
    has: NDArray[np.bool_]
    argument: str | None
    inputs: dict[str, Operand | None]

    def spread(self, z_nv: NDArray[Any], rows: NDArray[np.int64] | slice = slice(None)) -> NDArray[Any]:
        """Return the logits of some of the rows over the full ids, -inf where there is none or none is allowed."""
        full = z_nv
        if self.vocab_ids is not None:
            full = np.full((len(z_nv), self.n_ids), -np.inf, z_nv.dtype)
            full[:, self.vocab_ids] = z_nv
        return np.where(self.has[rows], full, z_nv.dtype.type(-np.inf))


def allowed(mask: Any, allowed_ids: Any, vocab_ids: Any, shape: tuple[int, ...], vocabulary: int, name: str) -> Allowed:
    """Read the arguments beside an operand called `name` with rows of a shape, and V rows of a weight or logits."""
    n, n_ids = math.prod(shape), vocabulary
    exists, pruned = np.ones(vocabulary, bool), None
    if vocab_ids is not None:
        pruned = _vocab_ids(vocab_ids, vocabulary)
        n_ids = int(pruned[-1]) + 1 if vocabulary else 0
        exists = np.zeros(n_ids, bool)
        exists[pruned] = True
    inputs: dict[str, Operand | None] = {}
    argument = None
    has = np.broadcast_to(exists, (n, n_ids))
    if mask is not None:
        given = _mask(mask, shape, n_ids, name)
        inputs["mask"], argument = Operand(np.zeros(0), given.dtype, given.array), "mask"
        has = has & _bits(given.array, shape, n_ids)
    if allowed_ids is not None:
        if mask is not None:
            raise ValueError("allowed_ids: expected None beside a mask, got both; pass one of them")
        argument = "allowed_ids"
        lists = id_lists("allowed_ids", allowed_ids, shape, n_ids, name, True)
        listed = np.zeros((len(lists), n_ids), bool)
        for row, ids in zip(listed, lists, strict=True):
            row[list(ids)] = True
        has = np.broadcast_to(has & listed, (n, n_ids))
    return Allowed(n_ids, pruned, has, argument, inputs)


def _vocab_ids(value: Any, vocabulary: int) -> NDArray[np.int64]:
    ids = integers("vocab_ids", value)
    if ids.shape != (vocabulary,):
        raise ValueError(
            f"vocab_ids: expected shape (V,) with V = {vocabulary} as the weight has rows, got shape {ids.shape}"
        )
    numbers = [int(i) for i in ids]
    for position, number in enumerate(numbers):
        before = numbers[position - 1] if position else -1
        if number >= MOST_IDS:
            raise ValueError(f"vocab_ids: expected ids from 0 to {MOST_IDS - 1}, got {number} at position {position}")
        if number <= before:
            fact = f"{number} after {before}" if position else f"{number}"
            raise ValueError(
                f"vocab_ids: expected strictly ascending ids of at least 0, got {fact} at position {position}"
            )
    return ids.astype(np.int64)


def _mask(value: Any, shape: tuple[int, ...], n_ids: int, name: str) -> Given:
    given = checks.read("mask", value)
    array = given.array
    if isinstance(value, (list, tuple)) and array.dtype.kind in "iu":
        for number in array[(array < -(2**31)) | (array >= 2**32)]:
            raise ValueError(f"mask: expected words of 32 bits, from -2^31 to 2^32 - 1, got {number}")
        array = array.astype(np.uint32)
        given = given._replace(array=array, dtype="uint32")
    if given.dtype not in ("int32", "uint32"):
        raise TypeError(f"mask: expected dtype int32 or uint32, got {given.dtype}; 32 ids go into a word of bits")
    words = -(-n_ids // MASK_BITS)
    if array.ndim == 0 or array.shape[-1] < words or not _broadcasts(array.shape[:-1], shape):
        wanted = f"({words},) or {(*shape, words)}" if shape else f"({words},)"
        raise ValueError(
            f"mask: expected shape {wanted} for V = {n_ids} and the rows of {name}, got shape {array.shape}"
        )
    return given


def _broadcasts(rows: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(rows, shape) == shape
    except ValueError:
        return False


def _bits(mask: NDArray[Any], shape: tuple[int, ...], n_ids: int) -> NDArray[np.bool_]:
    """Return a row of bits for each of a shape: the least significant bit first, what is past the end left out."""
    words = np.broadcast_to(mask, (*shape, mask.shape[-1])).reshape(math.prod(shape), mask.shape[-1]).astype(np.int64)
    ids = np.arange(n_ids)
    found: NDArray[np.bool_] = (words[:, ids // MASK_BITS] >> (ids % MASK_BITS)) & 1 != 0
    return found


# ---- lists of ids --------------------------------------------------------------------------------------------------


def integers(argument: str, value: Any) -> NDArray[Any]:
    """Read an array of any integer dtype; a sequence of nothing is one, too."""
    given = checks.read(argument, value)
    if given.is_sequence and given.array.size == 0:  # NumPy takes it for float64
        return given.array.astype(np.int64)
    if given.dtype == "bfloat16" or given.array.dtype.kind not in "iu":
        raise TypeError(f"{argument}: expected an integer dtype, got {given.dtype} of shape {given.array.shape}")
    return given.array


def row_text(row: int, shape: tuple[int, ...]) -> str:
    """Return what a row is called: its number, or its place where there are several leading axes."""
    return str(row if len(shape) < 2 else tuple(int(i) for i in np.unravel_index(row, shape)))


def with_axis(shape: tuple[int, ...], axis: str) -> str:
    """Return a shape in words, with an axis at its end that has a letter for its size."""
    return f"({', '.join([*map(str, shape), axis])})" if shape else f"({axis},)"


def range_text(n_ids: int) -> str:
    """Return what an id must be."""
    return f"an id from 0 to V - 1 = {n_ids - 1}" if n_ids else "no id, as V = 0"


def is_list_of_rows(value: Any) -> bool:
    """Whether a value has an item for each row, not an id for each of its items."""
    return isinstance(value, (list, tuple)) and any(
        item is None or isinstance(item, (*checks.SEQUENCES, Mapping)) or getattr(item, "ndim", 0) > 0 for item in value
    )


def id_lists(
    argument: str, value: Any, shape: tuple[int, ...], n_ids: int, name: str, one_for_all: bool
) -> list[dict[int, int]]:
    """Read ids, with how often each is there: one list for all rows or, where there is one row, for that; or a list of
    them, one for each row.
    """
    n = math.prod(shape)
    if not one_for_all and getattr(value, "ndim", 0) == 2:  # as many ids for every row
        value = list(value)
    if not is_list_of_rows(value):
        if one_for_all or n == 1 or (isinstance(value, (list, tuple)) and len(value) == n == 0):
            return [_counted(argument, value, n_ids, "")][: 1 if one_for_all else n]
        raise ValueError(
            f"{argument}: expected a list of {n}, one for each row of {name}, got {checks.type_name(value)} for all"
        )
    if len(value) != n:
        raise ValueError(f"{argument}: expected a list of {n}, one for each row of {name}, got {len(value)}")
    return [_counted(argument, item, n_ids, f" in row {row_text(row, shape)}") for row, item in enumerate(value)]


def _counted(argument: str, value: Any, n_ids: int, where: str) -> dict[int, int]:
    """Return how often each id is there."""
    counts: dict[int, int] = {}
    if value is None:
        return counts
    if isinstance(value, Mapping):
        for key, number in value.items():
            count = checks.integer(argument, number, "of at least 0 as count of an id", lambda c: c >= 0)
            counts[id_of(argument, key, n_ids, where)] = count
        return counts
    ids = integers(argument, value)
    if ids.ndim != 1:
        raise ValueError(f"{argument}: expected ids of one dimension, got shape {ids.shape}{where}")
    for position, number in enumerate(ids):
        if not 0 <= number < n_ids:
            raise IndexError(
                f"{argument}: expected {range_text(n_ids)}, got {int(number)} at position {position}{where}"
            )
        counts[int(number)] = counts.get(int(number), 0) + 1
    return counts


def id_of(argument: str, key: Any, n_ids: int, where: str) -> int:
    """Return the key of a dictionary as an id."""
    number = checks.integer(argument, key, "as key", lambda i: True)
    if not 0 <= number < n_ids:
        raise IndexError(f"{argument}: expected {range_text(n_ids)}, got {checks.text_of(number)}{where}")
    return number
