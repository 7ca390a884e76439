"""The peers: NumPy, PyTorch and FAISS, each called as its fastest user would, with arrays for the results if it can.

Knows: their calls for each operation, which of them are installed. Refuses to know: clocks, ours, bars.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmhead_native.cli import peers as users
from lmhead_native.cli.optional import optional_module

Array = NDArray[Any]
Call = Callable[[], object]

PEERS = ("numpy", "torch", "faiss")
# glibc hands out memory that was freed before, page faults paid, up to this size; above it every result of a function
# without `out` costs fresh pages. `linear` has no `out`, `mm`, which is as fast, has.
RECYCLED_BYTES = 32 * 2**20
TITLES = {"numpy": "NumPy", "torch": "PyTorch", "faiss": "FAISS"}


def module(name: str) -> Any:
    """Import a peer, or return None; what it warns about at import is its own affair."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return optional_module(name)


def installed(wanted: Sequence[str] = PEERS) -> tuple[str, ...]:
    """Return those of the peers that can be imported."""
    return tuple(name for name in wanted if module(name) is not None)


def versions() -> dict[str, str | None]:
    """Return the version of each peer, None for one that is not installed."""
    found = {name: module(name) for name in PEERS}
    return {name: None if package is None else str(package.__version__) for name, package in found.items()}


@contextmanager
def peer_threads(threads: int) -> Iterator[None]:
    """Give every peer that can be told so many threads while the block runs."""
    faiss = module("faiss")
    before = 0 if faiss is None else faiss.omp_get_max_threads()
    with users.peer_threads(threads):
        if faiss is not None:
            faiss.omp_set_num_threads(threads)
        try:
            yield
        finally:
            if faiss is not None:
                faiss.omp_set_num_threads(before)


def projections(hidden_nd: Array, weight_vd: Array, names: Sequence[str]) -> dict[str, Call]:
    """Return the calls for hidden times weight: NumPy in float32 only, PyTorch in the dtype both arrays have."""
    calls: dict[str, Call] = {}
    result = len(hidden_nd), len(weight_vd)
    if "numpy" in names and weight_vd.dtype == np.float32:
        calls["numpy"] = partial(np.matmul, hidden_nd, weight_vd.T, out=np.empty(result, np.float32))
    if "torch" in names:
        torch = module("torch")
        hidden, weight = users.as_tensor(hidden_nd), users.as_tensor(weight_vd)
        calls["torch"] = partial(torch.nn.functional.linear, hidden, weight)
        if result[0] * result[1] * weight.itemsize > RECYCLED_BYTES:
            calls["torch"] = partial(torch.mm, hidden, weight.T, out=torch.empty(result, dtype=weight.dtype))
    return calls


def searches(hidden_nd: Array, weight_vd: Array, k: int, names: Sequence[str]) -> dict[str, Call]:
    """Return the calls for the k largest inner products; FAISS has a copy of the weight in its index."""
    if "faiss" not in names or weight_vd.dtype != np.float32:
        return {}
    index = module("faiss").IndexFlatIP(weight_vd.shape[1])
    index.add(weight_vd)
    return {"faiss": partial(index.search, hidden_nd, k)}


def selections(logits_nv: Array, k: int, names: Sequence[str]) -> dict[str, Call]:
    """Return the calls for the k largest of each row."""
    calls: dict[str, Call] = {}
    if "numpy" in names:
        calls["numpy"] = partial(users.numpy_topk, logits_nv, k)
    if "torch" in names:
        torch = module("torch")
        rows = len(logits_nv)
        out = torch.empty((rows, k)), torch.empty((rows, k), dtype=torch.int64)
        calls["torch"] = partial(torch.topk, users.as_tensor(logits_nv), k, out=out)
    return calls


def row_operations(op: str, logits_nv: Array, names: Sequence[str]) -> dict[str, Call]:
    """Return the calls for ``softmax``, ``log_softmax`` or ``logsumexp`` of each row."""
    calls: dict[str, Call] = {}
    if "numpy" in names:
        calls["numpy"] = {
            "softmax": partial(users.numpy_softmax, logits_nv, np.empty_like(logits_nv)),
            "log_softmax": partial(users.numpy_log_softmax, logits_nv, np.empty_like(logits_nv)),
            "logsumexp": partial(users.numpy_logsumexp, logits_nv),
        }[op]
    if "torch" in names:
        torch = module("torch")
        shape = logits_nv.shape[:1] if op == "logsumexp" else logits_nv.shape
        # PyTorch's memory has 4 KiB pages; a view of NumPy's gives its results the huge pages that ours have.
        out = users.as_tensor(np.empty(shape, np.float32))
        calls["torch"] = partial(getattr(torch, op), users.as_tensor(logits_nv), -1, out=out)
    return calls


