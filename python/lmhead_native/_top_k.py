"""``logits_topk`` and ``topk``: the k best tokens of a row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from . import _core
from ._typing import AllowedIds, Array, Ids, Result, Weight


class TopK(NamedTuple):
    """The k best entries of each row, best first; unpacks into ``values, indices``.

    Attributes
    ----------
    values : ndarray, shape (..., k)
        Logits, float32 (float64 for float64 operands).
    indices : ndarray of int64, shape (..., k)
        Their ids.
    """

    values: Result
    indices: Ids


class ScreenedTopK(TopK):
    """A `TopK` that was found by way of a screen; unpacks into ``values, indices`` just so.

    Attributes
    ----------
    rescored : ndarray of int64, shape (...)
        For each hidden state how many rows of the weight were read after the screen: V where all of them were, because
        the screen does not pay for so many states, left too many rows over, or cannot be used for that state. Where
        not every id is allowed there is no screen, and it is the number of those that are.
    """

    rescored: Ids

    def __new__(cls, values: Result, indices: Ids, rescored: Ids) -> ScreenedTopK:
        self = super().__new__(cls, values, indices)
        self.rescored = rescored
        return self

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> TopK:  # type: ignore[override]
        """Make a plain list, as what is replaced in it was not found by way of a screen."""
        return TopK._make(iterable)

    def __getnewargs__(self) -> tuple[Result, Ids, Ids]:
        return self.values, self.indices, self.rescored


def logits_topk(
    hidden: Array,
    weight: Weight,
    k: int,
    *,
    bias: Array | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    mask: Array | None = None,
    allowed_ids: AllowedIds | None = None,
    vocab_ids: Array | None = None,
    threads: int | None = None,
) -> TopK:
    """The k greatest logits of each hidden state, without the (..., V) array of logits.

    Parameters
    ----------
    hidden : array_like, shape (..., D)
        Hidden states, as in `logits`.
    weight : array_like, shape (V, D)
        The head, as in `logits`.
    k : int
        0 <= k <= V; with `vocab_ids`, V is the last of them + 1.
    bias, softcap, scale, threads
        As in `logits`.
    mask, allowed_ids
        As in `logits`. Only allowed ids are listed, those with a logit of -inf too; where there are fewer than k, the
        list ends in values of -inf and indices of -1.
    vocab_ids : array_like of int, shape (V,), optional
        For a pruned head: the ids that the weight's rows have in the full vocabulary, strictly ascending, below 2**31.
        Indices, `mask` and `allowed_ids` are then of the full vocabulary, and ids that the head has not are not
        allowed; `bias` has an element for each row of the weight. The answer is that of the full head under a mask, bit
        for bit.

    Returns
    -------
    TopK
        ``values`` and ``indices`` of shape (..., k), best first.

    Raises
    ------
    ValueError, TypeError
        As `logits`; k negative or greater than V is a ``ValueError``, a k that is no integer a ``TypeError``;
        `vocab_ids` of another shape or not ascending is a ``ValueError``.
    IndexError
        As `logits`.

    See Also
    --------
    topk : the same of given logits.

    Notes
    -----
    Accumulation: the very logits that `logits` gives, bit for bit.

    Memory: for each row and thread a list of ``k + max(k, 256) + 256`` candidates of 16 (24) bytes, for the rows of a
    block: together at most 64 MiB (or what 16 rows need), besides the scratch of `logits`.

    Determinism: as `logits`. Equal logits (-0.0 equals +0.0) are listed by ascending id, so the list for k is the
    beginning of the list for k + 1, for every thread count.

    NaN and inf: NaN of either sign comes first, by ascending id, then +inf.
    """
    return TopK(*_core.logits_topk(hidden, weight, k, bias, softcap, scale, mask, allowed_ids, vocab_ids, threads))


def topk(logits: Array, k: int, *, threads: int | None = None) -> TopK:
    """The k greatest logits of each row.

    Parameters
    ----------
    logits : array_like, shape (..., V)
        float32, float16, bfloat16 or float64; any strides.
    k : int
        0 <= k <= V; 0 gives shape (..., 0).
    threads : int, optional
        Threads of this call; by default `get_num_threads`.

    Returns
    -------
    TopK
        ``values`` (float32, or float64 for float64 logits) and ``indices`` of shape (..., k), best first.

    Raises
    ------
    ValueError
        A 0-d array, k negative or greater than V.
    TypeError
        Logits of another dtype, a k that is no integer.

    See Also
    --------
    logits_topk : fused with the projection.

    Notes
    -----
    Memory: a list of ``k + max(k, 256) + 256`` candidates of 16 (24) bytes for each thread.

    Determinism: the same list for every thread count and instruction set. Ties (-0.0 equals +0.0): ascending id.

    NaN and inf: NaN of either sign comes first, by ascending id, then +inf.
    """
    return TopK(*_core.topk(logits, k, threads))
