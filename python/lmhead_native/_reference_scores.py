"""What a text's tokens are worth: `logits_scores`, `scores` and `perplexity` of `lmhead_native.reference`.

Knows the log-probability, rank and entropy of a row. Refuses to know where targets and allowed ids come from
(`_reference_targets`, `_reference_allowed`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _reference_checks as checks
from ._reference_adjust import adjust
from ._reference_allowed import Allowed, allowed, integers, range_text, with_axis
from ._reference_checks import Operand
from ._reference_log_sum_exp import log_probabilities, log_sum_exp
from ._reference_rank import at_ids, best_first, best_ids
from ._reference_targets import counted
from ._token_scores import TokenScores
from ._typing import Weight

__all__ = ["logits_scores", "perplexity", "scores"]

Array = NDArray[np.float64]
Ids = NDArray[np.int64]


def logits_scores(
    hidden: ArrayLike,
    weight: Weight,
    targets: ArrayLike | None = None,
    *,
    bias: ArrayLike | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    mask: ArrayLike | None = None,
    allowed_ids: Any = None,
    vocab_ids: ArrayLike | None = None,
    temperature: float = 1.0,
    ignore_index: int = -100,
    shift: int | bool = 0,
    top_n: int = 0,
    chosen: ArrayLike | None = None,
    threads: int | None = None,
) -> TokenScores:
    """Score the targets of hidden states: ``scores(logits(hidden, weight, ...), targets, ...)``.

    Parameters
    ----------
    hidden, weight, bias, softcap, scale
        As in `logits`.
    targets, temperature, ignore_index, shift, top_n, chosen, threads
        As in `scores`.
    mask, allowed_ids, vocab_ids
        As in `logits_topk`.

    Returns
    -------
    TokenScores
        As from `scores`, full ids.

    Raises
    ------
    IndexError, ValueError, TypeError
        As `logits_topk` and `scores`.

    Notes
    -----
    The logits stay float64, where the native function has them in the result's dtype. NaN, inf and everything else: as
    `scores`.
    """
    h, w = checks.hidden_and_weight(hidden, weight)
    b = checks.vector("bias", bias, "V", w.memory.shape[0], f"weight of shape {w.memory.shape}")
    cap, factor = checks.softcap_of(softcap), checks.scale_of(scale)
    name = f"hidden of shape {h.memory.shape}"
    usable = allowed(mask, allowed_ids, vocab_ids, h.memory.shape[:-1], w.memory.shape[0], name)

    def raw(rows: Ids) -> Array:
        return adjust(h.rows()[rows] @ w.values.T, None if b is None else b.values, cap, factor)

    return _scored(raw, "hidden", h, usable, targets, temperature, ignore_index, shift, top_n, chosen, threads)


def scores(
    logits: ArrayLike,
    targets: ArrayLike | None = None,
    *,
    mask: ArrayLike | None = None,
    allowed_ids: Any = None,
    temperature: float = 1.0,
    ignore_index: int = -100,
    shift: int | bool = 0,
    top_n: int = 0,
    chosen: ArrayLike | None = None,
    threads: int | None = None,
) -> TokenScores:
    """Say of every row of logits how probable its target is, how it ranks, and how sure the row is.

    Parameters
    ----------
    logits : array_like, shape (..., V)
        float32, float16, bfloat16 or float64.
    targets : array_like, shape (...), optional
        Ids of any integer dtype. Without them no log-probability and no rank is returned.
    mask, allowed_ids
        As in `logits_topk`.
    temperature : float, default 1.0
        What logits are divided by; above 0 and finite.
    ignore_index : int, default -100
        The target of positions that are not computed.
    shift : int, default 0
        Pair row t with target t + shift; the results have so many columns less.
    top_n : int, default 0
        How many of the best to list: 0 to V.
    chosen : array_like of ids, shape (m,) or (..., m), optional
        Ids whose log-probabilities are wanted: the same for all positions, or of the results' shape with an axis more.
    threads : int, optional
        Checked, otherwise unused.

    Returns
    -------
    TokenScores
        Of the targets' shape, less `shift` columns.

    Raises
    ------
    IndexError
        A target or chosen id of a position that counts is no id.
    ValueError
        Shapes that do not match; a shift without targets; parameters out of range.
    TypeError
        Targets or ids of no integer dtype; operands as in `logits`.

    Notes
    -----
    ``logprob = (z_target - max) / T - log1p(rest)``, never above 0. Rows with NaN or +inf, or of nothing but -inf, have
    NaN for log-probabilities and entropy, a target that is not allowed among them, and NaN, inf or -inf as logsumexp;
    rank, argmax and lists follow the order of `topk` there, too. The entropy counts ``0 * log 0`` as 0.
    """
    x = checks.rows("logits", logits, "V")
    name = f"logits of shape {x.memory.shape}"
    usable = allowed(mask, allowed_ids, None, x.memory.shape[:-1], x.memory.shape[-1], name)
    return _scored(
        lambda rows: x.rows()[rows],
        "logits",
        x,
        usable,
        targets,
        temperature,
        ignore_index,
        shift,
        top_n,
        chosen,
        threads,
    )


def perplexity(
    hidden: ArrayLike,
    weight: Weight,
    targets: ArrayLike,
    *,
    bias: ArrayLike | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    mask: ArrayLike | None = None,
    allowed_ids: Any = None,
    vocab_ids: ArrayLike | None = None,
    temperature: float = 1.0,
    ignore_index: int = -100,
    shift: int | bool = 0,
    threads: int | None = None,
) -> np.float64:
    """Return the exponential of the mean negative log-probability of the targets that are not ignored.

    Parameters
    ----------
    hidden, weight, targets, bias, softcap, scale, mask, allowed_ids, vocab_ids
        As in `logits_scores`.
    temperature, ignore_index, shift, threads
        As in `logits_scores`.

    Returns
    -------
    float64
        At least 1; NaN where nothing is counted, inf where a target is impossible.

    Raises
    ------
    IndexError, ValueError, TypeError
        As `logits_scores`.

    Notes
    -----
    The log-probabilities are those of `logits_scores`, rounded to its dtype; their sum and its exponential are float64.
    NaN where nothing counts or a counted row has NaN.
    """
    if targets is None:
        raise TypeError("targets: expected an integer dtype, got None")
    found = logits_scores(
        hidden,
        weight,
        targets,
        bias=bias,
        softcap=softcap,
        scale=scale,
        mask=mask,
        allowed_ids=allowed_ids,
        vocab_ids=vocab_ids,
        temperature=temperature,
        ignore_index=ignore_index,
        shift=shift,
        threads=threads,
    )
    counts = _not_ignored(targets, ignore_index, found.logsumexp.shape)
    assert found.logprob is not None
    with np.errstate(all="ignore"):
        total, n = found.logprob[counts].sum(dtype=np.float64), np.count_nonzero(counts)
        return np.exp(np.float64(-total / n)) if n else np.float64(np.nan)


def _not_ignored(targets: Any, ignore_index: int, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return which positions of scores of a shape, which has lost its first columns to a shift, count."""
    ids = integers("targets", targets)
    kept = ids[..., ids.shape[-1] - shape[-1] :] if shape else ids
    return np.asarray(kept.astype(object) != ignore_index, bool).reshape(shape)


