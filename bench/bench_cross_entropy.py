"""`cross_entropy` of given logits, alone and with its gradient, beside PyTorch and the read bandwidth."""

from __future__ import annotations

import pytest

from bench import losses
from bench.conftest import Hold
from bench.setting import Setting


@pytest.mark.parametrize("with_grad", [False, True])
@pytest.mark.parametrize(("n", "vocabulary"), [(64, 128256), (512, 50257)])
def test_cross_entropy(hold: Hold, setting: Setting, n: int, vocabulary: int, with_grad: bool) -> None:
    hold(losses.cross_entropy(setting, n, vocabulary, with_grad=with_grad))
