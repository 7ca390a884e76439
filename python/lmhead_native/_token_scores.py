"""What scoring a text says of every position: `TokenScores`."""

from __future__ import annotations

from typing import Any, NamedTuple

from ._typing import Ids, Result


class TokenScores(NamedTuple):
    """What the distribution at each position says of its target, and of itself.

    "The results' shape" is that of the targets, less `shift` columns; without targets it is the leading shape of the
    rows. Floating fields are float32, or float64 for float64 operands. All are of the final logits, after bias, cap,
    scale and temperature; logarithms are natural.

    Attributes
    ----------
    logprob : ndarray of the results' shape, or None
        Log-probability of the target; 0 where the target is ignored. None without targets.
    logsumexp : ndarray of the results' shape
        ``log sum exp`` of the row; NaN where ignored.
    rank : ndarray of int64, of the results' shape, or None
        1 + the number of ids that stand before the target in `logits_topk`'s order: 1 is the greedy choice; -1 where
        the target is ignored or not allowed. None without targets.
    entropy : ndarray of the results' shape
        ``-sum p log p`` of the row; NaN where ignored.
    argmax : ndarray of int64, of the results' shape
        The best id, the lower one of equals, the first NaN if there is one; -1 where ignored, and where no id is
        allowed or V = 0.
    top_logprobs : ndarray of the results' shape and (..., top_n), or None
        Log-probabilities of the `top_n` best ids, best first; NaN where ignored. None for ``top_n=0``.
    top_ids : ndarray of int64, of the results' shape and (..., top_n), or None
        These ids, as `logits_topk` lists them; -1 where ignored. None for ``top_n=0``.
    chosen_logprobs : ndarray of the results' shape and (..., m), or None
        Log-probabilities of the `chosen` ids; NaN where ignored. None without them.
    """

    logprob: Any
    logsumexp: Result
    rank: Any
    entropy: Result
    argmax: Ids
    top_logprobs: Any
    top_ids: Any
    chosen_logprobs: Any
