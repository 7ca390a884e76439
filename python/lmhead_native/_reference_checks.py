"""What `lmhead_native.reference` accepts, and how it hands a result back: dtypes, shapes, scalars, `out`.

Knows every sentence that refuses an argument, how to read NumPy, DLPack and plain Python operands as float64, and how
to round a result once. Refuses to know any formula.
"""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ._core import StoredWeight

# Names, not dtype objects: bfloat16 is recognised without importing the package that defines it.
FLOATS = ("float32", "float16", "bfloat16", "float64")
# What takes its dtype from the array beside it, like a number.
SEQUENCES = (list, tuple, range)
# What counts as a flag, and so as no number.
BOOLS = (bool, np.bool_)

# Steps that the exact overlap test may take. Views that differ by one slice need a handful; a pair that needs more is
# counted as overlapping, which errs on the side of not writing over an input. (NumPy's stubs know only -1 and 0.)
OVERLAP_WORK: Any = 100_000


class Operand(NamedTuple):
    """One large argument: its values widened exactly, the name of its dtype, and the caller's memory."""

    values: NDArray[np.float64]
    dtype: str
    memory: NDArray[Any]

    def rows(self) -> NDArray[np.float64]:
        """Return the values as a matrix with the last axis as it is."""
        *leading, width = self.values.shape
        return self.values.reshape(math.prod(leading), width)


# ---- reading -------------------------------------------------------------------------------------------------------


_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class _RelabelledCapsule:
    """A DLPack producer that hands on a capsule once, as NumPy asks for one."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: object) -> object:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def _from_dlpack(argument: str, tensor: Any) -> tuple[NDArray[Any], str]:
    """Return a view of a CPU tensor and its dtype's name; bfloat16, which NumPy lacks, comes as its uint16 bits."""
    device = int(tensor.__dlpack_device__()[0])
    if device != 1:  # kDLCPU
        raise TypeError(
            f"{argument}: expected a tensor on the CPU, got DLPack device type {device}; copy it to the CPU"
        )
    try:
        capsule = tensor.__dlpack__()
        # DLTensor: data pointer (8 bytes), device (2 x int32), ndim (int32), then the dtype as code, bits, lanes.
        dtype = (ctypes.c_uint8 * 2).from_address(_capsule_pointer(capsule, b"dltensor") + 20)
        is_bfloat16 = tuple(dtype) == (4, 16)  # kDLBfloat
        if is_bfloat16:
            dtype[0] = 1  # kDLUInt
        array: NDArray[Any] = np.from_dlpack(cast(Any, _RelabelledCapsule(capsule)))
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise TypeError(
            f"{argument}: expected a tensor that NumPy can view, got {type(tensor).__name__} ({error})"
        ) from error
    return array, "bfloat16" if is_bfloat16 else array.dtype.name


class Given(NamedTuple):
    """An argument as it came: a Python sequence or number has a dtype of NumPy's choosing, not of its own."""

    array: NDArray[Any]
    dtype: str
    is_sequence: bool


def type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def refuse_masked(argument: str, value: object) -> None:
    """Refuse an array with a mask, NumPy's or another's: reading its data alone would lose the mask."""
    if isinstance(value, np.ndarray) and hasattr(value, "mask") and hasattr(value, "filled"):
        raise TypeError(
            f"{argument}: expected an array without a mask, got {type_name(value)}; "
            "fill it first, for example with .filled(0)"
        )


def read(argument: str, value: Any) -> Given:
    refuse_masked(argument, value)
    if not isinstance(value, (np.ndarray, np.generic)) and hasattr(value, "__dlpack__"):
        return Given(*_from_dlpack(argument, value), False)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{argument}: expected a rectangular array, got a ragged sequence ({error})") from error
    return Given(array, array.dtype.name, isinstance(value, (*SEQUENCES, int, float)))


def is_real(given: Given) -> bool:
    return given.array.dtype.kind in "fiu" or given.dtype == "bfloat16"


