"""The contestants of the demo and the benchmark: this package, NumPy and, if installed, PyTorch.

Knows: how a user of each would write the operation. Refuses to know: clocks and tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lmhead_native as native
from lmhead_native.cli.errors import CommandError
from lmhead_native.cli.optional import optional_module
from lmhead_native.cli.workload import PROJECTIONS

Array = NDArray[Any]
PEERS = ("numpy", "torch")
TITLES = {"ours": "ours", "numpy": "NumPy", "torch": "PyTorch"}


@dataclass(frozen=True)
class Contestant:
    """Someone who computes the operation; ``call`` does it once."""

    name: str
    call: Callable[[], object]

    @property
    def title(self) -> str:
        """The heading of its column."""
        return TITLES[self.name]


def installed_peers(wanted: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return those of :data:`PEERS` that can run; a peer that was asked for by name must be there.

    Raises
    ------
    CommandError
        ``torch`` was asked for and is not installed.
    """
    if wanted is None:
        return PEERS if optional_module("torch") is not None else ("numpy",)
    if "torch" in wanted and optional_module("torch") is None:
        raise CommandError("--peers torch needs PyTorch, which is not installed; pip install torch")
    return tuple(name for name in PEERS if name in wanted)


@contextmanager
def peer_threads(threads: int) -> Iterator[bool]:
    """Give the peers as many threads as ours while the block runs; yields whether NumPy's BLAS could be told.

    PyTorch is set by its own function. NumPy has none: threadpoolctl does it where that is installed.
    """
    torch, threadpoolctl = optional_module("torch"), optional_module("threadpoolctl")
    before = torch.get_num_threads() if torch is not None else 0
    if torch is not None:
        torch.set_num_threads(threads)
    try:
        if threadpoolctl is None:
            yield False
        else:
            with threadpoolctl.threadpool_limits(threads, user_api="blas"):
                yield True
    finally:
        if torch is not None:
            torch.set_num_threads(before)


def as_tensor(array: Array) -> Any:
    """View an array as a PyTorch tensor without copying (bfloat16 by way of its 16-bit patterns)."""
    torch: Any = optional_module("torch")
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def projection_contestants(
    op: str, hidden_nd: Array, weight_vd: Array, k: int, *, threads: int | None, peers: Sequence[str]
) -> list[Contestant]:
    """Set up ``logits`` or ``logits_topk`` of the same hidden states and weight for everyone.

    PyTorch takes the arrays in their own dtype. NumPy multiplies half-precision matrices without its BLAS,
    hundreds of times slower, so it gets float32 copies, made here, outside the timing.
    """
    contestants = []
    if op == "logits":
        contestants.append(Contestant("ours", lambda: native.logits(hidden_nd, weight_vd, threads=threads)))
    else:
        contestants.append(Contestant("ours", lambda: native.logits_topk(hidden_nd, weight_vd, k, threads=threads)))
    if "numpy" in peers:
        half = hidden_nd.dtype.itemsize == 2
        hidden, weight = (a.astype(np.float32) if half else a for a in (hidden_nd, weight_vd))
        if op == "logits":
            contestants.append(Contestant("numpy", lambda: hidden @ weight.T))
        else:
            contestants.append(Contestant("numpy", lambda: numpy_topk(hidden @ weight.T, k)))
    if "torch" in peers:
        torch: Any = optional_module("torch")
        linear = torch.nn.functional.linear
        hidden_tensor, weight_tensor = as_tensor(hidden_nd), as_tensor(weight_vd)
        if op == "logits":
            contestants.append(Contestant("torch", lambda: linear(hidden_tensor, weight_tensor)))
        else:
            contestants.append(Contestant("torch", lambda: torch.topk(linear(hidden_tensor, weight_tensor), k)))
    return contestants


