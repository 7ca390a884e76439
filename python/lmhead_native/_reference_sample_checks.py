"""What the samplers of `lmhead_native.reference` accept: parameters of rows, edits, seeds, words.

Knows the sentences that refuse these, and turns each into one value for every row. Refuses to know what they do; ids
that are allowed are in `_reference_allowed`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _reference_checks as checks
from ._reference_allowed import id_lists, id_of, is_list_of_rows, row_text
from ._reference_filters import ORDERS, Filters
from ._reference_loss_checks import word_of
from ._reference_random import fresh_seed, row_seeds

# Temperatures below the smallest normal float32 mean 0.
GREEDY_BELOW = float(np.finfo(np.float32).tiny)
LARGEST_64_BITS = 2**64 - 1

# What each real parameter of a row must be.
REAL: dict[str, tuple[str, Callable[[float], bool]]] = {
    "temperature": (">= 0 and finite", lambda t: 0 <= t < math.inf),
    "top_p": ("> 0 and <= 1", lambda p: 0 < p <= 1),
    "min_p": (">= 0 and <= 1", lambda p: 0 <= p <= 1),
    "typical_p": ("> 0 and <= 1", lambda p: 0 < p <= 1),
    "repetition_penalty": ("> 0 and finite", lambda r: 0 < r < math.inf),
    "presence_penalty": ("a finite number", math.isfinite),
    "frequency_penalty": ("a finite number", math.isfinite),
}


class Rows(NamedTuple):
    """The rows that are drawn from: their leading shape, the operand that has them, and the ids there are.

    For some parameters whole sequences of rows stand for rows.
    """

    shape: tuple[int, ...]
    name: str
    n_ids: int
    unit: str = "row"

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Parameters(NamedTuple):
    """Every parameter, checked: those of rows with one value for each of n rows, in order."""

    temperature: NDArray[np.float64]
    top_k: list[int]
    top_p: NDArray[np.float64]
    min_p: NDArray[np.float64]
    typical_p: NDArray[np.float64]
    logit_bias: list[dict[int, float]]
    repetition_penalty: NDArray[np.float64]
    presence_penalty: NDArray[np.float64]
    frequency_penalty: NDArray[np.float64]
    history: list[dict[int, int]]
    output: list[dict[int, int]]
    seed: NDArray[np.uint64]
    position: NDArray[np.uint64]
    order: str
    logprobs: str | None
    top_n: int

    def is_greedy(self, row: int) -> bool:
        return bool(self.temperature[row] < GREEDY_BELOW)

    def filters(self, row: int) -> Filters:
        return Filters(
            float(self.temperature[row]),
            self.top_k[row],
            float(self.top_p[row]),
            float(self.min_p[row]),
            float(self.typical_p[row]),
            self.order,
        )


def parameters(rows: Rows, given: Mapping[str, Any]) -> Parameters:
    """Check the keywords that the samplers have in common, in the order of their signature."""
    read: dict[str, Any] = {}
    real = {name: lambda name=name: _reals(name, given[name], rows) for name in REAL}
    readers: dict[str, Callable[[], Any]] = {
        **real,
        "top_k": lambda: _integers("top_k", given["top_k"], rows, ">= -1", lambda k: k >= -1),
        "logit_bias": lambda: _biases(given["logit_bias"], rows),
        "history": lambda: _counts("history", given["history"], rows),
        "output": lambda: _counts("output", given["output"], rows),
        "seed": lambda: seeds_of(given["seed"], rows),
        "position": lambda: positions_of(given["position"], rows),
        "order": lambda: word_of("order", given["order"], tuple(ORDERS)),
        "logprobs": lambda: None if given["logprobs"] is None else word_of("logprobs", given["logprobs"], _LOGPROBS),
        "top_n": lambda: _top_n(given["top_n"], rows.n_ids, read["logprobs"]),
    }
    for name in Parameters._fields:
        read[name] = readers[name]()
        if name == "output":
            _check_needs_output(read, given["output"], rows)
    return Parameters(**read)


_LOGPROBS = ("raw", "processed")


def _in_row(row: int, rows: Rows, is_scalar: bool) -> str:
    return "" if is_scalar else f" in {rows.unit} {row_text(row, rows.shape)}"


def check_shape(argument: str, shape: tuple[int, ...], rows: Rows) -> None:
    """Refuse what is neither one number nor one for each row."""
    if shape not in ((), rows.shape):
        raise ValueError(
            f"{argument}: expected a number or shape {rows.shape}, one for each {rows.unit} of {rows.name}, "
            f"got shape {shape}"
        )


def _reals(argument: str, value: Any, rows: Rows) -> NDArray[np.float64]:
    """Read a real number, or one for each row."""
    condition, holds = REAL[argument]
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            float(value)
        except OverflowError:
            raise ValueError(f"{argument}: expected {condition}, got an integer beyond the range of float64") from None
    if value is None or isinstance(value, (str, bytes)):
        raise TypeError(f"{argument}: expected a real number or one for each row, got {checks.text_of(value)}")
    given = checks.read(argument, value)
    nothing = given.is_sequence and given.array.size == 0
    if not nothing and not checks.is_real(given):
        raise TypeError(f"{argument}: expected a real number or one for each row, got {_kind_text(value, given.dtype)}")
    check_shape(argument, given.array.shape, rows)
    values = checks.widen(given).reshape(-1)
    for row, number in enumerate(values):
        if not holds(float(number)):
            where = _in_row(row, rows, given.array.ndim == 0)
            raise ValueError(f"{argument}: expected {condition}, got {float(number)!r}{where}")
    return np.broadcast_to(values, rows.size) if given.array.ndim == 0 else values


def _kind_text(value: Any, dtype: str) -> str:
    return (
        f"dtype {dtype}" if getattr(value, "ndim", 0) or isinstance(value, checks.SEQUENCES) else checks.text_of(value)
    )


def _integers(argument: str, value: Any, rows: Rows, condition: str, holds: Callable[[int], bool]) -> list[int]:
    """Read an integer, or one for each row; Python's own may have any size."""
    sentence = f"an integer {condition}"
    if isinstance(value, (list, tuple, range)):
        array = np.array(value, dtype=object)
    elif isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "__dlpack__"):
        given = checks.read(argument, value)
        if given.dtype == "bfloat16" or given.array.dtype.kind not in "iu":
            raise TypeError(
                f"{argument}: expected {sentence}, or one for each row, got {_kind_text(value, given.dtype)}"
            )
        array = given.array
    else:
        array = np.empty((), object)
        array[()] = value
    check_shape(argument, array.shape, rows)
    found = []
    for row, item in enumerate(array.reshape(-1)):
        where = _in_row(row, rows, array.ndim == 0)
        try:
            if isinstance(item, checks.BOOLS):
                raise TypeError
            number = operator.index(item)
        except TypeError:
            raise TypeError(f"{argument}: expected {sentence}, got {checks.text_of(item)}{where}") from None
        if not holds(number):
            raise ValueError(f"{argument}: expected {sentence}, got {checks.text_of(number)}{where}")
        found.append(number)
    return found * rows.size if array.ndim == 0 else found


