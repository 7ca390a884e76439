"""``verify``: drafted tokens checked against the target's own draws, or against its distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from ._logits import logits
from ._sample import logits_sample, sample
from ._scores import logits_scores
from ._typing import Array, Ids, Result, Weight
from ._verified import Verified

if TYPE_CHECKING:
    from ._drafts import Drafts

# What of a row's options decides from which distribution it is drawn.
BEFORE_A_DRAW = (
    *("mask", "allowed_ids", "logit_bias", "history", "output"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
    *("temperature", "top_k", "top_p", "min_p", "typical_p", "order"),
)


def verify(
    hidden: Array,
    weight: Weight,
    draft_tokens: Array,
    *,
    draft_hidden: Array | None = None,
    draft_weight: Weight | None = None,
    bias: Array | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    mask: Array | None = None,
    allowed_ids: Any = None,
    vocab_ids: Array | None = None,
    temperature: Array = 1.0,
    top_k: Array = 0,
    top_p: Array = 1.0,
    min_p: Array = 0.0,
    typical_p: Array = 1.0,
    logit_bias: Any = None,
    repetition_penalty: Array = 1.0,
    presence_penalty: Array = 0.0,
    frequency_penalty: Array = 0.0,
    history: Any = None,
    output: Any = None,
    seed: Array | None = None,
    position: Array = 0,
    order: str = "hf",
    logprobs: str | None = "raw",
    top_n: int = 0,
    threads: int | None = None,
) -> Verified:
    """The drafted tokens that the target accepts, and one token of its own (speculative decoding).

    Parameters
    ----------
    hidden : array_like, shape (..., K + 1, D)
        The target's hidden states before each draft, and after the last one.
    weight, bias, softcap, scale
        The target's head, as in `logits`.
    draft_tokens : array_like of int, shape (..., K)
        The drafts of each sequence.
    draft_hidden : array_like, shape (..., K, E), optional
        The hidden states of the draft model that its drafts were drawn from. With `draft_weight`, or not at all.
    draft_weight : array_like, shape (V, E), optional
        The draft model's head, without bias, softcap and scale.
    mask, allowed_ids, vocab_ids
        As in `logits_topk`: one mask or list for all, or one for each of the (..., K + 1) positions.
    temperature, top_k, top_p, min_p, typical_p, logit_bias, repetition_penalty, presence_penalty, frequency_penalty
        As in `logits_sample`, for all or one for each sequence; of target and draft alike.
    history, output
        As in `logits_sample`, of each sequence before its first draft. A position sees the drafts before it in each of
        the two that is given.
    seed, position
        As in `logits_sample`, of each sequence: its position j draws at ``(seed, position + j)``.
    order, logprobs, top_n, threads
        As in `logits_sample`.

    Returns
    -------
    Verified
        ``tokens`` (..., K + 1): the accepted drafts, the token that follows them, then -1. ``accepted`` (...), and
        ``logprob`` (..., K + 1) under the target.

    Raises
    ------
    IndexError
        A draft that is no id of the vocabulary.
    ValueError, TypeError
        As `logits_sample`; drafts that do not fit the hidden states; one of `draft_hidden` and `draft_weight` alone;
        positions beyond 64 bits.

    See Also
    --------
    logits_sample : one token for each row.
    reference.verify : the same in plain NumPy float64.

    Notes
    -----
    Without a draft model, a draft is accepted while it is the token that the target itself draws at that seed and
    position. The first other draw corrects it, and after K accepted drafts one more is drawn. So the tokens are, bit
    for bit, those that `logits_sample` gives one step at a time, and drafts only save time. They are accepted most
    often if the draft model is sampled at the same seeds and positions.

    With a draft model, a draft x is accepted with probability ``min(1, p(x) / q(x))``; p and q are what target and
    draft are drawn from, after edits, mask, temperature and filters. The first rejected one is replaced by a draw from
    ``max(p - q, 0)``, normalised. The tokens follow p exactly if the drafts were drawn from q with noise of their own:
    sample the draft model with another seed.

    Accumulation: the logits of `logits_sample`; p, q and the residual in float64.

    Memory: rows of K + 1 positions are one call of `logits_sample`. With a draft model, (..., 2 K + 1, V) probabilities
    in float64, beside the logits of one of the two models at a time, and a row of residual for each sequence.

    Determinism: a sequence has the same tokens whatever the batch, the threads and the instruction set.

    NaN and inf: as `logits_sample`, in every position, also behind a draft that is rejected.

    Source: Leviathan et al., "Fast inference from transformers via speculative decoding", 2023 (arXiv:2211.17192).
    """
    given = dict(locals())
    from ._drafts import accepted_alike, drafts_of  # with the reference, which is imported when it is looked at

    vocabulary = _core.weight_facts(weight)[0]
    pruned = np.ravel(np.asarray(vocab_ids if vocab_ids is not None else []))
    n_ids = int(pruned[-1]) + 1 if pruned.size and pruned.dtype.kind in "iu" else vocabulary
    drafts = drafts_of(_shape(hidden), draft_tokens, n_ids, seed, position)
    of_draft: dict[str, Any] = {"vocab_ids": vocab_ids, "threads": threads}
    head = {"bias": bias, "softcap": softcap, "scale": scale, **of_draft}
    k = drafts.ids.shape[1]
    rows = drafts.keywords(given, k + 1)
    _check_draft_model(draft_hidden, draft_weight, (*drafts.shape, k), vocabulary)

    drawn = logits_sample(hidden, weight, **head, **rows)
    tokens = drawn.token.reshape(drafts.ids.shape[0], k + 1)
    if draft_hidden is None or draft_weight is None or k == 0:
        accepted = accepted_alike(tokens, drafts.ids)
        return drafts.verified(tokens, accepted, drawn.logprob, drawn.top_ids, drawn.top_logprobs)
    p = _probabilities("hidden", hidden, weight, head, rows).reshape(*tokens.shape, n_ids)
    q = _probabilities("draft_hidden", draft_hidden, draft_weight, of_draft, drafts.keywords(given, k))
    q = q.reshape(*drafts.ids.shape, n_ids)
    tokens, accepted = _rejected(tokens.copy(), drafts, p, q, threads)
    logprob = drawn.logprob
    if drawn.logprob is not None and logprobs == "processed":
        chosen = np.take_along_axis(p, tokens[..., None], axis=-1)[..., 0]
        logprob = _core.logarithms(chosen, threads).astype(drawn.logprob.dtype).reshape(drawn.token.shape)
    elif logprobs == "raw":
        allowed: dict[str, Any] = {"mask": mask, "allowed_ids": allowed_ids}
        logprob = logits_scores(hidden, weight, tokens.reshape(drawn.token.shape), **head, **allowed).logprob
    return drafts.verified(tokens, accepted, logprob, drawn.top_ids, drawn.top_logprobs)


def _shape(hidden: Any) -> tuple[int, ...]:
    return tuple(hidden.shape) if hasattr(hidden, "shape") else np.shape(hidden)


def _probabilities(name: str, hidden: Array, weight: Weight, head: dict[str, Any], rows: dict[str, Any]) -> Result:
    """Return what rows are drawn from, (..., V) in float64."""
    z = logits(hidden, weight, **{option: value for option, value in head.items() if option != "vocab_ids"})
    if head["vocab_ids"] is not None:
        ids = np.asarray(head["vocab_ids"])
        full = np.full((*z.shape[:-1], int(ids[-1]) + 1), -np.inf, z.dtype)
        full[..., ids] = z
        z = full
    given = {option: rows[option] for option in BEFORE_A_DRAW}
    return _core.processed_probabilities(z, name, threads=head["threads"], **given)


def _check_draft_model(hidden: Any, weight: Any, shape: tuple[int, ...], vocabulary: int) -> None:
    if hidden is None and weight is None:
        return
    from ._reference_allowed import with_axis

    if hidden is None or weight is None:
        missing, there = ("draft_hidden", "draft_weight")[:: 1 if hidden is None else -1]
        raise ValueError(f"{missing}: expected an array beside {there}, got None")
    if _shape(hidden)[:-1] != shape:
        raise ValueError(
            f"draft_hidden: expected shape {with_axis(shape, 'E')}, a state for each draft, got shape {_shape(hidden)}"
        )
    rows = _core.weight_facts(weight)[:2]
    if rows[0] != vocabulary:
        raise ValueError(f"draft_weight: expected V = {vocabulary} rows as weight has, got shape {rows}")


def _rejected(tokens: Ids, drafts: Drafts, p: Result, q: Result, threads: int | None) -> tuple[Ids, Ids]:
    """Return the tokens (S, K + 1) out of the target's draws, and how many drafts of each sequence are accepted."""
    from ._reference_random import rejection_uniforms

    n, k = drafts.ids.shape
    uniforms = rejection_uniforms(drafts.row_seed(k + 1), drafts.row_position(k + 1)).reshape(n, k + 1)[:, :k]
    x = drafts.ids[..., None]
    p_x, q_x = (np.take_along_axis(each[:, :k], x, axis=-1)[..., 0] for each in (p, q))
    accepted: Ids = np.cumprod(uniforms * q_x < p_x, axis=-1, dtype=np.int64).sum(axis=-1, dtype=np.int64)
    is_draft = np.arange(k) < accepted[:, None]
    tokens[:, :k][is_draft] = drafts.ids[is_draft]

    where = np.flatnonzero(accepted < k)
    residual = np.maximum(p[where, accepted[where]] - q[where, accepted[where]], 0.0)
    # Where p and q are equal but for rounding, nothing may be left: the target's own draw stays.
    some = residual.any(axis=-1)
    where, residual = where[some], residual[some]
    corrections = sample(
        _core.logarithms(residual, threads),
        seed=drafts.seed[where],
        position=drafts.position[where] + accepted[where].astype(np.uint64),
        logprobs=None,
        threads=threads,
    )
    tokens[where, accepted[where]] = corrections.token
    return tokens, accepted
