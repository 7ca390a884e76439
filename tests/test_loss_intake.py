"""What the losses accept and refuse, native and reference alike: targets, dtypes, layouts, arrays for gradients, words.

Both modules are held to the same table of calls, exceptions and messages. A refused call leaves every array as it was.
The values themselves are in test_reference_loss.py, test_cross_entropy.py and test_linear_cross_entropy.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
import oracle
from layouts import dlpack, layouts
from lmhead_native import reference

N, V, D = 5, 11, 12
H, W = np.linspace(-1, 1, N * D, dtype=np.float32).reshape(N, D), np.linspace(-1, 1, V * D, dtype="f4").reshape(V, D)
X = np.linspace(-1, 1, N * V, dtype=np.float32).reshape(N, V)
Y = np.array([0, 10, 3, 3, 7])
B = np.linspace(0, 1, V)
SENTINEL = 7.0
OUTS = {"dhidden_out": (N, D), "dweight_out": (V, D), "dbias_out": (V,)}
Array = NDArray[Any]


class Losses:
    """The losses with gradients of a module, on small arguments that fit together, some of them replaced."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.cross_entropy = module.cross_entropy
        self.linear_cross_entropy = module.linear_cross_entropy

    def fused(self, **options: Any) -> tuple[Any, ...]:
        given = {"hidden": H, "weight": W, "targets": Y, "bias": B} | options
        found: tuple[Any, ...] = self.module.linear_cross_entropy_with_grad(**given)
        return found

    def unfused(self, **options: Any) -> tuple[Any, ...]:
        found: tuple[Any, ...] = self.module.cross_entropy_with_grad(**{"logits": X, "targets": Y, "bias": B} | options)
        return found


@pytest.fixture(params=[native, reference], ids=["native", "reference"])
def of(request: pytest.FixtureRequest) -> Losses:
    return Losses(request.param)


# ---- targets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">i4", ">u8"])
def test_targets_of_every_integer_dtype(of: Losses, dtype: str) -> None:
    given = Y.astype(dtype)
    for targets in [*layouts(given).values(), *([dlpack(given)] if given.dtype.isnative else [])]:
        for function in (of.fused, of.unfused):
            for mine, theirs in zip(function(targets=targets), function(), strict=True):
                oracle.assert_same_bits(mine, theirs)
    assert of.fused(targets=Y.tolist())[0] == of.fused(targets=tuple(Y))[0] == of.fused()[0]
    assert of.unfused(logits=X[0], targets=np.array(3, dtype))[0] == of.unfused(logits=X[0], targets=3)[0]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("at", [0, N - 1])
@pytest.mark.parametrize(
    ("bad", "dtype"),
    [(-1, "i8"), (-4, "i1"), (V, "u1"), (2**40, "i8"), (2**64 - 1, "u8"), (2**64 - 100, "u8"), (65436, "u2")],
)
def test_targets_out_of_range(of: Losses, bad: int, dtype: str, at: int, reduction: str) -> None:
    targets = Y.astype(dtype)
    targets[at] = bad
    outs = {name: np.full(shape, SENTINEL, np.float32) for name, shape in OUTS.items()}
    message = rf"^targets: expected an id from 0 to V - 1 = 10 or ignore_index = -100, got {bad} at position \({at},\)$"
    for threads in (1, 2, 3):
        with pytest.raises(IndexError, match=message):
            of.fused(targets=targets, reduction=reduction, threads=threads, **outs)
    with pytest.raises(IndexError, match=message):
        of.unfused(targets=targets, reduction=reduction, token_weight=np.zeros(N))
    assert all((out == SENTINEL).all() for out in outs.values())
    # The same value, named as the one to ignore.
    ignored = of.fused(targets=targets, reduction=reduction, ignore_index=bad)
    assert (ignored[1][at] == 0).all()
    assert np.isfinite(ignored[0]).all()


def test_positions_are_those_of_the_argument(of: Losses) -> None:
    targets = np.zeros((2, 3), int)
    targets[1, 2] = V
    with pytest.raises(IndexError, match=r"got 11 at position \(1, 2\)$"):
        of.cross_entropy(np.zeros((2, 3, V)), targets, shift=1)
    with pytest.raises(IndexError, match=r"got -1 at position \(\)$"):
        of.cross_entropy(np.zeros(V), -1)
    with pytest.raises(IndexError, match=r"of no token, as V = 0, or ignore_index = -100, got 0 at position \(0,\)$"):
        of.cross_entropy(np.zeros((1, 0)), [0])


