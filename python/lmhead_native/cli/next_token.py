"""How the next token is chosen from a hidden state: by the prepared head, or by NumPy for comparison.

Knows: greedy choice and sampling. Refuses to know: where the state comes from and what the token means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Choose: TypeAlias = Callable[[NDArray[np.float32], int], int]
"""From a hidden state (D,) and the position that the token will have to the token."""


@dataclass(frozen=True)
class Sampling:
    """Options of the draw, as those of `logits_sample`; temperature 0 is the greedy choice."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0


def by_head(head: Any, sampling: Sampling, threads: int | None) -> Choose:
    """Choose with an `LMHead`."""

    def greedy(hidden_d: NDArray[np.float32], position: int) -> int:
        return int(head.topk(hidden_d, 1, threads=threads).indices[0])

    def draw(hidden_d: NDArray[np.float32], position: int) -> int:
        sample = head.sample(
            hidden_d,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            seed=sampling.seed,
            position=position,
            threads=threads,
        )
        return int(sample.token)

    return draw if sampling.temperature > 0 else greedy


def by_numpy(head: Any, weight_vd: NDArray[np.float32], sampling: Sampling) -> Choose:
    """Choose as one does in NumPy: a matrix product over all logits, then argmax, or softmax, filters and a draw.

    The draws are NumPy's own: other tokens than the head's, from the same distribution.
    """
    generator = np.random.default_rng(sampling.seed)

    def logits(hidden_d: NDArray[np.float32]) -> NDArray[np.float32]:
        z: NDArray[np.float32] = weight_vd @ hidden_d
        if head.bias is not None:
            z += head.bias
        if head.softcap is not None:
            z = head.softcap * np.tanh(z / head.softcap)
        return z if head.scale is None else head.scale * z

    def greedy(hidden_d: NDArray[np.float32], position: int) -> int:
        return int(logits(hidden_d).argmax())

    def draw(hidden_d: NDArray[np.float32], position: int) -> int:
        z = logits(hidden_d).astype(np.float64) / sampling.temperature
        p = np.exp(z - z.max())
        ids = np.arange(p.size)
        if sampling.top_k or sampling.top_p < 1:
            ids = np.argsort(-p, kind="stable")[: sampling.top_k or None]
            p = p[ids]
            p = p[np.cumsum(p) - p < sampling.top_p * p.sum()]
        kept = np.flatnonzero(p >= sampling.min_p * p.max())
        upto = np.cumsum(p[kept])
        # A draw of 1 - 2^-53 times the sum may round to the sum.
        place = min(int(np.searchsorted(upto, generator.random() * upto[-1], "right")), upto.size - 1)
        return int(ids[kept[place]])

    return draw if sampling.temperature > 0 else greedy