# ---- every position ------------------------------------------------------------------------------------------------


class _Positions(NamedTuple):
    """The n positions that count: their places in results of a shape, their rows, and their targets if there are."""

    shape: tuple[int, ...]
    places: Ids
    rows: Ids
    ids: Ids | None

    def placed(self, values: NDArray[Any], elsewhere: float, dtype: Any) -> NDArray[Any]:
        """Return an array of the shape, perhaps with an axis more, with values in their places."""
        more = values.shape[1:]
        whole = np.full((math.prod(self.shape), *more), elsewhere, dtype)
        whole[self.places] = values
        return whole.reshape((*self.shape, *more))


def _positions(name: str, operand: Operand, n_ids: int, targets: Any, ignore_index: Any, shift: Any) -> _Positions:
    if targets is not None:
        count = counted(
            name,
            operand,
            n_ids,
            targets,
            token_weight=None,
            ignore_index=ignore_index,
            shift=shift,
            or_probabilities=False,
        )
        return _Positions(count.shape, count.places, count.rows, count.ids)
    checks.integer("ignore_index", ignore_index, "of any size", lambda i: True)
    number = int(shift) if isinstance(shift, checks.BOOLS) else shift
    if checks.integer("shift", number, "of at least 0", lambda s: s >= 0):
        raise ValueError(f"shift: expected 0 without targets, got {checks.text_of(number)}")
    shape = operand.memory.shape[:-1]
    rows = np.arange(math.prod(shape))
    return _Positions(shape, rows, rows, None)


