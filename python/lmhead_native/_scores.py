"""``logits_scores`` and ``scores``: what a head says of the tokens of a text; ``perplexity``, one number of it."""

from __future__ import annotations

import math

from . import _core
from ._token_scores import TokenScores
from ._typing import AllowedIds, Array, Weight


def logits_scores(
    hidden: Array,
    weight: Weight,
    targets: Array | None = None,
    *,
    bias: Array | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    mask: Array | None = None,
    allowed_ids: AllowedIds | None = None,
    vocab_ids: Array | None = None,
    temperature: float = 1.0,
    ignore_index: int = -100,
    shift: int | bool = 0,
    top_n: int = 0,
    chosen: Array | None = None,
    threads: int | None = None,
) -> TokenScores:
    """Log-probability and rank of every token of a text, with entropy and best alternatives, in one pass.

    Parameters
    ----------
    hidden : array_like, shape (..., D)
        Hidden states, as in `logits`.
    weight : array_like, shape (V, D)
        The head, as in `logits`.
    targets : array_like, shape (...), optional
        Ids of any integer dtype, one for each hidden state. Without them every state is scored, for entropy, argmax and
        alternatives alone.
    bias, softcap, scale
        As in `logits`.
    mask, allowed_ids, vocab_ids
        As in `logits_topk`: which ids there are for each hidden state. The others have probability 0 and are not
        ranked, and their rows of the weight are not read. With `vocab_ids`, targets and all other ids are of the full
        vocabulary.
    temperature : float, default 1.0
        Divides at the end, which gives the final logits; above 0 and finite.
    ignore_index : int, default -100
        Positions with this target are skipped. Any Python integer, compared exactly: no target is narrowed first, so
        the uint16 65436 is not -100.
    shift : int or bool, default 0
        Pairs the state at t with the target at ``t + shift`` along the last leading axis T: with 1 the targets are the
        input ids. The last `shift` states and the first `shift` targets have no partner and are not looked at; the
        results have ``T - shift`` columns. 0 without targets.
    top_n : int, default 0
        So many of the best ids come with their log-probabilities; 0 to V. Where fewer are allowed, lists end in -inf
        of id -1.
    chosen : array_like, shape (m,) or that of the results and (..., m), optional
        Ids of any integer dtype whose log-probabilities are wanted beside the target's: the same for every position, or
        some for each. Repeats are fine; those of ignored positions are not looked at.
    threads : int, optional
        Threads of this call; by default `get_num_threads`.

    Returns
    -------
    TokenScores
        ``logprob, logsumexp, rank, entropy, argmax, top_logprobs, top_ids, chosen_logprobs``.

    Raises
    ------
    IndexError
        A target that is neither ignored nor an id, a chosen or an allowed id that is none; names the first and its
        position.
    ValueError
        Shapes that do not match; options out of range; `shift` without an axis, or without targets; masks and
        `vocab_ids` as `logits_topk`.
    TypeError
        A dtype outside the table; ids of another kind, bool and masked arrays too; options of another kind.

    See Also
    --------
    scores : the same of given logits.
    perplexity : the mean of all of it in one number.
    linear_cross_entropy : the loss, its mean and its gradients.

    Notes
    -----
    Accumulation: the very logits that `logits` gives. With ``rest = sum exp((z - max) / T)`` over all but the first
    maximum, summed as in `softmax`, a log-probability is ``-((max - z) / T + log1p(rest))``, computed in float64 and
    rounded once: that of the target is bit for bit the negative of ``linear_cross_entropy(..., reduction="none")``, and
    `logsumexp`, `argmax` and `entropy` are those of its stats. `top_ids` are those of `logits_topk`. Ids in different
    fields have the same bits.

    Memory: the results, a few numbers for each position, and for the positions in work (256 or more) up to 20 (36)
    bytes for each 256 ids and the list of `logits_topk` for ``top_n``; together at most 64 MiB (or what 16 positions
    need), besides the scratch of `logits`. Nothing of N x V.

    Determinism: what a position gives has the same bits whatever the batch, threads, strides, storage of the weight and
    instruction set. bfloat16 with bfloat16 counts subnormal numbers as 0 where the CPU's ``vdpbf16ps`` is used. Ties
    (-0.0 equals +0.0): the lower id stands before the higher one, in `rank` as in the lists.

    NaN and inf: a NaN or +inf among the logits of a position, or nothing but -inf, leaves no probabilities: its
    log-probabilities and entropy are NaN and its `logsumexp` is NaN, +inf or -inf; ids are ordered all the same, NaN
    first. An id at -inf, and so one that is not allowed, has log-probability -inf; to the entropy it adds 0. A
    position that is ignored costs no time, and what stands in its hidden state reaches nothing.

    Range: as `cross_entropy`.
    """
    return TokenScores(
        *_core.logits_scores(
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
            top_n=top_n,
            chosen=chosen,
            threads=threads,
        )
    )