def test_ignore_index_of_any_size(of: Losses) -> None:
    expected = of.cross_entropy(X[1:], Y[1:])
    for ignored in (-(2**63), 2**63 - 1):
        targets = Y.copy()
        targets[0] = ignored
        assert of.cross_entropy(X, targets, ignore_index=ignored) == expected
    assert of.cross_entropy(X, Y, ignore_index=10**30) == of.cross_entropy(X, Y)
    assert of.cross_entropy(X, Y, ignore_index=Y[0]) == expected  # an id may be ignored as well


@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
def test_probabilities_of_every_floating_dtype(of: Losses, dtype: np.dtype[Any]) -> None:
    soft = (np.arange(N * V).reshape(N, V) % 5 / 8).astype(dtype)
    logits = X.astype(np.float64 if dtype == np.float64 else np.float32)
    expected = of.unfused(logits=logits, targets=soft.astype(logits.dtype))
    for targets in (*layouts(soft).values(), dlpack(soft), soft.tolist()):
        for mine, theirs in zip(of.unfused(logits=logits, targets=targets), expected, strict=True):
            oracle.assert_same_bits(mine, theirs)


def test_a_sequence_of_probabilities_takes_the_dtype_of_the_logits(of: Losses) -> None:
    thirds = np.full((N, V), 1 / 3)
    for dtype in oracle.FLOATS:
        for mine, theirs in zip(
            of.unfused(logits=X.astype(dtype), targets=thirds.tolist()),
            of.unfused(logits=X.astype(dtype), targets=thirds.astype(dtype)),
            strict=True,
        ):
            oracle.assert_same_bits(mine, theirs)


# ---- dtypes, layouts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
def test_dtypes_of_results(of: Losses, dtype: np.dtype[Any]) -> None:
    result = oracle.result_dtype(dtype)
    h, w, x = H.astype(dtype), W.astype(dtype), X.astype(dtype)
    for reduction in ("mean", "sum", "none"):
        for found in (of.fused(hidden=h, weight=w, reduction=reduction), of.unfused(logits=x, reduction=reduction)):
            assert all(r.dtype == result for r in found)
            assert isinstance(found[0], np.ndarray if reduction == "none" else result.type)
        stats = of.cross_entropy(x, Y, reduction=reduction, stats=True)
        assert stats.argmax.dtype == np.int64
        assert {f.dtype for f in (stats.per_token, stats.logsumexp, stats.z_loss, stats.entropy)} == {result}
        assert isinstance(stats.accuracy, np.float64)


@pytest.mark.parametrize("dtype", oracle.FLOATS, ids=str)
def test_layouts_and_dlpack_give_the_same_bits(of: Losses, dtype: np.dtype[Any]) -> None:
    h, w, b = H.astype(dtype), W.astype(dtype), B.astype(dtype)
    weights = np.arange(1, N + 1).astype(dtype)
    expected = of.fused(hidden=h, weight=w, bias=b, class_weight=b, token_weight=weights)
    given = [[dlpack(a) for a in (h, w, b, weights)]]
    given += [[layouts(a)[name] for a in (h, w, b, weights)] for name in layouts(h)]
    for arrays in given:
        before = [a.tobytes() for a in arrays if isinstance(a, np.ndarray)]
        found = of.fused(
            hidden=arrays[0], weight=arrays[1], bias=arrays[2], class_weight=arrays[2], token_weight=arrays[3]
        )
        for mine, theirs in zip(found, expected, strict=True):
            if of.module is native:
                oracle.assert_same_bits(mine, theirs)
            else:  # NumPy's products are in another order for other strides
                np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-7)
        assert [a.tobytes() for a in arrays if isinstance(a, np.ndarray)] == before


# ---- arrays for gradients ------------------------------------------------------------------------------------------


