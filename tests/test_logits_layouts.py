"""``logits`` and ``logits_topk`` read and write any memory: the bits of the contiguous call, and no copy of the weight.

Knows strides, order, alignment, byte order, read-only maps, DLPack and peak memory. What the values should be is in
test_logits.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

import fresh
import lmhead_native as native
import oracle
from layouts import dlpack, layouts

pytestmark = pytest.mark.usefixtures("each_isa")

Array = NDArray[Any]
DType = np.dtype[Any]
FLOAT64 = np.dtype(np.float64)
PAIRS = [*itertools.product(oracle.NARROW, repeat=2), (FLOAT64, FLOAT64)]
every_pair = pytest.mark.parametrize(("hidden_dtype", "weight_dtype"), PAIRS, ids=str)


def normal(shape: tuple[int, ...], dtype: DType) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(dtype)


@cache
def matrices(shape: tuple[int, int], dtype: DType) -> dict[str, Array]:
    """Return `layouts` of `normal`, and the same of its transpose: stored as (D, V), handed over as a view."""
    array = normal(shape, dtype)
    found = layouts(array)
    found |= {f"{name} of the transpose": view.T for name, view in layouts(np.ascontiguousarray(array.T)).items()}
    found["both axes reversed"] = array[::-1, ::-1].copy()[::-1, ::-1]
    found["both axes reversed of the transpose"] = array.T[::-1, ::-1].copy()[::-1, ::-1].T
    found["every other row"] = np.repeat(array, 2, axis=0)[::2]
    found["diagonal of a cube"] = np.ascontiguousarray(
        np.broadcast_to(array[:, None], (len(array), 2, array.shape[1]))
    )[:, 1]
    raw = np.zeros((len(array), array.shape[1] * array.dtype.itemsize + 3), np.uint8)
    raw[:, :-3] = array.view(np.uint8)
    found["rows at odd addresses"] = raw[:, :-3].view(array.dtype)
    for view in found.values():
        np.testing.assert_array_equal(view, array)
    return found


# ---- inputs --------------------------------------------------------------------------------------------------------


@every_pair
@pytest.mark.parametrize("shape", [(19, 37), (300, 131)], ids=str)
def test_any_weight(threads: int, shape: tuple[int, int], hidden_dtype: DType, weight_dtype: DType) -> None:
    # (D, V) takes another way for up to 2 rows, half precision for 16 and more.
    for rows in (1, 2, 3, 17) if shape[0] < 100 else (1, 17):
        hidden = normal((rows, shape[1]), hidden_dtype)
        expected = native.logits(hidden, normal(shape, weight_dtype), threads=1)
        best = native.topk(expected, 5)
        for view in matrices(shape, weight_dtype).values():
            oracle.assert_same_bits(native.logits(hidden, view, threads=threads), expected)
            if rows == 17:
                top = native.logits_topk(hidden, view, 5, threads=threads)
                oracle.assert_same_bits(top.values, best.values)
                oracle.assert_same_bits(top.indices, best.indices)


@every_pair
def test_any_hidden(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    for rows, vocabulary, width in [(1, 19, 37), (2, 5, 1), (5, 19, 37), (33, 70, 67)]:
        weight, hidden = normal((vocabulary, width), weight_dtype), normal((rows, width), hidden_dtype)
        expected = native.logits(hidden, weight, threads=1)
        for view in matrices((rows, width), hidden_dtype).values():
            for w in (weight, np.asfortranarray(weight)):
                oracle.assert_same_bits(native.logits(view, w, threads=threads), expected)


@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
def test_leading_axes_without_a_common_stride(threads: int, dtype: DType) -> None:
    weight, states = normal((19, 37), dtype), normal((4, 6, 3, 37), dtype)
    for hidden in (
        states[:, ::2],
        states[::-1, 1::3],
        states.swapaxes(0, 2),
        states.transpose(1, 2, 0, 3)[::-1, :, ::-1],
        np.broadcast_to(states[:, :, :1], (4, 6, 5, 37)),
        np.broadcast_to(states[0, 0, 0], (2, 0, 37)),
        states[:, -1],
    ):
        expected = native.logits(np.ascontiguousarray(hidden).reshape(-1, 37), weight, threads=1)
        actual = native.logits(hidden, weight, threads=threads)
        oracle.assert_same_bits(actual, expected.reshape(*hidden.shape[:-1], 19))


@every_pair
def test_elements_and_rows_that_share_memory(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    """Stride 0 and overlapping windows are read as NumPy reads them."""
    window = normal((90,), weight_dtype)
    hankel = as_strided(window, (50, 41), (window.itemsize, window.itemsize))
    one_row, one_column = np.broadcast_to(window[:41], (50, 41)), np.broadcast_to(window[:50, None], (50, 41))
    for rows in (1, 3, 17):
        hidden = np.broadcast_to(normal((41,), hidden_dtype), (rows, 41))
        for view in (hankel, one_row, one_column):
            expected = native.logits(hidden.copy(), view.copy(), threads=1)
            oracle.assert_same_bits(native.logits(hidden, view, threads=threads), expected)


@every_pair
def test_dlpack_tensors(hidden_dtype: DType, weight_dtype: DType) -> None:
    hidden, weight = normal((3, 37), hidden_dtype), normal((19, 37), weight_dtype)
    expected = native.logits(hidden, weight)
    for h, w in itertools.product((hidden, dlpack(hidden)), (dlpack(weight), dlpack(np.asfortranarray(weight)))):
        oracle.assert_same_bits(native.logits(h, w), expected)
        oracle.assert_same_bits(native.logits_topk(h, w, 19).indices, native.topk(expected, 19).indices)


@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
def test_any_bias(dtype: DType) -> None:
    hidden, weight, bias = normal((3, 37), dtype), normal((19, 37), dtype), normal((19,), dtype)
    expected = native.logits(hidden, weight, bias=np.ascontiguousarray(bias))
    for view in layouts(bias).values():
        oracle.assert_same_bits(native.logits(hidden, weight, bias=view), expected)
    oracle.assert_same_bits(native.logits(hidden, weight, bias=dlpack(bias)), expected)


@every_pair
def test_inputs_are_never_written(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    for rows in (1, 3, 17):
        hidden, weight = normal((rows, 37), hidden_dtype), normal((40, 37), weight_dtype)
        bias = normal((40,), FLOAT64)
        for h, w in itertools.product(
            (hidden, np.asfortranarray(hidden), hidden[:, ::-1]),
            (weight, np.asfortranarray(weight), weight[::-1, ::-1]),
        ):
            before = [a.tobytes() for a in (h, w, bias)]
            native.logits(h, w, bias=bias, softcap=1.0, scale=2.0, threads=threads)
            native.logits_topk(h, w, 3, bias=bias, softcap=1.0, scale=2.0, threads=threads)
            assert [a.tobytes() for a in (h, w, bias)] == before


@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
def test_a_read_only_map_of_a_file(threads: int, dtype: DType, tmp_path: Path) -> None:
    weight = normal((300, 131), dtype)
    stored = weight if dtype != oracle.BFLOAT16 else weight.view(np.uint16)
    for offset, name in itertools.product((0, 128, 3), ("rows", "columns")):  # 3: no element is aligned
        array = stored if name == "rows" else stored.T
        path = tmp_path / name
        path.write_bytes(bytes(offset) + array.tobytes())
        mapped = np.memmap(path, array.dtype, "r", offset, array.shape).view(dtype)
        view = mapped if name == "rows" else mapped.T
        assert not view.flags.writeable
        for rows in (1, 3, 17):
            hidden = normal((rows, 131), dtype)
            oracle.assert_same_bits(native.logits(hidden, view, threads=threads), native.logits(hidden, weight))


# ---- out -----------------------------------------------------------------------------------------------------------


def targets(shape: tuple[int, ...], dtype: DType) -> Iterator[tuple[Array, Array]]:
    """Yield (whole, view): NaN everywhere, of which the view is to be filled and the rest left alone."""
    reverse = tuple(slice(None, None, -1) for _ in shape)
    whole = np.full(shape, np.nan, dtype)
    yield whole, whole
    whole = np.full(shape, np.nan, dtype)
    yield whole, whole[reverse]
    whole = np.full((*shape[:-1], 2 * shape[-1] + 3), np.nan, dtype)
    yield whole, whole[..., 2:-1:2]
    whole = np.full((*shape[:-1], shape[-1] + 7), np.nan, dtype)
    yield whole, whole[..., 3:-4]
    whole = np.full(tuple(2 * n for n in shape), np.nan, dtype)
    yield whole, whole[tuple(slice(1, None, 2) for _ in shape)]
    whole = np.full(shape[::-1], np.nan, dtype)
    yield whole, whole.T
    whole = np.full((*shape[1:-1], *shape[:1], shape[-1]), np.nan, dtype)
    yield whole, np.moveaxis(whole, -2, 0)
    size = int(np.prod(shape)) * dtype.itemsize
    misaligned = np.frombuffer(bytearray(size + 1), np.uint8)[1:].view(dtype).reshape(shape)
    misaligned[...] = np.nan
    yield misaligned, misaligned


@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
def test_any_out(threads: int, dtype: DType) -> None:
    result = oracle.result_dtype(dtype)
    for lead, vocabulary in [((1,), 19), ((2, 3, 4), 19), ((13,), 300)]:
        hidden, weight = normal((*lead, 37), dtype), normal((vocabulary, 37), dtype)
        for w in (weight, np.asfortranarray(weight)):
            expected = native.logits(hidden, w, scale=0.5)
            for whole, view in targets(expected.shape, result):
                assert view.shape == expected.shape
                assert native.logits(hidden, w, scale=0.5, out=view, threads=threads) is view
                oracle.assert_same_bits(view, expected)
                assert np.count_nonzero(~np.isnan(whole)) == expected.size


# ---- memory --------------------------------------------------------------------------------------------------------

# Every view but two has 2^23 elements; `before` is taken once all of them, and the file's pages, are in memory.
CHILD = """
import sys
import numpy as np
import ml_dtypes
import lmhead_native as native

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

