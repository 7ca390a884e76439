"""Families of models: what their files say, or do not say, about norm, scale and softcap of the head.

Every line of these tables is a fact about a family's files; the readers are tested next door.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import model_file_writers as write
from lmhead_native._model_files import FoundHead, find_gguf_head, find_safetensors_head
from lmhead_native._model_files.found_head import softcap_of_scaled
from model_file_writers import F32, STRING, Tensor, tensor

V, D = 5, 32
WEIGHT = np.arange(V * D, dtype=np.float32).reshape(V, D)
EMBEDDING = WEIGHT[::-1].copy()
GAIN = (np.arange(D, dtype=np.float32) + 1) / 4
LLAMA = {"model_type": "llama", "rms_norm_eps": 0.5, "tie_word_embeddings": False}


def gguf_head(folder: Path, pairs: list[tuple[str, int, Any]], tensors: list[Tensor]) -> FoundHead:
    path = folder / "model.gguf"
    path.unlink(missing_ok=True)
    path.write_bytes(write.gguf(pairs, tensors))
    return find_gguf_head(path)


def safetensors_head(folder: Path, tensors: list[Tensor], config: dict[str, Any]) -> FoundHead:
    path = folder / "model.safetensors"
    path.unlink(missing_ok=True)
    path.write_bytes(write.safetensors(tensors))
    (folder / "config.json").write_text(json.dumps(config))
    return find_safetensors_head(folder)


# --- GGUF ------------------------------------------------------------------------------------------------------------


def parametric(architecture: str, **numbers: float) -> list[tuple[str, int, Any]]:
    pairs = [(f"{architecture}.{name.replace('__', '.')}", F32, number) for name, number in numbers.items()]
    return [("general.architecture", STRING, architecture), *pairs]


@pytest.mark.parametrize(
    ("architecture", "numbers", "softcap", "scale"),
    [
        ("command-r", {"logit_scale": 0.0625}, None, 0.0625),
        ("cohere2", {"logit_scale": 0.25}, None, 0.25),
        ("granite", {"logit_scale": 8.0}, None, 0.125),
        ("granitemoe", {"logit_scale": 8.0}, None, 0.125),
        ("granitehybrid", {"logit_scale": 4.0}, None, 0.25),
        ("minicpm", {"logit_scale": 2.0}, None, 0.5),
        ("minicpm", {}, None, 256 / D),
        ("minicpm3", {}, None, 256 / D),
        ("grok", {}, None, 0.5773502691896257),
        ("grok", {"logit_scale": -0.5, "final_logit_softcapping": 30.0}, 60.0, -0.5),
        ("grok", {"logit_scale": 0.5, "final_logit_softcapping": 30.0}, 60.0, 0.5),
        ("gemma2", {"final_logit_softcapping": 20.0}, 20.0, None),
        ("gemma2", {}, 30.0, None),
        ("gemma3", {"final_logit_softcapping": 0.0}, None, None),
        ("llama", {"logit_scale": 1.0}, None, None),
        ("llama", {"logit_scale": 0.0}, None, None),
        ("llama", {}, None, None),
    ],
)
def test_gguf_scale_and_softcap(
    architecture: str, numbers: dict[str, float], softcap: float | None, scale: float | None, tmp_path: Path
) -> None:
    head = gguf_head(tmp_path, parametric(architecture, **numbers), [tensor("output.weight", WEIGHT)])
    assert (head.softcap, head.scale) == (softcap, scale)
    assert len(head.notes) == (scale is not None) + (softcap is not None and not numbers)


def test_scale_before_the_softcap_is_the_same_function() -> None:
    z = np.linspace(-9, 9, 7)
    for scale in (0.3, -2.0):
        inner = softcap_of_scaled(Path("config"), "cap", 5.0, scale)
        assert inner > 0
        np.testing.assert_allclose(scale * inner * np.tanh(z / inner), 5 * np.tanh(scale * z / 5), rtol=1e-14)


@pytest.mark.parametrize(
    ("architecture", "numbers", "has_bias", "kind", "eps"),
    [
        ("llama", {"attention__layer_norm_rms_epsilon": 0.25}, False, "rms", 0.25),
        ("command-r", {"attention__layer_norm_epsilon": 0.25}, False, "layer", 0.25),
        ("gpt2", {"attention__layer_norm_epsilon": 0.25}, True, "layer", 0.25),
        ("t5", {"attention__layer_norm_epsilon": 0.5, "attention__layer_norm_rms_epsilon": 0.25}, False, "rms", 0.25),
        (
            "cohere2moe",
            {"attention__layer_norm_epsilon": 0.5, "attention__layer_norm_rms_epsilon": 0.0},
            False,
            "layer",
            0.5,
        ),
        ("llama", {}, False, "rms", 1e-6),
        ("gpt2", {}, True, "layer", 1e-5),
    ],
)
def test_gguf_kind_of_norm(
    architecture: str, numbers: dict[str, float], has_bias: bool, kind: str, eps: float, tmp_path: Path
) -> None:
    tensors = [tensor("output.weight", WEIGHT), tensor("output_norm.weight", GAIN)]
    tensors += [tensor("output_norm.bias", -GAIN)] * has_bias
    head = gguf_head(tmp_path, parametric(architecture, **numbers), tensors)
    assert head.norm is not None
    assert (head.norm.kind, head.norm.eps) == (kind, eps)
    assert_array_equal(head.norm.gain, GAIN)  # as stored, also where conversion has added a 1
    assert (head.norm.bias is not None) == has_bias
    assert bool(head.notes) == (not numbers)


def test_gguf_norms_of_other_names_and_without_gain(tmp_path: Path) -> None:
    weight = tensor("output.weight", WEIGHT)
    rms = {"attention__layer_norm_rms_epsilon": 0.25}
    head = gguf_head(tmp_path, parametric("lfm2", **rms), [weight, tensor("token_embd_norm.weight", GAIN)])
    assert head.norm is not None
    assert_array_equal(head.norm.gain, GAIN)
    # In BLOOM the same name is the norm after the embedding.
    assert gguf_head(tmp_path, parametric("bloom"), [weight, tensor("token_embd_norm.weight", GAIN)]).norm is None
    olmo = gguf_head(tmp_path, parametric("olmo", attention__layer_norm_epsilon=0.5), [weight]).norm
    assert olmo is not None
    assert (olmo.kind, olmo.gain, olmo.bias, olmo.eps) == ("layer", None, None, 0.5)


# --- safetensors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "plus_one"),
    [
        ({"model_type": "gemma"}, True),
        ({"model_type": "gemma2"}, True),
        ({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}}, True),
        ({"model_type": "paligemma", "text_config": {"model_type": "gemma2"}}, True),
        ({"model_type": "recurrent_gemma"}, True),
        ({"model_type": "qwen3_next"}, True),
        ({"model_type": "qwen3_5_moe", "text_config": {"model_type": "qwen3_5_moe_text"}}, True),
        ({"model_type": "gemma3n", "text_config": {"model_type": "gemma3n_text"}}, False),
        ({"model_type": "gemma4"}, False),
        ({"model_type": "qwen3"}, False),
        ({"model_type": "nemotron_h"}, False),
        ({"model_type": "never heard of"}, False),
    ],
)
@pytest.mark.parametrize("storage", ["F32", "BF16"])
def test_gains_stored_without_their_one(config: dict[str, Any], plus_one: bool, storage: str, tmp_path: Path) -> None:
    tensors = [tensor("lm_head.weight", WEIGHT), tensor("model.norm.weight", GAIN, storage)]
    norm = safetensors_head(tmp_path, tensors, config).norm
    assert norm is not None
    assert_array_equal(norm.gain, GAIN + plus_one)
    assert norm.gain is not None
    assert norm.gain.dtype == np.float32


@pytest.mark.parametrize(
    ("config", "has_bias", "kind", "eps", "offset"),
    [
        ({"model_type": "llama", "rms_norm_eps": 0.25}, False, "rms", 0.25, 0),
        ({"model_type": "gpt2", "layer_norm_epsilon": 0.25}, True, "layer", 0.25, 0),
        ({"model_type": "gpt_neox", "layer_norm_eps": 0.25}, True, "layer", 0.25, 0),
        ({"model_type": "starcoder2", "norm_epsilon": 0.25}, True, "layer", 0.25, 0),
        ({"model_type": "nemotron", "norm_eps": 0.25}, True, "layer", 0.25, 1),
        ({"model_type": "cohere", "layer_norm_eps": 0.25}, False, "layer", 0.25, 0),
        ({"model_type": "cohere2_moe", "rms_norm_eps": 0.25}, False, "rms", 0.25, 0),
        ({"model_type": "dbrx"}, False, "layer", 1e-5, 0),
        ({"model_type": "mamba", "layer_norm_epsilon": 0.25}, False, "rms", 0.25, 0),
        ({"rms_norm_eps": 0.25, "layer_norm_eps": 0.5}, False, "rms", 0.25, 0),
        ({"rms_norm_eps": 0.25, "layer_norm_eps": 0.5}, True, "layer", 0.5, 0),
        ({"model_type": "llama", "rms_norm_eps": 0}, False, "rms", 0.0, 0),
        ({"model_type": "llama"}, False, "rms", 1e-6, 0),
    ],
)
def test_kind_of_norm(
    config: dict[str, Any], has_bias: bool, kind: str, eps: float, offset: int, tmp_path: Path
) -> None:
    tensors = [tensor("lm_head.weight", WEIGHT), tensor("model.norm.weight", GAIN)]
    tensors += [tensor("model.norm.bias", -GAIN)] * has_bias
    found = safetensors_head(tmp_path, tensors, config)
    assert found.norm is not None
    assert (found.norm.kind, found.norm.eps) == (kind, eps)
    assert_array_equal(found.norm.gain, GAIN + offset)
    assert (found.norm.bias is not None) == has_bias
    assert any("assumed" in note and "epsilon" in note for note in found.notes) == (len(config) == 1)


def test_norms_without_gain(tmp_path: Path) -> None:
    for model_type, kind, eps in (("olmo", "layer", 1e-5), ("nanochat", "rms", 1e-6)):
        norm = safetensors_head(tmp_path, [tensor("lm_head.weight", WEIGHT)], {"model_type": model_type}).norm
        assert norm is not None
        assert (norm.kind, norm.gain, norm.bias, norm.eps) == (kind, None, None, eps)


@pytest.mark.parametrize(
    ("config", "softcap", "scale"),
    [
        ({"model_type": "cohere", "logit_scale": 0.25}, None, 0.25),
        ({"model_type": "cohere"}, None, 0.0625),
        ({"model_type": "granite", "logits_scaling": 8}, None, 0.125),
        ({"model_type": "granitemoehybrid", "logits_scaling": 4.0}, None, 0.25),
        ({"model_type": "hyperclovax", "logits_scaling": 4.0}, None, 4.0),
        ({"model_type": "falcon_h1", "lm_head_multiplier": 0.5}, None, 0.5),
        ({"model_type": "minicpm", "dim_model_base": D // 2, "hidden_size": D}, None, 0.5),
        ({"model_type": "jais", "mup_output_alpha": 3.0, "mup_width_scale": 0.5}, None, 1.5),
        ({"output_multiplier_scale": 0.5, "final_logit_softcapping": 30}, 60.0, 0.5),
        ({"model_type": "gemma2", "final_logit_softcapping": 20.0}, 20.0, None),
        ({"model_type": "gemma2", "final_logit_softcapping": None}, None, None),
        ({"model_type": "gemma2"}, 30.0, None),
        ({"model_type": "gemma3", "text_config": {"final_logit_softcapping": None}}, None, None),
        ({"model_type": "gemma3n", "text_config": {"final_logit_softcapping": 30.0}}, 30.0, None),
        ({"model_type": "nanochat", "logits_soft_cap": 15.0}, 15.0, None),
        ({"model_type": "llama", "logit_scale": 1}, None, None),
        ({"model_type": "llama"}, None, None),
    ],
)
def test_scale_and_softcap(config: dict[str, Any], softcap: float | None, scale: float | None, tmp_path: Path) -> None:
    found = safetensors_head(tmp_path, [tensor("lm_head.weight", WEIGHT)], config)
    assert (found.softcap, found.scale) == (softcap, scale)
    assert any("multiplied" in note for note in found.notes) == (scale is not None)


def test_tied_t5_is_scaled_by_its_width(tmp_path: Path) -> None:
    shared = tensor("shared.weight", EMBEDDING)
    norms = [tensor("encoder.final_layer_norm.weight", -GAIN), tensor("decoder.final_layer_norm.weight", GAIN)]
    found = safetensors_head(tmp_path, [shared, *norms], {"model_type": "t5", "layer_norm_epsilon": 0.25})
    assert found.scale == D**-0.5
    assert found.norm is not None
    assert_array_equal(found.norm.gain, GAIN)
    untied = safetensors_head(tmp_path, [shared, tensor("lm_head.weight", WEIGHT)], {"model_type": "t5"})
    assert untied.scale is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rms_norm_eps": -1e-6}, r"rms_norm_eps: expected a finite number >= 0, got -1e-06"),
        ({"rms_norm_eps": "1e-6"}, r"rms_norm_eps: expected a finite number >= 0, got '1e-6'"),
        ({"rms_norm_eps": True}, r"rms_norm_eps: expected a finite number >= 0, got True"),
        ({"rms_norm_eps": 10**400}, r"rms_norm_eps: expected a finite number >= 0, got 1000"),
        ({"logit_scale": float("nan")}, r"logit_scale: expected a finite number, got nan"),
        ({"logits_scaling": 1e-310}, r"logits_scaling: expected a scale in the range of float32, got 1e-310"),
        ({"logits_scaling": 1e-40}, r"logits_scaling: expected a scale in the range of float32, got 1e-40"),
        ({"logit_scale": 1e-40}, r"logit_scale: expected a scale in the range of float32, got 1e-40"),
        ({"logit_scale": -1e39}, r"logit_scale: expected a scale in the range of float32, got -1e\+39"),
        (
            {"logit_scale": 1e-30, "final_logit_softcapping": 1e30},
            r"final_logit_softcapping: expected a cap in the range of float32, got 1e\+30 of logits times 1e-30",
        ),
        ({"final_logit_softcapping": 1e-320}, r"final_logit_softcapping: expected a cap in the range of float32, got"),
        ({"final_logit_softcapping": float("inf")}, r"final_logit_softcapping: expected a finite number >= 0, got inf"),
        ({"final_logit_softcapping": [30]}, r"final_logit_softcapping: expected a finite number >= 0, got \[30\]"),
        ({"norm_head": True}, r"norm_head: expected a head that is used as stored"),
    ],
)
def test_config_values_that_are_none(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    tensors = [tensor("lm_head.weight", WEIGHT), tensor("model.norm.weight", GAIN)]
    with pytest.raises(ValueError, match=r"config\.json: " + message):
        safetensors_head(tmp_path, tensors, {**LLAMA, **changes})


def test_config_that_is_none(tmp_path: Path) -> None:
    safetensors_head(tmp_path, [tensor("lm_head.weight", WEIGHT)], {"time_step_limit": [0.0, float("inf")]})
    for content, message in (
        ("[]", "expected a JSON object, got an array"),
        ("{", "expected JSON, got"),
        ("", "expected at least one byte, got an empty file"),
        ("[" * 10**6, "expected JSON, got brackets nested too deep"),
        ('{"a": ' + "9" * 5000 + "}", "expected JSON, got an integer of thousands of digits"),
    ):
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(ValueError, match=rf"config\.json: file: {message}"):
            find_safetensors_head(tmp_path)
    (tmp_path / "config.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ValueError, match=r"config\.json: file: expected UTF-8, got byte 0xff"):
        find_safetensors_head(tmp_path)
