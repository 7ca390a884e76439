"""``lmhead-native score``: files of states and ids to a table, to JSON, to one line about what is wrong."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lmhead_native as native
from lmhead_native.cli import main, model, score
from test_cli_text import FakeTerminal
from test_lm_head_files import ARRAYS, GAIN, TOKENS, WEIGHT, D, V, gguf_file, safetensors_folder

RNG = np.random.default_rng(21)
HIDDEN = RNG.standard_normal((2, 6, D)).astype(np.float32)
IDS = RNG.integers(0, V, (2, 6))
IDS[0, 3] = -100
IDS[:, 0] = 10**6  # which nobody scores
NOTE = "F32.gguf: tied: the head is token_embd.weight\n"


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Options that name a file of states and one of ids."""
    np.save(tmp_path / "hidden.npy", HIDDEN)
    np.save(tmp_path / "ids.npy", IDS)
    return ["--hidden", str(tmp_path / "hidden.npy"), "--ids", str(tmp_path / "ids.npy")]


def text(token: int) -> str:
    return TOKENS[token].replace("\u0120", " ")


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line, parse_constant=pytest.fail) for line in capsys.readouterr().out.splitlines()]


def check_totals(totals: dict[str, Any], found: native.TokenScores, ids: NDArray[Any]) -> None:
    live = ids[:, 1:] != -100
    mean = float(np.mean(found.logprob[live], dtype=np.float64))
    assert totals["tokens"] == live.sum()
    assert totals["mean_logprob"] == pytest.approx(mean, rel=1e-12)
    assert totals["perplexity"] == pytest.approx(math.exp(-mean), rel=1e-12)
    assert totals["greedy_accuracy"] == pytest.approx((found.argmax == ids[:, 1:])[live].mean())
    assert totals["mean_entropy"] == pytest.approx(np.mean(found.entropy[live], dtype=np.float64), rel=1e-12)


