"""``LMHead``: the bits of the functions it stands for, whatever was prepared; what it keeps alive, and what it refuses.

Knows the prepared head made from arrays. Refuses to know files (test_lm_head_files) and how the screen works.
"""

from __future__ import annotations

import gc
import json
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lmhead_native as native
import oracle
from layouts import dlpack, layouts
from lmhead_native import _core

TOY: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "worked_numbers.json").read_text())["toy_head"]
RNG = np.random.default_rng(3)
WEIGHT = RNG.standard_normal((531, 40)).astype(np.float32)
HIDDEN = RNG.standard_normal((3, 2, 40)).astype(np.float32)
BIAS = RNG.standard_normal(531).astype(np.float32)
TARGETS = RNG.integers(0, 531, (3, 2))
SCREENS: list[Any] = [None, "int8"]
OPTIONS: list[dict[str, Any]] = [{}, {"bias": BIAS}, {"softcap": 20.0}, {"scale": -0.5, "bias": BIAS, "softcap": 3.0}]


@pytest.mark.parametrize("prepare", [True, False])
@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
@pytest.mark.parametrize("dtype", oracle.NARROW, ids=str)
def test_methods_have_the_bits_of_their_functions(
    each_isa: str, dtype: np.dtype[Any], options: dict[str, Any], screen: Any, prepare: bool
) -> None:
    weight, hidden = WEIGHT.astype(dtype), HIDDEN.astype(dtype)
    head = native.LMHead(weight, **options, screen=screen, prepare=prepare)
    oracle.assert_same_bits(head.logits(hidden), native.logits(hidden, weight, **options))
    for k in (0, 1, 7, 531):
        expected = native.logits_topk(hidden, weight, k, **options)
        found = head.topk(hidden, k)
        oracle.assert_same_bits(found.values, expected.values)
        oracle.assert_same_bits(found.indices, expected.indices)
    oracle.assert_same_bits(
        head.cross_entropy(hidden, TARGETS, reduction="none", label_smoothing=0.1),
        native.linear_cross_entropy(hidden, weight, TARGETS, reduction="none", label_smoothing=0.1, **options),
    )
    drafts = [[3], [1], [2]]
    verified = native.verify(hidden, weight, drafts, seed=4, **options)
    for one, other in zip(head.verify(hidden, drafts, seed=4), verified, strict=True):
        oracle.assert_same_bits(one, other)


@pytest.mark.parametrize("prepare", [True, False])
def test_float64(each_isa: str, prepare: bool) -> None:
    weight, hidden = WEIGHT.astype(np.float64), HIDDEN.astype(np.float64)
    head = native.LMHead(weight, BIAS, prepare=prepare)
    assert head.screen is None
    oracle.assert_same_bits(head.logits(hidden), native.logits(hidden, weight, bias=BIAS))
    oracle.assert_same_bits(head.topk(hidden, 9).values, native.logits_topk(hidden, weight, 9, bias=BIAS).values)


@pytest.mark.parametrize("norm", [native.RMSNorm(eps=0.5), native.LayerNorm(BIAS[:40], BIAS[40:80])], ids=repr)
@pytest.mark.parametrize("screen", SCREENS)
def test_the_norm_comes_first(norm: Any, screen: Any) -> None:
    weight = WEIGHT.astype(np.float16)
    head = native.LMHead(weight, norm=norm, screen=screen)
    states = norm(HIDDEN)
    oracle.assert_same_bits(head.logits(HIDDEN), native.logits(states, weight))
    oracle.assert_same_bits(head.topk(HIDDEN, 3).indices, native.logits_topk(states, weight, 3).indices)
    oracle.assert_same_bits(head.cross_entropy(HIDDEN, TARGETS), native.linear_cross_entropy(states, weight, TARGETS))


def test_toy_head_from_the_state_before_the_norm() -> None:
    unembedding = np.array(TOY["W_U"], np.float64)
    head = native.LMHead(unembedding.T, norm=native.LayerNorm())
    best = head.topk(TOY["y5"], 1)
    assert TOY["tokens"][int(best.indices[0])] == " roof"
    assert best.values[0] == pytest.approx(2.491, abs=2e-3)
    np.testing.assert_allclose(head.logits(TOY["y5"]), [TOY["logits"][t] for t in TOY["tokens"]], atol=2e-3)


def test_every_layout_and_other_libraries_tensors() -> None:
    expected = native.logits_topk(HIDDEN, WEIGHT, 5)
    sources = {**layouts(WEIGHT), "dlpack": dlpack(WEIGHT)}
    for name, weight in sources.items():
        for prepare in (True, False):
            head = native.LMHead(weight, screen="int8", prepare=prepare)
            oracle.assert_same_bits(head.topk(HIDDEN, 5).values, expected.values)
            assert head.memory["weight"] == (WEIGHT.nbytes if prepare else 0), name
    half = WEIGHT.astype(oracle.BFLOAT16)
    head = native.LMHead(dlpack(half))
    assert head.dtype == "bfloat16"
    oracle.assert_same_bits(head.logits(HIDDEN), native.logits(HIDDEN, half))