def widen(given: Given) -> NDArray[np.float64]:
    array = given.array
    if given.dtype == "bfloat16" and array.dtype.kind == "u":  # its bits
        array = (array.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(all="ignore"):
        return array.astype(np.float64)


def round_to(values: NDArray[np.float64], dtype: str) -> NDArray[np.float64]:
    """Round float64 values once to what `dtype` can hold, to nearest, ties to even."""
    with np.errstate(all="ignore"):
        if dtype != "bfloat16":
            return values.astype(dtype).astype(np.float64)
        # 8 significant bits, smallest normal 2^-126, infinite from 2^128 on; frexp's mantissa is in [0.5, 1).
        exponent = np.maximum(np.frexp(values)[1], -125) - 8
        rounded = np.ldexp(np.rint(np.ldexp(values, -exponent)), exponent)
        return np.where(np.abs(rounded) >= 2.0**128, np.copysign(np.inf, values), rounded)


def check_dtype(argument: str, given: Given) -> None:
    if not (is_real(given) if given.is_sequence else given.dtype in FLOATS):
        raise TypeError(
            f"{argument}: expected dtype float32, float16, bfloat16 or float64, got {given.dtype}; "
            f"cast it with {argument}.astype(numpy.float32)"
        )


def operand(given: Given, beside: Given | None = None) -> Operand:
    """Widen; a sequence first takes the dtype of the array beside it, float64 when alone."""
    if not given.is_sequence:
        return Operand(widen(given), given.dtype, given.array)
    dtype = "float64" if beside is None or beside.is_sequence else beside.dtype
    return Operand(round_to(widen(given), dtype), dtype, given.array)


def _large(argument: str, value: Any) -> Given:
    given = read(argument, value)
    check_dtype(argument, given)
    return given


def rows(argument: str, value: Any, axis: str) -> Operand:
    """Read an argument of shape (..., axis): logits, or what a norm takes."""
    given = _large(argument, value)
    if given.array.ndim == 0:
        raise ValueError(f"{argument}: expected shape (..., {axis}) of at least one dimension, got shape ()")
    return operand(given)


def _stored(weight: Any) -> StoredWeight | None:
    stored = getattr(weight, "__lmhead_weight__", None)
    return stored if isinstance(stored, StoredWeight) else None


def is_quantized(weight: Any) -> bool:
    stored = _stored(weight)
    return stored is not None and stored.is_quantized


def read_weight(weight: Any) -> Given:
    """Read a weight of any storage: quantised ones by what they mean, bfloat16 as its uint16 bits."""
    stored = _stored(weight)
    if stored is None:
        return _large("weight", weight)
    return (
        Given(stored.dequantize(), "float32", False) if stored.is_quantized else Given(stored.stored, "bfloat16", False)
    )


def hidden_and_weight(hidden: Any, weight: Any) -> tuple[Operand, Operand]:
    """Read hidden (..., D) and weight (V, D): dtypes that go together, and one D."""
    # What a sequence takes its dtype from is looked at first.
    weight_first = isinstance(hidden, SEQUENCES) and not isinstance(weight, SEQUENCES)
    if weight_first:
        given_w, given_h = read_weight(weight), _large("hidden", hidden)
    else:
        given_h, given_w = _large("hidden", hidden), read_weight(weight)
    shape_h, shape_w = given_h.array.shape, given_w.array.shape
    if not shape_h:
        raise ValueError(f"hidden: expected shape (..., D) beside weight of shape {shape_w}, got shape ()")
    if len(shape_w) != 2 or shape_w[1] != shape_h[-1]:
        advice = "; pass weight.T" if len(shape_w) == 2 and shape_w[0] == shape_h[-1] else ""
        raise ValueError(
            f"weight: expected shape (V, D) with D = {shape_h[-1]} as in hidden of shape {shape_h}, "
            f"got shape {shape_w}{advice}"
        )
    h, w = operand(given_h, given_w), operand(given_w, given_h)
    if (h.dtype == "float64") != (w.dtype == "float64"):
        wide, narrow = ("hidden", "weight") if h.dtype == "float64" else ("weight", "hidden")
        expected = "float64" if wide == "hidden" else "float32, float16 or bfloat16"
        raise TypeError(
            f"weight: expected dtype {expected} as hidden is {h.dtype}, got {w.dtype}; "
            f"cast with {wide}.astype(numpy.float32) or {narrow}.astype(numpy.float64)"
        )
    return h, w


def small(argument: str, value: Any, shape: tuple[int, ...], condition: str) -> Operand | None:
    """Read a small argument of a shape, which `condition` puts in words, and any real dtype; None stays None."""
    if value is None:
        return None
    given = read(argument, value)
    if not is_real(given):
        raise TypeError(
            f"{argument}: expected a real dtype, got {given.dtype}; cast it with {argument}.astype(numpy.float32)"
        )
    if given.array.shape != shape:
        raise ValueError(f"{argument}: expected {condition}, got shape {given.array.shape}")
    return Operand(widen(given), given.dtype, given.array)


def vector(argument: str, value: Any, axis: str, size: int, origin: str) -> Operand | None:
    """Read a small argument of shape (size,) and any real dtype; None stays None."""
    return small(argument, value, (size,), f"shape ({axis},) with {axis} = {size} as in {origin}")


# ---- scalars -------------------------------------------------------------------------------------------------------


def text_of(value: object) -> str:
    """Return the repr of a value that is refused, or its type where that takes more than a line.

    Python declines to print integers of thousands of digits.
    """
    try:
        text = repr(value)
    except Exception:
        return "an integer too large to print" if isinstance(value, int) else type_name(value)
    return type_name(value) if "\n" in text else text


def real(argument: str, value: Any, condition: str, holds: Callable[[float], bool]) -> float:
    kind = getattr(getattr(value, "dtype", None), "kind", "")  # NumPy would convert bool, complex and text
    try:
        if isinstance(value, (bool, str, bytes)) or kind in set("bcSUMmO") or getattr(value, "ndim", 0) != 0:
            raise TypeError
        number = float(value)
    except OverflowError:
        raise ValueError(
            f"{argument}: expected a real number {condition}, got an integer beyond the range of float64"
        ) from None
    except (TypeError, ValueError):
        raise TypeError(f"{argument}: expected a real number {condition}, got {text_of(value)}") from None
    if not (np.isfinite(number) and holds(number)):
        raise ValueError(f"{argument}: expected a real number {condition}, got {number!r}")
    return number


def temperature_of(value: Any) -> float:
    """Return a finite temperature above 0."""
    return real("temperature", value, "above 0 and finite", lambda t: t > 0)


def softcap_of(value: Any) -> float | None:
    """Return a finite cap above 0, or None."""
    return None if value is None else real("softcap", value, "above 0 and finite", lambda c: c > 0)


def scale_of(value: Any) -> float | None:
    """Return a finite factor, or None."""
    return None if value is None else real("scale", value, "that is finite", lambda s: True)


def eps_of(value: Any) -> float:
    """Return a finite epsilon, 0 or above."""
    return real("eps", value, "of at least 0 and finite", lambda e: e >= 0)


def integer(argument: str, value: Any, condition: str, holds: Callable[[int], bool]) -> int:
    try:
        if isinstance(value, BOOLS):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{argument}: expected an integer {condition}, got {text_of(value)}") from None
    if not holds(number):
        raise ValueError(f"{argument}: expected an integer {condition}, got {text_of(number)}")
    return number


def k_of(value: Any, vocabulary: int) -> int:
    """Return how many entries a list has: 0 to V."""
    return integer("k", value, f"from 0 to V = {vocabulary}", lambda k: 0 <= k <= vocabulary)


MOST_THREADS = 1024


def check_threads(value: Any) -> None:
    """Refuse what is not a thread count; the reference itself runs on NumPy's."""
    if value is not None:
        integer("threads", value, f"from 1 to {MOST_THREADS}", lambda n: 1 <= n <= MOST_THREADS)


# ---- out -----------------------------------------------------------------------------------------------------------


def result_dtype(*operands: Operand) -> np.dtype[Any]:
    """float64 stays float64, everything narrower gives float32."""
    return np.dtype(np.float64 if operands[0].dtype == "float64" else np.float32)


def _overlap(a: NDArray[Any], b: NDArray[Any]) -> bool:
    try:
        return np.shares_memory(a, b, max_work=OVERLAP_WORK)
    except np.exceptions.TooHardError:
        return True


def _overlaps_itself(array: NDArray[Any]) -> bool:
    """Whether two elements may share memory: each stride has to step over all that the smaller ones reach.

    Sufficient for elements apart, not necessary: interleaved axes that happen to miss each other count as shared.
    """
    if array.size <= 1:
        return False
    reach = array.itemsize
    for stride, length in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1):
        if stride < reach:
            return True
        reach += stride * (length - 1)
    return False


