"""Draws of rows compared with the oracle, and their parameters as keyword arguments.

Knows: rows of parameters. Refuses to know: which rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import lmhead_native as native
import oracle
import sample_oracle
from sample_oracle import Parameters

INF = np.inf


def keywords(rows: list[Parameters]) -> dict[str, Any]:
    """Return the parameters of several rows as keyword arguments, one of each a row."""
    given: dict[str, Any] = {
        name: [getattr(p, name) for p in rows]
        for name in ("temperature", "top_k", "top_p", "min_p", "typical_p", "position", "logit_bias")
    }
    for name in ("repetition_penalty", "presence_penalty", "frequency_penalty", "history", "output"):
        given[name] = [getattr(p, name) for p in rows]
    given["seed"] = [p.seed for p in rows]
    (given["order"],) = {p.order for p in rows}
    return given


def check(logits: NDArray[Any], rows: list[Parameters], threads: int, *, top_n: int = 0) -> None:
    """Compare tokens, log-probabilities and lists of alternatives with the oracle."""
    wide = logits.astype(oracle.result_dtype(logits.dtype))
    expected = [sample_oracle.draw(z, p) for z, p in zip(wide, rows, strict=True)]
    rate = 2e-5 if wide.dtype == np.float32 else 1e-11
    for logprobs in ("raw", "processed"):
        drawn = native.sample(
            logits,
            **keywords(rows),
            logprobs=logprobs,
            top_n=top_n,
            threads=threads,
        )
        tokens, logprob = drawn
        np.testing.assert_array_equal(tokens, [e.token for e in expected], strict=True)
        assert logprob is not None
        answers = np.array([getattr(e, logprobs) for e in expected])
        np.testing.assert_allclose(logprob, answers[np.arange(len(rows)), tokens], rtol=rate, atol=rate)
        assert logprob.dtype == wide.dtype
        if not top_n:
            assert drawn.top_ids is None
            continue
        assert drawn.top_ids is not None
        assert drawn.top_logprobs is not None
        for z, e, ids, values, answer in zip(wide, expected, drawn.top_ids, drawn.top_logprobs, answers, strict=True):
            best = np.argsort(-z, kind="stable") if logprobs == "raw" else e.kept
            n = min(top_n, len(best))
            np.testing.assert_array_equal(ids, [*best[:n], *[-1] * (top_n - n)])
            np.testing.assert_allclose(values[:n], answer[best[:n]], rtol=rate, atol=rate)
            assert (values[n:] == -INF).all()
