"""``check_gradients``: gradients of the losses against finite differences.

Knows how to differentiate a loss numerically in float64. Refuses to know its formula, which is `reference`'s.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ._reference_checks import Operand

# Keeps the quotient of two gradients of nothing at 0.
FLOOR = 1e-12


def check_gradients(
    *operands: Any,
    function: Callable[..., Any] | None = None,
    step: float = 1e-3,
    samples: int | None = None,
    seed: int = 0,
    **options: Any,
) -> dict[str, float]:
    """Compare the gradients of a loss with finite differences of its float64 reference.

    Parameters
    ----------
    *operands : array_like
        ``logits, targets`` or ``hidden, weight, targets``, as the loss takes them.
    function : callable, optional
        What is checked: called as ``function(*operands, **options)``, gives the loss and then the gradients, None for
        one that it does not make. By default `reference.cross_entropy_with_grad` for two operands and
        `reference.linear_cross_entropy_with_grad` for three.
    step : float, default 1e-3
        How far an entry x is moved, times ``max(1, |x|)``; finite and above 0.
    samples : int, optional
        Entries to compare in each operand, drawn at random; by default all.
    seed : int, default 0
        Of that draw.
    **options
        Of the loss: `bias`, `class_weight`, `softcap`, `reduction`, `grad_output` and so on.

    Returns
    -------
    dict of str to float
        For each of "logits", or "hidden", "weight" and "bias", that has a gradient a with finite differences n: the
        largest ``|a - n| / (max(|a|, |n|) + 1e-12)``. NaN if any of them is NaN.

    Raises
    ------
    TypeError
        Neither two nor three operands; as the loss.
    ValueError, IndexError
        As the loss; `step` or `samples` out of range.

    Notes
    -----
    Four losses for each entry: ``n = (8 (L(x + h) - L(x - h)) - (L(x + 2h) - L(x - 2h))) / 12 h``, which is off by
    about ``h**4 / 30`` times the fifth derivative and 1e-13 times the loss. An entry whose gradient is smaller than
    that, such as of a token with a probability of 1e-10, shows a large relative difference and nothing else.

    Only the checked function sees the dtype of the operands, and of targets that are probabilities: the losses that are
    compared are float64 ones of the same values, and without `filter_eps`. The random state of NumPy is not touched. A
    loss of +inf or NaN gives NaN.

    Examples
    --------
    >>> import numpy as np
    >>> import lmhead_native as native
    >>> logits = np.random.default_rng(0).standard_normal((4, 7))
    >>> max(native.check_gradients(logits, [0, 1, 6, 2], label_smoothing=0.1, softcap=3.0).values()) < 1e-8
    True
    """
    from . import _reference_checks as checks
    from . import reference

    if len(operands) not in (2, 3):
        raise TypeError(
            f"operands: expected (logits, targets) or (hidden, weight, targets), got {len(operands)} of them"
        )
    h = checks.real("step", step, "above 0 and finite", lambda s: s > 0)
    most = None if samples is None else checks.integer("samples", samples, "of at least 1", lambda n: n >= 1)
    *arrays, targets = operands
    fused = len(arrays) == 2
    name_of_loss = "linear_cross_entropy" if fused else "cross_entropy"
    loss = getattr(reference, name_of_loss)
    checked = function or getattr(reference, f"{name_of_loss}_with_grad")
    names = ["hidden", "weight"] if fused else ["logits"]
    read = checks.hidden_and_weight(*arrays) if fused else [checks.rows("logits", arrays[0], "V")]
    values = [operand.values for operand in read]
    if fused and options.get("bias") is not None:
        bias = checks.vector("bias", options["bias"], "V", len(values[1]), f"weight of shape {values[1].shape}")
        assert bias is not None
        names.append("bias")
        values.append(bias.values)
    parameters = inspect.signature(loss).parameters.keys() - {"stats", "filter_eps", "chunk_rows", "threads"}
    forward = {name: option for name, option in options.items() if name in parameters}
    outer = options.get("grad_output")
    weight = 1.0 if outer is None else np.asarray(outer, dtype=np.float64)
    gradients = checked(*operands, **options)[1:]
    wide_targets = targets if fused else _wide_probabilities(targets, read[0])

    def objective() -> float:
        """Return the loss of `values` as they are now."""
        moved = forward | dict(zip(names[2:], values[2:], strict=True))
        return float((loss(*values[:2], wide_targets, **moved) * weight).sum())

    rng = np.random.default_rng(seed)
    found = {}
    for name, value, gradient in zip(names, values, gradients, strict=False):
        if gradient is None:
            continue
        picked = np.arange(value.size) if most is None else rng.permutation(value.size)[:most]
        analytic = np.asarray(gradient).astype(np.float64).reshape(-1)[picked]
        numeric = _differences(objective, value, picked, h)
        with np.errstate(invalid="ignore"):
            error = np.abs(analytic - numeric) / (np.maximum(np.abs(analytic), np.abs(numeric)) + FLOOR)
        found[name] = float(error.max(initial=0.0))
    return found


def _wide_probabilities(targets: Any, logits: Operand) -> Any:
    """Return targets of the logits' shape as the float64 numbers that a loss takes them for; ids as they are."""
    from . import _reference_checks as checks

    given = checks.read("targets", targets)
    is_floating = given.dtype == "bfloat16" or given.array.dtype.kind == "f"
    if not is_floating or given.array.shape != logits.memory.shape:
        return targets
    values = checks.widen(given)
    return checks.round_to(values, logits.dtype) if given.is_sequence else values


def _differences(
    objective: Callable[[], float], value: NDArray[np.float64], picked: NDArray[np.int64], step: float
) -> NDArray[np.float64]:
    """Differentiate by the picked entries, moving each in place and back."""
    found = np.empty(picked.size)
    for at, index in enumerate(picked):
        place = np.unravel_index(index, value.shape)
        x = float(value[place])
        h = step * max(1.0, abs(x))
        losses = []
        for move in (h, -h, 2 * h, -2 * h):
            value[place] = x + move
            losses.append(objective())
        value[place] = x
        near, far = losses[0] - losses[1], losses[2] - losses[3]
        found[at] = (8 * near - far) / (12 * h)
    return found
