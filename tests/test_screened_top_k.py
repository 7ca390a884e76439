"""Top-k by way of a screen: the lists of `logits_topk` to the bit, and how many logits were computed for them.

Knows equality and counts; that the ends are valid is in test_screen.py, what a list should hold in test_top_k.py.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
import oracle
from layouts import dlpack, layouts
from lmhead_native import _core

pytestmark = pytest.mark.usefixtures("every_isa")

Array = NDArray[Any]
DATA = Path(__file__).parent / "data"
OPTIONS: list[dict[str, Any]] = [
    {},
    {"softcap": 3.0},
    {"softcap": 1e-3, "scale": 4.0},
    {"scale": -0.7},
    {"scale": 1e-35},
    {"scale": -1e33, "softcap": 1e-31},
    {"scale": 0.0},
]
every_pair = pytest.mark.parametrize(
    ("hidden_dtype", "weight_dtype"), [*itertools.product(oracle.NARROW, repeat=2)], ids=str
)


def check(
    hidden: Any,
    weight: Any,
    k: int,
    *,
    threads: int = 2,
    screen: Any = None,
    bias: Array | None = None,
    softcap: float | None = None,
    scale: float | None = None,
) -> Array:
    """Compare with the call without a screen, and return how many logits of each row were computed."""
    screen = _core.Screen(weight, threads) if screen is None else screen
    options = bias, softcap, scale, None, None, None, threads
    values, indices, rescored = _core.screened_topk(screen, hidden, weight, k, *options)
    expected = native.logits_topk(hidden, weight, k, bias=bias, softcap=softcap, scale=scale, threads=1)
    oracle.assert_same_bits(indices, expected.indices)
    oracle.assert_same_bits(values, expected.values)
    assert rescored.dtype == np.int64
    assert rescored.shape == indices.shape[:-1]
    assert (rescored >= k).all()
    assert (rescored <= screen.shape[0]).all()
    return np.asarray(rescored)


def any_number_of_rows() -> bool:
    """Tell whether any number of hidden rows goes over the screen, or only up to 8."""
    return _core.isa().startswith("avx512")


# ---- random --------------------------------------------------------------------------------------------------------


@every_pair
def test_random(hidden_dtype: np.dtype[Any], weight_dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(1)
    for rows, vocabulary, width in [(1, 3, 1), (2, 15, 70), (1, 17, 5), (4, 300, 33), (9, 1025, 16)]:
        hidden, weight = (
            rng.standard_normal((rows, width)).astype(hidden_dtype),
            rng.standard_normal((vocabulary, width)).astype(weight_dtype),
        )
        bias = rng.standard_normal(vocabulary)
        screen = _core.Screen(weight, 2)
        for number, k in enumerate((0, 1, min(50, vocabulary // 4), vocabulary)):
            for options in OPTIONS[number % 2 :: 2]:
                check(
                    hidden,
                    weight,
                    k,
                    threads=1 + number % 3,
                    screen=screen,
                    bias=None if number % 2 else bias,
                    **options,
                )


@every_pair
def test_storages(hidden_dtype: np.dtype[Any], weight_dtype: np.dtype[Any]) -> None:
    """Whatever path reads the weight, single rows of it give the bits of the pass; subnormals of bfloat16 too."""
    rng = np.random.default_rng(2)
    for rows, width in ((1, 3), (4, 70), (6, 33)):
        hidden, weight = rng.standard_normal((rows, width)), rng.standard_normal((400, width))
        hidden[0] *= 1e-4
        weight[::2] *= 1e-35
        hidden, weight = hidden.astype(hidden_dtype), weight.astype(weight_dtype)
        screen = _core.Screen(weight)
        for variant in (*layouts(weight).values(), dlpack(weight)):
            check(hidden, variant, 7, screen=screen)
        for variant in (*layouts(hidden).values(), dlpack(hidden)):
            check(variant, weight, 7, screen=screen)


def test_any_number_of_rows_and_axes() -> None:
    rng = np.random.default_rng(3)
    hidden, weight = rng.standard_normal((40, 64)).astype("f4"), rng.standard_normal((1000, 64)).astype("f4")
    screen = _core.Screen(weight)
    for rows in (*range(1, 20), 40):
        check(hidden[:rows], weight, 5, threads=1 + rows % 3, screen=screen)
    check(hidden.reshape(5, 4, 2, 64)[:, ::-1], weight, 5, screen=screen)
    check(hidden[3], weight, 5, screen=screen)
    assert check(hidden[:0], weight, 5, screen=screen).shape == (0,)


def test_few_are_computed() -> None:
    rng = np.random.default_rng(4)
    hidden, weight = rng.standard_normal((4, 256)).astype("f4"), rng.standard_normal((8000, 256)).astype("f4")
    screen = _core.Screen(weight)
    assert (check(hidden, weight, 50, screen=screen) < 200).all()
    assert (check(hidden, weight, 1, screen=screen) < 20).all()
    assert (
        check(hidden, weight, 50, screen=screen, bias=rng.standard_normal(8000), softcap=30.0, scale=-0.1) < 200
    ).all()
    many = check(np.tile(hidden, (10, 1)), weight, 50, screen=screen)
    assert (many < 200).all() if any_number_of_rows() else (many == 8000).all()


@every_pair
def test_every_pair_is_screened(hidden_dtype: np.dtype[Any], weight_dtype: np.dtype[Any]) -> None:
    """A single row goes over the screen whatever its dtype and the weight's, and few logits are computed."""
    rng = np.random.default_rng(12)
    hidden, weight = rng.standard_normal((1, 128)), rng.standard_normal((4000, 128))
    assert (check(hidden.astype(hidden_dtype), weight.astype(weight_dtype), 5) < 100).all()


