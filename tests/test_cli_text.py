"""What the command line writes: token texts, quoted text, bars, colour."""

from __future__ import annotations

import io

import pytest

from lmhead_native.cli.terminal import Terminal, padded
from lmhead_native.cli.vocabulary import Vocabulary, byte_characters


def test_byte_level_tokens_become_text() -> None:
    assert sorted(byte_characters().values()) == list(range(256))
    spelt = ["\u0120Rome", "\u010a\u010a", "caf\u00c3\u00a9", "\u00e2\u0124", "plain space"]
    texts = Vocabulary([*spelt, "\u0120bytes".encode()], byte_level=True)
    assert [texts.text(token) for token in range(len(texts))] == [
        " Rome",
        "\n\n",
        "caf\u00e9",
        "\\xe2\\x82",
        "plain space",
        " bytes",
    ]
    assert Vocabulary(["\u0120x"], byte_level=False).text(0) == "\u0120x"


def test_quoted_text_shows_what_is_invisible() -> None:
    assert Terminal().quoted(' a"\n\\\x1b[0m\u200b') == '" a\\"\\n\\\\\\x1b[0m\\u200b"'
    assert Terminal(encoding="ascii").quoted("caf\u00e9") == '"caf\\xe9"'
    assert padded("\u65e5\u672c", 6) == "\u65e5\u672c  "


def test_bars() -> None:
    assert Terminal().bar(0.5, 4) == "\u2588\u2588"
    assert Terminal().bar(1e-9, 4) == "\u258f"
    assert Terminal().bar(0.0, 4) == ""
    assert Terminal(encoding="ascii").bar(0.5, 4) == "##"


class FakeTerminal(io.StringIO):
    """A text stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def test_colour_only_on_a_terminal_and_not_under_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Terminal.of(FakeTerminal()).style("x", "bold") == "\x1b[1mx\x1b[0m"
    assert Terminal.of(io.StringIO()).style("x", "bold") == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Terminal.of(FakeTerminal()).style("x", "bold") == "x"
