"""The int8 screen: its integers, exactly, and its certificate, which every logit must keep.

Knows estimates and ends; that lists come out the same with a screen and without is in test_screened_top_k.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
import oracle
from layouts import layouts
from lmhead_native import _core

pytestmark = pytest.mark.usefixtures("every_isa")

Array = NDArray[Any]
# The greatest magnitudes of a weight's bytes and of a hidden row's 16-bit numbers, whose scale and step are then 1.
BYTE, NUMBER = 127, 127 * 256 + 127


def bounds(hidden: Array, weight: Array, threads: int = 2) -> tuple[Array, Array, Array]:
    """Return estimates, lower and upper ends, (N, V) each."""
    screen = _core.Screen(weight, threads)
    estimates, upper = _core.screen_ends(screen, hidden, False, threads)
    again, lower = _core.screen_ends(screen, hidden, True, threads)
    oracle.assert_same_bits(again, estimates)
    return estimates, lower, upper


def check_integers(numbers: Array, q: Array, threads: int = 2) -> None:
    """Whole numbers as hidden rows and weights, of scale and step 1."""
    q[:, 0], numbers[:, 0] = BYTE, NUMBER
    expected = (numbers.astype(np.int64) @ q.T.astype(np.int64)).astype("f4")
    estimates, lower, upper = bounds(numbers.astype("f4"), q.astype("f4"), threads)
    np.testing.assert_array_equal(estimates, expected, strict=True)
    logits = native.logits(numbers.astype("f4"), q.astype("f4"), threads=threads)
    assert (lower <= logits).all()
    assert (logits <= upper).all()


def check_certificate(hidden: Array, weight: Array, threads: int = 2, *, finite: bool = False) -> None:
    """Every logit lies between its ends, where it has any; `finite` says that all have."""
    _, lower, upper = bounds(hidden, weight, threads)
    if finite:
        assert np.isfinite(lower).all()
        assert np.isfinite(upper).all()
    for row in range(len(hidden)):
        logits = native.logits(hidden[row], weight, threads=threads)
        assert not (logits < lower[row]).any()
        assert not (logits > upper[row]).any()


# ---- integers ------------------------------------------------------------------------------------------------------


def test_integers_of_every_width() -> None:
    rng = np.random.default_rng(1)
    for width in range(1, 71):
        rows, vocabulary = 1 + width % 9, (1, 15, 16, 17, 300)[width % 5]
        numbers = rng.integers(-NUMBER, NUMBER + 1, (rows, width))
        check_integers(numbers, rng.integers(-BYTE, BYTE + 1, (vocabulary, width)), 1 + width % 3)


def test_integers_of_any_number_of_rows() -> None:
    rng = np.random.default_rng(2)
    for rows in range(1, 20):
        numbers = rng.integers(-NUMBER, NUMBER + 1, (rows, 130))
        check_integers(numbers, rng.integers(-BYTE, BYTE + 1, (33, 130)))


@pytest.mark.parametrize("number", [NUMBER, -NUMBER, 127, -128, 128, 255, -129, -32384])
def test_extreme_integers(number: int) -> None:
    """Pairs of 8-bit products would saturate at 32767; sums of the widest head come close to 2^31."""
    for width in (256, 4096, _core.SCREEN_WIDTH):
        for byte in (BYTE, -BYTE, 1):
            check_integers(np.full((2, width), number), np.full((3, width), byte))


def test_columns_of_zeros_leave_small_sums_exact() -> None:
    rng = np.random.default_rng(3)
    numbers, q = rng.integers(-200, 200, (3, 4096)), rng.integers(-9, 10, (40, 4096))
    screen = _core.Screen(np.concatenate([q, np.full((40, 1), 0)], axis=1).astype("f4") / np.float32(BYTE))
    assert screen.shape == (40, 4097)
    check_integers(numbers, q)


# ---- the certificate -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight_dtype", oracle.NARROW, ids=str)
@pytest.mark.parametrize("hidden_dtype", oracle.NARROW, ids=str)
def test_every_logit_is_within_its_ends(hidden_dtype: np.dtype[Any], weight_dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(4)
    for vocabulary, width in [(1, 1), (7, 3), (40, 16), (300, 33), (70, 576), (33, 4099)]:
        hidden, weight = rng.standard_normal((3, width)), rng.standard_normal((vocabulary, width))
        hidden[1, :: max(1, width // 3)] *= 300.0
        weight[::3, :: max(1, width // 2)] *= 100.0
        weight[1::5] *= 1e-4
        check_certificate(hidden.astype(hidden_dtype), weight.astype(weight_dtype), 1 + vocabulary % 3, finite=True)


def test_ends_are_reached_by_the_rounding_of_weights() -> None:
    """A hidden state along what the bytes lack: the bound holds, and no bound could be a thousandth smaller."""
    rng = np.random.default_rng(5)
    for width in (5, 64, 577, 4096):
        weight = rng.standard_normal((20, width)).astype("f4")
        scale = (np.abs(weight).max(axis=1) / np.float32(BYTE))[:, None]
        rest = weight - scale.astype("f8") * np.rint(weight / scale)
        hidden = rest.astype("f4")
        estimates, lower, upper = bounds(hidden, weight)
        for row in range(20):
            exact = rest[row] @ rest[row]
            distance = native.logits(hidden[row], weight)[row] - estimates[row, row]
            assert distance == pytest.approx(exact, rel=1e-2)
            assert distance <= upper[row, row] - estimates[row, row] <= 1.02 * distance
            assert lower[row, row] <= estimates[row, row] - distance


def test_ends_are_reached_by_the_rounding_of_hidden_states() -> None:
    rng = np.random.default_rng(6)
    for width in (64, 577):
        hidden = rng.standard_normal((9, width)).astype("f4")
        step = (np.abs(hidden).max(axis=1) / NUMBER).astype("f4")[:, None].astype("f8")
        rest = hidden - step * np.rint(hidden / step)
        weight = np.rint(rest / np.abs(rest).max(axis=1, keepdims=True) * BYTE).astype(
            "f4"
        )  # whole numbers: nothing is lacking
        estimates, _, upper = bounds(hidden, weight)
        for row in range(9):
            distance = hidden[row].astype("f8") @ weight[row].astype("f8") - estimates[row, row]
            assert distance > 0
            assert distance <= upper[row, row] - estimates[row, row] <= 1.5 * distance
        check_certificate(hidden, weight, finite=True)


def test_rounding_of_long_sums_is_covered() -> None:
    """Bytes and numbers hold these exactly, so all that is left is the rounding of float32 sums."""
    rng = np.random.default_rng(7)
    for width in (16, 1000, 20000):
        numbers, q = rng.integers(1, NUMBER + 1, (2, width)), rng.integers(1, BYTE + 1, (200, width))
        check_integers(numbers, q)
        exact = numbers @ q.T
        logits = native.logits(numbers.astype("f4"), q.astype("f4"))
        assert (np.abs(logits - exact) > 0).any()


@pytest.mark.parametrize("weight_scale", [1e30, 1.0, 1e-30, 1e-36, 1e-38, 1e-42, 1e-45])
@pytest.mark.parametrize("hidden_scale", [1e30, 1e5, 1.0, 1e-30])
def test_scales(hidden_scale: float, weight_scale: float) -> None:
    rng = np.random.default_rng(8)
    hidden, weight = rng.standard_normal((3, 40)), rng.standard_normal((50, 40))
    weight[::7] = 0
    with np.errstate(over="ignore", under="ignore"):
        pair = (hidden * hidden_scale).astype("f4"), (weight * weight_scale).astype("f4")
        if weight_scale * hidden_scale < 1e36:
            check_certificate(*pair, finite=True)
        else:  # sums may overflow
            assert np.isnan(bounds(*pair)[2]).all()
        halves = [array.astype(oracle.BFLOAT16) for array in pair]
        if weight_scale * hidden_scale < 1e36:
            check_certificate(halves[0], halves[1])


def test_what_subnormal_products_lose_is_covered() -> None:
    """`vdpbf16ps` counts every product here as 0; bytes and numbers hold the factors almost exactly."""
    for exponent in (-60, -62, -64, -66):
        hidden, weight = np.full((1, 4096), 2.0**-70), np.full((20, 4096), BYTE * 2.0**exponent)
        check_certificate(hidden.astype(oracle.BFLOAT16), weight.astype(oracle.BFLOAT16), finite=True)
        check_certificate(hidden.astype("f4"), weight.astype("f4"), finite=True)


def test_rows_that_are_not_finite_have_no_ends() -> None:
    rng = np.random.default_rng(9)
    weight, hidden = rng.standard_normal((40, 33)).astype("f4"), rng.standard_normal((12, 33)).astype("f4")
    weight[[3, 17, 39], [0, 32, 16]] = math.nan, math.inf, -math.inf
    hidden[[2, 9], [32, 0]] = -math.nan, math.inf
    hidden[4] = 0
    for ends in bounds(hidden, weight)[1:]:
        expected = np.zeros((12, 40), bool)
        expected[:, [3, 17, 39]] = expected[[2, 9]] = True
        np.testing.assert_array_equal(np.isnan(ends), expected)
    assert (np.delete(bounds(hidden, weight)[2][4], [3, 17, 39]) < 1e-35).all()  # nothing but what subnormals may lose
    np.testing.assert_array_equal(bounds(np.full((1, 33), 1e-45, "f4"), weight)[2], np.full((1, 40), math.nan))


def test_every_table_finds_the_same(every_isa: str) -> None:
    """Integers are exact and the rest is rounded alike, so that as many logits are computed whatever the table."""
    rng = np.random.default_rng(14)
    for dtype in oracle.NARROW:
        for width in (1, 33, 577, 2049):
            hidden, weight = rng.standard_normal((9, width)), rng.standard_normal((70, width))
            weight[3], weight[5, 0], weight[7] = 0, math.nan, 1e-42
            pair = hidden.astype(dtype), weight.astype(dtype)
            found = bounds(*pair)
            _core.use_isa("scalar")
            for x, expected in zip(found, bounds(*pair), strict=True):
                oracle.assert_same_bits(x, expected)
            _core.use_isa(every_isa)


# ---- preparation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", oracle.NARROW, ids=str)
def test_any_memory_and_threads_give_one_screen(dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(10)
    for vocabulary, width in [(1, 1), (33, 7), (300, 70)]:
        weight, hidden = (
            rng.standard_normal((vocabulary, width)).astype(dtype),
            rng.standard_normal((2, width)).astype("f4"),
        )
        expected = bounds(hidden, weight, 1)
        for variant in layouts(weight).values():
            for threads in (1, 3):
                for found, wanted in zip(bounds(hidden, variant, threads), expected, strict=True):
                    oracle.assert_same_bits(found, wanted)


def test_screen_of_nothing() -> None:
    for shape, nbytes in {(0, 5): 0, (5, 0): 16 * 12, (0, 0): 0}.items():
        screen = _core.Screen(np.zeros(shape, "f4"))
        assert screen.shape == shape
        assert screen.nbytes == nbytes


def test_bytes() -> None:
    """A byte a weight, and three numbers a row."""
    assert _core.Screen(np.zeros((160, 64), "f4")).nbytes == 160 * (64 + 12)
    assert _core.Screen(np.zeros((161, 63), "f4")).nbytes == 176 * (64 + 12)


def test_refusals() -> None:
    cases: list[tuple[Any, type[Exception], str]] = [
        (
            np.zeros((3, 4)),
            TypeError,
            r"^weight: expected float32, float16 or bfloat16 values for a screen, got float64",
        ),
        (np.zeros(4, "f4"), ValueError, r"^weight: expected shape \(V, D\), got shape \(4,\)"),
        (
            np.zeros((1, _core.SCREEN_WIDTH + 1), "f4"),
            ValueError,
            r"^weight: expected D of at most 131072 for a screen, got ",
        ),
        (np.zeros((3, 4), "i1"), TypeError, r"^weight: expected a float32, "),
        (native.quantize(np.ones((3, 4))), TypeError, r"^weight: .* values for a screen, got a quantised weight"),
    ]
    for weight, error, words in cases:
        with pytest.raises(error, match=words):
            _core.Screen(weight)
