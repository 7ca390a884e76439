"""Two bad arguments at once: of which of them a loss speaks, native and reference alike.

Knows one or two bad values for every argument of the losses. Refuses to know sentences: those of a single bad argument
are in test_errors.py, and whichever is spoken of here must be spoken of in the very same words.
"""

from __future__ import annotations

import inspect
import itertools
import re
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import lmhead_native as native
from calls import GRADIENT_SHAPES, LOSSES, D, N, V, arguments, call
from lmhead_native import reference

FLAGS, OF_5, OF_V = np.ones(N, bool), np.ones(N - 1), np.ones(V + 1)
# Of a wrong kind or dtype, and of a wrong shape or value, where these may be noticed at different times.
BAD: dict[str, list[Any]] = {
    "hidden": [None, [[True] * D] * N, np.float32(1), np.ones((N, D + 1), np.float32), np.ones((N, D))],
    "weight": [None, [[True] * D] * V, np.ones((V, D), complex), np.ones(D, np.float32)],
    "logits": [None, np.float32(1)],
    "targets": [None, np.ones(N), np.ones((N, V)), np.zeros(N - 1, int), np.array([0, V, 0, 0, 0])],
    "bias": [np.ones(V, bool), np.ones(V + 1), [1.0, [2.0]]],
    "class_weight": [np.ones(V, bool), np.ones(V + 1)],
    "token_weight": [np.ones(N, bool), np.ones(N - 1)],
    "grad_output": [np.ones(N, bool), np.ones(N - 1)],
    "reduction": [None, "avg"],
    "ignore_index": [1.5],
    "label_smoothing": [2],
    "softcap": [0],
    "scale": ["1"],
    "temperature": [0],
    "lse_square_scale": [-1],
    "shift": [-1],
    "filter_eps": ["1"],
    "chunk_rows": [0],
    "empty": [None, "0"],
    "num_items": [-1, 3],  # the second goes with no reduction but the mean
    "stats": [1],
    "threads": [0],
    "wrt": [None, ["logits"]],
    "accumulate": [None, True],  # the second without an array to add to
}


def bad_calls(name: str) -> list[dict[str, Any]]:
    """Return what to replace in a good call of the function `name`, so that it is refused for one reason."""
    cases: list[dict[str, Any]] = []
    for argument in inspect.signature(getattr(native, name)).parameters:
        if argument in BAD:
            cases += [{argument: bad} for bad in BAD[argument]]
    for argument, shape in GRADIENT_SHAPES.get(name, {}).items():
        bad = [[1.0], np.zeros(shape), np.zeros((1, *shape), np.float32)]
        cases += [{argument: array} for array in bad]
    if "wrt" in inspect.signature(getattr(native, name)).parameters:
        shared = np.zeros((max(N, V), D), np.float32)
        cases.append({"wrt": ["hidden"], "dweight_out": np.zeros((V, D), np.float32)})
        cases.append({"bias": None, "dbias_out": np.zeros(V, np.float32)})
        cases.append({"dhidden_out": shared[:N], "dweight_out": shared[:V]})
    return cases


def refusal(name: str, module: ModuleType, *replaced: dict[str, Any]) -> tuple[type[Exception], str]:
    """Return what a function says of a call, up to where the sentence speaks of another argument."""
    given = arguments(name)
    for each in replaced:
        given |= each
    with pytest.raises((TypeError, ValueError, IndexError)) as caught:
        call(name, given, module)
    return type(caught.value), re.split(" with | beside | as ", str(caught.value))[0]


@pytest.mark.parametrize("name", LOSSES)
def test_the_same_argument_is_refused_first(name: str) -> None:
    cases = bad_calls(name)
    assert set(inspect.signature(getattr(native, name)).parameters) == {key for case in cases for key in case}
    alone = {module: [refusal(name, module, case) for case in cases] for module in (native, reference)}
    wrong = []
    for i, j in itertools.combinations(range(len(cases)), 2):
        if not cases[i].keys().isdisjoint(cases[j]):
            continue
        said = {module: refusal(name, module, cases[i], cases[j]) for module in alone}
        blamed = {i if said[module] == alone[module][i] else j for module in alone}
        assert all(said[module] in (alone[module][i], alone[module][j]) for module in alone), said
        if len(blamed) > 1:
            wrong.append(said)
    assert not wrong
