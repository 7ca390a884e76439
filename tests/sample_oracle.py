"""Sampling in plain NumPy, row by row, with a sort: what `logits_sample` and `sample` must draw.

Knows: the order of a sampler's steps, noise by counter, float64. Refuses to know: blocks, races, threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle import assert_same_bits

Floats = NDArray[np.float64]
Array = NDArray[Any]

LEAST_TEMPERATURE = float(np.finfo(np.float32).tiny)
MASK = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)


def philox(counter: Array, key: tuple[int, int]) -> NDArray[np.uint64]:
    """Return Philox4x32-10 of counters (4, n): four words each, as uint64."""
    c = [np.asarray(word, np.uint64) for word in counter]
    low, high = key
    for _ in range(10):
        p, q = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(q >> SHIFT) ^ c[1] ^ np.uint64(low), q & MASK, (p >> SHIFT) ^ c[3] ^ np.uint64(high), p & MASK]
        low, high = (low + 0x9E3779B9) % 2**32, (high + 0xBB67AE85) % 2**32
    return np.stack(c)


def noise_bits(seed: int, position: int, ids: Array) -> NDArray[np.uint64]:
    """Return the 64 random bits of each id."""
    ids = np.asarray(ids, np.uint64)
    group, word = ids // 64 * 16 + ids % 16, (ids % 64 // 16).astype(int)
    key = (seed % 2**32, seed >> 32)
    halves = []
    for stream in (0, 1):
        counter = np.zeros((4, len(ids)), np.uint64)
        counter[0], counter[1], counter[2], counter[3] = group, stream, position % 2**32, position >> 32
        halves.append(philox(counter, key)[word, np.arange(len(ids))])
    bits: NDArray[np.uint64] = halves[0] << SHIFT | halves[1]
    return bits


def gumbel(bits: NDArray[np.uint64]) -> Floats:
    """Return -log(-log(1 - w)), w the fraction that the bits are, each end from its own side."""
    low = (bits.astype(np.float64) + 0.5) / 2.0**64
    high = ((~bits).astype(np.float64) + 0.5) / 2.0**64
    with np.errstate(divide="ignore"):
        exponential = np.where(bits < 2**62, -np.log1p(-low), -np.log(high))
    return -np.log(exponential)


def folded(seed: int, row: int) -> int:
    """Return the seed of a row of a batch that was given one seed."""
    if row == 0:
        return seed
    words = philox(np.array([[row % 2**32], [2], [row >> 32], [0]]), (seed % 2**32, seed >> 32))
    return int(words[0, 0]) | int(words[1, 0]) << 32


@dataclass
class Parameters:
    """What one row wants."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    order: str = "hf"
    seed: int = 0
    position: int = 0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    history: tuple[int, ...] = ()
    output: tuple[int, ...] = ()


@dataclass
class Drawn:
    """What a row gives."""

    token: int
    kept: NDArray[np.int64]  # best first
    raw: Floats  # log-probabilities of all ids, before edits
    processed: Floats  # of all ids; -inf where an id was not kept


def edited(z: Array, p: Parameters) -> Array:
    """Return the logits after biases and penalties, rounded once."""
    y = z.copy()
    for v in {*p.logit_bias, *p.history, *p.output}:
        if z[v] == -np.inf:
            continue
        x = float(z[v]) + p.logit_bias.get(v, 0.0)
        if v in p.history or v in p.output:
            x = x / p.repetition_penalty if x > 0 else x * p.repetition_penalty
        count = p.output.count(v)
        x -= p.frequency_penalty * count
        x -= p.presence_penalty if count else 0.0
        y[v] = x
    return y


def kept_ids(y: Array, p: Parameters) -> NDArray[np.int64]:
    """Return what the filters keep, best first."""
    wide = y.astype(np.float64)
    ids = np.argsort(-wide, kind="stable")
    temperature = 1.0 if p.order == "llama.cpp" else p.temperature
    with np.errstate(over="ignore", under="ignore"):
        mass = np.exp((wide - wide.max()) / temperature)

    def top_k(ids: Array) -> Array:
        return ids[: p.top_k] if 0 < p.top_k < len(y) else ids

    def top_p(ids: Array) -> Array:
        if p.top_p == 1:
            return ids
        before = np.concatenate([[0.0], np.cumsum(mass[ids])[:-1]])
        keep = before / mass[ids].sum() < p.top_p
        keep[0] = True
        found: Array = ids[keep]
        return found

    def min_p(ids: Array) -> Array:
        return ids[mass[ids] / mass[ids].max() >= p.min_p] if p.min_p > 0 else ids

    def typical_p(ids: Array) -> Array:
        if p.typical_p == 1:
            return ids
        q = mass[ids] / mass[ids].sum()
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(q)
            entropy = -np.where(q > 0, q * logs, 0.0).sum()
        order = np.lexsort((ids, np.abs(logs + entropy)))
        before = np.concatenate([[0.0], np.cumsum(q[order])[:-1]])
        keep = np.zeros(len(ids), bool)
        keep[order[before < p.typical_p]] = True
        return ids[keep]

    steps = {
        "hf": (top_k, top_p, min_p, typical_p),
        "vllm": (min_p, top_k, top_p, typical_p),
        "llama.cpp": (top_k, typical_p, top_p, min_p),
    }[p.order]
    for step in steps:
        ids = step(ids)
    return ids


def draw(z: Array, p: Parameters) -> Drawn:
    """Draw from one row of logits."""
    y = edited(z, p)
    assert not np.isnan(y).any()
    raw = log_softmax(z.astype(np.float64))
    if p.temperature < LEAST_TEMPERATURE:
        token = int(np.argmax(y))
        processed = np.full(len(y), -np.inf)
        processed[token] = 0
        return Drawn(token, np.array([token]), raw, processed)
    kept = kept_ids(y, p)
    kept = kept[y[kept] > -np.inf]
    wide = y[kept].astype(np.float64)
    with np.errstate(over="ignore"):
        kept_logits = (wide - wide.max()) / p.temperature
    scores = kept_logits + gumbel(noise_bits(p.seed, p.position, kept))
    token = int(min(kept[scores == scores.max()]))
    processed = np.full(len(y), -np.inf)
    processed[kept] = log_softmax(kept_logits)
    return Drawn(token, kept, raw, processed)


def log_softmax(x: Floats) -> Floats:
    """Return log-probabilities; everything NaN where there is +inf."""
    with np.errstate(invalid="ignore"):
        shifted = x - x.max()
        found: Floats = shifted - np.log(np.exp(shifted).sum())
    return found


def assert_same(actual: Any, expected: Any) -> None:
    """Assert equal bits, or that neither was asked for."""
    assert (actual is None) == (expected is None)
    if expected is not None:
        assert_same_bits(actual, expected)
