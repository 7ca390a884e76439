"""Checking drafted tokens: `verify` of `lmhead_native.reference`.

Knows when a draft is accepted and what is drawn where it is not. Refuses to know which row has which parameters
(`_drafts`) and what a row is drawn from (`_reference_sample`).

Source: rejection with the residual distribution, Leviathan et al., 2023 (arXiv:2211.17192), and Chen et al., 2023
(arXiv:2302.01318).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _reference_checks as checks
from . import _reference_sample as sampler
from . import _reference_sample_checks as sample_checks
from ._drafts import Drafts, accepted_alike, drafts_of
from ._reference_adjust import adjust
from ._reference_allowed import allowed, with_axis
from ._reference_checks import Operand
from ._reference_random import gumbel_noise, rejection_uniforms
from ._reference_sample_checks import Parameters, Rows
from ._typing import Weight
from ._verified import Verified

__all__ = ["verify"]

Array = NDArray[np.float64]
Ids = NDArray[np.int64]


def verify(
    hidden: ArrayLike,
    weight: Weight,
    draft_tokens: ArrayLike,
    *,
    draft_hidden: ArrayLike | None = None,
    draft_weight: Weight | None = None,
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
) -> Verified:
    """Accept the drafted tokens that the target might have drawn itself, and add one of its own.

    Parameters
    ----------
    hidden : array_like, shape (..., K + 1, D)
        The target's hidden states before each draft and after the last.
    weight, bias, softcap, scale
        The target's head, as in `logits`.
    draft_tokens : array_like of ids, shape (..., K)
        What was drafted for each sequence.
    draft_hidden : array_like, shape (..., K, E), optional
        The draft model's hidden states, which the drafts were drawn from by `draft_weight`. Both or neither.
    draft_weight : array_like, shape (V, E), optional
        The draft model's head; no bias, softcap or scale belong to it.
    mask, allowed_ids, vocab_ids
        As in `logits_topk`; masks and lists are one for all, or one for each of the (..., K + 1) positions.
    temperature, top_k, top_p, min_p, typical_p, logit_bias, repetition_penalty, presence_penalty, frequency_penalty
        As in `sample`, one for all or one for each sequence. They hold for target and draft.
    history, output
        As in `sample`, of each sequence before its first draft: the drafts before a position are added to what is
        given.
    seed, position
        As in `sample`, of each sequence: row j of a sequence draws at (seed, position + j).
    order, logprobs, top_n, threads
        As in `sample`.

    Returns
    -------
    Verified
        ``tokens`` (..., K + 1), ``accepted`` (...) and ``logprob`` (..., K + 1).

    Raises
    ------
    IndexError
        A draft that is no id.
    ValueError, TypeError
        As `logits_sample`; one of `draft_hidden` and `draft_weight` without the other; positions that go beyond 64
        bits.

    Notes
    -----
    Without a draft model a draft is accepted while it is the very token that the target draws there, so the tokens are
    those that `logits_sample` gives one by one, with the same seeds and positions.

    With it a draft x is accepted with probability ``min(1, p(x) / q(x))``, by a uniform of its own, where p and q are
    what target and draft are drawn from after edits, mask, temperature and filters; otherwise the token is drawn from
    ``max(p - q, 0)``, normalised, by the Gumbel noise of its position. The tokens are distributed as the target's own,
    if the drafts were drawn from q with noise of their own: by another seed. After K accepted drafts the last token is
    the target's own draw.

    NaN and inf are refused as `logits_sample` refuses them, in every position.
    """
    h, w = checks.hidden_and_weight(hidden, weight)
    b = checks.vector("bias", bias, "V", w.memory.shape[0], f"weight of shape {w.memory.shape}")
    cap, factor = checks.softcap_of(softcap), checks.scale_of(scale)
    n_ids = allowed(None, None, vocab_ids, (), w.memory.shape[0], "hidden").n_ids
    drafts = drafts_of(h.memory.shape, draft_tokens, n_ids, seed, position)
    n, k = drafts.ids.shape
    keywords = dict(locals())
    checks.check_threads(threads)
    draft = _draft_operands(draft_hidden, draft_weight, drafts.shape, k, w.memory.shape[0])
    with np.errstate(all="ignore"):
        raw_nv = adjust(h.rows() @ w.values.T, None if b is None else b.values, cap, factor)
        target = _rows("hidden", h, raw_nv, drafts, keywords, k + 1)
        own = sampler.draw(target.processed, target.given).reshape(n, k + 1)
        if draft is None:
            tokens, accepted = own, accepted_alike(own, drafts.ids)
        else:
            draft_h, draft_w = draft
            of_draft = _rows("draft_hidden", draft_h, draft_h.rows() @ draft_w.values.T, drafts, keywords, k)
            tokens, accepted = _rejected(own, drafts, target, of_draft)
        listed = sampler.deliver(
            tokens.reshape(-1), target.processed, target.rows, target.given, checks.result_dtype(h)
        )
    return drafts.verified(tokens, accepted, listed.logprob, listed.top_ids, listed.top_logprobs)


class _Target(NamedTuple):
    """The rows of a model, their parameters, and what they are drawn from."""

    rows: Rows
    given: Parameters
    processed: sampler.Processed

    def probabilities(self) -> Array:
        return np.exp(self.processed.log_probabilities(self.given))


def _rows(
    name: str, operand: Operand, raw_nv: Array, drafts: Drafts, keywords: Mapping[str, Any], length: int
) -> _Target:
    """Process the first positions, so many, of every sequence."""
    shape, name = (*drafts.shape, length), f"{name} of shape {operand.memory.shape}"
    of_rows = drafts.keywords(keywords, length)
    usable = allowed(of_rows["mask"], of_rows["allowed_ids"], keywords["vocab_ids"], shape, raw_nv.shape[-1], name)
    rows = Rows(shape, name, usable.n_ids)
    given = sample_checks.parameters(rows, of_rows)
    return _Target(rows, given, sampler.process(raw_nv, usable, rows, given, checks.result_dtype(operand)))


def _draft_operands(
    hidden: Any, weight: Any, shape: tuple[int, ...], k: int, vocabulary: int
) -> tuple[Operand, Operand] | None:
    if hidden is None and weight is None:
        return None
    for missing, there in (("draft_hidden", "draft_weight"), ("draft_weight", "draft_hidden")):
        if {"draft_hidden": hidden, "draft_weight": weight}[missing] is None:
            raise ValueError(f"{missing}: expected an array beside {there}, got None")
    try:
        h, w = checks.hidden_and_weight(hidden, weight)
    except (TypeError, ValueError) as error:
        text = str(error).replace("hidden", "draft_hidden").replace("weight", "draft_weight")
        raise type(error)(text) from None
    if h.memory.shape[:-1] != (*shape, k):
        raise ValueError(
            f"draft_hidden: expected shape {with_axis((*shape, k), 'E')}, a state for each draft, "
            f"got shape {h.memory.shape}"
        )
    if w.memory.shape[0] != vocabulary:
        raise ValueError(f"draft_weight: expected V = {vocabulary} rows as weight has, got shape {w.memory.shape}")
    return h, w


def _rejected(own: Ids, drafts: Drafts, target: _Target, of_draft: _Target) -> tuple[Ids, Ids]:
    """Return the tokens (S, K + 1) and how many drafts of each sequence are accepted, by rejection."""
    n, k = drafts.ids.shape
    p = target.probabilities().reshape(n, k + 1, drafts.n_ids)
    q = of_draft.probabilities().reshape(n, k, drafts.n_ids)
    noise = gumbel_noise(target.given.seed, target.given.position, np.arange(p.shape[-1])).reshape(p.shape)
    uniforms = rejection_uniforms(target.given.seed, target.given.position).reshape(n, k + 1)
    tokens, accepted = own.copy(), np.full(n, k)
    for s, of_sequence in enumerate(drafts.ids):
        for j, x in enumerate(of_sequence):
            if uniforms[s, j] * q[s, j, x] < p[s, j, x]:
                tokens[s, j] = x
                continue
            residual = np.maximum(p[s, j] - q[s, j], 0.0)
            # Where p and q are equal but for rounding, nothing may be left: the target's own draw stays.
            if residual.any():
                tokens[s, j] = (np.log(residual) + noise[s, j]).argmax()
            accepted[s] = j
            break
    return tokens, accepted
