"""`out`: filled and returned whatever its strides, refused where it shares memory with an input.

That an `out` of another dtype or shape is refused is in test_errors.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

import lmhead_native as native
from calls import IN_PLACE, OPERANDS, OUT_SHAPES, VECTORS, D, N, V, arguments, call
from layouts import dlpack
from oracle import FLOATS, assert_same_bits

Array = NDArray[Any]
SENTINEL = 7.0


# ---- filled --------------------------------------------------------------------------------------------------------


class Subclass(np.ndarray[Any, Any]):
    """An array of another type."""


def misaligned(buffer: Array) -> Array:
    raw = buffer.view(np.uint8)[..., 1 : 1 - buffer.itemsize]
    return raw.view(buffer.dtype)


# How to take an array of the wanted shape out of a buffer that has room for three rows and columns each.
VIEWS: dict[str, Callable[[Array, tuple[slice, ...]], Array]] = {
    "contiguous": lambda buffer, first: buffer[first].copy(),
    "corner": lambda buffer, first: buffer[first],
    "every third": lambda buffer, first: buffer[..., ::3][first],
    "every third row": lambda buffer, first: buffer[::3][first],
    "backwards": lambda buffer, first: buffer[..., ::-1][first],
    "rows backwards": lambda buffer, first: buffer[::-1][first],
    "transposed": lambda buffer, first: buffer.T.copy().T[first],
    "misaligned": lambda buffer, first: misaligned(buffer)[first],
    "subclass": lambda buffer, first: buffer[first].view(Subclass),
}
VIEW = pytest.mark.parametrize("view", VIEWS)


def taken(view: str, shape: tuple[int, ...], dtype: Any) -> tuple[Array, Array]:
    """Return an array of a shape, full of the sentinel, and the whole of the memory it lies in."""
    buffer = np.full([3 * n for n in shape], SENTINEL, dtype)
    out = VIEWS[view](buffer, tuple(slice(n) for n in shape))
    assert out.shape == shape
    out[...] = SENTINEL
    whole = out
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    return out, whole


@VIEW
@pytest.mark.parametrize("name", OUT_SHAPES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_out_is_filled_and_returned(name: str, dtype: np.dtype[Any], view: str, each_isa: str) -> None:
    given = arguments(name, dtype)
    expected = call(name, given)
    assert expected.shape == OUT_SHAPES[name]
    out, whole = taken(view, expected.shape, expected.dtype)
    assert call(name, given | {"out": out}) is out
    assert_same_bits(np.array(out), expected)
    out[...] = SENTINEL  # what lies between its elements is as it was
    assert whole.tobytes() == taken(view, expected.shape, expected.dtype)[1].tobytes()


@VIEW
@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_out_that_is_the_input(name: str, dtype: type, view: str, each_isa: str) -> None:
    operand = OPERANDS[name][0]
    plain = arguments(name, dtype)
    expected = call(name, plain)
    values, _ = taken(view, expected.shape, dtype)
    values[...] = plain[operand]
    assert call(name, plain | {operand: values, "out": values}) is values
    assert_same_bits(np.array(values), expected)


@pytest.mark.parametrize("name", IN_PLACE)
def test_out_beside_the_input_in_the_same_buffer(name: str) -> None:
    """Interleaved rows and columns touch no common element."""
    operand = OPERANDS[name][0]
    plain = arguments(name)
    expected = call(name, plain)
    n, width = expected.shape
    wide, tall = np.empty((n, 2 * width), np.float32), np.empty((2 * n, width), np.float32)
    for values, out in [
        (wide[:, 0::2], wide[:, 1::2]),
        (wide[:, 1::2], wide[:, -2::-2]),
        (wide[:, :width], wide[:, width:]),
        (tall[0::2], tall[1::2]),
    ]:
        values[...], out[...] = plain[operand], SENTINEL
        assert call(name, plain | {operand: values, "out": out}) is out
        assert_same_bits(np.ascontiguousarray(out), expected)
        assert_same_bits(np.ascontiguousarray(values), plain[operand])


def test_empty_out_in_the_same_place() -> None:
    pool = np.ones(8, np.float32)
    for name in IN_PLACE:
        empty = pool[:0].reshape(3, 0)
        assert call(name, {OPERANDS[name][0]: empty, "out": empty}) is empty
    out = pool[:3]
    assert native.logits(pool[:0], pool[:0].reshape(3, 0), out=out) is out
    np.testing.assert_array_equal(pool, [0, 0, 0, 1, 1, 1, 1, 1])


# ---- shared memory -------------------------------------------------------------------------------------------------

SHARED = [(name, argument) for name in OUT_SHAPES for argument in (*OPERANDS[name], *VECTORS.get(name, ()))]


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("stride", [1, 2, -1])
@pytest.mark.parametrize(("name", "argument"), SHARED)
def test_out_that_overlaps_an_input(name: str, argument: str, stride: int, dtype: type) -> None:
    given = arguments(name, dtype)
    shape, out_shape = np.shape(given[argument]), OUT_SHAPES[name]
    size, out_size = int(np.prod(shape)), int(np.prod(out_shape))
    pool: Array = np.full(2 * size + out_size, SENTINEL, dtype)
    flat = pool[: abs(stride) * size : stride] if stride > 0 else pool[size - 1 :: -1]
    flat[:] = given[argument].ravel()
    view = as_strided(flat, shape, tuple(s // pool.itemsize * flat.strides[0] for s in np.empty(shape, dtype).strides))
    last = (size - 1) * stride if stride > 0 else size - 1
    given |= {argument: view, "out": pool[last : last + out_size].reshape(out_shape)}
    before = pool.copy()
    with pytest.raises(
        ValueError, match=rf"^out: expected memory apart from {argument}\b.*, got memory that overlaps it; pass"
    ):
        call(name, given)
    assert_same_bits(pool, before)
    given["out"] = pool[last + 1 : last + 1 + out_size].reshape(out_shape)  # one further: apart
    assert call(name, given) is given["out"]


@pytest.mark.parametrize("name", IN_PLACE)
def test_out_that_is_the_input_but_in_another_order(name: str) -> None:
    operand = OPERANDS[name][0]
    square = np.random.default_rng(1).standard_normal((D, D)).astype(np.float32)
    views: list[Callable[[Array], Array]] = [lambda a: a.T, lambda a: a[::-1], lambda a: a[:, ::-1], np.flip]
    for view in views:
        before = square.copy()
        with pytest.raises(ValueError, match=rf"^out: expected memory apart from {operand} or exactly its memory, got"):
            call(name, {operand: square, "out": view(square)})
        assert_same_bits(square, before)


def test_a_tensor_that_overlaps_out() -> None:
    pool = np.full(2 * N * V, SENTINEL, np.float32)
    logits, out = pool[: N * V].reshape(N, V), pool[V : V + N * V].reshape(N, V)
    with pytest.raises(ValueError, match=r"^out: expected memory apart from logits"):
        native.softmax(dlpack(logits), out=out)
    assert (pool == SENTINEL).all()
