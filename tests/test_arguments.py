"""What counts as an array or a number: Python sequences, buffers, DLPack tensors, subclasses, dtypes, layouts.

The same values must give the same bits however they come, and no argument is ever written. What is refused is in
test_errors.py.
"""

from __future__ import annotations

import array
import ctypes
import gc
import weakref
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
import oracle
from calls import OPERANDS, VECTORS, arguments, call, results, row_results, with_rows
from layouts import dlpack, layouts
from oracle import BFLOAT16, FLOATS, NARROW, assert_same_bits

Array = NDArray[Any]
EVERY_FUNCTION = pytest.mark.parametrize("name", OPERANDS)
REALS = [*FLOATS, *(np.dtype(d) for d in ("i1", "u1", "i8", "u8", ">i4", ">f8", np.longdouble))]
EVERY_DTYPE = pytest.mark.parametrize("dtype", FLOATS, ids=str)


def assert_same_answer(name: str, given: dict[str, Any], plain: dict[str, Any]) -> None:
    for actual, expected in zip(results(call(name, given)), results(call(name, plain)), strict=True):
        assert type(actual) is np.ndarray
        assert_same_bits(actual, expected)


def dense(values: Array) -> Array:
    """Return native, contiguous memory of its own."""
    return np.array(values, dtype=values.dtype.newbyteorder("=")) if values.dtype != BFLOAT16 else values.copy()


# ---- the same values in other memory -------------------------------------------------------------------------------


@EVERY_FUNCTION
@EVERY_DTYPE
def test_layouts(name: str, dtype: np.dtype[Any], each_isa: str) -> None:
    plain = arguments(name, dtype)
    for vector in VECTORS.get(name, ()):
        plain[vector] = plain[vector].astype(np.float64)
    for argument in (*OPERANDS[name], *VECTORS.get(name, ())):
        for layout, values in layouts(plain[argument]).items():
            before = values.tobytes()
            assert_same_answer(name, plain | {argument: values}, plain)
            assert values.tobytes() == before, layout


@EVERY_FUNCTION
@EVERY_DTYPE
def test_dlpack(name: str, dtype: np.dtype[Any]) -> None:
    plain = arguments(name, dtype)
    for argument in (*OPERANDS[name], *VECTORS.get(name, ())):
        assert_same_answer(name, plain | {argument: dlpack(plain[argument])}, plain)
        for values in (np.asfortranarray(plain[argument]), plain[argument][::-1].copy()[::-1]):
            assert_same_answer(name, plain | {argument: dlpack(values)}, plain)
    everything = {key: dlpack(value) if isinstance(value, np.ndarray) else value for key, value in plain.items()}
    assert_same_answer(name, everything, plain)


def test_dlpack_offsets_and_missing_strides() -> None:
    """The producer may point before the first element, and may leave the strides of a dense tensor out."""

    class Edited:
        def __init__(self, values: Array, *, offset: int) -> None:
            self._values, self._offset = values, offset

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        def __dlpack__(self) -> object:
            capsule = self._values.__dlpack__()
            pointer = ctypes.pythonapi.PyCapsule_GetPointer
            pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            tensor = pointer(capsule, b"dltensor")
            # DLTensor: data 0, device 8, ndim 16, dtype 20, shape 24, strides 32, byte_offset 40.
            ctypes.c_uint64.from_address(tensor).value -= self._offset
            ctypes.c_uint64.from_address(tensor + 32).value = 0
            ctypes.c_uint64.from_address(tensor + 40).value = self._offset
            return capsule

    x = np.random.default_rng(3).standard_normal((3, 4, 5)).astype(np.float32)
    assert_same_bits(native.softmax(Edited(x, offset=64)), native.softmax(x))


