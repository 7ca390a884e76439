"""``lmhead-native topk``: the best next tokens for hidden states in a file, by the head of a model file.

Knows: its options, what it prints. Refuses to know: how files are read and how heads work.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

from lmhead_native.cli.arguments import Commands, choice, positive
from lmhead_native.cli.errors import CommandError, UsageError
from lmhead_native.cli.hidden_states import read_hidden_states
from lmhead_native.cli.model import open_head, vocabulary_of
from lmhead_native.cli.predictions import TOKEN_COLUMNS
from lmhead_native.cli.terminal import Terminal, padded
from lmhead_native.cli.vocabulary import Vocabulary

DESCRIPTION = """\
Print the k best next tokens for every hidden state in a file, with their
logits, by the output head of a model file. The head is read as it is stored
(float32, float16, bfloat16, Q8_0) from a GGUF file, a safetensors file, or
the folder of a model; the tokens' texts are shown where the file has them."""

EPILOG = """\
examples:
  lmhead-native topk model.gguf --hidden states.npy -k 5
  lmhead-native topk model_folder --hidden states.npz --norm
  lmhead-native topk model.gguf --hidden states.npy --json > best.jsonl

FILE.npy holds (..., D) of float32, float16 or float64 (read as float32), a
FILE.npz the same under the name "hidden"."""


def add_parser(commands: Commands) -> None:
    """Declare the command and its options."""
    parser = commands.add_parser(
        "topk",
        help="the best next tokens for hidden states in a file",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="a .gguf or .safetensors file, or a model's folder")
    parser.add_argument("--hidden", type=Path, metavar="FILE", required=True, help="hidden states, .npy or .npz")
    parser.add_argument("-k", type=positive(), default=5, metavar="K", help="tokens a state (default: %(default)s)")
    parser.add_argument("--norm", action="store_true", help="the states come before the model's final norm")
    parser.add_argument(
        "--screen",
        type=choice(("auto", "int8", "none")),
        default="auto",
        metavar="S",
        help="auto, int8 or none: read an int8 copy first; the result is the same (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="one line of JSON a state")
    parser.add_argument("--threads", type=positive(), metavar="N", help="default: all allowed")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    hidden_nd = read_hidden_states(args.hidden)
    screen = None if args.screen == "none" else args.screen
    head = open_head(args.model, norm=args.norm, screen=screen, threads=args.threads)
    vocabulary, width = head.shape
    if width != hidden_nd.shape[1]:
        raise CommandError(
            f"{args.hidden}: expected states of width {width} as of {args.model}, got {hidden_nd.shape[1]}"
        )
    if args.k > vocabulary:
        raise UsageError(f"argument -k: expected at most V = {vocabulary} of {args.model}, got {args.k}")
    texts = vocabulary_of(args.model)
    best = head.topk(hidden_nd, args.k, threads=args.threads)
    for note in head.notes:
        print(f"{args.model.name}: {note}", file=sys.stderr)
    show = show_json if args.json else show_plainly
    for row, (values, ids) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
        show(row, ids, values, texts)


def show_json(row: int, ids: list[int], logits: list[float], texts: Vocabulary | None) -> None:
    """Print a state's tokens as one line of JSON."""
    numbers = [logit if math.isfinite(logit) else str(logit) for logit in logits]  # JSON has neither NaN nor infinities
    line: dict[str, object] = {"row": row, "ids": ids, "logits": numbers}
    if texts is not None:
        line["tokens"] = [texts.text(token) for token in ids]
    print(json.dumps(line))


def show_plainly(row: int, ids: list[int], logits: list[float], texts: Vocabulary | None) -> None:
    """Print a state's tokens as one line each."""
    terminal = Terminal.of(sys.stdout)
    print(terminal.style(f"{row}", "bold"))
    for token, logit in zip(ids, logits, strict=True):
        text = "" if texts is None else padded(terminal.quoted(texts.text(token)), TOKEN_COLUMNS) + " "
        print(f"  {token:>7} {text}{logit:.4f}")
