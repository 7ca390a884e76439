"""`logsumexp` beside the peers and the read bandwidth."""

from __future__ import annotations

import pytest

from bench import rows
from bench.conftest import Hold
from bench.setting import Setting


@pytest.mark.parametrize(("n", "vocabulary"), [(1, 50257), (64, 128256), (512, 50257)])
def test_logsumexp(hold: Hold, setting: Setting, n: int, vocabulary: int) -> None:
    hold(rows.row_operation(setting, "logsumexp", n, vocabulary))
