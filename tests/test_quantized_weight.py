"""The object `QuantizedWeight`: rows by id, attributes, copies, memory that it keeps, and what is refused.

Knows the object. What it is worth in the functions is in test_quantized_values.py.
"""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

import lmhead_native as native
from layouts import dlpack
from lmhead_native import _core, reference
from oracle import assert_same_bits
from quantized_samples import Array, V, blocks_q8_0, storages

# ---- rows by id ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 33, 96])
def test_gather(each_isa: str, width: int) -> None:
    ids = np.array([[3, V - 1, 0], [3, 3, 17]])
    for weight in storages(V, width).values():
        rows = weight.dequantize()
        for dtype in (np.int64, np.int32, np.uint8, ">u4"):
            assert_same_bits(weight.gather(ids.astype(dtype)), rows[ids])
        assert_same_bits(weight.gather(ids[:, ::-2]), rows[ids[:, ::-2]])
        assert_same_bits(weight.gather(ids.tolist()), rows[ids])
        assert_same_bits(weight.gather(dlpack(ids)), rows[ids])
        assert_same_bits(weight.gather(5), rows[5])
        assert_same_bits(weight.gather([]), rows[:0])
        assert_same_bits(weight.gather(np.empty((0, 2), np.int8)), np.empty((0, 2, width), np.float32))


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        ([0, V], IndexError, f"ids: expected an id from 0 to V - 1 = {V - 1}, got {V} at position \\(1,\\)$"),
        ([[0], [-1]], IndexError, r"ids: expected an id .*, got -1 at position \(1, 0\)$"),
        (np.array(2**64 - 1, np.uint64), IndexError, r"ids: .*, got 18446744073709551615 at position \(\)$"),
        ([0.0], TypeError, r"ids: expected an integer dtype, got float64 of shape \(1,\)$"),
        ([True], TypeError, r"ids: expected an integer dtype, got bool of shape \(1,\)$"),
        (None, TypeError, "ids: expected an integer dtype, got object"),
        ("3", TypeError, "ids: expected an integer dtype, got str"),
        (np.ma.masked_array([1], [True]), TypeError, "ids: expected an array without a mask"),
    ],
)
def test_gather_refuses(ids: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{message}"):
        native.quantize(np.ones((V, 3), np.float32)).gather(ids)


# ---- the object ----------------------------------------------------------------------------------------------------


def test_attributes() -> None:
    weight = native.quantize(np.ones((5, 70), np.float32), 4, 32, scale_dtype="float16")
    assert (weight.shape, weight.bits, weight.group_size, weight.scale_dtype.name) == ((5, 70), 4, 32, "float16")
    assert weight.nbytes == 5 * (48 + 3 * 2)
    assert repr(weight) == "QuantizedWeight(shape=(5, 70), bits=4, group_size=32, scale_dtype=float16, nbytes=270)"
    assert repr(native.quantize(np.ones((5, 70), np.float32))).endswith(
        "bits=8, group_size=None, scale_dtype=float32, nbytes=370)"
    )


def test_immutable() -> None:
    for weight in storages(3, 32).values():
        for name in ("bits", "values", "shape", "nbytes", "anything", "__lmhead_weight__"):
            with pytest.raises(AttributeError):
                setattr(weight, name, 4)
        with pytest.raises(AttributeError):
            del weight.bits
        for array in (weight.values, weight.scales):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
    with pytest.raises(TypeError, match="quantize"):
        native.QuantizedWeight()


def test_pickles_and_copies() -> None:
    for weight in storages(5, 64).values():
        copies = [pickle.loads(pickle.dumps(weight, protocol)) for protocol in (2, 5)]
        for again in [*copies, copy.copy(weight), copy.deepcopy(weight)]:
            assert repr(again) == repr(weight)
            assert_same_bits(again.values, weight.values)
            assert_same_bits(again.scales, weight.scales)
            assert_same_bits(again.dequantize(), weight.dequantize())


def test_it_keeps_its_memory() -> None:
    blocks = blocks_q8_0(V, 64).copy()
    expected = native.QuantizedWeight._from_q8_0(blocks.copy()).dequantize()
    kept = weakref.ref(blocks)
    weight = native.QuantizedWeight._from_q8_0(blocks)
    del blocks
    gc.collect()
    assert kept() is not None
    assert_same_bits(weight.dequantize(), expected)
    del weight
    gc.collect()
    assert kept() is None


def test_results_over_the_weight() -> None:
    """Blocks that their owner can write to are an input like any other."""
    blocks = blocks_q8_0(4, 64, offset=0)
    weight = native.QuantizedWeight._from_q8_0(blocks)
    out = blocks.reshape(-1)[:16].view(np.float32)
    with pytest.raises(ValueError, match=r"^out: expected memory apart from weight, got memory that overlaps it"):
        native.logits(np.ones(64, np.float32), weight, out=out)


@pytest.mark.parametrize("bits", [8, 4])
def test_results_over_the_scales(bits: int) -> None:
    """The integers' owner and the scales' may be two."""
    q = native.quantize(np.random.default_rng(5).standard_normal((4, 128)), bits, 32)
    scales = q.scales.copy()
    weight = native.QuantizedWeight._of(q.values.copy(), scales, 128, bits, 32)
    hidden, before = np.ones((2, 128), np.float32), scales.copy()
    with pytest.raises(ValueError, match=r"^out: expected memory apart from weight, got memory that overlaps it"):
        native.logits(hidden, weight, out=scales.reshape(-1)[:8].reshape(2, 4))
    memory = np.zeros(1000, np.float32)
    memory[:16] = scales.ravel()
    weight = native.QuantizedWeight._of(q.values.copy(), memory[:16].reshape(4, 4), 128, bits, 32)
    with pytest.raises(ValueError, match=r"^dhidden_out: expected memory apart from weight, got memory that overlaps"):
        native.linear_cross_entropy_with_grad(
            hidden, weight, [0, 1], wrt=("hidden",), dhidden_out=memory[8:264].reshape(2, 128)
        )
    assert_same_bits(scales, before)
    beside = memory[16:272].reshape(2, 128)
    native.linear_cross_entropy_with_grad(hidden, weight, [0, 1], wrt=("hidden",), dhidden_out=beside)
    assert_same_bits(memory[:16], before.ravel())


@pytest.mark.parametrize(
    ("values", "scales", "rest", "error"),
    [
        (np.ones((3, 8), np.uint8), np.ones((3, 1), "f4"), (8, 8, 8), TypeError),
        (np.ones((3, 8), np.int8), np.ones((3, 1), "f8"), (8, 8, 8), TypeError),
        (np.ones((3, 8), np.int8), np.ones((3, 1), ">f4"), (8, 8, 8), TypeError),
        (np.ones((3, 8), np.int8), np.ones((2, 1), "f4"), (8, 8, 8), ValueError),
        (np.ones((3, 8), np.int8), np.ones((3, 2), "f4"), (8, 8, 8), ValueError),
        (np.ones((3, 8), np.int8), np.ones((3, 1), "f4"), (9, 8, 9), ValueError),
        (np.ones((3, 16), np.int8)[:, ::2], np.ones((3, 1), "f4"), (8, 8, 8), ValueError),
        (np.ones((3, 16), np.uint8), np.ones((3, 1), "f4"), (33, 4, 33), ValueError),
        (np.ones((3, 40), np.int8), np.ones((3, 2), "f4"), (40, 8, 20), ValueError),
        (np.ones((3, 8), np.int8), np.ones((3, 1), "f4"), (8, 5, 8), ValueError),
        (np.ones((), np.int8), np.ones((3, 1), "f4"), (8, 8, 8), ValueError),
    ],
)
def test_arrays_that_do_not_fit(
    values: Array, scales: Array, rest: tuple[int, int, int], error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"^\w+: expected .+, got "):
        _core.quantized_weight(values, scales, *rest)


@pytest.mark.parametrize(
    "blocks",
    [np.ones((2, 34), np.int8), np.ones((2, 33), np.uint8), np.ones(34, np.uint8), np.ones((2, 68), np.uint8)[:, ::2]],
)
def test_blocks_that_do_not_fit(blocks: Array) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^blocks: expected .+, got "):
        native.QuantizedWeight._from_q8_0(blocks)


# ---- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint16])
def test_integers_are_no_weight(dtype: Any) -> None:
    for module in (native, reference):
        with pytest.raises(TypeError, match=f"^weight: expected .*, got .*{np.dtype(dtype)}"):
            module.logits(np.ones(3, np.float32), np.ones((2, 3), dtype))
    with pytest.raises(TypeError, match="quantize"):
        native.logits(np.ones(3, np.float32), np.ones((2, 3), dtype))


def test_it_is_no_array_of_another_kind() -> None:
    weight: Any = native.quantize(np.ones((2, 3), np.float32))
    message = r": expected a float32, .*, got a .*QuantizedWeight; .*gather"
    with pytest.raises(TypeError, match=f"^hidden{message}"):
        native.logits(weight, weight)
    with pytest.raises(TypeError, match=f"^logits{message}"):
        native.softmax(weight)


def test_float64_hidden_states() -> None:
    weight = native.quantize(np.ones((2, 3), np.float32))
    with pytest.raises(TypeError, match=r"^weight: expected float64 .*, got a quantised weight, .*cast hidden"):
        native.logits(np.ones(3), weight)
    with pytest.raises(TypeError, match=r"^weight: expected"):
        reference.logits(np.ones(3), weight)


def test_shapes() -> None:
    weight = native.quantize(np.ones((2, 3), np.float32))
    for module in (native, reference):
        with pytest.raises(ValueError, match=r"^weight: expected shape \(V, D\) with D = 4 .*, got shape \(2, 3\)"):
            module.logits(np.ones(4, np.float32), weight)


@pytest.mark.parametrize("module", [native, reference], ids=["native", "reference"])
def test_no_gradient_of_the_weight(module: Any) -> None:
    weight = native.quantize(np.ones((2, 3), np.float32))
    h, targets = np.ones((4, 3), np.float32), np.zeros(4, int)
    with pytest.raises(
        ValueError,
        match=r"^wrt: expected names without 'weight' .*, got \('hidden', 'weight', 'bias'\); pass wrt=\('hidden',\)$",
    ):
        module.linear_cross_entropy_with_grad(h, weight, targets)
    with pytest.raises(ValueError, match=r"^wrt: expected .*, got \('weight',\); pass wrt=\('hidden', 'bias'\)$"):
        module.linear_cross_entropy_with_grad(h, weight, targets, bias=[0, 1], wrt=["weight"])
