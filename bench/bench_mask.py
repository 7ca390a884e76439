"""Masked `logits_topk` beside the call without a mask."""

from __future__ import annotations

import pytest

from bench import mask
from bench.conftest import Hold
from bench.setting import Setting
from bench.shapes import head


@pytest.mark.parametrize("which", mask.SETS)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("n", [1, 64])
@pytest.mark.parametrize("name", ["gpt2", "llama3-8b"])
def test_masked_topk(hold: Hold, setting: Setting, name: str, n: int, dtype: str, which: str) -> None:
    hold(mask.logits_topk(setting, head(name, reduced=setting.reduced), dtype, n, which))