def seeds_of(value: Any, rows: Rows) -> NDArray[np.uint64]:
    """Return a seed for each row: a single one, or None, is folded with the number of the row, an array is not."""
    if value is None:
        return row_seeds(fresh_seed(), rows.size)
    is_single = np.ndim(value) == 0
    one_or_all = rows._replace(shape=()) if is_single else rows
    seeds = _integers("seed", value, one_or_all, "from 0 to 2^64 - 1", lambda i: 0 <= i <= LARGEST_64_BITS)
    return row_seeds(seeds[0], rows.size) if is_single else np.array(seeds, np.uint64)


def positions_of(value: Any, rows: Rows, last: int = LARGEST_64_BITS) -> NDArray[np.uint64]:
    """Return a position for each row, none of them beyond the last."""
    condition = f"from 0 to {'2^64 - 1' if last == LARGEST_64_BITS else last}"
    return np.array(_integers("position", value, rows, condition, lambda i: 0 <= i <= last), np.uint64)


def _biases(value: Any, rows: Rows) -> list[dict[int, float]]:
    """Return what is added to each id of each row."""
    if value is None or isinstance(value, Mapping):
        return [_bias(value, rows.n_ids, "")] * rows.size
    if not isinstance(value, (list, tuple)):
        raise TypeError(
            f"logit_bias: expected a dictionary, or a list of them for the rows, got {checks.type_name(value)}"
        )
    if len(value) != rows.size:
        raise ValueError(
            f"logit_bias: expected a list of {rows.size}, one for each row of {rows.name}, got {len(value)}"
        )
    return [_bias(item, rows.n_ids, f" in row {row_text(row, rows.shape)}") for row, item in enumerate(value)]


def _bias(value: Any, n_ids: int, where: str) -> dict[int, float]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"logit_bias: expected a dictionary of ids, got {checks.type_name(value)}{where}")
    found = {}
    for key, number in value.items():
        token = id_of("logit_bias", key, n_ids, where)
        try:
            addend = float("-inf") if number == -math.inf else checks.real("logit_bias", number, "", lambda b: True)
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"logit_bias: expected a finite number or -inf, got {checks.text_of(number)} for id {token}{where}"
            ) from None
        found[token] = addend
    return found


def _counts(argument: str, value: Any, rows: Rows) -> list[dict[int, int]]:
    """Return how often each id is there in each row."""
    if value is None:
        return [{}] * rows.size
    return id_lists(argument, value, rows.shape, rows.n_ids, rows.name, False)


def _check_needs_output(read: Mapping[str, Any], output: Any, rows: Rows) -> None:
    missing = np.array([item is None for item in output] if is_list_of_rows(output) else [output is None], bool)
    names = ("presence_penalty", "frequency_penalty")
    wrong = [(int(row), name) for name in names for row in np.flatnonzero((read[name] != 0) & missing)[:1]]
    for row, name in sorted(wrong, key=lambda found: found[0])[:1]:
        raise ValueError(
            f"{name}: expected 0 without output, got {float(read[name][row])!r} in row "
            f"{row_text(row, rows.shape)}; pass output, the ids that were generated"
        )


def _top_n(value: Any, n_ids: int, logprobs: str | None) -> int:
    n = checks.integer("top_n", value, f"from 0 to V = {n_ids}", lambda k: 0 <= k <= n_ids)
    if n and logprobs is None:
        raise ValueError(f"top_n: expected 0 as logprobs is None, got {n}")
    return n
