"""Answers and error bounds that tests compare with.

Knows float64 formulas of its own (none is taken from `lmhead_native`), how far an arithmetic of unit roundoff u may
stray from them, and how to compare bits. Refuses to know fixtures, cases, and which function is under test.

Bounds are first-order rounding analysis (Higham, "Accuracy and Stability of Numerical Algorithms", chapter 3) times
`SECOND_ORDER`. They hold for any order of additions unless said otherwise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
NARROW = [np.dtype(np.float32), np.dtype(np.float16), BFLOAT16]  # what gives float32 results
FLOATS = [*NARROW, np.dtype(np.float64)]

# Half the distance from 1 to the next number.
UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
# Half the smallest subnormal: what a single operation may lose to underflow.
UNDERFLOW = {"float32": 2.0**-150, "float64": 2.0**-1074}
SMALLEST_NORMAL = {"float32": 2.0**-126, "float64": 2.0**-1022}

# exp, log1p and tanh are allowed 2 ulp, that is 4 u.
FUNCTION_ULP = 4.0
# Products of rates neglected by the first-order bounds; rates here stay below 1e-3.
SECOND_ORDER = 1.001
# Reductions over the vocabulary run within blocks of 256 ids, then over the blocks in id order.
BLOCK = 256


def gamma(n: float, u: float = UNIT["float32"]) -> float:
    """Return n u / (1 - n u): the relative error of n roundings in a row."""
    assert n * u < 1
    return n * u / (1 - n * u)


def result_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return float64 for float64, float32 for everything narrower."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def widen(array: ArrayLike) -> NDArray[np.float64]:
    """Return the values as float64, exactly."""
    return np.asarray(array).astype(np.float64)


# ---- comparing -----------------------------------------------------------------------------------------------------


def assert_same_bits(actual: ArrayLike, expected: ArrayLike) -> None:
    """Assert equal dtype, shape and bits, where any NaN equals any other; -0.0 and 0.0 differ."""
    a, b = np.asarray(actual), np.asarray(expected)
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    uint = np.dtype(f"uint{8 * a.dtype.itemsize}")
    same = np.ascontiguousarray(a).view(uint) == np.ascontiguousarray(b).view(uint)
    if a.dtype.kind not in "iu":
        same |= np.isnan(a.reshape(same.shape)) & np.isnan(b.reshape(same.shape))
    assert same.all(), f"{np.count_nonzero(~same)} of {same.size} differ, first at {tuple(np.argwhere(~same)[0])}"


def assert_same(found: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    """Assert the same bits of everything that a call gives, and None where None is expected."""
    for mine, theirs in zip(found, expected, strict=True):
        if theirs is None:
            assert mine is None
        else:
            assert_same_bits(np.array(mine), theirs)


def assert_within(actual: ArrayLike, exact: ArrayLike, bound: ArrayLike) -> None:
    """Assert |actual - exact| <= bound where the exact answer is finite, and the same NaN or infinity elsewhere."""
    a, e = widen(actual), widen(exact)
    assert a.shape == e.shape
    finite = np.isfinite(e)
    np.testing.assert_array_equal(np.where(finite, 0.0, a), np.where(finite, 0.0, e))
    with np.errstate(invalid="ignore"):
        excess = np.where(finite, np.abs(a - e) - bound, -1.0)
    wrong = ~(excess <= 0)
    assert not wrong.any(), (
        f"{np.count_nonzero(wrong)} of {wrong.size} out of bounds, first at {tuple(np.argwhere(wrong)[0])}: "
        f"{a[wrong][0]!r} for {e[wrong][0]!r}"
    )


# ---- logits --------------------------------------------------------------------------------------------------------


def logits_exact(
    hidden: ArrayLike,
    weight: ArrayLike,
    *,
    bias: ArrayLike | None = None,
    softcap: float | None = None,
    scale: float | None = None,
) -> NDArray[np.float64]:
    """Return scale * softcap * tanh((hidden @ weight.T + bias) / softcap) in float64."""
    z = np.einsum("...d,vd->...v", widen(hidden), widen(weight))
    z = z if bias is None else z + widen(bias)
    z = z if softcap is None else softcap * np.tanh(z / softcap)
    return np.asarray(z if scale is None else z * scale)


def logits_bound(
    hidden: ArrayLike,
    weight: ArrayLike,
    *,
    bias: ArrayLike | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    result: str = "float32",
) -> NDArray[np.float64]:
    """Bound the error of logits computed and returned in `result`.

    D products and sums lose gamma(D) of sum |h||w|, 17 more cover zero padding of lanes and the tree that adds them.
    tanh has slope at most 1, so an error passes through the cap no larger than it came.
    """
    h, w, u = np.abs(widen(hidden)), np.abs(widen(weight)), UNIT[result]
    width = w.shape[1]
    magnitude = np.einsum("...d,vd->...v", h, w)
    bound = gamma(width + 17, u) * magnitude + (width + 17) * UNDERFLOW[result]
    if bias is not None:  # its own rounding, then that of the sum
        magnitude = magnitude + np.abs(widen(bias))
        bound = bound + 2 * u * magnitude
    if softcap is not None:  # cap itself, division, tanh, product
        magnitude = np.minimum(magnitude, softcap)
        bound = bound + (3 + FUNCTION_ULP) * u * magnitude
    if scale is not None:
        bound, magnitude = bound * abs(scale), magnitude * abs(scale)
        bound = bound + 2 * u * magnitude
    return np.asarray(SECOND_ORDER * bound)


# ---- rows ----------------------------------------------------------------------------------------------------------


class RowAnswers(NamedTuple):
    """Exact answers for rows of logits, and what float32 or float64 arithmetic may be off by."""

    softmax: NDArray[np.float64]
    log_softmax: NDArray[np.float64]
    logsumexp: NDArray[np.float64]
    softmax_bound: NDArray[np.float64]
    log_softmax_bound: NDArray[np.float64]
    logsumexp_bound: NDArray[np.float64]


def row_answers(
    logits: ArrayLike, *, temperature: float = 1.0, result: str = "float32", reference_gap: float = 0.0
) -> RowAnswers:
    """Return softmax, log_softmax and logsumexp of every row (V >= 1) in float64, with bounds.

    The sum runs in blocks (`BLOCK`), whatever the order inside one. `reference_gap`: how far from the maximum, in
    logits, the subtracted reference may lie. Softmax may give 0 below the smallest normal number.
    """
    x, u = widen(logits), UNIT[result]
    vocabulary = x.shape[-1]
    chain = min(vocabulary, BLOCK) + -(-vocabulary // BLOCK)
    with np.errstate(all="ignore"):
        maximum = x.max(axis=-1, keepdims=True)
        gap = np.where(maximum == x, 0.0, (x - maximum) / temperature)
        term = np.exp(gap)
        total = term.sum(axis=-1, keepdims=True)
        # The maximum's 1 is left out before log1p, as a count of equal terms would lose what is below 1 ulp of it.
        rest = np.where(np.arange(vocabulary) == x.argmax(axis=-1, keepdims=True), 0.0, term).sum(
            axis=-1, keepdims=True
        )
        log_total = np.log1p(rest)
        # Difference, temperature and its reciprocal round the argument of exp.
        shift = 3 * u * (np.abs(gap) + reference_gap / temperature)
        term_error = np.where(term == 0, 0.0, term * (shift + FUNCTION_ULP * u))
        total_error = term_error.sum(axis=-1, keepdims=True) / total + gamma(chain, u)
        log_error = total_error + FUNCTION_ULP * u * log_total
        probability = term / total
        softmax_bound = np.where(term == 0, 0.0, term_error / total) + (total_error + 2 * u) * probability
        log_probability = gap - log_total
        log_sum = maximum / temperature + log_total
        answers = RowAnswers(
            probability,
            log_probability,
            log_sum[..., 0],
            SECOND_ORDER * softmax_bound + SMALLEST_NORMAL[result],
            SECOND_ORDER * (shift + log_error + u * np.abs(log_probability)) + UNDERFLOW[result],
            (SECOND_ORDER * (2 * u * np.abs(maximum / temperature) + log_error + u * np.abs(log_sum)))[..., 0],
        )
    undefined = np.isnan(maximum) | np.isinf(maximum)
    return answers._replace(
        softmax=np.where(undefined, np.nan, answers.softmax),
        log_softmax=np.where(undefined, np.nan, answers.log_softmax),
        logsumexp=np.where(undefined, maximum, log_sum)[..., 0],
    )


def top_k_exact(row: ArrayLike, k: int) -> list[int]:
    """Return the k best indices of one row: NaN, then descending, ties by index (Python's sort, not NumPy's)."""
    values = [float(v) for v in widen(row)]
    return sorted(range(len(values)), key=lambda i: (0, 0.0, i) if values[i] != values[i] else (1, -values[i], i))[:k]


# ---- norms ---------------------------------------------------------------------------------------------------------


def layer_norm_exact(
    x: ArrayLike, gain: ArrayLike | None = None, bias: ArrayLike | None = None, *, eps: float = 1e-5
) -> NDArray[np.float64]:
    """Return (x - mean) / sqrt(biased variance + eps) * gain + bias in float64, D >= 1."""
    rows = widen(x)
    mean = rows.sum(axis=-1, keepdims=True) / rows.shape[-1]
    variance = ((rows - mean) ** 2).sum(axis=-1, keepdims=True) / rows.shape[-1]
    y = (rows - mean) / np.sqrt(variance + eps) * (1.0 if gain is None else widen(gain))
    return np.asarray(y if bias is None else y + widen(bias))


def layer_norm_bound(
    x: ArrayLike,
    gain: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    eps: float = 1e-5,
    result: str = "float32",
) -> NDArray[np.float64]:
    """Bound the error of a layer norm computed in `result` with the variance taken from centred values."""
    rows, u = widen(x), UNIT[result]
    width = rows.shape[-1]
    g = 1.0 if gain is None else np.abs(widen(gain))
    mean = rows.mean(axis=-1, keepdims=True)
    centred = np.abs(rows - mean)
    off = gamma(width + 1, u) * np.abs(rows).mean(axis=-1, keepdims=True) + u * centred  # of every centred value
    spread = np.square(centred).mean(axis=-1, keepdims=True) + eps
    spread_off = gamma(width + 2, u) * spread + (2 * centred * off + off**2).mean(axis=-1, keepdims=True)
    normalised = centred / np.sqrt(spread)
    # eps, root, quotient or reciprocal and product, gain and its rounding; then the bias and its rounding.
    bound = (off / np.sqrt(spread) + normalised * (spread_off / (2 * spread) + 6 * u)) * g
    size = normalised * g
    if bias is not None:
        size = size + np.abs(widen(bias))
        bound = bound + 2 * u * size
    return np.asarray(SECOND_ORDER * bound + UNDERFLOW[result])


def rms_norm_exact(x: ArrayLike, gain: ArrayLike | None = None, *, eps: float = 1e-6) -> NDArray[np.float64]:
    """Return x / sqrt(mean(x^2) + eps) * gain in float64, D >= 1."""
    rows = widen(x)
    mean_square = (rows**2).sum(axis=-1, keepdims=True) / rows.shape[-1]
    return np.asarray(rows / np.sqrt(mean_square + eps) * (1.0 if gain is None else widen(gain)))


def rms_norm_bound(
    x: ArrayLike, gain: ArrayLike | None = None, *, eps: float = 1e-6, result: str = "float32"
) -> NDArray[np.float64]:
    """Bound the error of an RMS norm computed in `result`: half of that of the mean square, and 6 roundings."""
    u, width = UNIT[result], np.shape(x)[-1]
    return np.asarray(
        SECOND_ORDER * (gamma(width + 2, u) / 2 + 6 * u) * np.abs(rms_norm_exact(x, gain, eps=eps)) + UNDERFLOW[result]
    )
