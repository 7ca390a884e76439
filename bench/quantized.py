"""Contests on quantised heads: ``logits`` of integers beside the dequantised copy, and beside PyTorch's integers.

Knows: storages, their bytes, what they are held against. Refuses to know: bars and clocks.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np

import lmhead_native as native
from bench import answers, peers, projection
from bench.contest import OURS, Contest
from bench.roofs import Roofs, Work
from bench.setting import Setting
from bench.shapes import Array, normal
from bench.timing import Racer
from lmhead_native.cli.workload import Shape
from oracle import assert_same_bits

# The roof of the memory is not measured on less.
LEAST_BYTES = 1 << 16

# bits, elements of a group (None: a row), dtype of the scales.
STORAGES: dict[str, tuple[int, int | None, str]] = {
    "int8": (8, None, "float32"),
    "int8 g32": (8, 32, "float16"),
    "int4": (4, None, "float32"),
    "int4 g32": (4, 32, "float16"),
}


def weight_of(shape: Shape, storage: str) -> native.QuantizedWeight:
    """Make a head in one of the storages, or in the blocks of a model file, ``q8_0``."""
    floats = normal((shape.vocabulary, shape.width), "f32", seed=1)
    if storage != "q8_0":
        bits, group, scale_dtype = STORAGES[storage]
        return native.quantize(floats, bits, group, scale_dtype=scale_dtype)
    block = np.dtype([("d", "<f2"), ("qs", "i1", 32)])
    whole = floats[:, : shape.width // 32 * 32]
    planes = native.quantize(whole, 8, 32, scale_dtype="float16")
    blocks = np.empty((shape.vocabulary, shape.width // 32), block)
    blocks["d"], blocks["qs"] = planes.scales, planes.values.reshape(*blocks.shape, 32)
    return native.QuantizedWeight._from_q8_0(blocks.view(np.uint8))


def check(hidden_nd: Array, weight: native.QuantizedWeight, logits_nv: Array) -> None:
    """Assert the bits of the dequantised rows, of some ids, which are themselves checked."""
    ids = answers.spread(weight.shape[0], answers.IDS)
    rows = weight.gather(ids)
    assert_same_bits(logits_nv[:, ids], native.logits(hidden_nd, rows))
    answers.check_logits(hidden_nd, rows, logits_nv[:, ids])


def logits(setting: Setting, shape: Shape, storage: str, rows: int, *, isa: str | None = None) -> Contest:
    """Set up ``logits`` of a quantised head; without a kernel table of its own beside the peers on a dequantised copy.

    Raises
    ------
    UnavailableError
        The CPU lacks the table.
    """
    prepare = projection.switch(isa) if isa else None
    setting.weights.clear()
    weight = weight_of(shape, storage)
    hidden = normal((rows, weight.shape[1]), "f32", seed=2)
    out = np.empty((rows, shape.vocabulary), np.float32)
    call = partial(native.logits, hidden, weight, out=out, threads=setting.threads)
    racers = [Racer(OURS, call, setting.threads, prepare) if prepare else Racer(OURS, call, setting.threads)]
    if not isa:
        racers += projection.others(others(hidden, weight, setting))
    stored = weight.__lmhead_weight__.stored
    if stored.nbytes < LEAST_BYTES:
        stored = np.ones(LEAST_BYTES, np.uint8)
    work = Work(hidden.nbytes + weight.nbytes, 2 * rows * shape.vocabulary * weight.shape[1])
    return Contest(
        f"logits {storage} {shape} N={rows}{f' on {isa}' if isa else ''}",
        projection.group(shape, rows),
        racers,
        partial(check, hidden, weight),
        Roofs(stored.view(np.uint8), work, setting.threads, setting.reduced),
    )


def others(hidden_nd: Array, weight: native.QuantizedWeight, setting: Setting) -> dict[str, peers.Call]:
    """Return the calls of the peers, and of ours, on float32; PyTorch's dynamic int8 where hidden states are many."""
    floats = weight.dequantize()
    calls: dict[str, peers.Call] = dict(peers.projections(hidden_nd, floats, setting.peers))
    out = np.empty((len(hidden_nd), len(floats)), np.float32)
    calls["ours f32"] = partial(native.logits, hidden_nd, floats, out=out, threads=setting.threads)
    if "torch" in setting.peers and weight.bits == 8 and len(hidden_nd) > 1:
        calls["torch int8"] = dynamic_int8(hidden_nd, floats)
    return calls


def dynamic_int8(hidden_nd: Array, weight_vd: Array) -> Any:
    """Return the call of PyTorch's dynamically quantised linear: int8 weights, hidden states rounded to 8 bits."""
    torch = peers.module("torch")
    linear = torch.nn.Linear(weight_vd.shape[1], weight_vd.shape[0], bias=False, device="meta")
    linear.weight = torch.nn.Parameter(torch.from_numpy(weight_vd), requires_grad=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it will move to another package
        quantized = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(linear), {torch.nn.Linear})
    return partial(quantized, torch.from_numpy(hidden_nd))