def scores(
    logits: Array,
    targets: Array | None = None,
    *,
    mask: Array | None = None,
    allowed_ids: AllowedIds | None = None,
    temperature: float = 1.0,
    ignore_index: int = -100,
    shift: int | bool = 0,
    top_n: int = 0,
    chosen: Array | None = None,
    threads: int | None = None,
) -> TokenScores:
    """`logits_scores` of given logits.

    Parameters
    ----------
    logits : array_like, shape (..., V)
        float32, float16, bfloat16 or float64; any strides.
    targets, mask, allowed_ids, temperature, ignore_index, shift, top_n, chosen, threads
        As in `logits_scores`.

    Returns
    -------
    TokenScores
        As from `logits_scores`; of ``logits(hidden, weight)`` the same bits.

    Raises
    ------
    IndexError, ValueError, TypeError
        As `logits_scores`.

    See Also
    --------
    logits_scores : fused with the projection, without the (..., V) array of logits.
    cross_entropy, log_softmax, topk

    Notes
    -----
    Accumulation, determinism, NaN and inf: as `logits_scores`.

    Memory: the results, a few numbers for each position, and for each thread up to 20 (36) bytes for each 256 ids, the
    list of `topk` for ``top_n``, and 4096 numbers. A row is read once.
    """
    return TokenScores(
        *_core.scores(
            logits,
            targets,
            mask=mask,
            allowed_ids=allowed_ids,
            temperature=temperature,
            ignore_index=ignore_index,
            shift=shift,
            top_n=top_n,
            chosen=chosen,
            threads=threads,
        )
    )


def perplexity(
    hidden: Array,
    weight: Weight,
    targets: Array,
    *,
    bias: Array | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    mask: Array | None = None,
    allowed_ids: AllowedIds | None = None,
    vocab_ids: Array | None = None,
    temperature: float = 1.0,
    ignore_index: int = -100,
    shift: int | bool = 0,
    threads: int | None = None,
) -> float:
    """The perplexity of a text: exp of the mean negative log-probability of its tokens.

    Parameters
    ----------
    hidden, weight, targets, bias, softcap, scale, mask, allowed_ids, vocab_ids
        As in `logits_scores`.
    temperature, ignore_index, shift, threads
        As in `logits_scores`. With ``shift=1`` the targets are the ids of the text itself, and all but the first of
        them are scored.

    Returns
    -------
    float
        1 or above; NaN where every target is ignored or there are none, or where a position has no probabilities; inf
        where a target has none, or beyond float64.

    Raises
    ------
    IndexError, ValueError, TypeError
        As `logits_scores`.

    See Also
    --------
    logits_scores : each token's log-probability, for means over parts of a text, and for several calls' tokens in one
        mean: ``exp(-sum of all logprob / number of all tokens)``, which is no mean of perplexities.

    Notes
    -----
    Accumulation: of the `logprob` that `logits_scores` gives, rounded to float32 (float64 operands: not rounded), the
    exact sum, rounded once to float64; one division, by the number of targets that are not ignored, at the end.

    Memory, determinism, NaN and inf: as `logits_scores`. The order of the positions changes no bit.
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
    live = found.logprob[(found.rank != -1) | (found.logprob != 0)].tolist()  # one that is not allowed has no rank
    if not live:
        return math.nan
    try:
        return math.exp(-math.fsum(live) / len(live))
    except OverflowError:
        return math.inf
