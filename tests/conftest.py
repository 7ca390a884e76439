"""Fixtures of the whole suite: every usable kernel table, and thread counts around the number of cores."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lmhead_native import _core

# The code of avx512, compiled with one flag more that only the screen's kernels look at: a quarter of the suite for
# nothing. Tests of equal bits and of the screen have it.
SAME_CODE = ("avx512vnni",)


def use(isa: str) -> Iterator[str]:
    before = _core.isa()
    _core.use_isa(isa)
    assert _core.isa() == isa
    yield isa
    _core.use_isa(before)


@pytest.fixture(params=[isa for isa in _core.usable_isas() if isa not in SAME_CODE])
def each_isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs once on every kernel table that this CPU can run and that has code of its own."""
    yield from use(request.param)


@pytest.fixture(params=_core.usable_isas())
def every_isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs once on every kernel table that this CPU can run."""
    yield from use(request.param)


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> int:
    """Fewer, as many and more threads than the usual two cores."""
    count: int = request.param
    return count
