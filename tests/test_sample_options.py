"""What the sampler's parameters may be, by row and for all rows, and what it says of others."""

from __future__ import annotations

import collections
import random
import types
from typing import Any

import numpy as np
import pytest

import lmhead_native as native
from lmhead_native import Sample
from sample_cases import REFUSED, N, V
from sample_oracle import assert_same

LOGITS = np.random.default_rng(1).standard_normal((N, V)).astype("f4")
HEAD = np.random.default_rng(2).standard_normal((N, 7)).astype("f4"), np.eye(V, 7, dtype="f4")

# Beside those that the reference refuses too.
WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    (
        {"top_k": [1, 2, -(2**70), 3, 4]},
        ValueError,
        "top_k: expected an integer >= -1, got -1180591620717411303424 in row 2",
    ),
    ({"top_k": np.ones((5, 1), int)}, ValueError, "top_k: expected a number or shape (5,), one for each row of"),
    (
        {"seed": [1, 2, 3, 4, 2**64]},
        ValueError,
        "seed: expected an integer from 0 to 2^64 - 1, got 18446744073709551616 in",
    ),
    ({"seed": [1, 2, 3, 4, 0.5]}, TypeError, "seed: expected an integer from 0 to 2^64 - 1, got 0.5"),
    ({"logprobs": True}, TypeError, "logprobs: expected 'raw' or 'processed', got True"),
    ({"logit_bias": "x"}, TypeError, "logit_bias: expected a dictionary, or a list of them for the rows, got str"),
    (
        {"history": 5},
        TypeError,
        "history: expected an array of ids or their counts, or a list of them for the rows, got int",
    ),
    ({"history": {1: 1}}, ValueError, "history: expected a list of 5, one for each row of"),
    (
        {"history": [[1], [-1], [3], [], []]},
        IndexError,
        "history: expected an id from 0 to V - 1 = 10, got -1 at position 0 in row 1",
    ),
    (
        {"output": np.zeros((5, 2, 2), int)},
        ValueError,
        "output: expected ids of one dimension, got shape (2, 2) in row 0",
    ),
    (
        {"output": [np.zeros(0), [], [], [], []]},
        TypeError,
        "output: expected an integer dtype, got float64 of shape (0,)",
    ),
    (
        {"frequency_penalty": [0, 0, 0.5, 0, 0], "output": [[1], [2], None, [3], []]},
        ValueError,
        "frequency_penalty: expected 0 without output, got 0.5 in row 2; pass output",
    ),
]
CASES: list[tuple[Any, ...]] = [*WRONG, *(tuple(case) for case in REFUSED)]
# What a set of ids must be is said by those who take one (test_mask_arguments.py).
SETS = (
    "mask: expected shape",
    "mask: expected dtype",
    "allowed_ids: expected a list",
    "allowed_ids: expected an integer",
    "allowed_ids: expected an id from",
)


@pytest.mark.parametrize(("given", "error", "message"), CASES, ids=[case[2][:60] for case in CASES])
def test_wrong_parameters(given: dict[str, Any], error: type[Exception], message: str) -> None:
    if message.startswith(SETS):
        message = message.partition(":")[0]
    with pytest.raises(error) as caught:
        native.sample(LOGITS, **given)
    assert str(caught.value).startswith(message)
    with pytest.raises(error) as caught:
        native.logits_sample(*HEAD, **given)
    assert str(caught.value).startswith(message)


def test_rows_of_several_axes_are_named_by_all_of_them() -> None:
    logits = LOGITS[:4].reshape(2, 2, 11)
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
    logits = LOGITS[:4]
    expected = native.sample(logits, temperature=0.5, top_k=3, seed=[1, 2, 3, 2**64 - 1], position=[0, 1, 2, 2**63])
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
        drawn = native.sample(logits, temperature=temperature, top_k=top_k, seed=seed, position=position)
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
    drawn = native.sample(LOGITS[:4].reshape(2, 2, 11), seed=1, top_n=3)
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
    assert native.sample(LOGITS.astype("f8")).logprob.dtype == np.float64


def test_a_sample_can_be_pickled() -> None:
    import pickle

    drawn = native.sample(LOGITS, seed=1, top_n=3)
    for a, b in zip(pickle.loads(pickle.dumps(drawn)).__getnewargs__(), drawn.__getnewargs__(), strict=True):
        assert_same(a, b)


def test_inputs_are_only_read() -> None:
    logits = LOGITS.copy()
    logits.flags.writeable = False
    biases = {1: 2.0}
    native.sample(logits, logit_bias=biases, history=[[1]] * N, repetition_penalty=2.0)
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


def test_lists_for_no_rows() -> None:
    """S19: a list of nothing is the list for no rows."""
    drawn = native.sample(np.zeros((0, 5), "f4"), history=[], output=[], logit_bias=[], presence_penalty=1.0)
    assert drawn.token.shape == (0,)


def test_any_mapping() -> None:
    """Counts and biases come in mappings, whether they are dictionaries or not."""
    counts: dict[int, int] = {1: 2, 3: 1}
    given: dict[str, Any] = {"presence_penalty": 0.5, "frequency_penalty": 0.25, "repetition_penalty": 1.5, "seed": 3}
    expected = native.sample(LOGITS[0], output=counts, history=counts, logit_bias={2: 1.0}, **given)
    for kind in (collections.UserDict, types.MappingProxyType):
        drawn = native.sample(LOGITS[0], output=kind(counts), history=kind(counts), logit_bias=kind({2: 1.0}), **given)
        assert_same(drawn.token, expected.token)
        assert_same(drawn.logprob, expected.logprob)


def test_tensors_of_one_number_are_for_all_rows() -> None:
    class Tensor:
        """A number as other libraries have it, which DLPack could read too."""

        shape = ()

        def __init__(self, value: float) -> None:
            self.value = value

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        def __dlpack__(self, **_: Any) -> None:
            raise AssertionError("a single number is not read as an array")

        def __float__(self) -> float:
            return float(self.value)

        def __index__(self) -> int:
            return int(self.value)

    given: dict[str, Any] = {"temperature": Tensor(0.5), "top_k": Tensor(3), "seed": Tensor(7)}
    drawn = native.sample(LOGITS, **given)
    assert_same(drawn.token, native.sample(LOGITS, temperature=0.5, top_k=3, seed=7).token)