def test_a_dlpack_capsule_is_consumed_and_freed() -> None:
    class Exporter:
        def __init__(self) -> None:
            self.values = np.arange(6, dtype=np.float32).reshape(2, 3)
            self.capsules: list[object] = []

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        def __dlpack__(self) -> object:
            self.capsules.append(self.values.__dlpack__())
            return self.capsules[-1]

    exporter = Exporter()
    watch = weakref.ref(exporter.values)
    answer = native.softmax(exporter)
    assert_same_bits(answer, native.softmax(exporter.values))
    assert len(exporter.capsules) == 1
    assert '"used_dltensor"' in repr(exporter.capsules[0])
    del exporter.values
    gc.collect()
    assert watch() is None  # whoever consumes a capsule calls its deleter


@EVERY_FUNCTION
def test_buffers(name: str) -> None:
    plain = arguments(name)
    for argument in (*OPERANDS[name], *VECTORS.get(name, ())):
        assert_same_answer(name, plain | {argument: memoryview(plain[argument])}, plain)
    row = array.array("f", [3.0, 1.0, 2.0])
    assert native.softmax(row).dtype == np.float32
    assert_same_bits(native.softmax(row), native.softmax(np.array(row)))
    assert_same_bits(native.softmax(array.array("d", row)), native.softmax(np.array(row, np.float64)))


@EVERY_FUNCTION
def test_subclasses_and_files(name: str, tmp_path: Path) -> None:
    class Labelled(np.ndarray[Any, Any]):
        """An array whose own indexing would break whoever used it."""

        def __getitem__(self, _: object) -> Any:
            raise AssertionError

    plain = arguments(name)
    for argument in (*OPERANDS[name], *VECTORS.get(name, ())):
        assert_same_answer(name, plain | {argument: plain[argument].view(Labelled)}, plain)
        file = tmp_path / f"{argument}.npy"
        np.save(file, plain[argument])
        assert_same_answer(name, plain | {argument: np.load(file, mmap_mode="r")}, plain)


class Wrapped:
    """An object that NumPy can turn into an array."""

    def __init__(self, values: Array) -> None:
        self._values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self._values


class Described:
    """An object that describes its memory as NumPy's own interface does, without being a sequence of numbers."""

    def __init__(self, values: Array) -> None:
        self._values = values
        self.__array_interface__ = values.__array_interface__


@EVERY_FUNCTION
@pytest.mark.parametrize("wrap", [Wrapped, Described])
def test_objects_that_become_arrays(name: str, wrap: Callable[[Array], Any]) -> None:
    plain = arguments(name)
    for argument in (*OPERANDS[name], *VECTORS.get(name, ())):
        assert_same_answer(name, plain | {argument: wrap(plain[argument])}, plain)


# ---- sequences -----------------------------------------------------------------------------------------------------


@EVERY_FUNCTION
def test_sequences_alone_are_float64(name: str) -> None:
    plain = arguments(name, np.float64)
    for convert in (lambda a: a.tolist(), lambda a: tuple(map(tuple, a.tolist())), list):
        given = {key: convert(value) if key in OPERANDS[name] else value for key, value in plain.items()}
        assert_same_answer(name, given, plain)
    assert native.topk(range(5), 2).values.dtype == np.float64
    assert native.topk([np.float32(1), np.float32(2)], 1).values.dtype == np.float64


@EVERY_DTYPE
@pytest.mark.parametrize("name", ["logits", "logits_topk"])
def test_sequences_take_the_dtype_beside_them(name: str, dtype: np.dtype[Any]) -> None:
    """A third is no number of any of these formats: what it is rounded to tells them apart."""
    plain = arguments(name, dtype)
    plain["hidden"][0] = plain["weight"][0] = dtype.type(1 / 3)
    wide = {key: np.asarray(value, np.float64) for key, value in plain.items() if key in OPERANDS[name]}
    wide["hidden"][0] = wide["weight"][0] = 1 / 3
    for sequence, beside in (("hidden", "weight"), ("weight", "hidden")):
        for tensor in (plain[beside], dlpack(plain[beside])):
            assert_same_answer(name, plain | {sequence: wide[sequence].tolist(), beside: tensor}, plain)


