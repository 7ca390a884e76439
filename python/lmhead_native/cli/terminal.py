"""What the output can show: colour, block characters, a width; bars and quoted text drawn for it.

Knows: the stream, ``NO_COLOR``, ``TERM``. Refuses to know: what the text means.
"""

from __future__ import annotations

import os
import shutil
import unicodedata
from dataclasses import dataclass
from typing import TextIO

# Below 60 columns the tables wrap whatever we do; above 110 a bar says no more than a shorter one.
NARROWEST, WIDEST = 60, 110
# Left eighths of a cell, U+258F (1/8) down to U+2588 (full): a bar has eight steps a column.
EIGHTHS = " \u258f\u258e\u258d\u258c\u258b\u258a\u2589\u2588"
SGR = {"bold": "1", "dim": "2", "green": "32", "cyan": "36"}


@dataclass(frozen=True)
class Terminal:
    """The abilities of one output stream."""

    width: int = 80
    colour: bool = False
    encoding: str = "utf-8"

    @classmethod
    def of(cls, stream: TextIO) -> Terminal:
        """Read the abilities of ``stream``; colour only on a terminal, and not under ``NO_COLOR``."""
        columns = shutil.get_terminal_size((100, 24)).columns
        colour = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return cls(
            width=min(max(columns, NARROWEST), WIDEST),
            colour=colour,
            encoding=getattr(stream, "encoding", None) or "ascii",
        )

    def can_show(self, text: str) -> bool:
        """Tell whether the stream's encoding has every character of ``text``."""
        try:
            text.encode(self.encoding)
        except (UnicodeEncodeError, LookupError):
            return False
        return True

    def style(self, text: str, name: str) -> str:
        """Wrap ``text`` in a colour or weight of :data:`SGR`, if the stream shows any."""
        return f"\x1b[{SGR[name]}m{text}\x1b[0m" if self.colour else text

    def bar(self, share: float, columns: int) -> str:
        """Draw ``share`` (0 to 1) of ``columns`` cells; a share above 0 shows at least its thinnest mark."""
        share = min(max(share, 0.0), 1.0)
        if not self.can_show(EIGHTHS):
            return "#" * (max(1, round(share * columns)) if share > 0 else 0)
        eighths = max(1, round(share * columns * 8)) if share > 0 else 0
        return EIGHTHS[8] * (eighths // 8) + EIGHTHS[eighths % 8].strip()

    def quoted(self, text: str) -> str:
        r"""Put ``text`` in double quotes, so that a leading space shows, as in ``" Rome"``.

        Quotes, backslashes, control and unencodable characters are escaped as Python does.
        """
        shown = []
        for character in text:
            if character in '"\\':
                shown.append("\\" + character)
            elif character == " " or (character.isprintable() and self.can_show(character)):
                shown.append(character)
            else:
                shown.append(character.encode("unicode_escape").decode("ascii"))
        return '"' + "".join(shown) + '"'


def cells(text: str) -> int:
    """Count the columns ``text`` takes: wide East Asian characters two, combining marks none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def padded(text: str, columns: int) -> str:
    """Pad ``text`` with spaces on the right to ``columns`` cells (longer text is left as it is)."""
    return text + " " * (columns - cells(text))
