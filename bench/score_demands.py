"""What scoring of texts must reach.

Knows: shapes, rows, bars, which figure answers which bar. Refuses to know: how contests are set up, run and printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench import scoring
from bench.contest import OURS
from bench.demand import Case, Demand, faster, on_head, shorter, slower

ROWS = 2048
SECTION = "logits_scores of 2,048 tokens"


def score_cases(name: str, dtype: str) -> Iterator[Case]:
    """Yield the scores on one head: time beside the projection and PyTorch, ignored rows, memory of both."""
    memory = partial(scoring.peak_mebibytes, name=name, dtype=dtype, rows=ROWS)
    demands = (
        slower("logits", "times the time of logits", 1.15),
        faster("torch", 1.0, ">"),
        shorter("top_n", f"of the time with top_n = {scoring.TOP_N}", 1.05),
        shorter("90% ignored", "of the full time with 90% of the targets ignored", 0.15),
        Demand("memory", "MiB of memory beyond the arguments", lambda o: memory(OURS, outcome=o), "MiB", "<=", 64),
        Demand("torch-memory", "MiB of memory of PyTorch", lambda o: memory("torch", outcome=o), "MiB"),
    )
    yield Case(f"scores/{dtype}/{name}/n{ROWS}", SECTION, on_head(name, scoring.logits_scores, dtype, ROWS), demands)
