"""Contests on hidden states and a head of which only some ids are allowed, beside the same call without a mask.

Knows: sets of allowed ids, how ours is called. Refuses to know: bars and clocks.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

import lmhead_native as native
from bench import answers
from bench.contest import OURS, Contest
from bench.projection import K, group, hidden_states
from bench.setting import Setting
from bench.timing import Racer
from lmhead_native.cli.workload import Shape
from masks import packed

# Ids that a grammar leaves in a state where it leaves few.
FEW = 100
# Share of the vocabulary that is allowed; "few" apart, and a set of its own for each row.
SHARES = {"all": 1.0, "half": 0.5, "half each": 0.5}
SETS = ("few", "few each", *SHARES)


def allowed_ids(which: str, rows: int, vocabulary: int) -> NDArray[np.bool_]:
    """Return one of `SETS`, of one row for all or of each row, as booleans."""
    rng = np.random.default_rng(4)
    n_sets = rows if which.endswith("each") else 1
    if which in SHARES:
        return rng.random((n_sets, vocabulary)) < SHARES[which]
    allowed = np.zeros((n_sets, vocabulary), bool)
    for row in allowed:
        row[rng.choice(vocabulary, FEW, replace=False)] = True
    return allowed


def logits_topk(setting: Setting, shape: Shape, dtype: str, rows: int, which: str) -> Contest:
    """Set up masked ``logits_topk`` beside the call without a mask."""
    hidden, weight = hidden_states(shape, dtype, rows), setting.weights.get(shape, dtype)
    allowed = allowed_ids(which, rows, len(weight))
    call = partial(native.logits_topk, hidden, weight, K, threads=setting.threads)
    return Contest(
        f"logits_topk k={K} {dtype} {shape} N={rows}, {which} allowed",
        group(shape, rows),
        [
            Racer(OURS, partial(call, mask=packed(allowed)), setting.threads),
            Racer("unmasked", call, setting.threads),
        ],
        partial(answers.check_masked_topk, hidden, weight, allowed, k=K),
    )
