"""Contests on given rows: ``topk``, ``softmax``, ``log_softmax``, ``logsumexp`` of logits, norms of hidden states.

Knows: how ours is called, the bytes each must move, what has to be done so that they come from memory. Refuses to know:
bars and clocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import lmhead_native as native
from bench import answers, peers
from bench.contest import OURS, Contest
from bench.projection import K, others
from bench.roofs import Roofs, Work
from bench.setting import Setting
from bench.shapes import Array, logits_shape, normal
from bench.timing import Racer

# Spread of the logits: of the order of what trained heads give.
LOGITS_DEVIATION = 4.0
# Rows that fit a cache would be read from it, again and again, at a rate that is no roof of anything. Calls take turns
# on copies that fill four third-level caches of 32 MiB, so that every byte comes from memory, as the roof's bytes do.
ROTATION_BYTES = 128 * 2**20
# Less than this is a cache's business wherever it comes from: no copies and no roof.
SMALLEST_STREAM = 8 * 2**20
# What is too small for a read bandwidth even when everything is small.
SMALLEST_REDUCED = 1 << 16


@dataclass(frozen=True)
class Stage:
    """Copies of the data and places for the results, side by side in one array.

    Attributes
    ----------
    whole : ndarray, shape (copies, 1 or 2, rows, columns)
        Data and, where results are as large as the data, results.
    roofs : Roofs, optional
        Of one call, on ``whole``.
    """

    whole: Array
    roofs: Roofs | None

    @classmethod
    def of(cls, setting: Setting, data: Array, *, results: bool) -> Stage:
        """Set the stage for data and, if asked, results of the same size."""
        arrays = 2 if results else 1
        streams = data.nbytes >= (SMALLEST_REDUCED if setting.reduced else SMALLEST_STREAM)
        copies = -(-ROTATION_BYTES // (arrays * data.nbytes)) if streams and not setting.reduced else 1
        whole = np.zeros((copies, arrays, *data.shape), np.float32)
        whole[:, 0] = data
        work = Work(arrays * data.nbytes)
        return cls(whole, Roofs(whole, work, setting.threads, setting.reduced) if streams else None)

    @property
    def data(self) -> list[Array]:
        """The copies of the data."""
        return list(self.whole[:, 0])

    @property
    def results(self) -> list[Array]:
        """The places for the results."""
        return list(self.whole[:, 1])


def in_turn(calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
    """Return a call that makes the first call, then the second one, ..., then the first one again."""
    turns = itertools.cycle(calls)
    return calls[0] if len(calls) == 1 else lambda: next(turns)()


def all_in_turn(calls: Sequence[dict[str, peers.Call]]) -> dict[str, peers.Call]:
    """Return the calls of each peer in turn."""
    return {name: in_turn([copy[name] for copy in calls]) for name in calls[0]}


def title(op: str, data: Array) -> str:
    """Name operation and size."""
    return f"{op} f32 {group(data)}"


def group(data: Array) -> str:
    """Name the size."""
    return f"{data.shape[0]} x {data.shape[1]}"


def logits_rows(setting: Setting, rows: int, vocabulary: int) -> Array:
    """Make rows of logits."""
    return normal(logits_shape(rows, vocabulary, reduced=setting.reduced), "f32", seed=3, scale=LOGITS_DEVIATION)


def topk(setting: Setting, rows: int, vocabulary: int) -> Contest:
    """Set up ``topk`` of given logits, which have just been computed and are in a cache: no roof judges it."""
    logits = logits_rows(setting, rows, vocabulary)
    return Contest(
        title(f"topk k={K}", logits),
        group(logits),
        [
            # One row is one thread's work.
            Racer(OURS, partial(native.topk, logits, K, threads=setting.threads), cpus=1),
            *others(peers.selections(logits, K, setting.peers)),
        ],
        partial(answers.check_top_k, logits, k=K),
    )


def row_operation(setting: Setting, op: str, rows: int, vocabulary: int) -> Contest:
    """Set up ``softmax``, ``log_softmax`` or ``logsumexp``, each into an array made beforehand."""
    logits = logits_rows(setting, rows, vocabulary)
    stage = Stage.of(setting, logits, results=op != "logsumexp")
    outs: list[Array] = [np.empty(len(logits), np.float32)] * len(stage.data) if op == "logsumexp" else stage.results
    function: Callable[..., Any] = getattr(native, op)
    ours = [partial(function, x, out=out, threads=setting.threads) for x, out in zip(stage.data, outs, strict=True)]
    theirs = all_in_turn([peers.row_operations(op, x, setting.peers) for x in stage.data])
    return Contest(
        title(op, logits),
        group(logits),
        [Racer(OURS, in_turn(ours), setting.threads if stage.roofs else 1), *others(theirs)],
        partial(answers.check_row_operation, op, logits),
        stage.roofs,
    )


def norm(setting: Setting, op: str, rows: int, width: int) -> Contest:
    """Set up ``layer_norm`` or ``rms_norm`` with a gain."""
    x, gain = normal((rows, width), "f32", seed=4), normal((1, width), "f32", seed=5)[0]
    stage = Stage.of(setting, x, results=True)
    function: Callable[..., Any] = getattr(native, op)
    places = zip(stage.data, stage.results, strict=True)
    ours = [partial(function, copy, gain, out=out, threads=setting.threads) for copy, out in places]
    theirs = all_in_turn([peers.norms(op, copy, gain, setting.peers) for copy in stage.data])
    return Contest(
        title(op, x),
        group(x),
        [Racer(OURS, in_turn(ours)), *others(theirs)],
        partial(answers.check_norm, op, x, gain),
        stage.roofs,
    )
