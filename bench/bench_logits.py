"""`logits` beside the peers and the roofs; other layouts, tables and storage beside the usual one."""

from __future__ import annotations

import pytest

from bench import projection
from bench.conftest import Hold
from bench.setting import Setting
from bench.shapes import head
from lmhead_native import _core

ROWS = [1, 4, 8, 256]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", ["smollm2", "gpt2", "llama3-8b"])
def test_logits(hold: Hold, setting: Setting, name: str, rows: int, dtype: str) -> None:
    hold(projection.logits(setting, head(name, reduced=setting.reduced), dtype, rows))


@pytest.mark.parametrize("rows", [1, 256])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_logits_of_columns(hold: Hold, setting: Setting, dtype: str, rows: int) -> None:
    hold(projection.logits_of_columns(setting, head("gpt2", reduced=setting.reduced), dtype, rows))


@pytest.mark.parametrize("isa", _core.usable_isas())
def test_logits_on_table(hold: Hold, setting: Setting, isa: str) -> None:
    rows, best = 1 if isa == "scalar" else 256, _core.usable_isas()[-1]
    hold(projection.on_table(setting, head("gpt2", reduced=setting.reduced), rows, isa, beside=best))


@pytest.mark.parametrize("rows", [1, 256])
@pytest.mark.parametrize("storage", [("f32", "f16"), ("f32", "bf16"), ("bf16", "bf16")])
@pytest.mark.parametrize("isa", [isa for isa in ("avx2", "avx512bf16") if isa in _core.usable_isas()])
def test_logits_of_storage(hold: Hold, setting: Setting, isa: str, storage: tuple[str, str], rows: int) -> None:
    hold(projection.of_storage(setting, head("gpt2", reduced=setting.reduced), *storage, rows, isa))
