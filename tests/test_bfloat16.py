"""float32 to bfloat16, one rounding to nearest, ties to even, on every kernel table.

Knows the cases that others got wrong. Refuses to know where the library rounds to bfloat16.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from lmhead_native import _core

CASES = {
    0x00000000: 0x0000,
    0x80000000: 0x8000,  # -0
    0x3F808000: 0x3F80,  # halfway, to even
    0x3F818000: 0x3F82,  # halfway, to even
    0x3F808001: 0x3F81,
    0x7F7FFFFF: 0x7F80,  # the greatest float32 is beyond the greatest bfloat16
    0xFF7FFFFF: 0xFF80,
    0x7F800000: 0x7F80,
    0xFF800000: 0xFF80,
    0x00000001: 0x0000,  # subnormal, below half of the smallest bfloat16
    0x00008000: 0x0000,  # halfway to it
    0x00008001: 0x0001,
    0x807F0000: 0x807F,  # subnormal, exact
    0x007FFFFF: 0x0080,  # to the smallest normal
}


def test_the_cases(every_isa: str) -> None:
    bits = np.array(list(CASES), np.uint32)
    for n in range(1, len(bits) + 1):  # whole registers and every tail
        found = _core.bfloat16_bits(bits[:n].view(np.float32))
        np.testing.assert_array_equal(found, list(CASES.values())[:n])


def test_nan_stays_nan(every_isa: str) -> None:
    """Also where only bits that are cut off make it one."""
    bits = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0x7F80FFFF], np.uint32)
    for n in range(1, len(bits) + 1):
        found = _core.bfloat16_bits(bits[:n].view(np.float32))
        assert ((found & 0x7F80) == 0x7F80).all()
        assert ((found & 0x7F) != 0).all()


def test_any_number(every_isa: str) -> None:
    bits = np.random.default_rng(5).integers(0, 2**32, 100_000, np.uint32)
    values = bits[~np.isnan(bits.view(np.float32))].view(np.float32)
    expected = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    np.testing.assert_array_equal(_core.bfloat16_bits(values), expected)


def test_other_arrays_are_refused() -> None:
    for values in (np.zeros(3), np.zeros((2, 2), np.float32), np.zeros(6, np.float32)[::2]):
        with pytest.raises(TypeError, match=r"^values: expected float32 of one axis"):
            _core.bfloat16_bits(values)
