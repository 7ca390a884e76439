"""``mask``, ``allowed_ids``, ``vocab_ids``: the forms they come in, and what is refused in which words.

Knows arguments. What a masked call computes is in test_mask.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
from layouts import dlpack, layouts
from masks import disallow, id_lists, packed
from oracle import BFLOAT16, assert_same_bits

Array = NDArray[Any]
B, T, V, D = 2, 3, 75, 8  # 3 words, the last one with 11 bits

RNG = np.random.default_rng(1)
HIDDEN = RNG.standard_normal((B, T, D)).astype("f4")
WEIGHT = RNG.standard_normal((V, D)).astype("f4")
ALLOWED = RNG.random((B, T, V)) < 0.4
LOGITS = native.logits(HIDDEN, WEIGHT)
EXPECTED = disallow(LOGITS, ALLOWED)


def test_words_in_any_memory() -> None:
    for mask in layouts(packed(ALLOWED)).values():
        assert_same_bits(native.logits(HIDDEN, WEIGHT, mask=mask), EXPECTED)
        assert_same_bits(native.logits(HIDDEN, WEIGHT, mask=mask.view(mask.dtype.str.replace("i", "u"))), EXPECTED)
    assert_same_bits(native.logits(HIDDEN, WEIGHT, mask=dlpack(packed(ALLOWED))), EXPECTED)
    assert_same_bits(native.logits(HIDDEN, WEIGHT, mask=list(packed(ALLOWED))), EXPECTED)
    for words in (packed(ALLOWED).tolist(), packed(ALLOWED).view(np.uint32).tolist()):  # Python's own integers
        assert_same_bits(native.logits(HIDDEN, WEIGHT, mask=words), EXPECTED)
        np.testing.assert_array_equal(np.isfinite(native.reference.logits(HIDDEN, WEIGHT, mask=words)), ALLOWED)


def test_bits_past_the_end() -> None:
    """Those of the last word, and whole words, are ignored: also where everything before them is allowed."""
    longer = np.full((B, T, 5), -1, np.int32)
    longer[..., :3] = packed(ALLOWED)
    longer[..., 2] |= np.int32(-1 << 11)
    assert_same_bits(native.logits(HIDDEN, WEIGHT, mask=longer), EXPECTED)
    top = native.logits_topk(HIDDEN, WEIGHT, V, mask=longer)
    np.testing.assert_array_equal(
        np.sort(top.indices, axis=-1)[..., -1], [[max(ids) for ids in id_lists(ALLOWED[b])] for b in range(B)]
    )
    np.testing.assert_array_equal((top.indices >= 0).sum(axis=-1), ALLOWED.sum(axis=-1))
    screened = native.LMHead(WEIGHT, screen="int8").topk(HIDDEN, 2, mask=longer)
    np.testing.assert_array_equal(screened.rescored, ALLOWED.sum(axis=-1))  # type: ignore[attr-defined]
    assert_same_bits(native.logits(HIDDEN, WEIGHT, mask=np.full(9, -1, np.int32)), LOGITS)


@pytest.mark.parametrize("index", [np.s_[0, 0], np.s_[:1, :1], np.s_[:1], np.s_[:, :1], np.s_[0]], ids=str)
def test_one_row_for_several(index: Any) -> None:
    """Leading axes broadcast as NumPy's do."""
    some = ALLOWED[index]
    expected = disallow(LOGITS, np.broadcast_to(some, (B, T, V)))
    assert_same_bits(native.logits(HIDDEN, WEIGHT, mask=packed(some)), expected)
    whole = np.broadcast_to(packed(some), (B, T, 3))
    assert_same_bits(native.logits(HIDDEN, WEIGHT, mask=whole), expected)
    found = native.reference.logits(HIDDEN, WEIGHT, mask=packed(some))
    np.testing.assert_array_equal(np.isfinite(found), np.broadcast_to(some, (B, T, V)))


