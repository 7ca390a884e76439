"""The text of tokens: byte-level BPE as GPT-2 introduced it, turned back into bytes and then UTF-8.

Knows: the table that writes each of the 256 bytes as one printable character. Refuses to know: how text is
split into tokens; nothing here encodes.
"""

from __future__ import annotations

from collections.abc import Sequence


def byte_characters() -> dict[str, int]:
    """Build GPT-2's table from characters to bytes.

    A byte that Latin-1 prints (0x21 to 0x7e, 0xa1 to 0xac, 0xae to 0xff) stands for itself; the other 68, in
    ascending order, are written as the characters from U+0100 on. So a space (0x20, the 33rd of them) is U+0120.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


class Vocabulary:
    """Token texts by id.

    Parameters
    ----------
    pieces : sequence of str or bytes
        The tokens as the tokenizer's file spells them, in id order (bytes are taken as UTF-8).
    byte_level : bool
        Whether they are spelt in GPT-2's characters (U+0120 for a space) or plainly.
    """

    def __init__(self, pieces: Sequence[str | bytes], *, byte_level: bool) -> None:
        self._pieces = pieces
        self._bytes = byte_characters() if byte_level else None

    def __len__(self) -> int:
        return len(self._pieces)

    def octets(self, token: int) -> bytes:
        """Return the bytes of a token, which may be part of a character only.

        A token with a character outside the table (an added token may be spelt plainly) is returned as it is spelt.
        A head may have more rows than there are tokens: theirs are ``<id>``.
        """
        if token >= len(self._pieces):
            return f"<{token}>".encode()
        piece = self._pieces[token]
        spelt = piece if isinstance(piece, str) else piece.decode("utf-8", errors="backslashreplace")
        if self._bytes is None or any(character not in self._bytes for character in spelt):
            return spelt.encode()
        return bytes(self._bytes[character] for character in spelt)

    def text(self, token: int) -> str:
        r"""Return the text of a token; bytes that are no UTF-8 come as ``\xe2``."""
        return self.octets(token).decode("utf-8", errors="backslashreplace")

    def join(self, tokens: Sequence[int]) -> str:
        """Return the text of several tokens one after another."""
        return "".join(self.text(int(token)) for token in tokens)
