"""What `native.reference` accepts and refuses: dtypes, sequences, DLPack, layouts, `out`, wrong arguments.

The values themselves are in test_reference.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import oracle
from layouts import dlpack, layouts
from lmhead_native import reference as ref

H, W = np.zeros((5, 12), np.float32), np.zeros((11, 12), np.float32)
X = np.zeros((5, 11), np.float32)
Call = Callable[[], object]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20250)


@pytest.mark.parametrize("weight_dtype", oracle.FLOATS, ids=str)
@pytest.mark.parametrize("hidden_dtype", oracle.FLOATS, ids=str)
def test_dtype_table(hidden_dtype: np.dtype[Any], weight_dtype: np.dtype[Any]) -> None:
    hidden, weight = np.full((2, 3), 1.5).astype(hidden_dtype), np.full((4, 3), 2.0).astype(weight_dtype)
    if (hidden_dtype == np.float64) == (weight_dtype == np.float64):
        expected = np.full((2, 4), 9, oracle.result_dtype(hidden_dtype))
        np.testing.assert_array_equal(ref.logits(hidden, weight), expected, strict=True)
    else:
        with pytest.raises(TypeError, match=r"^weight: expected dtype .* as hidden is .*, got .*; cast with .*astype"):
            ref.logits(hidden, weight)


def test_sequences_take_the_dtype_beside_them() -> None:
    third = 1 / 3
    for dtype in oracle.FLOATS:
        weight = np.eye(1, 1).astype(dtype)
        rounded = float(np.asarray(third).astype(dtype))
        for tensor in (weight, dlpack(weight)):
            assert ref.logits([third], tensor) == rounded
            assert ref.logits(tensor, [[third]]) == rounded
    assert ref.logits([third], [[1]]).dtype == np.float64
    assert ref.softmax((1, 2)).dtype == ref.topk(range(3), 1).values.dtype == ref.rms_norm([1.0]).dtype == np.float64


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (1 + 2.0**-8, 1.0),  # tie to even, down
        (1 + 3 * 2.0**-8, 1 + 2.0**-6),  # tie to even, up
        (1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-7),  # above the tie by less than float32 sees: rounding twice gives 1
        (-(2.0**-134), -0.0),  # half the smallest subnormal
        (3 * 2.0**-134, 2.0**-132),
        (2.0**128 - 2.0**119, np.inf),  # half-way to 2^128
        (2.0**128 - 2.0**120, 2.0**128 - 2.0**120),  # the largest
        (-np.inf, -np.inf),
        (np.nan, np.nan),
    ],
)
def test_sequences_round_once_to_bfloat16(value: float, rounded: float) -> None:
    half = np.full((1, 1), 0.5, oracle.BFLOAT16)  # tells infinity from 2^128
    np.testing.assert_array_equal(ref.logits([value], half), [rounded / 2])


@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
def test_dlpack_and_layouts_give_the_same_bits(rng: np.random.Generator, dtype: np.dtype[Any]) -> None:
    hidden, weight = rng.integers(-9, 9, (4, 6)).astype(dtype), rng.integers(-9, 9, (7, 6)).astype(dtype)
    bias = rng.integers(-9, 9, 7).astype(dtype)
    expected = ref.logits(hidden, weight, bias=bias)
    oracle.assert_same_bits(ref.logits(dlpack(hidden), dlpack(weight), bias=dlpack(bias)), expected)
    for name, h in layouts(hidden).items():
        w, b = layouts(weight)[name], layouts(bias)[name]
        before = h.tobytes(), w.tobytes(), b.tobytes()
        oracle.assert_same_bits(ref.logits(h, w, bias=b), expected)
        for function in (ref.softmax, ref.log_softmax, ref.logsumexp, ref.layer_norm, ref.rms_norm):
            oracle.assert_same_bits(function(h), function(hidden))
        assert ref.topk(h, 6).indices.tolist() == ref.topk(hidden, 6).indices.tolist()
        assert (h.tobytes(), w.tobytes(), b.tobytes()) == before


OUTS: dict[str, tuple[Callable[..., NDArray[Any]], tuple[int, ...]]] = {
    "logits": (lambda **kw: ref.logits(H, W, bias=np.arange(11), **kw), (5, 11)),
    "softmax": (lambda **kw: ref.softmax(X, **kw), (5, 11)),
    "log_softmax": (lambda **kw: ref.log_softmax(X, **kw), (5, 11)),
    "logsumexp": (lambda **kw: ref.logsumexp(X, **kw), (5,)),
    "logsumexp of one row": (lambda **kw: ref.logsumexp(X[0], **kw), ()),
    "layer_norm": (lambda **kw: ref.layer_norm(X, bias=np.arange(11), **kw), (5, 11)),
    "rms_norm": (lambda **kw: ref.rms_norm(X, np.arange(11), **kw), (5, 11)),
}


@pytest.mark.parametrize(("call", "shape"), OUTS.values(), ids=OUTS.keys())
def test_out_is_filled_or_refused_untouched(call: Callable[..., NDArray[Any]], shape: tuple[int, ...]) -> None:
    expected = call()
    assert expected.shape == shape
    fitting = [np.full(shape, 7, np.float32)]
    if shape:
        fitting += [np.full(shape, 7, np.float32, order="F"), np.full((*shape[:-1], 2 * shape[-1]), 7, "f4")[..., ::-2]]
    for out in fitting:
        assert call(out=out) is out
        oracle.assert_same_bits(out, expected)
    read_only = np.full(shape, 7, np.float32)
    read_only.flags.writeable = False
    for error, unfit in [
        (TypeError, np.full(shape, 7.0)),
        (TypeError, np.full(shape, 7, ">f4" if np.little_endian else "<f4")),
        (TypeError, [0.0]),
        (ValueError, np.full((*shape, 1), 7, np.float32)),
        (ValueError, read_only),
    ]:
        with pytest.raises(error, match=r"^out: expected .*, got "):
            call(out=unfit)
        assert np.all(np.asarray(unfit) == np.asarray(unfit).flat[0])


def test_out_may_be_the_input_itself_and_nothing_that_overlaps_it(rng: np.random.Generator) -> None:
    for function in (ref.softmax, ref.log_softmax, ref.layer_norm, ref.rms_norm):
        base = rng.standard_normal((6, 8)).astype(np.float32)
        for view in (np.s_[:5, :7], np.s_[::-1, ::2]):
            x = base.copy()[view]
            expected = function(x)
            assert function(x, out=x) is x
            oracle.assert_same_bits(x, expected)
        before = base.copy()
        for x, out in [(base[:5], base[1:]), (base[:, ::2], base[:, :4]), (base[:6, :6], base[:6, :6].T)]:
            with pytest.raises(ValueError, match=r"^out: expected memory apart from .*, got memory that overlaps"):
                function(x, out=out)
            oracle.assert_same_bits(base, before)
        assert function(base[:, ::2], out=base[:, 1::2]).base is base  # interleaved is apart
    square = np.ones((8, 8), np.float32)
    refusals: list[Call] = [
        lambda: ref.logits(square, W[:8, :8].copy(), out=square),
        lambda: ref.logits(W[:8, :8].copy(), square, out=square),
        lambda: ref.logits(W[:8, :8].copy(), W[:8, :8].copy(), bias=square[0], out=square),
        lambda: ref.layer_norm(W[:8, :8].copy(), square[0], out=square),
        lambda: ref.rms_norm(W[:8, :8].copy(), square[0], out=square),
        lambda: ref.logsumexp(square, out=square[0]),
    ]
    for refused in refusals:
        with pytest.raises(ValueError, match=r"^out: expected memory apart from "):
            refused()
        assert (square == 1).all()


REFUSED: list[tuple[Call, type[Exception], str]] = [
    (
        lambda: ref.logits(H, W[:, :7]),
        ValueError,
        "weight: expected shape (V, D) with D = 12 as in hidden of shape (5, 12), got shape (11, 7)",
    ),
    (lambda: ref.logits(H, W.T), ValueError, "got shape (12, 11); pass weight.T"),
    (
        lambda: ref.logits(H, W[0]),
        ValueError,
        "weight: expected shape (V, D) with D = 12 as in hidden of shape (5, 12)",
    ),
    (
        lambda: ref.logits(3.0, W),
        ValueError,
        "hidden: expected shape (..., D) beside weight of shape (11, 12), got shape ()",
    ),
    (
        lambda: ref.logits(H.astype(int), W),
        TypeError,
        "hidden: expected dtype float32, float16, bfloat16 or float64, got int64",
    ),
    (lambda: ref.logits(H, W.astype(bool)), TypeError, "weight: expected dtype"),
    (lambda: ref.logits(H.astype(complex), W), TypeError, "hidden: expected dtype"),
    (lambda: ref.logits([["a"]], W), TypeError, "hidden: expected dtype"),
    (lambda: ref.logits([[True]], W), TypeError, "hidden: expected dtype"),
    (lambda: ref.logits(None, W), TypeError, "hidden: expected dtype"),  # type: ignore[arg-type]
    (lambda: ref.logits([[1.0], [1.0, 2.0]], W), ValueError, "hidden: expected a rectangular array"),
    (lambda: ref.logits(dlpack(H, device=2), W), TypeError, "hidden: expected a tensor on the CPU"),
    (
        lambda: ref.logits(H, W, bias=np.zeros(12)),
        ValueError,
        "bias: expected shape (V,) with V = 11 as in weight of shape",
    ),
    (lambda: ref.logits(H, W, bias=np.zeros(11, bool)), TypeError, "bias: expected a real dtype, got bool"),
    (lambda: ref.logits(H, W, softcap=0.0), ValueError, "softcap: expected a real number above 0 and finite, got 0.0"),
    (lambda: ref.logits(H, W, softcap=np.inf), ValueError, "softcap: expected"),
    (lambda: ref.logits(H, W, scale=np.nan), ValueError, "scale: expected a real number that is finite, got nan"),
    (lambda: ref.logits(H, W, scale="2"), TypeError, "scale: expected"),  # type: ignore[arg-type]
    (lambda: ref.logits(H, W, threads=0), ValueError, "threads: expected an integer from 1 to 1024, got 0"),
    (lambda: ref.logits(H, W, threads=1025), ValueError, "threads: expected an integer from 1 to 1024, got 1025"),
    (lambda: ref.logits(H, W, threads=True), TypeError, "threads: expected an integer"),
    (lambda: ref.logits(H, W, threads=2.0), TypeError, "threads: expected an integer"),  # type: ignore[arg-type]
    (lambda: ref.logits_topk(H, W, 12), ValueError, "k: expected an integer from 0 to V = 11, got 12"),
    (lambda: ref.topk(X, -1), ValueError, "k: expected an integer from 0 to V = 11, got -1"),
    (lambda: ref.topk(X, 10**30), ValueError, "k: expected"),
    (lambda: ref.topk(X, 2.0), TypeError, "k: expected an integer from 0 to V = 11, got 2.0"),  # type: ignore[arg-type]
    (lambda: ref.topk(X, np.True_), TypeError, "k: expected"),  # type: ignore[arg-type]
    (
        lambda: ref.topk(np.float32(1), 0),
        ValueError,
        "logits: expected shape (..., V) of at least one dimension, got shape ()",
    ),
    (
        lambda: ref.softmax(X, temperature=0),
        ValueError,
        "temperature: expected a real number above 0 and finite, got 0",
    ),
    (lambda: ref.softmax(X, temperature=-0.0), ValueError, "temperature: expected"),
    (lambda: ref.log_softmax(X, temperature=np.nan), ValueError, "temperature: expected"),
    (lambda: ref.logsumexp(X, temperature=10**400), ValueError, "temperature: expected"),
    (lambda: ref.softmax(X, temperature=True), TypeError, "temperature: expected"),
    (lambda: ref.softmax(X, temperature=1j), TypeError, "temperature: expected"),  # type: ignore[arg-type]
    (lambda: ref.softmax(X, temperature=[1.0]), TypeError, "temperature: expected"),  # type: ignore[arg-type]
    (
        lambda: ref.layer_norm(X, np.zeros(12)),
        ValueError,
        "gain: expected shape (D,) with D = 11 as in x of shape (5, 11)",
    ),
    (lambda: ref.layer_norm(X, bias=np.zeros(11, complex)), TypeError, "bias: expected a real dtype, got complex128"),
    (lambda: ref.layer_norm(0.5), ValueError, "x: expected shape (..., D) of at least one dimension, got shape ()"),
    (
        lambda: ref.rms_norm(X, eps=-1e-6),
        ValueError,
        "eps: expected a real number of at least 0 and finite, got -1e-06",
    ),
    (lambda: ref.rms_norm(X.astype(np.int8)), TypeError, "x: expected dtype"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED, ids=[m for _, _, m in REFUSED])
def test_refusals(call: Call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call()


def test_numpy_scalars_count_as_numbers() -> None:
    assert ref.topk(X, np.uint8(3), threads=np.int64(2)).indices.shape == (5, 3)  # type: ignore[arg-type]
    row = np.array([1.0, 2.0])
    halves: list[Any] = [np.float16(0.5), np.array(0.5), oracle.BFLOAT16.type(0.5)]
    for half in halves:
        oracle.assert_same_bits(ref.softmax(row, temperature=half), ref.softmax(row, temperature=0.5))


def test_bias_and_gain_take_any_real_dtype() -> None:
    for dtype in (np.int8, np.uint64, np.float16, np.float32, np.float64, oracle.BFLOAT16):
        np.testing.assert_array_equal(ref.logits(H, W, bias=np.arange(11).astype(dtype))[0], np.arange(11.0))
        assert ref.rms_norm(X + 1, np.arange(11).astype(dtype), eps=0.0).dtype == np.float32
