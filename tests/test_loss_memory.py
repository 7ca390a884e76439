"""The peak of memory of a training step, in a process of its own.

Knows how many bytes a chunk of rows may take. Refuses to know what is computed.
"""

from __future__ import annotations

import pytest

import fresh

CHILD = """
import sys
import numpy as np
import lmhead_native as native

def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

N, V, D = map(int, sys.argv[1:4])
options = {"threads": 2, "chunk_rows": int(sys.argv[4]) or None}
rng = np.random.default_rng(0)
hidden, weight = rng.standard_normal((N, D), dtype="f4"), rng.standard_normal((V, D), dtype="f4")
targets = rng.integers(0, V, N)
outs = {"dhidden_out": np.ones_like(hidden), "dweight_out": np.ones_like(weight)}
tiny = {"dhidden_out": np.ones((9, D), "f4"), "dweight_out": np.ones((2, D), "f4")}
native.linear_cross_entropy_with_grad(hidden[:9], weight[:2], targets[:9] % 2, threads=2, **tiny)
before = status("VmRSS")
assert status("VmHWM") - before < 2**20, "a peak before the call would hide its own"
native.linear_cross_entropy_with_grad(hidden, weight, targets, **options, **outs)
print(native.isa(), status("VmHWM") - before)
"""


@pytest.mark.parametrize(
    ("n", "vocabulary", "width", "chunk_rows", "beside"),
    [
        # Prepared hidden states of 256 KiB, and for each thread half a MiB and the chunk's 256 KiB.
        (768, 32064, 256, 256, 3 * 2**20),
        # Few classes: some 60 bytes for the loss of each position, and chunks that are small in all of their parts.
        (200_000, 2, 16, 0, 24 * 2**20),
    ],
)
def test_no_copy_of_a_chunk(each_isa: str, n: int, vocabulary: int, width: int, chunk_rows: int, beside: int) -> None:
    """The peak of memory is the chunk's logits and little beside them."""
    vocabulary = min(vocabulary, 2048) if each_isa == "scalar" else vocabulary  # which takes half a minute for more
    sizes = map(str, (n, vocabulary, width, chunk_rows))
    isa, grown = fresh.output(CHILD, *sizes, environment={"LMHEAD_ISA": each_isa}).split()
    assert isa == each_isa
    assert int(grown) <= chunk_rows * vocabulary * 4 + beside
