"""Contests on losses: ``cross_entropy`` of given logits, ``linear_cross_entropy`` from hidden states, with gradients.

Knows: how ours is called, the bytes and flops of a loss, what it is compared with. Refuses to know: bars and clocks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import lmhead_native as native
from bench import answers, peers
from bench.contest import OURS, Contest
from bench.projection import group as head_group
from bench.projection import hidden_states, others, ours_logits
from bench.roofs import Roofs, Work
from bench.rows import Stage, all_in_turn, group, in_turn, logits_rows, title
from bench.setting import Setting
from bench.shapes import Array
from bench.timing import Racer
from lmhead_native.cli.workload import Shape

# Products of N x V x D that a training step has: logits, the gradient of the hidden states, that of the weight.
PRODUCTS = 3


def targets_of(rows: int, vocabulary: int) -> Array:
    """Draw a target for each row."""
    return np.random.default_rng(8).integers(0, vocabulary, rows)


def mostly_ignored(targets_n: Array) -> Array:
    """Return the targets with only every tenth left."""
    return np.where(np.arange(len(targets_n)) % 10 == 0, targets_n, -100)


def cross_entropy(setting: Setting, rows: int, vocabulary: int, *, with_grad: bool) -> Contest:
    """Set up the loss of given logits; with its gradient, which has an array made beforehand."""
    logits = logits_rows(setting, rows, vocabulary)
    targets = targets_of(*logits.shape)
    stage = Stage.of(setting, logits, results=with_grad)
    threads = setting.threads if stage.roofs else 1
    check: Callable[[Array, Array, Any], None]
    sparse = []
    if with_grad:
        name, check = "cross_entropy_with_grad", answers.check_cross_entropy_with_grad

        def calls(ids: Array) -> list[Callable[[], Any]]:
            return [
                partial(native.cross_entropy_with_grad, x, ids, dlogits_out=out, threads=setting.threads)
                for x, out in zip(stage.data, stage.results, strict=True)
            ]

        ours = calls(targets)
        sparse = [Racer("90% ignored", in_turn(calls(mostly_ignored(targets))), threads)]
    else:
        name, check = "cross_entropy", answers.check_cross_entropy
        ours = [partial(native.cross_entropy, x, targets, threads=setting.threads) for x in stage.data]
    theirs = all_in_turn([peers.losses(x, targets, setting.peers, with_grad=with_grad) for x in stage.data])
    return Contest(
        title(name, logits),
        group(logits),
        [Racer(OURS, in_turn(ours), threads), *others(theirs), *sparse],
        partial(check, logits, targets),
        stage.roofs,
    )


def linear_cross_entropy(setting: Setting, shape: Shape, dtype: str, rows: int) -> Contest:
    """Set up the fused loss alone, beside the projection alone."""
    hidden, weight = hidden_states(shape, dtype, rows), setting.weights.get(shape, dtype)
    targets = targets_of(rows, len(weight))
    call = partial(native.linear_cross_entropy, hidden, weight, targets, threads=setting.threads)
    theirs = peers.linear_losses(hidden, weight, targets, setting.peers, with_grad=False)
    return Contest(
        f"linear_cross_entropy {dtype} {shape} N={rows}",
        head_group(shape, rows),
        [Racer(OURS, call, setting.threads), *others(theirs), ours_logits(setting, hidden, weight, name="logits")],
        partial(answers.check_linear_cross_entropy, hidden, weight, targets),
        roofs_of(setting, hidden, weight, products=1),
    )


def linear_cross_entropy_with_grad(setting: Setting, shape: Shape, dtype: str, rows: int) -> Contest:
    """Set up the fused loss with the gradients of hidden states and weight, into arrays made beforehand."""
    hidden, weight = hidden_states(shape, dtype, rows), setting.weights.get(shape, dtype)
    targets = targets_of(rows, len(weight))
    outs: dict[str, Any] = {
        "dhidden_out": np.empty(hidden.shape, np.float32),
        "dweight_out": np.empty(weight.shape, np.float32),
    }
    full = partial(native.linear_cross_entropy_with_grad, hidden, weight, targets, threads=setting.threads, **outs)
    frozen = partial(
        native.linear_cross_entropy_with_grad,
        hidden,
        weight,
        targets,
        wrt=("hidden",),
        dhidden_out=np.empty(hidden.shape, np.float32),
        threads=setting.threads,
    )
    masked = mostly_ignored(targets)
    sparse = partial(native.linear_cross_entropy_with_grad, hidden, weight, masked, threads=setting.threads, **outs)
    theirs = peers.linear_losses(hidden, weight, targets, setting.peers, with_grad=True)
    return Contest(
        f"linear_cross_entropy_with_grad {dtype} {shape} N={rows}",
        head_group(shape, rows),
        [
            Racer(OURS, full, setting.threads),
            *others(theirs),
            Racer("frozen head", frozen, setting.threads),
            Racer("90% ignored", sparse, setting.threads),
        ],
        partial(answers.check_linear_cross_entropy_with_grad, hidden, weight, targets),
        roofs_of(setting, hidden, weight, products=PRODUCTS),
    )


def roofs_of(setting: Setting, hidden_nd: Array, weight_vd: Array, *, products: int) -> Roofs:
    """Return the roofs of so many products of N x V x D, each of which reads the weight or writes its gradient."""
    both_bf16 = hidden_nd.dtype == weight_vd.dtype and weight_vd.dtype.name == "bfloat16"
    flops = 2 * products * len(hidden_nd) * weight_vd.size
    work = Work(products * weight_vd.nbytes, flops, "bf16" if both_bf16 else "f32")
    return Roofs(weight_vd, work, setting.threads, setting.reduced)
