"""Fixtures of the whole suite: every usable kernel table, and thread counts around the number of cores."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lmhead_native import _core


@pytest.fixture(params=_core.usable_isas())
def each_isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs once on every kernel table that this CPU can run."""
    before = _core.isa()
    _core.use_isa(request.param)
    assert _core.isa() == request.param
    yield request.param
    _core.use_isa(before)


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> int:
    """Fewer, as many and more threads than the usual two cores."""
    count: int = request.param
    return count
