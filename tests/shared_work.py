"""Every computing function as a call that several threads share, large enough for it; and the arrays that it gives.

Knows operands and parameters. Refuses to know which processes and threads call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lmhead_native as native
from calls import results
from oracle import BFLOAT16


def workload() -> dict[str, dict[str, Any]]:
    """Return arguments that are large enough for more than one thread, in both ways of sharing out rows."""
    rng = np.random.default_rng(11)

    def normal(*shape: int) -> NDArray[np.float32]:
        return rng.standard_normal(shape, dtype=np.float32)

    hidden, weight, logits = normal(24, 48), normal(3000, 48), normal(40, 2000)
    ids = rng.integers(0, 3000, 40)
    return {
        "logits": {"hidden": hidden, "weight": weight, "bias": normal(3000), "softcap": 30.0},
        "logits_topk": {"hidden": hidden.astype(BFLOAT16), "weight": weight.astype(BFLOAT16), "k": 20},
        "topk": {"logits": normal(300_000), "k": 50},
        "softmax": {"logits": logits.astype(np.float16), "temperature": 0.7},
        "log_softmax": {"logits": logits[:, ::-2]},
        "logsumexp": {"logits": normal(1, 70_000)},
        "layer_norm": {"x": logits, "gain": normal(2000)},
        "rms_norm": {"x": logits.astype(np.float64)},
        "cross_entropy": {"logits": logits, "targets": ids % 2000, "reduction": "none"},
        "cross_entropy_with_grad": {
            "logits": logits.astype(np.float64),
            "targets": ids % 2000,
            "lse_square_scale": 0.1,
        },
        "linear_cross_entropy": {"hidden": hidden, "weight": weight, "targets": ids[:24], "label_smoothing": 0.1},
        "linear_cross_entropy_with_grad": {
            "hidden": hidden.astype(BFLOAT16),
            "weight": weight.astype(BFLOAT16),
            "targets": ids[:24],
            "bias": normal(3000),
            "chunk_rows": 10,
        },
    }


WORK = workload()


@functools.cache
def one_head() -> native.LMHead:
    """Return a head that all threads use."""
    return native.LMHead(WORK["logits"]["weight"], screen="int8", threads=2)


def by_a_head(threads: int | None) -> tuple[NDArray[Any], ...]:
    hidden, weight = WORK["logits"]["hidden"][:2], WORK["logits"]["weight"]
    own = native.LMHead(weight.astype(BFLOAT16), screen="int8", threads=threads)
    drawn = one_head().sample(hidden, min_p=[0.9, 1e-6], seed=3, logprobs=None, threads=threads)
    lists = results(one_head().topk(hidden, 20, threads=threads)) + results(own.topk(hidden, 20, threads=threads))
    return (*lists, drawn.token)


def quantized(threads: int | None) -> tuple[NDArray[Any], ...]:
    found = native.quantize(WORK["logits"]["weight"], 4, 32, threads=threads)
    return found.values, found.scales, found.dequantize(), found.gather(np.arange(0, 3000, 7))


def logits_of_integers(threads: int | None) -> tuple[NDArray[Any], ...]:
    hidden, weight = WORK["logits"]["hidden"], native.quantize(WORK["logits"]["weight"], threads=1)
    return native.logits(hidden, weight, threads=threads), native.logits(hidden[:2], weight, threads=threads)


def arrays_of(found: tuple[Any, ...]) -> tuple[NDArray[Any], ...]:
    return tuple(array for array in found if array is not None)


def drawn(threads: int | None) -> tuple[NDArray[Any], ...]:
    hidden, weight = WORK["logits"]["hidden"], WORK["logits"]["weight"]
    rows: list[dict[str, Any]] = [
        {"logprobs": "raw", "top_n": 3},
        {
            "top_p": 0.9,
            "min_p": 1e-3,
            "logprobs": "processed",
            "history": [[1, 2, 2]] * len(hidden),
            "repetition_penalty": 1.3,
        },
        {"typical_p": 0.5, "temperature": [0.0, 0.7] * (len(hidden) // 2)},
    ]
    found = [native.logits_sample(hidden, weight, seed=3, threads=threads, **given) for given in rows]
    found.append(native.sample(native.logits(hidden, weight), top_k=20, seed=3, threads=threads))
    return tuple(array for sample in found for array in arrays_of(sample))


def scored(threads: int | None) -> tuple[NDArray[Any], ...]:
    hidden, weight = WORK["logits"]["hidden"], WORK["logits"]["weight"]
    mask = np.full((len(weight) + 31) // 32, 0x55555555, np.int32)
    found = native.logits_scores(hidden, weight, np.arange(len(hidden)), mask=mask, top_n=2, threads=threads)
    return arrays_of((found.logprob, found.logsumexp, found.rank, found.entropy, found.argmax, found.top_ids))


def verified(threads: int | None) -> tuple[NDArray[Any], ...]:
    hidden, weight = WORK["logits"]["hidden"], WORK["logits"]["weight"]
    drafts = np.arange(len(hidden) - 1)
    alike = native.verify(hidden, weight, drafts, seed=3, threads=threads)
    own = {"draft_hidden": hidden[:-1, :16], "draft_weight": weight[:, :16]}
    return arrays_of((*alike, *native.verify(hidden, weight, drafts, seed=3, threads=threads, **own)))


# Of what takes more than arrays: a screen and integers of the same weight, parameters of draws.
OBJECTS: dict[str, Callable[[int | None], tuple[NDArray[Any], ...]]] = {
    "LMHead.topk": by_a_head,
    "quantize": quantized,
    "logits of integers": logits_of_integers,
    "logits_sample": drawn,
    "logits_scores": scored,
    "verify": verified,
}
NAMES = (*WORK, *OBJECTS)


def answers(name: str, threads: int | None) -> tuple[NDArray[Any], ...]:
    if name in OBJECTS:
        return OBJECTS[name](threads)
    return results(getattr(native, name)(**WORK[name], threads=threads))
