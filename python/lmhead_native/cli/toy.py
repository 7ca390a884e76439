"""The toy head: 12 tokens, width 4, a worked example to follow by hand; what the demo runs without a model.

Knows: its file. Refuses to know: how predictions are computed and drawn.
"""

from __future__ import annotations

import json
import math
from importlib.resources import files

import numpy as np

import lmhead_native as native
from lmhead_native.cli.comparison import show_times
from lmhead_native.cli.predictions import Predictions, show_position, show_summary
from lmhead_native.cli.terminal import Terminal
from lmhead_native.cli.vocabulary import Vocabulary


def run_toy(top: int | None, *, repeat: int, threads: int | None, terminal: Terminal) -> None:
    """Predict the word after "the cat climbed the" and print it as the demo does.

    Parameters
    ----------
    top : int or None
        How many tokens to show, at most 12; None shows them all.
    repeat : int
        Rounds of the timing; 0 leaves it out.
    threads : int or None
        Threads of the timing.
    terminal : Terminal
        Where it is shown.

    Notes
    -----
    The file has the head as most textbooks write it, ``W_U`` of shape (d, V). It is passed as the view ``W_U.T``.
    """
    toy = json.loads((files("lmhead_native") / "data" / "toy_head.json").read_text("utf-8"))
    texts = Vocabulary(toy["tokens"], byte_level=False)
    token, following = (toy["tokens"].index(text) for text in (" the", " roof"))
    W_U = np.array(toy["W_U"], dtype=np.float64)
    hidden_td = native.layer_norm(np.array([toy["y5"]]))
    head = native.LMHead(W_U.T)
    k = min(top or len(texts), len(texts))
    shown = Predictions.of(hidden_td, head, np.array([following]), k)
    sum_exp = math.exp(float(native.logsumexp(head.logits(hidden_td[0]))))
    print(f'toy head of {len(texts)} tokens x {len(W_U)}: "the cat climbed the" and then?')
    print("state after the final layer norm: " + "  ".join(f"{value:.3f}" for value in hidden_td[0]))
    print(f"sum of exp(logits): {sum_exp:.3f}")
    print("* marks the token that really comes next\n")
    show_position(0, token, following, shown, texts, terminal)
    print()
    show_summary(shown, "the next token")
    if repeat:
        show_times(hidden_td, W_U.T, head, k, repeat=repeat, threads=threads, terminal=terminal)