def test_it_outlives_what_it_was_made_from_and_results_outlive_it() -> None:
    weight, bias = WEIGHT.copy(), BIAS.copy()
    expected = native.logits_topk(HIDDEN, weight, 5, bias=bias)
    heads = [native.LMHead(weight, bias, screen="int8", prepare=prepare) for prepare in (True, False)]
    bias[:] = 0  # copied
    del weight
    gc.collect()
    results = [head.topk(HIDDEN, 5) for head in heads]
    heads[0].logits(HIDDEN)
    del heads
    gc.collect()
    for found in results:
        oracle.assert_same_bits(found.values, expected.values)


def test_a_prepared_head_does_not_see_later_writes() -> None:
    weight = WEIGHT.copy()
    head = native.LMHead(weight, screen="int8")
    expected = head.topk(HIDDEN, 5)
    weight[:] = 1
    oracle.assert_same_bits(head.topk(HIDDEN, 5).values, expected.values)


@pytest.mark.parametrize("screen", SCREENS)
def test_from_many_threads(screen: Any) -> None:
    head = native.LMHead(WEIGHT, screen=screen)
    expected = head.topk(HIDDEN, 5)
    gate = threading.Barrier(8)

    def call(_: int) -> native.TopK:
        gate.wait()
        return [head.topk(HIDDEN, 5, threads=1 + _ % 3) for _ in range(20)][-1]

    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(call, range(8)):
            oracle.assert_same_bits(found.values, expected.values)
            oracle.assert_same_bits(found.indices, expected.indices)


def test_automatic_screen_is_for_heads_larger_than_the_last_level_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 2**20 <= _core.last_level_cache_bytes() < 2**34
    monkeypatch.setattr(_core, "last_level_cache_bytes", lambda: WEIGHT.nbytes - 1)
    assert native.LMHead(WEIGHT).screen == "int8"
    assert native.LMHead(WEIGHT.astype(np.float64)).screen is None
    assert native.LMHead(native.quantize(WEIGHT)).screen is None
    monkeypatch.setattr(_core, "last_level_cache_bytes", lambda: WEIGHT.nbytes)
    assert native.LMHead(WEIGHT).screen is None


def test_properties_and_repr() -> None:
    head = native.LMHead(WEIGHT, BIAS, norm=native.RMSNorm(), softcap=30.0, screen="int8")
    assert (head.shape, head.dtype, head.screen, head.softcap, head.scale) == ((531, 40), "float32", "int8", 30.0, None)
    assert head.memory == {"weight": WEIGHT.nbytes, "screen": head.memory["screen"], "bias": BIAS.nbytes}
    assert head.memory["screen"] == 544 * (40 + 12)
    text = repr(head)
    for part in ("531 x 40", "float32", "RMSNorm(eps=1e-06)", "softcap=30.0", "screen='int8'"):
        assert part in text
    quantized = native.LMHead(native.quantize(WEIGHT, 4, 32))
    assert "int4" in quantized.dtype


def test_it_is_immutable() -> None:
    head = native.LMHead(WEIGHT, BIAS, norm=native.RMSNorm(BIAS[:40]))
    for name in ("shape", "softcap", "norm", "anything"):
        with pytest.raises(AttributeError, match="LMHead is immutable"):
            setattr(head, name, 1)
    assert head.bias is not None
    assert not head.bias.flags.writeable
    with pytest.raises(AttributeError, match="RMSNorm is immutable"):
        head.norm.eps = 1.0  # type: ignore[union-attr]
    with pytest.raises(AttributeError, match="RMSNorm is immutable"):
        del head.norm.eps  # type: ignore[union-attr]


def test_options_are_kept_by_value() -> None:
    softcap, eps = np.array(20.0), np.array(0.5)
    head = native.LMHead(WEIGHT, softcap=softcap, norm=native.RMSNorm(eps=eps))  # type: ignore[arg-type]
    expected = head.logits(HIDDEN)
    softcap[...], eps[...] = 1.0, 9.0
    oracle.assert_same_bits(head.logits(HIDDEN), expected)
    with pytest.raises(AttributeError, match="LMHead is immutable"):
        head.__init__(WEIGHT[:5])  # type: ignore[misc]


@pytest.mark.parametrize("bits", [8, 4])
def test_quantized_weights(each_isa: str, bits: int) -> None:
    weight = native.quantize(WEIGHT, bits, 32)
    expected = native.logits_topk(HIDDEN, weight.dequantize(), 9)
    for prepare in (True, False):
        found = native.LMHead(weight, prepare=prepare).topk(HIDDEN, 9)
        oracle.assert_same_bits(found.values, expected.values)
        oracle.assert_same_bits(found.indices, expected.indices)


def test_a_unit_row_finds_itself() -> None:
    """hidden = W[i] has its best logit at i: always for what keeps the rows apart, nearly always for int8."""
    units = RNG.standard_normal((3000, 64)).astype(np.float32)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    for dtype in oracle.NARROW:
        weight = units.astype(dtype)
        found = native.LMHead(weight, screen="int8").topk(weight, 1).indices[:, 0]
        np.testing.assert_array_equal(found, np.arange(3000))
    found = native.LMHead(native.quantize(units)).topk(units, 1).indices[:, 0]
    assert (found == np.arange(3000)).mean() >= 0.99