def row_contestants(
    op: str, logits_nv: Array, k: int, *, threads: int | None, peers: Sequence[str]
) -> list[Contestant]:
    """Set up ``topk``, ``softmax``, ``log_softmax`` or ``logsumexp`` of the same logits for everyone.

    The softmaxes write float32 into an array made here, one for each contestant. NumPy widens
    half-precision logits inside the timing, as its user would.
    """

    def buffer() -> Array:
        return np.empty(logits_nv.shape if op in ("softmax", "log_softmax") else 0, dtype=np.float32)

    mine, theirs = buffer(), buffer()
    ours: dict[str, Callable[[], object]] = {
        "topk": lambda: native.topk(logits_nv, k, threads=threads),
        "softmax": lambda: native.softmax(logits_nv, out=mine, threads=threads),
        "log_softmax": lambda: native.log_softmax(logits_nv, out=mine, threads=threads),
        "logsumexp": lambda: native.logsumexp(logits_nv, threads=threads),
    }
    contestants = [Contestant("ours", ours[op])]
    if "numpy" in peers:
        numpy_ops: dict[str, Callable[[], object]] = {
            "topk": lambda: numpy_topk(logits_nv.astype(np.float32, copy=False), k),
            "softmax": lambda: numpy_softmax(logits_nv, theirs),
            "log_softmax": lambda: numpy_log_softmax(logits_nv, theirs),
            "logsumexp": lambda: numpy_logsumexp(logits_nv.astype(np.float32, copy=False)),
        }
        contestants.append(Contestant("numpy", numpy_ops[op]))
    if "torch" in peers:
        torch: Any = optional_module("torch")
        tensor, result = as_tensor(logits_nv), torch.from_numpy(buffer())
        torch_ops: dict[str, Callable[[], object]] = {
            "topk": lambda: torch.topk(tensor, k),
            "softmax": lambda: torch.softmax(tensor, -1, dtype=torch.float32, out=result),
            "log_softmax": lambda: torch.log_softmax(tensor, -1, dtype=torch.float32, out=result),
            "logsumexp": lambda: torch.logsumexp(tensor, -1),
        }
        contestants.append(Contestant("torch", torch_ops[op]))
    return contestants


def numpy_topk(logits_nv: Array, k: int) -> tuple[Array, Array]:
    """Select the k largest of each row, best first: a partition, then a sort of the k."""
    if k == 0:
        return logits_nv[:, :0], np.empty((len(logits_nv), 0), dtype=np.int64)
    chosen = np.argpartition(logits_nv, logits_nv.shape[-1] - k, axis=-1)[:, -k:]
    values = np.take_along_axis(logits_nv, chosen, axis=-1)
    order = np.argsort(-values, axis=-1)
    return np.take_along_axis(values, order, axis=-1), np.take_along_axis(chosen, order, axis=-1)


def numpy_softmax(logits_nv: Array, out: Array) -> Array:
    """Compute the softmax of each row in place in ``out``."""
    np.subtract(logits_nv, logits_nv.max(axis=-1, keepdims=True), out=out, dtype=np.float32)
    np.exp(out, out=out)
    out /= out.sum(axis=-1, keepdims=True)
    return out


def numpy_log_softmax(logits_nv: Array, out: Array) -> Array:
    """Compute the logarithm of the softmax of each row in ``out``; the exponentials need a second array."""
    np.subtract(logits_nv, logits_nv.max(axis=-1, keepdims=True), out=out, dtype=np.float32)
    out -= np.log(np.exp(out).sum(axis=-1, keepdims=True))
    return out


def numpy_logsumexp(logits_nv: Array) -> Array:
    """Compute the logarithm of the sum of exponentials of each row."""
    top = logits_nv.max(axis=-1, keepdims=True)
    result: Array = (top + np.log(np.exp(logits_nv - top).sum(axis=-1, keepdims=True)))[:, 0]
    return result


def contestants(
    op: str, data: Array, weight_vd: Array | None, k: int, *, threads: int | None, peers: Sequence[str]
) -> list[Contestant]:
    """Set up any operation: ``data`` are hidden states where there is a weight, logits elsewhere."""
    if op in PROJECTIONS:
        assert weight_vd is not None
        return projection_contestants(op, data, weight_vd, k, threads=threads, peers=peers)
    return row_contestants(op, data, k, threads=threads, peers=peers)
