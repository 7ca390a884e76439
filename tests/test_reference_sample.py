"""The samplers of `native.reference` against values by hand: noise, edits, filters, log-probabilities, distributions.

Knows laws and numbers that need no sampler: Python's integers, 50-digit decimals, worked distributions. What is allowed
is in test_reference_allowed.py, the checking of drafts in test_reference_verify.py.
"""

from __future__ import annotations

import math
import re
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import oracle
import sample_cases
from lmhead_native import _reference_random as random
from lmhead_native import _reference_sample, reference
from sample_cases import REFUSED, N, Refused, V

INF, NAN = math.inf, math.nan
DIGITS = Context(prec=50)
P4 = np.log([0.5, 0.35, 0.1, 0.05])


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20255)


def support(logits: Any, draws: int = 400, **options: Any) -> set[int]:
    """Return which ids are ever drawn; with `draws` far above what their probabilities ask for, all that are kept."""
    rows = np.tile(np.asarray(logits, np.float64), (draws, 1))
    return set(reference.sample(rows, seed=1, **options).token.tolist())


def assert_distributed(tokens: NDArray[np.int64], p: NDArray[np.float64]) -> None:
    """Compare counts with probabilities: each within 4 standard deviations, and exactly 0 for what is impossible."""
    counts, n = np.bincount(tokens, minlength=p.size), tokens.size
    assert (np.abs(counts - n * p) <= 4 * np.sqrt(n * p * (1 - p))).all(), (counts, n * p)


# ---- noise ---------------------------------------------------------------------------------------------------------


