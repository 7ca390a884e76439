"""Arrays that the losses write their gradients into or add them to: strides, dtypes, what lies between and beside.

Knows memory and roundings at the end. What the gradients are is in test_cross_entropy.py and
test_linear_cross_entropy.py, which arrays are refused in test_loss_intake.py and test_errors.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
import oracle
from loss_cases import random_options, some_head, some_rows
from parameters import every_dtype, every_pair, wide_dtypes

Array = NDArray[Any]
DType = np.dtype[Any]
NAN = math.nan
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
each_table = pytest.mark.usefixtures("each_isa")
GRADIENTS = ("dhidden", "dweight", "dbias")


def fused(*given: Any, **options: Any) -> tuple[Any, ...]:
    """Return the loss and the three gradients of a head."""
    return native.linear_cross_entropy_with_grad(*given, **options)


def unfused(*given: Any, **options: Any) -> tuple[Any, Any]:
    """Return the loss and the gradient of logits."""
    return native.cross_entropy_with_grad(*given, **options)


# ---- dhidden, dweight, dbias ---------------------------------------------------------------------------------------


def views(shape: tuple[int, ...], dtype: Any) -> Iterator[tuple[Array, Array]]:
    """Return arrays of a shape in all sorts of memory, and the whole of that."""
    doubled = [2 * n for n in shape]
    first = tuple(slice(n) for n in shape)
    for whole in (np.zeros(doubled, dtype), np.asfortranarray(np.zeros(doubled, dtype))):
        yield whole[first], whole
        yield whole[tuple(slice(None, None, -2) for _ in shape)], whole
        yield whole[(*first[:-1], slice(1, None, 2))], whole
    yield np.zeros(shape[::-1], dtype).T, np.zeros(0)
    raw = np.zeros(int(np.prod(shape)) * np.dtype(dtype).itemsize + 1, np.uint8)
    yield raw[1:].view(dtype).reshape(shape), np.zeros(0)


@each_table
@every_pair
def test_outs(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    """Filled in place whatever their strides and dtype; what lies between their elements stays."""
    h, w, targets = some_head(7, 70, 17, hidden_dtype, weight_dtype)
    options: dict[str, Any] = {"bias": np.arange(70) / 64, "threads": threads, "chunk_rows": 3}
    expected = fused(h, w, targets, **options)
    for dtype in [FLOAT64] if hidden_dtype == FLOAT64 else oracle.NARROW:
        shapes = [(7, 17), (70, 17), (70,)]
        for trio in zip(*(views(shape, dtype) for shape in shapes), strict=True):
            outs = {f"{name}_out": out for name, (out, _) in zip(GRADIENTS, trio, strict=True)}
            for out, whole in trio:
                whole.fill(9)
                out.fill(-3)
            found = fused(h, w, targets, **options, **outs)
            oracle.assert_same_bits(found[0], expected[0])
            for (out, whole), mine, exact in zip(trio, found[1:], expected[1:], strict=True):
                assert mine is out
                oracle.assert_same_bits(np.array(out), np.asarray(exact).astype(dtype))
                out.fill(9)
                assert (whole == 9).all()


@each_table
@every_pair
def test_accumulation_starts_from_what_is_there(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    h, w, targets = some_head(9, 70, 17, hidden_dtype, weight_dtype)
    bias, result = np.arange(70) / 64, oracle.result_dtype(hidden_dtype)
    expected = fused(h, w, targets, bias=bias)
    shapes = [(9, 17), (70, 17), (70,)]
    for dtype in [FLOAT64] if hidden_dtype == FLOAT64 else oracle.NARROW:
        first: list[Array] | None = None
        for chunk, number in itertools.product((None, 1, 2, 5), range(8)):
            outs = [list(views(shape, dtype))[number][0] for shape in shapes]
            for out in outs:
                out[...] = 0.25
            fused(
                *(h, w, targets),
                bias=bias,
                chunk_rows=chunk,
                threads=threads,
                accumulate=True,
                dhidden_out=outs[0],
                dweight_out=outs[1],
                dbias_out=outs[2],
            )
            dense = [np.array(out) for out in outs]
            first = first or dense
            oracle.assert_same(tuple(dense), tuple(first))
            assert (oracle.widen(outs[0][targets == -100]) == 0.25).all()
            for out, gradient in zip(outs, expected[1:], strict=True):
                exact = oracle.widen(gradient) + 0.25
                u, tiny = oracle.UNIT[np.dtype(dtype).name], 100 * oracle.UNIT[result.name]
                assert (np.abs(oracle.widen(out) - exact) <= u * np.abs(exact) + tiny * (1 + np.abs(exact))).all()
    # A gradient without an array is as it is without the others.
    partly = fused(h, w, targets, bias=bias, dbias_out=np.ones(70, result), accumulate=True)
    oracle.assert_same(partly[:3], expected[:3])


@each_table
def test_a_head_stored_the_other_way_is_filled_in_place(threads: int) -> None:
    h, w, targets = some_head(30, 300, 40, FLOAT32, FLOAT32)
    w_u = np.ascontiguousarray(w.T)
    stored = np.full((40, 300), 7, np.float32)
    expected = fused(h, w, targets)
    found = fused(h, w_u.T, targets, dweight_out=stored.T, threads=threads)
    oracle.assert_same(found, expected)
    assert found[2] is not None
    assert np.shares_memory(found[2], stored)
    oracle.assert_same_bits(np.ascontiguousarray(stored.T), np.asarray(expected[2]))


# ---- dlogits -------------------------------------------------------------------------------------------------------


@each_table
@every_dtype
def test_dlogits_out(threads: int, dtype: DType) -> None:
    logits, targets = some_rows(10, 37, dtype)
    loss, expected = unfused(logits, targets)
    for out_dtype in [expected.dtype] if dtype == np.float64 else oracle.NARROW:
        whole = np.full((20, 80), 7.0).astype(out_dtype)
        for out in (whole[:10, :37], whole[::-2, 1:75:2], whole.T[:37, :10].T, np.full((10, 37), 7, out_dtype)):
            before = whole.copy()
            found = unfused(logits, targets, dlogits_out=out, threads=threads)
            assert found[1] is out
            oracle.assert_same_bits(found[0], loss)
            oracle.assert_same_bits(np.array(out), expected.astype(out_dtype))
            out[...] = 7
            assert whole.tobytes() == before.tobytes()
            # Added to what is there; rows that are skipped keep their bits.
            out[...] = -0.0
            unfused(logits, targets, dlogits_out=out, accumulate=True, threads=threads)
            assert np.signbit(out[targets == -100]).all()
            unfused(logits, targets, dlogits_out=out, accumulate=True, threads=threads)
            bound = 2 * (oracle.UNIT[np.dtype(out_dtype).name] + 2 * oracle.UNIT["float32"]) * 2 * np.abs(expected)
            tiny = 2.0**-23 if out_dtype == np.float16 else 2.0**-130
            assert (np.abs(oracle.widen(out) - 2 * oracle.widen(expected)) <= bound + tiny).all()
            out[...] = 7


@each_table
@wide_dtypes
def test_dlogits_may_be_the_logits_themselves(threads: int, dtype: DType) -> None:
    logits, targets = some_rows(10, 300, dtype)
    for seed in range(8):
        options = random_options(seed, 10, 300)
        before = logits.copy()
        expected = unfused(logits, targets, **options)
        again = unfused(logits, targets, threads=threads, **options)
        oracle.assert_same_bits(again[1], expected[1])
        oracle.assert_same_bits(logits, before)  # never written unless asked for
        whole = np.full((20, 600), NAN, dtype)
        for memory in (logits.copy(), whole[::2, ::2], np.asfortranarray(logits)):
            memory[...] = logits
            found = unfused(memory, targets, dlogits_out=memory, threads=threads, **options)
            assert found[1] is memory
            oracle.assert_same_bits(np.ascontiguousarray(memory), expected[1])
            oracle.assert_same_bits(found[0], expected[0])