@pytest.mark.parametrize(
    ("arguments", "options", "exception", "message"),
    [
        ((WEIGHT[0],), {}, ValueError, "weight: expected shape (V, D), got shape (40,)"),
        ((WEIGHT.astype(np.int8),), {}, TypeError, "weight: expected a float32, float64, float16 or bfloat16 array"),
        ((WEIGHT, BIAS[:7]), {}, ValueError, "bias: expected shape (V,) with V = 531"),
        ((WEIGHT, np.ma.array(BIAS)), {}, TypeError, "bias: expected an array without a mask"),
        ((WEIGHT, ["a"] * 531), {}, TypeError, "bias: expected"),
        ((WEIGHT,), {"softcap": -1.0}, ValueError, "softcap: expected"),
        ((WEIGHT,), {"scale": np.inf}, ValueError, "scale: expected"),
        (
            (WEIGHT,),
            {"screen": np.array(["int8", "auto"])},
            ValueError,
            "screen: expected 'auto', 'int8' or None, got ",
        ),
        ((WEIGHT,), {"screen": "int4"}, ValueError, "screen: expected 'auto', 'int8' or None, got 'int4'"),
        ((WEIGHT.astype(np.float64),), {"screen": "int8"}, TypeError, "weight: expected float32, float16 or bfloat16"),
        ((WEIGHT,), {"prepare": "no"}, TypeError, "prepare: expected True or False, got 'no'"),
        (
            (np.zeros((1, 131073), "f4"),),
            {"screen": "int8"},
            TypeError,
            "weight: expected float32, float16 or bfloat16",
        ),
        ((native.quantize(WEIGHT),), {"screen": "int8"}, TypeError, "weight: expected float32, float16 or bfloat16"),
        ((WEIGHT,), {"norm": "rms"}, TypeError, "norm: expected an RMSNorm, a LayerNorm or None, got "),
        ((WEIGHT,), {"norm": native.RMSNorm(BIAS)}, ValueError, "gain: expected shape (D,) with D = 40"),
        ((WEIGHT,), {"threads": 0}, ValueError, "threads: expected"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)
def test_refusals(
    arguments: tuple[Any, ...], options: dict[str, Any], exception: type[Exception], message: str
) -> None:
    with pytest.raises(exception) as caught:
        native.LMHead(*arguments, **options)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("prepare", [True, False])
def test_gathered_rows(prepare: bool) -> None:
    ids = np.array([[3, 0], [530, 3]], np.uint16)
    for dtype in oracle.FLOATS:
        head = native.LMHead(WEIGHT.astype(dtype), prepare=prepare)
        wide = np.float64 if dtype == np.float64 else np.float32
        oracle.assert_same_bits(head.gather(ids), WEIGHT.astype(dtype).astype(wide)[ids])
    quantized = native.quantize(WEIGHT, 4, 32)
    oracle.assert_same_bits(native.LMHead(quantized, prepare=prepare).gather(ids), quantized.dequantize()[ids])
    with pytest.raises(IndexError, match="531"):
        native.LMHead(WEIGHT).gather([0, 531])
    with pytest.raises(TypeError, match=r"^ids: expected"):
        native.LMHead(WEIGHT).gather([0.5])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sequences_take_the_heads_dtype_through_a_norm(dtype: Any) -> None:
    head = native.LMHead(WEIGHT.astype(dtype), norm=native.RMSNorm())
    states = HIDDEN[0, 0].astype(dtype)
    oracle.assert_same_bits(head.logits(states.tolist()), head.logits(states))
    with pytest.raises(TypeError, match=r"^x: expected"):
        head.logits(["1", "2"])


def test_a_replaced_list_is_a_plain_one() -> None:
    found = native.LMHead(WEIGHT, screen="int8").topk(HIDDEN, 3)
    assert isinstance(found, native.ScreenedTopK)
    assert found.rescored.shape == (3, 2)
    assert type(found._replace(values=found.values)) is native.TopK
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.rescored, found.rescored)


def test_calls_refuse_in_the_words_of_their_functions() -> None:
    head = native.LMHead(WEIGHT, screen="int8")
    with pytest.raises(ValueError, match=r"^weight: expected shape \(V, D\) with D = 39 as in hidden"):
        head.topk(HIDDEN[..., :39], 3)
    with pytest.raises(ValueError, match=r"^k: expected an integer from 0 to V = 531, got 532"):
        head.topk(HIDDEN, 532)
    with pytest.raises(TypeError, match=r"^k: expected"):
        head.topk(HIDDEN, 2.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^softcap: expected no such option, as the head brings it, got 3\.0"):
        head.cross_entropy(HIDDEN, TARGETS, softcap=3.0)
    with pytest.raises(TypeError, match=r"^weight: expected float64 beside the float64 hidden, got float32"):
        head.topk(HIDDEN.astype(np.float64), 3)
