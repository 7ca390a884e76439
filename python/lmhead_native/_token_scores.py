"""What scoring a text says of every position: `TokenScores`."""

from __future__ import annotations

from typing import NamedTuple

from ._typing import Ids, Result


class TokenScores(NamedTuple):
    """What a row of logits says about its target and about itself.

    The shape is that of the targets, less `shift` columns; "ignored" are positions whose target is `ignore_index`.
    Log-probabilities, logsumexp and entropy are those of the final logits over the temperature, in nats, float32
    (float64 for float64 operands).

    Attributes
    ----------
    logprob : ndarray or None
        The target's log-probability, -inf where it is not allowed; 0 where ignored. None without targets.
    logsumexp : ndarray
        ``log sum exp(z / T)``; NaN where ignored.
    rank : ndarray of int64 or None
        1 + the number of tokens that are strictly better than the target, of equals those with a lower id; -1 where
        ignored or not allowed. None without targets.
    entropy : ndarray
        ``-sum p log p``; NaN where ignored.
    argmax : ndarray of int64
        The best token, the lowest id of equals, the first NaN if there is one; -1 where ignored or none is allowed.
    top_logprobs : ndarray, shape (..., top_n), or None
        The log-probabilities of the best, -inf where there are no more, NaN where ignored; None with ``top_n=0``.
    top_ids : ndarray of int64, shape (..., top_n), or None
        Their ids, best first, -1 where there are no more or ignored.
    chosen_logprobs : ndarray, shape (..., m), or None
        The log-probabilities of the ids in `chosen`, -inf where not allowed, NaN where ignored; None without them.
    """

    logprob: Result | None
    logsumexp: Result
    rank: Ids | None
    entropy: Result
    argmax: Ids
    top_logprobs: Result | None
    top_ids: Ids | None
    chosen_logprobs: Result | None
