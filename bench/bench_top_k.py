"""`logits_topk` beside the projection alone and an exact index; `topk` of given logits beside the peers."""

from __future__ import annotations

import pytest

from bench import projection, rows
from bench.conftest import Hold
from bench.setting import Setting
from bench.shapes import head


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("n", [1, 8, 64, 256])
@pytest.mark.parametrize("name", ["gpt2", "llama3-8b"])
def test_logits_topk(hold: Hold, setting: Setting, name: str, n: int, dtype: str) -> None:
    hold(projection.logits_topk(setting, head(name, reduced=setting.reduced), dtype, n))


@pytest.mark.parametrize("n", [1, 8, 32])
@pytest.mark.parametrize("name", ["gpt2", "llama3-8b"])
def test_search(hold: Hold, setting: Setting, name: str, n: int) -> None:
    hold(projection.search(setting, head(name, reduced=setting.reduced), n))


@pytest.mark.parametrize("vocabulary", [50257, 128256])
@pytest.mark.parametrize("n", [1, 64])
def test_topk(hold: Hold, setting: Setting, n: int, vocabulary: int) -> None:
    hold(rows.topk(setting, n, vocabulary))
