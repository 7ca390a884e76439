"""`linear_cross_entropy` beside PyTorch, the projection alone and the roofs; with gradients; with most rows ignored."""

from __future__ import annotations

import pytest

from bench import losses
from bench.conftest import Hold
from bench.setting import Setting
from bench.shapes import head

STEPS = [("gpt2", 1024), ("qwen2.5-0.5b", 512), ("llama3-8b", 256)]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(("name", "rows"), STEPS)
def test_linear_cross_entropy(hold: Hold, setting: Setting, name: str, rows: int, dtype: str) -> None:
    hold(losses.linear_cross_entropy(setting, head(name, reduced=setting.reduced), dtype, rows))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(("name", "rows"), STEPS)
def test_linear_cross_entropy_with_grad(hold: Hold, setting: Setting, name: str, rows: int, dtype: str) -> None:
    hold(losses.linear_cross_entropy_with_grad(setting, head(name, reduced=setting.reduced), dtype, rows))