def test_json_has_every_token_and_the_totals(
    tmp_path: Path, files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(score, "STATES_PER_CALL", 3)
    path = str(gguf_file(tmp_path, "Q8_0"))
    assert main(["score", path, *files, "--json", "--top", "4"]) == 0
    *lines, last = lines_of(capsys)
    found = native.logits_scores(HIDDEN, WEIGHT, IDS, shift=1, top_n=4)
    assert [line["position"] for line in lines] == [[b, t] for b in range(2) for t in range(1, 6) if IDS[b, t] != -100]
    for line in lines:
        b, t = line["position"]
        at = b, t - 1
        assert line["id"] == IDS[b, t]
        assert line["token"] == text(IDS[b, t])
        for name in ("logprob", "rank", "entropy", "logsumexp", "argmax"):
            assert line[name] == getattr(found, name)[at]
        assert line["top_ids"] == found.top_ids[at].tolist()
        assert line["top_logprobs"] == found.top_logprobs[at].tolist()
        assert line["top_tokens"] == [text(token) for token in line["top_ids"]]
    check_totals(last["totals"], found, IDS)


def test_a_table_for_people(tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    path = str(gguf_file(tmp_path, "F32"))
    assert main(["score", path, *files, "--top", "2"]) == 0
    captured = capsys.readouterr()
    assert captured.err == NOTE
    head, *lines = captured.out.splitlines()
    assert head.split() == ["position", "id", "token", "log", "p", "rank", "entropy", "best"]
    found = native.logits_scores(HIDDEN, WEIGHT, IDS, shift=1, top_n=2)
    shown, best, second = lines[:3]
    assert f'0,1 {IDS[0, 1]} "{text(IDS[0, 1])}" {found.logprob[0, 0]:.3f} {found.rank[0, 0]} ' in " ".join(
        shown.split()
    )
    for line, place in ((best, 0), (second, 1)):
        token = found.top_ids[0, 0, place]
        assert " ".join(line.split()) == f'{token} "{text(token)}" {found.top_logprobs[0, 0, place]:.3f}'
    totals = dict(line.rsplit(maxsplit=1) for line in lines[lines.index("") + 1 :])
    live = IDS[:, 1:] != -100
    assert totals.keys() == {"tokens", "mean log p", "perplexity", "greedy accuracy", "mean entropy"}
    assert totals["tokens"] == "9"
    assert totals["mean log p"] == f"{found.logprob[live].mean(dtype=float):.4f}"
    assert totals["perplexity"] == f"{math.exp(-found.logprob[live].mean(dtype=float)):.4f}"


@pytest.mark.parametrize("norm", [False, True])
def test_a_folder_and_archives(tmp_path: Path, norm: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """One sequence, whose positions are numbers; a head without texts."""
    folder, archive = str(safetensors_folder(tmp_path, "BF16")), str(tmp_path / "text.npz")
    np.savez(archive, hidden=HIDDEN[1].astype(np.float16), ids=IDS[1].astype(np.int32))
    assert main(["score", folder, "--hidden", archive, "--ids", archive, "--json", *(["--norm"] if norm else [])]) == 0
    *lines, last = lines_of(capsys)
    hidden = HIDDEN[1].astype(np.float16).astype(np.float32)
    hidden = native.rms_norm(hidden, GAIN, eps=0.25) if norm else hidden
    found = native.logits_scores(hidden, ARRAYS["BF16"], IDS[1], shift=1)
    assert [line["logprob"] for line in lines] == found.logprob.tolist()
    assert [line["position"] for line in lines] == [1, 2, 3, 4, 5]
    assert not {"token", "top_ids"} & lines[0].keys()
    assert last["totals"]["tokens"] == 5
    assert main(["score", folder, "--hidden", archive, "--ids", archive, "--top", "1"]) == 0
    assert "token " not in capsys.readouterr().out.splitlines()[0]


def test_numbers_that_json_has_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(gguf_file(tmp_path, "F32"))
    np.save(tmp_path / "hidden.npy", np.full((2, D), np.nan, np.float32))
    np.save(tmp_path / "ids.npy", np.array([1, 2]))
    given = ["--hidden", str(tmp_path / "hidden.npy"), "--ids", str(tmp_path / "ids.npy")]
    assert main(["score", path, *given, "--json"]) == 0
    line, last = lines_of(capsys)
    assert (line["logprob"], line["rank"], line["argmax"]) == ("nan", 3, 0)
    assert last["totals"]["perplexity"] == "nan"
    np.save(tmp_path / "hidden.npy", np.zeros((1, D), np.float32))
    np.save(tmp_path / "ids.npy", np.array([1]))
    assert main(["score", path, *given, "--json"]) == 0
    assert lines_of(capsys) == [
        {
            "totals": {
                "tokens": 0,
                "mean_logprob": "nan",
                "perplexity": "nan",
                "greedy_accuracy": "nan",
                "mean_entropy": "nan",
            }
        }
    ]


def test_a_bar_on_a_terminal_only(
    tmp_path: Path, files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(gguf_file(tmp_path, "F32"))
    assert main(["score", path, *files]) == 0
    assert capsys.readouterr().err == NOTE
    terminal = FakeTerminal()
    monkeypatch.setattr(score, "STATES_PER_CALL", 4)
    monkeypatch.setattr("sys.stderr", terminal)
    assert main(["score", path, *files]) == 0
    drawn = terminal.getvalue()
    assert [f"{done:>2}/10 |" in drawn for done in (0, 4, 8, 10)] == [True] * 4
    assert "tokens scored" in drawn
    assert drawn.endswith("\r\x1b[K")


@pytest.mark.parametrize(
    ("hidden", "ids", "message"),
    [
        (HIDDEN[..., 1:], IDS, "{hidden}: expected states of width 64 as of {model}, got 63"),
        (HIDDEN, IDS[:, 1:], "{ids}: expected shape (2, 6) as {hidden} is of shape (2, 6, 64), got shape (2, 5)"),
        (HIDDEN[0, 0], IDS[0, 0], "{hidden}: expected shape (..., T, D), got shape (64,)"),
        (HIDDEN, IDS.astype(float), "{ids}: expected ids of an integer dtype, got float64"),
        (HIDDEN, np.where(IDS[1, 4] == IDS, V, IDS), "{ids}: expected ids from 0 to V - 1 = 69, got 70 at position "),
        (HIDDEN[0], np.array([0, 1, -1, 2, 3, 4]), "{ids}: expected ids from 0 to V - 1 = 69, got -1 at position (2,)"),
        (HIDDEN[0], np.full(6, 2**64 - 100, np.uint64), "{ids}: expected ids from 0 to V - 1 = 69, got 1844674407370"),
        (HIDDEN.astype(int), IDS, "{hidden}: expected float32, float16 or float64 hidden states, got int64"),
    ],
    ids=["width", "shape", "no sequence", "floats", "too large", "negative", "unsigned", "integers"],
)
def test_refuses_files(
    tmp_path: Path, hidden: NDArray[Any], ids: NDArray[Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, hidden_path, ids_path = gguf_file(tmp_path, "F32"), tmp_path / "hidden.npy", tmp_path / "ids.npy"
    np.save(hidden_path, hidden)
    np.save(ids_path, ids)
    assert main(["score", str(path), "--hidden", str(hidden_path), "--ids", str(ids_path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("lmhead-native: error: " + message.format(hidden=hidden_path, ids=ids_path, model=path))
    assert error.count("\n") == 1


def test_refuses_other_things(tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    path = str(gguf_file(tmp_path, "F32"))
    assert main(["score", path, *files, "--top", "71"]) == 2
    assert "argument --top: expected at most V = 70 of" in capsys.readouterr().err
    assert main(["score", path, *files[:2]]) == 2
    assert "the following arguments are required: --ids" in capsys.readouterr().err
    np.savez(tmp_path / "text.npz", hidden=HIDDEN)
    assert main(["score", path, *files[:3], str(tmp_path / "text.npz")]) == 1
    assert "expected an array named 'ids', got hidden" in capsys.readouterr().err
    assert main(["score", path, *files[:3], str(tmp_path / "absent.npy")]) == 1
    assert "absent.npy: No such file" in capsys.readouterr().err


@pytest.mark.model
def test_the_passage(capsys: pytest.CaptureFixture[str]) -> None:
    passage = str(Path(__file__).parent / "data" / "smollm2_passage.npz")
    assert main(["score", str(model.model_file()), "--hidden", passage, "--ids", passage, "--json", "--top", "5"]) == 0
    *lines, last = lines_of(capsys)
    with np.load(passage) as text:
        np.testing.assert_allclose([line["logprob"] for line in lines], text["logprob"], atol=1e-4)
        np.testing.assert_array_equal([line["top_ids"] for line in lines], text["top5_ids"][:-1])
        assert last["totals"]["perplexity"] == pytest.approx(math.exp(-text["logprob"].mean()), rel=1e-5)
        hits = (text["top5_ids"][:-1, 0] == text["ids"][1:]).mean()
        assert last["totals"]["greedy_accuracy"] == pytest.approx(hits)
