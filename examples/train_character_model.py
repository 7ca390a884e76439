"""A character-level language model that learns in seconds, with a tied head and the fused loss.

    python examples/train_character_model.py --plot loss.png

Eight characters, each a row of an embedding, go through two layers of plain NumPy to one hidden state; the head that
predicts the next character is the embedding itself. The loss starts near that of guessing, log V, and must end below
`GOAL` nats a character, or the script fails. Without --text the model learns the licence that lies beside it.

What to look at: `linear_cross_entropy_with_grad` gives the loss and all the head's gradients in one call, and, as the
weight is tied, adds that of the head to what the embedding has received already.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import lmhead_native as native

CONTEXT, WIDTH, INNER = 8, 32, 128
BATCH, RATE = 256, 3e-3
# Of the training text, averaged over the last tenth of the steps; guessing among 75 characters is at 4.3.
GOAL = 1.0

Array = NDArray[np.float32]
Parameters = dict[str, Array]


def new_parameters(vocabulary: int, rng: np.random.Generator) -> Parameters:
    """Draw a model whose logits are small, so that it begins by guessing."""

    def normal(*shape: int, deviation: float) -> Array:
        return (deviation * rng.standard_normal(shape)).astype(np.float32)

    return {
        "embedding_vd": normal(vocabulary, WIDTH, deviation=0.3),
        "inner": normal(CONTEXT * WIDTH, INNER, deviation=(CONTEXT * WIDTH) ** -0.5),
        "inner_bias": np.zeros(INNER, np.float32),
        "outer": normal(INNER, WIDTH, deviation=0.1 * INNER**-0.5),
        "head_bias": np.zeros(vocabulary, np.float32),
    }


def body(p: Parameters, context_nk: NDArray[np.int64]) -> tuple[Array, Array, Array]:
    """Return the hidden states (N, D), and what the way back needs of the layers below."""
    seen = p["embedding_vd"][context_nk].reshape(len(context_nk), -1)
    inner = np.tanh(seen @ p["inner"] + p["inner_bias"])
    return inner @ p["outer"], inner, seen


def loss_with_gradients(
    p: Parameters, context_nk: NDArray[np.int64], next_n: NDArray[np.int64]
) -> tuple[float, Parameters]:
    """Return the mean loss of a batch and its gradients."""
    hidden, inner, seen = body(p, context_nk)
    gradients = {name: np.zeros_like(value) for name, value in p.items()}
    # With accumulate=True the order does not matter: the head may add before or after the embedding does.
    loss, dhidden, _, _ = native.linear_cross_entropy_with_grad(
        hidden,
        p["embedding_vd"],
        next_n,
        bias=p["head_bias"],
        dweight_out=gradients["embedding_vd"],
        dbias_out=gradients["head_bias"],
        accumulate=True,
    )
    assert dhidden is not None
    gradients["outer"] = inner.T @ dhidden
    dsum = (dhidden @ p["outer"].T) * (1 - inner**2)
    gradients["inner"], gradients["inner_bias"] = seen.T @ dsum, dsum.sum(axis=0)
    dseen = (dsum @ p["inner"].T).reshape(*context_nk.shape, WIDTH)
    np.add.at(gradients["embedding_vd"], context_nk, dseen)
    return float(loss), gradients


class Adam:
    """Kingma and Ba, 2015 (arXiv:1412.6980), algorithm 1, with a rate that falls along a half cosine."""

    def __init__(self, p: Parameters, steps: int) -> None:
        self._mean = {name: np.zeros_like(value) for name, value in p.items()}
        self._square = {name: np.zeros_like(value) for name, value in p.items()}
        self._step, self._steps = 0, steps

    def update(self, p: Parameters, gradients: Parameters) -> None:
        """Move the parameters, in place."""
        rate = RATE * 0.5 * (1 + math.cos(math.pi * self._step / self._steps))
        self._step += 1
        for name, g in gradients.items():
            self._mean[name] += 0.1 * (g - self._mean[name])
            self._square[name] += 0.001 * (g**2 - self._square[name])
            mean = self._mean[name] / (1 - 0.9**self._step)
            square = self._square[name] / (1 - 0.999**self._step)
            p[name] -= rate * mean / (np.sqrt(square) + 1e-8)


def train(ids: NDArray[np.int64], vocabulary: int, steps: int, seed: int) -> tuple[Parameters, NDArray[np.float64]]:
    """Return the trained model and the loss of every step."""
    rng = np.random.default_rng(seed)
    p, losses = new_parameters(vocabulary, rng), np.empty(steps)
    optimiser = Adam(p, steps)
    windows = np.lib.stride_tricks.sliding_window_view(ids, CONTEXT + 1)
    for step in range(steps):
        batch = windows[rng.integers(0, len(windows), BATCH)]
        losses[step], gradients = loss_with_gradients(p, batch[:, :-1], batch[:, -1])
        optimiser.update(p, gradients)
    return p, losses


def continued(p: Parameters, ids: NDArray[np.int64], length: int) -> list[int]:
    """Let the model write on, always the most likely character."""
    written: list[int] = ids.tolist()
    for _ in range(length):
        hidden, _, _ = body(p, np.array([written[-CONTEXT:]]))
        written.append(int(native.logits_topk(hidden[0], p["embedding_vd"], 1, bias=p["head_bias"]).indices[0]))
    return written


def plot(path: Path, losses: NDArray[np.float64], vocabulary: int) -> None:
    """Draw the loss curve beside the loss of guessing and the goal."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(losses, linewidth=0.8, label="training loss")
    axes.axhline(math.log(vocabulary), color="grey", linestyle="--", label=f"guessing: log {vocabulary}")
    axes.axhline(GOAL, color="green", linestyle=":", label=f"goal: {GOAL}")
    axes.set(xlabel="step", ylabel="nats per character", ylim=(0, None), title="A character-level model, tied head")
    axes.legend()
    figure.savefig(path, dpi=120)


def main() -> int:
    """Train, report, and say whether the goal was reached."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    licence = Path(__file__).parent.parent / "LICENSE"
    arguments.add_argument("--text", type=Path, default=licence, help="what to learn, UTF-8 (default: the licence)")
    arguments.add_argument("--steps", type=int, default=1500)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--plot", type=Path, help="write the loss curve here (needs matplotlib)")
    given = arguments.parse_args()

    text = " ".join(given.text.read_text(encoding="utf-8").split())
    characters = sorted(set(text))
    ids = np.array([characters.index(c) for c in text])
    vocabulary = len(characters)
    started = time.perf_counter()
    p, losses = train(ids, vocabulary, given.steps, given.seed)
    seconds = time.perf_counter() - started
    last = float(losses[-max(1, given.steps // 10) :].mean())
    print(f"{len(text)} characters, V = {vocabulary}, log V = {math.log(vocabulary):.3f}")
    print(f"loss at the start {losses[0]:.3f}, at the end {last:.3f} ({given.steps} steps, {seconds:.1f} s)")
    print("".join(characters[i] for i in continued(p, ids[:CONTEXT], 60)))
    if given.plot is not None:
        plot(given.plot, losses, vocabulary)
        print(f"wrote {given.plot}")
    print(f"goal of {GOAL}: {'reached' if last < GOAL else 'missed'}")
    return 0 if last < GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
