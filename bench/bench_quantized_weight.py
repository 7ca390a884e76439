"""`logits` of quantised heads: the share of the read bandwidth over their own bytes, and the peers on float32."""

from __future__ import annotations

import pytest

from bench import quantized
from bench.conftest import Hold
from bench.setting import Setting
from bench.shapes import head
from lmhead_native import _core

TABLES = [isa for isa in ("avx2", "avx512bf16") if isa in _core.usable_isas()]


@pytest.mark.parametrize("rows", [1, 64])
@pytest.mark.parametrize("storage", ["int8", "int4 g32", "q8_0"])
@pytest.mark.parametrize("name", ["smollm2", "llama3-8b"])
def test_logits(hold: Hold, setting: Setting, name: str, storage: str, rows: int) -> None:
    hold(quantized.logits(setting, head(name, reduced=setting.reduced), storage, rows))


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("storage", [*quantized.STORAGES, "q8_0"])
@pytest.mark.parametrize("isa", TABLES)
def test_logits_on_table(hold: Hold, setting: Setting, isa: str, storage: str, rows: int) -> None:
    hold(quantized.logits(setting, head("gpt2", reduced=setting.reduced), storage, rows, isa=isa))