def test_gradients_fill_and_add_to_given_arrays(of: Losses) -> None:
    expected = dict(zip(OUTS, of.fused()[1:], strict=True))
    for dtype in oracle.NARROW:
        for adds in (False, True):
            outs = {name: np.full(shape, 0.25).astype(dtype) for name, shape in OUTS.items()}
            found = of.fused(accumulate=adds, **outs)
            for name, gradient in zip(OUTS, found[1:], strict=True):
                assert gradient is outs[name]
                exact = oracle.widen(expected[name]) + (0.25 if adds else 0.0)
                # The expected gradient was rounded, and so is every sum on the way from 0.25; a float16 may be off
                # by half of its smallest number.
                bound = oracle.UNIT[dtype.name] * np.abs(exact) + (N + V) * 2.0**-24 + 2.0**-25
                assert (np.abs(oracle.widen(gradient) - exact) <= bound).all()
    wide = np.full((V, D), 0.25)
    doubled = of.fused(hidden=H.astype(float), weight=W.astype(float), dweight_out=wide, accumulate=True)
    assert doubled[2] is wide
    assert doubled[1].dtype == np.float64
    # A head stored as (D, V), filled through its transpose.
    stored = np.full((D, V), SENTINEL, np.float32)
    found = of.fused(weight=np.ascontiguousarray(W.T).T, dweight_out=stored.T, wrt=["weight"])
    np.testing.assert_allclose(stored, expected["dweight_out"].T, rtol=1e-6, atol=1e-7)
    assert found[1] is None
    assert found[3] is None


def test_the_reference_rounds_to_bfloat16_once() -> None:
    # Just above a tie of bfloat16, by less than float32 sees: by way of float32 it would go down to 1.
    gradient = 1 + 2.0**-8 + 2.0**-40
    out = np.zeros(1, oracle.BFLOAT16)
    logits = np.array([0.0], np.float32)  # one class: no cross entropy, z-loss 2 L p = 2 bias
    reference.cross_entropy_with_grad(logits, 0, bias=[gradient / 2], lse_square_scale=1.0, dlogits_out=out)
    assert out[0] == 1 + 2.0**-7


def test_ignored_rows_keep_their_bits_where_gradients_are_added(of: Losses) -> None:
    targets, before = np.array([-100, 1, -100, 2, 3]), np.full((N, D), -0.0, np.float32)
    dhidden = before.copy()
    of.fused(targets=targets, dhidden_out=dhidden, accumulate=True)
    oracle.assert_same_bits(dhidden[[0, 2]], before[[0, 2]])
    assert of.fused(targets=targets)[1].tobytes()[: 4 * D] == bytes(4 * D)


def test_dlogits_may_be_the_logits_themselves_if_asked(of: Losses) -> None:
    loss, expected = of.unfused()
    before = X.copy()
    for _ in range(2):
        dlogits = of.unfused()[1]
        oracle.assert_same_bits(dlogits, expected)
        oracle.assert_same_bits(X, before)
    x = X.copy()
    in_place = of.unfused(logits=x, dlogits_out=x)
    assert in_place[1] is x
    oracle.assert_same_bits(x, expected)
    oracle.assert_same_bits(in_place[0], loss)
    x = X.copy()
    for bad, adds in [(x, True), (x[::-1], False)]:
        with pytest.raises(ValueError, match=r"^dlogits_out: expected memory apart from logits.*, got "):
            of.unfused(logits=x, dlogits_out=bad, accumulate=adds)
        oracle.assert_same_bits(x, X)


@pytest.mark.parametrize("name", OUTS)
def test_unfit_arrays_for_gradients(of: Losses, name: str) -> None:
    shape = OUTS[name]
    outs = {other: np.full(OUTS[other], SENTINEL, np.float32) for other in OUTS}
    read_only = np.full(shape, SENTINEL, np.float32)
    read_only.flags.writeable = False
    unfit: list[tuple[Any, type[Exception], str]] = [
        (np.full(shape, SENTINEL), TypeError, "dtype float32, float16 or bfloat16, got float64"),
        (np.full(shape, SENTINEL, ">f2"), TypeError, "dtype float32, float16 or bfloat16, got >f2"),
        ([SENTINEL], TypeError, "a NumPy array, got list"),
        (np.full((*shape, 1), SENTINEL, np.float32), ValueError, rf"shape {re.escape(str(shape))}, got shape"),
        (read_only, ValueError, "a writeable array, got a read-only one"),
        (np.lib.stride_tricks.as_strided(np.zeros(1, "f4"), shape, (0,) * len(shape)), ValueError, "an element of mem"),
    ]
    if name != "dhidden_out":
        whole = np.full((V * D,), SENTINEL, np.float32)
        outs["dhidden_out"] = whole[: N * D].reshape(N, D)
        unfit.append((whole[: np.prod(shape)].reshape(shape), ValueError, "memory apart from dhidden_out, got memory"))
    for bad, error, message in unfit:
        with pytest.raises(error, match=f"^{name}: expected {message}"):
            of.fused(**outs | {name: bad})
        assert all((outs[other] == SENTINEL).all() for other in outs if other != name)