def test_a_single_state() -> None:
    for given in ({"mask": packed(ALLOWED[0, 0])}, {"allowed_ids": np.flatnonzero(ALLOWED[0, 0])}):
        assert_same_bits(native.logits(HIDDEN[0, 0], WEIGHT, **given), EXPECTED[0, 0])
        assert native.logits_topk(HIDDEN[0, 0], WEIGHT, 4, **given).indices.shape == (4,)
    assert_same_bits(native.logits(HIDDEN[0, 0], WEIGHT, allowed_ids=[id_lists(ALLOWED)[0]]), EXPECTED[0, 0])


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", ">u2", "i4", "u4", ">i8", "u8"])
def test_ids_of_every_dtype(dtype: str) -> None:
    """In any order, repeated."""
    lists = [np.concatenate([ids[::-1], ids[:3]]).astype(dtype) for ids in id_lists(ALLOWED)]
    for form in (lists, tuple(lists), [ids.tolist() for ids in lists], [tuple(ids.tolist()) for ids in lists]):
        assert_same_bits(native.logits(HIDDEN, WEIGHT, allowed_ids=form), EXPECTED)
    spread = np.zeros(2 * len(lists[0]), dtype)
    spread[::2] = lists[0]
    expected = disallow(LOGITS, np.broadcast_to(ALLOWED[0, 0], LOGITS.shape))
    for one in (lists[0], spread[::2], lists[0].tolist(), tuple(lists[0].tolist()), list(lists[0])):
        assert_same_bits(native.logits(HIDDEN, WEIGHT, allowed_ids=one), expected)


def test_ids_of_other_kinds() -> None:
    first = disallow(LOGITS, np.arange(V) < 40)
    for form in (range(40), dlpack(np.arange(40)), [*range(39), np.int16(39)]):
        assert_same_bits(native.logits(HIDDEN, WEIGHT, allowed_ids=form), first)
    mixed = [None, [], range(V), dlpack(np.array([3])), np.zeros(0, np.int64), (1,)]
    allowed = np.zeros((B * T, V), bool)
    allowed[[0, 2]], allowed[3, 3], allowed[5, 1] = True, True, True
    assert_same_bits(native.logits(HIDDEN, WEIGHT, allowed_ids=mixed), disallow(LOGITS, allowed.reshape(B, T, V)))


def test_out_of_any_strides() -> None:
    for out in (np.zeros((B, T, V), "f4"), np.zeros((B, T, 2 * V), "f4")[..., ::2], np.zeros((V, T, B), "f4").T):
        found = native.logits(HIDDEN, WEIGHT, mask=packed(ALLOWED), out=out)
        assert found is out
        np.testing.assert_array_equal(out, EXPECTED)


def test_arguments_are_left_alone() -> None:
    """Also where `out` begins in the memory after them; the mask's own memory is refused."""
    mask = packed(ALLOWED)
    before = mask.copy()
    native.logits(HIDDEN, WEIGHT, mask=mask)
    np.testing.assert_array_equal(mask, before)
    memory = np.zeros(B * T * V, np.float32)
    inside = memory.view(np.int32)[:3]
    forms: list[dict[str, Any]] = [{"mask": inside}, {"allowed_ids": inside}]
    for given in forms:
        with pytest.raises(ValueError, match=rf"^out: expected memory apart from {next(iter(given))}"):
            native.logits(HIDDEN, WEIGHT, out=memory.reshape(B, T, V), **given)


