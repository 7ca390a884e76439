"""One line on stderr that says how far a long command is.

Knows: how to draw over itself on a terminal and to stay silent elsewhere. Refuses to know: what is counted.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TextIO

from lmhead_native.cli.terminal import Terminal

BAR_COLUMNS = 24
CLEAR_LINE = "\r\x1b[K"


class Progress:
    """A bar of ``total`` steps; with ``total`` 0 only its label. Use as a context manager.

    On a terminal the line is redrawn in place and wiped at the end. Elsewhere nothing is written,
    unless ``always`` asks for the first label as a plain line.
    """

    def __init__(self, total: int = 0, *, label: str = "", always: bool = False, stream: TextIO | None = None) -> None:
        self.total, self.done, self.label = total, 0, label
        self.stream = sys.stderr if stream is None else stream
        self.live = self.stream.isatty()
        self.terminal = Terminal.of(self.stream)
        if always and not self.live:
            print(label, file=self.stream, flush=True)

    def __enter__(self) -> Progress:
        self._draw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hide()

    def hide(self) -> None:
        """Wipe the line, so that other output can take its place; the next step draws it again."""
        if self.live:
            self.stream.write(CLEAR_LINE)
            self.stream.flush()

    def step(self, label: str | None = None, *, advance: int = 1) -> None:
        """Count ``advance`` steps as done, and show ``label`` from here on."""
        self.done += advance
        self.label = self.label if label is None else label
        self._draw()

    def _draw(self) -> None:
        if not self.live:
            return
        line = self.label
        if self.total:
            bar = self.terminal.bar(self.done / self.total, BAR_COLUMNS).ljust(BAR_COLUMNS)
            line = f"{self.done:>{len(str(self.total))}}/{self.total} |{bar}| {line}"
        self.stream.write(CLEAR_LINE + line[: self.terminal.width - 1])
        self.stream.flush()
