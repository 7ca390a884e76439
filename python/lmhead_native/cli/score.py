"""``lmhead-native score``: what the head of a model file says of every token of a text, whose states are in a file.

Knows: its options, chunks of states, what it prints. Refuses to know: how files are read and how heads work.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmhead_native import LMHead
from lmhead_native.cli.arguments import Commands, positive
from lmhead_native.cli.errors import CommandError, UsageError
from lmhead_native.cli.hidden_states import read_ids, read_states
from lmhead_native.cli.model import open_head, vocabulary_of
from lmhead_native.cli.predictions import TOKEN_COLUMNS
from lmhead_native.cli.progress import Progress
from lmhead_native.cli.table import table
from lmhead_native.cli.terminal import Terminal, padded
from lmhead_native.cli.vocabulary import Vocabulary

DESCRIPTION = """\
Print log-probability, rank and entropy for every token of a text, and its
perplexity, by the output head of a model file. The hidden state at t predicts
the token at t + 1: the first token of a sequence is not scored, and the last
state is not used. Tokens whose id is -100 are not scored either."""

EPILOG = """\
examples:
  lmhead-native score model.gguf --hidden states.npy --ids ids.npy
  lmhead-native score model_folder --hidden text.npz --ids text.npz --norm --top 3
  lmhead-native score model.gguf --hidden states.npy --ids ids.npy --json > scores.jsonl