def _chosen(value: Any, positions: _Positions, n_ids: int) -> Ids | None:
    """Return the chosen ids of the positions that count, (n, m); those of others are not looked at."""
    if value is None:
        return None
    ids, shape = integers("chosen", value), positions.shape
    if ids.ndim == 0 or ids.shape[:-1] not in ((), shape):
        raise ValueError(
            f"chosen: expected shape (m,) or {with_axis(shape, 'm')} as the scores have shape {shape}, "
            f"got shape {ids.shape}"
        )
    whole = np.broadcast_to(ids, (*shape, ids.shape[-1])).reshape(math.prod(shape), ids.shape[-1])
    of_rows = whole[positions.places]
    wrong = np.argwhere((of_rows < 0) | (of_rows >= n_ids))
    if wrong.size:
        n, column = wrong[0]
        place = np.unravel_index(positions.places[n], shape) if shape and ids.ndim > 1 else ()
        position = (*(int(i) for i in place), int(column))
        raise IndexError(f"chosen: expected {range_text(n_ids)}, got {int(of_rows[n, column])} at position {position}")
    return of_rows.astype(np.int64)


def _scored(
    raw: Callable[[Ids], Array],
    name: str,
    operand: Operand,
    usable: Allowed,
    targets: Any,
    temperature: Any,
    ignore_index: Any,
    shift: Any,
    top_n: Any,
    chosen: Any,
    threads: Any,
) -> TokenScores:
    t, dtype, n_ids = checks.temperature_of(temperature), checks.result_dtype(operand), usable.n_ids
    n = checks.integer("top_n", top_n, f"from 0 to V = {n_ids}", lambda k: 0 <= k <= n_ids)
    checks.check_threads(threads)
    positions = _positions(name, operand, n_ids, targets, ignore_index, shift)
    chosen_ids = _chosen(chosen, positions, n_ids)
    has = usable.has[positions.rows]
    with np.errstate(all="ignore"):
        z = usable.spread(raw(positions.rows), positions.rows)
        log_p = log_probabilities(z, t)
        logsumexp, entropy = _logsumexp_and_entropy(z, log_p, t)
        logprob = rank = tops = top_ids = chosen_logprobs = None
        if positions.ids is not None:
            logprob = positions.placed(at_ids(log_p, positions.ids[:, None], np.nan)[:, 0], 0.0, dtype)
            rank = positions.placed(_rank(z, has, positions.ids), -1, np.int64)
        if n:
            best = best_ids(z, has, n)
            tops, top_ids = (
                positions.placed(at_ids(log_p, best, -np.inf), np.nan, dtype),
                positions.placed(best, -1, np.int64),
            )
        if chosen_ids is not None:
            chosen_logprobs = positions.placed(at_ids(log_p, chosen_ids, np.nan), np.nan, dtype)
        return TokenScores(
            logprob,
            positions.placed(logsumexp, np.nan, dtype),
            rank,
            positions.placed(entropy, np.nan, dtype),
            positions.placed(_argmax(z, has), -1, np.int64),
            tops,
            top_ids,
            chosen_logprobs,
        )


def _logsumexp_and_entropy(z: Array, log_p: Array, temperature: float) -> tuple[Array, Array]:
    if z.size == 0:  # the sum over nothing
        return np.full(len(z), -np.inf), np.full(len(z), np.nan)
    lse = log_sum_exp(z, temperature)
    total = np.where(np.isfinite(lse.maximum), lse.maximum / temperature + np.log1p(lse.rest), lse.maximum)
    p = np.exp(log_p)
    return total[:, 0], 0.0 - np.where(p == 0, 0.0, p * log_p).sum(axis=-1)


def _argmax(z: Array, has: NDArray[np.bool_]) -> Ids:
    return best_ids(z, has, 1)[:, 0] if z.shape[-1] else np.full(len(z), -1)


def _rank(z: Array, has: NDArray[np.bool_], ids: Ids) -> Ids:
    """Return 1 + the place of each id among the allowed ones of its row, -1 where it is none of them."""
    if z.size == 0:
        return np.full(len(z), -1)
    places = (best_first(z, has) == ids[:, None]).argmax(axis=-1)
    return np.where(np.take_along_axis(has, ids[:, None], axis=-1)[:, 0], places + 1, -1)
