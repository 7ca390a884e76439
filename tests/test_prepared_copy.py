"""What a prepared head is made of besides its screen: a copy of the weight in rows, and when it pays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
import oracle
from layouts import dlpack, layouts
from lmhead_native import _core


def elements(copy: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a copy's elements; bfloat16, which NumPy lacks, is kept as its bits."""
    array: NDArray[Any] = copy.stored.view(dtype) if dtype == oracle.BFLOAT16 else copy
    return array


@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
def test_prepared_copy(dtype: np.dtype[Any], threads: int) -> None:
    rng = np.random.default_rng(11)
    for shape in [(1, 1), (33, 7), (300, 70), (1500, 800), (0, 4), (4, 0)]:
        weight = rng.standard_normal(shape).astype(dtype)
        for variant in [*layouts(weight).values(), dlpack(weight)]:
            copy = elements(_core.prepared_copy(variant, threads), dtype)
            assert copy.flags.c_contiguous
            oracle.assert_same_bits(copy, weight)
            assert not isinstance(variant, np.ndarray) or not np.shares_memory(copy, variant)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("group", [None, 32])
def test_prepared_copy_of_integers(bits: int, group: int | None, threads: int) -> None:
    weight = np.random.default_rng(12).standard_normal((1500, 800))
    quantized = native.quantize(weight, bits, group)
    copy = _core.prepared_copy(quantized, threads)
    oracle.assert_same_bits(copy.stored, quantized.values)
    assert not np.shares_memory(copy.stored, quantized.values)
    oracle.assert_same_bits(copy.dequantize(), quantized.dequantize())


def test_prepared_copy_of_a_files_blocks() -> None:
    rng = np.random.default_rng(13)
    blocks = rng.integers(0, 256, (9, 2, 34)).astype(np.uint8)
    blocks[..., 1] = 0x2C  # scales of about 1/16
    file = np.concatenate([np.zeros(1, np.uint8), blocks.ravel()])[1:].reshape(9, 68)  # at an odd address
    quantized = native.QuantizedWeight._from_q8_0(file)
    copy = _core.prepared_copy(quantized)
    oracle.assert_same_bits(copy.stored, file)
    oracle.assert_same_bits(copy.dequantize(), quantized.dequantize())


@pytest.mark.parametrize("doubles", [True, False])
def test_kept_vector(doubles: bool) -> None:
    rng = np.random.default_rng(14)
    for array in [rng.standard_normal(7), *(rng.standard_normal(n).astype("f4") for n in (0, 1, 9)), np.arange(5)]:
        expected = array.astype("f8" if doubles else "f4")
        variants: list[Any] = [array, dlpack(array)]
        if array.size:
            variants += [*layouts(array).values(), array.tolist()]
        for variant in variants:
            kept = _core.kept_vector("bias", variant, doubles)
            oracle.assert_same_bits(kept, expected)
            assert kept.flags.c_contiguous
            assert not kept.flags.writeable
            assert not np.shares_memory(kept, array)
            assert not isinstance(variant, np.ndarray) or not np.shares_memory(kept, variant)
    halves = rng.standard_normal(6).astype(oracle.BFLOAT16)
    for half in (halves, dlpack(halves)):
        oracle.assert_same_bits(_core.kept_vector("gain", half, doubles), halves.astype("f8" if doubles else "f4"))


@pytest.mark.parametrize(
    "vector",
    [
        np.ma.masked_array([1.0, 2.0], [True, False]),
        np.ones(2, complex),
        np.ones(2, bool),
        np.array(["1", "2"]),
        [1.0, None],
        [[1.0], [1.0, 2.0]],
    ],
    ids=lambda v: f"{type(v).__name__} {getattr(v, 'dtype', '')}",
)
def test_kept_vector_refuses_what_functions_refuse(vector: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as refused:
        native.rms_norm(np.ones((1, 2)), vector)
    with pytest.raises(refused.type) as found:
        _core.kept_vector("gain", vector)
    assert str(found.value) == str(refused.value)


def test_kept_vector_has_one_axis() -> None:
    for vector in (1.0, np.ones(()), np.ones((2, 1))):
        with pytest.raises(ValueError, match=r"^bias: expected one axis, got shape \("):
            _core.kept_vector("bias", vector)
    with pytest.raises(TypeError, match=r"^bias: expected an array of real numbers, got None"):
        _core.kept_vector("bias", None)  # type: ignore[arg-type]
