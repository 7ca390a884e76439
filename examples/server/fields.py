"""The fields of a request's JSON object: numbers, ids and arrays of them, or a sentence that says what was expected.

Knows: JSON's types, the base64 form of float32, and the library's form of a sentence. Refuses to know: what the fields
are for, and the ranges of a sampler's parameters, which the library checks itself.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def shown(value: object) -> str:
    """Write a value as the client did, but not all of a long one."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


class Fields:
    """A JSON object whose fields are taken one by one; null counts as left out."""

    def __init__(self, body: object) -> None:
        if not isinstance(body, Mapping):
            raise ValueError(f"body: expected a JSON object, got {shown(body)}")
        self._left = {name: value for name, value in body.items() if value is not None}

    def take(self, name: str) -> Any:
        """Return the field, or None."""
        return self._left.pop(name, None)

    def number(self, name: str, default: float) -> float:
        """Return a number of float64's range."""
        value = self.take(name)
        return default if value is None else as_number(name, value)

    def integer(self, name: str, default: int) -> int:
        """Return an integer of any size."""
        value = self.take(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{name}: expected an integer, got {shown(value)}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false."""
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ValueError(f"{name}: expected true or false, got {shown(value)}")
        return value

    def ids(self, name: str, vocabulary: int, most: int, ignored: int | None = None) -> NDArray[np.int64] | None:
        """Return token ids (n,), at most so many, from 0 to V - 1 or `ignored`."""
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise ValueError(f"{name}: expected a list of token ids, got {shown(value)}")
        if len(value) > most:
            raise ValueError(f"{name}: expected at most {most} ids, got {len(value)}")
        if any(isinstance(one, bool) for one in value):
            raise ValueError(f"{name}: expected a list of token ids, got {shown(value)}")
        try:
            ids = np.array(array("q", value))  # which takes no floats and no texts, as NumPy would
        except (TypeError, OverflowError) as error:
            raise ValueError(f"{name}: expected a list of token ids, got {shown(value)}") from error
        wrong = (ids < 0) | (ids >= vocabulary)
        if ignored is not None:
            wrong &= ids != ignored
        if wrong.any():
            at = int(wrong.argmax())
            expected = f"an id from 0 to V - 1 = {vocabulary - 1}"
            raise IndexError(f"{name}: expected {expected}, got {ids[at]} at position {at}")
        return ids

    def biases(self, name: str, vocabulary: int, most: int) -> dict[int, float] | None:
        """Return {id: bias}; JSON writes the ids as texts."""
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, dict) or len(value) > most:
            got = f"{len(value)} of them" if isinstance(value, dict) else shown(value)
            raise ValueError(f"{name}: expected an object of at most {most} ids and numbers, got {got}")
        biases = {}
        for key, bias in value.items():
            if not (key.isascii() and key.isdigit() and len(key) <= 19 and int(key) < vocabulary):
                raise IndexError(f"{name}: expected an id from 0 to V - 1 = {vocabulary - 1}, got {shown(key)}")
            biases[int(key)] = as_number(name, bias)
            if not math.isfinite(biases[int(key)]):
                raise ValueError(f"{name}: expected finite numbers, got {shown(bias)} for id {key}")
        return biases

    def states(self, name: str, width: int, most: int | None) -> NDArray[np.float32]:
        """Return finite float32 states, (D,), or (T, D) of at most so many rows; from lists or base64."""
        value = self.take(name)
        shape = f"(D,) = ({width},)" if most is None else f"(T, D) = (T, {width})"
        if isinstance(value, str):
            flat = from_base64(name, value)
        elif isinstance(value, list):
            flat = from_list(name, value, shape, width if most is not None else None)
        else:
            got = "none" if value is None else shown(value)
            raise ValueError(f"{name}: expected numbers of shape {shape}, as lists or base64 of float32, got {got}")
        if (most is None and flat.size != width) or (most is not None and (flat.size == 0 or flat.size % width)):
            raise ValueError(f"{name}: expected shape {shape}, got {flat.size} numbers")
        if most is not None and flat.size // width > most:
            raise ValueError(f"{name}: expected at most T = {most} states, got {flat.size // width}")
        if not np.isfinite(flat).all():
            at = int(np.isfinite(flat).argmin())
            raise ValueError(f"{name}: expected finite float32 numbers, got {flat[at]} as number {at}")
        return flat if most is None else flat.reshape(-1, width)

    def finish(self) -> None:
        """Refuse what nobody has taken: a misspelt parameter must not be a default one."""
        for name in self._left:
            raise ValueError(f"{name[:60]}: expected no such field, got {shown(self._left[name])}")


def as_number(name: str, value: object) -> float:
    """Return the number that a JSON value is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name}: expected a number, got {shown(value)}")
    try:
        return float(value)
    except OverflowError as error:
        raise ValueError(f"{name}: expected a number, got an integer beyond float64") from error


def from_base64(name: str, text: str) -> NDArray[np.float32]:
    """Return the little-endian float32 numbers whose bytes these are."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{name}: expected base64 of little-endian float32, got {shown(text)}") from error
    if len(raw) % 4:
        raise ValueError(f"{name}: expected base64 of little-endian float32, got {len(raw)} bytes")
    return np.frombuffer(raw, "<f4").astype(np.float32, copy=False)


def from_list(name: str, value: list[Any], shape: str, width: int | None) -> NDArray[np.float32]:
    """Return the numbers of a list, or, with a width, of a list of lists that long, rounded to float32."""
    numbers = array("d")
    rows = [value] if width is None else value
    for row in rows:
        if not isinstance(row, list) or (width is not None and len(row) != width):
            got = f"a row of {len(row)}" if isinstance(row, list) else shown(row)
            raise ValueError(f"{name}: expected numbers of shape {shape}, got {got}")
        try:
            numbers.extend(array("d", row))  # which takes no texts, as NumPy would
        except (TypeError, OverflowError) as error:
            raise ValueError(f"{name}: expected numbers of shape {shape}, got others") from error
    with np.errstate(over="ignore"):
        return np.array(numbers).astype(np.float32)
