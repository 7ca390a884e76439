"""A quantised weight in every function that takes a weight: the bits of its dequantised float32 matrix.

Knows storages, `dequantize` and the functions. What the integers of a weight should be is in test_quantize.py, what the
object is and refuses in test_quantized_weight.py.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fresh
import lmhead_native as native
from layouts import dlpack, layouts
from lmhead_native import _core, reference
from oracle import BFLOAT16, NARROW, assert_same_bits, assert_within, logits_bound, logits_exact
from quantized_samples import WIDTHS, V, blocks_q8_0, hidden_states, some_storages, storages

# ---- what it means -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [32, 96, 576])
def test_blocks_of_a_file(each_isa: str, width: int) -> None:
    blocks = blocks_q8_0(V, width)
    blocks[0, :2] = np.array([np.nan], "<f2").view(np.uint8)
    blocks[1, :2] = np.array([np.inf], "<f2").view(np.uint8)
    blocks[2, :2] = np.array([-0.0], "<f2").view(np.uint8)
    blocks[3, :2] = np.array([6e-8], "<f2").view(np.uint8)
    parts = blocks.reshape(V, -1, 34)
    scales = np.ascontiguousarray(parts[:, :, :2]).view("<f2").astype(np.float32)
    q = np.ascontiguousarray(parts[:, :, 2:]).view(np.int8)
    assert q.min() == -128
    weight = native.QuantizedWeight._from_q8_0(blocks)
    with np.errstate(invalid="ignore"):
        expected = (scales * q.astype(np.float32)).reshape(V, width)
    assert_same_bits(weight.dequantize(), expected)
    assert_same_bits(weight.values, q)
    assert_same_bits(weight.scales, scales[:, :, 0].astype(np.float16))
    assert np.shares_memory(weight.values, blocks)
    assert np.shares_memory(weight.scales, blocks)
    assert (weight.shape, weight.bits, weight.group_size, weight.nbytes) == ((V, width), 8, 32, blocks.nbytes)
    for rows in (1, 2, 3):
        h = hidden_states(rows, width)
        assert_same_bits(native.logits(h, weight), native.logits(h, expected))


@pytest.mark.parametrize("width", WIDTHS)
def test_logits(each_isa: str, threads: int, width: int) -> None:
    for weight in storages(V, width).values():
        dequantized = weight.dequantize()
        for rows in (1, 2, 3, 4, 5, 7, 16, 33):
            h = hidden_states(rows, width)
            assert_same_bits(native.logits(h, weight, threads=threads), native.logits(h, dequantized, threads=threads))


@pytest.mark.parametrize("width", [33, 96])
def test_many_ids(each_isa: str, threads: int, width: int) -> None:
    """Several blocks of ids, tiles and tasks, and what follows the logits."""
    for weight in some_storages(1031, width).values():
        dequantized = weight.dequantize()
        bias = np.linspace(-1, 1, 1031)
        for rows in (1, 2, 6, 20):
            h = hidden_states(rows, width)
            options: dict[str, Any] = {"bias": bias, "softcap": 5.0, "scale": 0.5, "threads": threads}
            assert_same_bits(native.logits(h, weight, **options), native.logits(h, dequantized, **options))
            for found, expected in zip(
                native.logits_topk(h, weight, 9, **options),
                native.logits_topk(h, dequantized, 9, **options),
                strict=True,
            ):
                assert_same_bits(found, expected)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_hidden_states_of_every_dtype(each_isa: str, dtype: np.dtype[Any]) -> None:
    for weight in some_storages(V, 64).values():
        for rows in (1, 2, 3, 20):
            h = hidden_states(rows, 64, dtype)
            expected = native.logits(h.astype(np.float32), weight.dequantize())
            for view in (h, h[:, ::-1].copy()[:, ::-1], dlpack(h)):
                assert_same_bits(native.logits(view, weight), expected)
    assert_same_bits(native.logits(h[0].astype(np.float32).tolist(), weight), expected[0])


def test_signed_zeros(each_isa: str) -> None:
    """Sums of nothing but negative zeros: no lane takes an addition more than it has elements."""
    for width in (1, 15, 16, 17, 33, 48, 65):
        weight = native.quantize(np.full((5, width), -1e-30, np.float32))
        for rows in (1, 2, 3):
            h = np.full((rows, width), 1e-30, np.float32)
            z = native.logits(h, weight)
            assert_same_bits(z, native.logits(h, weight.dequantize()))
            assert (z == 0).all()


@pytest.mark.parametrize("width", [1, 15, 17, 31, 33, 50])
def test_what_fills_the_last_bytes_of_4_bits(each_isa: str, width: int) -> None:
    """It is no element, whatever it is and whatever the scale."""
    weight = native.quantize(hidden_states(5, width), 4, 32)
    filled = weight.values.copy()
    places = filled.reshape(5, -1, 16)
    exists = np.arange(places.shape[1] * 32).reshape(1, -1, 2, 16) < width
    garbage = np.where(exists, 0, [[[[0x0B], [0xB0]]]]).sum(axis=2).astype(np.uint8)
    places |= garbage
    assert garbage.any()
    for scale in (1, np.inf):
        scales = weight.scales * np.float32(scale)
        other = native.QuantizedWeight._of(filled, scales, width, 4, 32)
        with np.errstate(invalid="ignore"):
            expected = np.where(weight.dequantize() == 0, 0 * scales[:, :1], weight.dequantize() * np.float32(scale))
        assert_same_bits(other.dequantize() + 0, expected + 0)
        for rows in (1, 2, 3):
            h = hidden_states(rows, width)
            assert_same_bits(native.logits(h, other), native.logits(h, other.dequantize()))


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("power", [-60, -3, 0, 5])
def test_no_integer_saturates(each_isa: str, bits: int, power: int) -> None:
    limit, width, h = {8: 127, 4: 7}[bits], 256, 2.0**-4
    for sign, rows in itertools.product((1, -1), (1, 2, 3, 17)):
        weight = native.quantize(np.full((9, width), sign * limit * 2.0**power), bits)
        z = native.logits(np.full((rows, width), h, np.float32), weight)
        np.testing.assert_array_equal(z, np.full((rows, 9), sign * width * limit * 2.0**power * h, np.float32))


@pytest.mark.parametrize("width", [33, 96])
@pytest.mark.parametrize("filter_eps", [None, 1e-3])
def test_losses(each_isa: str, width: int, filter_eps: float | None) -> None:
    vocabulary, rows = 301, 13
    rng = np.random.default_rng(3)
    targets = rng.integers(0, vocabulary, rows)
    targets[4] = -100
    for weight in some_storages(vocabulary, width).values():
        dequantized = weight.dequantize()
        for dtype in (np.float32, BFLOAT16):
            h = hidden_states(rows, width, dtype)
            # A bfloat16 weight would be another arithmetic, a float32 one is not.
            options: dict[str, Any] = {"bias": rng.standard_normal(vocabulary), "label_smoothing": 0.1, "threads": 2}
            assert_same_bits(
                native.linear_cross_entropy(h, weight, targets, **options),
                native.linear_cross_entropy(h, dequantized, targets, **options),
            )
            options |= {"wrt": ("hidden", "bias"), "filter_eps": filter_eps, "chunk_rows": 4}
            found = native.linear_cross_entropy_with_grad(h, weight, targets, **options)
            expected = native.linear_cross_entropy_with_grad(h, dequantized, targets, **options)
            assert found[2] is None
            for i in (0, 1, 3):
                assert_same_bits(np.asarray(found[i]), np.asarray(expected[i]))


def test_the_reference() -> None:
    h = hidden_states(4, 65)
    targets = np.array([0, 5, V - 1, -100])
    for weight in some_storages(V, 65).values():
        dequantized = weight.dequantize()
        assert_within(native.logits(h, weight), logits_exact(h, dequantized), logits_bound(h, dequantized))
        assert_same_bits(reference.logits(h, weight), reference.logits(h, dequantized))
        assert_same_bits(reference.logits_topk(h, weight, 3).values, reference.logits_topk(h, dequantized, 3).values)
        assert reference.linear_cross_entropy(h, weight, targets) == reference.linear_cross_entropy(
            h, dequantized, targets
        )
        wrt = ("hidden",)
        assert_same_bits(
            np.asarray(reference.linear_cross_entropy_with_grad(h, weight, targets, wrt=wrt)[1]),
            np.asarray(reference.linear_cross_entropy_with_grad(h, dequantized, targets, wrt=wrt)[1]),
        )
        assert native.check_gradients(h, weight, targets, wrt=wrt, samples=20)["hidden"] < 1e-5


# ---- bfloat16 as uint16 --------------------------------------------------------------------------------------------


def test_bfloat16_of_a_file(each_isa: str, threads: int) -> None:
    rng = np.random.default_rng(9)
    expected = rng.standard_normal((301, 33)).astype(BFLOAT16)
    bits = expected.view(np.uint16)
    targets = rng.integers(0, 301, 20)
    for view in layouts(bits).values():
        weight = _core.bfloat16_weight(view)
        assert weight.shape == (301, 33)
        assert_same_bits(weight.dequantize(), expected.astype(np.float32))
        assert_same_bits(weight.gather([7, 0]), expected[[7, 0]].astype(np.float32))
        for dtype, rows in itertools.product(NARROW, (1, 3, 20)):
            h = hidden_states(rows, 33, dtype)
            assert_same_bits(native.logits(h, weight, threads=threads), native.logits(h, expected))
    h = hidden_states(20, 33, BFLOAT16)
    weight = _core.bfloat16_weight(bits)
    for found, other in zip(
        native.linear_cross_entropy_with_grad(h, weight, targets, threads=threads)[:3],
        native.linear_cross_entropy_with_grad(h, expected, targets)[:3],
        strict=True,
    ):
        assert_same_bits(found, other)
    assert_same_bits(native.logits(h[0].tolist(), weight), native.logits(h[0], expected))
    for view in (bits, bits.astype(">u2")):
        assert_same_bits(reference.logits(h, _core.bfloat16_weight(view)), reference.logits(h, expected))
    assert_same_bits(native.quantize(weight).values, native.quantize(expected).values)


# ---- memory --------------------------------------------------------------------------------------------------------

GUARDED = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import numpy as np
import lmhead_native as native
from guarded import at_the_end

rng = np.random.default_rng(0)
for width in (1, 15, 16, 31, 33, 65, 127):
    for bits, group, dtype in ((8, None, "f4"), (8, 32, "f2"), (4, None, "f2"), (4, 32, "f4")):
        q = native.quantize(rng.standard_normal((5, width)), bits, group, scale_dtype=dtype)
        guarded = native.QuantizedWeight._of(at_the_end(q.values), at_the_end(q.scales), width, bits, group)
        for rows in (1, 2, 3):
            hidden = np.ones((rows, width), np.float32)
            assert (native.logits(hidden, guarded) == native.logits(hidden, q)).all()
        assert (guarded.gather([4]) == q.gather([4])).all()
for width in (32, 96):
    blocks = at_the_end(np.ones((3, width // 32 * 34), np.uint8))
    assert np.isfinite(native.logits(np.ones((2, width), np.float32), native.QuantizedWeight._from_q8_0(blocks))).all()
print(native.isa())
"""