@pytest.mark.parametrize("name", ["logits", "logits_topk"])
def test_integers_in_sequences(name: str) -> None:
    plain = arguments(name) | {"hidden": np.arange(5 * 12, dtype=np.float32).reshape(5, 12)}
    assert_same_answer(name, plain | {"hidden": plain["hidden"].astype(int).tolist()}, plain)


def test_a_cast_that_overflows_warns_as_numpy_does() -> None:
    weight = np.ones((2, 1), np.float32)
    for given in (
        {"hidden": [1e39]},
        {"hidden": [0.0], "bias": [1e39, 1e39]},
        {"hidden": [0.0], "bias": np.full(2, 1e39)},
    ):
        with pytest.warns(RuntimeWarning, match="overflow"):
            np.testing.assert_array_equal(native.logits(weight=weight, **given), [np.inf, np.inf])


# ---- dtypes --------------------------------------------------------------------------------------------------------


@EVERY_DTYPE
@pytest.mark.parametrize("weight_dtype", FLOATS, ids=str)
def test_dtype_table(dtype: np.dtype[Any], weight_dtype: np.dtype[Any], each_isa: str) -> None:
    hidden, weight = np.full((2, 3), 1.5).astype(dtype), np.full((4, 3), 2.5).astype(weight_dtype)
    if (dtype == np.float64) != (weight_dtype == np.float64):
        with pytest.raises(
            TypeError, match=r"^(hidden|weight): expected float64 beside the float64 (hidden|weight), got"
        ):
            native.logits(hidden, weight)
        return
    expected = np.full((2, 4), 3 * 1.5 * 2.5, oracle.result_dtype(dtype))
    np.testing.assert_array_equal(native.logits(hidden, weight), expected, strict=True)
    np.testing.assert_array_equal(native.logits_topk(hidden, weight, 4).values, expected, strict=True)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("name", [name for name in OPERANDS if "weight" not in OPERANDS[name]])
def test_rows_are_widened_exactly(name: str, dtype: np.dtype[Any]) -> None:
    given = arguments(name, dtype)
    operand = OPERANDS[name][0]
    assert_same_answer(name, given, given | {operand: given[operand].astype(np.float32)})


@pytest.mark.parametrize("hidden_dtype", NARROW, ids=str)
@pytest.mark.parametrize("weight_dtype", NARROW, ids=str)
def test_operands_are_widened_exactly(hidden_dtype: np.dtype[Any], weight_dtype: np.dtype[Any]) -> None:
    """1.5 is 1.5: not 1 (an integer's view of it), not 16320 (its bits)."""
    bits = {np.dtype(np.float32): 1.5, np.dtype(np.float16): 1.5, BFLOAT16: 1.5}
    hidden, weight = np.full(1, bits[hidden_dtype], hidden_dtype), np.eye(1, dtype=np.float32).astype(weight_dtype)
    for h, w in [
        (hidden, weight),
        (dlpack(hidden), weight),
        (hidden, dlpack(weight)),
        (dlpack(hidden), dlpack(weight)),
    ]:
        assert native.logits(h, w) == 1.5
        assert native.logits_topk(h, w, 1).values == 1.5
    assert native.topk(hidden, 1).values == 1.5
    assert native.logsumexp(hidden) == 1.5


@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_vectors_of_any_real_dtype(dtype: np.dtype[Any]) -> None:
    hidden, weight, x = np.zeros((2, 3), np.float32), np.zeros((5, 3), np.float32), np.full((1, 5), 2, np.float32)
    values = np.arange(5).astype(dtype)
    expected = np.arange(5, dtype=np.float32)
    forms: list[Any] = [
        values,
        values.tolist(),
        tuple(values.tolist()),
        np.stack([values, values], axis=1)[:, 0],
        values[::-1].copy()[::-1],
    ]
    if dtype in FLOATS:
        forms.append(dlpack(values))
    for form in forms:
        np.testing.assert_array_equal(native.logits(hidden, weight, bias=form), [expected, expected])
        np.testing.assert_array_equal(native.logits_topk(hidden, weight, 1, bias=form).indices, [[4], [4]])
        np.testing.assert_array_equal(native.layer_norm(x, None, form), [expected])
        np.testing.assert_array_equal(native.rms_norm(x, form, eps=0.0), [expected])


