"""Where families of models depart from "logits = weight @ norm(h)": the tables, and nothing else.

Knows: names of architectures (GGUF's ``general.architecture``, the ``model_type`` of a config.json), names of tensors,
and what each says about norm, scale and softcap. Refuses to know: files. What is not listed is taken plainly.

Every line was read off the conversion and graph code of llama.cpp or the modelling code of transformers (or of the
model's own repository, where named).
"""

from __future__ import annotations

from itertools import product

# --- GGUF ------------------------------------------------------------------------------------------------------------
# Conversion has already added 1 to the gains of Gemma, Qwen3-Next and their like, and multiplied the heads of
# Falcon-H1 and Jais: in a GGUF file these are plain.

# `<arch>.logit_scale` multiplies (Cohere, Grok, ...) except here, where it is what logits are divided by. The
# Granites are several: granite, granitemoe, granitehybrid.
GGUF_DIVIDES = ("granite", "minicpm")

# Files written before the key existed: llama.cpp's constant for Grok-1; MiniCPM multiplies by dim_model_base / width,
# which is 256 in all its configs, and conversion of MiniCPM3 never writes a key.
GGUF_SCALE_WITHOUT_KEY = {"grok": 0.5773502691896257}
GGUF_BASE_WIDTH_WITHOUT_KEY = {"minicpm": 256, "minicpm3": 256}

# llama.cpp's constant for files of Gemma 2 from before the key.
GGUF_SOFTCAP_WITHOUT_KEY = {"gemma2": 30.0}

# A final norm without parameters, so without a tensor.
GGUF_NORM_WITHOUT_GAIN = {"olmo": "layer"}

# The final norm of LFM2 is named for its place in transformers' module, after the embedding.
GGUF_NORM_NAMES = {"lfm2": ("token_embd_norm",), "lfm2moe": ("token_embd_norm",)}
GGUF_USUAL_NORM_NAMES = ("output_norm", "dec.output_norm")

# --- safetensors, by the config's model_type -------------------------------------------------------------------------

# The norm multiplies by 1 + w. Not: gemma3n and gemma4 (plain gains again), qwen3 and qwen3_moe, nor the final norm of
# Muse Glimmer, whose other norms do.
GAIN_PLUS_ONE = frozenset(
    (
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "paligemma",
        "recurrent_gemma",
        "vaultgemma",
        "qwen3_next",
        "qwen3_5",
        "qwen3_5_text",
        "qwen3_5_moe",
        "qwen3_5_moe_text",
        "minimax_m3_vl",
        "minimax_m3_vl_text",
        "nemotron",  # a LayerNorm ("1P"); nemotron_h is plain
    )
)

# A LayerNorm that has no bias to be recognised by, unless the config has the epsilon of an RMSNorm.
LAYER_NORM = frozenset(("cohere", "cohere2", "cohere2_moe", "dbrx", "mpt", "olmo"))
NORM_WITHOUT_GAIN = {"olmo": "layer", "nanochat": "rms"}

# Tied heads of these get hidden states times width ** -0.5.
TIED_SCALED_BY_WIDTH = frozenset(("t5", "mt5", "umt5", "longt5"))

# Keys whose value multiplies the logits, or divides them. Granite and its many relatives divide by logits_scaling.
MULTIPLIER_KEYS = (
    "logit_scale",  # Cohere
    "lm_head_multiplier",  # Falcon-H1
    "output_multiplier_scale",  # Grok
    "output_multiplier",  # Muse Glimmer
)
DIVISOR_KEYS = ("logits_scaling",)
LOGITS_SCALING_MULTIPLIES = frozenset(("hyperclovax",))
SCALE_WITHOUT_KEY = {"cohere": 0.0625, "cohere2": 0.0625}  # the defaults of their configs

SOFTCAP_KEYS = (
    "final_logit_softcapping",  # Gemma 2 and later, Grok
    "logits_soft_cap",  # RecurrentGemma, NanoChat
    "output_logit_soft_cap",  # xLSTM
)
SOFTCAP_WITHOUT_KEY = {"gemma2": 30.0, "vaultgemma": 30.0, "recurrent_gemma": 30.0, "gemma3n_text": 30.0}

RMS_EPS_KEYS = ("rms_norm_eps", "rms_norm_epsilon")
LAYER_EPS_KEYS = ("layer_norm_eps", "layer_norm_epsilon", "norm_eps", "norm_epsilon", "layernorm_epsilon")
USUAL_EPS = {"rms": 1e-6, "layer": 1e-5}

# Parts of a config.json that describe the language model of a larger one.
TEXT_CONFIGS = ("text_config", "llm_config", "language_config")

# --- safetensors: names, the likelier first --------------------------------------------------------------------------

_MODELS = (
    "",
    "model.",
    "transformer.",
    "language_model.",
    "language_model.model.",
    "model.language_model.",
    "language_model.transformer.",
    "gpt_neox.",
    "backbone.",
    "rwkv.",
    "model.decoder.",
    "decoder.",
    "model.transformer.",
    "thinker.",
    "thinker.model.",
)
_HEADS = ("lm_head", "embed_out", "output", "output_layer", "lm_head.linear", "head", "word_embeddings_for_head")
_EMBEDDINGS = (
    "embed_tokens",
    "wte",
    "word_embeddings",
    "embed_in",
    "tok_embeddings",
    "embedding",
    "embeddings",
    "embedding.word_embeddings",
    "embd.wte",
    "token_embeddings",
    "in_out_embed",
    "shared",
)
# Never "encoder.final_layer_norm": the decoder's is the one before the head. ChatGLM's decoder is called encoder.
_NORMS = (
    "norm",
    "ln_f",
    "final_layernorm",
    "final_layer_norm",
    "norm_f",
    "final_norm",
    "rms_norm",
    "ln_out",
    "embedding_norm",
)
HEADS = tuple(model + stem for stem, model in product(_HEADS, _MODELS))
EMBEDDINGS = tuple(model + stem for stem, model in product(_EMBEDDINGS, _MODELS))
NORMS = (
    *(model + stem for stem, model in product(_NORMS, _MODELS)),
    "transformer.encoder.final_layernorm",
    "lm_head.ln",
)
