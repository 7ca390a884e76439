"""Bad input of every function: one table of (call, exception, message), and what must not have happened meanwhile.

Every message has the form `<argument>: expected <condition>, got <fact>[; <what to do>]`. The table covers
every parameter of every computing function; a refused call leaves every array as it was, the `out` that came with it
too.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

import lmhead_native as native
from calls import (
    GRADIENT_SHAPES,
    LOSSES,
    OPERANDS,
    OUT_SHAPES,
    SHAPES,
    VECTORS,
    D,
    N,
    V,
    arguments,
    call,
    results,
    vector_length,
)
from layouts import dlpack
from lmhead_native import reference
from oracle import BFLOAT16, assert_same_bits

SENTINEL = 7.0

Array = NDArray[Any]
# What replaces a good argument; a function of it where it depends on its shape or dtype.
Replacement = Any


class Case(NamedTuple):
    """One argument of one function, replaced, and how that is refused."""

    function: str
    argument: str
    what: str
    bad: Replacement
    error: type[Exception]
    got: str  # what follows "got " in the message


class NeedsGradient:
    """A CPU tensor that refuses to be shared, as one that records gradients does."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **_: object) -> object:
        raise BufferError("requires grad")


def read_only(array: Array) -> Array:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


# ---- kinds of bad arguments ----------------------------------------------------------------------------------------

