"""What a call costs when there is nothing to compute, and what the import costs."""

from __future__ import annotations

from bench import calls
from bench.conftest import Hold
from bench.setting import Setting


def test_smallest_call(hold: Hold, setting: Setting) -> None:
    hold(calls.smallest_call(setting))


def test_import(hold: Hold) -> None:
    hold(calls.import_time())
