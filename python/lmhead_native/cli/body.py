"""The transformer that feeds the head: the layers of the llama architecture on float32 arrays.

Knows: attention with a cache, rotary positions, the feed-forward part. Refuses to know: files (`body_file`), tokens'
texts, the head, how the next token is chosen.

Matrix products are NumPy's; the norms and the softmax are this package's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmhead_native import _core, rms_norm, softmax

Floats = NDArray[np.float32]

# A prompt's attention is computed for so many positions at a time: at 8192 positions and 9 heads their weights are
# 72 MiB, all of a prompt's 2.3 GiB.
QUERIES_AT_ONCE = 256


@dataclass(frozen=True)
class Config:
    """The numbers of a model. Several query heads share a key head; of a head's width the first part is rotated."""

    layers: int
    width: int
    inner_width: int
    heads: int
    key_heads: int
    head_width: int
    rotated_width: int
    rope_base: float
    eps: float
    context: int


class Layer(NamedTuple):
    """The weights of a layer; matrices as (out, in), those that meet the same states as one."""

    attention_gain: Floats
    query_key_value: Floats
    attention_output: Floats
    inner_gain: Floats
    gate_up: Floats
    down: Floats


class Cache:
    """Keys and values of the positions so far, of every layer, with room for `capacity` positions."""

    def __init__(self, config: Config, capacity: int) -> None:
        shape = (config.layers, config.key_heads, capacity, config.head_width)
        self.keys = np.empty(shape, np.float32)
        self.values = np.empty(shape, np.float32)
        self.length = 0


@dataclass(frozen=True, eq=False)
class Body:
    """A model without its head.

    Attributes
    ----------
    config : Config
        Its numbers.
    embedding : weight of shape (V, D)
        A row for each token, as the file stores it.
    layers : sequence of Layer
        Its weights.
    final_gain : (D,) array
        Of the norm before the head.
    """

    config: Config
    embedding: Any = field(repr=False)
    layers: Sequence[Layer] = field(repr=False)
    final_gain: Floats = field(repr=False)

    def __call__(self, ids: Sequence[int], cache: Cache) -> Floats:
        """Take in the next tokens of a sequence: all of a prompt at once, or one token.

        Parameters
        ----------
        ids : sequence of int
            T tokens.
        cache : Cache
            Of the tokens before them; keys and values of these are added.

        Returns
        -------
        (T, D) array
            Hidden states after the final norm.

        Raises
        ------
        ValueError
            The cache has no room for them.
        """
        first, last = cache.length, cache.length + len(ids)
        if last > cache.keys.shape[2]:
            raise ValueError(f"cache: expected room for {last} positions, got {cache.keys.shape[2]}")
        eps, phases = self.config.eps, self._phases(first, last)
        x_td: Floats = _core.gather(self.embedding, np.asarray(ids, np.int64))
        with np.errstate(over="ignore"):  # exp of a large -gate is inf, and gate / inf the right 0
            for layer, keys, values in zip(self.layers, cache.keys, cache.values, strict=True):
                mixed = rms_norm(x_td, layer.attention_gain, eps=eps) @ layer.query_key_value.T
                queries = self._split(mixed, phases, keys[:, first:last], values[:, first:last])
                x_td = x_td + self._attend(queries, keys[:, :last], values[:, :last]) @ layer.attention_output.T
                gate, up = np.split(rms_norm(x_td, layer.inner_gain, eps=eps) @ layer.gate_up.T, 2, axis=1)
                x_td = x_td + (gate / (1 + np.exp(-gate)) * up) @ layer.down.T
        cache.length = last
        return rms_norm(x_td, self.final_gain, eps=eps)

    def _phases(self, first: int, last: int) -> NDArray[np.complex64]:
        """Return exp(i angle) of positions, (T, 1, rotated / 2): pair j turns by base^(-2j / rotated) a position."""
        rotated = self.config.rotated_width
        turns = self.config.rope_base ** (-np.arange(0, rotated, 2) / rotated)
        angles = np.outer(np.arange(first, last), turns)[:, np.newaxis]
        phases: NDArray[np.complex64] = np.exp(1j * angles).astype(np.complex64)
        return phases

    def _split(self, mixed: Floats, phases: NDArray[np.complex64], keys: Floats, values: Floats) -> Floats:
        """Store the keys and values of T positions, and return their queries (T, heads, head width), scaled."""
        config = self.config
        heads = mixed.reshape(len(mixed), -1, config.head_width)
        # GGUF files hold the rows of queries and keys in such an order that neighbours are rotated together: as the
        # parts of a complex number. (Hugging Face's models rotate element j with j + rotated / 2.)
        turning = heads[:, : config.heads + config.key_heads, : config.rotated_width].view(np.complex64)
        turning *= phases
        queries, new_keys, new_values = np.split(heads, [config.heads, config.heads + config.key_heads], axis=1)
        keys[:], values[:] = new_keys.swapaxes(0, 1), new_values.swapaxes(0, 1)
        return queries * np.float32(config.head_width**-0.5)

    def _attend(self, queries: Floats, keys: Floats, values: Floats) -> Floats:
        """Let the last T positions look back: (T, heads * head width) from keys and values (key heads, S, head width).

        Query head h looks at key head h // (heads / key heads).
        """
        n, before = len(queries), keys.shape[1] - len(queries)
        key_heads, _, head_width = keys.shape
        seen_by = queries.reshape(n, key_heads, -1, head_width).transpose(1, 2, 0, 3)  # key head, group, T, width
        found = np.empty((n, key_heads, seen_by.shape[1], head_width), np.float32)
        for first in range(0, n, QUERIES_AT_ONCE):
            last = min(first + QUERIES_AT_ONCE, n)
            end = before + last
            scores = seen_by[:, :, first:last] @ keys[:, np.newaxis, :end].swapaxes(2, 3)  # key head, group, T, S
            if last - first > 1:
                scores[..., np.arange(end) > np.arange(before + first, end)[:, np.newaxis]] = -np.inf
            looks = softmax(scores, out=scores) @ values[:, np.newaxis, :end]
            found[first:last] = looks.transpose(2, 0, 1, 3)
        return found.reshape(n, -1)
