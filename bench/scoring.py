"""Contests on scores of tokens: ``logits_scores`` beside the projection alone, PyTorch, and itself with ignored rows.

Knows: how ours is called, what it is compared with, how much memory a call of either takes. Refuses to know: bars and
clocks.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import lmhead_native as native
from bench import answers, peers
from bench.contest import OURS, Contest, Outcome, UnavailableError
from bench.losses import mostly_ignored, targets_of
from bench.projection import group, hidden_states, others, ours_logits, roofs_of
from bench.setting import Setting
from bench.shapes import ROWS_DIVISOR, head
from bench.timing import Racer
from lmhead_native.cli.workload import Shape

# Alternatives that an evaluation harness asks for.
TOP_N = 5
# One call in an interpreter of its own: how far the peak of memory lies above what its arguments take.
PEAK = """
import sys
root, who, name, dtype, rows, threads = sys.argv[1:]
sys.path[:0] = [root, root + "/tests"]
from bench import peers, scoring
from bench.losses import targets_of
from bench.projection import hidden_states
from bench.shapes import head, normal

def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

shape, rows, threads = head(name, reduced=False), int(rows), int(threads)
few = hidden_states(shape, dtype, 2), normal((300, shape.width), dtype, seed=1), targets_of(2, 300)
many = hidden_states(shape, dtype, rows), normal((shape.vocabulary, shape.width), dtype, seed=1)
many = *many, targets_of(rows, shape.vocabulary)
with peers.peer_threads(threads):
    for arguments in (few, many):
        before = status("VmRSS")
        scoring.calls(*arguments, threads)[who]()
print(status("VmHWM") - before)
"""


def calls(
    hidden_nd: peers.Array, weight_vd: peers.Array, targets_n: peers.Array, threads: int
) -> dict[str, peers.Call]:
    """Return ours and PyTorch's, where that is installed."""
    ours = partial(native.logits_scores, hidden_nd, weight_vd, targets_n, threads=threads)
    return {OURS: ours, **peers.token_scores(hidden_nd, weight_vd, targets_n, peers.installed(("torch",)))}


def logits_scores(setting: Setting, shape: Shape, dtype: str, rows: int) -> Contest:
    """Set up the scores of every token, beside the projection alone, alternatives too, and with most tokens ignored."""
    rows = rows // ROWS_DIVISOR if setting.reduced else rows
    hidden, weight = hidden_states(shape, dtype, rows), setting.weights.get(shape, dtype)
    targets, threads = targets_of(rows, len(weight)), setting.threads
    call = partial(native.logits_scores, hidden, weight, threads=threads)
    theirs = peers.token_scores(hidden, weight, targets, setting.peers)
    return Contest(
        f"logits_scores {dtype} {shape} N={rows}",
        group(shape, rows),
        [
            Racer(OURS, partial(call, targets), threads),
            *others(theirs),
            ours_logits(setting, hidden, weight, name="logits"),
            Racer("top_n", partial(call, targets, top_n=TOP_N), threads),
            Racer("90% ignored", partial(call, mostly_ignored(targets)), threads),
        ],
        partial(answers.check_logits_scores, hidden, weight, targets),
        roofs_of(setting, hidden, weight),
    )


def peak_mebibytes(who: str, name: str, dtype: str, rows: int, outcome: Outcome) -> float:
    """Return the peak of memory of one call beyond its arguments.

    Raises
    ------
    UnavailableError
        The contest was one of reduced sizes, whose memory says nothing; or PyTorch is not installed.
    """
    shape = head(name, reduced=False)
    if outcome.roofs is None or outcome.roofs.work.flops < 2 * rows * shape.width * shape.vocabulary:
        raise UnavailableError("small sizes")
    if who != OURS and who not in outcome.others:
        raise UnavailableError(f"{who} did not take part")
    arguments = (str(Path(__file__).resolve().parents[1]), who, name, dtype, str(rows), str(native.get_num_threads()))
    done = subprocess.run([sys.executable, "-c", PEAK, *arguments], check=True, capture_output=True, text=True)
    return int(done.stdout) / 2**20
