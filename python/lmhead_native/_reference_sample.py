"""Drawing tokens: `logits_sample` and `sample` of `lmhead_native.reference`.

Knows the order of edits, temperature, filters and draw, and which log-probability goes with the token. Refuses to know
how filters choose (`_reference_filters`), where noise comes from (`_reference_random`), and argument checks
(`_reference_sample_checks`, `_reference_allowed`).

Source: the draw as the maximum of perturbed logits, Gumbel, 1954, and Yellott, "The relationship between Luce's choice
axiom, Thurstone's theory of comparative judgment, and the double exponential distribution", 1977; the repetition
penalty, Keskar et al., 2019 (arXiv:1909.05858), section 4.1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _reference_checks as checks
from . import _reference_sample_checks as sample_checks
from ._reference_adjust import adjust
from ._reference_allowed import Allowed, allowed, row_text
from ._reference_filters import kept_ids, log_masses
from ._reference_log_sum_exp import log_probabilities
from ._reference_random import gumbel_noise
from ._reference_rank import at_ids, best_ids
from ._reference_sample_checks import Parameters, Rows
from ._sample_result import Sample
from ._typing import Weight

__all__ = ["logits_sample", "sample"]

Array = NDArray[np.float64]


def logits_sample(
    hidden: ArrayLike,
    weight: Weight,
    *,
    bias: ArrayLike | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    mask: ArrayLike | None = None,
    allowed_ids: Any = None,
    vocab_ids: ArrayLike | None = None,
    temperature: ArrayLike = 1.0,
    top_k: ArrayLike = 0,
    top_p: ArrayLike = 1.0,
    min_p: ArrayLike = 0.0,
    typical_p: ArrayLike = 1.0,
    logit_bias: Any = None,
    repetition_penalty: ArrayLike = 1.0,
    presence_penalty: ArrayLike = 0.0,
    frequency_penalty: ArrayLike = 0.0,
    history: Any = None,
    output: Any = None,
    seed: ArrayLike | None = None,
    position: ArrayLike = 0,
    order: str = "hf",
    logprobs: str | None = "raw",
    top_n: int = 0,
    threads: int | None = None,
) -> Sample:
    """Draw one token for every hidden state: ``sample(logits(hidden, weight, ...), ...)``.

    Parameters
    ----------
    hidden, weight, bias, softcap, scale
        As in `logits`.
    mask, allowed_ids, vocab_ids
        As in `logits_topk`.
    temperature, top_k, top_p, min_p, typical_p, logit_bias, repetition_penalty, presence_penalty, frequency_penalty
        As in `sample`.
    history, output, seed, position, order, logprobs, top_n, threads
        As in `sample`.

    Returns
    -------
    Sample
        As from `sample`, full ids.

    Raises
    ------
    IndexError, ValueError, TypeError
        As `logits` and `sample`.

    Notes
    -----
    The logits stay float64, where the native function has them in the result's dtype. NaN, inf and everything else: as
    `sample`.
    """
    h, w = checks.hidden_and_weight(hidden, weight)
    b = checks.vector("bias", bias, "V", w.memory.shape[0], f"weight of shape {w.memory.shape}")
    cap, factor = checks.softcap_of(softcap), checks.scale_of(scale)
    shape, name = h.memory.shape[:-1], f"hidden of shape {h.memory.shape}"
    usable = allowed(mask, allowed_ids, vocab_ids, shape, w.memory.shape[0], name)
    rows = Rows(shape, name, usable.n_ids)
    given = sample_checks.parameters(rows, locals())
    checks.check_threads(threads)
    with np.errstate(all="ignore"):
        raw_nv = adjust(h.rows() @ w.values.T, None if b is None else b.values, cap, factor)
        processed = process(raw_nv, usable, rows, given, checks.result_dtype(h))
        return deliver(draw(processed, given), processed, rows, given, checks.result_dtype(h))


def sample(
    logits: ArrayLike,
    *,
    mask: ArrayLike | None = None,
    allowed_ids: Any = None,
    temperature: ArrayLike = 1.0,
    top_k: ArrayLike = 0,
    top_p: ArrayLike = 1.0,
    min_p: ArrayLike = 0.0,
    typical_p: ArrayLike = 1.0,
    logit_bias: Any = None,
    repetition_penalty: ArrayLike = 1.0,
    presence_penalty: ArrayLike = 0.0,
    frequency_penalty: ArrayLike = 0.0,
    history: Any = None,
    output: Any = None,
    seed: ArrayLike | None = None,
    position: ArrayLike = 0,
    order: str = "hf",
    logprobs: str | None = "raw",
    top_n: int = 0,
    threads: int | None = None,
) -> Sample:
    """Draw one token for every row of logits.

    Every parameter from `temperature` to `frequency_penalty`, `seed` and `position` is one number for all rows, or an
    array of the leading shape.

    Parameters
    ----------
    logits : array_like, shape (..., V)
        float32, float16, bfloat16 or float64.
    mask, allowed_ids
        As in `logits_topk`.
    temperature : float, default 1.0
        What logits are divided by; 0, and what is below the smallest normal float32, takes the best token.
    top_k : int, default 0
        Keep the k best tokens; 0, -1 and V or more keep all.
    top_p : float, default 1.0
        Keep a token while the better ones have less than this share of the mass; above 0, 1 keeps all.
    min_p : float, default 0.0
        Keep tokens with at least this share of the probability of the best that is left.
    typical_p : float, default 1.0
        Keep the tokens whose surprise is closest to the entropy, up to this share of the mass; 1 keeps all.
    logit_bias : dict or list of dict, optional
        What to add to the logits of ids, ``{id: value}``: finite, or -inf. In a list one for each row, or None.
    repetition_penalty : float, default 1.0
        Divides positive logits and multiplies others, of ids in `history` or `output`.
    presence_penalty, frequency_penalty : float, default 0.0
        Taken from the logits of ids in `output`: once, and for each time the id is there.
    history, output : array_like of ids, or dict, or a list of such, optional
        The ids so far, with the prompt, and the generated ones: of the only row, or a list with an item for each row.
        A dict ``{id: count}`` says how often. `output` is needed for presence and frequency penalties.
    seed : int, optional
        0 to 2^64 - 1. One number for several rows is folded with the number of the row, but for row 0; an array is not.
        None takes 64 bits from the operating system.
    position : int, default 0
        0 to 2^64 - 1: which draw of its seed this is.
    order : {"hf", "vllm", "llama.cpp"}
        "hf": top_k, top_p, min_p, typical_p. "vllm": min_p, top_k, top_p, typical_p. "llama.cpp": top_k, typical_p,
        top_p, min_p, which see masses at temperature 1. Each works on what the former ones left.
    logprobs : {"raw", "processed"} or None
        Of the logits before edits, at temperature 1; or of what the token was drawn from.
    top_n : int, default 0
        How many of the best to list.
    threads : int, optional
        Checked, otherwise unused.

    Returns
    -------
    Sample
        ``token`` (...) int64 and ``logprob`` (...), with ``top_ids`` and ``top_logprobs`` (..., top_n).

    Raises
    ------
    IndexError
        An id that is none.
    ValueError
        A parameter out of range, with the row; a row with NaN, with +inf at a temperature above 0, or with nothing
        above -inf.
    TypeError
        A dtype outside the table; parameters that are no numbers.

    Notes
    -----
    The token is the maximum over the kept ids of ``z / T + G(id)``, the lowest id of equals, where G is Gumbel noise
    from Philox 4x32-10 under the key seed at the counter (id, position). Edited logits are rounded once to the result's
    dtype; all else is float64. The maximum is taken of ``(z - max z) / T + G``, so that a large common offset does not
    swallow the noise.

    Rank, in top_k, top_p and lists: descending logit, then ascending id. NaN in a row, +inf unless it is greedy, and
    nothing above -inf are refused; -inf is never drawn. Memory: several float64 arrays of the
    logits' size.
    """
    x = checks.rows("logits", logits, "V")
    shape, name = x.memory.shape[:-1], f"logits of shape {x.memory.shape}"
    usable = allowed(mask, allowed_ids, None, shape, x.memory.shape[-1], name)
    rows = Rows(shape, name, usable.n_ids)
    given = sample_checks.parameters(rows, locals())
    checks.check_threads(threads)
    with np.errstate(all="ignore"):
        processed = process(x.rows(), usable, rows, given, checks.result_dtype(x))
        return deliver(draw(processed, given), processed, rows, given, checks.result_dtype(x))


# ---- the distribution ----------------------------------------------------------------------------------------------


class Processed(NamedTuple):
    """What n rows are drawn from: z before and y after edits, over n_ids, and which ids the filters kept."""

    z: Array
    y: Array
    allowed: NDArray[np.bool_]
    kept: NDArray[np.bool_]

    def log_probabilities(self, given: Parameters) -> Array:
        """Return the logarithms of the probabilities of all ids, -inf where not kept."""
        found = np.full(self.y.shape, -np.inf)
        for row, kept in enumerate(self.kept):
            if given.is_greedy(row):
                found[row, kept] = 0.0
            else:
                log_mass = log_masses(self.y[row, kept], float(given.temperature[row]))
                found[row, kept] = log_probabilities(log_mass)
        return found


def process(raw_nv: Array, usable: Allowed, rows: Rows, given: Parameters, dtype: np.dtype[Any]) -> Processed:
    """Edit adjusted logits, refuse rows that cannot be drawn from, and filter the others."""
    z = usable.spread(raw_nv)
    y = np.where(usable.has, edited(z, given, dtype), -np.inf)
    kept = np.zeros(y.shape, bool)
    for row in range(rows.size):
        _check_row(y[row], row, usable, rows, given.is_greedy(row))
        if given.is_greedy(row):
            kept[row, y[row].argmax()] = True
        else:
            kept[row, kept_ids(y[row], given.filters(row))] = True
    return Processed(z, y, usable.has, kept)


def edited(z: Array, given: Parameters, dtype: np.dtype[Any]) -> Array:
    """Return the logits after bias and penalties: of ids that have any, rounded once to the result's dtype."""
    y = z.copy()
    for row, of_row in enumerate(y):
        biases, history, output = given.logit_bias[row], given.history[row], given.output[row]
        for token in biases.keys() | history.keys() | output.keys():
            value = of_row[token] + biases.get(token, 0.0)
            if history.get(token) or output.get(token):
                penalty = given.repetition_penalty[row]
                value = value / penalty if value > 0 else value * penalty
            count = output.get(token, 0)
            value -= given.frequency_penalty[row] * count
            value -= given.presence_penalty[row] * (count > 0)
            if value != of_row[token]:
                of_row[token] = dtype.type(value)
    return y


