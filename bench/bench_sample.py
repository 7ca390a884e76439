"""`logits_sample` beside `logits_topk` and PyTorch; `sample` of given logits beside PyTorch's sort and draw."""

from __future__ import annotations

import pytest

from bench import sampling
from bench.conftest import Hold
from bench.setting import Setting
from bench.shapes import head


@pytest.mark.parametrize("kind", sampling.KINDS)
@pytest.mark.parametrize("n", [1, 64])
def test_logits_sample(hold: Hold, setting: Setting, n: int, kind: str) -> None:
    hold(sampling.logits_sample(setting, head("llama3-8b", reduced=setting.reduced), "bf16", n, kind))


@pytest.mark.parametrize("kind", sampling.KINDS)
@pytest.mark.parametrize("n", [1, 64])
def test_sample(hold: Hold, setting: Setting, n: int, kind: str) -> None:
    hold(sampling.sample(setting, n, 128256, kind))
