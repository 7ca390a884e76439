"""``quantize``: integers and scales that it chooses, the error they leave, what it refuses.

Knows the storage of a quantised weight, by an unpacking of its own. Refuses to know what functions compute with it.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
from layouts import dlpack, layouts
from oracle import BFLOAT16, FLOATS, assert_same_bits, widen

Array = NDArray[Any]

LIMIT = {8: 127, 4: 7}
KINDS = list(itertools.product((8, 4), (None, 32, 64, 128)))
every_kind = pytest.mark.parametrize(("bits", "group"), KINDS, ids=str)
WIDTHS = (1, 31, 32, 33, 127, 160)


def integers(weight: native.QuantizedWeight) -> Array:
    """Return the integers as (V, D), unpacked from bytes of 4 bits where they are that."""
    if weight.bits == 8:
        return weight.values.reshape(weight.shape)
    low_and_high = weight.values.reshape(weight.shape[0], -1, 16)[:, :, None] >> np.array([[[0], [4]]], np.uint8) & 15
    q = low_and_high.astype(np.int8)
    return np.where(q > 7, q - 16, q).reshape(weight.shape[0], -1)[:, : weight.shape[1]]


def each_scale(weight: native.QuantizedWeight) -> NDArray[np.float64]:
    """Return the scale of every element."""
    group = weight.group_size or max(1, weight.shape[1])
    return np.repeat(widen(weight.scales), group, axis=1)[:, : weight.shape[1]]


def extreme_rows(width: int) -> Array:
    rng = np.random.default_rng(width)
    rows = rng.standard_normal((12, width)).astype(np.float32)
    rows[1] = 0
    rows[2] = 1e-38
    rows[3] = 1e-45
    rows[4, -1] = 1e4
    rows[5] = -np.abs(rows[5])
    rows[6] *= np.float32(1e-40)
    rows[7] = np.finfo(np.float32).max
    rows[8, 0] = -9
    rows[9] = np.float32(190.4 * 2.0**-149)  # 1.5 of the smallest steps
    rows[10] = rng.integers(-(2**9), 2**9, width) * np.float32(2.0**-149)
    return rows


# ---- what it chooses -----------------------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("width", WIDTHS)
def test_the_error_is_half_a_scale(bits: int, group: int | None, width: int) -> None:
    weight = extreme_rows(width)
    found = native.quantize(weight, bits, group)
    q, scale = integers(found), each_scale(found)
    assert found.shape == weight.shape
    assert np.abs(q).max() <= LIMIT[bits]
    assert np.isfinite(scale).all()
    assert (np.abs(widen(weight) - scale * q) <= scale / 2).all()
    assert (scale[1] == 0).all()
    assert np.isfinite(found.dequantize()).all()
    # The greatest magnitude of a group is all of the range, but where subnormal scales are coarse.
    assert (np.abs(q[[0, 2, 4, 5, 7, 8]]).max(axis=1) == LIMIT[bits]).all()


@every_kind
@pytest.mark.parametrize("width", WIDTHS)
def test_the_error_is_half_a_scale_of_float16(bits: int, group: int | None, width: int) -> None:
    """Subnormal scales too, down to the smallest."""
    magnitudes = np.geomspace(2.0**-24 * LIMIT[bits], 65504 * LIMIT[bits], 40)
    rng = np.random.default_rng(3)
    weight = rng.uniform(-1, 1, (40, width)) * magnitudes[:, None]
    weight[:, ::32] = magnitudes[:, None]  # one in every group, and none beyond
    found = native.quantize(weight, bits, group, scale_dtype="float16")
    q, scale = integers(found), each_scale(found)
    assert found.scale_dtype == np.float16
    assert np.abs(q).max() <= LIMIT[bits]
    assert (np.abs(weight - scale * q) <= scale / 2 * (1 + 2**-40)).all()
    # The nearest float16, or the next.
    exact = magnitudes / LIMIT[bits]
    assert (np.abs(scale[:, 0] - exact) <= np.maximum(exact * 2.0**-10, 2.0**-24)).all()


@pytest.mark.parametrize("bits", [8, 4])
def test_scales_are_the_nearest_numbers(bits: int) -> None:
    weight = np.random.default_rng(1).standard_normal((50, 96))
    for group in (None, 32):
        found = native.quantize(weight, bits, group)
        most = np.abs(weight).reshape(50, -1, group or 96).max(axis=2)
        assert_same_bits(found.scales, (most / LIMIT[bits]).astype(np.float32))
        halves = native.quantize(weight, bits, group, scale_dtype=np.float16)
        assert_same_bits(halves.scales, (most / LIMIT[bits]).astype(np.float16))


def test_float16_scales_are_rounded_once() -> None:
    """A float64 just off the middle of two float16 is nearer to one of them; by way of float32 it would be a tie."""
    for scale in (1.0, 2.0**-14, 2.0**-16):
        for units in (1, 2, 17, 1022):  # of the last place, which is the 2^-10th of 1 and never less than 2^-24
            last = max(scale * 2.0**-10, 2.0**-24)
            for off in (2.0**-40, -(2.0**-40)):
                exact = scale + last * (units + 0.5 + off)
                q = native.quantize(np.full((1, 3), exact * 127), scale_dtype="float16")
                assert exact * 127 / 127 == exact
                assert_same_bits(q.scales, np.array([[exact]]).astype(np.float16))
    weight = np.full((1, 1), 127 * (1 + 2.0**-11 + 2.0**-40))
    assert native.quantize(weight, scale_dtype="float16").scales[0, 0] == 1 + 2.0**-10


def test_ties_go_to_even() -> None:
    row = np.array([127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, -0.0], np.float32)
    np.testing.assert_array_equal(native.quantize(row[None]).values, [[127, 0, 2, 2, 0, -2, -2, 126, 0]])
    row = np.array([-7, 0.5, 1.5, 3.5, -6.5], np.float32)
    np.testing.assert_array_equal(integers(native.quantize(row[None], 4)), [[-7, 0, 2, 4, -6]])


@pytest.mark.parametrize("bits", [8, 4])
def test_negative_maxima_do_not_wrap(bits: int) -> None:
    """A scale that was rounded down leaves the greatest magnitude at the limit, on either side."""
    most = np.random.default_rng(2).uniform(1, 2, 4000).astype(np.float32)
    for scale_dtype in ("float32", "float16"):
        found = native.quantize(np.stack([most, -most], axis=1), bits, scale_dtype=scale_dtype)
        np.testing.assert_array_equal(integers(found), [[LIMIT[bits], -LIMIT[bits]]] * 4000)


def test_the_last_bytes_of_4_bits_are_filled_with_zeros() -> None:
    found = native.quantize(np.full((3, 33), -1.0, np.float32), 4, 32)
    assert found.values.shape == (3, 32)
    np.testing.assert_array_equal(found.values[:, :16], 0x99)
    np.testing.assert_array_equal(found.values[:, 16:], [[0x09] + [0] * 15] * 3)


def test_rows_are_found_again(each_isa: str) -> None:
    """Random unit rows: the nearest one to a row is itself."""
    rows = np.random.default_rng(4).standard_normal((2000, 64)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    hits = native.logits_topk(rows[:500], native.quantize(rows), 1).indices[:, 0] == np.arange(500)
    assert hits.mean() >= 0.99


# ---- what it takes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@every_kind
def test_dtypes_and_layouts(threads: int, dtype: np.dtype[Any], bits: int, group: int | None) -> None:
    weight = np.random.default_rng(5).standard_normal((67, 43)).astype(dtype)
    expected = native.quantize(widen(weight), bits, group, threads=1)
    views: dict[str, Any] = layouts(weight) | {"tensor": dlpack(weight)}
    for view in views.values():
        found = native.quantize(view, bits, group, threads=threads)
        assert_same_bits(found.values, expected.values)
        assert_same_bits(found.scales, expected.scales)


def test_many_rows_on_many_threads(threads: int) -> None:
    weight = np.random.default_rng(6).standard_normal((5003, 33)).astype(np.float32)
    once = native.quantize(weight, 4, 32, threads=1)
    for view in (weight, np.asfortranarray(weight)):
        again = native.quantize(view, 4, 32, threads=threads)
        assert_same_bits(again.values, once.values)
        assert_same_bits(again.scales, once.scales)


@pytest.mark.parametrize(("bits", "group", "scale_dtype"), [(8, None, "float16"), (4, 32, "float32")])
def test_what_it_means(each_isa: str, bits: int, group: int | None, scale_dtype: str) -> None:
    weight = np.random.default_rng(7).standard_normal((40, 65)).astype(np.float16)
    found = native.quantize(weight, bits, group, scale_dtype=scale_dtype)
    q, scale = integers(found), each_scale(found)
    assert_same_bits(found.dequantize(), scale.astype(np.float32) * q.astype(np.float32))


def test_a_list() -> None:
    np.testing.assert_array_equal(native.quantize([[127.0, -64.0], [0.0, 0.0]]).values, [[127, -64], [0, 0]])


@every_kind
def test_empty(bits: int, group: int | None) -> None:
    for shape in ((0, 5), (3, 0), (0, 0)):
        found = native.quantize(np.ones(shape, np.float32), bits, group)
        assert found.shape == shape
        assert found.dequantize().shape == shape
        assert (found.bits, found.group_size) == (bits, group)


def test_of_a_quantised_weight() -> None:
    """Fewer bits of what is there already."""
    weight = native.quantize(np.random.default_rng(8).standard_normal((9, 70)).astype(np.float32))
    fewer = native.quantize(weight, 4, 32)
    assert_same_bits(fewer.values, native.quantize(weight.dequantize(), 4, 32).values)


# ---- what it refuses -----------------------------------------------------------------------------------------------

GOOD = np.ones((6, 40), np.float32)


def with_value(value: float, *rows: int, dtype: Any = np.float32) -> Array:
    weight = GOOD.astype(dtype)
    weight[list(rows), 33] = value
    return weight


@pytest.mark.parametrize("group", [None, 32])
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("value", "text"), [(np.nan, "NaN"), (-np.nan, "NaN"), (np.inf, "inf"), (-np.inf, "-inf")])
def test_not_finite(dtype: np.dtype[Any], value: float, text: str, bits: int, group: int | None, threads: int) -> None:
    weight = np.tile(with_value(value, 5, dtype=dtype), (20, 1))
    with pytest.raises(ValueError, match=f"^weight: expected finite values, got {text} in row 5$"):
        native.quantize(weight, bits, group, threads=threads)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"weight": GOOD.astype(np.int8)}, TypeError, "weight: expected a float32, .*, got dtype int8; .*quantize"),
        ({"weight": GOOD > 0}, TypeError, "weight: expected a float32, .*, got dtype bool"),
        ({"weight": None}, TypeError, "weight: expected a float32, .*, got None"),
        ({"weight": GOOD[0]}, ValueError, r"weight: expected shape \(V, D\), got shape \(40,\)"),
        ({"weight": GOOD[None]}, ValueError, r"weight: expected shape \(V, D\), got shape \(1, 6, 40\)"),
        ({"weight": np.float32(1)}, ValueError, r"weight: expected shape \(V, D\), got shape \(\)"),
        ({"bits": 5}, ValueError, "bits: expected 8 or 4, got 5"),
        ({"bits": 16}, ValueError, "bits: expected 8 or 4, got 16"),
        ({"bits": 8.0}, TypeError, r"bits: expected 8 or 4, got 8\.0"),
        ({"bits": None}, TypeError, "bits: expected 8 or 4, got None"),
        ({"group_size": 16}, ValueError, "group_size: expected None, 32, 64 or 128, got 16"),
        ({"group_size": 96}, ValueError, "group_size: expected None, 32, 64 or 128, got 96"),
        ({"group_size": 0}, ValueError, "group_size: expected None, 32, 64 or 128, got 0"),
        ({"group_size": "32"}, TypeError, "group_size: expected None, 32, 64 or 128, got '32'"),
        ({"scale_dtype": "float64"}, ValueError, "scale_dtype: expected 'float32' or 'float16', got 'float64'"),
        ({"scale_dtype": None}, ValueError, "scale_dtype: expected 'float32' or 'float16', got None"),
        ({"scale_dtype": "half a float"}, ValueError, "scale_dtype: expected 'float32' or 'float16', got 'half"),
        ({"threads": 0}, ValueError, "threads: expected None or an integer from 1 to 1024, got 0"),
        (
            {"weight": with_value(1e300, 2, dtype=np.float64)},
            ValueError,
            r"weight: expected values whose scale is at most the greatest number of scale_dtype, "
            r"got a greatest magnitude of 1e\+300 in row 2; ",
        ),
        (
            {"weight": with_value(1e7, 3, 4), "scale_dtype": "float16"},
            ValueError,
            r"weight: .* at most the .*, got a greatest magnitude of 10000000\.0 in row 3; take float32 scales",
        ),
        (
            {"weight": GOOD * np.float32(2**-20), "scale_dtype": "float16"},
            ValueError,
            "weight: expected values .* at least the smallest .* in row 0; take float32 scales",
        ),
    ],
)
def test_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{message}"):
        native.quantize(**({"weight": GOOD} | arguments))


def test_float16_scales_of_zeros() -> None:
    assert not native.quantize(np.zeros((2, 5), BFLOAT16), scale_dtype="float16").scales.any()
