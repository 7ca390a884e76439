"""Whether what was timed is right: samples of the result against float64, within the bound that its arithmetic allows.

Knows: which part of a large result is checked, the documented bound of each operation. Refuses to know: clocks and who
computed it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import lmhead_native as native
from oracle import (
    SECOND_ORDER,
    UNDERFLOW,
    assert_same_bits,
    assert_within,
    gamma,
    layer_norm_bound,
    layer_norm_exact,
    logits_exact,
    rms_norm_bound,
    rms_norm_exact,
    row_answers,
    widen,
)

Array = NDArray[Any]

# So many rows and ids of a large result are compared: the first and last ones and others in between. The float64 oracle
# of 4 x 512 logits of width 4096 takes 10 ms.
ROWS, IDS = 4, 512


def spread(count: int, wanted: int) -> Array:
    """Return at most ``wanted`` of ``range(count)``, the ends among them."""
    return np.unique(np.linspace(0, count - 1, min(count, wanted)).astype(np.int64))


def check_logits(hidden_nd: Array, weight_vd: Array, logits_nv: Array) -> None:
    """Assert logits within gamma(D / 16 + 5) of the sum of magnitudes: 16 lanes, a tree of 4 levels, one for a tail."""
    assert logits_nv.dtype == np.float32
    assert logits_nv.shape == (len(hidden_nd), len(weight_vd))
    rows, ids = spread(len(hidden_nd), ROWS), spread(len(weight_vd), IDS)
    hidden, weight = widen(hidden_nd[rows]), widen(weight_vd[ids])
    roundings = -(-hidden.shape[1] // 32) * 2 + 5  # bfloat16 goes by pairs, 32 elements at a time
    bound = SECOND_ORDER * (gamma(roundings) * (np.abs(hidden) @ np.abs(weight).T) + roundings * UNDERFLOW["float32"])
    assert_within(logits_nv[np.ix_(rows, ids)], logits_exact(hidden, weight), bound)


def check_top_k(logits_nv: Array, found: native.TopK, k: int) -> None:
    """Assert the k best of given logits, in the order of a stable sort, with the very values."""
    values, indices = found
    assert values.shape == indices.shape == (len(logits_nv), k)
    assert_same_bits(values, np.take_along_axis(logits_nv, indices, axis=-1).astype(np.float32))
    for row in spread(len(logits_nv), ROWS):
        np.testing.assert_array_equal(indices[row], np.argsort(-logits_nv[row], kind="stable")[:k])


def check_logits_topk(hidden_nd: Array, weight_vd: Array, found: native.TopK, k: int) -> None:
    """Assert the k best of logits that are themselves checked; a row has the same bits in any batch."""
    rows = spread(len(hidden_nd), ROWS)
    logits = native.logits(hidden_nd[rows], weight_vd)
    check_logits(hidden_nd[rows], weight_vd, logits)
    assert len(found.values) == len(hidden_nd)
    check_top_k(logits, native.TopK(found.values[rows], found.indices[rows]), k)


def check_row_operation(op: str, logits_nv: Array, result: Array) -> None:
    """Assert ``softmax``, ``log_softmax`` or ``logsumexp`` of some rows."""
    assert result.dtype == np.float32
    assert result.shape == (logits_nv.shape[:1] if op == "logsumexp" else logits_nv.shape)
    rows = spread(len(logits_nv), ROWS)
    answers = row_answers(logits_nv[rows])
    assert_within(result[rows], getattr(answers, op), getattr(answers, f"{op}_bound"))


def check_norm(op: str, x_nd: Array, gain_d: Array, result: Array) -> None:
    """Assert ``layer_norm`` or ``rms_norm`` with a gain of some rows."""
    assert result.dtype == np.float32
    assert result.shape == x_nd.shape
    rows = spread(len(x_nd), ROWS)
    if op == "layer_norm":
        exact, bound = layer_norm_exact(x_nd[rows], gain_d), layer_norm_bound(x_nd[rows], gain_d)
    else:
        exact, bound = rms_norm_exact(x_nd[rows], gain_d), rms_norm_bound(x_nd[rows], gain_d)
    assert_within(result[rows], exact, bound)
