"""What prepared and quantised heads must reach.

Knows: shapes, rows, bars, which figure answers which bar. Refuses to know: how contests are set up, run and printed.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench import quantized, screen
from bench.demand import Case, Demand, faster, faster_than, on_head, share
from lmhead_native import _core

SMOLLM2, GPT2, LLAMA = "smollm2", "gpt2", "llama3-8b"
SCREENED = "top-k by way of the int8 screen, k = 50"
# Times the speed of ours on the same weight without a screen.
UNSCREENED = "times the speed of ours without a screen"


def prepared_cases() -> Iterator[Case]:
    """Yield every case."""
    yield from screen_cases()
    yield from pass_cases()
    yield from quantized_cases()


def screen_cases() -> Iterator[Case]:
    """Yield top-k with the screen: the real head with real states, and a large one."""
    demands: tuple[Demand, ...] = (
        faster("numpy", 5.0),
        faster("torch", 10.0),
        faster_than("unscreened", UNSCREENED, None),
    )
    yield Case("screen/f32/smollm2-real/n1", SCREENED, screen.real_head, demands)
    demands = (
        faster("numpy", 3.5),
        faster("torch", 6.0),
        faster("faiss", 5.0),
        faster_than("unscreened", UNSCREENED, None),
    )
    yield Case("screen/f32/llama3-8b/n1", SCREENED, on_head(LLAMA, screen.screened_topk, "f32", 1), demands)
    bf16 = faster_than("torch bf16", "times the speed of PyTorch on the bfloat16 head", 2.5)
    demands = (faster("numpy", 8.0), bf16, faster_than("unscreened", UNSCREENED, None))
    yield Case("screen/f32/llama3-8b/n8", SCREENED, on_head(LLAMA, screen.screened_topk, "f32", 8), demands)
    for n, bar in {1: 1.6, 8: None}.items():
        demands = (faster_than("unscreened", UNSCREENED, bar),)
        yield Case(f"screen/bf16/llama3-8b/n{n}", SCREENED, on_head(LLAMA, screen.screened_topk, "bf16", n), demands)


def pass_cases() -> Iterator[Case]:
    """Yield the pass over the screen's bytes, and what making them takes."""
    for isa in _core.usable_isas()[1:]:
        for n, bar in {1: 0.92, 4: None, 8: None}.items():
            build = on_head(LLAMA, screen.int8_pass, n, isa)
            yield Case(f"pass/{isa}/llama3-8b/n{n}", "the pass over a screen", build, (share("bandwidth", bar),))
    for dtype in ("f32", "bf16"):
        for what in ("screen", "copy"):
            build = on_head(LLAMA, screen.preparation, dtype, what)
            yield Case(f"prepare/{what}/{dtype}/llama3-8b", "preparation", build, (share("bandwidth", 0.4),))


def quantized_cases() -> Iterator[Case]:
    """Yield `logits` of integers."""
    section = "logits of quantised heads"
    for name in (GPT2, LLAMA):
        for storage, bar in {"int8": 0.85, "int8 g32": 0.85, "int4": None, "int4 g32": None}.items():
            build = on_head(name, quantized.logits, storage, 1)
            tag = storage.replace(" ", "-")
            yield Case(f"quantized/{tag}/{name}/n1", section, build, (share("bandwidth", bar),))
    others = (
        faster_than("torch int8", "times the speed of PyTorch's dynamic int8", None),
        faster("torch", 1.0),
        faster("numpy", 1.0),
    )
    yield Case("quantized/int8/llama3-8b/n64", section, on_head(LLAMA, quantized.logits, "int8", 64), others)
    blocks = (share("bandwidth", None), faster("numpy", 1.0), faster("torch", 1.0))
    yield Case("quantized/q8_0/smollm2/n1", section, on_head(SMOLLM2, quantized.logits, "q8_0", 1), blocks)
