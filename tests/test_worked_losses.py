"""Worked examples of the teaching texts that concern losses and their gradients.

Knows the numbers, and which modules must give them: add a module to `MODULES` and it is held to all of them. The
forward pass is in test_worked_numbers.py; where data/ came from is in data/README.md.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
from lmhead_native import reference

MODULES: list[ModuleType] = [native, reference]
WORKED: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "worked_numbers.json").read_text())
LESSON, TOY = WORKED["character_lesson"], WORKED["toy_head"]
# The texts round to three decimals.
THREE_DECIMALS = 5.0e-4

every_module = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
both_dtypes = pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float64)], ids=str)


class Lesson(NamedTuple):
    """The character-level lesson: B = 4, T = 8, C = 16, V = 24; the head is stored as (C, V)."""

    hidden: NDArray[Any]
    head: NDArray[Any]
    bias: NDArray[Any]
    targets: NDArray[np.int64]


def lesson(dtype: np.dtype[Any]) -> Lesson:
    rng = np.random.default_rng(42)
    assert rng.integers(0, 10011, size=4).tolist() == LESSON["ix"]
    hidden, head = rng.standard_normal((4, 8, 16)), rng.standard_normal((16, 24)) * 0.02
    return Lesson(hidden.astype(dtype), head.astype(dtype), np.zeros(24, dtype), np.array(LESSON["targets"]))


# ---- the character-level lesson ------------------------------------------------------------------------------------


@every_module
@both_dtypes
def test_the_loss_of_the_lesson(module: ModuleType, dtype: np.dtype[Any]) -> None:
    given = lesson(dtype)
    loss = module.linear_cross_entropy(given.hidden, given.head.T, given.targets, bias=given.bias)
    assert loss.dtype == dtype
    assert loss == pytest.approx(LESSON["loss"], abs=1e-6)
    logits = given.hidden @ given.head + given.bias
    assert module.cross_entropy(logits, given.targets) == pytest.approx(LESSON["loss"], abs=1e-6)
    # Nothing is learned yet: the loss is that of guessing.
    assert loss == pytest.approx(LESSON["log_vocab"], abs=0.01)


@every_module
def test_the_gradients_of_the_lesson(module: ModuleType) -> None:
    given, bar = lesson(np.dtype(np.float64)), LESSON["max_rel_err_reported"]["bar"]
    logits = given.hidden @ given.head + given.bias
    fused = native.check_gradients(
        given.hidden,
        given.head.T,
        given.targets,
        bias=given.bias,
        function=module.linear_cross_entropy_with_grad,
        wrt=("weight", "bias"),
    )
    rows = native.check_gradients(logits, given.targets, function=module.cross_entropy_with_grad, samples=200)
    # The differences here are of fourth order, and agree better than the text's.
    assert rows["logits"] < LESSON["max_rel_err_reported"]["dlogits"] < bar
    assert fused["weight"] < LESSON["max_rel_err_reported"]["dW_head"] < bar
    assert fused["bias"] < LESSON["max_rel_err_reported"]["db_head"] < bar


@every_module
@both_dtypes
def test_rows_of_dlogits_sum_to_zero(module: ModuleType, dtype: np.dtype[Any]) -> None:
    given = lesson(dtype)
    _, dlogits = module.cross_entropy_with_grad(given.hidden @ given.head, given.targets)
    assert dlogits.dtype == dtype
    rounding = 24 * np.finfo(dtype).eps / 32  # 24 entries of at most 1 / 32
    assert np.abs(dlogits.sum(axis=-1, dtype=np.float64)).max() < rounding
    assert (np.take_along_axis(dlogits, given.targets[..., None], axis=-1) < 0).all()
    assert (dlogits < 0).sum() == given.targets.size


@every_module
@both_dtypes
def test_equal_logits_lose_exactly_log_24(module: ModuleType, dtype: np.dtype[Any]) -> None:
    given = lesson(dtype)
    expected = dtype.type(math.log(24))
    assert round(math.log(24), 6) == LESSON["log_vocab"]
    for level in (0.0, 1e8, -3.0):
        assert module.cross_entropy(np.full((4, 8, 24), level, dtype), given.targets) == expected
    assert module.linear_cross_entropy(given.hidden, np.zeros((24, 16), dtype), given.targets) == expected


@every_module
@both_dtypes
def test_logits_that_spike_at_the_target_lose_nearly_nothing(module: ModuleType, dtype: np.dtype[Any]) -> None:
    given = lesson(dtype)
    spike = 60 * np.eye(24, dtype=dtype)
    loss, dlogits = module.cross_entropy_with_grad(spike[given.targets], given.targets)
    # 23 others at exp(-60) each: too small for 1 + x, not for log1p.
    assert loss == pytest.approx(23 * math.exp(-60), rel=1e-6, abs=0)
    assert np.abs(dlogits).max() < 1e-24
    assert module.linear_cross_entropy(np.eye(24, dtype=dtype)[given.targets], spike, given.targets) == loss


# ---- the toy head --------------------------------------------------------------------------------------------------


@every_module
@both_dtypes
def test_the_five_losses_of_the_toy_head(module: ModuleType, dtype: np.dtype[Any]) -> None:
    losses = TOY["per_position_loss"]
    p = np.array(losses["p_target"])
    # Wherever the rest of the probability lies, and at any offset.
    logits = (np.log(np.stack([(1 - p) * 0.25, p, (1 - p) * 0.75], axis=-1)) + 3.0).astype(dtype)
    stats = module.cross_entropy(logits, np.ones(5, np.int64), stats=True)
    # p is rounded too, and d(-log p) = dp / p.
    np.testing.assert_array_less(np.abs(stats.per_token - losses["nll"]), THREE_DECIMALS * (1 + 1 / p))
    assert stats.loss == pytest.approx(losses["mean"], abs=2 * THREE_DECIMALS)
    alone = module.cross_entropy(logits, np.ones(5, np.int64), reduction="none")
    np.testing.assert_array_equal(alone, stats.per_token)


@every_module
@both_dtypes
def test_the_last_position_of_the_toy_head(module: ModuleType, dtype: np.dtype[Any]) -> None:
    head, target = np.array(TOY["W_U"], dtype), TOY["tokens"].index(" roof")
    f5 = module.layer_norm(np.array(TOY["y5"], dtype))
    loss, dhidden, dweight, _ = module.linear_cross_entropy_with_grad(f5, head.T, target)
    assert loss == pytest.approx(TOY["per_position_loss"]["nll"][4], abs=4 * THREE_DECIMALS)
    probabilities = np.array([TOY["probabilities"][t] for t in TOY["tokens"]])
    difference = probabilities - np.eye(12)[target]
    np.testing.assert_allclose(dhidden, head @ difference, atol=12 * THREE_DECIMALS)
    np.testing.assert_allclose(dweight, np.outer(difference, f5), atol=4 * THREE_DECIMALS)
    # Adding 10 to every logit changes nothing.
    moved = module.linear_cross_entropy(f5, head.T, target, bias=np.full(12, 10, dtype))
    assert moved == pytest.approx(float(loss), abs=1e-5 if dtype == np.float32 else 1e-14)
    uniform = module.linear_cross_entropy(f5, np.zeros((12, 4), dtype), target)
    assert uniform == dtype.type(math.log(12))
    assert uniform == pytest.approx(TOY["per_position_loss"]["uniform"], abs=THREE_DECIMALS)
