"""More than 2^31 elements: every index and offset has 64 bits, on the one-row and the many-row path.

Memory stays small: pages that nobody wrote are one page of zeros, rows repeat by stride 0, and what is written lies in
few elements far apart. Knows positions, not precision. The plain kernel table takes nanoseconds for each product: it
gets the same distances with fewer elements between them.
"""

from __future__ import annotations

import itertools
import math
import mmap
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

import lmhead_native as native
import oracle

pytestmark = pytest.mark.usefixtures("each_isa")

Array = NDArray[Any]
DType = np.dtype[Any]
FLOAT16, FLOAT32, FLOAT64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)

WIDTH = 2**11
VOCABULARY = 2**20 + 2**10  # the last 1,024 rows of WIDTH begin at element 2^31
ELEMENTS = WIDTH * VOCABULARY
MARKED = [5, 2**20 - 1, 2**20 + 1, VOCABULARY - 1]
FAR = 2**33  # bytes: 2^31 elements of float32


@pytest.fixture(scope="module")
def zeros() -> NDArray[np.uint8]:
    """8 GiB of addresses and some; pages get memory of their own when something is written to them."""
    no_reserve = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Linux's number; Python has the name from 3.13 on
    pages = mmap.mmap(-1, 4 * ELEMENTS, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
    pages.madvise(mmap.MADV_NOHUGEPAGE)  # a page of zeros takes no memory, but a huge one may
    return np.frombuffer(pages, np.uint8)


def far_apart(zeros: NDArray[np.uint8], array: Array, axis: int) -> Array:
    """Return the array in other memory: neighbours along one axis are FAR / (length - 1) bytes from each other."""
    strides = list(np.empty(array.shape, array.dtype).strides)
    strides[axis] = FAR // (array.shape[axis] - 1)
    if axis == array.ndim - 1:  # the others take less than a page
        strides[:-1] = [s // array.shape[axis] for s in strides[:-1]]
    view = as_strided(zeros.view(array.dtype), array.shape, strides)
    view[...] = array
    return view


# ---- everything between the ends is read ---------------------------------------------------------------------------


@pytest.mark.parametrize("stored", ["(V, D)", "(D, V)"])
def test_a_weight_of_more_than_2_31_elements(zeros: NDArray[np.uint8], each_isa: str, stored: str) -> None:
    dtype = oracle.BFLOAT16 if stored == "(V, D)" else FLOAT16
    matrix = zeros[: 2 * ELEMENTS].view(dtype)
    weight = matrix.reshape(VOCABULARY, WIDTH) if stored == "(V, D)" else matrix.reshape(WIDTH, VOCABULARY).T
    marks = weight[MARKED, -1] = np.array([1, 2, 3, 4], dtype)
    hidden = np.zeros((3, WIDTH), np.float32)
    hidden[:, -1] = [1, 2, 3]
    # Every 1,024th id, the last one among them.
    step = 2**10 if each_isa == "scalar" else 1
    view = weight[(VOCABULARY - 1) % step :: step]
    found = [i for i, id_ in enumerate(MARKED) if id_ % step == (VOCABULARY - 1) % step]
    ids = [MARKED[i] // step for i in found]
    for rows in (1, 3):
        top = native.logits_topk(hidden[:rows], view, len(ids), threads=2)
        np.testing.assert_array_equal(top.indices, [ids[::-1]] * rows)
        np.testing.assert_array_equal(top.values, hidden[:rows, -1:] * marks[found[::-1]].astype("f4"))
    z = native.logits(hidden[0], view, threads=2)
    np.testing.assert_array_equal(np.flatnonzero(z), ids)
    weight[MARKED, -1] = 0


def test_a_quantised_weight_of_more_than_2_31_elements(zeros: NDArray[np.uint8], each_isa: str) -> None:
    values = zeros[:ELEMENTS].view(np.int8).reshape(VOCABULARY, WIDTH)
    values[MARKED, -1] = [1, 2, 3, 4]
    step = 2**10 if each_isa == "scalar" else 1
    view = values[(VOCABULARY - 1) % step :: step]
    weight = native.QuantizedWeight._of(view, np.ones((len(view), 1), np.float32), WIDTH, 8, None)
    found = [i for i, id_ in enumerate(MARKED) if id_ % step == (VOCABULARY - 1) % step]
    ids = [MARKED[i] // step for i in found]
    for rows in (1, 3):
        top = native.logits_topk(np.ones((rows, WIDTH), np.float32), weight, len(ids), threads=2)
        np.testing.assert_array_equal(top.indices, [ids[::-1]] * rows)
        np.testing.assert_array_equal(top.values, [[i + 1 for i in found[::-1]]] * rows)
    np.testing.assert_array_equal(weight.gather(ids)[:, -1], [i + 1 for i in found])
    values[MARKED, -1] = 0


def test_hidden_states_of_more_than_2_31_elements(zeros: NDArray[np.uint8], each_isa: str) -> None:
    hidden = zeros[: 2 * ELEMENTS].view(oracle.BFLOAT16).reshape(VOCABULARY, WIDTH)
    hidden[MARKED, -1] = [1, 2, 3, 4]
    step = 2**10 if each_isa == "scalar" else 1
    view = hidden[(VOCABULARY - 1) % step :: step]
    z = native.logits(view, np.ones((1, WIDTH), np.float32), threads=1)[:, 0]
    np.testing.assert_array_equal(z, view[:, -1].astype("f4"))
    assert z[-1] == 4
    hidden[MARKED, -1] = 0


def test_a_row_of_more_than_2_31_logits(zeros: NDArray[np.uint8], each_isa: str) -> None:
    row = zeros[: 4 * ELEMENTS].view(FLOAT32)
    marked = [2**31 - 1, 2**31, 2**31 + 7, ELEMENTS - 1]
    row[marked] = [1, 2, 3, 4]
    values, indices = native.topk(row, 4, threads=2)
    np.testing.assert_array_equal(indices, marked[::-1])
    np.testing.assert_array_equal(values, [4, 3, 2, 1])
    row[marked] = 0
    if each_isa != "scalar":
        # Equal blocks: every partial sum is a multiple of 256 below 2^28 and so exact.
        assert native.logsumexp(row, threads=2) == np.float32(math.log(ELEMENTS))


def test_rows_that_are_one_row_in_memory() -> None:
    """N x V beyond 2^31, most of it -inf."""
    row = np.full(2**19, -np.inf, np.float32)
    row[[7, 2**19 - 1]] = 3.0
    rows = np.broadcast_to(row, (2**12 + 1, 2**19))
    assert rows.size > 2**31
    top = native.topk(rows, 2, threads=2)
    np.testing.assert_array_equal(top.indices, np.broadcast_to([7, 2**19 - 1], (2**12 + 1, 2)))
    total = native.logsumexp(rows, threads=2)
    np.testing.assert_array_equal(total, np.full(2**12 + 1, 3 + math.log(2), np.float32))


# ---- distances -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
def test_operands_far_apart(zeros: NDArray[np.uint8], threads: int, dtype: DType) -> None:
    """Rows, or the elements of every row, spread over 8 GiB."""
    rng = np.random.default_rng(1)
    hidden, weight = rng.standard_normal((3, 9)).astype(dtype), rng.standard_normal((33, 9)).astype(dtype)
    logits = native.logits(hidden, weight)
    best = native.topk(logits, 5)
    for axis in (0, 1):
        far = far_apart(zeros, weight, axis)
        for rows in (1, 3):
            oracle.assert_same_bits(native.logits(hidden[:rows], far, threads=threads), logits[:rows])
            top = native.logits_topk(hidden[:rows], far, 5, threads=threads)
            oracle.assert_same_bits(top.indices, best.indices[:rows])
        far[...] = 0
        far = far_apart(zeros, hidden, axis)
        oracle.assert_same_bits(native.logits(far, weight, threads=threads), logits)
        for norm in (native.layer_norm, native.rms_norm):
            oracle.assert_same_bits(norm(far, threads=threads), norm(hidden))
        far[...] = 0
        far = far_apart(zeros, weight, axis)
        for function in (native.softmax, native.log_softmax, native.logsumexp):
            oracle.assert_same_bits(function(far, threads=threads), function(weight))
        oracle.assert_same_bits(native.topk(far, 5, threads=threads).indices, native.topk(weight, 5).indices)
        far[...] = 0


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)
def test_results_far_apart(zeros: NDArray[np.uint8], threads: int, dtype: DType) -> None:
    rng = np.random.default_rng(2)
    hidden, weight = rng.standard_normal((3, 9)).astype(dtype), rng.standard_normal((33, 9)).astype(dtype)
    nothing = np.zeros((3, 33), dtype)
    for axis, function in itertools.product((0, 1), (native.softmax, native.log_softmax)):
        logits = native.logits(hidden, weight)
        out = far_apart(zeros, nothing, axis)
        oracle.assert_same_bits(native.logits(hidden, weight, out=out, threads=threads), logits)
        oracle.assert_same_bits(function(logits, out=out, threads=threads), function(logits))
        oracle.assert_same_bits(native.rms_norm(logits, out=out, threads=threads), native.rms_norm(logits))
        oracle.assert_same_bits(native.layer_norm(logits, out=out, threads=threads), native.layer_norm(logits))
        out[...] = 0
    total = far_apart(zeros, nothing[:, 0], 0)
    oracle.assert_same_bits(native.logsumexp(logits, out=total, threads=threads), native.logsumexp(logits))
    total[...] = 0
