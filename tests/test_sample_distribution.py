"""Whether draws have the distribution they should: counts within 4 standard deviations of what is expected.

Tokens are the same on every table and thread count (test_sample.py), so these run once. Seeds are fixed: a test that
passes, passes always.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native

SIGMAS = 4.0


def draws(row: NDArray[Any], n: int, **given: Any) -> NDArray[np.int64]:
    """Return n draws of one row, at positions 0 to n - 1 of one seed."""
    logits = np.broadcast_to(row, (n, len(row)))
    return native.sample(logits, seed=np.full(n, 2024), position=np.arange(n), logprobs=None, **given).token


def assert_counts(counts: Any, p: Any, n: int) -> None:
    """Assert binomial counts of n draws."""
    p = np.asarray(p)
    deviations = (np.asarray(counts) - n * p) / np.sqrt(n * p * (1 - p))
    assert np.abs(deviations).max() <= SIGMAS, deviations


def test_two_tokens() -> None:
    """Exponential noise in place of Gumbel noise would give the second one 0.056."""
    tokens = draws(np.log(np.array([0.9, 0.1])), 40_000)
    assert_counts([np.sum(tokens == 1)], [0.1], 40_000)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_every_token_as_often_as_it_should_be(temperature: float) -> None:
    """Chi-square of a row of 60 ids, from float32 logits."""
    row = np.random.default_rng(1).normal(0, 1.5, 60).astype("f4")
    n = 60_000
    counts = np.bincount(draws(row, n, temperature=temperature), minlength=60)
    p = np.exp(row.astype("f8") / temperature)
    p /= p.sum()
    chi_square = np.sum((counts - n * p) ** 2 / (n * p))
    assert abs(chi_square - 59) <= SIGMAS * np.sqrt(2 * 59)


def test_a_tail_of_half_the_ids() -> None:
    """Half the ids at 1e-3 of the others' probability, by block of 256 ids."""
    vocabulary, n = 4096, 60_000
    row = np.zeros(vocabulary, "f4")
    row[1::2] = np.log(1e-3)
    tokens = draws(row, n)
    assert_counts([np.sum(tokens % 2 == 1)], [1e-3 / (1 + 1e-3)], n)
    assert_counts(np.bincount(tokens // 256, minlength=16), np.full(16, 1 / 16), n)


def test_gaps_beyond_the_noise_of_24_bits() -> None:
    """A million ids 18 below the first: noise of a float32 uniform ends at 16.6 and would hardly ever draw them."""
    vocabulary, n = 2**20, 1000
    row = np.full(vocabulary, -18, "f4")
    row[0] = 0
    tokens = draws(row, n)
    tail = (vocabulary - 1) * np.exp(-18)
    assert_counts([np.sum(tokens > 0)], [tail / (1 + tail)], n)
    assert len(np.unique(tokens[tokens > 0])) == np.sum(tokens > 0)


def test_top_k_renormalises() -> None:
    row = np.log(np.array([0.4, 0.3, 0.2, 0.1]))
    tokens = draws(row, 40_000, top_k=3)
    assert_counts(np.bincount(tokens, minlength=4)[:3], np.array([4, 3, 2]) / 9, 40_000)
    assert tokens.max() == 2


def test_rows_of_a_folded_seed_are_independent() -> None:
    """Neighbouring rows of one call agree as often as chance has it."""
    n = 40_000
    tokens = native.sample(np.zeros((n, 4)), seed=3, logprobs=None).token
    assert_counts([np.sum(tokens[1:] == tokens[:-1])], [0.25], n - 1)
    assert_counts(np.bincount(tokens), np.full(4, 0.25), n)
