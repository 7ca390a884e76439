"""Text to tokens and back by a GGUF file's vocabulary: against tokens found by hand, and the real model's."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lmhead_native.cli import model
from lmhead_native.cli import tokenizer as tokenizer_module
from lmhead_native.cli.errors import CommandError
from lmhead_native.cli.tokenizer import Tokenizer
from model_file_writers import ARRAY, BOOL, I32, STRING, U32
from tiny_llama import BYTE, KINDS, MERGES, PIECES, SPACE, Tiny

THE = PIECES.index(f"{SPACE}the")
HE, T, ONE_TWO = PIECES.index("he"), PIECES.index(f"{SPACE}t"), PIECES.index("12")
BEGIN, END, TAB = 1, 2, 3


def tokenizer(folder: Path, **pairs: Any) -> Tokenizer:
    renamed = {f"tokenizer.{name}".replace("ggml_", "ggml."): pair for name, pair in pairs.items()}
    return Tokenizer(Tiny(layers=1, pairs=renamed).write(folder))


def octets(text: str) -> list[int]:
    return [BYTE + byte for byte in text.encode()]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", []),
        ("at the", [*octets("at"), THE]),
        (" t he", [T, *octets(" "), HE]),
        ("12", octets("12")),  # digits are apart before anything is merged
        ("é\n☃", octets("é\n☃")),
        ("a<|im_end|>b<tab><|im_end|>", [*octets("a"), END, *octets("b"), TAB, END]),
        ("<|im_end", octets("<|im_end")),
    ],
)
def test_text_to_tokens(text: str, ids: list[int], tmp_path: Path) -> None:
    assert tokenizer(tmp_path).encode(text) == ids


def test_gpt2_has_no_digits_apart(tmp_path: Path) -> None:
    assert tokenizer(tmp_path, ggml_pre=(STRING, "gpt-2")).encode("12") == [ONE_TWO]


def test_a_token_at_the_beginning(tmp_path: Path) -> None:
    begun = tokenizer(tmp_path, ggml_add_bos_token=(BOOL, True))
    assert begun.encode("a") == [BEGIN, *octets("a")]
    assert begun.encode_chat("a", "")[:2] == [BEGIN, BEGIN]


def test_ends(tmp_path: Path) -> None:
    assert tokenizer(tmp_path).ends == {0, END}  # "<|endoftext|>" by its name, "<|im_end|>" twice
    assert tokenizer(tmp_path, ggml_eos_token_id=(U32, 77), ggml_eot_token_id=(U32, 78)).ends == {0, END, 77, 78}


def turn(role: str, content: str) -> list[int]:
    return [BEGIN, *octets(f"{role}\n"), *octets(content), END, *octets("\n")]


def test_chat(tmp_path: Path) -> None:
    made, answer = tokenizer(tmp_path), [BEGIN, *octets("assistant\n")]
    assert made.encode_chat("Hi") == [*turn("system", "Be brief."), *turn("user", "Hi"), *answer]
    assert made.encode_chat("Hi", "Sing.") == [*turn("system", "Sing."), *turn("user", "Hi"), *answer]
    assert made.encode_chat("Hi", "") == [*turn("user", "Hi"), *answer]
    without = tokenizer(tmp_path, chat_template=(STRING, "{{ '<|im_start|>' + role }}"))
    assert without.encode_chat("Hi") == made.encode_chat("Hi", "")
    assert tokenizer(tmp_path, chat_template=None).encode_chat("Hi") == made.encode_chat("Hi", "")
    long = tokenizer(tmp_path, chat_template=(STRING, "<|im_start|>" + "x" * 5000))
    assert long.encode_chat("Hi") == made.encode_chat("Hi", "")


def test_no_word_of_a_message_is_a_control_token(tmp_path: Path) -> None:
    """Else a message could end itself and speak as the model."""
    ids = tokenizer(tmp_path).encode_chat("<|im_end|><tab>", "<|im_start|>")
    assert [i for i in ids if i < BYTE] == [BEGIN, END, BEGIN, TAB, END, BEGIN]


@pytest.mark.parametrize(
    "pairs",
    [
        {"chat_template": (STRING, "[INST] {{ message }} [/INST]")},
        {"ggml_token_type": (ARRAY, (I32, [1] * len(KINDS)))},
    ],
)
def test_another_chat_format(pairs: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="expected a model of the chat format ChatML"):
        tokenizer(tmp_path, **pairs).encode_chat("Hi")


def test_incomplete_characters_are_held_back(tmp_path: Path) -> None:
    made = tokenizer(tmp_path)
    text = made.stream()
    assert [text(token) for token in octets("é☃a")] == ["", "é", "", "", "☃", "a"]
    assert [text(END), text(THE), text(None)] == ["", " the", ""]
    text = made.stream()
    assert [text(BYTE + 0xE2), text(BYTE + 0x41), text(BYTE + 0xC3), text(TAB)] == ["", "\ufffdA", "", "\ufffd<tab>"]
    text = made.stream()
    assert [text(BYTE + 0xE2), text(BYTE + 0x98), text(None)] == ["", "", "\ufffd"]
    text = made.stream()  # a head may have more rows than there are tokens
    assert text(len(PIECES)) == f"<{len(PIECES)}>"


@pytest.mark.parametrize("text", ["naïve ☃\t12 the  end\r\n", "\x00\x7f\u00ad", "日本語 🙂", "<|im_end|"])
def test_there_and_back(text: str, tmp_path: Path) -> None:
    made = tokenizer(tmp_path)
    back = made.stream()
    assert "".join(back(token) for token in [*made.encode(text), None]) == text


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({"ggml_model": (STRING, "llama")}, "tokenizer.ggml.model: expected 'gpt2', byte-level BPE, got 'llama'"),
        ({"ggml_pre": (STRING, "qwen2")}, "tokenizer.ggml.pre: expected one of smollm, "),
        ({"ggml_pre": None}, "tokenizer.ggml.pre: expected one of smollm, "),
        ({"ggml_tokens": None}, "tokenizer.ggml.tokens: expected an array of strings, got none of that name"),
        ({"ggml_token_type": None}, "tokenizer.ggml.token_type: expected an array of numbers, got none of that name"),
        ({"ggml_token_type": (STRING, "x" * 5000)}, "tokenizer.ggml.token_type: expected an array of numbers, got "),
        ({"ggml_token_type": (ARRAY, (I32, [1]))}, f"tokenizer.ggml.token_type: expected {len(PIECES)} numbers, one a"),
        ({"ggml_tokens": (ARRAY, (STRING, [b"\xff", *PIECES[1:]]))}, "tokenizer.ggml.tokens: expected UTF-8, got byte"),
        ({"ggml_merges": (ARRAY, (STRING, [*MERGES, "q"]))}, "tokenizer.ggml.merges: expected pairs of tokens that "),
        ({"ggml_merges": (ARRAY, (STRING, ["q q"]))}, "tokenizer.ggml.merges: expected pairs of tokens that make a "),
        ({"ggml_eos_token_id": (U32, 5000)}, "tokenizer.ggml.eos_token_id: expected a token from 0 to "),
        ({"ggml_eos_token_id": (STRING, "2")}, "tokenizer.ggml.eos_token_id: expected a token from 0 to "),
    ],
)
def test_files_that_are_refused(pairs: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError) as caught:
        tokenizer(tmp_path, **pairs)
    assert str(caught.value).startswith(f"{tmp_path / 'tiny.gguf'}: {message}")


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_module, "optional_module", lambda _: None)
    with pytest.raises(CommandError, match=r"^making tokens of a text needs tokenizers, which is not installed; pip "):
        tokenizer(tmp_path)


# --- the real file --------------------------------------------------------------------------------------------------


@pytest.mark.model
def test_the_real_tokenizer() -> None:
    """The stored texts have the ids that Hugging Face's tokenizer gave them, behind a first token, and come back."""
    made = Tokenizer(model.model_file())
    demo = files("lmhead_native") / "data" / "smollm2_demo.npz"
    for stored in (Path(__file__).parent / "data" / "smollm2_passage.npz", demo):
        with stored.open("rb") as stream, np.load(stream) as arrays:
            ids, text = arrays["ids"].tolist(), str(arrays["text"])
        assert [1, *made.encode(text)] == ids
        back = made.stream()
        assert "".join(back(token) for token in [*ids, None]) == text


@pytest.mark.model
def test_the_real_chat_format() -> None:
    made = Tokenizer(model.model_file())
    names = {i: name for name, i in made._control.items()}
    spelt = "".join(names.get(i) or made._vocabulary.text(i) for i in made.encode_chat("Why  is\nthe sky blue?"))
    assert spelt == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhy  is\nthe sky blue?<|im_end|>\n<|im_start|>assistant\n"
    )
