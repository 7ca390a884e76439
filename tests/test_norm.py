"""``layer_norm`` and ``rms_norm`` against float64: every width, offsets, odd rows, `out`.

Knows that sums are taken in float64 and rounded once, and bounds errors by that: half an ulp of a float32 result.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

import lmhead_native as native
import oracle
from layouts import dlpack, layouts
from parameters import every_dtype

pytestmark = pytest.mark.usefixtures("each_isa")

Array = NDArray[Any]
DType = np.dtype[Any]
INF, NAN = math.inf, math.nan

SIZES = (*range(1, 71), 73, 101, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025)
ROWS = (1, 2, 7, 15, 16, 17, 33, 64)


def some_rows(rows: int, width: int, dtype: DType, offset: float = 0.0) -> Array:
    return (np.random.default_rng([rows, width]).standard_normal((rows, width)) + offset).astype(dtype)


def check_layer(
    x: Array, threads: int, gain: ArrayLike | None = None, bias: ArrayLike | None = None, eps: float = 1e-5
) -> None:
    y = native.layer_norm(x, gain, bias, eps=eps, threads=threads)
    assert y.dtype == oracle.result_dtype(x.dtype)
    exact = oracle.layer_norm_exact(x, gain, bias, eps=eps)
    bound = oracle.layer_norm_bound(x, gain, bias, eps=eps, result="float64")
    if y.dtype == np.float32:
        bound = bound + oracle.UNIT["float32"] * np.abs(exact) + oracle.UNDERFLOW["float32"]
    oracle.assert_within(y, exact, bound)


def check_rms(x: Array, threads: int, gain: ArrayLike | None = None, eps: float = 1e-6) -> None:
    y = native.rms_norm(x, gain, eps=eps, threads=threads)
    assert y.dtype == oracle.result_dtype(x.dtype)
    exact = oracle.rms_norm_exact(x, gain, eps=eps)
    bound = oracle.rms_norm_bound(x, gain, eps=eps, result="float64")
    if y.dtype == np.float32:
        bound = bound + oracle.UNIT["float32"] * np.abs(exact) + oracle.UNDERFLOW["float32"]
    oracle.assert_within(y, exact, bound)


# ---- values --------------------------------------------------------------------------------------------------------


@every_dtype
def test_every_width(threads: int, dtype: DType) -> None:
    rng = np.random.default_rng(1)
    for width in SIZES:
        x, gain, bias = some_rows(ROWS[width % len(ROWS)], width, dtype, 0.5), *rng.standard_normal((2, width))
        check_layer(x, threads, gain, bias)
        check_rms(x, threads, gain)


@every_dtype
def test_every_number_of_rows(threads: int, dtype: DType) -> None:
    """Up to what is shared out: above 16,384 elements."""
    for rows, width in [*((n, 37) for n in range(70)), (700, 37), (17, 1025), (4, 4100)]:
        check_layer(some_rows(rows, width, dtype), threads)
        check_rms(some_rows(rows, width, dtype), threads)


@every_dtype
def test_gain_bias_and_eps(threads: int, dtype: DType) -> None:
    x, (gain, bias) = some_rows(5, 29, dtype), np.random.default_rng(2).standard_normal((2, 29))
    for g, b, eps in itertools.product((None, gain), (None, bias), (0.0, 1e-12, 1e-5, 3.0)):
        check_layer(x, threads, g, b, eps)
        check_rms(x, threads, g, eps)


@every_dtype
def test_a_large_offset_and_a_small_spread(threads: int, dtype: DType) -> None:
    """The variance comes from centred values: 4096 and its next neighbours still have one."""
    for width in (2, 17, 300):
        step = 4096 * 2 * oracle.UNIT[dtype.name]
        x = (4096 + step * (np.arange(3 * width).reshape(3, width) % 5 + 1)).astype(dtype)
        assert (x.min(axis=-1) < x.max(axis=-1)).all()
        check_layer(x, threads, eps=0.0)
        check_rms(x, threads)


def test_by_hand(threads: int) -> None:
    for dtype in oracle.FLOATS:
        x = np.array([3, 7, 3, 7], dtype)  # mean 5, variance 4; below, mean square 25
        result = oracle.result_dtype(dtype)
        hand: list[tuple[Array, list[float]]] = [
            (native.layer_norm(x, eps=0, threads=threads), [-1, 1, -1, 1]),
            (native.layer_norm(x, [1, 2, 4, -1], [0, 0.5, 0, 1], eps=0, threads=threads), [-1, 2.5, -4, 0]),
            (native.layer_norm(x, eps=12, threads=threads), [-0.5, 0.5, -0.5, 0.5]),
            (
                native.rms_norm(np.array([1, 7, 5, 5], dtype), [1, 2, 4, -1], eps=39, threads=threads),
                [0.125, 1.75, 2.5, -0.625],
            ),
        ]
        for actual, expected in hand:
            np.testing.assert_array_equal(actual, np.array(expected, result), strict=True)


def test_extreme_magnitudes(threads: int) -> None:
    """Squares of float32 neither overflow nor underflow in float64."""
    for size in (1e-44, 1e-30, 1e30, 3e38):
        x = (size * np.array([[1, -0.5, 0.25, 0.75], [1, 1, 1, -1]])).astype(np.float32)
        check_layer(x, threads, eps=0.0)
        check_rms(x, threads, eps=0.0)


# ---- odd rows ------------------------------------------------------------------------------------------------------


@every_dtype
def test_odd_rows_stay_alone(threads: int, dtype: DType) -> None:
    for width in (1, 2, 7, 8, 9, 16, 33, 257):
        for at in {0, width // 2, width - 1}:
            rows = some_rows(4, width, dtype)
            rows[1, at], rows[2, at] = NAN, -INF
            gain = np.full(width, 2.0)
            layer, rms = (
                native.layer_norm(rows, gain, gain, threads=threads),
                native.rms_norm(rows, gain, threads=threads),
            )
            assert np.isnan(layer[1:3]).all()
            assert np.isnan(rms[1]).all()
            np.testing.assert_array_equal(rms[2], np.where(np.arange(width) == at, NAN, 0))
            for n in (0, 3):
                oracle.assert_same_bits(layer[n], native.layer_norm(rows[n], gain, gain, threads=1))
                oracle.assert_same_bits(rms[n], native.rms_norm(rows[n], gain, threads=1))


@every_dtype
def test_constant_and_empty_rows(threads: int, dtype: DType) -> None:
    bias = np.arange(5.0)
    constant = native.layer_norm(np.full((2, 5), 3).astype(dtype), np.full(5, 9.0), bias, threads=threads)
    np.testing.assert_array_equal(constant, [bias, bias])
    np.testing.assert_array_equal(native.rms_norm(np.zeros((2, 5), dtype), threads=threads), np.zeros((2, 5)))
    for shape in [(3, 0), (0,), (0, 5), (2, 0, 4)]:
        x, small = np.zeros(shape, dtype), np.zeros(shape[-1])
        for y in (native.layer_norm(x, small, small, threads=threads), native.rms_norm(x, small, threads=threads)):
            assert y.shape == shape
            assert y.dtype == oracle.result_dtype(dtype)


# ---- memory --------------------------------------------------------------------------------------------------------


@every_dtype
def test_any_memory(threads: int, dtype: DType) -> None:
    x, gain, bias = some_rows(6, 37, dtype), some_rows(1, 37, dtype)[0], some_rows(2, 37, dtype)[1]
    layer, rms = native.layer_norm(x, gain, bias, threads=1), native.rms_norm(x, gain, threads=1)
    gains, biases = layouts(gain), layouts(bias)
    for name, view in [*layouts(x).items(), ("dlpack", dlpack(x))]:
        g, b = gains.get(name, dlpack(gain)), biases.get(name, dlpack(bias))
        oracle.assert_same_bits(native.layer_norm(view, g, b, threads=threads), layer)
        oracle.assert_same_bits(native.rms_norm(view, g, threads=threads), rms)
    cube = x.reshape(2, 3, 37).swapaxes(0, 1)
    oracle.assert_same_bits(
        native.layer_norm(cube, gain, bias, threads=threads), layer.reshape(2, 3, 37).swapaxes(0, 1)
    )


@every_dtype
def test_out(threads: int, dtype: DType) -> None:
    x, gain = some_rows(6, 37, dtype), some_rows(1, 37, dtype)[0]
    layer, rms = native.layer_norm(x, gain, gain), native.rms_norm(x, gain)
    whole = np.full((12, 80), NAN, layer.dtype)
    outs = [np.empty_like(layer), np.asfortranarray(layer), whole[::-2, 3:77:2]]
    if x.dtype == layer.dtype:
        outs += [x.copy(), np.asfortranarray(x)]  # in place
    for number, out in enumerate(outs):
        source = out if number > 2 else x
        assert native.layer_norm(source, gain, gain, out=out, threads=threads) is out
        oracle.assert_same_bits(out, layer)
        if number > 2:
            out[...] = x
        assert native.rms_norm(source, gain, out=out, threads=threads) is out
        oracle.assert_same_bits(out, rms)
    assert np.count_nonzero(~np.isnan(whole)) == layer.size


@every_dtype
def test_inputs_are_never_written(threads: int, dtype: DType) -> None:
    x, gain, bias = some_rows(6, 37, dtype), np.ones(37), np.ones(37)
    before = [a.tobytes() for a in (x, gain, bias)]
    native.layer_norm(x, gain, bias, threads=threads)
    native.rms_norm(x[::-1, ::-1], gain, threads=threads)
    assert [a.tobytes() for a in (x, gain, bias)] == before
