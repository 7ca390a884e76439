"""The transformer that feeds the head, beside an oracle in float64 without a cache, and with the real model."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lmhead_native.cli import body as body_module
from lmhead_native.cli import model
from lmhead_native.cli.body import Cache
from lmhead_native.cli.body_file import read_body
from model_file_writers import F32, STRING, U32
from tiny_llama import PIECES, Tiny

IDS = np.random.default_rng(1).integers(0, len(PIECES), 19).tolist()
# Some 300 float32 roundings (2^-24 each) of values about 1 lie between an embedding and its state; a wrong rotation,
# mask or head is off by 0.1 and more.
TOLERANCE = 1e-5

MODELS = {
    "plain": Tiny(),
    "half of a head rotated": Tiny(rotated=4),
    "a key head for each head": Tiny(heads=2),
    "heads as wide as the states": Tiny(heads=4, key_heads=4),
    "one key head": Tiny(key_heads=1),
    "stored in pieces": Tiny(
        storage={"token_embd": "Q8_0", "attn_q": "F16", "attn_v": "BF16", "ffn_up": "Q8_0", "attn_norm": "F16"}
    ),
    "a head of its own": Tiny(untied=True, storage={"token_embd": "BF16"}),
}


@pytest.mark.parametrize("tiny", MODELS.values(), ids=MODELS)
def test_a_prompt_at_once(tiny: Tiny, tmp_path: Path) -> None:
    body = read_body(tiny.write(tmp_path))
    hidden = body(IDS, Cache(body.config, len(IDS)))
    assert hidden.dtype == np.float32
    np.testing.assert_allclose(hidden, tiny.states(IDS), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("cuts", [[1] * 19, [7, 1, 1, 5, 1, 4], [18, 1], [2, 17]])
@pytest.mark.parametrize("at_once", [256, 3])
def test_cached_steps_are_the_whole(
    cuts: list[int], at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_module, "QUERIES_AT_ONCE", at_once)
    body = read_body(Tiny().write(tmp_path))
    cache = Cache(body.config, 25)
    ends = np.cumsum(cuts).tolist()
    parts = [body(IDS[end - size : end], cache) for size, end in zip(cuts, ends, strict=True)]
    assert cache.length == len(IDS)
    np.testing.assert_allclose(np.concatenate(parts), Tiny().states(IDS), atol=TOLERANCE, rtol=0)


def test_a_full_cache_is_refused(tmp_path: Path) -> None:
    body = read_body(Tiny().write(tmp_path))
    cache = Cache(body.config, 3)
    body(IDS[:2], cache)
    with pytest.raises(ValueError, match=r"^cache: expected room for 4 positions, got 3$"):
        body(IDS[2:4], cache)
    assert cache.length == 2


def test_keys_that_may_be_missing(tmp_path: Path) -> None:
    """Heads that fill the width, a key head each, wholly rotated with base 10000."""
    usual = Tiny(heads=4, key_heads=4)
    names = ("attention.head_count_kv", "attention.key_length", "attention.value_length", "rope.dimension_count")
    body = read_body(usual.changed(pairs={f"llama.{name}": None for name in names}).write(tmp_path))
    np.testing.assert_allclose(body(IDS, Cache(body.config, 19)), usual.states(IDS), atol=TOLERANCE, rtol=0)
    config = read_body(usual.changed(pairs={"llama.rope.freq_base": None}).write(tmp_path)).config
    assert config.rope_base == 10000


def test_gates_far_below_zero(tmp_path: Path) -> None:
    """exp of them overflows, which is no warning."""
    tiny = Tiny(layers=1)
    tiny.weights["blk.0.ffn_gate"] *= 4096
    body = read_body(tiny.write(tmp_path))
    assert np.isfinite(body(IDS, Cache(body.config, 19))).all()


def test_progress_counts_layers(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    read_body(Tiny(layers=3).write(tmp_path), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({"general.architecture": (STRING, "gemma")}, "general.architecture: expected 'llama', got 'gemma'"),
        ({"general.architecture": None}, "general.architecture: expected 'llama', got none"),
        ({"llama.block_count": None}, "llama.block_count: expected an integer from 1 to 16384, got none"),
        ({"llama.block_count": (U32, 0)}, "llama.block_count: expected an integer from 1 to 16384, got 0"),
        ({"llama.block_count": (U32, 3)}, "blk.2.attn_norm.weight: expected a tensor of that name, got none"),
        ({"llama.block_count": (U32, 1)}, "blk.1.attn_norm.weight: expected no tensor but those of 1 plain llama"),
        ({"llama.embedding_length": (F32, 32.0)}, "llama.embedding_length: expected an integer from 1 to "),
        ({"llama.embedding_length": (U32, 64)}, "blk.0.attn_norm.weight: expected shape (64,)"),
        ({"llama.feed_forward_length": (U32, 2**31)}, "blk.0.ffn_gate.weight: expected shape (2147483648, 32), got "),
        ({"llama.attention.head_count_kv": (U32, 4)}, "llama.attention.head_count: expected a multiple of the 4 key "),
        ({"llama.attention.key_length": (U32, 2**30)}, "llama.attention.value_length: expected 1073741824, the length"),
        (
            {"llama.rope.dimension_count": (U32, 7)},
            "llama.rope.dimension_count: expected an even number up to 8",
        ),
        (
            {"llama.rope.dimension_count": (U32, 10)},
            "llama.rope.dimension_count: expected an even number up to 8",
        ),
        ({"llama.rope.freq_base": (F32, 0.0)}, "llama.rope.freq_base: expected a number above 0, got 0"),
        ({"llama.rope.freq_base": (F32, np.nan)}, "llama.rope.freq_base: expected a finite number, got nan"),
        ({"llama.rope.scaling.type": (STRING, "yarn")}, "llama.rope.scaling.type: expected 'none' or none, got 'yarn'"),
        ({"llama.expert_count": (U32, 8)}, "llama.expert_count: expected 0 or none, got 8"),
        ({"split.count": (U32, 2)}, "split.count: expected a model in one file, got a part of 2"),
    ],
)
def test_files_that_are_refused(pairs: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = Tiny(pairs=pairs).write(tmp_path)
    with pytest.raises(ValueError) as caught:
        read_body(path)
    assert str(caught.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("blk.0.attn_q_norm", (8,), "blk.0.attn_q_norm.weight: expected no tensor but those of 2 plain llama layers"),
        ("blk.7.attn_q", (48, 32), "blk.7.attn_q.weight: expected no tensor but those of 2 plain llama layers"),
        ("rope_freqs", (4,), "rope_freqs.weight: expected no tensor but those of 2 plain llama layers"),
        ("output_norm", (31,), "output_norm.weight: expected shape (32,)"),
        ("token_embd", (300, 31), "token_embd.weight: expected rows of 32 elements, got shape (300, 31)"),
        ("blk.1.ffn_down", (40, 32), "blk.1.ffn_down.weight: expected shape (32, 40), got shape (40, 32)"),
    ],
)
def test_tensors_that_are_refused(name: str, shape: tuple[int, ...], message: str, tmp_path: Path) -> None:
    tiny = Tiny()
    tiny.weights[name] = np.ones(shape)
    path = tiny.write(tmp_path)
    with pytest.raises(ValueError) as caught:
        read_body(path)
    assert str(caught.value).startswith(f"{path}: {message}")


@pytest.mark.model
def test_the_real_model_gives_the_stored_states() -> None:
    """Those of Hugging Face's implementation, of numbers up to 50, and those of single steps behind a prompt."""
    body = read_body(model.model_file())
    demo = files("lmhead_native") / "data" / "smollm2_demo.npz"
    for stored in (Path(__file__).parent / "data" / "smollm2_passage.npz", demo):
        with stored.open("rb") as stream, np.load(stream) as arrays:
            ids, expected = arrays["ids"].tolist(), arrays["hidden"]
        cache = Cache(body.config, len(ids))
        hidden = np.concatenate([body(ids[:-3], cache), *(body([token], cache) for token in ids[-3:])])
        np.testing.assert_allclose(hidden, expected, atol=5e-4, rtol=0)
