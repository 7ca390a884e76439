"""Fixtures of the benches: the conditions of the run, and one way to race, record, time and check a contest.

With `--benchmark-disable` sizes are reduced, nothing is raced and every result is checked: that is what continuous
integration runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench import peers
from bench.contest import Contest, Outcome, kept_table
from bench.setting import Setting
from bench.summary import summary

OUTCOMES = pytest.StashKey[list[tuple[str, Outcome]]]()

Hold = Callable[[Contest], None]


def pytest_report_header(config: pytest.Config) -> str:
    """Say who takes part and who is not installed."""
    versions = peers.versions()
    present = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    absent = ", ".join(name for name, version in versions.items() if not version)
    return f"peers: {present}" + (f"; not installed, left out: {absent}" if absent else "")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the races: pytest-benchmark's table does not show the extra information."""
    outcomes = config.stash.get(OUTCOMES, [])
    if outcomes:
        terminalreporter.section("races (medians of interleaved samples; roofs measured beside ours)")
        terminalreporter.write_line(summary(outcomes))


@pytest.fixture(scope="session")
def setting(request: pytest.FixtureRequest) -> Iterator[Setting]:
    """The conditions of the run; reduced sizes where nothing is measured."""
    conditions = Setting(reduced=bool(request.config.getoption("benchmark_disable")))
    with peers.peer_threads(conditions.threads):
        yield conditions


@pytest.fixture
def hold(benchmark: BenchmarkFixture, request: pytest.FixtureRequest) -> Hold:
    """Race a contest, put its figures into the extra information, time ours for the table, check the result."""

    def hold_contest(contest: Contest) -> None:
        benchmark.group, benchmark.name = contest.group, contest.title
        if benchmark.enabled:
            outcome = contest.run()
            benchmark.extra_info.update(outcome.figures())
            request.config.stash.setdefault(OUTCOMES, []).append((contest.title, outcome))
        with kept_table():
            contest.ours.prepare()
            contest.check(benchmark(contest.ours.call))

    return hold_contest