@pytest.mark.parametrize(("n", "v", "d"), [(0, 5, 4), (2, 0, 4), (2, 40, 0), (0, 0, 0)])
def test_empty_axes(n: int, v: int, d: int) -> None:
    hidden, weight = np.zeros((n, d), "f4"), np.zeros((v, d), "f4")
    allowed = np.arange(n * v).reshape(n, v) % 3 == 0
    bias = -1 - np.arange(v, dtype="f4")
    expected = disallow(np.broadcast_to(bias, (n, v)), allowed)
    for given in ({"mask": packed(allowed)}, {"allowed_ids": id_lists(allowed)}):
        assert_same_bits(native.logits(hidden, weight, bias=bias, **given), expected)
        assert native.logits_topk(hidden, weight, v, bias=bias, **given).indices.shape == (n, v)
    one_for_all = native.logits(hidden, weight, bias=bias, mask=np.zeros(-(-v // 32), np.int32))
    assert_same_bits(one_for_all, np.full((n, v), -math.inf, np.float32))
    assert native.logits_topk(hidden, weight, v, vocab_ids=np.arange(v)).values.shape == (n, v)


MASK, IDS, VOCAB = packed(ALLOWED), id_lists(ALLOWED), np.arange(V) * 2
TOO_SHORT = "mask: expected a last axis of at least ceil(V / 32) = 3 words"
NO_WORDS = "mask: expected dtype int32 or uint32"
# What is given, how it is refused, and the message from its beginning on.
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    (
        {"mask": MASK[..., :2]},
        ValueError,
        f"{TOO_SHORT} for the V = 75 of weight of shape (75, 8), got shape (2, 3, 2)",
    ),
    ({"mask": np.zeros(0, np.int32)}, ValueError, TOO_SHORT),
    (
        {"mask": np.int32(1)},
        ValueError,
        f"{TOO_SHORT} for the V = 75 of weight of shape (75, 8), got shape ()",
    ),
    (
        {"mask": MASK[:, :2]},
        ValueError,
        "mask: expected one row, or rows of shape (2, 3) as in hidden of shape (2, 3, 8), got shape (2, 2, 3)",
    ),
    ({"mask": MASK[None]}, ValueError, "mask: expected one row, or rows of shape (2, 3)"),
    ({"mask": MASK.reshape(6, 3)}, ValueError, "mask: expected one row, or rows of shape (2, 3)"),
    (
        {"mask": ALLOWED},
        TypeError,
        f"{NO_WORDS}, a bit for each id with the lowest bit first, got bool of shape (2, 3, 75); numpy.",
    ),
    (
        {"mask": MASK.astype("i8")},
        TypeError,
        f"{NO_WORDS}, a bit for each id with the lowest bit first, got int64 of shape (2, 3, 3)",
    ),
    ({"mask": MASK.astype("f4")}, TypeError, NO_WORDS),
    ({"mask": MASK.astype(BFLOAT16)}, TypeError, NO_WORDS),
    (
        {"mask": [0, 1 << 32, -1 << 40]},
        ValueError,
        "mask: expected words of 32 bits, from -2^31 to 2^32 - 1, got 4294967296",
    ),
    (
        {"mask": np.zeros(3, "m8[s]")},
        TypeError,
        NO_WORDS,
    ),
    ({"mask": np.ma.masked_array(MASK)}, TypeError, "mask: expected an array without a mask"),
    ({"mask": "mask"}, TypeError, NO_WORDS),
    ({"mask": dlpack(MASK, device=2)}, TypeError, "mask: expected a tensor on the CPU"),
    (
        {"mask": MASK, "allowed_ids": IDS},
        ValueError,
        "allowed_ids: expected None beside a mask, got both; give one of them",
    ),
    ({"allowed_ids": [1, 75]}, IndexError, "allowed_ids: expected an id from 0 to V - 1 = 74, got 75 at position (1,)"),
    (
        {"allowed_ids": np.array([-1])},
        IndexError,
        "allowed_ids: expected an id from 0 to V - 1 = 74, got -1 at position (0,)",
    ),
    (
        {"allowed_ids": np.array([2**64 - 1], "u8")},
        IndexError,
        "allowed_ids: expected an id from 0 to V - 1 = 74, got 18446744073709551615",
    ),
    (
        {"allowed_ids": [*IDS[:5], [0, 1, 99]]},
        IndexError,
        "allowed_ids[5]: expected an id from 0 to V - 1 = 74, got 99 at position (2,)",
    ),
    (
        {"allowed_ids": IDS[:5]},
        ValueError,
        "allowed_ids: expected a list of 6 arrays, one for each row of hidden of shape (2, 3, 8), got one of 5",
    ),
    ({"allowed_ids": [None]}, ValueError, "allowed_ids: expected a list of 6 arrays"),
    (
        {"allowed_ids": np.zeros((6, 2), int)},
        ValueError,
        "allowed_ids: expected one axis, got shape (6, 2); a list of its rows gives every row its own ids",
    ),
    ({"allowed_ids": 3}, ValueError, "allowed_ids: expected one axis, got shape ()"),
    ({"allowed_ids": [*IDS[:5], 3]}, ValueError, "allowed_ids[5]: expected one axis, got shape ()"),
    ({"allowed_ids": [*IDS[:5], [[1], [2]]]}, ValueError, "allowed_ids[5]: expected one axis, got shape (2, 1)"),
    (
        {"allowed_ids": [*IDS[:5], [1.0]]},
        TypeError,
        "allowed_ids[5]: expected an integer dtype, got float64 of shape (1,)",
    ),
    ({"allowed_ids": [1.0]}, TypeError, "allowed_ids: expected an integer dtype, got float64 of shape (1,)"),
    ({"allowed_ids": ALLOWED[0, 0]}, TypeError, "allowed_ids: expected an integer dtype, got bool of shape (75,)"),
    ({"allowed_ids": {1, 2}}, TypeError, "allowed_ids: expected an integer dtype, got object of shape ()"),
    ({"allowed_ids": "12"}, TypeError, "allowed_ids: expected an integer dtype"),
]
REFUSED_BY_LISTS: list[tuple[dict[str, Any], type[Exception], str]] = [
    (
        {"vocab_ids": VOCAB[1:]},
        ValueError,
        "vocab_ids: expected shape (V,) with V = 75 as in weight of shape (75, 8), got shape (74,)",
    ),
    ({"vocab_ids": VOCAB[None]}, ValueError, "vocab_ids: expected shape (V,)"),
    (
        {"vocab_ids": VOCAB[::-1]},
        ValueError,
        "vocab_ids: expected ids in strictly ascending order, got 146 after 148 at position (1,)",
    ),
    (
        {"vocab_ids": VOCAB // 4},
        ValueError,
        "vocab_ids: expected ids in strictly ascending order, got 0 after 0 at position (1,)",
    ),
    ({"vocab_ids": VOCAB - 2}, ValueError, "vocab_ids: expected ids from 0 to 2147483647, got -2 at position (0,)"),
    (
        {"vocab_ids": VOCAB + 2**31},
        ValueError,
        "vocab_ids: expected ids from 0 to 2147483647, got 2147483648 at position (0,)",
    ),
    ({"vocab_ids": VOCAB.astype("f8")}, TypeError, "vocab_ids: expected an integer dtype, got float64 of shape (75,)"),
    (
        {"vocab_ids": VOCAB, "allowed_ids": [149]},
        IndexError,
        "allowed_ids: expected an id from 0 to V - 1 = 148, got 149 at position (0,)",
    ),
    (
        {"vocab_ids": VOCAB, "mask": MASK},
        ValueError,
        "mask: expected a last axis of at least ceil(V / 32) = 5 words for the V = 149 of vocab_ids",
    ),
    ({"vocab_ids": VOCAB, "k": 150}, ValueError, "k: expected an integer from 0 to V = 149, got 150"),
]


@pytest.mark.parametrize(("given", "error", "message"), REFUSED + REFUSED_BY_LISTS)
def test_refused(given: dict[str, Any], error: type[Exception], message: str) -> None:
    head = native.LMHead(WEIGHT, screen="int8")
    calls: list[Callable[[], Any]] = [
        lambda: native.logits_topk(HIDDEN, WEIGHT, **{"k": 3} | given),
        lambda: head.topk(HIDDEN, **{"k": 3} | given),
    ]
    out = np.full((B, T, V), 7.0, np.float32)
    if "vocab_ids" not in given:
        calls += [
            lambda: native.logits(HIDDEN, WEIGHT, out=out, **given),
            lambda: head.logits(HIDDEN, out=out, **given),
        ]
    for call in calls:
        with pytest.raises(error, match=f"^{re.escape(message)}") as caught:
            call()
        assert type(caught.value) is error
    assert (out == 7.0).all()


def test_an_allowed_id_that_the_pruned_head_has_not() -> None:
    top = native.logits_topk(HIDDEN, WEIGHT, 3, vocab_ids=VOCAB, allowed_ids=[1, 4, 77])
    np.testing.assert_array_equal(top.indices, np.broadcast_to([4, -1, -1], (B, T, 3)))
    assert (top.values[..., 1:] == -math.inf).all()
    assert_same_bits(top.values[..., 0], LOGITS[..., 2])