The files hold (..., T, D) of float32, float16 or float64 (read as float32) and
(..., T) of integers; in a .npz file they are named "hidden" and "ids"."""

# What the library ignores by default.
IGNORED = -100
# States of one call: enough that the weight is not read more often for it, few enough that the bar moves.
STATES_PER_CALL = 256


def add_parser(commands: Commands) -> None:
    """Declare the command and its options."""
    parser = commands.add_parser(
        "score",
        help="log-probability, rank and entropy of every token of a text",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="a .gguf or .safetensors file, or a model's folder")
    parser.add_argument("--hidden", type=Path, metavar="FILE", required=True, help="hidden states, .npy or .npz")
    parser.add_argument("--ids", type=Path, metavar="FILE", required=True, help="the text's token ids, .npy or .npz")
    parser.add_argument("--top", type=positive(), metavar="N", help="show the N best tokens at each position too")
    parser.add_argument("--norm", action="store_true", help="the states come before the model's final norm")
    parser.add_argument("--json", action="store_true", help="one line of JSON a token, and one of totals at the end")
    parser.add_argument("--threads", type=positive(), metavar="N", help="default: all allowed")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    states, ids = read_states(args.hidden), read_ids(args.ids)
    if states.ndim < 2:
        raise CommandError(f"{args.hidden}: expected shape (..., T, D), got shape {states.shape}")
    if ids.shape != states.shape[:-1]:
        raise CommandError(
            f"{args.ids}: expected shape {states.shape[:-1]} as {args.hidden} is of shape {states.shape}, "
            f"got shape {ids.shape}"
        )
    head = open_head(args.model, norm=args.norm, screen=None, threads=args.threads)
    vocabulary, width = head.shape
    if width != states.shape[-1]:
        raise CommandError(
            f"{args.hidden}: expected states of width {width} as of {args.model}, got {states.shape[-1]}"
        )
    top_n = args.top or 0
    if top_n > vocabulary:
        raise UsageError(f"argument --top: expected at most V = {vocabulary} of {args.model}, got {top_n}")
    check_range(args.ids, ids, vocabulary)
    texts = vocabulary_of(args.model)
    for note in head.notes:
        print(f"{args.model.name}: {note}", file=sys.stderr)
    scored = list(score(head, states, ids, top_n=top_n, threads=args.threads))
    totals = Totals.of(scored)
    show = show_json if args.json else show_plainly
    show(scored, totals, texts)


def check_range(path: Path, ids: NDArray[Any], vocabulary: int) -> None:
    """Refuse ids that are scored and none of the head's.

    Raises
    ------
    CommandError
        There is one; the message names the first.
    """
    scored = ids[..., 1:]
    wrong = np.argwhere((scored != IGNORED) & ((scored < 0) | (scored >= vocabulary)))
    if len(wrong):
        *sequence, place = wrong[0].tolist()
        at = (*sequence, place + 1)
        raise CommandError(f"{path}: expected ids from 0 to V - 1 = {vocabulary - 1}, got {ids[at]} at position {at}")


@dataclass(frozen=True)
class Token:
    """A token that was scored."""

    position: tuple[int, ...]
    id: int
    logprob: float
    logsumexp: float
    rank: int
    entropy: float
    argmax: int
    top: list[tuple[int, float]]


def score(
    head: LMHead, states: NDArray[np.float32], ids: NDArray[Any], *, top_n: int, threads: int | None
) -> Iterator[Token]:
    """Score the tokens (..., T) from the second on by the states (..., T, D) before them, some at a time."""
    targets = ids[..., 1:]
    hidden_nd, targets_n = states[..., :-1, :].reshape(-1, states.shape[-1]), targets.reshape(-1)
    with Progress(len(targets_n), label="tokens scored") as progress:
        for first in range(0, len(targets_n), STATES_PER_CALL):
            part = slice(first, first + STATES_PER_CALL)
            found = head.scores(hidden_nd[part], targets_n[part], ignore_index=IGNORED, top_n=top_n, threads=threads)
            for i, (target, rank) in enumerate(zip(targets_n[part].tolist(), found.rank.tolist(), strict=True)):
                if target == IGNORED:
                    continue
                top: list[tuple[int, float]] = []
                if top_n:
                    top = list(zip(found.top_ids[i].tolist(), found.top_logprobs[i].tolist(), strict=True))
                *sequence, place = (int(axis) for axis in np.unravel_index(first + i, targets.shape))
                yield Token(
                    (*sequence, place + 1),
                    target,
                    float(found.logprob[i]),
                    float(found.logsumexp[i]),
                    rank,
                    float(found.entropy[i]),
                    int(found.argmax[i]),
                    top,
                )
            progress.step(advance=len(found.logprob))


@dataclass(frozen=True)
class Totals:
    """What the tokens of a text come to; NaN where there are none."""

    tokens: int
    mean_logprob: float
    perplexity: float
    greedy_accuracy: float
    mean_entropy: float

    @classmethod
    def of(cls, scored: list[Token]) -> Totals:
        """Compute them in float64."""
        mean = mean_of([token.logprob for token in scored])
        try:
            perplexity = math.exp(-mean)
        except OverflowError:
            perplexity = math.inf
        hits = mean_of([float(token.argmax == token.id) for token in scored])
        return cls(len(scored), mean, perplexity, hits, mean_of([token.entropy for token in scored]))


def mean_of(values: list[float]) -> float:
    """Return the mean, NaN of nothing."""
    return math.fsum(values) / len(values) if values else math.nan


def number(value: float) -> float | str:
    """Return what JSON can hold, which has neither NaN nor infinities."""
    return value if math.isfinite(value) else str(value)


def show_json(scored: list[Token], totals: Totals, texts: Vocabulary | None) -> None:
    """Print each token, and then the totals, as one line of JSON."""
    for token in scored:
        line: dict[str, object] = {"position": token.position if len(token.position) > 1 else token.position[0]}
        line |= {"id": token.id, "logprob": number(token.logprob), "rank": token.rank}
        line |= {"entropy": number(token.entropy), "logsumexp": number(token.logsumexp), "argmax": token.argmax}
        if token.top:
            line["top_ids"] = [best for best, _ in token.top]
            line["top_logprobs"] = [number(logprob) for _, logprob in token.top]
        if texts is not None:
            line["token"] = texts.text(token.id)
            if token.top:
                line["top_tokens"] = [texts.text(best) for best, _ in token.top]
        print(json.dumps(line))
    numbers = {name: number(value) for name, value in vars(totals).items()}
    print(json.dumps({"totals": numbers}))


def show_plainly(scored: list[Token], totals: Totals, texts: Vocabulary | None) -> None:
    """Print a table of the tokens, the best ones under each where they were asked for, and the totals."""
    terminal = Terminal.of(sys.stdout)

    def text(token: int) -> str:
        return str(token) if texts is None else terminal.quoted(texts.text(token))

    head = ["position", "id", *([] if texts is None else ["token"]), "log p", "rank", "entropy", "best"]
    rows = [
        [
            ",".join(map(str, token.position)),
            str(token.id),
            *([] if texts is None else [text(token.id)]),
            f"{token.logprob:.3f}",
            str(token.rank),
            f"{token.entropy:.3f}",
            "=" if token.argmax == token.id else text(token.argmax),
        ]
        for token in scored
    ]
    heading, *lines = table(head, rows, terminal).split("\n")
    print(heading)
    for line, token in zip(lines, scored, strict=True):
        print(line)
        for best, logprob in token.top:
            print(f"{'':>12}{best:>7} {padded('' if texts is None else text(best), TOKEN_COLUMNS)} {logprob:.3f}")
    print()
    for what, value in (
        ("tokens", str(totals.tokens)),
        ("mean log p", f"{totals.mean_logprob:.4f}"),
        ("perplexity", f"{totals.perplexity:.4f}"),
        ("greedy accuracy", f"{totals.greedy_accuracy:.4f}"),
        ("mean entropy", f"{totals.mean_entropy:.4f}"),
    ):
        print(f"{padded(what, 16)} {value:>12}")
