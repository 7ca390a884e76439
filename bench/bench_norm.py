"""`layer_norm` and `rms_norm` with a gain: the norm before the head, for one position and for a prompt."""

from __future__ import annotations

import pytest

from bench import rows
from bench.conftest import Hold
from bench.setting import Setting


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize(("n", "width"), [(1, 768), (1, 4096), (512, 4096)])
def test_norm(hold: Hold, setting: Setting, op: str, n: int, width: int) -> None:
    hold(rows.norm(setting, op, n, width))