# dtypes that neither a large operand nor a vector may have; a vector takes integers.
NO_NUMBERS: list[tuple[str, Replacement, type[Exception], str]] = [
    ("bool", lambda a: a > 0, TypeError, "(dtype )?bool"),
    ("complex", lambda a: a.astype(np.complex64), TypeError, "(dtype )?complex64"),
    ("object", lambda a: a.astype(object), TypeError, "(dtype )?object"),
    ("text array", lambda a: a.astype(str), TypeError, "(dtype <U|str)"),
    ("datetime", lambda a: np.zeros(a.shape, "M8[s]"), TypeError, r"(dtype )?datetime64\[s\]"),
    ("timedelta", lambda a: np.zeros(a.shape, "m8[s]"), TypeError, r"(dtype )?timedelta64\[s\]"),
    ("structure", lambda a: np.zeros(a.shape, [("a", "f4")]), TypeError, r"(dtype \[\('a', '<f4'\)\]|void32)"),
    ("float8", lambda a: a.astype(ml_dtypes.float8_e4m3fn), TypeError, "(dtype )?float8_e4m3fn"),
    ("masked", lambda a: np.ma.masked_array(a, a > 0), TypeError, ".*[Mm]ask"),
    ("masked without a mask", lambda a: np.ma.masked_array(a), TypeError, ".*[Mm]ask"),
    ("text", "abc", TypeError, "(dtype <U3|str)"),
    ("bytes", b"abc", TypeError, r"(dtype \|S3|bytes)"),
    ("object()", object(), TypeError, "(dtype )?object"),
    ("set", {1.0}, TypeError, "(dtype )?object"),
    ("dict", {1: 2.0}, TypeError, "(dtype )?object"),
    ("generator", lambda a: (x for x in a), TypeError, "(dtype )?object"),
    ("list of text", lambda a: a.astype(str).tolist(), TypeError, "a list .* dtype <U"),
    ("list of None", lambda a: np.full(a.shape, None).tolist(), TypeError, "a list .* dtype object"),
    ("list of bools", lambda a: (a > 0).tolist(), TypeError, "a list .* dtype bool"),
    ("tuple of complex", lambda a: tuple(a.astype(complex).tolist()), TypeError, "a tuple .* dtype complex128"),
    ("list of a huge integer", lambda a: np.full(a.shape, 10**400).tolist(), TypeError, "a list .* dtype object"),
    ("ragged list", [[1.0], [1.0, 2.0]], ValueError, "a list .*inhomogeneous"),
    ("ragged tuple", ((1.0, 2.0), 3.0), ValueError, "a tuple .*inhomogeneous"),
    ("GPU tensor", lambda a: dlpack(a, device=2), TypeError, ".*on another device; move it to the CPU"),
    ("tensor that refuses", NeedsGradient(), TypeError, r".*NeedsGradient that refuses \(requires grad\)"),
    ("0-d", np.float32(3), ValueError, r"shape \(\)"),
    ("0-d tensor", dlpack(np.ones((), np.float32)), ValueError, r"shape \(\)"),
    ("Python number", 3.0, ValueError, r"shape \(\)"),
]
NO_FLOATS: list[tuple[str, Replacement, type[Exception], str]] = [
    ("None", None, TypeError, "None"),
    ("int64", lambda a: a.astype(np.int64), TypeError, r"dtype int64; cast it with \.astype\(numpy\.float32\)"),
    ("uint16", lambda a: a.astype(np.uint16), TypeError, "dtype uint16; cast it with"),
    ("long double", lambda a: a.astype(np.longdouble), TypeError, r"dtype float128; .*\.astype\(numpy\.float64\)"),
    ("integer tensor", lambda a: dlpack(a.astype(np.int32)), TypeError, ".*of another dtype; cast it"),
    ("bytearray", bytearray(8), TypeError, "dtype uint8; cast it with"),
]
# Named by their repr.
NOT_REAL: dict[str, Any] = {
    "bool": True,
    "NumPy bool": np.True_,
    "text": "1",
    "bytes": b"1",
    "NumPy text": np.str_("1"),
    "NumPy bytes": np.bytes_(b"1"),
    "complex": 1j,
    "NumPy complex": np.complex64(1),
    "datetime": np.datetime64(3, "s"),
    "timedelta": np.timedelta64(3, "s"),
    "list": [1.0],
    "1-d array": np.ones(1),
    "0-d text": np.array("1"),
    "0-d bool": np.array(True),
    "0-d complex": np.array(1j),
    "0-d object": np.array(None),
    "object()": object(),
}
NO_REALS: list[tuple[str, Replacement, type[Exception], str]] = [
    *((what, bad, TypeError, re.escape(repr(bad))) for what, bad in NOT_REAL.items()),
    ("2-d array", np.ones((2, 2)), TypeError, "numpy.ndarray$"),  # whose repr takes more than a line
    ("NaN", np.nan, ValueError, "nan"),
    ("inf", np.inf, ValueError, "inf"),
    ("-inf", -np.inf, ValueError, "-inf"),
    ("float32 NaN", np.float32("nan"), ValueError, "nan"),
    ("integer beyond float64", 10**400, ValueError, ""),
    ("integer beyond printing", 10**5000, ValueError, ""),
]
NONE: tuple[str, Replacement, type[Exception], str] = ("None", None, TypeError, "None")
NOT_POSITIVE: list[tuple[str, Replacement, type[Exception], str]] = [
    ("0", 0, ValueError, r"0\.0; "),
    ("-0.0", -0.0, ValueError, r"-0\.0; "),
    ("negative", -0.5, ValueError, r"-0\.5$"),
    ("below the smallest double", Decimal("1e-400"), ValueError, r"0\.0; "),
]
REALS: dict[str, list[tuple[str, Replacement, type[Exception], str]]] = {
    "temperature": [NONE, *NOT_POSITIVE],
    "softcap": NOT_POSITIVE,
    "scale": [],
    "eps": [NONE, ("negative", -1e-6, ValueError, "-1e-06$")],
    "label_smoothing": [NONE, ("negative", -0.1, ValueError, r"-0\.1$"), ("above 1", 1.5, ValueError, r"1\.5$")],
    "lse_square_scale": [NONE, ("negative", -1, ValueError, r"-1\.0$")],
    "num_items": [("0", 0, ValueError, r"0\.0$"), ("negative", -2, ValueError, r"-2\.0$")],
    "filter_eps": [("negative", -1e-6, ValueError, "-1e-06$")],
}
NOT_INTEGER: dict[str, Any] = {
    "bool": True,
    "NumPy bool": np.True_,
    "float": 2.0,
    "NumPy float": np.float64(2),
    "Decimal": Decimal(2),
    "text": "2",
    "bytes": b"2",
    "complex": 2j,
    "list": [2],
    "1-d array": np.array([2]),
    "0-d float": np.array(2.0),
    "0-d bool": np.array(True),
}
NO_INTEGERS: list[tuple[str, Replacement, type[Exception], str]] = [
    *((what, bad, TypeError, f"{re.escape(repr(bad))}$") for what, bad in NOT_INTEGER.items()),
    ("negative", -1, ValueError, "-1$"),
    ("below 64 bits", -(2**70), ValueError, "-1180591620717411303424$"),
    ("beyond 64 bits", 2**70, ValueError, "1180591620717411303424$"),
    ("beyond printing", 10**5000, ValueError, ""),
]
INTEGERS: dict[str, list[tuple[str, Replacement, type[Exception], str]]] = {
    "k": [NONE, ("V + 1", V + 1, ValueError, "12$"), ("NumPy V + 1", np.uint8(V + 1), ValueError, "12$")],
    "threads": [("0", 0, ValueError, "0$"), ("1025", 1025, ValueError, "1025$")],
    "ignore_index": [NONE],
    "shift": [NONE],
    "chunk_rows": [("0", 0, ValueError, "0$")],
}
# What these welcome: any integer at all, a bool as 0 or 1, more rows than there are.
ANY_SIZE = {"beyond 64 bits", "beyond printing"}
WELCOME: dict[str, set[str]] = {
    "ignore_index": {*ANY_SIZE, "negative", "below 64 bits"},
    "shift": {*ANY_SIZE, "bool", "NumPy bool"},
    "chunk_rows": ANY_SIZE,
}
NO_WORDS: list[tuple[str, Replacement, type[Exception], str]] = [
    ("None", None, TypeError, "None$"),
    ("number", 0, TypeError, "0$"),
    ("bytes", b"mean", TypeError, "b'mean'$"),
    ("list", ["mean"], TypeError, r"\['mean'\]$"),
    ("another word", "avg", ValueError, "'avg'$"),
    ("capitals", "Mean", ValueError, "'Mean'$"),
    ("no word", "", ValueError, "''$"),
    ("half a character", "\udc80", ValueError, r"'\\udc80'$"),
]
NO_FLAGS: list[tuple[str, Replacement, type[Exception], str]] = [
    ("None", None, TypeError, "None$"),
    ("integer", 1, TypeError, "1$"),
    ("float", 0.0, TypeError, r"0\.0$"),
    ("text", "True", TypeError, "'True'$"),
    ("array", np.array([True]), TypeError, r"array\(\[ True\]\)$"),
]
NO_NAMES: list[tuple[str, Replacement, type[Exception], str]] = [
    ("None", None, TypeError, "None$"),
    ("text", "hidden", TypeError, "'hidden'$"),
    ("bytes", b"hidden", TypeError, "b'hidden'$"),
    ("number", 3, TypeError, "3$"),
    ("iterator", iter(["hidden"]), TypeError, "<list_iterator"),
    ("number among names", ("hidden", 3), TypeError, "3 among them$"),
    ("bytes among names", {b"hidden"}, TypeError, "b'hidden' among them$"),
    ("unknown name", ["hidden", "logits"], ValueError, "'logits' among them$"),
]
NO_TARGETS: list[tuple[str, Replacement, type[Exception], str]] = [
    ("None", None, TypeError, "object of shape"),
    ("float64", lambda a: a.astype(np.float64), TypeError, r"float64 of shape \(5,\)$"),
    ("bfloat16", lambda a: a.astype(BFLOAT16), TypeError, r"bfloat16 of shape \(5,\)$"),
    ("float tensor", lambda a: dlpack(a.astype(BFLOAT16)), TypeError, r"bfloat16 of shape \(5,\)$"),
    ("bool", lambda a: a > 0, TypeError, r"bool of shape \(5,\)$"),
    ("complex", lambda a: a.astype(complex), TypeError, "complex128 of shape"),
    ("object", lambda a: a.astype(object), TypeError, "object of shape"),
    ("text", "abc", TypeError, "str96 of shape"),
    ("datetime", lambda a: a.astype("M8[s]"), TypeError, r"datetime64\[s\] of shape"),
    ("list of bools", lambda a: (a > 0).tolist(), TypeError, "bool of shape"),
    ("list of floats", lambda a: a.astype(float).tolist(), TypeError, "float64 of shape"),
    ("list of huge integers", [2**70] * N, TypeError, "object of shape"),
    ("masked", lambda a: np.ma.masked_array(a, a < 0), TypeError, ".*[Mm]ask"),
    ("GPU tensor", lambda a: dlpack(a, device=2), TypeError, ""),
    ("ragged list", [[1], [1, 2]], ValueError, "a "),
    ("too few", lambda a: a[1:], ValueError, r"shape \(4,\)$"),
    ("too many axes", lambda a: a[None], ValueError, r"shape \(1, 5\)$"),
    ("one for all", 3, ValueError, r"shape \(\)$"),
    ("V", lambda a: a + V, IndexError, r"14 at position \(0,\)$"),
    ("-1", lambda a: np.where(a == 0, -1, a), IndexError, r"-1 at position \(3,\)$"),
    ("-1 in a byte", lambda a: np.where(a == 0, -1, a).astype(np.int8), IndexError, r"-1 at position \(3,\)$"),
    ("uint16 of -100", lambda a: a.astype(np.uint16), IndexError, r"65436 at position \(2,\)$"),
    ("uint64 of -100", lambda a: a.astype(np.uint64), IndexError, r"18446744073709551516 at position \(2,\)$"),
    ("2^40", lambda a: a + 2**40 * (a == 3), IndexError, r"1099511627779 at position \(0,\)$"),
]
WORDS, FEW = np.full((N, 1), 5, np.int32), [[0, 2]] * N
NO_MASKS: list[tuple[str, Replacement, type[Exception], str]] = [
    ("bool", np.ones((N, V), bool), TypeError, r"bool of shape \(5, 11\); numpy.flatnonzero"),
    ("int64", WORDS.astype(np.int64), TypeError, r"int64 of shape \(5, 1\)$"),
    ("uint8", WORDS.astype(np.uint8), TypeError, r"uint8 of shape \(5, 1\)$"),
    ("float32", WORDS.astype(np.float32), TypeError, r"float32 of shape \(5, 1\)$"),
    ("range", range(5), TypeError, r"int64 of shape \(5,\)$"),
    ("number", 7, TypeError, r"int64 of shape \(\)$"),
    ("list of too great integers", (WORDS.astype(np.int64) + 2**33).tolist(), ValueError, r"858[0-9]+$"),
    ("text", "abc", TypeError, "str96 of shape"),
    ("masked", np.ma.masked_array(WORDS, WORDS < 0), TypeError, ".*[Mm]ask"),
    ("GPU tensor", dlpack(WORDS, device=2), TypeError, ""),
    ("ragged list", [[1], [1, 2]], ValueError, "a list .*inhomogeneous"),
    ("0-d", np.int32(1), ValueError, r"shape \(\)$"),
    ("no words", WORDS[:, :0], ValueError, r"shape \(5, 0\)$"),
    ("too few rows", WORDS[1:], ValueError, r"shape \(4, 1\)$"),
    ("too many axes", WORDS[None], ValueError, r"shape \(1, 5, 1\)$"),
]
NO_IDS: list[tuple[str, Replacement, type[Exception], str]] = [
    ("float64", np.ones(3), TypeError, r"float64 of shape \(3,\)$"),
    ("bool", np.ones(V, bool), TypeError, r"bool of shape \(11,\)$"),
    ("text", "abc", TypeError, "str96 of shape"),
    ("set", {1, 2}, TypeError, r"object of shape \(\)$"),
    ("masked", np.ma.masked_array([1, 2]), TypeError, ".*[Mm]ask"),
    ("GPU tensor", dlpack(np.arange(3), device=2), TypeError, ""),
]
NO_ALLOWED_IDS: list[tuple[str, Replacement, type[Exception], str]] = [
    *NO_IDS,
    ("one id", 3, ValueError, r"shape \(\)$"),
    ("2-d", np.ones((N, 2), int), ValueError, r"shape \(5, 2\); a list of its rows"),
    ("too few lists", FEW[1:], ValueError, "one of 4$"),
    ("V", [3, V], IndexError, r"11 at position \(1,\)$"),
    ("-1", np.array([-1], np.int8), IndexError, r"-1 at position \(0,\)$"),
    ("2^40", [2**40], IndexError, r"1099511627776 at position \(0,\)$"),
]
NO_VOCAB_IDS: list[tuple[str, Replacement, type[Exception], str]] = [
    *NO_IDS,
    ("too few", np.arange(V - 1), ValueError, r"shape \(10,\)$"),
    ("2-d", np.arange(V)[None], ValueError, r"shape \(1, 11\)$"),
    ("descending", np.arange(V)[::-1], ValueError, r"9 after 10 at position \(1,\)$"),
    ("repeated", np.arange(V) // 2, ValueError, r"0 after 0 at position \(1,\)$"),
    ("-1", np.arange(V) - 1, ValueError, r"-1 at position \(0,\)$"),
    ("2^31", np.arange(V) + 2**31, ValueError, r"2147483648 at position \(0,\)$"),
]
SHAPE_RULES = {
    "hidden": rf"shape \(\.\.\., D\) with D as in weight of shape \({V}, {D}\)",
    "weight": rf"shape \(V, D\) with D = (\d+) as in hidden of shape \({N}, \1\)",
    "logits": r"shape \(\.\.\., V\)",
    "x": r"shape \(\.\.\., D\)",
}
BAD_SHAPES: dict[str, list[tuple[str, Replacement, type[Exception], str]]] = {
    "weight": [
        ("other D", np.ones((4, 13), np.float32), ValueError, r"shape \(4, 13\)$"),
        ("1-d", np.ones(D, np.float32), ValueError, rf"shape \({D},\)$"),
        ("3-d", np.ones((2, V, D), np.float32), ValueError, rf"shape \(2, {V}, {D}\)$"),
        ("(D, V)", np.ones((D, V), np.float32), ValueError, rf"shape \({D}, {V}\); .*weight\.T$"),
        ("empty list", [], ValueError, r"shape \(0,\)$"),
        ("tensor of other D", dlpack(np.ones((4, 13), np.float32)), ValueError, r"shape \(4, 13\)$"),
        ("float64", lambda a: a.astype(np.float64), TypeError, r"float32; .*\.astype\(numpy\.float64\)$"),
    ],
    "hidden": [
        ("other D", np.ones((5, 13), np.float32), ValueError, rf"shape \({V}, {D}\)$"),
        ("no elements", np.ones((5, 0), np.float32), ValueError, rf"shape \({V}, {D}\)$"),
        ("float64", lambda a: a.astype(np.float64), TypeError, r"float32; .*\.astype\(numpy\.float64\)$"),
    ],
}
# The message names the argument that does not fit the other one.
BLAMED = {("hidden", "other D"): "weight", ("hidden", "no elements"): "weight", ("hidden", "float64"): "weight"}
BLAMED[("weight", "float64")] = "hidden"


def bad_vectors(length: int) -> list[tuple[str, Replacement, type[Exception], str]]:
    return [
        ("too short", np.ones(length - 1, np.float32), ValueError, rf"shape \({length - 1},\)$"),
        ("empty", [], ValueError, r"shape \(0,\)$"),
        ("2-d", np.ones((1, length), np.float32), ValueError, rf"shape \(1, {length}\)$"),
        ("tensor too long", dlpack(np.ones(length + 1, BFLOAT16)), ValueError, rf"shape \({length + 1},\)$"),
    ]


def bad_outs(shape: tuple[int, ...], *, halves: bool = False) -> list[tuple[str, Replacement, type[Exception], str]]:
    """Return what cannot take a result of a shape in float32, or in a dtype of two bytes if `halves`."""

    def out(dtype: Any = np.float32) -> Array:
        return np.full(shape, SENTINEL).astype(dtype)

    self_overlapping = as_strided(np.full(100, SENTINEL, np.float32), shape, (4,) * len(shape))
    broadcast = as_strided(np.full(100, SENTINEL, np.float32), shape, (0, 4)[: len(shape)])
    dtypes = [np.float64, np.float16, BFLOAT16, np.longdouble, np.int32, np.uint32, bool, np.complex64, object, "f4,f4"]
    wrong_shape = [(*shape, 1), (1, *shape), shape[:-1], shape[::-1], (*shape[:-1], shape[-1] + 1), (0,)]
    return [
        *(
            (f"dtype {np.dtype(d)}", out(d), TypeError, "")
            for d in dtypes
            if not (halves and np.dtype(d).itemsize == 2)
        ),
        ("byte-swapped", out(np.dtype(np.float32).newbyteorder()), TypeError, ">f4$"),
        ("list", out().tolist(), TypeError, "list$"),
        ("text", "out", TypeError, "str$"),
        ("memoryview", memoryview(bytes(out())), TypeError, "memoryview$"),
        ("tensor", dlpack(out()), TypeError, ".*Tensor$"),
        ("number", np.float32(SENTINEL), TypeError, "numpy.float32$"),
        ("masked", np.ma.masked_array(out(), mask=True), TypeError, ".*[Mm]ask"),
        *(
            (f"shape {s}", np.full(s, SENTINEL, np.float32), ValueError, "shape ")
            for s in dict.fromkeys(wrong_shape)
            if s != shape
        ),
        ("read-only", read_only(out()), ValueError, "a read-only one$"),
        ("broadcast", broadcast, ValueError, ""),
        ("no broadcast, but elements share memory", self_overlapping, ValueError, "")
        if len(shape) > 1
        else ("broadcast view", np.broadcast_to(np.float32(SENTINEL), shape), ValueError, "a read-only one$"),
    ]


def kinds_of(name: str, argument: str) -> list[tuple[str, Replacement, type[Exception], str]]:
    """Return what is no good for an argument of the function `name`."""
    if argument in OPERANDS[name]:
        return [*NO_FLOATS, *NO_NUMBERS, *BAD_SHAPES.get(argument, [])]
    if argument in VECTORS.get(name, ()):
        return [*NO_NUMBERS, *bad_vectors(vector_length(name, argument))]
    if argument in REALS:
        return [*NO_REALS, *REALS[argument]]
    if argument in INTEGERS:
        return [*(kind for kind in NO_INTEGERS if kind[0] not in WELCOME.get(argument, ())), *INTEGERS[argument]]
    if argument in GRADIENT_SHAPES.get(name, {}):
        return bad_outs(GRADIENT_SHAPES[name][argument], halves=True)
    if argument == "out":
        return bad_outs(OUT_SHAPES[name])
    others = {"targets": NO_TARGETS, "wrt": NO_NAMES, "stats": NO_FLAGS, "accumulate": NO_FLAGS}
    others |= {"reduction": NO_WORDS, "empty": NO_WORDS}
    others |= {"mask": NO_MASKS, "allowed_ids": NO_ALLOWED_IDS, "vocab_ids": NO_VOCAB_IDS}
    assert argument in others, f"{name} has a parameter that no case is written for: {argument}"
    return others[argument]


def all_cases() -> Iterator[Case]:
    for name in OPERANDS:
        for argument in inspect.signature(getattr(native, name)).parameters:
            yield from (Case(name, argument, *kind) for kind in kinds_of(name, argument))


def replaced(case: Case) -> dict[str, Any]:
    given = arguments(case.function)
    given[case.argument] = case.bad(given[case.argument]) if callable(case.bad) else case.bad
    outs = GRADIENT_SHAPES.get(case.function, {})
    return {argument: np.full(shape, SENTINEL, np.float32) for argument, shape in outs.items()} | given


def expected_message(case: Case) -> str:
    blamed = BLAMED.get((case.argument, case.what), case.argument)
    rule = SHAPE_RULES[blamed] if blamed in SHAPE_RULES and "shape" in case.got else ".+"
    return f"^{blamed}: expected {rule}, got {case.got}"


def contents(given: dict[str, Any]) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in given.items() if isinstance(value, np.ndarray)}


