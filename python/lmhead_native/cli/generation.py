"""The loop that generates: a body, a choice, and the time each of them takes.

Knows: the order of its steps. Refuses to know: what tokens mean and how they are chosen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter

from lmhead_native.cli.body import Body, Cache
from lmhead_native.cli.next_token import Choose


@dataclass
class Times:
    """Seconds that each step took, the first step being that of the whole prompt."""

    body: list[float] = field(default_factory=list)
    head: list[float] = field(default_factory=list)

    @property
    def tokens_per_second(self) -> float:
        """The rate after the first token, 0 where there is no other."""
        seconds = sum(self.body[1:]) + sum(self.head[1:])
        return (len(self.head) - 1) / seconds if seconds > 0 else 0.0

    @property
    def head_share(self) -> float:
        """The head's share of the time after the first token; of all time where there is no other."""
        first = 1 if len(self.head) > 1 else 0
        head, body = sum(self.head[first:]), sum(self.body[first:])
        return head / (head + body)

    @property
    def head_seconds(self) -> float:
        """The median time of the head for a token."""
        return median(self.head)


def generate(
    body: Body,
    ids: Sequence[int],
    choose: Choose,
    *,
    most: int,
    ends: Collection[int] = (),
    times: Times | None = None,
    given: Sequence[int] | None = None,
) -> Iterator[int]:
    """Yield the tokens that follow `ids`.

    Parameters
    ----------
    body : Body
        What makes hidden states of tokens.
    ids : sequence of int
        The prompt, at least one token.
    choose : callable
        From the last hidden state and the position of the next token to that token.
    most : int
        Tokens at most; fewer where the model's context ends.
    ends : collection of int
        Tokens after which, themselves not yielded, nothing follows.
    times : Times, optional
        Filled as the loop runs.
    given : sequence of int, optional
        Tokens that the body is fed instead of the chosen ones, so that two choices meet the same states.
    """
    times = Times() if times is None else times
    most = min(most, body.config.context - len(ids) + 1)  # of the last token only the choice is needed
    cache = Cache(body.config, len(ids) + most - 1)
    following = list(ids)
    for step in range(most):
        began = perf_counter()
        hidden_d = body(following, cache)[-1]
        between = perf_counter()
        token = choose(hidden_d, len(ids) + step)
        times.body.append(between - began)
        times.head.append(perf_counter() - between)
        if token in ends:
            return
        yield token
        following = [token if given is None else given[step]]
