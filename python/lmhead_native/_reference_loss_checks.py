"""What the losses of `lmhead_native.reference` accept: their options, and arrays for gradients.

Knows the sentences that refuse these, beyond those in `_reference_checks`, and how to hand a gradient back. Refuses to
know targets (`_reference_targets`) and formulas.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _reference_checks as checks
from ._reference_checks import Operand
from ._reference_targets import Counted

REDUCTIONS = ("mean", "sum", "none")
EMPTY = {"nan": np.nan, "zero": 0.0}
# What a gradient of float32 may be rounded into at the end; float64 has no such company.
HALVES = ("float16", "bfloat16")


# ---- options -------------------------------------------------------------------------------------------------------


class Options(NamedTuple):
    """The options of every loss, checked."""

    bias: Operand | None
    class_weight: Operand | None
    reduction: str
    label_smoothing: float
    softcap: float | None
    scale: float | None
    temperature: float
    lse_square_scale: float
    empty: float
    num_items: float | None
    stats: bool

    def inputs(self) -> dict[str, Operand | None]:
        """Return the arguments that no output may overlap."""
        return {"bias": self.bias, "class_weight": self.class_weight}


def options(
    vocabulary: int,
    origin: str,
    *,
    bias: Any,
    class_weight: Any,
    reduction: Any,
    label_smoothing: Any,
    softcap: Any,
    scale: Any,
    temperature: Any,
    lse_square_scale: Any,
    empty: Any,
    num_items: Any,
    stats: Any,
) -> Options:
    """Check what does not depend on the targets; `origin` says where V comes from."""
    items = None
    word = word_of("reduction", reduction, REDUCTIONS)
    if num_items is not None:
        items = checks.real("num_items", num_items, "above 0 and finite", lambda n: n > 0)
        if word != "mean":
            raise ValueError(f"num_items: expected None as reduction is {word!r}, got {items!r}")
    return Options(
        checks.vector("bias", bias, "V", vocabulary, origin),
        checks.vector("class_weight", class_weight, "V", vocabulary, origin),
        word,
        checks.real("label_smoothing", label_smoothing, "from 0 to 1", lambda e: 0 <= e <= 1),
        checks.softcap_of(softcap),
        checks.scale_of(scale),
        checks.temperature_of(temperature),
        checks.real("lse_square_scale", lse_square_scale, "of at least 0 and finite", lambda z: z >= 0),
        EMPTY[word_of("empty", empty, tuple(EMPTY))],
        items,
        flag("stats", stats),
    )


def flag(argument: str, value: Any) -> bool:
    """Return a bool; nothing else is taken for one."""
    if not isinstance(value, checks.BOOLS):
        raise TypeError(f"{argument}: expected True or False, got {checks.text_of(value)}")
    return bool(value)


def filter_eps_of(value: Any) -> float | None:
    """Return a finite threshold, 0 or above, or None."""
    return None if value is None else checks.real("filter_eps", value, "of at least 0 and finite", lambda e: e >= 0)


def check_chunk_rows(value: Any) -> None:
    """Refuse what is not a number of rows; the reference itself takes all at once."""
    if value is not None:
        checks.integer("chunk_rows", value, "of at least 1", lambda n: n >= 1)


def word_of(argument: str, value: Any, words: tuple[str, ...]) -> str:
    allowed = f"{', '.join(map(repr, words[:-1]))} or {words[-1]!r}"
    if not isinstance(value, str):
        raise TypeError(f"{argument}: expected {allowed}, got {checks.text_of(value)}")
    if value not in words:
        raise ValueError(f"{argument}: expected {allowed}, got {value!r}")
    return value


# ---- arrays for gradients ------------------------------------------------------------------------------------------


class GradOutput(NamedTuple):
    """The argument, and what it gives each counted position: 1 without it."""

    given: Operand | None
    values: NDArray[np.float64]


def grad_output_of(value: Any, chosen: Options, count: Counted) -> GradOutput:
    """Read grad_output, of the loss's shape."""
    shape = count.shape if chosen.reduction == "none" else ()
    given = checks.small("grad_output", value, shape, f"shape {shape} as the loss of reduction {chosen.reduction!r}")
    if given is None or chosen.reduction != "none":
        return GradOutput(given, np.full(count.places.size, 1.0 if given is None else given.values))
    return GradOutput(given, given.values.reshape(-1)[count.places])


def names_of(wrt: Any) -> frozenset[str]:
    """Return which gradients of the fused loss are asked for."""
    condition = "a sequence of 'hidden', 'weight' and 'bias'"
    if isinstance(wrt, (str, bytes)) or not isinstance(wrt, Collection):
        raise TypeError(f"wrt: expected {condition}, got {checks.text_of(wrt)}")
    for name in wrt:
        if not isinstance(name, str):
            raise TypeError(f"wrt: expected {condition}, got {checks.text_of(name)} among them")
        if name not in ("hidden", "weight", "bias"):
            raise ValueError(f"wrt: expected {condition}, got {name!r} among them")
    return frozenset(wrt)


class Slot(NamedTuple):
    """Where one gradient goes: its shape, the array given for it if any, and why there is none if it is not made."""

    argument: str
    shape: tuple[int, ...]
    out: Any
    absent_as: str = ""


def check_gradients_out(
    slots: Sequence[Slot],
    dtype: np.dtype[Any],
    inputs: Mapping[str, Operand | None],
    accumulate: Any,
    in_place: str | None = None,
) -> bool:
    """Refuse arrays that cannot take the gradients, which must be apart from the inputs and from each other.

    Returns whether to accumulate.
    """
    adds = flag("accumulate", accumulate)
    apart = dict(inputs)
    for slot in slots:
        if slot.absent_as and slot.out is not None:
            raise ValueError(f"{slot.argument}: expected None as {slot.absent_as}, got {checks.type_name(slot.out)}")
        checks.check_out(
            slot.out,
            slot.shape,
            dtype,
            apart,
            # Adding to the input would need it after it has changed.
            None if adds else in_place,
            argument=slot.argument,
            or_dtypes=() if dtype == np.float64 else HALVES,
        )
        if slot.out is not None:
            apart[slot.argument] = Operand(np.zeros(0), slot.out.dtype.name, slot.out)
    if adds and all(slot.out is None for slot in slots):
        names = " or ".join(slot.argument for slot in slots)
        raise ValueError(f"accumulate: expected False without an array to add to, got True; pass {names}")
    return adds


def deliver_gradient(
    gradient: NDArray[np.float64], dtype: np.dtype[Any], out: NDArray[Any] | None, accumulate: bool
) -> NDArray[Any]:
    """Round once to the result's dtype or that of `out`, after adding what `out` holds if asked for."""
    if out is None:
        return checks.deliver(gradient, dtype, None)
    with np.errstate(all="ignore"):
        if accumulate:
            before = out.astype(np.float64)
            gradient = np.where(gradient == 0, before, before + gradient)  # nothing changes nothing, not even a -0.0
        out[...] = checks.round_to(gradient, out.dtype.name)
    return out


def deliver_rows(
    rows: NDArray[np.int64],
    gradient: NDArray[np.float64],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    out: NDArray[Any] | None,
    accumulate: bool,
) -> NDArray[Any]:
    """As `deliver_gradient`, given some rows only: the others are 0, and keep their bits where something is added."""
    whole = np.zeros((math.prod(shape[:-1]), shape[-1]))
    whole[rows] = gradient
    return deliver_gradient(whole.reshape(shape), dtype, out, accumulate)
