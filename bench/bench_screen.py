"""Top-k by way of the int8 screen beside the full pass and the peers, the pass alone, and what preparation takes."""

from __future__ import annotations

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench import screen
from bench.conftest import Hold
from bench.contest import Contest, UnavailableError
from bench.setting import Setting
from bench.shapes import head
from lmhead_native import _core


def hold_with_survivors(hold: Hold, benchmark: BenchmarkFixture, contest: Contest) -> None:
    """Report, beside the times, how many logits of a row were computed."""
    benchmark.extra_info["rescored"] = float(np.median(contest.ours.call().rescored))  # type: ignore[attr-defined]
    hold(contest)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("n", [1, 8, 64])
@pytest.mark.parametrize("name", ["smollm2", "llama3-8b"])
def test_screened_topk(
    hold: Hold, benchmark: BenchmarkFixture, setting: Setting, name: str, n: int, dtype: str
) -> None:
    shape = head(name, reduced=setting.reduced)
    hold_with_survivors(hold, benchmark, screen.screened_topk(setting, shape, dtype, n))


@pytest.mark.parametrize("n", [1, 8])
def test_real_head(hold: Hold, benchmark: BenchmarkFixture, setting: Setting, n: int) -> None:
    try:
        contest = screen.real_head(setting, n)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    hold_with_survivors(hold, benchmark, contest)


@pytest.mark.parametrize("isa", [isa for isa in _core.usable_isas() if isa != "scalar"])
@pytest.mark.parametrize("n", [1, 4, 8])
@pytest.mark.parametrize("name", ["smollm2", "llama3-8b"])
def test_int8_pass(hold: Hold, setting: Setting, name: str, n: int, isa: str) -> None:
    hold(screen.int8_pass(setting, head(name, reduced=setting.reduced), n, isa))


@pytest.mark.parametrize("what", ["screen", "copy"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", ["smollm2", "llama3-8b"])
def test_preparation(hold: Hold, setting: Setting, name: str, dtype: str, what: str) -> None:
    hold(screen.preparation(setting, head(name, reduced=setting.reduced), dtype, what))
