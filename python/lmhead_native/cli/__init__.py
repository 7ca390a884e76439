"""The command line ``lmhead-native``: it finds the command, runs it, and turns failures into one line and a number.

Knows: the commands' names and the exit codes. Refuses to know: what a command does. ``import lmhead_native`` never
imports this package.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from lmhead_native import _core
from lmhead_native.cli import bench, demo, generate, info, score, topk
from lmhead_native.cli.arguments import PROGRAM, Parser
from lmhead_native.cli.errors import (
    EXIT_BROKEN_PIPE,
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    CommandError,
)

__all__ = ["main"]

DESCRIPTION = "The language-model head on CPU: from hidden states to logits, probabilities and top-k lists."
EPILOG = f"'{PROGRAM} COMMAND --help' explains a command. Exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted."


def build_parser() -> Parser:
    """Declare the program's options and its commands."""
    parser = Parser(prog=PROGRAM, description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {_core.config()['version']}")
    parser.add_argument("--traceback", action="store_true", help="let an error show Python's traceback")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for command in (demo, generate, topk, score, info, bench):
        command.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments without the program's name; by default those of the process.

    Returns
    -------
    int
        The exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted (Ctrl-C), 141 when the reader of the
        output went away.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # started with it closed: nobody listens
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (as long as the process)
    parser = build_parser()
    traceback = False
    try:
        args = parser.parse_args(argv)
        traceback = args.traceback
        if args.command is None:
            parser.print_help(sys.stderr)
            return EXIT_USAGE
        args.run(args)
        sys.stdout.flush()
    except SystemExit as stop:  # --help, --version, and Parser.error, which has said its line
        return stop.code if isinstance(stop.code, int) else EXIT_OK
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes stdout once more at exit: give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except Exception as error:  # whatever it was, a user gets one line
        if traceback:
            raise
        print(f"{PROGRAM}: error: {describe(error)}", file=sys.stderr)
        return error.exit_code if isinstance(error, CommandError) else EXIT_FAILURE
    return EXIT_OK


def describe(error: Exception) -> str:
    """Put an error into one line."""
    if isinstance(error, CommandError):
        return str(error)
    if isinstance(error, MemoryError):
        return f"not enough memory: {error}" if str(error) else "not enough memory"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text} ('{PROGRAM} --traceback COMMAND ...' shows where)"