dtype, path, V, D = np.dtype(sys.argv[1]), sys.argv[2], 2**13, 2**10
stored = np.ones((V, D + 2), dtype)
columns = np.ones((D, V), dtype)
np.ones((V, D), dtype).tofile(path)
mapped = np.memmap(path, np.uint8, "r").view(dtype).reshape(V, D)
assert mapped.view(np.uint8).max() > 0
views = [stored[::-1, -2:0:-1], columns.T, stored[:, :D:2], stored[:, 1:-1]]
views += [columns[::-1, ::-1].T, mapped, columns[::2].T]
for view in views:
    native.logits_topk(np.ones((16, view.shape[1]), dtype), view[:600], 1, threads=2)
before = peak()
for rows in (1, 3, 16):
    for view in views[:3] if rows == 16 else views:
        hidden = np.ones((rows, view.shape[1]), dtype)
        top = native.logits_topk(hidden, view, 2, threads=2)
        assert (top.values == view.shape[1]).all(), top
        assert (native.logits(hidden[:1], view, threads=2) == view.shape[1]).all()
print(native.isa(), peak() - before)
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_copy_of_the_weight(each_isa: str, dtype: str, tmp_path: Path) -> None:
    isa, grown = fresh.output(CHILD, dtype, str(tmp_path / "weight"), environment={"LMHEAD_ISA": each_isa}).split()
    assert isa == each_isa
    # Half of the smallest whole copy, that of every other column in bfloat16; scratch takes 1 to 2 MiB.
    assert int(grown) < 2**22 * 2 / 2
