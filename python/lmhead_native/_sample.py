"""``logits_sample`` and ``sample``: one token drawn from each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from . import _core
from ._sample_result import Sample
from ._typing import AllowedIds, Array, Weight

Biases: TypeAlias = Mapping[int, float]
TokenIds: TypeAlias = Array | Mapping[int, int]
Order: TypeAlias = Literal["hf", "vllm", "llama.cpp"]
Logprobs: TypeAlias = Literal["raw", "processed"]


def logits_sample(
    hidden: Array,
    weight: Weight,
    *,
    bias: Array | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    mask: Array | None = None,
    allowed_ids: AllowedIds | None = None,
    vocab_ids: Array | None = None,
    temperature: float | Array = 1.0,
    top_k: int | Array = 0,
    top_p: float | Array = 1.0,
    min_p: float | Array = 0.0,
    typical_p: float | Array = 1.0,
    logit_bias: Biases | Sequence[Biases | None] | None = None,
    repetition_penalty: float | Array = 1.0,
    presence_penalty: float | Array = 0.0,
    frequency_penalty: float | Array = 0.0,
    history: TokenIds | Sequence[TokenIds | None] | None = None,
    output: TokenIds | Sequence[TokenIds | None] | None = None,
    seed: int | Array | None = None,
    position: int | Array = 0,
    order: Order = "hf",
    logprobs: Logprobs | None = "raw",
    top_n: int = 0,
    threads: int | None = None,
) -> Sample:
    """One token drawn from each hidden state's distribution, without the (..., V) array of logits.

    Rows of one call may want different things: every parameter of a draw is one value for all rows, or an array of the
    leading shape with one for each.

    Parameters
    ----------
    hidden : array_like, shape (..., D)
        Hidden states, as in `logits`.
    weight : array_like, shape (V, D)
        The head, as in `logits`.
    bias, softcap, scale, threads
        As in `logits`.
    mask, allowed_ids, vocab_ids
        As in `logits_topk`: ids that are not allowed are never drawn, and log-probabilities are of those that are.
    temperature : float or array_like, shape (...)
        T >= 0, finite. 0, and what is below the smallest normal float32, takes the first of the greatest logits and
        uses neither noise nor filters.
    top_k : int or array_like, shape (...)
        Keep exactly the k best. 0, -1 and k >= V keep all.
    top_p : float or array_like, shape (...)
        In (0, 1]: keep a token while the better ones have less than this share of the mass; at least one. 1 keeps all.
    min_p : float or array_like, shape (...)
        In [0, 1]: keep tokens of at least this share of the mass of the best that is left. 0 keeps all; above it, what
        has less than 2**-1022 of that mass is dropped.
    typical_p : float or array_like, shape (...)
        In (0, 1]: keep the tokens whose ``-log p`` is nearest to the entropy, up to this share of the mass. 1: all.
    logit_bias : mapping of int to float, or a sequence of them or None for each row, optional
        Added to the logits of these ids; finite or -inf.
    repetition_penalty : float or array_like, shape (...)
        Above 0: divides positive and multiplies negative logits of every id in `history` or `output`.
    presence_penalty, frequency_penalty : float or array_like, shape (...)
        Subtracted from the logit of every id in `output`, once and for each time it stands there.
    history, output : array_like of int or mapping of id to count, or a sequence of them or None for each row, optional
        All ids so far, the prompt's too, and those that were generated. Where there is one row, one array is enough.
    seed : int or array_like, shape (...), optional
        0 to 2**64 - 1. One seed for several rows has the row's number folded in (row 0 keeps it); an array of seeds is
        taken as it is. None takes 64 bits from the operating system.
    position : int or array_like, shape (...)
        0 to 2**64 - 1: which draw of the seed this is, usually the token's place in its sequence.
    order : {"hf", "vllm", "llama.cpp"}
        What comes first. ``"hf"``: temperature, top_k, top_p, min_p, typical_p. ``"vllm"``: temperature, min_p, top_k,
        top_p, typical_p. ``"llama.cpp"``: top_k, typical_p, top_p, min_p, temperature.
    logprobs : {"raw", "processed"} or None
        Of which distribution log-probabilities are returned: of the logits before edits at temperature 1, or of what
        is drawn from (0 for greedy rows).
    top_n : int
        0 to V: how many of the likeliest tokens of that distribution are listed beside the drawn one.

    Returns
    -------
    Sample
        ``token`` and ``logprob`` of the leading shape, and as attributes ``top_ids`` and ``top_logprobs`` (..., top_n).

    Raises
    ------
    ValueError, TypeError
        As `logits`; a parameter out of its range, by row; penalties of `output` without it; a row with NaN, with +inf
        at T > 0, or with nothing above -inf: the message names the row.
    IndexError
        An id out of range, by row and position.

    See Also
    --------
    sample : the same of given logits.
    logits_topk : the best tokens.

    Notes
    -----
    Method: the token is the argmax of ``y / T + G`` over the kept ids, y the edited logit, G Gumbel noise that is a
    function of (seed, position, id) alone: Philox4x32-10 gives 64 bits for each id, of which float64 keeps all that
    matters at both ends, so that the tail is drawn as often as it should be. Ties: the lower id.

    Accumulation: logits as `logits` gives them; edits in float64, rounded once; scores, masses and filters in float64.

    Memory: a few numbers for each block of 256 ids and row, and lists of the top_k best. Rows with top_p, min_p,
    typical_p or a top_k above 4096 keep their logits until they are drawn from, some rows at a time: 64 MiB, or one
    row; of these each thread lists what can be kept, at most 24 bytes for each id. No array of noise or probabilities.

    Determinism: the draw of a row is a function of its own operands, parameters, seed and position: not of its place
    in the batch, the rows around it, threads, layout or instruction set. `sample` of `logits` draws the same tokens.

    NaN and inf: -inf is never drawn; a row that cannot be drawn from raises after all rows have been computed.
    """
    return Sample(
        *_core.logits_sample(
            hidden,
            weight,
            bias=bias,
            softcap=softcap,
            scale=scale,
            mask=mask,
            allowed_ids=allowed_ids,
            vocab_ids=vocab_ids,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            typical_p=typical_p,
            logit_bias=logit_bias,
            repetition_penalty=repetition_penalty,
            presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty,
            history=history,
            output=output,
            seed=seed,
            position=position,
            order=order,
            logprobs=logprobs,
            top_n=top_n,
            threads=threads,
        )
    )


def sample(
    logits: Array,
    *,
    mask: Array | None = None,
    allowed_ids: AllowedIds | None = None,
    temperature: float | Array = 1.0,
    top_k: int | Array = 0,
    top_p: float | Array = 1.0,
    min_p: float | Array = 0.0,
    typical_p: float | Array = 1.0,
    logit_bias: Biases | Sequence[Biases | None] | None = None,
    repetition_penalty: float | Array = 1.0,
    presence_penalty: float | Array = 0.0,
    frequency_penalty: float | Array = 0.0,
    history: TokenIds | Sequence[TokenIds | None] | None = None,
    output: TokenIds | Sequence[TokenIds | None] | None = None,
    seed: int | Array | None = None,
    position: int | Array = 0,
    order: Order = "hf",
    logprobs: Logprobs | None = "raw",
    top_n: int = 0,
    threads: int | None = None,
) -> Sample:
    """One token drawn from each row of logits.

    Parameters
    ----------
    logits : array_like, shape (..., V)
        float32, float16, bfloat16 or float64; any strides.
    mask, allowed_ids, temperature, top_k, top_p, min_p, typical_p, logit_bias, repetition_penalty
        As in `logits_sample`.
    presence_penalty, frequency_penalty, history, output, seed, position, order, logprobs, top_n
        As in `logits_sample`.
    threads : int, optional
        Threads of this call; by default `get_num_threads`.

    Returns
    -------
    Sample
        As `logits_sample`.

    Raises
    ------
    ValueError, TypeError, IndexError
        As `logits_sample`; a 0-d array, logits of another dtype.

    See Also
    --------
    logits_sample : fused with the projection.

    Notes
    -----
    Accumulation, determinism, NaN and inf: as `logits_sample`, whose tokens these are where the logits are its.

    Memory: the logits are read in place; rows that are edited, masked, strided or of halves are copied in pieces of
    16,384 ids, and whole where `logits_sample` keeps them. A block of rows takes at most 64 MiB, or what one row needs.
    """
    return Sample(
        *_core.sample(
            logits,
            mask=mask,
            allowed_ids=allowed_ids,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            typical_p=typical_p,
            logit_bias=logit_bias,
            repetition_penalty=repetition_penalty,
            presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty,
            history=history,
            output=output,
            seed=seed,
            position=position,
            order=order,
            logprobs=logprobs,
            top_n=top_n,
            threads=threads,
        )
    )


def head_sample(hidden: Array, weight: Weight, screen: _core.Screen | None, **given: Any) -> Sample:
    """`logits_sample` by way of a screen made from the weight, where there is one and it helps."""
    if screen is None:
        return logits_sample(hidden, weight, **given)
    defaults = logits_sample.__kwdefaults__ or {}
    for name in given:
        if name not in defaults:
            raise TypeError(f"sample() got an unexpected keyword argument {name!r}")
    return Sample(*_core.screened_sample(screen, hidden, weight, **(defaults | given)))
