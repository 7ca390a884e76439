"""What the samplers are given in tests: options, each alone or drawn at random, and options that are refused.

Knows names and ranges, for N rows of V logits, and the sentences of the specification. Refuses to know which token
comes out.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

N, V = 5, 11
ORDERS = ("hf", "vllm", "llama.cpp")
# What a row has one of.
PER_ROW = (
    *("temperature", "top_k", "top_p", "min_p", "typical_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "seed", "position"),
)


def some_mask(rows: int, vocabulary: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return a mask for each row that allows about half, at least one of which is id 0."""
    words = np.random.default_rng(seed).integers(0, 2**32, (rows, -(-vocabulary // 32)), dtype=np.uint32)
    words[:, :1] |= 1
    return words.view(np.int32)


def some_ids(rows: int, vocabulary: int, seed: int = 0) -> list[Any]:
    """Return a list of ids for each row, some of them several times, as arrays, lists and counts."""
    rng = np.random.default_rng(seed)
    lists = [rng.integers(0, vocabulary, rng.integers(1, 9)) for _ in range(rows)]
    made: list[Any] = []
    for row, ids in enumerate(lists):
        counts = {int(i): int(n) for i, n in zip(*np.unique(ids, return_counts=True), strict=True)}
        made.append((ids, ids.tolist(), counts, ids.astype(np.uint16))[row % 4])
    return made


def single_options(rows: int, vocabulary: int) -> dict[str, dict[str, Any]]:
    """Return every option alone, by a name; all of them have a fixed seed."""
    lists = some_ids(rows, vocabulary)
    bias = {0: 2.5, vocabulary - 1: -1.25, vocabulary // 2: -math.inf}
    made: dict[str, dict[str, Any]] = {
        "none": {},
        "greedy": {"temperature": 0},
        "minus 0": {"temperature": -0.0},
        "subnormal temperature": {"temperature": 1e-45},
        "cold": {"temperature": 1e-30},
        "warm": {"temperature": 1.7},
        "temperature of each": {"temperature": [0.0, 0.3, 0.8, 1.0, 5.0][:rows]},
        "top_k": {"top_k": 3},
        "top_k off": {"top_k": -1},
        "top_k of everything": {"top_k": 10**20},
        "top_k of each": {"top_k": np.arange(rows, dtype=np.int16) - 1},
        "top_p": {"top_p": 0.7},
        "smallest top_p": {"top_p": 5e-324},
        "top_p of each": {"top_p": np.linspace(0.2, 1, rows).astype(np.float32)},
        "min_p": {"min_p": 0.1},
        "min_p of 1": {"min_p": 1.0},
        "min_p of each": {"min_p": np.arange(rows) / rows},
        "typical_p": {"typical_p": 0.5},
        "typical_p of each": {"typical_p": np.linspace(0.1, 1, rows)},
        "logit_bias": {"logit_bias": bias},
        "logit_bias of each": {
            "logit_bias": [None, {}, {3 % vocabulary: 9.0}, bias, {np.int64(1): np.float32(2)}][:rows]
        },
        "repetition": {"repetition_penalty": 1.3, "history": lists},
        "repetition of the output": {"repetition_penalty": 0.7, "output": lists},
        "presence": {"presence_penalty": 0.9, "output": lists, "history": lists[::-1]},
        "frequency": {"frequency_penalty": -0.4, "output": lists},
        "penalties of each": {
            "repetition_penalty": np.linspace(0.5, 2, rows),
            "presence_penalty": np.linspace(-1, 1, rows),
            "frequency_penalty": np.linspace(0.5, 0, rows),
            "history": lists,
            "output": lists[::-1],
        },
        "large seed": {"seed": 2**64 - 1},
        "seed of each": {"seed": np.arange(rows, dtype=np.uint64) + np.uint64(2**63)},
        "equal seeds": {"seed": [7] * rows},
        "position": {"position": 2**64 - 1},
        "position of each": {"position": list(range(rows))},
        "mask": {"mask": some_mask(rows, vocabulary)},
        "one mask": {"mask": some_mask(1, vocabulary)[0].view(np.uint32)},
        "allowed_ids": {"allowed_ids": [0, vocabulary - 1, 0]},
        "allowed_ids of each": {"allowed_ids": [np.arange(row % vocabulary + 1) for row in range(rows)]},
        "processed": {"logprobs": "processed", "top_p": 0.8, "temperature": 0.6},
        "no logprobs": {"logprobs": None},
        "top_n": {"top_n": 4},
        "top_n processed": {"top_n": vocabulary, "logprobs": "processed", "top_k": 3},
        "top_n under a mask": {"top_n": vocabulary, "mask": some_mask(rows, vocabulary)},
    }
    for order in ORDERS:
        filters = {"temperature": 0.7, "top_k": 7, "top_p": 0.8, "min_p": 0.05, "typical_p": 0.9}
        made[f"order {order}"] = {"order": order, **filters}
    return {name: {"seed": 11} | options for name, options in made.items()}


def random_options(seed: int, rows: int, vocabulary: int) -> dict[str, Any]:
    """Return a random set of random options, one number for all or one for each row."""
    rng = np.random.default_rng([seed, rows, vocabulary])

    def one_or_each(draw: Any) -> Any:
        return draw(rows) if rng.random() < 0.5 else draw(1)[0]

    lists = some_ids(rows, vocabulary, seed)
    drawn: dict[str, Any] = {
        "temperature": one_or_each(lambda n: rng.choice([0.0, 0.3, 0.9, 1.0, 2.0], n)),
        "top_k": one_or_each(lambda n: rng.integers(-1, vocabulary + 2, n)),
        "top_p": one_or_each(lambda n: 1 - 0.8 * rng.random(n)),
        "min_p": one_or_each(lambda n: 0.2 * rng.random(n)),
        "typical_p": one_or_each(lambda n: 1 - 0.8 * rng.random(n)),
        "logit_bias": [{int(rng.integers(vocabulary)): float(rng.integers(-8, 8) / 4)} for _ in range(rows)],
        "repetition_penalty": one_or_each(lambda n: 0.5 + rng.random(n)),
        "presence_penalty": one_or_each(lambda n: rng.standard_normal(n)),
        "frequency_penalty": one_or_each(lambda n: rng.standard_normal(n)),
        "history": lists[::-1],
        "mask": some_mask(rows, vocabulary, seed),
        "position": one_or_each(lambda n: rng.integers(0, 2**64, n, dtype=np.uint64)),
    }
    chosen = {name: value for name, value in drawn.items() if rng.random() < 0.6}
    return chosen | {
        "output": lists,
        "seed": one_or_each(lambda n: rng.integers(0, 2**64, n, dtype=np.uint64)),
        "order": ORDERS[seed % 3],
        "logprobs": ("raw", "processed")[seed // 3 % 2],
        "top_n": int(rng.integers(0, vocabulary + 1)),
    }


class Refused(NamedTuple):
    """Options that are refused for N rows of V logits, and what is said of them: the beginning of the sentence."""

    options: dict[str, Any]
    error: type[Exception]
    message: str


def _of_row_2(good: Any, bad: Any) -> list[Any]:
    return [good, good, bad, good, good]


REFUSED: list[Refused] = [
    Refused({"temperature": -0.1}, ValueError, "temperature: expected >= 0 and finite, got -0.1"),
    Refused({"temperature": math.inf}, ValueError, "temperature: expected >= 0 and finite, got inf"),
    Refused({"temperature": 10**400}, ValueError, "temperature: expected >= 0 and finite, got an integer beyond"),
    Refused(
        {"temperature": [0.7, 0, math.nan, 1, 1]},
        ValueError,
        "temperature: expected >= 0 and finite, got nan in row 2",
    ),
    Refused(
        {"temperature": [1.0] * 4}, ValueError, "temperature: expected a number or shape (5,), one for each row of"
    ),
    Refused({"temperature": "1"}, TypeError, "temperature: expected a real number or one for each row, got '1'"),
    Refused({"temperature": True}, TypeError, "temperature: expected a real number or one for each row, got True"),
    Refused({"temperature": None}, TypeError, "temperature: expected a real number or one for each row, got None"),
    Refused({"temperature": np.ones(5, complex)}, TypeError, "temperature: expected a real number"),
    Refused({"top_k": -2}, ValueError, "top_k: expected an integer >= -1, got -2"),
    Refused({"top_k": _of_row_2(0, -3)}, ValueError, "top_k: expected an integer >= -1, got -3 in row 2"),
    Refused({"top_k": 3.0}, TypeError, "top_k: expected an integer >= -1, got 3.0"),
    Refused(
        {"top_k": np.ones(5)}, TypeError, "top_k: expected an integer >= -1, or one for each row, got dtype float64"
    ),
    Refused({"top_k": True}, TypeError, "top_k: expected an integer >= -1, got True"),
    Refused({"top_p": 0}, ValueError, "top_p: expected > 0 and <= 1, got 0.0"),
    Refused({"top_p": 1.5}, ValueError, "top_p: expected > 0 and <= 1, got 1.5"),
    Refused({"top_p": _of_row_2(1, math.nan)}, ValueError, "top_p: expected > 0 and <= 1, got nan in row 2"),
    Refused({"min_p": -0.5}, ValueError, "min_p: expected >= 0 and <= 1, got -0.5"),
    Refused({"min_p": _of_row_2(0, 2)}, ValueError, "min_p: expected >= 0 and <= 1, got 2.0 in row 2"),
    Refused({"typical_p": 0.0}, ValueError, "typical_p: expected > 0 and <= 1, got 0.0"),
    Refused({"logit_bias": 1.0}, TypeError, "logit_bias: expected a dictionary, or a list of them for the rows, got"),
    Refused({"logit_bias": [{}] * 4}, ValueError, "logit_bias: expected a list of 5, one for each row of"),
    Refused({"logit_bias": [0.5] * 5}, TypeError, "logit_bias: expected a dictionary of ids, got float in row 0"),
    Refused({"logit_bias": {V: 1.0}}, IndexError, "logit_bias: expected an id from 0 to V - 1 = 10, got 11"),
    Refused(
        {"logit_bias": _of_row_2({}, {-1: 1.0})},
        IndexError,
        "logit_bias: expected an id from 0 to V - 1 = 10, got -1 in row 2",
    ),
    Refused({"logit_bias": {"a": 1.0}}, TypeError, "logit_bias: expected an integer as key, got 'a'"),
    Refused(
        {"logit_bias": {1: math.nan}}, ValueError, "logit_bias: expected a finite number or -inf, got nan for id 1"
    ),
    Refused(
        {"logit_bias": {1: math.inf}}, ValueError, "logit_bias: expected a finite number or -inf, got inf for id 1"
    ),
    Refused({"logit_bias": {1: None}}, TypeError, "logit_bias: expected a finite number or -inf, got None for id 1"),
    Refused({"repetition_penalty": 0}, ValueError, "repetition_penalty: expected > 0 and finite, got 0.0"),
    Refused({"presence_penalty": math.inf}, ValueError, "presence_penalty: expected a finite number, got inf"),
    Refused(
        {"frequency_penalty": _of_row_2(0, math.nan)},
        ValueError,
        "frequency_penalty: expected a finite number, got nan in row 2",
    ),
    Refused(
        {"presence_penalty": _of_row_2(0, 0.5), "history": [[1]] * 5},
        ValueError,
        "presence_penalty: expected 0 without output, got 0.5 in row 2; pass output, the ids that were generated",
    ),
    Refused(
        {"presence_penalty": 0.5, "output": [[1], [2], None, [3], None]},
        ValueError,
        "presence_penalty: expected 0 without output, got 0.5 in row 2; pass output, the ids that were generated",
    ),
    Refused(
        {"frequency_penalty": 1}, ValueError, "frequency_penalty: expected 0 without output, got 1.0 in row 0; pass"
    ),
    Refused({"history": [1, 2, 3]}, ValueError, "history: expected a list of 5, one for each row of"),
    Refused({"history": [[1]] * 4}, ValueError, "history: expected a list of 5, one for each row of"),
    Refused({"history": [[0.5]] * 5}, TypeError, "history: expected an integer dtype, got float64 of shape (1,)"),
    Refused(
        {"history": _of_row_2([], [1, 3, V])},
        IndexError,
        "history: expected an id from 0 to V - 1 = 10, got 11 at position 2 in row 2",
    ),
    Refused(
        {"output": _of_row_2([], {3: -1})},
        ValueError,
        "output: expected an integer of at least 0 as count of an id, got -1",
    ),
    Refused(
        {"output": _of_row_2([], {V: 1})}, IndexError, "output: expected an id from 0 to V - 1 = 10, got 11 in row 2"
    ),
    Refused({"seed": -1}, ValueError, "seed: expected an integer from 0 to 2^64 - 1, got -1"),
    Refused({"seed": 2**64}, ValueError, "seed: expected an integer from 0 to 2^64 - 1, got 18446744073709551616"),
    Refused({"seed": _of_row_2(0, -7)}, ValueError, "seed: expected an integer from 0 to 2^64 - 1, got -7 in row 2"),
    Refused({"seed": 1.0}, TypeError, "seed: expected an integer from 0 to 2^64 - 1, got 1.0"),
    Refused({"position": -1}, ValueError, "position: expected an integer from 0 to 2^64 - 1, got -1"),
    Refused({"position": None}, TypeError, "position: expected an integer from 0 to 2^64 - 1, got None"),
    Refused({"order": "HF"}, ValueError, "order: expected 'hf', 'vllm' or 'llama.cpp', got 'HF'"),
    Refused({"order": None}, TypeError, "order: expected 'hf', 'vllm' or 'llama.cpp', got None"),
    Refused({"logprobs": "all"}, ValueError, "logprobs: expected 'raw' or 'processed', got 'all'"),
    Refused({"top_n": V + 1}, ValueError, "top_n: expected an integer from 0 to V = 11, got 12"),
    Refused({"top_n": 2, "logprobs": None}, ValueError, "top_n: expected 0 as logprobs is None, got 2"),
    Refused({"threads": 0}, ValueError, "threads: expected"),
    Refused({"mask": np.zeros((5, 0), np.int32)}, ValueError, "mask: expected shape (1,) or (5, 1) for V = 11 and the"),
    Refused({"mask": np.zeros((4, 1), np.int32)}, ValueError, "mask: expected shape (1,) or (5, 1) for V = 11 and the"),
    Refused({"mask": np.zeros(1, np.int64)}, TypeError, "mask: expected dtype int32 or uint32, got int64"),
    Refused({"mask": np.ones(11, bool)}, TypeError, "mask: expected dtype int32 or uint32, got bool"),
    Refused(
        {"mask": np.array([[1]] * 3 + [[0], [1]], np.int32)},
        ValueError,
        "mask: expected an allowed id in row 3, got none",
    ),
    Refused({"allowed_ids": []}, ValueError, "allowed_ids: expected an allowed id in row 0, got none"),
    Refused({"allowed_ids": [[1]] * 4}, ValueError, "allowed_ids: expected a list of 5, one for each row of"),
    Refused(
        {"allowed_ids": [1, V]}, IndexError, "allowed_ids: expected an id from 0 to V - 1 = 10, got 11 at position 1"
    ),
    Refused(
        {"allowed_ids": _of_row_2([1], [0, -1])},
        IndexError,
        "allowed_ids: expected an id from 0 to V - 1 = 10, got -1 at position 1 in row 2",
    ),
    Refused({"allowed_ids": [0.5]}, TypeError, "allowed_ids: expected an integer dtype, got float64 of shape (1,)"),
    Refused({"allowed_ids": [1], "mask": np.ones(1, np.int32)}, ValueError, "allowed_ids: expected None beside a mask"),
]