def test_nothing_is_read_past_the_end(each_isa: str) -> None:
    assert fresh.output(GUARDED, environment={"LMHEAD_ISA": each_isa}).split() == [each_isa]


CHILD = """
import numpy as np
import lmhead_native as native

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

V, D = 2**14, 2**10
rows = np.random.default_rng(0).standard_normal((2**6, D), dtype=np.float32)
small = [native.quantize(rows, bits) for bits in (8, 4)]
tiled = [[np.tile(array, (V >> 6, 1)) for array in (q.values, q.scales)] for q in small]
weights = [native.QuantizedWeight._of(*arrays, D, q.bits, None) for arrays, q in zip(tiled, small)]
blocks = np.zeros((V, D // 32 * 34), np.uint8)
weights.append(native.QuantizedWeight._from_q8_0(blocks))

def use(weight, n):
    hidden = np.ones((n, D), np.float32)
    native.logits_topk(hidden, weight, 2, threads=2)
    native.linear_cross_entropy_with_grad(hidden, weight, np.zeros(n, int), wrt=("hidden",), threads=2)
    weight.gather([0, 63])

for q in small:
    for n in (1, 3, 20):
        use(q, n)
before = peak()
for weight in weights:
    for n in (1, 3, 20):
        use(weight, n)
print(native.isa(), peak() - before)
"""


def test_no_copy_is_dequantised() -> None:
    isa, grown = fresh.output(CHILD).split()
    assert isa == native.isa()
    # A dequantised copy has 64 MiB, one of 8 bits 16; 20 rows of logits are 1.25 MiB, scratch a few.
    assert int(grown) < 8 * 2**20
