"""The head of GPT-2, 50257 x 768: read where it lies, on every kernel table, in a process whose memory is watched.

Knows one size and its two layouts. Refuses to know trained weights: these are normal numbers.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fresh
import oracle
from lmhead_native import _core

GPT2_CHILD = """
import sys
import ml_dtypes
import numpy as np
import lmhead_native as native
from lmhead_native import _core

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

rows, layout, dtype, threads = int(sys.argv[1]), sys.argv[2], np.dtype(sys.argv[3]), int(sys.argv[4])
rng = np.random.default_rng(11)
hidden = rng.standard_normal((rows, 768), dtype="f4").astype(dtype)
stored = np.empty((50257, 768) if layout == "E" else (768, 50257), dtype)
for row in stored:
    row[:] = rng.standard_normal(row.size, dtype="f4")
unembedding = stored.T if layout == "E" else stored  # (D, V), for "E" a view of the embedding
assert stored.size == 38597376
columns = rng.integers(0, 50257, 40)
h, w = hidden.astype("f8"), unembedding[:, columns].astype("f8")
out = np.zeros((rows, 50257), "f4")
for isa in _core.usable_isas():
    _core.use_isa(isa)
    out[:] = 0
    native.logits(hidden, unembedding[:, :64].T, threads=threads)
    native.logits_topk(hidden, unembedding[:, :64].T, 1, threads=threads)
    before = peak()
    native.logits(hidden, unembedding.T, out=out, threads=threads)
    greedy = native.logits_topk(hidden, unembedding.T, 1, threads=threads)
    grown = peak() - before

    argmax = out.argmax(axis=-1)
    np.testing.assert_array_equal(greedy.indices[:, 0], argmax)
    np.testing.assert_array_equal(greedy.values[:, 0], out.max(axis=-1))
    np.testing.assert_array_equal(native.softmax(out).argmax(axis=-1), argmax)
    assert (abs(out[:, columns] - h @ w) <= float(sys.argv[5]) * (abs(h) @ abs(w))).all()
    print(isa, grown, stored.nbytes)
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("layout", ["E", "W_U"])
@pytest.mark.parametrize("rows", [1, 9])
def test_gpt2_head_is_read_in_place(rows: int, layout: str, dtype: str) -> None:
    """Tied ``W_U = E.T`` and a head stored as (D, V): greedy decoding is argmax, and the matrix is never copied."""
    gpt2 = json.loads((Path(__file__).parent / "data" / "worked_numbers.json").read_text())["gpt2"]
    assert gpt2["D"] * gpt2["V"] == gpt2["tied_parameters"]
    arguments = [str(rows), layout, dtype, "2", str(oracle.gamma(768 + 17))]
    lines = [line.split() for line in fresh.output(GPT2_CHILD, *arguments).splitlines()]
    assert [isa for isa, _, _ in lines] == _core.usable_isas()
    for _, grown, matrix in lines:
        # Scratch is a few MiB; the matrix has 77 MB in bfloat16, 154 MB in float32.
        assert int(grown) < int(matrix) / 4
