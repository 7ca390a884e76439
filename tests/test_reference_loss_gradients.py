"""Gradients of the reference's losses: finite differences of every option, PyTorch where it is installed.

Knows how to set options at random. Values by definition are in test_reference_loss.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
import oracle
from layouts import dlpack
from lmhead_native import reference

B, T, D, V = 2, 3, 4, 6
REDUCTIONS = ("mean", "sum", "none")
# Differences are off by about 1e-13 of a loss of 10, and entries go down to 1e-7 of it.
TOLERANCE = 1e-5
Options = dict[str, Any]


def choices(rng: np.random.Generator) -> dict[str, Any]:
    """Return a value for each option that changes the loss."""
    return {
        "bias": rng.standard_normal(V),
        "class_weight": rng.random(V) + 0.1,
        "token_weight": rng.random((B, T)) + 0.1,
        "label_smoothing": 0.2,
        "softcap": 2.5,
        "scale": -1.5,
        "temperature": 0.6,
        "lse_square_scale": 0.3,
        "shift": 1,
    }


def combinations() -> Iterator[tuple[str, ...]]:
    """Return each option alone, each pair, and all together."""
    names = tuple(choices(np.random.default_rng(0)))
    yield ()
    yield from itertools.combinations(names, 1)
    yield from itertools.combinations(names, 2)
    yield names


COMBINATIONS = pytest.mark.parametrize("names", list(combinations()), ids="+".join)


def a_case(names: tuple[str, ...], reduction: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], Options]:
    """Return hidden, weight, targets (one of them ignored) and the named options."""
    rng = np.random.default_rng(len(names) + 10 * len("".join(names)))
    options = {name: value for name, value in choices(rng).items() if name in names} | {"reduction": reduction}
    targets = rng.integers(0, V, (B, T))
    targets[1, 1] = -100
    columns = T - options.get("shift", 0)
    options["grad_output"] = rng.standard_normal((B, columns) if reduction == "none" else ())
    return rng.standard_normal((B, T, D)), rng.standard_normal((V, D)), targets, options


@pytest.mark.parametrize("reduction", REDUCTIONS)
@COMBINATIONS
def test_finite_differences(names: tuple[str, ...], reduction: str) -> None:
    hidden, weight, targets, options = a_case(names, reduction)
    found = native.check_gradients(hidden, weight, targets, **options)
    assert list(found) == ["hidden", "weight", "bias"][: 3 if "bias" in names else 2]
    assert max(found.values()) < TOLERANCE, found
    found = native.check_gradients(hidden @ weight.T, targets, **options)
    assert list(found) == ["logits"]
    assert max(found.values()) < TOLERANCE, found


@pytest.mark.parametrize("reduction", REDUCTIONS)
@COMBINATIONS
def test_finite_differences_of_probabilities(names: tuple[str, ...], reduction: str) -> None:
    hidden, weight, _, options = a_case(names, reduction)
    soft = np.random.default_rng(1).random((B, T, V))  # of another sum than 1
    assert native.check_gradients(hidden @ weight.T, soft, **options)["logits"] < TOLERANCE


def test_a_wrong_gradient_is_reported() -> None:
    hidden, weight, targets, options = a_case(("bias", "softcap"), "mean")

    def wrong(*arguments: Any, **given: Any) -> Any:
        loss, dhidden, dweight, dbias = reference.linear_cross_entropy_with_grad(*arguments, **given)
        assert dweight is not None
        dweight[2, 1] *= 1.001
        return loss, dhidden, dweight, dbias

    found = native.check_gradients(hidden, weight, targets, function=wrong, **options)
    assert found["hidden"] < TOLERANCE
    assert found["bias"] < TOLERANCE
    assert found["weight"] == pytest.approx(1e-3, rel=0.01)
    some = native.check_gradients(hidden, weight, targets, wrt=("bias", "weight"), samples=2, seed=3, **options)
    assert list(some) == ["weight", "bias"]


def test_gradients_in_float32_are_compared_with_differences_in_float64() -> None:
    hidden, weight, targets, options = a_case(("bias", "label_smoothing"), "sum")
    found = native.check_gradients(hidden.astype(np.float32), weight.astype(np.float32), targets, **options)
    assert 1e-9 < max(found.values()) < 1e-4


@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
def test_probabilities_of_every_dtype_are_compared_in_float64(dtype: np.dtype[Any]) -> None:
    """Also a list of them, which is rounded to the dtype of the logits."""
    hidden, weight, _, options = a_case(("bias", "label_smoothing"), "sum")
    logits = (hidden @ weight.T).astype(dtype)
    soft = np.random.default_rng(1).random((B, T, V))
    targets: list[Any] = [soft.astype(dtype), soft.tolist(), dlpack(soft.astype(dtype))]
    if dtype != np.float64:
        targets += [soft.astype(other) for other in oracle.NARROW]
    for given in targets:
        for function in (native.cross_entropy_with_grad, reference.cross_entropy_with_grad):
            found = native.check_gradients(logits, given, function=function, **options)
            # Results are float32, of entries down to 1e-4 of their terms.
            assert found["logits"] < (TOLERANCE if dtype == np.float64 else 1e-3)


@pytest.mark.parametrize(
    ("operands", "options", "error", "message"),
    [
        ((np.zeros(3),), {}, TypeError, "operands: expected .*, got 1 of them"),
        ((np.zeros(3), 0), {"step": 0.0}, ValueError, "step: expected a real number above 0 and finite, got 0"),
        ((np.zeros(3), 0), {"samples": 0}, ValueError, "samples: expected an integer of at least 1, got 0"),
        ((np.zeros(3), 3), {}, IndexError, "targets: expected an id from 0 to V - 1 = 2 or ignore_index = -100, got 3"),
    ],
)
def test_check_gradients_refuses(operands: Any, options: Options, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{message}"):
        native.check_gradients(*operands, **options)


# ---- PyTorch -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", REDUCTIONS)
@COMBINATIONS
def test_same_as_pytorch(names: tuple[str, ...], reduction: str) -> None:
    torch = pytest.importorskip("torch")
    hidden, weight, targets, options = a_case(names, reduction)
    h, w = (torch.tensor(a, requires_grad=True) for a in (hidden, weight))
    o = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    bias = o.get("bias", torch.zeros(V, dtype=torch.float64)).clone().requires_grad_()
    z = h @ w.T + bias
    z = z if "softcap" not in o else o["softcap"] * torch.tanh(z / o["softcap"])
    z = z * o.get("scale", 1.0) / o.get("temperature", 1.0)
    shift = o.get("shift", 0)
    z, t = z[:, : T - shift], torch.tensor(targets)[:, shift:]
    tokens = o.get("token_weight", torch.ones(B, T, dtype=torch.float64))[:, shift:] * (t != -100)
    per_token = torch.nn.functional.cross_entropy(
        z.reshape(-1, V),
        t.reshape(-1),
        weight=o.get("class_weight"),
        label_smoothing=o.get("label_smoothing", 0.0),
        reduction="none",
    ).reshape(t.shape)
    square = o.get("lse_square_scale", 0.0) * torch.logsumexp(z, -1) ** 2
    classes = tokens if "class_weight" not in o else tokens * o["class_weight"][t.clamp(min=0)]
    if reduction == "mean":
        loss = (tokens * per_token).sum() / classes.sum() + (tokens * square).sum() / tokens.sum()
    else:
        loss = tokens * (per_token + square)
        loss = loss.sum() if reduction == "sum" else loss
    loss.backward(torch.tensor(options["grad_output"]))
    options.setdefault("bias", np.zeros(V))
    found = reference.linear_cross_entropy_with_grad(hidden, weight, targets, **options)
    for mine, theirs in zip(found, (loss, h.grad, w.grad, bias.grad), strict=True):
        np.testing.assert_allclose(np.asarray(mine), theirs.detach().numpy(), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
def test_probabilities_as_pytorch_has_them(weighted: bool, smoothing: float, reduction: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(9)
    x, soft = rng.standard_normal((4, V)), rng.random((4, V))
    classes = rng.random(V) if weighted else None
    loss, dlogits = reference.cross_entropy_with_grad(
        x, soft, class_weight=classes, label_smoothing=smoothing, reduction=reduction, grad_output=None
    )
    logits = torch.tensor(x, requires_grad=True)
    expected = torch.nn.functional.cross_entropy(
        logits,
        torch.tensor(soft),
        weight=None if classes is None else torch.tensor(classes),
        label_smoothing=smoothing,
        reduction=reduction,
    )
    expected.sum().backward()
    np.testing.assert_allclose(loss, expected.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(dlogits, logits.grad.numpy(), rtol=1e-11, atol=1e-14)
