"""The scripts in examples/ run as their first lines say, and do what they promise.

Knows how to start them and what they print. Refuses to know how they work.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

import fresh

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_character_model_learns(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    curve = tmp_path / "loss.png"
    done = fresh.run(EXAMPLES / "train_character_model.py", "--plot", str(curve))
    assert done.returncode == 0, done
    vocabulary, log_v = re.search(r"V = (\d+), log V = ([\d.]+)", done.stdout).groups()  # type: ignore[union-attr]
    assert float(log_v) == pytest.approx(math.log(int(vocabulary)), abs=5e-4)
    start, end = re.search(r"start ([\d.]+), at the end ([\d.]+)", done.stdout).groups()  # type: ignore[union-attr]
    assert float(start) == pytest.approx(float(log_v), abs=0.05)
    assert float(end) < 1.0
    assert "goal of 1.0: reached" in done.stdout
    assert curve.read_bytes().startswith(b"\x89PNG")


def test_a_missed_goal_is_a_failure() -> None:
    done = fresh.run(EXAMPLES / "train_character_model.py", "--steps", "3")
    assert done.returncode == 1
    assert "goal of 1.0: missed" in done.stdout