def test_other_two_byte_types_are_not_bfloat16() -> None:
    values = np.ones(3, np.uint16)
    for other in (values, values.view("i2"), values.view("V2"), values.view("S2"), np.ones(3, ml_dtypes.float8_e5m2)):
        with pytest.raises(TypeError, match=r"^logits: expected "):
            native.softmax(other)


# ---- numbers -------------------------------------------------------------------------------------------------------


def test_what_counts_as_a_number() -> None:
    x = arguments("softmax")["logits"]
    hidden, weight = arguments("logits")["hidden"], arguments("logits")["weight"]
    halves: list[Any] = [
        np.float16(0.5),
        np.float32(0.5),
        np.float64(0.5),
        BFLOAT16.type(0.5),
        np.array(0.5),
        Fraction(1, 2),
        Decimal("0.5"),
    ]
    for half in halves:
        assert_same_bits(native.softmax(x, temperature=half), native.softmax(x, temperature=0.5))
        assert_same_bits(native.logits(hidden, weight, softcap=half), native.logits(hidden, weight, softcap=0.5))
        assert_same_bits(native.logits(hidden, weight, scale=half), native.logits(hidden, weight, scale=0.5))
        assert_same_bits(native.layer_norm(x, eps=half), native.layer_norm(x, eps=0.5))
    twos: list[Any] = [2, np.int8(2), np.uint64(2), np.array(2)]
    for two in twos:
        assert_same_bits(native.softmax(x, temperature=two), native.softmax(x, temperature=2.0))
        assert native.topk(x, two, threads=two).indices.shape == (5, 2)


class Index:
    """An integer by `operator.index`."""

    def __index__(self) -> int:
        return 3


def test_what_counts_as_an_integer() -> None:
    x = arguments("topk")["logits"]
    assert native.topk(x, Index()).indices.shape == (5, 3)  # type: ignore[arg-type]
    assert_same_bits(native.softmax(x, threads=Index()), native.softmax(x))  # type: ignore[arg-type]


# ---- shapes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leading", [(), (1,), (6,), (2, 3), (3, 1, 2), (0,), (2, 0, 3)], ids=str)
@EVERY_FUNCTION
def test_leading_dimensions_are_free(name: str, leading: tuple[int, ...]) -> None:
    """An array of any rank is its rows, one after the other."""
    plain = arguments(name)
    operand = OPERANDS[name][0]
    width = plain[operand].shape[-1]
    values = np.random.default_rng(7).standard_normal((*leading, width)).astype(np.float32)
    given = with_rows(name, plain, values)
    answer = row_results(name, call(name, given))
    flat = row_results(name, call(name, with_rows(name, given, values.reshape(-1, width))))
    for actual, expected in zip(answer, flat, strict=True):
        assert actual.shape == (*leading, *expected.shape[1:])
        assert_same_bits(actual.reshape(expected.shape), expected)


@EVERY_FUNCTION
def test_leading_strides_that_are_no_single_stride(name: str) -> None:
    plain = arguments(name)
    operand = OPERANDS[name][0]
    width = plain[operand].shape[-1]
    base = np.random.default_rng(8).standard_normal((4, 3, 5, width)).astype(np.float32)
    one_row = np.broadcast_to(base[0, 0, 0], (3, 2, width))
    for view in (base.transpose(2, 0, 1, 3), base[::2, :, ::-2], base[:, 1:, 2], np.moveaxis(base, 0, 2), one_row):
        assert_same_answer(name, with_rows(name, plain, view), with_rows(name, plain, dense(view)))