def _check_row(y: Array, row: int, usable: Allowed, rows: Rows, is_greedy: bool) -> None:
    where = f"in row {row_text(row, rows.shape)}"
    if usable.argument is not None and not usable.has[row].any():
        raise ValueError(f"{usable.argument}: expected an allowed id {where}, got none")
    fact = ""
    if np.isnan(y).any():
        fact = "NaN"
    elif not is_greedy and (y == np.inf).any():
        fact = "+inf"
    elif not (y > -np.inf).any():
        fact = "nothing above -inf"
    if fact:
        argument = rows.name.split(" ")[0]
        raise ValueError(f"{argument}: expected finite logits to draw from {where}, got {fact}")


# ---- the draw ------------------------------------------------------------------------------------------------------


def draw(processed: Processed, given: Parameters) -> NDArray[np.int64]:
    """Return the token of every row; what is kept of a greedy row is one id."""
    y = np.where(processed.kept, processed.y, -np.inf)
    if y.size == 0:
        return np.zeros(len(y), np.int64)
    temperature = np.where(given.temperature < sample_checks.GREEDY_BELOW, 1.0, given.temperature)[:, None]
    best = y.max(axis=-1, keepdims=True)
    noise = gumbel_noise(given.seed, given.position, np.arange(y.shape[-1]))
    # Where the best is +inf, the row is greedy and inf - inf must not decide.
    score = np.where(np.isfinite(best), (y - best) / temperature + noise, y)
    tokens: NDArray[np.int64] = np.where(processed.kept, score, -np.inf).argmax(axis=-1)
    return tokens


