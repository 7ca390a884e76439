"""``logits`` against float64 sums: every pair of dtypes, widths and vocabularies around every register and block.

Knows values, the order bias - cap - scale, what is not finite, subnormals and empty axes. Strides and memory are in
test_logits_layouts.py, equality of bits in test_same_bits.py.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
import oracle
from layouts import dlpack

pytestmark = pytest.mark.usefixtures("each_isa")

INF, NAN = math.inf, math.nan
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
DType = np.dtype[Any]
PAIRS = [*itertools.product(oracle.NARROW, repeat=2), (FLOAT64, FLOAT64)]
every_pair = pytest.mark.parametrize(("hidden_dtype", "weight_dtype"), PAIRS, ids=str)

# Around every register (4 to 32 elements), tile (6, 12) and block (256), primes among them.
SIZES = [*range(1, 71), 73, 79, 97, 101, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025]
ROWS = (1, 2, 7, 15, 16, 17, 33, 64)


class Head(NamedTuple):
    hidden: NDArray[Any]
    weight: NDArray[Any]
    exact: NDArray[np.float64]
    bound: NDArray[np.float64]


@cache
def head(hidden_dtype: DType, weight_dtype: DType, rows: int, vocabulary: int, width: int) -> Head:
    rng = np.random.default_rng([rows, vocabulary, width])
    hidden = rng.standard_normal((rows, width)).astype(hidden_dtype)
    weight = rng.standard_normal((vocabulary, width)).astype(weight_dtype)
    result = oracle.result_dtype(hidden_dtype).name
    return Head(hidden, weight, oracle.logits_exact(hidden, weight), oracle.logits_bound(hidden, weight, result=result))


def check(h: Head, row_counts: tuple[int, ...], vocabulary: int, threads: int) -> None:
    """The first so many rows at once, for every count, against the first ids."""
    weight = h.weight[:vocabulary]
    z = np.concatenate([native.logits(h.hidden[:rows], weight, threads=threads) for rows in row_counts])
    assert z.dtype == oracle.result_dtype(h.hidden.dtype)
    rows = np.concatenate([np.arange(n) for n in row_counts])
    oracle.assert_within(z, h.exact[rows, :vocabulary], h.bound[rows, :vocabulary])


# ---- sizes ---------------------------------------------------------------------------------------------------------


@every_pair
def test_every_width(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    for width in SIZES:
        check(head(hidden_dtype, weight_dtype, 17, 19, width), (1, 2, 7, 17), 19, threads)


@every_pair
def test_every_number_of_rows(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    check(head(hidden_dtype, weight_dtype, 70, 31, 45), tuple(range(71)), 31, threads)


@every_pair
def test_every_vocabulary(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    h = head(hidden_dtype, weight_dtype, 17, 1025, 37)
    for vocabulary in SIZES:
        check(h, (1, 2, 5, 16), vocabulary, threads)


@every_pair
def test_sizes_that_are_shared_out(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    """Work above 2^17 multiplications goes to the threads, beyond 4 MiB of hidden rows in several blocks of rows."""
    for rows, vocabulary, width in [
        (1, 1025, 257),
        (2, 1023, 129),
        (33, 257, 131),
        (64, 1025, 67),
        (300, 13, 4100),
        (270, 257, 5),
        (1, 129920, 2),
    ]:
        check(head(hidden_dtype, weight_dtype, rows, vocabulary, width), (rows,), vocabulary, threads)


@every_pair
def test_small_integers_come_out_exactly(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    """No bound to hide in: sums of integers below 2^24 have one answer, whatever the order of additions."""
    rng = np.random.default_rng(5)
    for _ in range(60):
        rows, vocabulary, width = rng.choice(ROWS), rng.choice(SIZES[:80]), rng.choice(SIZES)
        hidden = rng.integers(-8, 9, (rows, width))
        weight = rng.integers(-8, 9, (vocabulary, width))
        bias = rng.integers(-100, 101, vocabulary)
        z = native.logits(
            hidden.astype(hidden_dtype), weight.astype(weight_dtype), bias=bias, scale=-0.25, threads=threads
        )
        np.testing.assert_array_equal(z, -0.25 * (hidden @ weight.T + bias))


# ---- bias, softcap, scale ------------------------------------------------------------------------------------------


@every_pair
def test_bias_softcap_and_scale(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    rng = np.random.default_rng(6)
    for vocabulary in (*range(1, 20), 70, 257, 1025):
        h = head(hidden_dtype, weight_dtype, 3, vocabulary, 29)
        bias = rng.standard_normal(vocabulary)
        for given in itertools.product((None, bias), (None, 4.0, 0.37), (None, -1.7, 0.0625)):
            options: dict[str, Any] = dict(zip(("bias", "softcap", "scale"), given, strict=True))
            z = native.logits(h.hidden, h.weight, threads=threads, **options)
            bound = oracle.logits_bound(h.hidden, h.weight, result=z.dtype.name, **options)
            oracle.assert_within(z, oracle.logits_exact(h.hidden, h.weight, **options), bound)


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)
def test_bias_of_any_real_dtype(dtype: DType) -> None:
    zero, weight = np.zeros(3, dtype), np.ones((5, 3), dtype)
    values = [3, 0, 1, 100, 7]
    for other in (*oracle.FLOATS, "i1", "u1", "i8", "u8", ">f4", ">i2"):
        z = native.logits(zero, weight, bias=np.array(values).astype(other))
        np.testing.assert_array_equal(z, np.array(values, dtype), strict=True)
    np.testing.assert_array_equal(native.logits(zero, weight, bias=values), np.array(values, dtype), strict=True)
    rounded = native.logits(zero, weight, bias=[1 / 3] * 5)
    np.testing.assert_array_equal(rounded, np.full(5, 1 / 3, dtype), strict=True)


@every_pair
def test_capped_rows_shorter_than_a_register(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    """-log p of the first is 0.6834268; lanes past the end that leak in after the cap make it 0.6909291."""
    values = np.array([-35.0, -40.0, -40.0, -40.0, -40.0])
    for rows in (1, 2, 3, 16, 17):
        ones = np.ones((rows, 1), hidden_dtype)
        columns = values[:, None].astype(weight_dtype)
        nothing = np.zeros((rows, 0), hidden_dtype), np.zeros((5, 0), weight_dtype)
        products = native.logits(ones, columns, softcap=30.0, threads=threads)
        biases = native.logits(*nothing, bias=values, softcap=30.0, threads=threads)
        oracle.assert_same_bits(products, biases)
        # 24.7 is known to 2^-19 in float32.
        loss = -native.log_softmax(products, threads=threads)[:, 0]
        np.testing.assert_allclose(loss, 0.6834268, rtol=0, atol=6e-6 if loss.dtype == np.float32 else 5e-8)
        top = native.logits_topk(ones, columns, 5, softcap=30.0, threads=threads)
        np.testing.assert_array_equal(top.indices, [range(5)] * rows)
        oracle.assert_same_bits(top.values, products)


# ---- what is not finite, what is very small ------------------------------------------------------------------------


@every_pair
def test_what_is_not_finite_stays_where_it_belongs(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    """As IEEE arithmetic has it: inf stays inf up to the end of any width, 0 * inf is NaN, the rest is exact."""
    rng = np.random.default_rng(7)
    for width, rows in itertools.product(SIZES[:76], (1, 2, 5)):
        hidden, weight = rng.integers(-2, 3, (rows, width)), rng.integers(-2, 3, (9, width))
        h, w = hidden.astype(np.float64), weight.astype(np.float64)
        h[rng.integers(rows), rng.integers(width)] = rng.choice([INF, -INF, NAN])
        h[-1, -1] = rng.choice([INF, 1.0])
        w[rng.integers(9), rng.integers(width)] = rng.choice([INF, -INF, NAN])
        with np.errstate(invalid="ignore"):
            expected = np.einsum("nd,vd->nv", h, w)
        with np.errstate(invalid="ignore"):
            z = native.logits(h.astype(hidden_dtype), w.astype(weight_dtype), threads=threads)
        np.testing.assert_array_equal(z, expected)


def test_cap_and_scale_of_what_is_not_finite() -> None:
    for dtype in (FLOAT32, FLOAT64):
        weight = np.array([[INF], [-INF], [NAN], [1.0]], dtype)
        z = native.logits(np.ones(1, dtype), weight, softcap=2.0, scale=-3.0)
        np.testing.assert_array_equal(z[:3], [-6.0, 6.0, NAN])
        assert z[3] == pytest.approx(-6 * math.tanh(0.5), rel=4 * oracle.UNIT[dtype.name])


@every_pair
def test_subnormals_count(each_isa: str, hidden_dtype: DType, weight_dtype: DType) -> None:
    """Nothing is flushed to zero, but in the one instruction that does: ``vdpbf16ps`` of bfloat16 with bfloat16."""
    least = {"float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133, "float64": 2.0**-1074}
    tiny = oracle.UNDERFLOW[oracle.result_dtype(hidden_dtype).name] * 2  # the smallest positive result
    flushes = each_isa == "avx512bf16" and hidden_dtype == weight_dtype == oracle.BFLOAT16
    for width, rows in itertools.product((1, 15, 16, 33, 70), (1, 3, 17)):
        # A subnormal operand times 8, on either side; two normal ones whose product is subnormal.
        for h, w in [(least[hidden_dtype.name], 8.0), (8.0, least[weight_dtype.name]), (2.0**-14, tiny * 2.0**15)]:
            if float(np.array(w).astype(weight_dtype)) != w:
                continue  # tiny * 2^15 is no float16
            hidden, weight = np.full((rows, width), h, hidden_dtype), np.full((2, width), w, weight_dtype)
            z = native.logits(hidden, weight)
            allowed = [width * h * w, 0.0 if flushes else width * h * w]
            assert np.isin(z, allowed).all(), (width, rows, h, w, z)


# ---- shapes --------------------------------------------------------------------------------------------------------


@every_pair
def test_empty_axes(threads: int, hidden_dtype: DType, weight_dtype: DType) -> None:
    result = oracle.result_dtype(hidden_dtype)
    for vocabulary, rows in itertools.product((1, 3, 17, 300), (1, 2, 33)):
        bias = np.arange(vocabulary, dtype=np.float32) - 2
        bias[0] = -INF
        hidden, weight = np.zeros((rows, 0), hidden_dtype), np.zeros((vocabulary, 0), weight_dtype)
        out = np.full((rows, vocabulary), NAN, result)
        assert native.logits(hidden, weight, bias=bias, out=out, threads=threads) is out
        np.testing.assert_array_equal(out, np.broadcast_to(bias, out.shape))
        oracle.assert_same_bits(native.logits(hidden, weight, threads=threads), np.zeros(out.shape, result))
    for lead, vocabulary, width in [((0,), 5, 4), ((3,), 0, 4), ((2, 0, 3), 5, 4), ((0, 7), 0, 0), ((), 0, 4)]:
        hidden, weight = np.ones((*lead, width), hidden_dtype), np.ones((vocabulary, width), weight_dtype)
        z = native.logits(hidden, weight, bias=np.zeros(vocabulary), softcap=3.0, threads=threads)
        assert z.shape == (*lead, vocabulary)
        assert z.dtype == result


def test_leading_axes_and_lists() -> None:
    rng = np.random.default_rng(8)
    hidden, weight = rng.standard_normal((2, 3, 5, 7)).astype("f4"), rng.standard_normal((11, 7)).astype("f4")
    flat = native.logits(hidden.reshape(30, 7), weight)
    oracle.assert_same_bits(native.logits(hidden, weight), flat.reshape(2, 3, 5, 11))
    oracle.assert_same_bits(native.logits(hidden[1, 2, 4], weight), flat[29])
    for dtype in oracle.FLOATS:
        exact_weight = np.arange(12).reshape(4, 3).astype(dtype)
        for tensor in (exact_weight, dlpack(exact_weight)):
            z = native.logits([[1, 0.5, 0]], tensor)
            np.testing.assert_array_equal(z, np.array([[0.5, 5, 9.5, 14]], oracle.result_dtype(dtype)), strict=True)
    np.testing.assert_array_equal(native.logits((1, 2), [[3, 4], [5, 6]]), np.array([11.0, 17.0]), strict=True)


def test_shapes_that_do_not_fit() -> None:
    hidden, weight = np.zeros((5, 12), np.float32), np.zeros((4, 13), np.float32)
    expected = r"^weight: expected shape \(V, D\) with D = 12 as in hidden of shape \(5, 12\), got shape "
    with pytest.raises(ValueError, match=expected + r"\(4, 13\)"):
        native.logits(hidden, weight)
    with pytest.raises(ValueError, match=expected + r"\(4, 13, 1\)"):
        native.logits(hidden, weight[..., None])
    with pytest.raises(ValueError, match=r"^hidden: expected shape \(\.\.\., D\) .*\(4, 13\), got shape \(\)"):
        native.logits(np.float32(1), weight)


def test_bfloat16_is_read_as_bfloat16_and_a_wrong_out_is_refused() -> None:
    hidden, weight = np.full((1, 1), 1.5, oracle.BFLOAT16), np.ones((1, 1), oracle.BFLOAT16)
    for h in (hidden, dlpack(hidden)):
        assert native.logits(h, weight) == native.logits(h, weight.astype("f4")) == 1.5
    for dtype in (np.float64, np.float16, oracle.BFLOAT16, np.int32):
        out = np.full((1, 1), 7).astype(dtype)
        with pytest.raises(TypeError, match=r"^out: expected "):
            native.logits(hidden, weight, out=out)
        assert out[0, 0] == 7
