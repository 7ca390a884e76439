"""A weight stored as (D, V) is read to its last element and no further."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

import lmhead_native as native
from oracle import assert_same_bits


@pytest.mark.parametrize(
    "dtype", [np.dtype(np.float32), np.dtype(np.float16), np.dtype(bfloat16), np.dtype(np.float64)]
)
def test_nothing_past_the_width_is_read(each_isa: str, dtype: np.dtype[Any]) -> None:
    """What stands behind the last row of the matrix is NaN: read and multiplied by 0, it would show."""
    rng = np.random.default_rng(7)
    for width in (1, 15, 31, 33, 63, 95, 127, 128, 129, 255, 383):
        guarded = np.full((width + 1, 70), np.nan).astype(dtype)
        guarded[:width] = rng.standard_normal((width, 70)).astype(dtype)
        weight = guarded[:width].T
        for rows in (1, 4, 5):
            hidden = rng.standard_normal((rows, width)).astype(dtype)
            found = native.logits(hidden, weight)
            assert_same_bits(found, native.logits(hidden, np.ascontiguousarray(weight)))
            assert np.isfinite(found).all()