def deliver(
    token: NDArray[np.int64], processed: Processed, rows: Rows, given: Parameters, dtype: np.dtype[Any]
) -> Sample:
    """Give tokens their log-probabilities, and list the best."""
    tokens = token.reshape(rows.shape)
    if given.logprobs is None:
        return Sample(tokens, None)
    log_p, listed = listed_log_probabilities(processed, given)
    logprob = checks.deliver(at_ids(log_p, token[:, None], np.nan).reshape(rows.shape), dtype, None)
    if given.top_n == 0:
        return Sample(tokens, logprob)
    shape = (*rows.shape, given.top_n)
    values, among = (processed.z, listed) if given.logprobs == "raw" else (processed.y, listed)
    ids = best_ids(np.where(among, values, -np.inf), among, given.top_n)
    tops = at_ids(log_p, ids, -np.inf)
    return Sample(tokens, logprob, ids.reshape(shape), checks.deliver(tops.reshape(shape), dtype, None))


def listed_log_probabilities(processed: Processed, given: Parameters) -> tuple[Array, NDArray[np.bool_]]:
    """Return log-probabilities of the kind that is asked for, and the ids that may be listed."""
    if given.logprobs == "raw":
        return log_probabilities(processed.z), processed.allowed
    return processed.log_probabilities(given), processed.kept
