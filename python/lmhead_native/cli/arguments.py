"""Parsing of the command line's arguments: the parser's manners and the kinds of value options take.

Knows: argparse. Refuses to know: which commands there are.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeAlias, TypeVar

from lmhead_native.cli.errors import EXIT_USAGE

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

T = TypeVar("T")
PROGRAM = "lmhead-native"


class Parser(argparse.ArgumentParser):
    """An argument parser that reports a mistake in one line."""

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Print the help and flush: a closed pipe is to be noticed here (argparse's own method ignores it)."""
        print(self.format_help(), end="", file=file)
        sys.stdout.flush()

    def error(self, message: str) -> NoReturn:
        """Print the mistake and where the help is, and exit with 2."""
        print(f"{PROGRAM}: error: {message}; see '{self.prog} --help'", file=sys.stderr)
        raise SystemExit(EXIT_USAGE)


# What add_subparsers returns; argparse has no public name for it.
Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


def count(text: str) -> int:
    """Read an integer of at least 0."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"expected an integer of at least 0, got {text!r}")
    return int(text)


def positive(most: int | None = None) -> Callable[[str], int]:
    """Make a reader of integers from 1 to ``most``."""
    expected = "an integer of at least 1" if most is None else f"an integer from 1 to {most}"

    def read(text: str) -> int:
        number = int(text) if text.isascii() and text.isdecimal() else 0
        if number < 1 or (most is not None and number > most):
            raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
        return number

    return read


def real(expected: str, fits: Callable[[float], bool]) -> Callable[[str], float]:
    """Make a reader of finite numbers that fit; ``expected`` says which do."""

    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and fits(number)):
            raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
        return number

    return read


def choice(names: Sequence[str]) -> Callable[[str], str]:
    """Make a reader of one of ``names``."""

    def read(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"expected one of {', '.join(names)}, got {text!r}")
        return text

    return read


def listed(read_one: Callable[[str], T]) -> Callable[[str], list[T]]:
    """Make a reader of values separated by commas; with ``action="extend"`` the option may also be repeated."""

    def read(text: str) -> list[T]:
        try:
            return [read_one(part.strip()) for part in text.split(",")]
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read
