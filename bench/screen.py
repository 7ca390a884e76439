"""Contests of the int8 screen: top-k with it beside top-k without and beside the peers, its pass, its preparation.

Knows: how ours is called, what hidden states a screen may expect, the bytes of a plane. Refuses to know: bars and
clocks.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import lmhead_native as native
from bench import answers, peers
from bench.contest import OURS, Contest, UnavailableError
from bench.projection import K, group, others, switch
from bench.roofs import Roofs, Work
from bench.setting import Setting
from bench.shapes import Array, normal
from bench.timing import Racer, nothing
from lmhead_native import _core
from lmhead_native.cli import peers as users
from lmhead_native.cli.model import ModelMissingError, model_file, read_model
from lmhead_native.cli.workload import Shape, storage_dtype

PASSAGE = Path(__file__).resolve().parents[1] / "tests" / "data" / "smollm2_passage.npz"
# How far the top logit stands out, in standard deviations of the others.
TOP_LOGIT = 8.0
NOISE = 0.5


def hidden_states(weight_vd: Array, dtype: str, rows: int) -> Array:
    """Make hidden states that point at a row of the weight each: noise and that row, so that its logit is 8 sd."""
    width = weight_vd.shape[1]
    hidden = NOISE * normal((rows, width), "f32", seed=2)
    targets = weight_vd[np.random.default_rng(3).integers(0, len(weight_vd), rows)].astype(np.float32)
    # Logits of noise have the standard deviation 0.5 |w|, the added part gives its own row c |w|.
    targets /= np.linalg.norm(targets, axis=1, keepdims=True)
    found: Array = (hidden + np.float32(TOP_LOGIT * NOISE) * targets).astype(storage_dtype(dtype))
    return found


def screened_topk(
    setting: Setting, shape: Shape, dtype: str, rows: int, real: tuple[Array, Array] | None = None
) -> Contest:
    """Set up ``screened_topk`` beside ``logits_topk`` and the peers; of a real head where one is given."""
    weight = setting.weights.get(shape, dtype) if real is None else real[1]
    hidden = hidden_states(weight, dtype, rows) if real is None else real[0][:rows]
    head = native.LMHead(weight, screen="int8", prepare=False, threads=setting.threads)
    ours = partial(head.topk, hidden, K, threads=setting.threads)
    without = partial(native.logits_topk, hidden, weight, K, threads=setting.threads)
    return Contest(
        f"screened top-k k={K} {dtype} {shape} N={rows}{' real' if real is not None else ''}",
        group(shape, rows),
        [
            Racer(OURS, ours, setting.threads),
            Racer("unscreened", without, setting.threads),
            *others(searches(setting, hidden, weight)),
        ],
        partial(check, hidden, weight),
        Roofs(plane(head.memory["screen"]), Work(head.memory["screen"]), setting.threads, setting.reduced),
    )


def real_head(setting: Setting, rows: int = 1) -> Contest:
    """Set up the same on SmolLM2's head with hidden states of the passage.

    Raises
    ------
    UnavailableError
        The model package is not installed.
    """
    try:
        weight = read_model(model_file()).weight_vd
    except ModelMissingError as missing:
        raise UnavailableError(str(missing)) from missing
    with np.load(PASSAGE) as passage:
        hidden = passage["hidden"][100:]
    return screened_topk(setting, Shape("smollm2", weight.shape[1], weight.shape[0]), "f32", rows, (hidden, weight))


def searches(setting: Setting, hidden_nd: Array, weight_vd: Array) -> dict[str, peers.Call]:
    """Return how others find the k best: all logits first, or an exact index; bfloat16 beside PyTorch only."""
    calls: dict[str, peers.Call] = {}
    if "numpy" in setting.peers and weight_vd.dtype == np.float32:
        out = np.empty((len(hidden_nd), len(weight_vd)), np.float32)
        calls["numpy"] = lambda: users.numpy_topk(np.matmul(hidden_nd, weight_vd.T, out=out), K)
    if "torch" in setting.peers:
        torch = peers.module("torch")
        hidden, weight = users.as_tensor(hidden_nd), users.as_tensor(weight_vd)
        calls["torch"] = lambda: torch.topk(torch.nn.functional.linear(hidden, weight), K)
        if weight_vd.dtype == np.float32 and len(hidden_nd) > 1:  # what a user of PyTorch would rather do
            halves = hidden.bfloat16(), weight.bfloat16()
            calls["torch bf16"] = lambda: torch.topk(torch.nn.functional.linear(*halves), K)
    return calls | peers.searches(hidden_nd, weight_vd, K, setting.peers)


def int8_pass(setting: Setting, shape: Shape, rows: int, isa: str) -> Contest:
    """Set up the pass over the plane alone, on one kernel table.

    Raises
    ------
    UnavailableError
        The CPU lacks the table.
    """
    weight = setting.weights.get(shape, "f32")
    hidden, screen = hidden_states(weight, "f32", rows), _core.Screen(weight, setting.threads)

    def check_pass(_: Any) -> None:
        estimates, ends = _core.screen_ends(screen, hidden, False, setting.threads)
        logits = native.logits(hidden, weight)
        assert (logits <= ends).all()
        assert (2 * estimates - ends <= logits + 1e-6 * np.abs(logits)).all()

    call = partial(_core.screen_pass_seconds, screen, hidden, 1, setting.threads)
    return Contest(
        f"int8 pass {shape} N={rows} on {isa}",
        group(shape, rows),
        [Racer(OURS, call, setting.threads, switch(isa))],
        check_pass,
        Roofs(plane(screen.nbytes), Work(screen.nbytes), setting.threads, setting.reduced),
    )


def preparation(setting: Setting, shape: Shape, dtype: str, what: str) -> Contest:
    """Set up making a ``"screen"`` or a ``"copy"``; its roof is reading the weight once."""
    weight = setting.weights.get(shape, dtype)
    call = partial(_core.Screen if what == "screen" else _core.prepared_copy, weight, setting.threads)

    def check_made(made: Any) -> None:
        assert made.shape == weight.shape
        if what == "copy":
            assert getattr(made, "stored", made).tobytes() == weight.tobytes()

    return Contest(
        f"prepare the {what} {dtype} {shape}",
        group(shape, 0),
        [Racer(OURS, call, setting.threads, nothing)],
        check_made,
        Roofs(weight, Work(weight.nbytes), setting.threads, setting.reduced),
    )


def plane(n_bytes: int) -> Array:
    """Make memory of a screen's size, whose pages are what a screen's are."""
    return np.ones(max(1 << 16, n_bytes), np.uint8)


def check(hidden_nd: Array, weight_vd: Array, found: native.ScreenedTopK) -> None:
    """Assert the very list of the call without a screen, which is checked itself."""
    values, indices = found
    expected = native.logits_topk(hidden_nd, weight_vd, K)
    assert values.tobytes() == expected.values.tobytes()
    np.testing.assert_array_equal(indices, expected.indices)
    answers.check_logits_topk(hidden_nd, weight_vd, expected, K)
