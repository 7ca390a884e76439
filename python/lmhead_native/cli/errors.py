"""The errors a command reports in one line, and the exit codes of the command line.

Knows: which number a shell sees. Refuses to know: what went wrong; the sentence comes from who raises it.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
# A process that a signal ended is reported by shells as 128 + the signal: SIGINT is 2, SIGPIPE 13.
EXIT_INTERRUPTED = 128 + 2
EXIT_BROKEN_PIPE = 128 + 13


class CommandError(Exception):
    """The command cannot go on; the message is one line for the user (exit code 1)."""

    exit_code = EXIT_FAILURE


class UsageError(CommandError):
    """The arguments do not fit together, found after they were parsed one by one (exit code 2)."""

    exit_code = EXIT_USAGE


class MissingExtraError(CommandError):
    """An optional package is not installed; the message names the extra that brings it."""

    def __init__(self, purpose: str, package: str, extra: str) -> None:
        super().__init__(
            f"{purpose} needs {package}, which is not installed; pip install {package}, "
            f"or the extra [{extra}]: pip install '.[{extra}]' in a clone of the project"
        )