REFUSED: list[tuple[Callable[[Losses], object], type[Exception], str]] = [
    (
        lambda of: of.fused(targets=Y.astype(float)),
        TypeError,
        "targets: expected an integer dtype, got float64 of shape (5,)",
    ),
    (lambda of: of.fused(targets=X), TypeError, "targets: expected an integer dtype, got float32 of shape (5, 11)"),
    (
        lambda of: of.unfused(targets=Y.astype("f4")),
        TypeError,
        "targets: expected an integer dtype, or probabilities of shape (5, 11), got float32 of shape (5,)",
    ),
    (lambda of: of.fused(targets=Y > 0), TypeError, "targets: expected an integer dtype, got bool"),
    (lambda of: of.fused(targets=None), TypeError, "targets: expected an integer dtype, got object"),
    (lambda of: of.fused(targets=Y.astype(complex)), TypeError, "targets: expected an integer dtype, got complex128"),
    (lambda of: of.fused(targets=dlpack(Y, device=2)), TypeError, "targets: expected a tensor on the CPU"),
    (
        lambda of: of.fused(targets=Y[:4]),
        ValueError,
        "targets: expected shape (5,) as in hidden of shape (5, 12), got shape (4,)",
    ),
    (
        lambda of: of.unfused(targets=X[:, 1:]),
        ValueError,
        "targets: expected shape (5, 11) as in logits of shape (5, 11), got shape (5, 10)",
    ),
    (
        lambda of: of.unfused(targets=X.astype(float)),
        TypeError,
        "targets: expected dtype float32, float16 or bfloat16 as logits is float32, got float64; "
        "cast it with targets.astype(numpy.float32)",
    ),
    (
        lambda of: of.fused(token_weight=np.ones(4)),
        ValueError,
        "token_weight: expected shape (5,) as in hidden of shape (5, 12), got shape (4,)",
    ),
    (lambda of: of.fused(token_weight=Y > 0), TypeError, "token_weight: expected a real dtype, got bool"),
    (
        lambda of: of.fused(class_weight=np.ones(12)),
        ValueError,
        "class_weight: expected shape (V,) with V = 11 as in weight of shape (11, 12), got shape (12,)",
    ),
    (
        lambda of: of.unfused(bias=np.ones(1)),
        ValueError,
        "bias: expected shape (V,) with V = 11 as in logits of shape (5, 11)",
    ),
    (lambda of: of.fused(reduction="avg"), ValueError, "reduction: expected 'mean', 'sum' or 'none', got 'avg'"),
    (lambda of: of.fused(reduction=None), TypeError, "reduction: expected 'mean', 'sum' or 'none', got None"),
    (lambda of: of.fused(empty="0"), ValueError, "empty: expected 'nan' or 'zero', got '0'"),
    (lambda of: of.fused(empty=0.0), TypeError, "empty: expected 'nan' or 'zero', got 0.0"),
    (lambda of: of.fused(ignore_index=-100.0), TypeError, "ignore_index: expected an integer of any size, got -100.0"),
    (lambda of: of.fused(ignore_index=None), TypeError, "ignore_index: expected an integer"),
    (
        lambda of: of.fused(label_smoothing=1.1),
        ValueError,
        "label_smoothing: expected a real number from 0 to 1, got 1.1",
    ),
    (lambda of: of.fused(label_smoothing=np.nan), ValueError, "label_smoothing: expected"),
    (lambda of: of.fused(softcap=0), ValueError, "softcap: expected"),
    (lambda of: of.fused(scale=np.inf), ValueError, "scale: expected"),
    (lambda of: of.fused(temperature=0), ValueError, "temperature: expected"),
    (
        lambda of: of.fused(lse_square_scale=-1e-4),
        ValueError,
        "lse_square_scale: expected a real number of at least 0 and finite, got -0.0001",
    ),
    (lambda of: of.fused(shift=-1), ValueError, "shift: expected an integer of at least 0, got -1"),
    (lambda of: of.fused(shift=1.0), TypeError, "shift: expected an integer of at least 0, got 1.0"),
    (
        lambda of: of.fused(hidden=H[0], targets=0, shift=1),
        ValueError,
        "shift: expected 0 without an axis of positions in hidden of shape (12,), got 1",
    ),
    (lambda of: of.fused(num_items=0), ValueError, "num_items: expected a real number above 0 and finite, got 0.0"),
    (
        lambda of: of.fused(num_items=3, reduction="sum"),
        ValueError,
        "num_items: expected None as reduction is 'sum', got",
    ),
    (lambda of: of.fused(stats=1), TypeError, "stats: expected True or False, got 1"),
    (lambda of: of.fused(threads=0), ValueError, "threads: expected "),
    (lambda of: of.fused(chunk_rows=0), ValueError, "chunk_rows: expected an integer of at least 1, got 0"),
    (lambda of: of.fused(filter_eps=-1.0), ValueError, "filter_eps: expected a real number of at least 0 and finite"),
    (
        lambda of: of.linear_cross_entropy(H, W, Y, filter_eps=-1.0),
        ValueError,
        "filter_eps: expected a real number of at least 0",
    ),
    (
        lambda of: of.fused(grad_output=np.ones(5)),
        ValueError,
        "grad_output: expected shape () as the loss of reduction 'mean', got shape (5,)",
    ),
    (
        lambda of: of.fused(grad_output=1.0, reduction="none"),
        ValueError,
        "grad_output: expected shape (5,) as the loss of reduction 'none', got shape ()",
    ),
    (
        lambda of: of.fused(wrt="hidden"),
        TypeError,
        "wrt: expected a sequence of 'hidden', 'weight' and 'bias', got 'hidden'",
    ),
    (lambda of: of.fused(wrt=None), TypeError, "wrt: expected a sequence"),
    (lambda of: of.fused(wrt=("hidden", 1)), TypeError, "wrt: expected a sequence"),
    (
        lambda of: of.fused(wrt=("logits",)),
        ValueError,
        "wrt: expected a sequence of 'hidden', 'weight' and 'bias', got",
    ),
    (
        lambda of: of.fused(wrt=("hidden",), dweight_out=np.zeros((V, D), "f4")),
        ValueError,
        "dweight_out: expected None as wrt is ('hidden',), got numpy.ndarray",
    ),
    (
        lambda of: of.fused(bias=None, dbias_out=np.zeros(V, "f4")),
        ValueError,
        "dbias_out: expected None as there is no bias, got numpy.ndarray",
    ),
    (
        lambda of: of.fused(accumulate=True),
        ValueError,
        "accumulate: expected False without an array to add to, got True; pass dhidden_out or dweight_out or dbias_out",
    ),
    (lambda of: of.unfused(accumulate=1), TypeError, "accumulate: expected True or False, got 1"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED, ids=[m for _, _, m in REFUSED])
def test_refusals(of: Losses, call: Callable[[Losses], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        call(of)


def test_what_is_not_asked_for_is_none(of: Losses) -> None:
    everything = of.fused()
    for wrt in [(), ("bias",), ["weight", "hidden"], {"hidden"}, ("hidden", "hidden")]:
        found = of.fused(wrt=wrt)
        oracle.assert_same_bits(found[0], everything[0])
        for name, mine, theirs in zip(("hidden", "weight", "bias"), found[1:], everything[1:], strict=True):
            assert (mine is None) == (name not in wrt)
            if mine is not None:
                oracle.assert_same_bits(mine, theirs)
    assert of.fused(bias=None)[3] is None
    oracle.assert_same_bits(of.linear_cross_entropy(H, W, Y, bias=B), everything[0])
    oracle.assert_same_bits(of.cross_entropy(X, Y, bias=B), of.unfused()[0])
