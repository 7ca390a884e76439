"""Which positions of a loss count, with what they should predict: part of `lmhead_native.reference`.

Knows targets as ids and as probabilities, `ignore_index`, `shift`, `token_weight`, and the sentences that refuse them.
Refuses to know any formula.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _reference_checks as checks
from ._reference_checks import Given, Operand


class Counted(NamedTuple):
    """The positions that count, n of them, in order; the others reach nothing.

    ``rows`` are their flat indices among the rows of hidden or logits, ``places`` those in a loss of ``shape``. Either
    ``ids`` (n,) or ``probabilities`` (n, V) is there. ``inputs`` are the arguments that no output may overlap.
    """

    shape: tuple[int, ...]
    rows: NDArray[np.int64]
    places: NDArray[np.int64]
    ids: NDArray[np.int64] | None
    probabilities: NDArray[np.float64] | None
    token_weight: NDArray[np.float64]
    inputs: dict[str, Operand | None]


def counted(
    name: str,
    operand: Operand,
    vocabulary: int,
    targets: Any,
    *,
    token_weight: Any,
    ignore_index: Any,
    shift: Any,
    or_probabilities: bool,
) -> Counted:
    """Pair the rows of the operand called `name`, of shape (..., D) or (..., V), with their targets."""
    shape = operand.memory.shape[:-1]
    origin = f"{name} of shape {operand.memory.shape}"
    ignored = checks.integer("ignore_index", ignore_index, "of any size", lambda i: True)
    offset = _offset(shift, shape, origin)
    given, is_soft = _read(targets, operand, name, or_probabilities)
    weight = checks.small("token_weight", token_weight, shape, f"shape {shape} as in {origin}")
    weights = np.ones(shape) if weight is None else weight.values

    # Row t has its target, and the weight of that, at t + offset. Rows at the end and targets at the start have none.
    rows = np.arange(weights.size).reshape(shape)
    partners = rows
    if offset:
        pairs = max(shape[-1] - offset, 0)
        rows, partners = rows[..., :pairs], rows[..., shape[-1] - pairs :]
    source = partners.reshape(-1)
    counts = weights.reshape(-1)[source] != 0
    ids = probabilities = None
    if is_soft:
        values = checks.widen(given).reshape(weights.size, vocabulary)[source[counts]]
        probabilities = checks.round_to(values, operand.dtype) if given.is_sequence else values
    else:
        exact = _exact(given.array.reshape(-1))
        live = ~_equal(exact, ignored)[source]
        _check_range(exact, source[live], shape, vocabulary, ignored)
        counts &= live
        ids = exact[source[counts]].astype(np.int64)
    return Counted(
        rows.shape,
        rows.reshape(-1)[counts],
        np.flatnonzero(counts),
        ids,
        probabilities,
        weights.reshape(-1)[source[counts]],
        {"targets": Operand(weights, given.dtype, given.array), "token_weight": weight},
    )


def _offset(shift: Any, shape: tuple[int, ...], origin: str) -> int:
    number = int(shift) if isinstance(shift, checks.BOOLS) else shift
    offset = checks.integer("shift", number, "of at least 0", lambda s: s >= 0)
    if offset and not shape:
        raise ValueError(f"shift: expected 0 without an axis of positions in {origin}, got {checks.text_of(offset)}")
    return offset


def _read(targets: Any, operand: Operand, name: str, or_probabilities: bool) -> tuple[Given, bool]:
    """Read ids of the operand's shape without its last axis or, where they are welcome, probabilities of its shape."""
    given = checks.read("targets", targets)
    whole, shape = operand.memory.shape, given.array.shape
    if given.is_sequence and given.array.size == 0 and shape == whole[:-1]:
        given = Given(given.array.astype(np.int64), "int64", True)  # NumPy takes a list of nothing for float64
    is_floating = given.dtype == "bfloat16" or given.array.dtype.kind == "f"
    is_soft = or_probabilities and is_floating and shape != whole[:-1]
    if not is_soft and (is_floating or given.array.dtype.kind not in "iu"):
        alternative = f", or probabilities of shape {whole}" if or_probabilities else ""
        raise TypeError(f"targets: expected an integer dtype{alternative}, got {given.dtype} of shape {shape}")
    expected = whole if is_soft else whole[:-1]
    if shape != expected:
        raise ValueError(f"targets: expected shape {expected} as in {name} of shape {whole}, got shape {shape}")
    if not is_soft:
        return given, False
    checks.check_dtype("targets", given)
    if not given.is_sequence and (given.dtype == "float64") != (operand.dtype == "float64"):
        wide = operand.dtype == "float64"
        raise TypeError(
            f"targets: expected dtype {'float64' if wide else 'float32, float16 or bfloat16'} as {name} is "
            f"{operand.dtype}, got {given.dtype}; cast it with targets.astype(numpy.{'float64' if wide else 'float32'})"
        )
    return given, True


def _exact(ids: NDArray[Any]) -> NDArray[Any]:
    """Widen to int64 where that holds every value of the dtype; uint64 stays."""
    return ids.astype(np.uint64 if ids.dtype.kind == "u" and ids.dtype.itemsize == 8 else np.int64)


def _equal(ids: NDArray[Any], value: int) -> NDArray[np.bool_]:
    limits = np.iinfo(ids.dtype)
    if not limits.min <= value <= limits.max:
        return np.zeros(ids.shape, bool)
    equal: NDArray[np.bool_] = ids == ids.dtype.type(value)
    return equal


def _check_range(
    ids: NDArray[Any], at: NDArray[np.int64], shape: tuple[int, ...], vocabulary: int, ignored: int
) -> None:
    """Refuse the first of the ids at flat indices `at` that is no id of the vocabulary."""
    wrong = (ids[at] < ids.dtype.type(0)) | (ids[at] >= ids.dtype.type(vocabulary))
    if wrong.any():
        first = at[wrong][0]
        position = tuple(int(i) for i in np.unravel_index(first, shape)) if shape else ()
        upper = f"from 0 to V - 1 = {vocabulary - 1}" if vocabulary else "of no token, as V = 0,"
        raise IndexError(
            f"targets: expected an id {upper} or ignore_index = {checks.text_of(ignored)}, "
            f"got {int(ids[first])} at position {position}"
        )
