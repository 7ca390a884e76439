"""Top-k under NaN: a comparison that NaN could break must neither crash a sort nor lose or repeat an index.

Meant to run also with the standard library's assertions and under AddressSanitizer, where a broken ordering reads out
of bounds and says so. The order itself: NaN of either sign first, then descending, ties by index, -0.0 equal to 0.0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
import oracle
from lmhead_native import reference

pytestmark = pytest.mark.usefixtures("each_isa")

# Few values and many of each: ties, both zeros, both infinities, and NaN of both signs and several payloads.
FINITE = np.array([0.0, -0.0, 1.0, -1.0, 2.5, 65504.0, -65504.0, np.inf, -np.inf])
SIZES = [*range(1, 20), 31, 32, 33, 63, 64, 65, 127, 255, 256, 257, 511, 512, 513, 770, 1023, 1025]
DENSITIES = [0.0, 0.02, 0.3, 0.9, 1.0]


def with_nan(rng: np.random.Generator, values: NDArray[Any], density: float) -> NDArray[Any]:
    """Put NaN of random sign and payload in place of a share of the values."""
    bits: Any = {2: np.uint16, 4: np.uint32, 8: np.uint64}[values.dtype.itemsize]
    quiet = np.array(np.nan).astype(values.dtype).view(bits)
    sign = bits(1) << bits(8 * values.dtype.itemsize - 1)
    signs = rng.integers(0, 2, values.shape).astype(bits) * sign
    payloads = rng.integers(0, 4, values.shape).astype(bits)
    nans = (quiet | signs | payloads).astype(bits).view(values.dtype)
    assert np.isnan(nans).all()
    return np.where(rng.random(values.shape) < density, nans, values)


def check(row: NDArray[Any], values: NDArray[Any], indices: NDArray[np.int64]) -> None:
    assert indices.tolist() == oracle.top_k_exact(row, indices.size)
    oracle.assert_same_bits(values, row[indices].astype(oracle.result_dtype(row.dtype)))


@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
@pytest.mark.parametrize("density", DENSITIES)
def test_rows(dtype: np.dtype[Any], density: float) -> None:
    rng = np.random.default_rng(12)
    for size in SIZES:
        rows = with_nan(rng, rng.choice(FINITE, (3, size)).astype(dtype), density)
        for k in {0, 1, size // 2, size - 1, size}:
            top = native.topk(rows, k, threads=1)
            for row, values, indices in zip(rows, *top, strict=True):
                check(row, values, indices)


def test_orders_that_are_hard_on_a_partial_sort() -> None:
    """Ascending rows change the list at every element; NaN at the ends and in blocks of their own meet every branch."""
    size = 1300
    ascending = np.arange(size, dtype=np.float32)
    rows = [ascending, ascending[::-1], ascending % 7, np.zeros(size, np.float32), np.full(size, np.nan, np.float32)]
    for row in [r.copy() for r in rows]:
        for nans in (
            np.s_[:0],
            np.s_[:1],
            np.s_[-1:],
            np.s_[:256],
            np.s_[256:512],
            np.s_[-300:],
            np.s_[::5],
            np.s_[::2],
        ):
            broken = row.copy()
            broken[nans] = np.nan
            for k in (1, 2, 50, 255, 256, 257, 600, size):
                check(broken, *native.topk(broken, k, threads=1))


def test_rows_shared_by_threads(threads: int) -> None:
    rng = np.random.default_rng(13)
    for density in (0.0, 1e-5, 0.5):
        row = with_nan(rng, rng.choice(FINITE, 270_000).astype(np.float32), density)
        for k in (1, 40, 3000):
            actual, expected = native.topk(row, k, threads=threads), reference.topk(row, k)
            assert actual.indices.tolist() == expected.indices.tolist()
            oracle.assert_same_bits(actual.values, expected.values)


@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
def test_projected_rows(dtype: np.dtype[Any], threads: int) -> None:
    """NaN from hidden states, weights, the bias, and inf - inf: the list is that of the logits themselves."""
    rng = np.random.default_rng(14)
    for size, width in [(1, 1), (5, 3), (70, 16), (257, 33), (1025, 7)]:
        hidden = with_nan(rng, rng.choice(FINITE[:5], (9, width)).astype(dtype), 0.02)
        weight = with_nan(rng, rng.choice(FINITE, (size, width)).astype(dtype), 0.05)
        bias = with_nan(rng, rng.choice(FINITE, size), 0.1)
        for options in ({}, {"bias": bias}, {"bias": bias, "softcap": 5.0, "scale": -1.0}):
            logits = native.logits(hidden, weight, threads=threads, **options)
            for k in {1, size // 3, size}:
                top = native.logits_topk(hidden, weight, k, threads=threads, **options)
                for row, values, indices in zip(logits, *top, strict=True):
                    check(row, values, indices)
