"""`sample` and `logits_sample` beside `native.reference`: the same tokens and lists, nearly the same logprobs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lmhead_native as native
from lmhead_native import Sample, reference
from sample_cases import random_options, single_options

pytestmark = pytest.mark.usefixtures("each_isa")


def compare(drawn: Sample, expected: Sample, rate: float) -> None:
    """Assert equal tokens and ids, and nearly equal log-probabilities."""
    np.testing.assert_array_equal(drawn.token, expected.token, strict=True)
    for ours, theirs in ((drawn.logprob, expected.logprob), (drawn.top_logprobs, expected.top_logprobs)):
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            np.testing.assert_allclose(ours, theirs, rtol=rate, atol=rate, strict=True)
    if expected.top_ids is not None:
        np.testing.assert_array_equal(drawn.top_ids, expected.top_ids)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("vocabulary", [11, 300])
def test_every_option_alone(vocabulary: int, dtype: str) -> None:
    logits = np.random.default_rng(1).normal(0, 2, (5, vocabulary)).astype(dtype)
    rate = 1e-5 if dtype == "f4" else 1e-12
    for options in single_options(5, vocabulary).values():
        compare(native.sample(logits, **options), reference.sample(logits, **options), rate)


@pytest.mark.parametrize("vocabulary", [11, 300])
def test_options_at_random(vocabulary: int, threads: int) -> None:
    rng = np.random.default_rng(2)
    for seed in range(60):
        logits = rng.normal(0, 2, (4, vocabulary))
        options: dict[str, Any] = random_options(seed, 4, vocabulary)
        compare(native.sample(logits, threads=threads, **options), reference.sample(logits, **options), 1e-12)


def test_from_hidden_states() -> None:
    rng = np.random.default_rng(3)
    for seed in range(20):
        hidden, weight, bias = rng.normal(0, 1, (3, 9)), rng.normal(0, 1, (300, 9)), rng.normal(0, 1, 300)
        options: dict[str, Any] = random_options(seed, 3, 300) | {"bias": bias, "softcap": 4.0, "scale": 2.0}
        drawn = native.logits_sample(hidden, weight, **options)
        compare(drawn, reference.logits_sample(hidden, weight, **options), 1e-11)