def norms(op: str, x_nd: Array, gain_d: Array, names: Sequence[str]) -> dict[str, Call]:
    """Return the calls for ``layer_norm`` or ``rms_norm`` with a gain."""
    calls: dict[str, Call] = {}
    if "numpy" in names:
        calls["numpy"] = partial(numpy_layer_norm if op == "layer_norm" else numpy_rms_norm, x_nd, gain_d)
    if "torch" in names:
        function = getattr(module("torch").nn.functional, op)
        gain = users.as_tensor(gain_d)
        eps = {"layer_norm": 1e-5, "rms_norm": 1e-6}[op]
        calls["torch"] = partial(function, users.as_tensor(x_nd), gain_d.shape, weight=gain, eps=eps)
    return calls


def losses(logits_nv: Array, targets_n: Array, names: Sequence[str], *, with_grad: bool) -> dict[str, Call]:
    """Return the calls for the mean cross entropy of logits, and for its gradient."""
    if "torch" not in names:
        return {}
    torch = module("torch")
    logits, targets = users.as_tensor(logits_nv), users.as_tensor(targets_n)
    loss = torch.nn.functional.cross_entropy
    if not with_grad:
        return {"torch": partial(loss, logits, targets)}
    logits = logits.detach().requires_grad_()

    def forward_and_backward() -> None:
        logits.grad = None
        loss(logits, targets).backward()

    return {"torch": forward_and_backward}


def linear_losses(
    hidden_nd: Array, weight_vd: Array, targets_n: Array, names: Sequence[str], *, with_grad: bool
) -> dict[str, Call]:
    """Return the calls for the mean cross entropy of a head: PyTorch's two functions in a row, and its fused one."""
    if "torch" not in names:
        return {}
    torch = module("torch")
    functional = torch.nn.functional
    targets = users.as_tensor(targets_n)
    # Views of NumPy's memory, which has huge pages; the gradients are PyTorch's own.
    hidden, weight = (users.as_tensor(x).detach().requires_grad_(with_grad) for x in (hidden_nd, weight_vd))

    def step(loss: Callable[[], Any]) -> None:
        hidden.grad = weight.grad = None
        if with_grad:
            loss().backward()
        else:
            loss()

    def eager() -> Any:
        return functional.cross_entropy(functional.linear(hidden, weight), targets)

    calls: dict[str, Call] = {"torch": partial(step, eager)}
    if hasattr(functional, "linear_cross_entropy"):
        calls["torch fused"] = partial(step, partial(functional.linear_cross_entropy, hidden, weight, targets))
    return calls


def token_scores(hidden_nd: Array, weight_vd: Array, targets_n: Array, names: Sequence[str]) -> dict[str, Call]:
    """Return the calls for log-probability and entropy of each token of a head."""
    if "torch" not in names:
        return {}
    torch = module("torch")
    hidden, weight, targets = (users.as_tensor(x) for x in (hidden_nd, weight_vd, targets_n))

    def scores() -> Any:
        log_p = torch.log_softmax(torch.nn.functional.linear(hidden, weight).float(), -1)
        return log_p.gather(-1, targets[:, None]), -(log_p.exp() * log_p).sum(-1)

    return {"torch": scores}


def numpy_layer_norm(x_nd: Array, gain_d: Array) -> Array:
    """Compute a layer norm as a NumPy user writes it."""
    centred = x_nd - x_nd.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    result: Array = centred / np.sqrt(variance + np.float32(1e-5)) * gain_d
    return result


def numpy_rms_norm(x_nd: Array, gain_d: Array) -> Array:
    """Compute an RMS norm as a NumPy user writes it."""
    result: Array = x_nd / np.sqrt(np.square(x_nd).mean(axis=-1, keepdims=True) + np.float32(1e-6)) * gain_d
    return result