def _same_memory(a: NDArray[Any], b: NDArray[Any]) -> bool:
    same_start: bool = a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
    return same_start and (a.shape, a.strides, a.dtype) == (b.shape, b.strides, b.dtype)


def check_out(
    out: Any,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    inputs: Mapping[str, Operand | None],
    in_place: str | None = None,
    *,
    argument: str = "out",
    or_dtypes: Sequence[str] = (),
) -> None:
    """Refuse an array that cannot hold the result; `in_place` names the input whose very memory it may be.

    `or_dtypes` are names of further dtypes that it may have.
    """
    if out is None:
        return
    if not isinstance(out, np.ndarray):
        raise TypeError(f"{argument}: expected a NumPy array, got {type_name(out)}")
    refuse_masked(argument, out)
    if out.dtype != dtype and not (out.dtype.name in or_dtypes and out.dtype.isnative):
        names = " or ".join([", ".join([dtype.name, *or_dtypes[:-1]]), *or_dtypes[-1:]])
        raise TypeError(f"{argument}: expected dtype {names}, got {out.dtype}")
    if out.shape != shape:
        raise ValueError(f"{argument}: expected shape {shape}, got shape {out.shape}")
    if not out.flags.writeable:
        raise ValueError(f"{argument}: expected a writeable array, got a read-only one")
    if _overlaps_itself(out):
        raise ValueError(
            f"{argument}: expected an element of memory for every element of the result, "
            "got an array whose elements share memory"
        )
    for name, given in inputs.items():
        if given is None or not _overlap(out, given.memory):
            continue
        if name == in_place and _same_memory(out, given.memory):
            continue
        exactly = " or exactly its memory" if name == in_place else ""
        raise ValueError(
            f"{argument}: expected memory apart from {name}{exactly}, got memory that overlaps it; pass another array"
        )


def deliver(result: NDArray[np.float64], dtype: np.dtype[Any], out: NDArray[Any] | None) -> NDArray[Any]:
    """Round once to the result's dtype, into `out` if there is one."""
    with np.errstate(all="ignore"):
        if out is None:
            return np.asarray(result, dtype=dtype)
        out[...] = result
        return out
