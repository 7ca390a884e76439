"""Text to tokens and back, by the vocabulary and merges of a GGUF file: byte-level BPE.

Knows: what GGUF files call the parts of a tokenizer, where control tokens stand in a text, the chat format ChatML.
Refuses to know: how text is merged into tokens, which the package ``tokenizers`` does.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lmhead_native._model_files import GgufFile
from lmhead_native._model_files.mapped import malformed, shown
from lmhead_native.cli.errors import CommandError, MissingExtraError
from lmhead_native.cli.optional import optional_module
from lmhead_native.cli.vocabulary import Vocabulary

PREFIX = "tokenizer.ggml."
# Before BPE a text is cut into words by GPT-2's expression; these cut it at every digit first.
DIGITS_APART = ("smollm", "starcoder", "refact", "command-r", "codeshell")
AS_GPT2 = ("gpt-2",)

CONTROL, USER_DEFINED = 3, 4  # kinds of token: part of a format, and words that are never merged from others
ENDS = ("<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "</s>")
CHAT_BEGIN, CHAT_END = "<|im_start|>", "<|im_end|>"
# The system message that a template states for conversations without one; the line's end may be spelt as an escape.
DEFAULT_SYSTEM = re.compile(r"<\|im_start\|>system(?:\n|\\n)([^{}']*?)<\|im_end\|>")


class Tokenizer:
    """The tokenizer of a GGUF file.

    Attributes
    ----------
    ends : frozenset of int
        Tokens that end a text or an answer.

    Raises
    ------
    CommandError
        The file has no byte-level BPE that is known here, or a damaged one; or ``tokenizers`` is not installed.
    ValueError, OSError
        As `GgufFile`.
    """

    def __init__(self, path: Path) -> None:
        file = GgufFile(path)
        self.path = path
        pieces = _texts(file, "tokens")
        kinds = file.numbers(PREFIX + "token_type").tolist()
        if len(kinds) != len(pieces):
            raise malformed(path, PREFIX + "token_type", f"{len(pieces)} numbers, one a token", len(kinds))
        self._vocabulary = Vocabulary(pieces, byte_level=True)
        self._control = {piece: i for i, (piece, kind) in enumerate(zip(pieces, kinds, strict=True)) if kind == CONTROL}
        self._added = {piece: i for i, piece in enumerate(pieces) if kinds[i] == USER_DEFINED}
        self._controls = frozenset(self._control.values())
        self._bpe = _bpe(file, pieces)
        self.ends = frozenset(
            {self._control[end] for end in ENDS if end in self._control}
            | {token for name in ("eos", "eot") if (token := _token(file, name, len(pieces))) is not None}
        )
        bos = _token(file, "bos", len(pieces)) if file.scalar(PREFIX + "add_bos_token") else None
        self._begin = [] if bos is None else [bos]
        template = file.metadata.get("tokenizer.chat_template")
        self._template = template if isinstance(template, str) else ""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text; the names of control tokens in it become these tokens."""
        return self._begin + self._encode(text, self._control | self._added)

    def encode_chat(self, message: str, system: str | None = None) -> list[int]:
        """Return the tokens of a conversation up to where the answer begins.

        Parameters
        ----------
        message : str
            What the user says. No word of it becomes a control token.
        system : str, optional
            The system message; by default the one that the file's template states, if any. ``""`` for none.

        Raises
        ------
        CommandError
            The model has no ChatML, the format of ``<|im_start|>`` and ``<|im_end|>``.
        """
        if not {CHAT_BEGIN, CHAT_END} <= set(self._control) or (self._template and CHAT_BEGIN not in self._template):
            raise CommandError(f"{self.path}: expected a model of the chat format ChatML (<|im_start|>), got another")
        if system is None:
            stated = DEFAULT_SYSTEM.search(self._template)
            system = "" if stated is None else stated[1]
        turns = [("system", system)] if system else []
        ids = list(self._begin)
        for role, content in [*turns, ("user", message)]:
            ids += [self._control[CHAT_BEGIN], *self._encode(f"{role}\n{content}", self._added)]
            ids += [self._control[CHAT_END], *self._encode("\n", {})]
        return [*ids, self._control[CHAT_BEGIN], *self._encode("assistant\n", {})]

    def stream(self) -> Callable[[int | None], str]:
        """Return a function from the next token to the text that is now certain; None after the last token.

        A character whose bytes are not all there is held back. Bytes that are no UTF-8 become U+FFFD, control tokens
        nothing.
        """
        decoder = codecs.getincrementaldecoder("utf-8")("replace")

        def text(token: int | None) -> str:
            if token is None:
                return decoder.decode(b"", final=True)
            return decoder.decode(b"" if token in self._controls else self._vocabulary.octets(token))

        return text

    def _encode(self, text: str, whole: dict[str, int]) -> list[int]:
        """Return the tokens of a text, in which the words of `whole` stand for one token each."""
        ids: list[int] = []
        for part in _split(text, whole):
            ids += [whole[part]] if part in whole else self._bpe.encode(part).ids
        return ids


def _split(text: str, words: dict[str, int]) -> Iterator[str]:
    """Cut a text before and after every one of `words`; the longest wins where several begin."""
    if not words:
        yield text
        return
    anyone = "|".join(map(re.escape, sorted(filter(None, words), key=len, reverse=True)))
    yield from filter(None, re.split(f"({anyone})", text))


def _texts(file: GgufFile, name: str) -> list[str]:
    key = PREFIX + name
    try:
        return [octets.decode() for octets in file.strings(key)]
    except UnicodeDecodeError as error:
        raise malformed(file.path, key, "UTF-8", f"byte {error.object[error.start]:#04x}") from None


def _token(file: GgufFile, name: str, vocabulary: int) -> int | None:
    key = f"{PREFIX}{name}_token_id"
    token = file.scalar(key)
    if token is None:
        return None
    if not isinstance(token, int) or not 0 <= token < vocabulary:
        raise malformed(file.path, key, f"a token from 0 to {vocabulary - 1}", shown(repr(token)))
    return token


def _bpe(file: GgufFile, pieces: list[str]) -> Any:
    """Make the tokenizer proper, an object of the package ``tokenizers``."""
    tokenizers = optional_module("tokenizers")
    if tokenizers is None:
        raise MissingExtraError("making tokens of a text", "tokenizers", "demo")
    model, pre = file.scalar(PREFIX + "model"), file.scalar(PREFIX + "pre")
    if model != "gpt2":
        raise malformed(file.path, PREFIX + "model", "'gpt2', byte-level BPE", shown(repr(model)))
    if pre not in DIGITS_APART + AS_GPT2:
        raise malformed(file.path, PREFIX + "pre", f"one of {', '.join(DIGITS_APART + AS_GPT2)}", shown(repr(pre)))
    merges = [tuple(merge.split(" ")) for merge in _texts(file, "merges")]
    try:
        bpe = tokenizers.Tokenizer(tokenizers.models.BPE({piece: i for i, piece in enumerate(pieces)}, merges))
    except Exception as error:  # the package raises nothing narrower
        raise malformed(file.path, PREFIX + "merges", "pairs of tokens that make a token", shown(str(error))) from error
    split = tokenizers.pre_tokenizers
    words = split.ByteLevel(add_prefix_space=False)
    digits = [split.Digits(individual_digits=True)] if pre in DIGITS_APART else []
    bpe.pre_tokenizer = split.Sequence([*digits, words])
    return bpe