# ---- the real head -------------------------------------------------------------------------------------------------


def real_rows() -> tuple[Array, Array]:
    """Return the passage's hidden states and 422 dequantised rows of the head."""
    with np.load(DATA / "smollm2_passage.npz") as passage, np.load(DATA / "smollm2_head_rows.npz") as rows:
        weight = (rows["int8"].astype("f4") * rows["scale"].astype("f4")[..., None]).reshape(len(rows["ids"]), -1)
        return passage["hidden"], weight


def test_real_rows() -> None:
    hidden, weight = real_rows()
    screen = _core.Screen(weight)
    for k in (1, 10, 50):
        rescored = np.concatenate([check(hidden[i : i + 4], weight, k, screen=screen) for i in range(0, 255, 12)])
        assert np.median(rescored) < 2 * k + 4
    halves = weight.astype(oracle.BFLOAT16)
    check(hidden[:20].astype(oracle.BFLOAT16), halves, 10)


@pytest.mark.model
def test_real_head() -> None:
    from lmhead_native.cli import model

    weight = model.read_model(model.model_file()).weight_vd
    hidden, _ = real_rows()
    screen = _core.Screen(weight)
    rows = 255 if any_number_of_rows() else 20
    rescored = np.concatenate([check(hidden[i : i + 4], weight, 50, screen=screen) for i in range(0, rows, 4)])
    assert np.median(rescored) < 200


# ---- what is hard to tell apart ------------------------------------------------------------------------------------


def test_duplicates_and_last_bits() -> None:
    """Ties across the threshold go by id, and neighbours of a number are told apart."""
    rng = np.random.default_rng(5)
    base = rng.standard_normal((30, 48)).astype("f4")
    duplicates = base[rng.integers(0, 30, 1200)]
    neighbours = duplicates.copy()
    neighbours[np.arange(1200), rng.integers(0, 48, 1200)] *= np.float32(1 + 2**-23)
    hidden = np.concatenate([base[:1] + 0.1, rng.standard_normal((1, 48))]).astype("f4")
    for weight in (duplicates, neighbours):
        screen = _core.Screen(weight)
        for k, options in itertools.product((1, 50, 101), OPTIONS[:4]):
            check(hidden, weight, k, screen=screen, **options)
    same = np.tile(base[:1], (400, 1))
    assert (check(hidden, same, 3) == 400).all()


def test_ends_that_bias_and_cap_press_together() -> None:
    """A cap that saturates makes most logits equal, or nearly; a great bias rounds them to few numbers."""
    rng = np.random.default_rng(6)
    hidden, weight = rng.standard_normal((4, 32)).astype("f4"), rng.standard_normal((900, 32)).astype("f4")
    screen = _core.Screen(weight)
    for cap in (0.5, 1.0, 2.0, 8.0, 1e10):
        for scale in (1.0, -3.0):
            check(hidden, weight, 20, screen=screen, softcap=cap, scale=scale)
    for size in (1e4, 1e7, 1e9, 3e38):
        check(hidden, weight, 20, screen=screen, bias=np.full(900, size))
        check(hidden, weight, 20, screen=screen, bias=np.where(np.arange(900) % 7, -size, size), scale=-1.0)


def test_an_end_that_is_the_threshold_itself() -> None:
    """Beside a bias of 2^23 logits are whole numbers, so that ends often round to the very k-th best."""
    rng = np.random.default_rng(10)
    hidden, weight = rng.standard_normal((30, 4, 32)).astype("f4"), rng.standard_normal((900, 32)).astype("f4")
    screen = _core.Screen(weight)
    for states in hidden:
        for sign in (1.0, -1.0):
            check(states, weight, 20, screen=screen, bias=np.full(900, 2.0**23), scale=sign)


@pytest.mark.parametrize("weight_scale", [1e30, 1.0, 1e-30, 1e-37, 1e-45])
def test_scales(weight_scale: float) -> None:
    rng = np.random.default_rng(7)
    weight = rng.standard_normal((500, 24)) * weight_scale
    weight[::9] *= 1e4
    weight[5::50] = 0
    weight[:, 3] *= 500
    for hidden_scale in (1e30, 1e8, 1.0, 1e-30, 1e-45, 0.0):
        hidden = rng.standard_normal((3, 24)) * hidden_scale
        hidden[1, 7] *= 1000
        with np.errstate(over="ignore"):
            pair = hidden.astype("f4"), weight.astype("f4")
        check(*pair, 11)
        check(*pair, 11, bias=rng.standard_normal(500) * 1e-3)
        check(pair[0].astype(oracle.BFLOAT16), pair[1].astype(oracle.BFLOAT16), 11)


