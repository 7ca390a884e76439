"""What checking drafted tokens returns: `Verified`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ._typing import Ids, Result


class _Fields(NamedTuple):
    tokens: Ids
    accepted: Ids
    logprob: Any


class Verified(_Fields):
    """What became of the drafts of each sequence; unpacks into the three below, the lists of the best are attributes.

    Attributes
    ----------
    tokens : ndarray of int64, shape (..., K + 1)
        The drafts that were accepted, then one token of the target's own, then -1.
    accepted : ndarray of int64, shape (...)
        How many drafts were accepted: 0 to K.
    logprob : ndarray, shape (..., K + 1), or None
        The tokens' log-probabilities under the target, 0 beside -1; None with ``logprobs=None``.
    top_ids : ndarray of int64, shape (..., K + 1, top_n), or None
        The best ids of each position, best first, -1 where there are no more or there is no token; None with
        ``top_n=0``.
    top_logprobs : ndarray, shape (..., K + 1, top_n), or None
        Their log-probabilities, -inf beside -1.
    """

    top_ids: Any
    top_logprobs: Any

    def __new__(
        cls,
        tokens: Ids,
        accepted: Ids,
        logprob: Result | None,
        top_ids: Ids | None = None,
        top_logprobs: Result | None = None,
    ) -> Verified:
        self = super().__new__(cls, tokens, accepted, logprob)
        self.top_ids, self.top_logprobs = top_ids, top_logprobs
        return self

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> Verified:  # type: ignore[override]
        """Make one of three fields, without lists of the best."""
        return cls(*iterable)

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.tokens, self.accepted, self.logprob, self.top_ids, self.top_logprobs
