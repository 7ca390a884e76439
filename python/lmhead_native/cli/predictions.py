"""What a head says about the next token at each position, computed by the public functions and printed with bars.

Knows: the lines of the demo. Refuses to know: which head, which text.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lmhead_native as native
from lmhead_native.cli.terminal import Terminal, cells, padded
from lmhead_native.cli.vocabulary import Vocabulary

# English words of one token have up to about 15 letters; longer tokens push their bar to the right.
TOKEN_COLUMNS = 18
# What stands left of a bar: "  * ", the token, " 0.123  ".
LEFT_OF_BAR = 4 + TOKEN_COLUMNS + 8


@dataclass(frozen=True)
class Predictions:
    """The likely next tokens of T positions, and the true ones' log-probability where they are known."""

    top_ids: NDArray[np.int64]
    top_probabilities: NDArray[Any]
    logprob_next: NDArray[Any]

    @classmethod
    def of(cls, hidden_td: NDArray[Any], head: native.LMHead, next_ids: NDArray[np.int64], k: int) -> Predictions:
        """Compute them.

        Parameters
        ----------
        hidden_td : (T, D) array
            Hidden states as the head takes them.
        head : LMHead
            The head.
        next_ids : (S,) int64 array
            The true next tokens of the first S positions, S <= T.
        k : int
            How many of the most likely tokens to keep.
        """
        logits_tv = head.logits(hidden_td)
        logsumexp_t = native.logsumexp(logits_tv)
        top = head.topk(hidden_td, k)
        known = np.arange(len(next_ids))
        return cls(
            top_ids=top.indices,
            top_probabilities=np.exp(top.values - logsumexp_t[:, np.newaxis]),
            logprob_next=logits_tv[known, next_ids] - logsumexp_t[known],
        )


def show_position(
    position: int, token: int, following: int | None, shown: Predictions, texts: Vocabulary, terminal: Terminal
) -> None:
    """Print one position: its token, the true next one, and a bar for each likely next one."""
    heading = f"{position:>2}  {terminal.quoted(texts.text(token))}"
    if following is not None:
        truth = f"next {terminal.quoted(texts.text(following))}, log p = {shown.logprob_next[position]:.3f}"
        heading = f"{padded(heading, 4 + TOKEN_COLUMNS)} {truth}"
    print(terminal.style(heading, "bold"))
    for candidate, probability in zip(shown.top_ids[position], shown.top_probabilities[position], strict=True):
        text = padded(terminal.quoted(texts.text(int(candidate))), TOKEN_COLUMNS)
        columns = terminal.width - LEFT_OF_BAR - max(0, cells(text) - TOKEN_COLUMNS)
        mark, colour = ("*", "green") if candidate == following else (" ", "cyan")
        bar = terminal.style(terminal.bar(float(probability), columns), colour)
        print(f"  {mark} {text} {probability:.3f}  {bar}")


def show_summary(shown: Predictions, what: str) -> None:
    """Print the mean log-probability and the perplexity over the positions whose next token is known."""
    mean = float(np.mean(shown.logprob_next, dtype=np.float64))
    print(f"{what}: mean log p = {mean:.3f}, perplexity = {math.exp(-mean):.3f}")
