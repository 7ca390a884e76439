"""Measures every demand on the head in one run: `python bench/report.py > bench/RESULTS.md`.

Knows: the command line, the order of the cases, progress. Refuses to know: bars, calls, clocks, the look of tables.
"""

from __future__ import annotations

import argparse
import fnmatch
import gc
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

# Run as a file: where the package `bench` is, and the oracle that tests and benches share.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))

from bench import peers
from bench.contest import UnavailableError
from bench.demand import Case
from bench.demands import cases
from bench.markdown import Finding, document, heading
from bench.setting import Setting

# Rounds of each race with --quick.
QUICK_ROUNDS = 3


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    options = argparse.ArgumentParser(
        description="Measure what the head must reach and print a Markdown report; progress goes to stderr.",
        epilog="exit status: 0, or 1 if a result was wrong (a bar that is missed is only reported)",
    )
    options.add_argument(
        "--only",
        action="append",
        metavar="PATTERN",
        help="cases whose name, or one of whose demands' names, matches: 'logits/f32/*/n1', '*/torch', topk "
        "(repeatable; a pattern without wildcards matches any part)",
    )
    options.add_argument("--list", action="store_true", help="print the names of the demands and exit")
    options.add_argument(
        "--quick", action="store_true", help="small sizes, to see that everything works; no figure counts"
    )
    options.add_argument(
        "--peers",
        metavar="NAMES",
        help=f"comma-separated: {', '.join(peers.PEERS)}, or none (default: all that are installed)",
    )
    options.add_argument(
        "--rounds", type=int, metavar="R", help="samples of each racer (default: 5 to 15, by their length)"
    )
    options.add_argument("--json", type=Path, metavar="FILE", help="write every sample too")
    return options


def selected(patterns: Sequence[str] | None) -> list[Case]:
    """Return the cases that a pattern names."""
    if patterns is None:
        return list(cases())
    wild = [pattern if any(c in pattern for c in "*?[") else f"*{pattern}*" for pattern in patterns]
    return [
        case
        for case in cases()
        if any(fnmatch.fnmatchcase(name, pattern) for name in (case.name, *case.names()) for pattern in wild)
    ]


def measure(case: Case, setting: Setting, rounds: int | None) -> list[Finding]:
    """Run one case: race, then check the result; a wrong result or a missing racer is a finding too."""
    try:
        contest = case.build(setting)
        outcome = contest.run(rounds=QUICK_ROUNDS, retakes=0) if setting.reduced else contest.run(rounds=rounds)
        contest.check(contest.result())
    except UnavailableError as reason:
        return [Finding(case, demand, problem=f"not measured: {reason}") for demand in case.demands]
    except AssertionError as error:
        return [Finding(case, demand, problem="WRONG RESULT", detail=str(error)) for demand in case.demands]
    return [Finding.of(case, demand, outcome) for demand in case.demands]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    options = parser().parse_args(arguments)
    chosen = selected(options.only)
    if options.list:
        print("\n".join(name for case in chosen for name in case.names()))
        return 0
    wanted = peers.PEERS if options.peers is None else tuple(options.peers.split(","))
    unknown = set(wanted) - {*peers.PEERS, "none"}
    if unknown:
        parser().error(
            f"argument --peers: expected names of {', '.join(peers.PEERS)} or none, got {', '.join(unknown)}"
        )
    setting = Setting(reduced=options.quick, peers=peers.installed([name for name in wanted if name != "none"]))
    findings: list[Finding] = []
    began = time.perf_counter()
    try:
        with peers.peer_threads(setting.threads):
            for number, case in enumerate(chosen, 1):
                start = time.perf_counter()
                found = measure(case, setting, options.rounds)
                findings += found
                gc.collect()
                for finding in found:
                    said = f"[{number}/{len(chosen)}] {finding.line()} ({time.perf_counter() - start:.0f} s)"
                    print(said, finding.detail, file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("interrupted: the report holds what was measured", file=sys.stderr)
    command = " ".join(["python bench/report.py", *(sys.argv[1:] if arguments is None else arguments)])
    print(heading(setting, command, time.perf_counter() - began, findings))
    print(document(findings, judged=not setting.reduced))
    if options.json is not None:
        records = [finding.record() for finding in findings]
        options.json.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    return 1 if any(finding.problem == "WRONG RESULT" for finding in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