ALL_CASES = list(all_cases())
# Of arguments that the reference takes too.
REFERENCE_CASES = [
    case for case in ALL_CASES if case.argument in inspect.signature(getattr(reference, case.function)).parameters
]


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: f"{case.function}-{case.argument}-{case.what}")
def test_refused(case: Case) -> None:
    given = replaced(case)
    if case.function in OUT_SHAPES and "out" not in given:
        given["out"] = np.full(OUT_SHAPES[case.function], SENTINEL, np.float32)
    before = contents(given)
    with pytest.raises(case.error, match=expected_message(case)) as caught:
        call(case.function, given)
    assert type(caught.value) is case.error
    assert "\n" not in str(caught.value)
    assert contents(given) == before
    good = arguments(case.function)
    for after, fresh in zip(
        results(call(case.function, good)), results(call(case.function, arguments(case.function))), strict=True
    ):
        assert_same_bits(after, fresh)


# Of these both modules say the very same.
SAME_WORDS = {
    *("reduction", "empty", "stats", "accumulate", "wrt", "ignore_index", "shift", "chunk_rows", "label_smoothing"),
    *("lse_square_scale", "num_items", "filter_eps", "dlogits_out", "dhidden_out", "dweight_out", "dbias_out"),
}


@pytest.mark.parametrize("case", REFERENCE_CASES, ids=lambda case: f"{case.function}-{case.argument}-{case.what}")
def test_the_reference_refuses_the_same(case: Case) -> None:
    given = replaced(case)
    # Of hidden and weight that do not fit each other, either may be named.
    with pytest.raises(
        case.error, match=rf"^({case.argument}|{BLAMED.get((case.argument, case.what))}): expected .+, got "
    ) as caught:
        call(case.function, given, reference)
    if case.argument in SAME_WORDS:
        with pytest.raises(case.error, match=f"^{re.escape(str(caught.value))}$"):
            call(case.function, given)


