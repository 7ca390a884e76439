"""What the sampler's parameters may be, by row and for all rows, and what it says of others."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import lmhead_native as native
from lmhead_native import Sample
from sample_oracle import assert_same

LOGITS = np.random.default_rng(1).standard_normal((4, 11)).astype("f4")
HEAD = np.random.default_rng(2).standard_normal((4, 5)).astype("f4"), np.eye(11, 5, dtype="f4")
SHAPE = r", or shape \(4,\) with one for each row of logits of shape \(4, 11\)"

WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"temperature": -1}, ValueError, r"^temperature: expected >= 0 and finite, got -1\.0$"),
    ({"temperature": np.inf}, ValueError, r"^temperature: expected >= 0 and finite, got inf$"),
    ({"temperature": [0.7, 0, np.nan, 1]}, ValueError, r"^temperature: expected >= 0 and finite, got nan in row 2$"),
    ({"temperature": [0.7, 0]}, ValueError, rf"^temperature: expected >= 0 and finite{SHAPE}, got shape \(2,\)$"),
    ({"temperature": "hot"}, TypeError, r"^temperature: expected >= 0 and finite, got 'hot'$"),
    ({"temperature": None}, TypeError, r"^temperature: expected >= 0 and finite, got None$"),
    ({"temperature": True}, TypeError, r"^temperature: expected >= 0 and finite, got True$"),
    ({"top_k": -2}, ValueError, r"^top_k: expected an integer >= -1, got -2$"),
    ({"top_k": [1, 2, -(2**70), 3]}, ValueError, r"^top_k: expected .*, got an integer below -2\^63 in row 2$"),
    ({"top_k": np.array([1, 2, -3, 3], "i1")}, ValueError, r"^top_k: expected .*, got -3 in row 2$"),
    ({"top_k": 1.0}, TypeError, r"^top_k: expected an integer >= -1, got 1\.0$"),
    ({"top_k": True}, TypeError, r"^top_k: expected an integer >= -1, got True$"),
    ({"top_k": np.ones(4)}, TypeError, rf"^top_k: expected an integer >= -1{SHAPE}, got dtype float64$"),
    ({"top_k": np.ones((4, 1), int)}, ValueError, rf"^top_k: expected .*{SHAPE}, got shape \(4, 1\)$"),
    ({"top_p": 0}, ValueError, r"^top_p: expected > 0 and <= 1, got 0\.0$"),
    ({"top_p": [1, 0.5, 1.0001, 1]}, ValueError, r"^top_p: expected > 0 and <= 1, got 1\.0001 in row 2$"),
    ({"min_p": -0.1}, ValueError, r"^min_p: expected >= 0 and <= 1, got -0\.1$"),
    ({"min_p": np.nan}, ValueError, r"^min_p: expected >= 0 and <= 1, got nan$"),
    ({"typical_p": 0}, ValueError, r"^typical_p: expected > 0 and <= 1, got 0\.0$"),
    ({"seed": -1}, ValueError, r"^seed: expected an integer from 0 to 2\^64 - 1, got -1$"),
    ({"seed": 2**64}, ValueError, r"^seed: expected .*, got an integer above 2\^64 - 1$"),
    ({"seed": [1, 2, 3, 2**64]}, ValueError, r"^seed: expected .*, got an integer above 2\^64 - 1 in row 3$"),
    ({"seed": [1, 2, 3, 0.5]}, TypeError, r"^seed: expected an integer from 0 to 2\^64 - 1, got 0\.5$"),
    ({"seed": [1, 2, 3]}, ValueError, rf"^seed: expected .*{SHAPE}, got shape \(3,\)$"),
    ({"seed": 1.0}, TypeError, r"^seed: expected an integer from 0 to 2\^64 - 1, got 1\.0$"),
    ({"position": -1}, ValueError, r"^position: expected an integer from 0 to 2\^64 - 1, got -1$"),
    ({"position": None}, TypeError, r"^position: expected an integer from 0 to 2\^64 - 1, got None$"),
    ({"order": "HF"}, ValueError, r"^order: expected 'hf', 'vllm' or 'llama\.cpp', got 'HF'$"),
    ({"order": None}, TypeError, r"^order: expected 'hf', 'vllm' or 'llama\.cpp', got None$"),
    ({"logprobs": "cooked"}, ValueError, r"^logprobs: expected 'raw', 'processed' or None, got 'cooked'$"),
    ({"logprobs": True}, TypeError, r"^logprobs: expected 'raw', 'processed' or None, got True$"),
    ({"top_n": -1}, ValueError, r"^top_n: expected an integer from 0 to V = 11, got -1$"),
    ({"top_n": 12}, ValueError, r"^top_n: expected an integer from 0 to V = 11, got 12$"),
    ({"top_n": 1, "logprobs": None}, ValueError, r"^top_n: expected 0 as logprobs is None, got 1$"),
    ({"threads": 0}, ValueError, r"^threads: expected "),
    ({"repetition_penalty": 0}, ValueError, r"^repetition_penalty: expected > 0 and finite, got 0\.0$"),
    ({"presence_penalty": np.inf, "output": [[]] * 4}, ValueError, r"^presence_penalty: expected a finite number, got"),
    (
        {"presence_penalty": 0.5},
        ValueError,
        r"^presence_penalty: expected 0 without output, got 0\.5 in row 0; pass output, the ids that were generated$",
    ),
    (
        {"frequency_penalty": [0, 0, 0.5, 0], "output": [[1], [2], None, [3]]},
        ValueError,
        r"^frequency_penalty: expected 0 without output, got 0\.5 in row 2; ",
    ),
    ({"history": [1, 2, 3]}, ValueError, r"^history: expected an array of ids or \{id: count\}, one a row for the 4 "),
    ({"history": [[1], [2]]}, ValueError, r"^history: expected .*, got a list of 2 items$"),
    ({"history": 5}, TypeError, r"^history: expected .*, got a int$"),
    (
        {"history": [[1], [2], [3, 11], []]},
        IndexError,
        r"^history: expected an id from 0 to V - 1 = 10, got 11 at position 1 in row 2$",
    ),
    ({"history": [[1], [-1], [3], []]}, IndexError, r"^history: expected an id .*, got -1 at position 0 in row 1$"),
    (
        {"output": [{}, {}, {3: 1}, {11: 1}]},
        IndexError,
        r"^output: expected an id from 0 to V - 1 = 10, got 11 in row 3$",
    ),
    ({"output": [{}, {}, {3: -1}, {}]}, ValueError, r"^output: expected an integer of at least 0, got -1$"),
    (
        {"output": [[0.5], [], [], []]},
        TypeError,
        r"^output: expected a one-dimensional array of ids.*, got float64 of shape",
    ),
    ({"output": np.zeros((4, 2, 2), int)}, ValueError, r"^output: expected a one-dimensional array of ids"),
    ({"logit_bias": {11: 1.0}}, IndexError, r"^logit_bias: expected an id from 0 to V - 1 = 10, got 11 in row 0$"),
    ({"logit_bias": {1.5: 1.0}}, TypeError, r"^logit_bias: expected an id from 0 to V - 1 = 10, got 1\.5$"),
    (
        {"logit_bias": [None, {1: np.nan}, None, None]},
        ValueError,
        r"^logit_bias: expected a finite number or -inf, got nan for id 1 in row 1$",
    ),
    (
        {"logit_bias": {1: np.inf}},
        ValueError,
        r"^logit_bias: expected a finite number or -inf, got inf for id 1 in row 0$",
    ),
    ({"logit_bias": [{1: 2.0}]}, ValueError, r"^logit_bias: expected \{id: number\}, or one a row for the 4 rows of"),
    ({"logit_bias": [1, 2, 3, 4]}, TypeError, r"^logit_bias: expected \{id: number\}, got a int in row 0$"),
    (
        {"logit_bias": "x"},
        TypeError,
        r"^logit_bias: expected \{id: number\}, or one a row for the 4 rows of logits of shape",
    ),
]


@pytest.mark.parametrize(("given", "error", "message"), WRONG, ids=[str(w[0])[:60] for w in WRONG])
def test_wrong_parameters(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        native.sample(LOGITS, **given)
    with pytest.raises(error, match=message.replace("logits", "hidden").replace(r"\(4, 11\)", r"\(4, 5\)")):
        native.logits_sample(*HEAD, **given)


def test_rows_of_several_axes_are_named_by_all_of_them() -> None:
    logits = LOGITS.reshape(2, 2, 11)
    with pytest.raises(ValueError, match=r"got nan in row \(1, 0\)$"):
        native.sample(logits, temperature=np.array([[1, 1], [np.nan, 1]]))
    with pytest.raises(IndexError, match=r"got 12 at position 1 in row \(1, 0\)$"):
        native.sample(logits, history=[[1], [2], [3, 12], []])
    with pytest.raises(ValueError, match=r"a list of another shape$"):
        native.sample(logits, seed=[[1, 2**64]])


def test_one_row_needs_no_list_of_rows() -> None:
    given: dict[str, Any] = {"repetition_penalty": 3.0, "seed": 4, "logprobs": "processed", "top_n": 11}
    expected = native.sample(LOGITS[0], history=[1, 2], **given)
    assert expected.top_logprobs is not None
    for history in (np.array([1, 2], "u1"), (2, 1), {1: 1, 2: 5}, [[1, 2]], [np.array([1, 2])], [{1: 2, 2: 1}]):
        for logits in (LOGITS[0], LOGITS[:1], LOGITS[:1, None]):
            drawn = native.sample(logits, history=history, **given)
            assert drawn.top_logprobs is not None
            assert_same(drawn.top_logprobs.reshape(-1), expected.top_logprobs)
    empty: list[Any] = [[], [[]], [None], {}, np.array([], "i4")]
    for nothing in empty:
        drawn = native.sample(LOGITS[0], history=nothing, **given)
        plain = native.sample(LOGITS[0], **given)
        assert_same(drawn.top_logprobs, plain.top_logprobs)


def test_numbers_of_every_kind() -> None:
    expected = native.sample(LOGITS, temperature=0.5, top_k=3, seed=[1, 2, 3, 2**64 - 1], position=[0, 1, 2, 2**63])
    kinds: list[tuple[Any, ...]] = [
        (np.float32(0.5), np.int8(3), np.array([1, 2, 3, 2**64 - 1], "u8"), np.array([0, 1, 2, 2**63], "u8")),
        ([0.5] * 4, [3, 3, 3, 3], (1, 2, 3, 2**64 - 1), [0, 1, 2, 2**63]),
        (
            np.full(4, 0.5, "f2"),
            np.full(4, 3, ">i2"),
            np.array([1, 2, 3, 2**64 - 1], ">u8"),
            [0, 1, 2, np.uint64(2**63)],
        ),
        (np.array(0.5), np.array(3), [1, 2, 3, 2**64 - 1], [0, 1, 2, 2**63]),
    ]
    for temperature, top_k, seed, position in kinds:
        drawn = native.sample(LOGITS, temperature=temperature, top_k=top_k, seed=seed, position=position)
        np.testing.assert_array_equal(drawn.token, expected.token)
    for off in (0, -1, 11, 12, 2**70):
        wide = native.sample(LOGITS, top_k=off, seed=3)
        np.testing.assert_array_equal(wide.token, native.sample(LOGITS, seed=3).token)


def test_a_seed_for_all_rows_is_folded_and_an_array_is_not() -> None:
    rows = np.zeros((64, 5000), "f4")
    folded = native.sample(rows, seed=7).token
    assert len(np.unique(folded)) > 55
    assert folded[0] == native.sample(rows[0], seed=7).token
    assert len(np.unique(native.sample(rows, seed=np.full(64, 7)).token)) == 1
    assert len(np.unique(native.sample(rows, seed=np.full(64, 7), position=np.arange(64)).token)) > 55
    assert native.sample(rows[:1], seed=7).token[0] == native.sample(rows[0], seed=[7][0]).token


def test_no_seed_takes_another_one_each_time() -> None:
    rows = np.zeros((20, 5000), "f4")
    state = random.getstate()
    first, second = native.sample(rows).token, native.sample(rows).token
    assert not np.array_equal(first, second)
    assert random.getstate() == state


def test_a_sample() -> None:
    drawn = native.sample(LOGITS.reshape(2, 2, 11), seed=1, top_n=3)
    token, logprob = drawn
    assert token is drawn.token
    assert logprob is drawn.logprob
    assert isinstance(drawn, tuple)
    assert token.dtype == np.int64
    assert logprob is not None
    assert token.shape == logprob.shape == (2, 2)
    assert drawn.top_ids is not None
    assert drawn.top_logprobs is not None
    assert drawn.top_ids.shape == drawn.top_logprobs.shape == (2, 2, 3)
    assert drawn.top_ids.dtype == np.int64
    plain = native.sample(LOGITS[0], seed=1, logprobs=None)
    assert plain.token.shape == ()
    assert plain.logprob is None
    assert plain.top_ids is None
    assert plain.top_logprobs is None
    again = Sample._make(drawn)
    assert again.token is token
    assert again.top_ids is None
    assert native.sample(LOGITS.astype("f8")).logprob.dtype == np.float64  # type: ignore[union-attr]


def test_a_sample_can_be_pickled() -> None:
    import pickle

    drawn = native.sample(LOGITS, seed=1, top_n=3)
    for a, b in zip(pickle.loads(pickle.dumps(drawn)).__getnewargs__(), drawn.__getnewargs__(), strict=True):
        assert_same(a, b)


def test_inputs_are_only_read() -> None:
    logits = LOGITS.copy()
    logits.flags.writeable = False
    biases = {1: 2.0}
    native.sample(logits, logit_bias=biases, history=[[1]] * 4, repetition_penalty=2.0)
    np.testing.assert_array_equal(logits, LOGITS)
    assert biases == {1: 2.0}


def test_kept_rows_go_in_parts() -> None:
    """A vocabulary of which 16 rows are more than a call keeps."""
    vocabulary = 2**20 + 300
    hidden = np.array([[1.0], [-1.0], [0.5], [2.0]] * 5, "f4")
    weight = np.random.default_rng(17).standard_normal((vocabulary, 1)).astype("f4")
    given: dict[str, Any] = {"top_p": 0.3, "temperature": 0.5, "logit_bias": [None, {5: 40.0}] * 10, "top_n": 2}
    drawn = native.logits_sample(hidden, weight, seed=1, **given)
    expected = native.sample(hidden * weight[:, 0], seed=1, **given)
    for a, b in zip(drawn.__getnewargs__(), expected.__getnewargs__(), strict=True):
        assert_same(a, b)
    assert (drawn.token[1::2] == 5).all()
