"""Whether what was timed is right: samples of the result against float64, within the bound that its arithmetic allows.

Knows: which part of a large result is checked, the documented bound of each operation. Refuses to know: clocks and who
computed it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import lmhead_native as native
from lmhead_native import reference
from oracle import (
    SECOND_ORDER,
    SMALLEST_NORMAL,
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
# Of a loss and of its slope: exponentials of 1.2 ulp, their sum in 16 lanes of 16, a few roundings. In units of 2^-24.
LOSS_RELATIVE = 40 * 2.0**-24
BF16_HALF_ULP = 2.0**-8


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


def check_masked_topk(hidden_nd: Array, weight_vd: Array, allowed: Array, found: native.TopK, k: int) -> None:
    """Assert the k best of those logits that are allowed, at least k of them; the logits are themselves checked."""
    rows = spread(len(hidden_nd), ROWS)
    logits = native.logits(hidden_nd[rows], weight_vd)
    check_logits(hidden_nd[rows], weight_vd, logits)
    masked = np.where(allowed[rows] if len(allowed) > 1 else allowed, logits, np.float32(-np.inf))
    check_top_k(masked, native.TopK(found.values[rows], found.indices[rows]), k)


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


def check_cross_entropy(logits_nv: Array, targets_n: Array, loss: Any) -> None:
    """Assert the mean loss: exponentials of 2 ulp, sums of 256 in 16 lanes, the maximum and the target exact."""
    exact = reference.cross_entropy(logits_nv.astype(np.float64), targets_n)
    assert loss.dtype == np.float32
    assert_within(loss, exact, LOSS_RELATIVE * (1 + abs(exact)))


def check_cross_entropy_with_grad(logits_nv: Array, targets_n: Array, result: tuple[Any, Array]) -> None:
    """Assert the mean loss and the gradient of some rows."""
    loss, dlogits = result
    check_cross_entropy(logits_nv, targets_n, loss)
    rows = spread(len(logits_nv), ROWS)
    _, exact = reference.cross_entropy_with_grad(logits_nv[rows].astype(np.float64), targets_n[rows], reduction="sum")
    exact = exact / len(logits_nv)
    assert_within(dlogits[rows], exact, LOSS_RELATIVE * np.abs(exact) + UNDERFLOW["float32"])


def check_logits_scores(hidden_nd: Array, weight_vd: Array, targets_n: Array, found: native.TokenScores) -> None:
    """Assert some rows: bit for bit the scores of their logits, which are checked, and these against float64."""
    rows = spread(len(hidden_nd), ROWS)
    logits = native.logits(hidden_nd[rows], weight_vd)
    check_logits(hidden_nd[rows], weight_vd, logits)
    answers = row_answers(logits)
    expected = native.scores(logits, targets_n[rows])
    for field, theirs in zip(found, expected, strict=True):
        if theirs is not None:
            assert_same_bits(field[rows], theirs)
    at = np.arange(len(rows)), targets_n[rows]
    assert_within(expected.logprob, answers.log_softmax[at], answers.log_softmax_bound[at])
    terms = np.where(answers.softmax > 0, -answers.softmax * answers.log_softmax, 0.0)
    assert_within(expected.entropy, terms.sum(axis=-1), LOSS_RELATIVE * terms.sum(axis=-1))
    np.testing.assert_array_equal(expected.rank, 1 + (logits > logits[at][:, None]).sum(axis=-1))
    assert len(found.logsumexp) == len(hidden_nd)


def check_linear_cross_entropy(hidden_nd: Array, weight_vd: Array, targets_n: Array, loss: Any) -> None:
    """Assert the loss of the head: bit for bit that of its logits, which are checked, and those against float64."""
    rows = spread(len(hidden_nd), ROWS)
    logits = native.logits(hidden_nd[rows], weight_vd)
    check_logits(hidden_nd[rows], weight_vd, logits)
    check_cross_entropy(logits, targets_n[rows], native.cross_entropy(logits, targets_n[rows]))
    each = native.linear_cross_entropy(hidden_nd, weight_vd, targets_n, reduction="none")
    assert_same_bits(each[rows], native.cross_entropy(logits, targets_n[rows], reduction="none"))
    assert_within(loss, each.astype(np.float64).mean(), LOSS_RELATIVE * np.abs(each).max())


def check_linear_cross_entropy_with_grad(
    hidden_nd: Array, weight_vd: Array, targets_n: Array, result: tuple[Any, Array, Array, None]
) -> None:
    """Assert the loss, and some rows of both gradients from logits that are themselves checked."""
    loss, dhidden, dweight, dbias = result
    assert dbias is None
    check_linear_cross_entropy(hidden_nd, weight_vd, targets_n, loss)
    both_bf16 = hidden_nd.dtype == weight_vd.dtype and weight_vd.dtype.name == "bfloat16"
    rounding = BF16_HALF_ULP if both_bf16 else 0.0  # p - y goes into the products as bfloat16
    rows = spread(len(hidden_nd), ROWS)
    hidden = widen(hidden_nd)
    _, slope = reference.cross_entropy_with_grad(
        native.logits(hidden_nd[rows], weight_vd).astype(np.float64), targets_n[rows], reduction="sum"
    )
    slope = slope / len(hidden_nd)
    weight = widen(weight_vd)
    # Probabilities below the smallest normal float32 may be 0, on both sides of a product.
    lost = SMALLEST_NORMAL["float32"]
    bound = (rounding + LOSS_RELATIVE + gamma(len(weight))) * (np.abs(slope) @ np.abs(weight))
    bound += lost * (np.abs(weight).sum(axis=0) + len(weight))
    assert_within(dhidden[rows], slope @ weight, bound)
    del weight
    # Columns of the gradient of all logits, from the log-sum-exp of every row.
    ids = np.union1d(spread(len(weight_vd), ROWS), targets_n[rows])
    each = native.linear_cross_entropy(hidden_nd, weight_vd, targets_n, stats=True, reduction="none")
    columns = native.logits(hidden_nd, np.ascontiguousarray(weight_vd[ids])).astype(np.float64)
    slopes = np.exp(columns - each.logsumexp.astype(np.float64)[:, None]) - (targets_n[:, None] == ids)
    slopes /= len(hidden_nd)
    # A log-sum-exp in float32 is off by half an ulp, which is what p is off by, relatively.
    off = LOSS_RELATIVE * (1 + np.abs(each.logsumexp).max())
    bound = (rounding + off + gamma(len(hidden_nd))) * (np.abs(slopes).T @ np.abs(hidden)) + off / len(hidden_nd) * (
        (targets_n[:, None] == ids).T @ np.abs(hidden)
    )
    bound += lost * (np.abs(hidden).sum(axis=0) + len(hidden))
    assert_within(dweight[ids], slopes.T @ hidden, bound)
