"""The language-model head on CPU: from hidden states to logits, top-k lists, probabilities, losses and gradients.

>>> import numpy as np
>>> import lmhead_native as native
>>> hidden = np.ones(4, dtype=np.float32)
>>> weight = np.eye(3, 4, dtype=np.float32)
>>> native.logits_topk(hidden, weight, 2).indices
array([0, 1])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._check_gradients import check_gradients
from ._core import __version__
from ._cross_entropy import cross_entropy, cross_entropy_with_grad
from ._head_norm import LayerNorm, RMSNorm
from ._linear_cross_entropy import linear_cross_entropy, linear_cross_entropy_with_grad
from ._lm_head import LMHead
from ._logits import logits
from ._loss_stats import LossStats
from ._norm import layer_norm, rms_norm
from ._quantize import quantize
from ._quantized_weight import QuantizedWeight
from ._runtime import get_num_threads, isa, set_num_threads, show_config
from ._sample import logits_sample, sample
from ._sample_result import Sample
from ._scores import logits_scores, perplexity, scores
from ._softmax import log_softmax, logsumexp, softmax
from ._token_scores import TokenScores
from ._top_k import ScreenedTopK, TopK, logits_topk, topk
from ._verified import Verified
from ._verify import verify

if TYPE_CHECKING:
    from . import reference as reference

__all__ = [
    "LMHead",
    "LayerNorm",
    "LossStats",
    "QuantizedWeight",
    "RMSNorm",
    "Sample",
    "ScreenedTopK",
    "TokenScores",
    "TopK",
    "Verified",
    "__version__",
    "check_gradients",
    "cross_entropy",
    "cross_entropy_with_grad",
    "get_num_threads",
    "isa",
    "layer_norm",
    "linear_cross_entropy",
    "linear_cross_entropy_with_grad",
    "log_softmax",
    "logits",
    "logits_sample",
    "logits_scores",
    "logits_topk",
    "logsumexp",
    "perplexity",
    "quantize",
    "reference",
    "rms_norm",
    "sample",
    "scores",
    "set_num_threads",
    "show_config",
    "softmax",
    "topk",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name == "reference":  # plain NumPy, loaded by those who look at it
        import importlib

        return importlib.import_module(".reference", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
