"""Bad input of every function: one table of (call, exception, message), and what must not have happened meanwhile.

Every message has the form `<argument>: expected <condition>, got <fact>[; <what to do>]`. The table covers
every parameter of every computing function; a refused call leaves every array as it was, the `out` that came with it
too.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

import lmhead_native as native
from calls import OPERANDS, OUT_SHAPES, SHAPES, VECTORS, D, N, V, arguments, call, results
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
    ("bool", lambda a: a > 0, TypeError, "dtype bool"),
    ("complex", lambda a: a.astype(np.complex64), TypeError, "dtype complex64"),
    ("object", lambda a: a.astype(object), TypeError, "dtype object"),
    ("text array", lambda a: a.astype(str), TypeError, "dtype <U"),
    ("datetime", lambda a: np.zeros(a.shape, "M8[s]"), TypeError, r"dtype datetime64\[s\]"),
    ("timedelta", lambda a: np.zeros(a.shape, "m8[s]"), TypeError, r"dtype timedelta64\[s\]"),
    ("structure", lambda a: np.zeros(a.shape, [("a", "f4")]), TypeError, r"dtype \[\('a', '<f4'\)\]"),
    ("float8", lambda a: a.astype(ml_dtypes.float8_e4m3fn), TypeError, "dtype float8_e4m3fn"),
    ("masked", lambda a: np.ma.masked_array(a, a > 0), TypeError, ".*[Mm]ask"),
    ("masked without a mask", lambda a: np.ma.masked_array(a), TypeError, ".*[Mm]ask"),
    ("text", "abc", TypeError, "dtype <U3"),
    ("bytes", b"abc", TypeError, r"dtype \|S3"),
    ("object()", object(), TypeError, "dtype object"),
    ("set", {1.0}, TypeError, "dtype object"),
    ("dict", {1: 2.0}, TypeError, "dtype object"),
    ("generator", lambda a: (x for x in a), TypeError, "dtype object"),
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
NO_REALS: list[tuple[str, Replacement, type[Exception], str]] = [
    ("bool", True, TypeError, "bool"),
    ("NumPy bool", np.True_, TypeError, "numpy.bool"),
    ("text", "1", TypeError, "str"),
    ("bytes", b"1", TypeError, "bytes"),
    ("NumPy text", np.str_("1"), TypeError, "numpy.str_"),
    ("NumPy bytes", np.bytes_(b"1"), TypeError, "numpy.bytes_"),
    ("complex", 1j, TypeError, "complex"),
    ("NumPy complex", np.complex64(1), TypeError, "numpy.complex64"),
    ("datetime", np.datetime64(3, "s"), TypeError, "numpy.datetime64"),
    ("timedelta", np.timedelta64(3, "s"), TypeError, "numpy.timedelta64"),
    ("list", [1.0], TypeError, "list"),
    ("1-d array", np.ones(1), TypeError, "numpy.ndarray"),
    ("0-d text", np.array("1"), TypeError, "numpy.ndarray"),
    ("0-d bool", np.array(True), TypeError, "numpy.ndarray"),
    ("0-d complex", np.array(1j), TypeError, "numpy.ndarray"),
    ("0-d object", np.array(None), TypeError, "numpy.ndarray"),
    ("object()", object(), TypeError, "object"),
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
}
NO_INTEGERS: list[tuple[str, Replacement, type[Exception], str]] = [
    ("bool", True, TypeError, "bool$"),
    ("NumPy bool", np.True_, TypeError, "numpy.bool"),
    ("float", 2.0, TypeError, "float$"),
    ("NumPy float", np.float64(2), TypeError, "numpy.float64$"),
    ("Decimal", Decimal(2), TypeError, "decimal.Decimal$"),
    ("text", "2", TypeError, "str$"),
    ("bytes", b"2", TypeError, "bytes$"),
    ("complex", 2j, TypeError, "complex$"),
    ("list", [2], TypeError, "list$"),
    ("1-d array", np.array([2]), TypeError, "numpy.ndarray$"),
    ("0-d float", np.array(2.0), TypeError, "numpy.ndarray$"),
    ("0-d bool", np.array(True), TypeError, "numpy.ndarray$"),
    ("negative", -1, ValueError, "-1$"),
    ("below 64 bits", -(2**70), ValueError, "-1180591620717411303424$"),
    ("beyond 64 bits", 2**70, ValueError, "1180591620717411303424$"),
    ("beyond printing", 10**5000, ValueError, ""),
]
INTEGERS: dict[str, list[tuple[str, Replacement, type[Exception], str]]] = {
    "k": [NONE, ("V + 1", V + 1, ValueError, "12$"), ("NumPy V + 1", np.uint8(V + 1), ValueError, "12$")],
    "threads": [("0", 0, ValueError, "0$"), ("1025", 1025, ValueError, "1025$")],
}
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


def bad_outs(name: str) -> list[tuple[str, Replacement, type[Exception], str]]:
    shape = OUT_SHAPES[name]

    def out(dtype: Any = np.float32) -> Array:
        return np.full(shape, SENTINEL).astype(dtype)

    self_overlapping = as_strided(np.full(100, SENTINEL, np.float32), shape, (4,) * len(shape))
    broadcast = as_strided(np.full(100, SENTINEL, np.float32), shape, (0, 4)[: len(shape)])
    dtypes = [np.float64, np.float16, BFLOAT16, np.longdouble, np.int32, np.uint32, bool, np.complex64, object, "f4,f4"]
    wrong_shape = [(*shape, 1), (1, *shape), shape[:-1], shape[::-1], (*shape[:-1], shape[-1] + 1), (0,)]
    return [
        *((f"dtype {np.dtype(d)}", out(d), TypeError, "") for d in dtypes),
        ("byte-swapped", out(np.dtype(np.float32).newbyteorder()), TypeError, "byte-swapped float32$"),
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


def all_cases() -> Iterator[Case]:
    for name, operands in OPERANDS.items():
        parameters = list(inspect.signature(getattr(native, name)).parameters)
        for argument in parameters:
            if argument in operands:
                kinds = [*NO_FLOATS, *NO_NUMBERS, *BAD_SHAPES.get(argument, [])]
            elif argument in VECTORS.get(name, ()):
                kinds = [*NO_NUMBERS, *bad_vectors(V if name.startswith("logits") else D)]
            elif argument in REALS:
                kinds = [*NO_REALS, *REALS[argument]]
            elif argument in INTEGERS:
                kinds = [*NO_INTEGERS, *INTEGERS[argument]]
            else:
                assert argument == "out", f"{name} has a parameter that no case is written for: {argument}"
                kinds = bad_outs(name)
            yield from (Case(name, argument, *kind) for kind in kinds)


def replaced(case: Case) -> dict[str, Any]:
    given = arguments(case.function)
    given[case.argument] = case.bad(given[case.argument]) if callable(case.bad) else case.bad
    return given


def expected_message(case: Case) -> str:
    blamed = BLAMED.get((case.argument, case.what), case.argument)
    rule = SHAPE_RULES[blamed] if blamed in SHAPE_RULES and "shape" in case.got else ".+"
    return f"^{blamed}: expected {rule}, got {case.got}"


def contents(given: dict[str, Any]) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in given.items() if isinstance(value, np.ndarray)}


ALL_CASES = list(all_cases())


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


# The reference only checks `threads`, so it has no upper limit to them.
REFERENCE_ACCEPTS = {("threads", "1025"), ("threads", "beyond 64 bits"), ("threads", "beyond printing")}


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: f"{case.function}-{case.argument}-{case.what}")
def test_the_reference_refuses_the_same(case: Case) -> None:
    given = replaced(case)
    if (case.argument, case.what) in REFERENCE_ACCEPTS:
        assert call(case.function, given, reference) is not None
        return
    # Of hidden and weight that do not fit each other, either may be named.
    with pytest.raises(
        case.error, match=rf"^({case.argument}|{BLAMED.get((case.argument, case.what))}): expected .+, got "
    ):
        call(case.function, given, reference)


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
        assert answer[0].shape == OUT_SHAPES.get(name, (N, 4))
        assert {operand: SHAPES[operand] for operand in OPERANDS[name]}.items() <= {
            k: np.shape(v) for k, v in arguments(name).items()
        }.items()
