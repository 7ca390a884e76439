"""``LMHead.from_gguf`` and ``from_safetensors``, and ``lmhead-native topk``: files of every storage to logits.

Knows heads made from files. Refuses to know how files are read (test_gguf_files and its neighbours).
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
import model_file_writers as write
import oracle
from lmhead_native.cli import main, model
from model_file_writers import ARRAY, F32, STRING, Tensor, tensor

V, D = 70, 64
RNG = np.random.default_rng(11)
# Multiples of 1/8 up to 4: exact in every storage below, whose arithmetic therefore has one answer.
WEIGHT = (RNG.integers(-32, 33, (V, D)) / 8).astype(np.float32)
GAIN = (RNG.integers(1, 9, D) / 4).astype(np.float32)
HIDDEN = RNG.standard_normal((3, D)).astype(np.float32)
TOKENS = ["\u0120t" + chr(ord("a") + i % 26) + "x" * (i // 26) for i in range(V)]
ARRAYS: dict[str, NDArray[Any]] = {
    "F32": WEIGHT,
    "F16": WEIGHT.astype(np.float16),
    "BF16": WEIGHT.astype(ml_dtypes.bfloat16),
    "Q8_0": WEIGHT,
}


def stored(storage: str) -> Tensor:
    if storage == "Q8_0":
        integers, scales = (WEIGHT * 8).astype(np.int8), np.full((V, D // 32), 1 / 8, np.float16)
        return Tensor("token_embd.weight", "Q8_0", (V, D), write.q8_0(integers, scales))
    return tensor("token_embd.weight", WEIGHT, storage)


def gguf_file(
    folder: Path, storage: str, pairs: list[tuple[str, int, Any]] | None = None, tokens: list[str] = TOKENS
) -> Path:
    path = folder / f"{storage}.gguf"
    metadata = [
        ("general.architecture", STRING, "llama"),
        ("llama.attention.layer_norm_rms_epsilon", F32, 0.25),
        ("tokenizer.ggml.model", STRING, "gpt2"),
        ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
    ]
    path.write_bytes(write.gguf(metadata + (pairs or []), [stored(storage), tensor("output_norm.weight", GAIN)]))
    return path


def safetensors_folder(folder: Path, storage: str) -> Path:
    named = [stored(storage)._replace(name="lm_head.weight"), tensor("model.norm.weight", GAIN, "F16")]
    (folder / "model.safetensors").write_bytes(write.safetensors(named, pad=1))  # data at an odd offset
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "rms_norm_eps": 0.25}))
    return folder


@pytest.mark.parametrize("prepare", [True, False])
@pytest.mark.parametrize("screen", [None, "int8"])
@pytest.mark.parametrize("storage", ARRAYS)
def test_gguf_storages(tmp_path: Path, each_isa: str, storage: str, screen: Any, prepare: bool) -> None:
    path = gguf_file(tmp_path, storage)
    if storage == "Q8_0" and screen == "int8":
        with pytest.raises(TypeError, match=r"^weight: expected float32, float16 or bfloat16"):
            native.LMHead.from_gguf(path, screen=screen, prepare=prepare)
        return
    head = native.LMHead.from_gguf(path, screen=screen, prepare=prepare)
    assert (head.shape, head.source, head.norm) == ((V, D), str(path), None)
    oracle.assert_same_bits(head.logits(HIDDEN), native.logits(HIDDEN, ARRAYS[storage]))
    oracle.assert_same_bits(head.topk(HIDDEN, 5).indices, native.logits_topk(HIDDEN, WEIGHT, 5).indices)


@pytest.mark.parametrize("storage", ["F32", "F16", "BF16"])
def test_safetensors_storages(tmp_path: Path, each_isa: str, storage: str) -> None:
    folder = safetensors_folder(tmp_path, storage)
    for path in (folder, folder / "model.safetensors"):
        head = native.LMHead.from_safetensors(path, screen="int8")
        oracle.assert_same_bits(head.logits(HIDDEN), native.logits(HIDDEN, ARRAYS[storage]))
        oracle.assert_same_bits(head.topk(HIDDEN, 5).values, native.logits_topk(HIDDEN, ARRAYS[storage], 5).values)


@pytest.mark.parametrize("kind", ["gguf", "safetensors"])
def test_the_files_norm_on_request(tmp_path: Path, kind: str) -> None:
    if kind == "gguf":
        head = native.LMHead.from_gguf(gguf_file(tmp_path, "F16"), norm=True)
    else:
        head = native.LMHead.from_safetensors(safetensors_folder(tmp_path, "F16"), norm=True)
    states = native.rms_norm(HIDDEN, GAIN, eps=0.25)
    oracle.assert_same_bits(head.logits(HIDDEN), native.logits(states, ARRAYS["F16"]))


def test_softcap_and_scale_of_the_metadata(tmp_path: Path) -> None:
    pairs = [("llama.final_logit_softcapping", F32, 8.0), ("llama.logit_scale", F32, 0.5)]
    head = native.LMHead.from_gguf(gguf_file(tmp_path, "F32", pairs))
    assert (head.softcap, head.scale) == (16.0, 0.5)
    expected = 8 * np.tanh(0.5 * native.logits(HIDDEN, WEIGHT).astype(float) / 8)  # models that have both scale first
    np.testing.assert_allclose(head.logits(HIDDEN), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (
            ("llama.logit_scale", ARRAY, (F32, [0.25])),
            "llama.logit_scale: expected a number or a short text, got ",
        ),
        (("llama.final_logit_softcapping", STRING, "8" * 5000), "llama.final_logit_softcapping: expected a number or "),
        (("split.count", ARRAY, (F32, [2.0])), "split.count: expected a number or a short text, got an array"),
    ],
    ids=["scale", "softcap", "split"],
)
def test_metadata_of_the_wrong_kind(tmp_path: Path, pair: tuple[str, int, Any], message: str) -> None:
    path = gguf_file(tmp_path, "F32", [pair])
    with pytest.raises(ValueError, match=re.escape(f"{path}: {message}")):
        native.LMHead.from_gguf(path)


def test_a_config_that_cannot_be_read_is_no_absent_one(tmp_path: Path) -> None:
    folder = safetensors_folder(tmp_path, "F32")
    (folder / "config.json").write_text('{"model_type": ["gemma2"]}')
    with pytest.raises(ValueError, match=r"config\.json: model_type: expected a text, got an array"):
        native.LMHead.from_safetensors(folder)
    (folder / "config.json").write_text('{"tie_word_embeddings": "no"}')
    with pytest.raises(ValueError, match=r"config\.json: tie_word_embeddings: expected true or false, got a"):
        native.LMHead.from_safetensors(folder)
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to(tmp_path / "gone")
    with pytest.raises(FileNotFoundError):
        native.LMHead.from_safetensors(folder)


def test_the_mapping_outlives_the_name_of_the_file(tmp_path: Path) -> None:
    path = gguf_file(tmp_path, "Q8_0")
    head = native.LMHead.from_gguf(path, prepare=False)
    path.unlink()
    gc.collect()
    oracle.assert_same_bits(head.logits(HIDDEN), native.logits(HIDDEN, WEIGHT))


def test_damage_is_a_value_error_with_file_and_field(tmp_path: Path) -> None:
    path = gguf_file(tmp_path, "F32")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"F32\.gguf: output_norm\.weight: expected data inside the file"):
        native.LMHead.from_gguf(path)
    with pytest.raises(FileNotFoundError):
        native.LMHead.from_gguf(tmp_path / "absent.gguf")


# --- lmhead-native topk ---------------------------------------------------------------------------------------------


@pytest.fixture
def states(tmp_path: Path) -> str:
    path = tmp_path / "states.npy"
    np.save(path, HIDDEN)
    return str(path)


def test_topk_prints_ids_texts_and_logits(tmp_path: Path, states: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(gguf_file(tmp_path, "Q8_0"))
    expected = native.logits_topk(HIDDEN, WEIGHT, 4)
    assert main(["topk", path, "--hidden", states, "-k", "4", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["ids"] for line in lines] == expected.indices.tolist()
    assert [line["logits"] for line in lines] == expected.values.tolist()
    assert lines[0]["tokens"] == [TOKENS[i].replace("\u0120", " ") for i in expected.indices[0]]
    assert main(["topk", path, "--hidden", states, "-k", "1"]) == 0
    shown = capsys.readouterr().out.split()
    assert shown[:3] == ["0", str(expected.indices[0, 0]), '"']
    assert f"{expected.values[2, 0]:.4f}" == shown[-1]


@pytest.mark.parametrize("arguments", [[], ["--norm"], ["--screen", "int8"], ["--screen", "none"]], ids=" ".join)
def test_topk_of_a_folder(
    tmp_path: Path, states: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = safetensors_folder(tmp_path, "BF16")
    assert main(["topk", str(folder), "--hidden", states, "--json", *arguments]) == 0
    hidden = native.rms_norm(HIDDEN, GAIN, eps=0.25) if "--norm" in arguments else HIDDEN
    expected = native.logits_topk(hidden, ARRAYS["BF16"], 5)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["ids"] for line in lines] == expected.indices.tolist()
    assert "tokens" not in lines[0]


def test_topk_of_a_head_with_more_rows_than_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = gguf_file(tmp_path, "F32", tokens=TOKENS[:3])
    hidden = HIDDEN.copy()
    hidden[1] = np.nan
    np.save(tmp_path / "some.npy", hidden)
    assert main(["topk", str(path), "--hidden", str(tmp_path / "some.npy"), "--json", "-k", "70"]) == 0
    lines = [json.loads(line, parse_constant=pytest.fail) for line in capsys.readouterr().out.splitlines()]
    assert sorted(lines[0]["tokens"])[:2] == [" ta", " tb"]
    assert "<69>" in lines[0]["tokens"]
    assert lines[1]["logits"] == ["nan"] * 70


def test_topk_reads_archives_and_half_precision(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(gguf_file(tmp_path, "F32"))
    np.savez(tmp_path / "states.npz", other=np.zeros(3), hidden=HIDDEN.astype(np.float16).reshape(1, 3, D))
    assert main(["topk", path, "--hidden", str(tmp_path / "states.npz"), "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    expected = native.logits_topk(HIDDEN.astype(np.float16), WEIGHT, 5)
    assert [line["logits"] for line in lines] == expected.values.tolist()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.zeros((2, D - 1), np.float32), "expected states of width 64 as of {model}, got 63"),
        (np.zeros((2, D), np.int64), "expected float32, float16 or float64 hidden states, got int64"),
        (np.float32(3), "expected shape (..., D), D > 0, got shape ()"),
        (np.zeros((3, 0), np.float32), "expected shape (..., D), D > 0, got shape (3, 0)"),
        (b"PK\x03\x04 and then nothing", "expected a .npy or .npz file, got one that NumPy cannot read"),
        (b"no array", "expected a .npy or .npz file, got one that NumPy cannot read"),
        (b"", "expected a .npy or .npz file, got one that NumPy cannot read"),
    ],
    ids=["width", "integers", "scalar", "no width", "archive", "text", "empty"],
)
def test_topk_refuses_states(tmp_path: Path, content: Any, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    path, states = gguf_file(tmp_path, "F32"), tmp_path / "states.npy"
    if isinstance(content, bytes):
        states.write_bytes(content)
    else:
        np.save(states, content)
    assert main(["topk", str(path), "--hidden", str(states)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"lmhead-native: error: {states}: {message.format(model=path)}")
    assert error.count("\n") == 1


def test_topk_refuses_other_things(tmp_path: Path, states: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(gguf_file(tmp_path, "F32"))
    assert main(["topk", path, "--hidden", states, "-k", "71"]) == 2
    assert "argument -k: expected at most V = 70 of" in capsys.readouterr().err
    assert main(["topk", path, "--hidden", str(tmp_path / "absent.npy")]) == 1
    assert capsys.readouterr().err.startswith(f"lmhead-native: error: {tmp_path / 'absent.npy'}: No such file")
    assert main(["topk", str(gguf_file(tmp_path, "Q8_0")), "--hidden", states, "--screen", "int8"]) == 1
    assert "Q8_0.gguf: weight: expected float32, float16 or bfloat16" in capsys.readouterr().err
    assert main(["topk", states, "--hidden", states]) == 1
    assert "states.npy: magic: expected b'GGUF', got" in capsys.readouterr().err
    os.mkfifo(tmp_path / "pipe")
    assert main(["topk", path, "--hidden", str(tmp_path / "pipe")]) == 1
    assert "pipe: expected a file, got a folder, pipe or device" in capsys.readouterr().err
    np.savez(tmp_path / "states.npz", other=HIDDEN)
    assert main(["topk", path, "--hidden", str(tmp_path / "states.npz")]) == 1
    assert "expected an array named 'hidden', got other" in capsys.readouterr().err


# --- the real file --------------------------------------------------------------------------------------------------


@pytest.mark.model
def test_the_real_model(each_isa: str) -> None:
    data = Path(__file__).parent / "data" / "smollm2_passage.npz"
    passage = np.load(data)
    head = native.LMHead.from_gguf(model.model_file())
    assert head.dtype == "int8"
    best = head.topk(passage["hidden"], 5)
    np.testing.assert_array_equal(best.indices, passage["top5_ids"])
    logsumexp = native.logsumexp(head.logits(passage["hidden"]))
    np.testing.assert_allclose(logsumexp, passage["logsumexp"], atol=1e-5, rtol=0)


@pytest.mark.model
def test_the_real_model_prepared_in_every_way(each_isa: str) -> None:
    """The screen, the blocks of the file and the dequantised matrix give the same bits for real hidden states."""
    found = importlib.import_module("lmhead_native.cli.model").read_model(model.model_file())
    hidden = np.load(Path(__file__).parent / "data" / "smollm2_passage.npz")["hidden"]
    expected = native.logits_topk(hidden, found.weight_vd, 50)
    screened = native.LMHead(found.weight_vd, screen="int8")
    for k in (1, 10, 50):
        for rows in (hidden[:1], hidden[7:15]):
            one = screened.topk(rows, k)
            first = 0 if len(rows) == 1 else 7
            oracle.assert_same_bits(one.values, expected.values[first : first + len(rows), :k])
            oracle.assert_same_bits(one.indices, expected.indices[first : first + len(rows), :k])
    blocks = found.head.topk(hidden, 50)
    oracle.assert_same_bits(blocks.values, expected.values)
    oracle.assert_same_bits(blocks.indices, expected.indices)