# ---- the runtime ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "error", "got"),
    [(bad, error, got) for _, bad, error, got in [NONE, *NO_INTEGERS, *INTEGERS["threads"]]],
    ids=[what for what, *_ in [NONE, *NO_INTEGERS, *INTEGERS["threads"]]],
)
def test_set_num_threads(bad: Any, error: type[Exception], got: str) -> None:
    before = native.get_num_threads()
    with pytest.raises(error, match=rf"^n: expected an integer from 1 to 1024, got {got}"):
        native.set_num_threads(bad)
    assert native.get_num_threads() == before


@pytest.mark.parametrize("mode", ["stdin", "", None, 3])
def test_show_config(mode: Any) -> None:
    with pytest.raises(ValueError, match=r"^mode: expected 'stdout' or 'dicts', got "):
        native.show_config(mode)


def test_shapes_of_the_table() -> None:
    """The good arguments are good, so each refusal is of what was replaced."""
    for name in OPERANDS:
        answer = results(call(name, arguments(name)))
        assert answer[0].shape == ((N,) if name in LOSSES else OUT_SHAPES.get(name, (N, 4)))
        assert {operand: SHAPES[operand] for operand in OPERANDS[name]}.items() <= {
            k: np.shape(v) for k, v in arguments(name).items()
        }.items()
