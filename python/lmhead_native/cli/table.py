"""Plain text tables, and numbers with a unit, as the commands print them.

Knows: columns, alignment, three significant digits. Refuses to know: where the numbers come from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lmhead_native.cli.terminal import Terminal, cells

# The largest unit in which the number is at least 1; three significant digits are what medians of 7 carry.
TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
BYTE_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def three_digits(value: float) -> str:
    """Write a positive number with three significant digits and no exponent (``1234`` stays ``1234``)."""
    if not math.isfinite(value):
        return str(value)
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def duration(seconds: float) -> str:
    """Write a time with its unit: ``3.62 ms``."""
    for size, unit in TIME_UNITS:
        if seconds >= size:
            return f"{three_digits(seconds / size)} {unit}"
    return f"{three_digits(seconds / 1e-9)} ns"


def byte_size(count: int) -> str:
    """Write a number of bytes with its binary unit: ``147 MiB``."""
    for size, unit in BYTE_UNITS:
        if count >= size:
            return f"{three_digits(count / size)} {unit}"
    return "0 B"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], terminal: Terminal, *, gap: int = 3) -> str:
    """Lay out right-aligned columns under a bold heading.

    Parameters
    ----------
    head : sequence of str
        The column headings.
    rows : sequence of sequence of str
        One sequence a row, as long as ``head``.
    terminal : Terminal
        Decides about the bold type.
    gap : int
        Spaces before each column.
    """
    widths = [max(cells(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [
        "".join(" " * (gap + width - cells(cell)) + cell for cell, width in zip(row, widths, strict=True))
        for row in (head, *rows)
    ]
    return "\n".join([terminal.style(lines[0], "bold"), *lines[1:]])
