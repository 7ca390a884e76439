"""Random numbers keyed by (seed, position, id): Philox 4x32-10, seeds of rows, Gumbel noise, uniforms.

Knows which counter belongs to which number, in NumPy's uint64, so that the bits are exact and a test can compute any of
them. Refuses to know what is drawn with them.

Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011; Gumbel noise as in
Maddison, Tarlow and Minka, "A* sampling", 2014 (arXiv:1411.0030), section 2.
"""

from __future__ import annotations

import secrets

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]

LOW_WORD, WORD_BITS = np.uint64(0xFFFFFFFF), np.uint64(32)
MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
ROUNDS = 10

# What the second word of a counter says the numbers are for.
NOISE_HIGH, NOISE_LOW, ROW_SEEDS, REJECTION = (np.uint64(stream) for stream in range(4))

# One counter gives four words: of 64 consecutive ids, ids 16 apart share one.
IDS, LANES = 64, 16


def halves(numbers: U64) -> tuple[U64, U64]:
    """Return the low and the high words of 64-bit numbers."""
    return numbers & LOW_WORD, numbers >> WORD_BITS


def joined(high: U64, low: U64) -> U64:
    """Return 64-bit numbers of two words each."""
    return (high << WORD_BITS) | low


def philox(counter: tuple[U64, U64, U64, U64], key: tuple[U64, U64]) -> tuple[U64, U64, U64, U64]:
    """Return four random words for the four words of a counter and the two of a key, all broadcast together."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        low_0, high_0 = halves(MULTIPLIERS[0] * c0)
        low_1, high_1 = halves(MULTIPLIERS[1] * c2)
        c0, c1, c2, c3 = high_1 ^ c1 ^ k0, low_1, high_0 ^ c3 ^ k1, low_0
        k0, k1 = (k0 + WEYL[0]) & LOW_WORD, (k1 + WEYL[1]) & LOW_WORD
    return c0, c1, c2, c3


def fresh_seed() -> int:
    """Return 64 bits from the operating system."""
    return secrets.randbits(64)


def row_seeds(seed: int, rows: int) -> U64:
    """Return the seeds of rows that have one in common: its own for row 0, apart for all others."""
    key = np.asarray(seed, np.uint64)
    low, high = halves(np.arange(rows, dtype=np.uint64))
    words = philox((low, ROW_SEEDS, high, np.uint64(0)), halves(key))  # type: ignore[arg-type]
    seeds = joined(words[1], words[0])
    seeds[:1] = key
    return seeds


def noise_bits(seed: U64, position: U64, ids: NDArray[np.int64]) -> U64:
    """Return the 64 bits of each id of each row, (rows, ids), for the seeds and positions of the rows."""
    group, word = ids // IDS * LANES + ids % LANES, ids % IDS // LANES
    place = halves(position[:, None])
    key = halves(seed[:, None])

    def words(stream: np.uint64) -> U64:
        four = philox((group[None].astype(np.uint64), stream, *place), key)  # type: ignore[arg-type]
        return np.choose(word[None], four)

    return joined(words(NOISE_HIGH), words(NOISE_LOW))


def gumbel(bits: U64) -> NDArray[np.float64]:
    """Return ``-log(-log(1 - w))`` for ``w = (bits + 0.5) / 2^64``: from -3.8 to 45.1, with all digits at both ends.

    The exponential -log(1 - w) is small where w is, and log1p keeps its digits; where 1 - w is small it comes from the
    complement of the bits, exactly.
    """
    w = (bits.astype(np.float64) + 0.5) * 2.0**-64
    left = ((~bits).astype(np.float64) + 0.5) * 2.0**-64
    is_small = bits < np.uint64(2**62)
    return -np.log(np.where(is_small, -np.log1p(-np.where(is_small, w, 0.5)), -np.log(left)))


def gumbel_noise(seed: U64, position: U64, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the Gumbel noise of each id of each row, (rows, ids)."""
    return gumbel(noise_bits(seed, position, ids))


def rejection_uniforms(seed: U64, position: U64) -> NDArray[np.float64]:
    """Return a number between 0 and 1 for each row, apart from its noise: what a rejection is decided by."""
    zero = np.zeros_like(seed)
    words = philox((zero, REJECTION, *halves(position)), halves(seed))  # type: ignore[arg-type]
    return (joined(words[0], words[1]).astype(np.float64) + 0.5) * 2.0**-64
