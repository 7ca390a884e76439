"""What the head must reach: each case is a contest to run and the bars that its figures are held against.

Knows: shapes, rows, bars, which figure answers which bar. Refuses to know: how contests are set up, run and printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench import calls, losses, mask, projection, rows
from bench.demand import (
    FASTEST,
    Case,
    Demand,
    best_of_torch,
    faster,
    on_head,
    share,
    shorter,
    slower,
    without_peers,
)
from bench.peers import PEERS
from bench.prepared_demands import prepared_cases
from bench.score_demands import score_cases

LLAMA, GPT2, QWEN = "llama3-8b", "gpt2", "qwen2.5-0.5b"
SHAPES = (GPT2, LLAMA)
# Tokens of a training step on each head.
TOKENS = {GPT2: 1024, QWEN: 512, LLAMA: 256}


def cases() -> Iterator[Case]:
    """Yield every case; those that share a head are neighbours, so that no two large heads are in memory."""
    yield from calls_cases()
    yield from row_cases()
    yield from loss_cases()
    yield from table_cases()
    for name in SHAPES:
        for dtype in ("f32", "bf16"):
            yield from projection_cases(name, dtype)
            yield from top_k_cases(name, dtype)
            yield from mask_cases(name, dtype)
            yield from fused_loss_cases(name, dtype)
        yield from score_cases(name, "bf16" if name == LLAMA else "f32")
    for dtype in ("f32", "bf16"):
        yield from fused_loss_cases(QWEN, dtype)
    yield from prepared_cases()


def projection_cases(name: str, dtype: str) -> Iterator[Case]:
    """Yield `logits` in one dtype against its roofs and its peers."""
    bars: dict[int, tuple[Demand, ...]]
    if dtype == "f32":
        bars = {1: (faster("torch", 1.7), faster("numpy", 1.0)), 8: (faster("numpy", 3.5), faster("torch", 3.5))}
        peak = 0.90 if name == LLAMA else 0.87
    else:
        bars = {1: (faster("torch", 1.8),), 8: (faster("torch", 1.8),)}
        peak = 0.90 if name == LLAMA else 0.84
    contests = {
        1: (share("bandwidth", 0.90), *bars[1]),
        4: (share("lower", 0.80),),
        8: (share("lower", 0.80), *bars[8]),
        256: (share("peak", peak),),
        512: (FASTEST,),
    }
    for n, demands in contests.items():
        build = on_head(name, projection.logits, dtype, n)
        if not any(demand.name in (*PEERS, FASTEST.name) for demand in demands):
            build = without_peers(build)
        yield Case(f"logits/{dtype}/{name}/n{n}", "logits", build, demands)
    for n, demand in {1: share("bandwidth", 0.80), 256: slower("(V, D)", "times the (V, D) time", 1.15)}.items():
        build = on_head(name, projection.logits_of_columns, dtype, n)
        yield Case(f"columns/{dtype}/{name}/n{n}", "logits, weight stored as (D, V)", build, (demand,))


def top_k_cases(name: str, dtype: str) -> Iterator[Case]:
    """Yield `logits_topk` against the projection alone and, in float32, against FAISS."""
    for n, bar in {1: 1.03, 8: 1.03, 64: 1.08, 256: 1.08}.items():
        build = on_head(name, projection.logits_topk, dtype, n)
        demand = slower("logits", "times the time of logits", bar)
        yield Case(f"logits_topk/{dtype}/{name}/n{n}", "logits_topk, k = 50", build, (demand,))
    if dtype == "f32":
        for n, faiss in {1: faster("faiss", 1.7), 8: faster("faiss", 4.0), 32: faster("faiss", 1.0, ">")}.items():
            build = on_head(name, projection.search, n)
            yield Case(f"search/{name}/n{n}", "logits_topk, k = 50, against IndexFlatIP.search", build, (faiss,))


def mask_cases(name: str, dtype: str) -> Iterator[Case]:
    """Yield masked `logits_topk` against the call without a mask; on the narrow head a pass over N x V bits shows."""
    wide = name == LLAMA
    bars: dict[int, dict[str, float | None]] = {
        1: {"few": 0.005 if wide else None, "half": 0.6 if wide else None, "all": 1.05},
        64: {"few": None, "few each": None, "half": 0.6, "half each": None, "all": 1.05},
    }
    for n, bar_of in bars.items():
        for which, bar in bar_of.items():
            build = on_head(name, mask.logits_topk, dtype, n, which)
            demand = slower("unmasked", "of the time without a mask", bar)
            tag = which.replace(" ", "-")
            yield Case(f"mask/{tag}/{dtype}/{name}/n{n}", "logits_topk, k = 50, of allowed ids", build, (demand,))


def row_cases() -> Iterator[Case]:
    """Yield the operations on given logits."""
    for vocabulary, bar in {50257: 5.0, 128256: 8.0}.items():
        build = partial(rows.topk, rows=1, vocabulary=vocabulary)
        yield Case(f"topk/1x{vocabulary}", "topk, k = 50, of given logits", build, (faster("torch", bar),))
    for op in ("softmax", "log_softmax", "logsumexp"):
        for (n, vocabulary), bar in {(64, 128256): 1.3, (512, 50257): 2.0}.items():
            torch = faster("torch", 4.0 if op == "logsumexp" else bar)
            build = partial(rows.row_operation, op=op, rows=n, vocabulary=vocabulary)
            section = "softmax, log_softmax and logsumexp with out="
            yield Case(f"{op}/{n}x{vocabulary}", section, build, (torch, share("bandwidth", 0.85)))


def loss_cases() -> Iterator[Case]:
    """Yield the cross entropy of given logits, alone and with its gradient."""
    for n, vocabulary in ((64, 128256), (512, 50257)):
        for with_grad, bar in ((False, 4.0), (True, 2.0)):
            build = partial(losses.cross_entropy, rows=n, vocabulary=vocabulary, with_grad=with_grad)
            demands = (faster("torch", bar), *(() if with_grad else (share("bandwidth", 0.85),)))
            name = "cross_entropy_with_grad" if with_grad else "cross_entropy"
            yield Case(f"{name}/{n}x{vocabulary}", "cross_entropy of given logits", build, demands)


def fused_loss_cases(name: str, dtype: str) -> Iterator[Case]:
    """Yield the fused loss beside the projection and PyTorch, alone and with gradients."""
    rows_, section = TOKENS[name], "linear_cross_entropy"
    demands = [slower("logits", "times the time of logits", 1.10)]
    if dtype == "f32":
        demands.append(Demand("best", "times the speed of the best peer", best_of_torch, "x", ">=", 1.5))
    build = on_head(name, losses.linear_cross_entropy, dtype, rows_)
    yield Case(f"linear_cross_entropy/{dtype}/{name}/n{rows_}", section, build, tuple(demands))
    bar, peak = (1.4, 0.82) if dtype == "f32" else (1.15, 0.76)
    yield Case(
        f"linear_cross_entropy_with_grad/{dtype}/{name}/n{rows_}",
        section,
        on_head(name, losses.linear_cross_entropy_with_grad, dtype, rows_),
        (
            Demand("best", "times the speed of the best peer", best_of_torch, "x", ">=", bar),
            share("peak", peak),
            shorter("frozen head", "without the weight's gradient, of the full time", 0.72),
            shorter("90% ignored", "of the full time with 90% of the targets ignored", 0.15),
        ),
    )


def calls_cases() -> Iterator[Case]:
    """Yield what does not depend on a size."""
    call = Demand("time", "microseconds a call", lambda outcome: 1e6 * outcome.seconds(), "us", "<=", 3.0)
    yield Case("smallest", "calls", calls.smallest_call, (call,))
    imported = Demand("time", "milliseconds after NumPy's", lambda outcome: 1e3 * outcome.seconds(), "ms", "<=", 60.0)
    yield Case("import", "calls", lambda _: calls.import_time(), (imported,))


def table_cases() -> Iterator[Case]:
    """Yield the AVX2 table beside the AVX-512 one, and half-precision storage beside float32 on both."""
    yield Case(
        "avx2/f32/n256",
        "AVX2 table, gpt2",
        on_head(GPT2, projection.on_table, 256, "avx2", "avx512"),
        (slower("avx512", "times the avx512 time", 1.25),),
    )
    for isa in ("avx2", "avx512bf16"):
        for hidden, storage in (("f32", "bf16"), ("f32", "f16"), ("bf16", "bf16")):
            for n, bar in {1: 1.0, 256: 1.3}.items():
                build = on_head(GPT2, projection.of_storage, hidden, storage, n, isa)
                # The bars are for the AVX2 table; the best table is shown beside it.
                demand = slower("f32", "times the float32 time", bar if isa == "avx2" else None)
                section = "AVX2 table, gpt2" if isa == "avx2" else "best table, gpt2, half-precision storage"
                yield Case(f"storage/{isa}/{hidden}-{storage}/n{n}", section, build, (demand,))