def test_hidden_of_zeros_is_exact() -> None:
    """All that is left is the bias, and nothing beyond the k best can reach them."""
    weight, bias = np.random.default_rng(8).standard_normal((500, 24)).astype("f4"), np.arange(500.0)
    assert (check(np.zeros((2, 24), "f4"), weight, 11, bias=bias) == 11).all()
    assert (check(np.zeros((2, 24), "f4"), weight, 11) == 500).all()


def test_numbers_that_are_not_finite() -> None:
    rng = np.random.default_rng(9)
    hidden, weight = rng.standard_normal((4, 24)).astype("f4"), rng.standard_normal((500, 24)).astype("f4")
    weight[[3, 77, 499], [0, 23, 12]] = math.nan, math.inf, -math.inf
    screen = _core.Screen(weight)
    bias = rng.standard_normal(500)
    bias[[9, 90, 91]] = math.nan, math.inf, -math.inf
    for k, options in itertools.product((1, 2, 5, 40), OPTIONS):
        check(hidden, weight, k, screen=screen, **options)
        check(hidden, weight, k, screen=screen, bias=bias, **options)
        check(hidden, weight, k, screen=screen, bias=np.where(np.arange(500) % 3, bias, -math.inf), **options)
    assert (check(hidden, weight, 5, screen=screen) < 500).all()
    hidden[[1, 2], [0, 23]] = math.nan, -math.inf
    assert (check(hidden, weight, 5, screen=screen)[1:3] == 500).all()
    assert (check(hidden, weight, 5, screen=screen)[[0, 3]] < 500).all()
    huge = np.where(np.arange(500)[:, None] == 4, np.float32(3e38), weight)
    assert (check(hidden[:1], huge, 5) == 500).all()  # sums may overflow


def test_sums_with_a_bias_that_overflow_for_some_rows_only() -> None:
    """Beside -FLT_MAX a logit of -2^103 is where the sum becomes -inf, and times 0 NaN, which comes first."""
    rng = np.random.default_rng(11)
    bias = np.full(100, -np.finfo("f4").max)
    for _ in range(10):
        weight, hidden = rng.standard_normal((100, 8)), rng.standard_normal(8)
        weight *= (-(2.0**103) * (1 + 1e-5 * np.arange(-50, 50)) / (weight @ hidden))[:, None]
        weight[77] *= 2
        for scale in (0.0, 1.0, -1.0):
            check(hidden.astype("f4"), weight.astype("f4"), 1, bias=bias, scale=scale)


# ---- arguments -----------------------------------------------------------------------------------------------------


def test_empty_axes() -> None:
    for rows, vocabulary, width in [(0, 5, 4), (2, 0, 4), (2, 5, 0)]:
        hidden, weight = np.zeros((rows, width), "f4"), np.zeros((vocabulary, width), "f4")
        for k in {0, min(1, vocabulary), vocabulary}:
            check(hidden, weight, k)
    assert (check(np.ones((2, 3), "f4"), np.ones((9, 3), "f4"), 0) == 0).all()


def test_refusals() -> None:
    hidden, weight = np.zeros((2, 4), "f4"), np.zeros((9, 4), "f4")
    screen = _core.Screen(weight)
    others: list[tuple[Any, str]] = [
        (np.zeros((8, 4), "f4"), r"float32 of shape \(8, 4\)"),
        (weight.astype("f2"), r"float16 of shape \(9, 4\)"),
        (weight.astype(oracle.BFLOAT16), r"bfloat16 of shape \(9, 4\)"),
        (native.quantize(weight), r"a quantised weight of shape \(9, 4\)"),
        (native.quantize(weight, 4), r"a quantised weight of shape \(9, 4\)"),
    ]
    for other, got in others:
        expected = r"^weight: expected the weight that the screen was made from, float32 of shape \(9, 4\), got "
        with pytest.raises(ValueError, match=expected + got):
            _core.screened_topk(screen, hidden, other, 1, *[None] * 7)
    with pytest.raises(ValueError, match=r"^weight: expected the weight that .* got float64 of shape"):
        _core.screened_topk(screen, hidden.astype("f8"), weight.astype("f8"), 1, *[None] * 7)
    halves = weight.astype("f2")
    with pytest.raises(ValueError, match=r" made from, float16 of shape \(9, 4\), got float32 of shape"):
        _core.screened_topk(_core.Screen(halves), hidden, weight, 1, *[None] * 7)
    with pytest.raises(ValueError, match=r"^k: expected an integer from 0 to V = 9, got 10"):
        _core.screened_topk(screen, hidden, weight, 10, *[None] * 7)
