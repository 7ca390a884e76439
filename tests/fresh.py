"""Python code in a fresh interpreter, which the state of the test process does not reach.

Knows processes, environments and time limits. Refuses to know what the code is for.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# Far more than any of these processes needs, also under a sanitizer: what takes longer hangs.
LIMIT_SECONDS = 120


class Finished(NamedTuple):
    """How a process ended."""

    returncode: int
    stdout: str
    stderr: str


def run(
    code: str | Path,
    *arguments: str,
    environment: Mapping[str, str | None] | None = None,
    options: Sequence[str] = (),
) -> Finished:
    """Run code, or a file, with variables changed (None: unset); children that a hung process leaves end with it."""
    changed: dict[str, str | None] = {**os.environ, **(environment or {})}
    variables = {name: value for name, value in changed.items() if value is not None}
    command = [sys.executable, *options, *([str(code)] if isinstance(code, Path) else ["-c", code]), *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables, start_new_session=True
    )
    try:
        stdout, stderr = process.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return Finished(process.returncode, stdout, stderr)


def output(
    code: str | Path,
    *arguments: str,
    environment: Mapping[str, str | None] | None = None,
    options: Sequence[str] = (),
) -> str:
    """Return what the code prints, having asserted that it succeeds and says nothing on stderr."""
    finished = run(code, *arguments, environment=environment, options=options)
    assert (finished.returncode, finished.stderr) == (0, ""), finished
    return finished.stdout
