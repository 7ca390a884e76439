"""A model of the llama architecture small enough to follow by hand: as a GGUF file, and as an oracle in float64.

Knows: the architecture as its paper's readers write it down, every position attending to all before it, nothing
cached. Refuses to know: the package. Weights are in the order of Hugging Face's models, where element j of a head is
rotated with j + half; the file has neighbours rotated, as llama.cpp does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import model_file_writers as write
from model_file_writers import ARRAY, BOOL, F32, I32, STRING, U32, Tensor, tensor

Floats = NDArray[np.float64]

EPS, BASE = 0.25, 100.0
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
USER_DEFINED = "<tab>"
TEMPLATE = "{% if x %}{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}{% endif %}{{ '<|im_start|>' + role }}"


def spelling() -> list[str]:
    """Return GPT-2's characters of the 256 bytes, in the order of the bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


SPACE = spelling()[32]
MERGES = [f"{SPACE} t", "h e", f"{SPACE}t he", "1 2"]
PIECES = [*CONTROL, USER_DEFINED, *spelling(), *(merge.replace(" ", "") for merge in MERGES)]
KINDS = [3, 3, 3, 4, *[1] * (len(PIECES) - 4)]
BYTE = len(CONTROL) + 1  # the token of byte 0


@dataclass
class Tiny:
    """Its numbers, its weights by the file's names, and what the file says beside or in place of the usual."""

    layers: int = 2
    width: int = 32
    inner: int = 40
    heads: int = 6
    key_heads: int = 2
    head_width: int = 8
    rotated: int = 8
    context: int = 64
    seed: int = 14
    untied: bool = False
    pairs: dict[str, tuple[int, Any] | None] = field(default_factory=dict)
    storage: dict[str, str] = field(default_factory=dict)
    weights: dict[str, Floats] = field(init=False)

    def __post_init__(self) -> None:
        random = np.random.default_rng(self.seed)

        def some(*shape: int) -> Floats:
            return random.integers(-12, 13, shape) / 32  # exact in every storage

        queries, keys = self.heads * self.head_width, self.key_heads * self.head_width
        self.weights = {"token_embd": some(len(PIECES), self.width), "output_norm": some(self.width) + 1}
        if self.untied:
            self.weights["output"] = some(len(PIECES), self.width)
        for i in range(self.layers):
            for name, shape in {
                "attn_norm": (self.width,),
                "attn_q": (queries, self.width),
                "attn_k": (keys, self.width),
                "attn_v": (keys, self.width),
                "attn_output": (self.width, queries),
                "ffn_norm": (self.width,),
                "ffn_gate": (self.inner, self.width),
                "ffn_up": (self.inner, self.width),
                "ffn_down": (self.width, self.inner),
            }.items():
                self.weights[f"blk.{i}.{name}"] = some(*shape) + (len(shape) == 1)

    def changed(self, **changes: Any) -> Tiny:
        return replace(self, **changes)

    # --- the oracle -------------------------------------------------------------------------------------------------

    def states(self, ids: Sequence[int]) -> Floats:
        """Return the hidden states after the final norm, (T, D)."""
        x = self.weights["token_embd"][np.asarray(ids)]
        for i in range(self.layers):
            w = {
                name.rpartition(".")[2]: weight for name, weight in self.weights.items() if name.startswith(f"blk.{i}.")
            }
            x = x + self._attention(w, normed(x, w["attn_norm"])) @ w["attn_output"].T
            inner = normed(x, w["ffn_norm"])
            gate = inner @ w["ffn_gate"].T
            x = x + (gate / (1 + np.exp(-gate)) * (inner @ w["ffn_up"].T)) @ w["ffn_down"].T
        return normed(x, self.weights["output_norm"])

    def logits(self, ids: Sequence[int]) -> Floats:
        """Return the logits of what follows, (V,)."""
        logits: Floats = self.weights["output" if self.untied else "token_embd"] @ self.states(ids)[-1]
        return logits

    def _attention(self, w: dict[str, Floats], x: Floats) -> Floats:
        heads = []
        for head in range(self.heads):
            mine, theirs = head, head * self.key_heads // self.heads
            query = self._turned(x @ w["attn_q"][self._rows(mine)].T)
            key = self._turned(x @ w["attn_k"][self._rows(theirs)].T)
            value = x @ w["attn_v"][self._rows(theirs)].T
            mixed = []
            for t in range(len(x)):
                scores = np.array([query[t] @ key[s] / np.sqrt(self.head_width) for s in range(t + 1)])
                looks = np.exp(scores - scores.max())
                mixed.append(looks / looks.sum() @ value[: t + 1])
            heads.append(np.array(mixed))
        return np.concatenate(heads, axis=1)

    def _rows(self, head: int) -> slice:
        return slice(head * self.head_width, (head + 1) * self.head_width)

    def _turned(self, x: Floats) -> Floats:
        """Rotate element j of the first `rotated` with j + half, by position * base^(-2 j / rotated)."""
        half = self.rotated // 2
        turned = x.copy()
        for t in range(len(x)):
            for j in range(half):
                angle = t * BASE ** (-2 * j / self.rotated)
                a, b = x[t, j], x[t, j + half]
                turned[t, j] = a * np.cos(angle) - b * np.sin(angle)
                turned[t, j + half] = b * np.cos(angle) + a * np.sin(angle)
        return turned

    # --- the file ---------------------------------------------------------------------------------------------------

    def write(self, folder: Path) -> Path:
        usual: dict[str, tuple[int, Any] | None] = {
            "general.architecture": (STRING, "llama"),
            "llama.block_count": (U32, self.layers),
            "llama.embedding_length": (U32, self.width),
            "llama.feed_forward_length": (U32, self.inner),
            "llama.attention.head_count": (U32, self.heads),
            "llama.attention.head_count_kv": (U32, self.key_heads),
            "llama.attention.key_length": (U32, self.head_width),
            "llama.attention.value_length": (U32, self.head_width),
            "llama.rope.dimension_count": (U32, self.rotated),
            "llama.rope.freq_base": (F32, BASE),
            "llama.attention.layer_norm_rms_epsilon": (F32, EPS),
            "llama.context_length": (U32, self.context),
            "tokenizer.ggml.model": (STRING, "gpt2"),
            "tokenizer.ggml.pre": (STRING, "smollm"),
            "tokenizer.ggml.tokens": (ARRAY, (STRING, PIECES)),
            "tokenizer.ggml.token_type": (ARRAY, (I32, KINDS)),
            "tokenizer.ggml.merges": (ARRAY, (STRING, MERGES)),
            "tokenizer.ggml.bos_token_id": (U32, 1),
            "tokenizer.ggml.eos_token_id": (U32, 2),
            "tokenizer.ggml.add_bos_token": (BOOL, False),
            "tokenizer.chat_template": (STRING, TEMPLATE),
        }
        pairs = [(key, *pair) for key, pair in (usual | self.pairs).items() if pair is not None]
        path = folder / "tiny.gguf"
        path.write_bytes(write.gguf(pairs, [self._tensor(name) for name in self.weights]))
        return path

    def _tensor(self, name: str) -> Tensor:
        weight = self.weights[name]
        if name.endswith((".attn_q", ".attn_k")):
            half = self.rotated // 2
            order = [j // 2 + half * (j % 2) for j in range(self.rotated)] + list(range(self.rotated, self.head_width))
            weight = weight.reshape(-1, self.head_width, self.width)[:, order].reshape(-1, self.width)
        kind = self.storage.get(name.rpartition(".")[2], "F32")
        if kind == "Q8_0":
            integers, scales = (weight * 32).astype(np.int8), np.full((len(weight), weight.shape[1] // 32), 1 / 32)
            return Tensor(f"{name}.weight", kind, weight.shape, write.q8_0(integers, scales.astype(np.float16)))
        return tensor(f"{name}.weight", weight, kind)


def normed(x: Floats, gain: Floats) -> Floats:
    """Return RMSNorm of rows."""
    normal: Floats = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + EPS) * gain
    return normal


def continued(tiny: Tiny, ids: Sequence[int], steps: int) -> list[int]:
    """Return what follows greedily, each token by a large enough margin for float32."""
    sequence = list(ids)
    for _ in range(steps):
        logits = tiny.logits(sequence)
        second, first = np.argsort(logits)[-2:]
        assert logits[first] - logits[second] > 1e-3
        sequence.append(int(first))
    return sequence[len(ids) :]
