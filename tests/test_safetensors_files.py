"""safetensors checkpoints: single files, shards, and the head that is found in them

Files come from the writer beside, which shares no code with the reader; the safetensors package writes some where it
is installed. Damaged files stand in test_damaged_files.py.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import model_file_writers as write
from fresh import output
from lmhead_native._model_files import FoundHead, find_safetensors_head
from lmhead_native._model_files.safetensors import SafetensorsFile
from model_file_samples import floats
from model_file_writers import Tensor, tensor

V, D = 5, 6
GENERATOR = np.random.default_rng(12)
WEIGHT = GENERATOR.integers(-8, 8, (V, D)).astype(np.float32) / 4
EMBEDDING = WEIGHT[::-1].copy()
GAIN = GENERATOR.integers(1, 8, D).astype(np.float32) / 4
BIAS = np.arange(V, dtype=np.float32)
LLAMA = {"model_type": "llama", "rms_norm_eps": 0.5, "tie_word_embeddings": False}


def head_of(folder: Path, tensors: list[Tensor], config: dict[str, Any] | None = None) -> FoundHead:
    (folder / "model.safetensors").write_bytes(write.safetensors(tensors))
    (folder / "config.json").unlink(missing_ok=True)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return find_safetensors_head(folder)


# --- the file --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("storage", "dtype"), [("F32", np.float32), ("F16", np.float16), ("BF16", np.uint16)])
@pytest.mark.parametrize("pad", range(5))
def test_head_is_mapped_at_any_offset(storage: str, dtype: type, pad: int, tmp_path: Path) -> None:
    tensors = [
        Tensor("model.layers.0.flags", "BOOL", (1,), b"\1"),
        tensor("lm_head.weight", WEIGHT, storage),
        tensor("model.embed_tokens.weight", EMBEDDING, storage),
        tensor("model.norm.weight", GAIN, storage),
    ]
    path = tmp_path / "any.safetensors"
    path.write_bytes(write.safetensors(tensors, pad=pad))
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    head = find_safetensors_head(path)
    file = SafetensorsFile(path)
    assert (file.tensors["lm_head.weight"].offset - file.tensors["model.layers.0.flags"].offset) == 1
    assert (head.weight.storage, head.weight.shape, head.weight.data.dtype.type) == (storage, (V, D), dtype)
    assert not head.weight.data.flags.writeable
    assert not head.weight.data.flags.owndata
    assert_array_equal(floats(head), WEIGHT)
    assert_array_equal(np.ascontiguousarray(head.weight.data[1:4, ::-2]), head.weight.data.copy()[1:4, ::-2])
    assert head.norm is not None
    assert (head.norm.kind, head.norm.bias, head.norm.eps) == ("rms", None, 0.5)
    assert_array_equal(head.norm.gain, GAIN)
    assert (head.architecture, head.bias, head.softcap, head.scale, head.notes) == ("llama", None, None, None, ())
    assert head.paths == (path, tmp_path / "config.json")


def test_mapping_outlives_the_file_s_name(tmp_path: Path) -> None:
    head = head_of(tmp_path, [tensor("lm_head.weight", WEIGHT)])
    (tmp_path / "model.safetensors").unlink()
    assert_array_equal(floats(head), WEIGHT)


def test_float64_head_is_rounded(tmp_path: Path) -> None:
    head = head_of(tmp_path, [tensor("lm_head.weight", np.array([[1 / 3, 1e300]]), "F64")], LLAMA)
    assert_array_equal(head.weight.data, np.array([[1 / 3, np.inf]], np.float32))
    assert head.notes == ("lm_head.weight is F64 in the file: rounded to float32",)


@pytest.mark.parametrize("dtype", ["I8", "U8", "I32", "F8_E4M3", "F8_E5M2", "I64", "BOOL"])
def test_packed_heads_are_refused(dtype: str, tmp_path: Path) -> None:
    data = bytes(V * D * {"I32": 4, "I64": 8}.get(dtype, 1))
    message = rf"model\.safetensors: lm_head\.weight\.dtype: expected F32, F16, BF16 or F64, got {dtype}$"
    with pytest.raises(ValueError, match=message):
        head_of(tmp_path, [Tensor("lm_head.weight", dtype, (V, D), data)], LLAMA)


def test_bfloat16_needs_no_other_package(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(write.safetensors([tensor("lm_head.weight", WEIGHT, "BF16")]))
    code = (
        "import sys; sys.modules.update(torch=None, ml_dtypes=None, safetensors=None, gguf=None)\n"
        "from lmhead_native._model_files import find_safetensors_head\n"
        f"print(find_safetensors_head({str(tmp_path)!r}).weight.data.sum())"
    )
    assert int(output(code)) == (WEIGHT.view(np.uint32) >> 16).sum()


def test_files_of_the_package_s_writer(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    arrays = {"lm_head.weight": WEIGHT, "model.norm.weight": GAIN.astype(np.float16), "x": np.zeros((0, 3), np.int8)}
    numpy.save_file(arrays, tmp_path / "model.safetensors", metadata={"format": "np"})
    head = find_safetensors_head(tmp_path)
    assert_array_equal(floats(head), WEIGHT)
    assert head.norm is not None
    assert_array_equal(head.norm.gain, GAIN)


# --- several files ---------------------------------------------------------------------------------------------------


def write_shards(folder: Path) -> Path:
    """Write a model in three parts, the last of which is not needed and not there, and return its index."""
    first, second = "model-00001-of-00003.safetensors", "sub/model-00002-of-00003.safetensors"
    (folder / "sub").mkdir()
    (folder / first).write_bytes(write.safetensors([tensor("model.embed_tokens.weight", EMBEDDING)]))
    last = [tensor("lm_head.weight", WEIGHT), tensor("model.norm.weight", GAIN)]
    (folder / second).write_bytes(write.safetensors(last))
    files = {
        "model.embed_tokens.weight": first,
        "lm_head.weight": second,
        "model.norm.weight": second,
        "model.layers.0.mlp.weight": "model-00003-of-00003.safetensors",
    }
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": files}))
    return index


def test_sharded_checkpoint(tmp_path: Path) -> None:
    index = write_shards(tmp_path)
    for path in (tmp_path, index, str(index)):
        head = find_safetensors_head(path)
        assert_array_equal(floats(head), WEIGHT)
        assert head.norm is not None
        assert_array_equal(head.norm.gain, GAIN)
        assert head.paths == (tmp_path / "sub/model-00002-of-00003.safetensors",)


def test_one_part_of_several_is_refused(tmp_path: Path) -> None:
    write_shards(tmp_path)
    with pytest.raises(ValueError, match=r"00001-of-00003\.safetensors: file: expected the folder or its index"):
        find_safetensors_head(tmp_path / "model-00001-of-00003.safetensors")
    only = tmp_path / "model-00001-of-00001.safetensors"
    only.write_bytes(write.safetensors([tensor("lm_head.weight", WEIGHT)]))
    assert_array_equal(floats(find_safetensors_head(only)), WEIGHT)


@pytest.mark.parametrize(
    "name",
    ["../x.safetensors", "/etc/passwd", "a/../../x", "..", ".", "", "a//b", "..\\x", "C:x", "a\0b", "\ud800", "./x"],
)
def test_shards_outside_the_folder_are_refused(name: str, tmp_path: Path) -> None:
    index = write_shards(tmp_path)
    content = json.loads(index.read_text())
    content["weight_map"]["lm_head.weight"] = name
    index.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"weight_map\.lm_head\.weight: expected a file inside the folder, got "):
        find_safetensors_head(tmp_path)


def test_shards_that_are_not_what_the_index_says(tmp_path: Path) -> None:
    index = write_shards(tmp_path)
    content = json.loads(index.read_text())

    def with_head_in(name: Any) -> None:
        content["weight_map"]["lm_head.weight"] = name
        index.write_text(json.dumps(content))

    with_head_in("model-00001-of-00003.safetensors")
    with pytest.raises(ValueError, match=r"lm_head\.weight: expected a tensor of that name, as model.*json says, got"):
        find_safetensors_head(tmp_path)
    with_head_in(index.name)  # the index itself: its first bytes are no length
    with pytest.raises(ValueError, match=r"index\.json: header length: expected at most"):
        find_safetensors_head(tmp_path)
    with_head_in("sub")
    with pytest.raises(IsADirectoryError):
        find_safetensors_head(tmp_path)
    with_head_in("not-there.safetensors")
    with pytest.raises(FileNotFoundError):
        find_safetensors_head(tmp_path)
    with_head_in(7)
    with pytest.raises(ValueError, match=r"weight_map\.lm_head\.weight: expected a file name, got a number"):
        find_safetensors_head(tmp_path)
    index.write_text(json.dumps({"weight_map": []}))
    with pytest.raises(ValueError, match=r"weight_map: expected an object, got an array"):
        find_safetensors_head(tmp_path)


# --- names and ties --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "norm"),
    [
        ("lm_head", "model.norm"),
        ("embed_out", "gpt_neox.final_layer_norm"),
        ("output", "norm"),
        ("language_model.lm_head", "language_model.model.norm"),
        ("lm_head", "model.language_model.norm"),
        ("transformer.output_layer", "transformer.encoder.final_layernorm"),
        ("lm_head", "model.final_layernorm"),
        ("lm_head", "backbone.norm_f"),
        ("lm_head", "model.embedding_norm"),
        ("head", "rwkv.ln_out"),
        ("lm_head.linear", "lm_head.ln"),
    ],
)
def test_names_of_heads_and_norms(head: str, norm: str, tmp_path: Path) -> None:
    tensors = [
        tensor("model.embed_tokens.weight", EMBEDDING),
        tensor("model.layers.0.input_layernorm.weight", -GAIN),
        tensor(f"{norm}.weight", GAIN),
        tensor(f"{head}.weight", WEIGHT),
        tensor(f"{head}.bias", BIAS),
    ]
    found = head_of(tmp_path, tensors, LLAMA)
    assert_array_equal(floats(found), WEIGHT)
    assert_array_equal(found.bias, BIAS)
    assert found.norm is not None
    assert_array_equal(found.norm.gain, GAIN)


@pytest.mark.parametrize(
    "name",
    [
        "model.embed_tokens",
        "embed_tokens",
        "transformer.wte",
        "wte",
        "gpt_neox.embed_in",
        "model.language_model.embed_tokens",
        "language_model.model.embed_tokens",
        "transformer.word_embeddings",
        "word_embeddings",
        "model.decoder.embed_tokens",
        "backbone.embeddings",
        "model.tok_embeddings",
        "shared",
    ],
)
def test_names_of_tied_embeddings(name: str, tmp_path: Path) -> None:
    tensors = [tensor(f"{name}.weight", EMBEDDING), tensor("lm_head.bias", BIAS)]
    found = head_of(tmp_path, tensors, {**LLAMA, "tie_word_embeddings": True})
    assert_array_equal(floats(found), EMBEDDING)
    assert_array_equal(found.bias, BIAS)
    assert (found.norm, found.notes) == (None, (f"tied: the head is {name}.weight",))


def test_ties_that_config_and_file_disagree_about(tmp_path: Path) -> None:
    embedding, head = tensor("model.embed_tokens.weight", EMBEDDING), tensor("lm_head.weight", WEIGHT)
    with pytest.raises(ValueError, match=r"lm_head\.weight: expected that tensor, as config\.json says tie_word_embed"):
        head_of(tmp_path, [embedding], LLAMA)
    found = head_of(tmp_path, [embedding, head], {**LLAMA, "tie_word_embeddings": True})
    assert_array_equal(floats(found), WEIGHT)
    assert "which is used" in found.notes[0]
    with pytest.raises(ValueError, match=r"lm_head\.weight: expected that tensor or an embedding.*, got neither"):
        head_of(tmp_path, [tensor("something.weight", WEIGHT)], LLAMA)
    # The language model's own word counts for more.
    nested = {"tie_word_embeddings": False, "text_config": {"tie_word_embeddings": True, "rms_norm_eps": 0.25}}
    assert_array_equal(floats(head_of(tmp_path, [embedding], nested)), EMBEDDING)


def test_without_config(tmp_path: Path) -> None:
    found = head_of(tmp_path, [tensor("model.embed_tokens.weight", EMBEDDING), tensor("model.norm.weight", GAIN)])
    assert found.norm is not None
    assert (found.norm.kind, found.norm.eps, found.architecture) == ("rms", 1e-6, None)
    assert found.notes == (
        "tied: the head is model.embed_tokens.weight",
        "no config.json beside the file: no scale and no softcap assumed",
        "no epsilon of the final norm in the file: 1e-06 assumed",
    )


def test_header_s_metadata_is_no_tensor(tmp_path: Path) -> None:
    head = tensor("lm_head.weight", WEIGHT)
    header = {"__metadata__": {"format": "pt"}, **write.safetensors_header([head])}
    path = tmp_path / "m.safetensors"
    path.write_bytes(write.safetensors([head], header=header))
    assert list(SafetensorsFile(path).tensors) == ["lm_head.weight"]
    assert struct.unpack("<Q", path.read_bytes()[:8])[0] == SafetensorsFile(path).tensors["lm_head.weight"].offset - 8
