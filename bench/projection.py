"""Contests on hidden states and a head: ``logits`` and ``logits_topk``, other layouts, other tables, other storage.

Knows: how ours is called, the bytes and flops of a projection, which roof judges it. Refuses to know: bars and clocks.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import lmhead_native as native
from bench import answers, peers
from bench.contest import OURS, Contest, UnavailableError
from bench.roofs import Roofs, Work
from bench.setting import Setting
from bench.shapes import Array, Layout, normal
from bench.timing import Racer, nothing
from lmhead_native import _core
from lmhead_native.cli.workload import Shape

K = 50


def work_of(hidden_nd: Array, weight_vd: Array) -> Work:
    """Count what must be read once (the logits written are left out) and computed."""
    both_bf16 = hidden_nd.dtype == weight_vd.dtype and weight_vd.dtype.name == "bfloat16"
    flops = 2 * len(hidden_nd) * weight_vd.size
    return Work(hidden_nd.nbytes + weight_vd.nbytes, flops, "bf16" if both_bf16 else "f32")


def roofs_of(setting: Setting, hidden_nd: Array, weight_vd: Array) -> Roofs:
    """Return the roofs of a projection: the buffer is the weight itself, in the order of its memory."""
    buffer = weight_vd if weight_vd.flags.c_contiguous else weight_vd.T
    return Roofs(buffer, work_of(hidden_nd, weight_vd), setting.threads, setting.reduced)


def ours_logits(
    setting: Setting, hidden_nd: Array, weight_vd: Array, *, name: str = OURS, prepare: peers.Call = nothing
) -> Racer:
    """Return the racer that calls ``logits`` into an array made beforehand."""
    out = np.empty((len(hidden_nd), len(weight_vd)), np.float32)
    call = partial(native.logits, hidden_nd, weight_vd, out=out, threads=setting.threads)
    return Racer(name, call, setting.threads, prepare)


def others(calls: dict[str, peers.Call]) -> list[Racer]:
    """Return peers as racers; each keeps one CPU busy at least, how many more is its affair."""
    return [Racer(name, call, cpus=1) for name, call in calls.items()]


def logits(setting: Setting, shape: Shape, dtype: str, rows: int, *, layout: Layout = "vd") -> Contest:
    """Set up ``logits`` beside the peers, hidden states and weight in one dtype."""
    weight, hidden = setting.weights.get(shape, dtype, layout), hidden_states(shape, dtype, rows)
    calls = peers.projections(hidden, weight, setting.peers) if layout == "vd" else {}
    return Contest(
        f"logits {dtype} {shape} N={rows}{' stored (D, V)' if layout == 'dv' else ''}",
        group(shape, rows),
        [ours_logits(setting, hidden, weight), *others(calls)],
        partial(answers.check_logits, hidden, weight),
        roofs_of(setting, hidden, weight),
    )


def logits_of_columns(setting: Setting, shape: Shape, dtype: str, rows: int) -> Contest:
    """Set up ``logits`` of a weight stored as (D, V) beside the same head stored as (V, D)."""
    contest = logits(setting, shape, dtype, rows, layout="dv")
    hidden, usual = hidden_states(shape, dtype, rows), setting.weights.get(shape, dtype)
    contest.racers.append(ours_logits(setting, hidden, usual, name="(V, D)"))
    return contest


def logits_topk(setting: Setting, shape: Shape, dtype: str, rows: int) -> Contest:
    """Set up ``logits_topk`` beside the projection alone."""
    hidden, weight = hidden_states(shape, dtype, rows), setting.weights.get(shape, dtype)
    contest = fused_top_k(setting, shape, dtype, rows)
    contest.racers.append(ours_logits(setting, hidden, weight, name="logits"))
    return contest


def search(setting: Setting, shape: Shape, rows: int) -> Contest:
    """Set up ``logits_topk`` beside an exact inner-product index."""
    contest = fused_top_k(setting, shape, "f32", rows)
    hidden, weight = hidden_states(shape, "f32", rows), setting.weights.get(shape, "f32")
    contest.racers += others(peers.searches(hidden, weight, K, setting.peers))
    return contest


def fused_top_k(setting: Setting, shape: Shape, dtype: str, rows: int) -> Contest:
    """Set up ``logits_topk`` alone."""
    hidden, weight = hidden_states(shape, dtype, rows), setting.weights.get(shape, dtype)
    call = partial(native.logits_topk, hidden, weight, K, threads=setting.threads)
    return Contest(
        f"logits_topk k={K} {dtype} {shape} N={rows}",
        group(shape, rows),
        [Racer(OURS, call, setting.threads)],
        partial(answers.check_logits_topk, hidden, weight, k=K),
        roofs_of(setting, hidden, weight),
    )


def on_table(setting: Setting, shape: Shape, rows: int, isa: str, beside: str) -> Contest:
    """Set up float32 ``logits`` on one kernel table beside another one.

    Raises
    ------
    UnavailableError
        The CPU lacks one of them.
    """
    hidden, weight = hidden_states(shape, "f32", rows), setting.weights.get(shape, "f32")
    return Contest(
        f"logits f32 {shape} N={rows} on {isa}",
        group(shape, rows),
        [
            ours_logits(setting, hidden, weight, prepare=switch(isa)),
            ours_logits(setting, hidden, weight, name=beside, prepare=switch(beside)),
        ],
        partial(answers.check_logits, hidden, weight),
        roofs_of(setting, hidden, weight),
    )


def of_storage(setting: Setting, shape: Shape, hidden_dtype: str, dtype: str, rows: int, isa: str) -> Contest:
    """Set up ``logits`` of a half-precision weight on one kernel table beside the same head in float32.

    Raises
    ------
    UnavailableError
        The CPU lacks the table.
    """
    hidden, weight = hidden_states(shape, hidden_dtype, rows), setting.weights.get(shape, dtype)
    wide_hidden, wide_weight = hidden_states(shape, "f32", rows), setting.weights.get(shape, "f32")
    return Contest(
        f"logits {hidden_dtype} x {dtype} {shape} N={rows} on {isa}",
        group(shape, rows),
        [
            ours_logits(setting, hidden, weight, prepare=switch(isa)),
            ours_logits(setting, wide_hidden, wide_weight, name="f32", prepare=switch(isa)),
        ],
        partial(answers.check_logits, hidden, weight),
        roofs_of(setting, hidden, weight),
    )


def group(shape: Shape, rows: int) -> str:
    """Name what the contests on one head with so many rows have in common."""
    return f"{shape} N={rows}"


def hidden_states(shape: Shape, dtype: str, rows: int) -> Array:
    """Make hidden states, the same ones for the same arguments."""
    return normal((rows, shape.width), dtype, seed=2)


def switch(isa: str) -> Any:
    """Return a call that puts a kernel table in use.

    Raises
    ------
    UnavailableError
        The CPU lacks it.
    """
    if isa not in _core.usable_isas():
        raise UnavailableError(f"the CPU has no {isa}")
    return partial(_core.use_isa, isa)