def philox_of_integers(counter: list[int], key: list[int]) -> list[int]:
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [second >> 32 ^ c[1] ^ k[0], second & 0xFFFFFFFF, first >> 32 ^ c[3] ^ k[1], first & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


ONES = 0xFFFFFFFF
KNOWN = [
    ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ([ONES] * 4, [ONES] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN, ids=["zeros", "ones", "pi"])
def test_known_answers_of_philox(counter: list[int], key: list[int], words: str) -> None:
    c0, c1, c2, c3 = (np.uint64(c) for c in counter)
    actual = random.philox((c0, c1, c2, c3), (np.uint64(key[0]), np.uint64(key[1])))  # type: ignore[arg-type]
    assert " ".join(f"{int(word):08x}" for word in actual) == words
    assert " ".join(f"{word:08x}" for word in philox_of_integers(counter, key)) == words


def test_which_words_belong_to_an_id() -> None:
    seeds = np.array([0, 2**64 - 1, 0x0123456789ABCDEF], np.uint64)
    positions = np.array([5, 2**33 + 1, 2**64 - 2], np.uint64)
    ids = np.array([0, 1, 15, 16, 47, 63, 64, 130, 49151, 128255, 2**33 + 17])
    bits = random.noise_bits(seeds, positions, ids)
    for row, (seed, position) in enumerate(zip(seeds.tolist(), positions.tolist(), strict=True)):
        for column, v in enumerate(ids.tolist()):
            group, word = v // 64 * 16 + v % 16, v % 64 // 16
            high, low = (
                philox_of_integers([group & ONES, stream, position & ONES, position >> 32], [seed & ONES, seed >> 32])[
                    word
                ]
                for stream in (0, 1)
            )
            assert int(bits[row, column]) == high << 32 | low


def test_gumbel_noise_has_its_digits_at_both_ends(rng: np.random.Generator) -> None:
    some = rng.integers(0, 2**64, 300, dtype=np.uint64) >> rng.integers(0, 64, 300, dtype=np.uint64)
    ends = np.array([0, 1, 2**20, 2**62 - 1, 2**62, 2**63, 2**64 - 2**20, 2**64 - 2, 2**64 - 1], np.uint64)
    bits = np.concatenate([ends, some, ~some])
    for number, g in zip(bits.tolist(), random.gumbel(bits).tolist(), strict=True):
        left = DIGITS.divide(Decimal(2**64 - number) - Decimal("0.5"), Decimal(2**64))
        exact = -DIGITS.ln(-DIGITS.ln(left))
        assert abs(Decimal(g) - exact) <= Decimal("4e-16") * (abs(exact) + 1)
    assert random.gumbel(ends)[[0, -1]].tolist() == pytest.approx([65 * math.log(2), -math.log(65 * math.log(2))])


def test_uniforms_have_a_stream_of_their_own() -> None:
    seed, position = 0xFEDCBA9876543210, 2**40 + 3
    words = philox_of_integers([0, 3, position & ONES, position >> 32], [seed & ONES, seed >> 32])
    expected = ((words[0] << 32 | words[1]) + 0.5) / 2**64
    actual = random.rejection_uniforms(np.array([seed], np.uint64), np.array([position], np.uint64))
    assert actual.tolist() == [pytest.approx(expected, rel=1e-15)]


# ---- seeds and positions -------------------------------------------------------------------------------------------


def test_a_scalar_seed_is_folded_with_the_row(rng: np.random.Generator) -> None:
    logits, seed = rng.standard_normal((4, 50)), 2**63 + 12345
    folded = [seed]
    for row in range(1, 4):
        words = philox_of_integers([row, 2, 0, 0], [seed & ONES, seed >> 32])
        folded.append(words[1] << 32 | words[0])
    rows = np.tile(logits[:1], (400, 1))
    assert len(set(reference.sample(rows, seed=seed).token.tolist())) > 20
    together = reference.sample(logits, seed=seed).token
    assert together.tolist() == reference.sample(logits, seed=folded).token.tolist()
    assert together[0] == reference.sample(logits[0], seed=seed).token
    # An array of seeds is never folded, not even one of equal seeds.
    equal = reference.sample(rows, seed=[seed] * 400).token
    assert (equal == together[0]).all()


def test_a_row_knows_nothing_of_its_neighbours(rng: np.random.Generator) -> None:
    logits = rng.standard_normal((7, 40)).astype(np.float32)
    given = sample_cases.random_options(4, 7, 40) | {"seed": rng.integers(0, 2**63, 7), "top_n": 3}
    whole = reference.sample(logits, **given)
    assert whole.top_ids is not None
    for row in range(7):
        own = {}
        for name, value in given.items():
            of_each = isinstance(value, list) or np.ndim(value) > 0
            own[name] = value[row] if of_each else value
        own["seed"] = [own["seed"]]
        alone = reference.sample(logits[row : row + 1], **own)
        assert alone.token[0] == whole.token[row]
        assert alone.top_ids is not None
        assert alone.logprob is not None
        assert whole.logprob is not None
        assert alone.top_ids[0].tolist() == whole.top_ids[row].tolist()
        oracle.assert_same_bits(alone.logprob[0], whole.logprob[row])


def test_every_position_has_other_noise() -> None:
    positions = [*range(300), 2**32, 2**32 + 1, 2**64 - 1]
    tokens = reference.sample(np.zeros((len(positions), 1000)), seed=[3] * len(positions), position=positions).token
    assert len(set(tokens.tolist())) > 230


def test_no_seed_takes_one_of_the_system_and_leaves_global_states_alone() -> None:
    before = np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    assert len({int(reference.sample(np.zeros(10**4)).token) for _ in range(4)}) > 1
    assert (np.random.get_state()[1] == before).all()  # type: ignore[index]  # noqa: NPY002


def test_a_pruned_vocabulary_draws_what_the_full_one_does(rng: np.random.Generator) -> None:
    hidden, weight = rng.standard_normal((6, 8)), rng.standard_normal((300, 8))
    kept = np.sort(rng.choice(300, 90, replace=False))
    options: dict[str, Any] = {"seed": 5, "top_p": 0.9, "logit_bias": {int(kept[3]): 3.0}, "top_n": 100}
    full = reference.logits_sample(hidden, weight, allowed_ids=kept, **options)
    pruned = reference.logits_sample(hidden, weight[kept], vocab_ids=kept, **options)
    for mine, theirs in zip(
        (*full, full.top_ids, full.top_logprobs), (*pruned, pruned.top_ids, pruned.top_logprobs), strict=True
    ):
        np.testing.assert_allclose(np.asarray(mine), np.asarray(theirs), rtol=1e-13)
    assert set(full.token.tolist()) <= set(kept.tolist())


# ---- edits ---------------------------------------------------------------------------------------------------------


def edited(logits: list[float], **options: Any) -> list[float]:
    """Return processed logits by way of the processed log-probabilities at temperature 1, up to a constant."""
    found = reference.sample(logits, logprobs="processed", top_n=len(logits), seed=0, **options)
    assert found.top_ids is not None
    assert found.top_logprobs is not None
    values = np.full(len(logits), -INF)
    kept = found.top_ids >= 0
    values[found.top_ids[kept]] = found.top_logprobs[kept]
    return [float(value - values[0]) for value in values]  # id 0 has no edits in these tests


def test_penalties_by_hand() -> None:
    z = [0.0, 3.0, -3.0, 2.0, 1.0]
    # History counts for repetition alone; the output for all three.
    actual = edited(
        z,
        repetition_penalty=1.5,
        presence_penalty=0.25,
        frequency_penalty=0.5,
        history=[1, 1, 2],
        output={3: 2},
    )
    assert actual == pytest.approx([0, 3 / 1.5, -3 * 1.5, 2 / 1.5 - 2 * 0.5 - 0.25, 1])
    assert edited(z, repetition_penalty=2.0, output=[3]) == pytest.approx([0, 3, -3, 1, 1])
    assert edited(z, repetition_penalty=2.0, history={3: 0, 4: 5}) == pytest.approx([0, 3, -3, 2, 0.5])
    assert edited(z, presence_penalty=-1.0, output=[4, 4, 4], history=[3]) == pytest.approx([0, 3, -3, 2, 2])


def test_bias_comes_before_penalties() -> None:
    z = [0.0, -1.0, 1.0]
    assert edited(z, logit_bias={1: 3.0}, repetition_penalty=2.0, history=[1]) == pytest.approx([0, 1, 1])
    assert edited(z, logit_bias={1: -INF}) == pytest.approx([0, -INF, 1])
    rows = reference.sample([z] * 3, temperature=0, logit_bias=[None, {0: 9}, {2: -INF, 0: -2}]).token
    assert rows.tolist() == [2, 0, 1]


def test_edited_logits_are_rounded_once_to_the_results_dtype() -> None:
    z = np.array([1.0, 1.0], np.float32)
    tiny = {1: 2.0**-30}
    assert reference.sample(z, temperature=0, logit_bias=tiny).token == 0
    assert reference.sample(z.astype(np.float64), temperature=0, logit_bias=tiny).token == 1


def test_nothing_raises_a_token_that_is_not_allowed() -> None:
    options: dict[str, Any] = {"allowed_ids": [0, 1], "logit_bias": {2: 50.0}, "presence_penalty": -50.0, "output": [2]}
    assert support([0.0, 0.0, 0.0], allowed_ids=[0, 1], logit_bias={2: 50.0}) == {0, 1}
    assert reference.sample([0.0, 1.0, 9.0], temperature=0, **options).token == 1
    # Not even one that is infinite by overflow.
    options |= {"frequency_penalty": -1e308, "output": {2: 100}}
    assert reference.sample([0.0, 1.0, 9.0], temperature=0, **options).token == 1


# ---- greedy --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0, -0.0, 1e-45, 5e-324, 1.17e-38])
@pytest.mark.parametrize(
    ("row", "best"),
    [
        ([-INF, -3.0, -2.0, -INF], 2),
        ([-5.0, -4.0, -4.0], 1),
        ([2.0, 7.0, 7.0, 7.0], 1),
        ([-0.0, 0.0], 0),
        ([1.0, INF, INF], 1),
    ],
    ids=str,
)
def test_no_temperature_takes_the_first_maximum(temperature: float, row: list[float], best: int) -> None:
    filters: dict[str, Any] = {"top_k": 1, "top_p": 0.1, "min_p": 0.9, "typical_p": 0.1}
    for options in ({}, filters):
        assert reference.sample(row, temperature=temperature, **options).token == best


def test_temperatures_of_rows() -> None:
    rows = np.tile([1.0, 2.0, 0.0], (3, 1))
    with pytest.raises(ValueError, match=r"^temperature: expected >= 0 and finite, got nan in row 2$"):
        reference.sample(rows, temperature=[0.7, 0, NAN])
    assert reference.sample(rows, temperature=[0, 1.2e-38, 1e-45]).token.tolist() == [1, 1, 1]
    mixed = reference.sample(np.tile(rows[:1], (200, 1)), temperature=[0, 1e3] * 100, seed=2).token
    assert set(mixed[::2].tolist()) == {1}
    assert set(mixed[1::2].tolist()) == {0, 1, 2}


# ---- filters -------------------------------------------------------------------------------------------------------


def test_top_p_by_hand() -> None:
    assert support(P4, top_p=0.9) == {0, 1, 2}
    halves = np.log([0.5, 0.25, 0.125, 0.125])
    assert support(halves, top_p=0.75 - 1e-6) == {0, 1}
    assert support(halves, top_p=0.75 + 1e-6) == {0, 1, 2}
    assert support(P4, top_p=1.0) == {0, 1, 2, 3}
    assert support(P4[[3, 0, 2, 1]], top_p=0.6) == {1, 3}
    assert support([0.0] * 4, top_p=0.5) == {0, 1}  # of equals the lower ids


@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
def test_the_smallest_top_p_keeps_the_best(dtype: np.dtype[Any]) -> None:
    row = np.array([0.5, 2.0, -1.0, 1.75], dtype)
    for top_p in (1e-2, 1e-10, 1e-40, 5e-324):
        assert support(row.astype(np.float64), 50, top_p=top_p) == {1}
        assert reference.sample(row, top_p=top_p, seed=9).token == 1


def test_top_k_by_hand() -> None:
    p = np.log([0.45, *[0.55 / 9] * 9])
    assert support(p, 600, top_k=5) == {0, 1, 2, 3, 4}
    assert support(p, 600, top_k=0) == support(p, 600, top_k=-1) == support(p, 600, top_k=99) == set(range(10))
    assert support([1.0, 2.0, 2.0, 2.0], top_k=2) == {1, 2}


def test_min_p_by_hand() -> None:
    assert support(P4, min_p=0.2) == {0, 1, 2}  # 0.1 / 0.5, but for rounding
    assert support([math.log(4), math.log(2), 0.0], min_p=0.5) == {0, 1}
    assert support([1.0, 1.0, 0.999], min_p=1.0) == {0, 1}
    assert support(P4, min_p=0.0) == {0, 1, 2, 3}


def test_typical_p_by_hand() -> None:
    # H = 1.1056; surprises 0.69, 1.05, 2.30, 3.00; so the order is 1, 0, 2, 3.
    assert support(P4, typical_p=0.3) == {1}
    assert support(P4, typical_p=0.36) == {0, 1}
    assert support(P4, typical_p=0.86) == {0, 1, 2}
    assert support(P4, typical_p=1.0) == {0, 1, 2, 3}
    assert support([0.0] * 6, typical_p=0.5) == {0, 1, 2}


def test_filters_see_the_temperature_but_in_llama_cpp() -> None:
    # At temperature 2 the probabilities of P4 are 0.381, 0.319, 0.170, 0.121.
    assert support(P4, top_p=0.8, temperature=2.0) == {0, 1, 2}
    assert support(P4, top_p=0.8, temperature=2.0, order="llama.cpp") == {0, 1}
    assert support(P4, min_p=0.3, temperature=2.0) == {0, 1, 2, 3}
    assert support(P4, min_p=0.3, temperature=2.0, order="llama.cpp") == {0, 1}


def test_orders_of_the_filters() -> None:
    # top_k leaves 0.588, 0.412 of P4, so that top_p = 0.58 keeps one; without it the second is kept as well.
    assert support(P4, top_k=2, top_p=0.58) == {0}
    assert support(P4, top_p=0.58) == {0, 1}
    # min_p first leaves 0.526, 0.368, 0.105, of which top_p = 0.89 keeps two; last, top_p sees 0.85 and keeps three.
    assert support(P4, min_p=0.15, top_p=0.89, order="vllm") == {0, 1}
    assert support(P4, min_p=0.15, top_p=0.89) == {0, 1, 2}
    # typical_p first drops the best; top_p then keeps the best of what is left.
    assert support(P4, typical_p=0.3, top_p=0.4, order="llama.cpp") == {1}
    assert support(P4, typical_p=0.3, top_p=0.4) == {0}
    # min_p is relative to the best that is left: id 0 is none of it.
    assert support(P4, typical_p=0.3, min_p=0.9, order="llama.cpp") == {1}


# ---- the draw ------------------------------------------------------------------------------------------------------


def test_draws_are_distributed_as_they_should(rng: np.random.Generator) -> None:
    n = 6000
    for p in ([0.9, 0.1], [0.5, 0.35, 0.1, 0.05], rng.dirichlet(np.ones(40))):
        logits = np.tile(np.log(p) + 3.25, (n, 1))
        options: dict[str, Any] = {"logprobs": None}
        assert_distributed(reference.sample(logits, seed=17, **options).token, np.asarray(p))
        of_one = reference.sample(logits, seed=[17] * n, position=np.arange(n), **options)
        assert_distributed(of_one.token, np.asarray(p))
        hot = np.sqrt(p) / np.sqrt(p).sum()
        assert_distributed(reference.sample(logits, seed=18, temperature=2.0, **options).token, hot)
    kept = np.array([0.5, 0.35, 0.1, 0.0]) / 0.95
    assert_distributed(reference.sample(np.tile(P4, (n, 1)), seed=20, top_p=0.9).token, kept)


def test_a_thin_tail_is_reached(rng: np.random.Generator) -> None:
    n, v = 16000, 64
    logits = np.zeros(v)
    tail = rng.permutation(v)[: v // 2]
    logits[tail] = math.log(1e-2)
    tokens = reference.sample(np.tile(logits, (n, 1)), seed=6, logprobs=None).token
    assert_distributed(np.isin(tokens, tail).astype(np.int64), np.array([1 / 1.01, 1e-2 / 1.01]))
    # As far as 45 logits down: the noise of bits 0 is that large, where 24 bits of noise end at 17.
    gap = random.gumbel(np.zeros(1, np.uint64)) - random.gumbel(np.full(1, 2**63, np.uint64))
    assert gap[0] > 44


def test_a_large_common_offset_does_not_swallow_the_noise() -> None:
    plain = reference.sample(np.zeros((300, 4)), seed=3).token
    for offset in (1e8, 1e17, 1e30):
        assert reference.sample(np.full((300, 4), offset), seed=3).token.tolist() == plain.tolist()


def test_only_what_is_finite_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    row = np.full(1000, -INF)
    row[400:410] = np.linspace(-30, 0, 10)
    tokens = reference.sample(np.tile(row, (500, 1)), seed=8, temperature=4.0).token
    assert tokens.min() >= 400
    assert tokens.max() < 410
    for bits in (0, 2**64 - 1, 2**11, 2**64 - 2**11):
        constant = random.gumbel(np.full((1, 1000), bits, np.uint64))
        with monkeypatch.context() as patched:
            patched.setattr(_reference_sample, "gumbel_noise", lambda seed, position, ids, g=constant: g)
            assert reference.sample(row, seed=8).token == 409


@pytest.mark.parametrize(
    ("bad", "fact", "greedy_too"),
    [(NAN, "NaN", True), (-NAN, "NaN", True), (INF, "+inf", False), (-INF, "nothing above -inf", True)],
    ids=str,
)
def test_rows_that_cannot_be_drawn_from(bad: float, fact: str, greedy_too: bool) -> None:
    logits = np.zeros((2, 3, 4))
    logits[1, 2] = bad if bad == -INF else [0, bad, 0, 1]
    states = np.ones((2, 3, 1))
    states[1, 2] = bad
    options: dict[str, Any] = {"seed": 1}
    for temperature, raises in ((1.0, True), (0.0, greedy_too)):
        options["temperature"] = temperature
        if not raises:
            assert reference.sample(logits, **options).token[1, 2] == 1
            continue
        text = re.escape(f"expected finite logits to draw from in row (1, 2), got {fact}")
        with pytest.raises(ValueError, match=f"^logits: {text}$"):
            reference.sample(logits, **options)
        with pytest.raises(ValueError, match=r"^logits: expected finite .* in row 5, got"):
            reference.sample(logits.reshape(6, 4), **options)
        with pytest.raises(ValueError, match=f"^hidden: {text}$"):
            reference.logits_sample(states, np.ones((4, 1)), **options)


# ---- log-probabilities ---------------------------------------------------------------------------------------------


def test_raw_log_probabilities_are_those_before_edits(rng: np.random.Generator) -> None:
    logits = 2 * rng.standard_normal((6, 30)).astype(np.float32)
    options: dict[str, Any] = {"logit_bias": {3: 2.0}, "temperature": 0.5, "top_k": 7, "allowed_ids": np.arange(25)}
    found = reference.sample(logits, seed=4, top_n=5, **options)
    masked = np.where(np.arange(30) < 25, logits, -np.inf).astype(np.float32)
    expected = reference.log_softmax(masked)
    assert found.logprob is not None
    oracle.assert_same_bits(found.logprob, np.take_along_axis(expected, found.token[:, None], axis=-1)[:, 0])
    scored = reference.scores(logits, found.token, allowed_ids=np.arange(25), top_n=5)
    assert scored.logprob is not None
    oracle.assert_same_bits(found.logprob, scored.logprob)
    for mine, theirs in ((found.top_ids, scored.top_ids), (found.top_logprobs, scored.top_logprobs)):
        oracle.assert_same_bits(np.asarray(mine), np.asarray(theirs))


def test_typical_p_of_equal_logits_keeps_exactly_a_share() -> None:
    """Masses are added before they are divided, so that no share is missed by a rounding."""
    for n in (7, 232, 1000):
        found = reference.sample(np.zeros((1, n)), typical_p=0.5, seed=1, logprobs="processed").logprob
        np.testing.assert_allclose(found, -math.log(-(-n // 2)), rtol=1e-14)


def test_processed_log_probabilities_are_those_of_the_draw() -> None:
    rows = np.tile(P4, (50, 1))
    found = reference.sample(rows, seed=4, top_p=0.9, logprobs="processed", top_n=4)
    expected = np.log(np.array([0.5, 0.35, 0.1, 0.0]) / 0.95, where=[True] * 3 + [False], out=np.full(4, -INF))
    assert found.logprob is not None
    np.testing.assert_allclose(found.logprob, expected[found.token], rtol=1e-14)
    np.testing.assert_array_equal(found.top_ids, np.tile([0, 1, 2, -1], (50, 1)))
    np.testing.assert_allclose(np.asarray(found.top_logprobs), np.tile(expected, (50, 1)), rtol=1e-14)
    # llama.cpp filters at temperature 1, and draws at the given one.
    cpp = reference.sample(P4, seed=4, top_p=0.8, temperature=2.0, order="llama.cpp", logprobs="processed", top_n=3)
    hot = np.sqrt([0.5, 0.35]) / np.sqrt([0.5, 0.35]).sum()
    np.testing.assert_allclose(np.asarray(cpp.top_logprobs), [*np.log(hot), -INF], rtol=1e-14)
    greedy = reference.sample(P4, temperature=0, logprobs="processed", top_n=2)
    assert greedy.logprob == 0
    assert np.asarray(greedy.top_ids).tolist() == [0, -1]
    assert np.asarray(greedy.top_logprobs).tolist() == [0, -INF]


def test_what_is_returned() -> None:
    rows = np.zeros((2, 3, 4), np.float16)
    found = reference.sample(rows, seed=1, top_n=2)
    token, logprob = found
    assert logprob is not None
    assert (token.shape, token.dtype.name, logprob.shape, logprob.dtype.name) == ((2, 3), "int64", (2, 3), "float32")
    assert (np.asarray(found.top_ids).shape, np.asarray(found.top_ids).dtype.name) == ((2, 3, 2), "int64")
    assert (np.asarray(found.top_logprobs).shape, np.asarray(found.top_logprobs).dtype.name) == ((2, 3, 2), "float32")
    plain = reference.sample(rows, seed=1, logprobs=None)
    assert (plain.logprob, plain.top_ids, plain.top_logprobs) == (None, None, None)
    assert plain.token.tolist() == token.tolist()
    one = reference.sample(np.zeros(4))
    assert (one.token.shape, np.asarray(one.logprob).dtype.name) == ((), "float64")
    assert reference.sample(np.zeros((0, 4))).token.shape == (0,)
    with pytest.raises(ValueError, match=r"^logits: expected finite logits to draw from in row 0, got nothing"):
        reference.sample(np.zeros((2, 0)))


# ---- what is accepted and refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sample_cases.single_options(N, V))
def test_every_option_goes_with_rows_and_with_hidden_states(rng: np.random.Generator, name: str) -> None:
    options = sample_cases.single_options(N, V)[name]
    hidden, weight = rng.standard_normal((N, 12)), rng.standard_normal((V, 12))
    fused = reference.logits_sample(hidden, weight, **options)
    rows = reference.sample(reference.logits(hidden, weight), **options)
    for mine, theirs in zip(
        (*fused, fused.top_ids, fused.top_logprobs), (*rows, rows.top_ids, rows.top_logprobs), strict=True
    ):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            oracle.assert_same_bits(np.asarray(mine), np.asarray(theirs))
    assert ((fused.token >= 0) & (fused.token < V)).all()


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.message)
def test_refusals(case: Refused) -> None:
    with pytest.raises(case.error, match=f"^{re.escape(case.message)}") as caught:
        reference.sample(np.zeros((N, V), np.float32), **case.options)
    assert type(caught.value) is case.error
    assert "\n" not in str(caught.value)
    with pytest.raises(case.error, match=f"^{re.escape(case.message)}"):
        reference.logits_sample(np.zeros((N, 3), np.float32), np.zeros((V, 3), np.float32), **case.options)
