"""Nothing is read past the end of an array: weights of floats under a screen and its lists, their copies, scores.

Quantised weights have their own in test_quantized_weight.py.
"""

from __future__ import annotations

from pathlib import Path

import fresh

SETUP = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
"""

SCREENS = """
import numpy as np
import lmhead_native as native
from guarded import at_the_end
from lmhead_native import _core
from oracle import BFLOAT16, NARROW, assert_same_bits

rng = np.random.default_rng(0)

def bits(copy):
    return copy if isinstance(copy, np.ndarray) else copy.stored.view(BFLOAT16)

for dtype in NARROW:
    for width in (1, 15, 17, 33, 65, 127):
        for vocabulary in (5, 33, 67):
            weight, hidden = rng.standard_normal((vocabulary, width)), rng.standard_normal((1, width))
            weight, hidden = weight.astype(dtype), hidden.astype(dtype)
            screen = _core.Screen(weight, 1)
            ends = _core.screen_ends(screen, hidden)
            lists = native.logits_topk(hidden, weight, vocabulary // 4)
            for guarded in (at_the_end(weight), at_the_end(weight.T).T):
                for found, expected in zip(_core.screen_ends(_core.Screen(guarded, 1), at_the_end(hidden)), ends):
                    assert_same_bits(found, expected)
                assert_same_bits(bits(_core.prepared_copy(guarded, 2)), weight)
                found = _core.screened_topk(
                    screen, at_the_end(hidden), guarded, vocabulary // 4, *[None] * 6, 1
                )
                assert_same_bits(found[0], lists.values)
                assert_same_bits(found[1], lists.indices)
                wide = at_the_end(hidden.astype("f4"))
                found = _core.screened_topk(screen, wide, guarded, vocabulary // 4, *[None] * 6, 1)
                expected = native.logits_topk(wide, weight, vocabulary // 4)
                assert_same_bits(found[0], expected.values)
                assert_same_bits(found[1], expected.indices)
                expected = native.logits_topk(hidden, weight, 1)
                assert_same_bits(native.logits_topk(at_the_end(hidden), guarded, 1).values, expected.values)
# The last row is among the few whose logits are computed.
for dtype in NARROW:
    weight, hidden = rng.standard_normal((401, 127)), rng.standard_normal(127)
    weight[-1] = hidden
    weight, hidden = weight.astype(dtype), hidden.astype(dtype)
    for guarded in (at_the_end(weight), at_the_end(weight.T).T):
        _, ids, rescored = _core.screened_topk(_core.Screen(weight), hidden, guarded, 3, *[None] * 6, 2)
        assert ids[0] == 400
        assert rescored < 100
print(native.isa())
"""


def test_screens_and_copies(every_isa: str) -> None:
    assert fresh.output(SETUP + SCREENS, environment={"LMHEAD_ISA": every_isa}).split() == [every_isa]


SCORES = """
import numpy as np
import lmhead_native as native
from guarded import at_the_end
from oracle import FLOATS, assert_same

rng = np.random.default_rng(0)
for dtype in FLOATS:
    for vocabulary in (1, 7, 15, 17, 33, 255, 257, 300):
        hidden, weight = rng.standard_normal((3, 9)).astype(dtype), rng.standard_normal((vocabulary, 9)).astype(dtype)
        logits = native.logits(hidden, weight).astype(dtype)
        targets, last = rng.integers(0, vocabulary, 3), np.array([vocabulary - 1])
        asked = {"targets": at_the_end(targets), "chosen": at_the_end(last), "top_n": 1, "threads": 1}
        expected = native.scores(logits, targets, chosen=last, top_n=1)
        assert_same(native.scores(at_the_end(logits), **asked), expected)
        assert_same(native.scores(at_the_end(logits.T).T, **asked), expected)
        expected = native.logits_scores(hidden, weight, targets, chosen=last, top_n=1)
        for guarded in (at_the_end(weight), at_the_end(weight.T).T):
            assert_same(native.logits_scores(at_the_end(hidden), guarded, **asked), expected)
print(native.isa())
"""


def test_scores(each_isa: str) -> None:
    assert fresh.output(SETUP + SCORES, environment={"LMHEAD_ISA": each_isa}).split() == [each_isa]


def test_the_guard_is_there() -> None:
    """A byte beyond the end ends the process."""
    finished = fresh.run(
        SETUP + "import ctypes, numpy, guarded\n"
        "array = guarded.at_the_end(numpy.ones(7))\n"
        "print(ctypes.string_at(array.ctypes.data, 56).hex()[-4:], flush=True)\n"
        "ctypes.string_at(array.ctypes.data, 57)\n"
    )
    assert finished.stdout == "f03f\n"
    assert finished.returncode != 0  # by a signal, or by a sanitizer that catches it
