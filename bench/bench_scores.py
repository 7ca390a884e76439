"""`logits_scores` beside the projection alone and PyTorch's log_softmax, gather and entropy; with most rows ignored."""

from __future__ import annotations

import pytest

from bench import scoring
from bench.conftest import Hold
from bench.setting import Setting
from bench.shapes import head


@pytest.mark.parametrize(("name", "dtype"), [("gpt2", "f32"), ("llama3-8b", "bf16")])
def test_logits_scores(hold: Hold, setting: Setting, name: str, dtype: str) -> None:
    hold(scoring.logits_scores(setting, head(name, reduced=setting.reduced), dtype, 2048))
