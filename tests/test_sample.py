"""Draws: exact tokens against a sort in NumPy, the same for every table, thread count, batch and source of logits."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
import oracle
import sample_oracle
from lmhead_native import _core
from sample_checks import check
from sample_oracle import Parameters, assert_same

pytestmark = pytest.mark.usefixtures("each_isa")

INF, NAN = np.inf, np.nan
SIZES = [1, 2, 5, 16, 63, 64, 65, 255, 256, 257, 511, 1025, 5003]
every_dtype = pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)


# ---- noise ---------------------------------------------------------------------------------------------------------


def test_philox_known_answers() -> None:
    """The vectors that the generator's authors publish."""
    for counter, key, words in [
        ((0,) * 4, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ]:
        assert _core.philox(*counter, *key) == words
        assert tuple(sample_oracle.philox(np.array([[c] for c in counter]), key)[:, 0]) == words


def test_noise_of_ids_and_rows() -> None:
    ids = np.array([0, 1, 15, 16, 17, 63, 64, 255, 256, 100_003, 2**31 + 5])
    for seed, position in [(0, 0), (2**64 - 1, 2**64 - 1), (0x123456789ABCDEF0, 5)]:
        expected = sample_oracle.noise_bits(seed, position, ids)
        assert [_core.noise_bits(seed, position, int(i)) for i in ids] == expected.tolist()
        for row in (0, 1, 77, 2**33):
            assert _core.seed_of_row(seed, row) == sample_oracle.folded(seed, row)
        assert _core.seed_of_row(seed, 0) == seed


def test_gumbel_at_both_ends() -> None:
    """Neither end of the 64 bits is rounded away."""
    assert _core.gumbel(0) == pytest.approx(65 * math.log(2), rel=1e-15)
    assert _core.gumbel(2**64 - 1) == pytest.approx(-math.log(65 * math.log(2)), rel=1e-15)
    assert _core.gumbel(1) == pytest.approx(64 * math.log(2) - math.log(1.5), rel=1e-15)
    assert _core.gumbel(2**64 - 2) == pytest.approx(-math.log(64 * math.log(2) - math.log(1.5)), rel=1e-15)
    bits = np.concatenate(
        [np.random.default_rng(1).integers(0, 2**64, 3000, np.uint64), 2 ** np.arange(64, dtype="u8")]
    )
    bits = np.concatenate([bits, ~bits, np.array([2**62 - 1, 2**62], "u8")])
    ours = np.array([_core.gumbel(int(b)) for b in bits])
    np.testing.assert_allclose(ours, sample_oracle.gumbel(bits), rtol=2e-15, atol=1e-15)


# ---- tokens --------------------------------------------------------------------------------------------------------


@every_dtype
def test_every_vocabulary(threads: int, dtype: np.dtype[Any]) -> None:
    """Each number of threads has a third of the sizes, beginning where the dtype says."""
    rng = np.random.default_rng(2)
    for vocabulary in SIZES[(threads + dtype.itemsize) % 3 :: 3]:
        rows = [
            Parameters(temperature=t, top_k=k, seed=int(rng.integers(2**63)), position=int(rng.integers(2**63)))
            for t, k in itertools.product((0.0, 0.7, 1.0, 3.0), (0, 1, 2, 40, vocabulary))
        ]
        logits = (3 * rng.standard_normal((len(rows), vocabulary))).astype(dtype)
        logits[::3, vocabulary // 2] = -INF if vocabulary > 1 else 0
        check(logits, rows, threads, top_n=min(3, vocabulary))


@every_dtype
def test_temperatures_and_sizes_of_logits(threads: int, dtype: np.dtype[Any]) -> None:
    """From what is nearly the argmax to what is nearly uniform, whatever the unit of the logits."""
    rng = np.random.default_rng(3)
    with np.errstate(over="ignore"):
        for size in (1e-3, 1.0, 1e3, 6e4) if dtype == np.float16 else (1e-30, 1e-3, 1.0, 1e3, 1e6, 1e30):
            temperatures = [1.2e-38, 1e-37, 1e-30, 1e-9, 1e-3, 0.5, 1, 1.5, 1e3, 1e9, 1e30, 1e38, 1e40, 1e300]
            rows = [Parameters(temperature=t, seed=11, position=i) for i, t in enumerate(temperatures)]
            logits = (size * rng.uniform(-1, 1, (len(rows), 700))).astype(dtype)
            logits[:, 300:] = logits[:, :1]  # ties
            check(logits, rows, threads)


def test_no_temperature_swallows_the_noise(threads: int) -> None:
    """Equal logits are drawn alike, however large they are beside the temperature."""
    logits = np.full((200, 600), 3.0, np.float32)
    logits[:, :300] = 2.0
    given: dict[str, Any] = {"seed": 5, "logprobs": None, "threads": threads}
    ids = np.arange(300, 600)
    seeds = [sample_oracle.folded(5, row) for row in range(5)]
    expected = [300 + np.argmax(sample_oracle.gumbel(sample_oracle.noise_bits(seed, 0, ids))) for seed in seeds]
    for temperature in (2e-38, 1e-30, 1e-9):
        for rows in (logits, np.float32(-1e30) / logits, logits.astype("f8") * 1e300):
            tokens = native.sample(rows, temperature=temperature, **given).token
            assert tokens.min() >= 300
            assert len(np.unique(tokens)) > 120
            np.testing.assert_array_equal(tokens[:5], expected)


def test_many_draws_of_one_row(threads: int) -> None:
    """200 positions of a long row: every draw is the argmax of all scores."""
    rng = np.random.default_rng(4)
    vocabulary, n = 3000, 200
    row = rng.standard_normal(vocabulary).astype(np.float32)
    for spread, temperature in ((0.0, 1.0), (1.0, 0.8), (10.0, 0.8), (10.0, 4.0)):
        logits = spread * row
        tokens = native.sample(
            np.broadcast_to(logits, (n, vocabulary)),
            temperature=temperature,
            seed=np.full(n, 9),
            position=np.arange(n),
            logprobs=None,
            threads=threads,
        ).token
        expected = (logits.astype(np.float64) / temperature + noise_of_positions(n, vocabulary)).argmax(axis=-1)
        np.testing.assert_array_equal(tokens, expected)


@cache
def noise_of_positions(n: int, vocabulary: int) -> NDArray[np.float64]:
    """Return the noise of positions 0 to n - 1 of seed 9."""
    ids = np.arange(vocabulary)
    return np.stack([sample_oracle.gumbel(sample_oracle.noise_bits(9, p, ids)) for p in range(n)])


def test_a_long_row_is_shared_out(threads: int) -> None:
    rng = np.random.default_rng(5)
    row = rng.standard_normal((1, 2**18 + 77)).astype(np.float32)
    check(row, [Parameters(temperature=0.9, seed=5)], threads, top_n=5)
    check(row, [Parameters(temperature=0.9, seed=5, top_k=1000)], threads)


# ---- filters -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["hf", "vllm", "llama.cpp"])
@pytest.mark.parametrize("dtype", [np.dtype(np.float32), oracle.BFLOAT16, np.dtype(np.float64)], ids=str)
def test_filters(threads: int, dtype: np.dtype[Any], order: str) -> None:
    """Every combination of a few values, on peaked and on flat rows; each number of threads has a third of them."""
    rng = np.random.default_rng(14)
    combinations = [
        Parameters(temperature=t, top_k=k, top_p=p, min_p=m, typical_p=q, order=order)
        for t, k, p, m, q in itertools.product((0.7, 1.6), (0, 30), (1.0, 0.9, 0.3), (0.0, 0.02, 1.0), (1.0, 0.8))
    ]
    for vocabulary, spread in ((40, 2.0), (700, 0.5), (3001, 4.0)):
        rows = [replace(p, seed=int(rng.integers(2**63))) for p in combinations[threads - 1 :: 3]]
        logits = (spread * rng.standard_normal((len(rows), vocabulary))).astype(dtype)
        logits[:, 7] = -INF
        check(logits, rows, threads, top_n=5)


def test_wide_nuclei(threads: int) -> None:
    """Where what is kept is most of a large row, and where the best few do not hold enough."""
    rng = np.random.default_rng(15)
    vocabulary = 20_000
    kinds = [
        Parameters(top_p=0.99),
        Parameters(top_p=0.5),
        Parameters(min_p=1e-3),
        Parameters(typical_p=0.9),
        Parameters(top_k=6000),
        Parameters(top_k=600, top_p=0.9),
        Parameters(top_k=6000, top_p=0.95, min_p=0.01, typical_p=0.97),
    ]
    rows = [replace(p, temperature=1.1, seed=i) for i, p in enumerate(kinds)]
    for spread in (0.3, 2.0):
        logits = (spread * rng.standard_normal((len(rows), vocabulary))).astype("f4")
        check(logits, rows, threads, top_n=300)
    ties = np.round(2 * rng.standard_normal((len(rows), vocabulary))).astype("f4")
    check(ties, rows, threads, top_n=300)


def test_support_of_top_p() -> None:
    """A token is kept while the better ones have less than p."""
    for p, top_p, kept in [
        ([0.5, 0.35, 0.1, 0.05], 0.9, 3),
        ([0.5, 0.25, 0.125, 0.125], 0.75 - 1e-6, 2),
        ([0.5, 0.25, 0.125, 0.125], 0.75 + 1e-6, 3),
        ([0.5, 0.25, 0.125, 0.125], 0.1, 1),
    ]:
        drawn = native.sample(np.log(np.array(p)), top_p=top_p, logprobs="processed", top_n=4, seed=0)
        np.testing.assert_array_equal(drawn.top_ids, [*range(kept), *[-1] * (4 - kept)])
        tokens = native.sample(np.broadcast_to(np.log(p), (2000, 4)), top_p=top_p, seed=1, logprobs=None).token
        np.testing.assert_array_equal(np.unique(tokens), range(kept))


@every_dtype
def test_the_smallest_top_p_is_the_argmax(threads: int, dtype: np.dtype[Any]) -> None:
    top_p = [1e-2, 1e-8, 1e-30, 1e-45, 5e-324]
    logits = np.random.default_rng(16).standard_normal((5, 900)).astype(dtype)
    logits[2] = 1
    drawn = native.sample(logits, top_p=top_p, seed=3, threads=threads)
    best = logits.astype("f8").argmax(axis=-1)
    best[0] = drawn.token[0]  # 1% may be more than one token
    np.testing.assert_array_equal(drawn.token, best)
    np.testing.assert_array_equal(native.sample(logits, min_p=1.0, seed=3).token[[0, 1, 3]], best[[0, 1, 3]])


# ---- edits ---------------------------------------------------------------------------------------------------------


@every_dtype
def test_biases_and_penalties(threads: int, dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(6)
    vocabulary = 600
    rows = []
    for i in range(24):
        bias = {int(v): float(b) for v, b in zip(rng.integers(0, vocabulary, 9), rng.normal(0, 4, 9), strict=True)}
        rows.append(
            Parameters(
                temperature=(0.0, 0.8, 1.0)[i % 3],
                top_k=(0, 20)[i % 2],
                seed=i,
                logit_bias=bias | {17: -INF} if i % 4 == 0 else bias,
                repetition_penalty=(1.0, 1.3, 0.8)[i % 3],
                presence_penalty=(0.0, 0.5)[i % 2],
                frequency_penalty=(0.0, 0.25, -0.5)[i % 3],
                history=tuple(rng.integers(0, vocabulary, i).tolist()),
                output=tuple(rng.integers(0, 40, 2 * i).tolist()),
            )
        )
    logits = (2 * rng.standard_normal((len(rows), vocabulary))).astype(dtype)
    logits[:, 17] = 9
    logits[::2, ::5] = -INF
    check(logits, rows, threads, top_n=4)


def test_histories_as_counts() -> None:
    logits = np.random.default_rng(7).standard_normal((1, 50)).astype(np.float32)
    given: dict[str, Any] = {"repetition_penalty": 1.5, "frequency_penalty": 0.3, "presence_penalty": 0.2, "seed": 3}
    for history, output in [([1, 2, 2, 40], [3, 3, 3, 1]), ([], [5]), ([49], [])]:
        lists = native.sample(logits, history=history, output=output, logprobs="processed", top_n=50, **given)
        counts = native.sample(
            logits,
            history={i: history.count(i) for i in history},
            output={i: output.count(i) for i in output} | {7: 0},
            logprobs="processed",
            top_n=50,
            **given,
        )
        for a, b in zip(lists.__getnewargs__(), counts.__getnewargs__(), strict=True):
            assert_same(a, b)


# ---- cases ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, -0.0, 1e-45, 1.17e-38])
def test_greedy(threads: int, temperature: float) -> None:
    """The first of the greatest, -inf among them, all negative, +inf at the top."""
    rows = np.array([[-INF, -3, -1, -1], [-INF, -INF, -INF, -7], [2, 5, 5, 5], [0.0, -0.0, 0.0, -1], [1, INF, 2, INF]])
    for dtype in oracle.FLOATS:
        drawn = native.sample(rows.astype(dtype), temperature=temperature, seed=1, threads=threads)
        np.testing.assert_array_equal(drawn.token, [2, 3, 1, 0, 1])
        assert drawn.logprob is not None
        np.testing.assert_allclose(drawn.logprob[:2], [np.log(1 / (2 + np.exp(-2))), 0], rtol=1e-6)
        processed = native.sample(rows.astype(dtype), temperature=temperature, seed=1, logprobs="processed")
        np.testing.assert_array_equal(processed.logprob, np.zeros(5))


def test_rows_that_cannot_be_drawn_from(threads: int) -> None:
    for dtype, temperature, top_k in itertools.product(("f4", "f8"), (0.0, 1.0), (0, 3)):
        for value, word in ((NAN, "NaN"), (-NAN, "NaN"), (INF, r"\+inf"), (-INF, "nothing above -inf")):
            for vocabulary in (1, 30, 700):
                logits = np.zeros((5, vocabulary), dtype)
                logits[3] = value if value == -INF else logits[3]
                logits[3, vocabulary // 2] = value
                if value == INF and temperature == 0:
                    native.sample(logits, temperature=0.0, threads=threads)
                    continue
                message = f"logits: expected finite logits to draw from in row 3, got {word}"
                with pytest.raises(ValueError, match=f"^{message}$"):
                    native.sample(logits, temperature=temperature, top_k=top_k, threads=threads)
                hidden, weight = np.eye(5, dtype=dtype), np.zeros((vocabulary, 5), dtype)
                weight[:, 3] = logits[3]
                if np.isfinite(value * 0.0):
                    continue
                with pytest.raises(ValueError, match=r"^hidden: expected finite logits to draw from in row "):
                    native.logits_sample(hidden, weight, temperature=temperature, top_k=top_k, threads=threads)


def test_the_first_bad_row_is_named_by_its_indices() -> None:
    logits = np.zeros((2, 3, 300), "f4")
    logits[1, 2, 5] = INF
    logits[1, 1, 299] = NAN
    with pytest.raises(ValueError, match=r"in row \(1, 1\), got NaN$"):
        native.sample(logits)
    with pytest.raises(ValueError, match=r"to draw from, got NaN$"):
        native.sample(logits[1, 1])


def test_nan_and_inf_go_before_what_else_a_row_has() -> None:
    row = np.zeros((1, 900), "f4")
    row[0, 10], row[0, 800] = INF, NAN
    some: list[dict[str, Any]] = [{}, {"top_k": 2}, {"top_p": 0.5}, {"logprobs": None}, {"logit_bias": {800: 3.0}}]
    for given in some:
        with pytest.raises(ValueError, match=r"got NaN$"):
            native.sample(row, **given)


def test_top_k_keeps_exactly_k() -> None:
    """One token with 45% of the mass and top_k = 5: five tokens, not the whole vocabulary; ties by id."""
    logits = np.log(np.array([0.45] + [0.05] * 11)).astype("f4")
    drawn = native.sample(logits, top_k=5, logprobs="processed", top_n=12, seed=0)
    np.testing.assert_array_equal(drawn.top_ids, [0, 1, 2, 3, 4, *[-1] * 7])
    tokens = native.sample(np.broadcast_to(logits, (4000, 12)), top_k=5, seed=1, logprobs=None).token
    np.testing.assert_array_equal(np.unique(tokens), range(5))


def test_only_finite_ids_are_drawn(threads: int) -> None:
    logits = np.full((2000, 1000), -INF, "f4")
    logits[:, 400:410] = 0
    for top_k in (0, 50):
        tokens = native.sample(logits, seed=12, top_k=top_k, logprobs=None, threads=threads).token
        np.testing.assert_array_equal(np.unique(tokens), range(400, 410))


def test_more_rows_than_one_block() -> None:
    rng = np.random.default_rng(13)
    hidden, weight = np.zeros((300, 4080), "f4"), np.zeros((40, 4080), "f4")
    hidden[:, 5], weight[:, 5] = 1, rng.standard_normal(40)
    drawn = native.logits_sample(hidden, weight, seed=np.arange(300) % 3, position=4)
    np.testing.assert_array_equal(drawn.token, np.resize(drawn.token[:3], 300))


def test_empty_axes(threads: int) -> None:
    for shape in [(0, 5), (2, 0, 5), (0, 0)]:
        drawn = native.sample(np.zeros(shape, "f4"), threads=threads, top_n=min(2, shape[-1]))
        assert drawn.token.shape == shape[:-1]
        assert drawn.token.dtype == np.int64
    with pytest.raises(ValueError, match="nothing above -inf"):
        native.sample(np.zeros((3, 0), "f4"), threads=threads)
    bias = np.arange(5.0)
    drawn = native.logits_sample(np.zeros((2, 0)), np.zeros((5, 0)), bias=bias, temperature=0, threads=threads)
    np.testing.assert_array_equal(drawn.token, [4, 4])
