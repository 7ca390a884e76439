"""What a sampler returns: `Sample`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ._typing import Ids, Result


class _Fields(NamedTuple):
    token: Ids
    logprob: Any


class Sample(_Fields):
    """A token for each row; unpacks into ``token, logprob``, the lists of the best are attributes only.

    Attributes
    ----------
    token : ndarray of int64, shape (...)
        The ids that were drawn.
    logprob : ndarray, shape (...), or None
        Their log-probabilities, float32 (float64 for float64 operands); None with ``logprobs=None``.
    top_ids : ndarray of int64, shape (..., top_n), or None
        The best ids, best first, -1 where there are no more; None with ``top_n=0``.
    top_logprobs : ndarray, shape (..., top_n), or None
        Their log-probabilities, -inf where there are no more.
    """

    top_ids: Any
    top_logprobs: Any

    def __new__(
        cls, token: Ids, logprob: Result | None, top_ids: Ids | None = None, top_logprobs: Result | None = None
    ) -> Sample:
        self = super().__new__(cls, token, logprob)
        self.top_ids, self.top_logprobs = top_ids, top_logprobs
        return self

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> Sample:  # type: ignore[override]
        """Make one of two fields, without lists of the best."""
        return cls(*iterable)

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.token, self.logprob, self.top_ids, self.top_logprobs
