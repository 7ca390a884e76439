"""What the numeric tests are run for: dtypes of logits and of heads, lengths of rows.

Knows parametrisation. Refuses to know functions and bounds.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import oracle

every_dtype = pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
PAIRS = [*itertools.product(oracle.NARROW, repeat=2), (np.dtype(np.float64), np.dtype(np.float64))]
every_pair = pytest.mark.parametrize(("hidden_dtype", "weight_dtype"), PAIRS, ids=str)
wide_dtypes = pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float64)], ids=str)

# Around every register (4 to 16 elements), two of them, and the block (256).
ROW_SIZES = (*range(1, 71), 73, 101, 127, 128, 129, 255, 256, 257, 511, 513, 769, 1023, 1024, 1025)
