"""Instruction set, threads, configuration, and the public surface.

Environment variables are read at import, so each value gets a fresh interpreter.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import types
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import numpy as np
import pytest

import fresh
import lmhead_native as native
from lmhead_native import _core, reference

RUNTIME = {"get_num_threads", "isa", "set_num_threads", "show_config"}
FUNCTIONS = sorted(name for name in native.__all__ if isinstance(getattr(native, name), types.FunctionType))
# Have no counterpart in the reference: one compares with it, the other makes a weight that it takes.
TOOLS = {"check_gradients", "quantize"}
COMPUTING = sorted(set(FUNCTIONS) - RUNTIME - TOOLS)

REPORT = """
import json, zlib, numpy as np, lmhead_native as native
from lmhead_native import _core
import ml_dtypes
weight = np.linspace(-1, 1, 2000 * 64, dtype=np.float32).reshape(2000, 64)
small = np.full((1, 2), 2.0**-130).astype(ml_dtypes.bfloat16)  # subnormal
print(json.dumps({
    "names": [native.isa(), _core.isa(), native.show_config("dicts")["isa"]],
    "threads": native.get_num_threads(),
    "bits": zlib.crc32(native.logits(weight[:40], weight).tobytes()),
    "subnormal": native.logits(small, np.full_like(small, 2.0**20)).item(),
}))
"""


def report(isa: str | None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(fresh.output(REPORT, environment={"LMHEAD_ISA": isa}))
    return found


# ---- LMHEAD_ISA ----------------------------------------------------------------------------------------------------


def test_isa_is_the_best_by_default() -> None:
    for value in (None, ""):
        assert report(value)["names"] == [_core.usable_isas()[-1]] * 3


def test_forced_isa_is_in_use() -> None:
    """The name is part of the table that holds the kernels; `vdpbf16ps` shows itself besides, subnormals count as 0."""
    reports = {isa: report(isa) for isa in _core.usable_isas()}
    for isa, found in reports.items():
        assert found["names"] == [isa] * 3
        assert found["subnormal"] == (0.0 if isa == "avx512bf16" else 2 * 2.0**-130 * 2.0**20)
    assert len({found["bits"] for found in reports.values()}) == 1


@pytest.mark.parametrize("name", ["sse9", "AVX2", "avx", "scalar ", "none"])
def test_unknown_isa_fails_the_import(name: str) -> None:
    finished = fresh.run("import lmhead_native", environment={"LMHEAD_ISA": name})
    assert finished.returncode == 1
    last = finished.stderr.rstrip().splitlines()[-1]
    usable = ", ".join(_core.usable_isas())
    assert last.startswith(f"ImportError: LMHEAD_ISA: expected one of {usable}, got '{name}'; ")
    assert ", ".join(_core.compiled_isas()) in last


def test_unusable_isa_fails_the_import() -> None:
    """Empty on a CPU that runs every table; `sse9` keeps it from passing by that alone."""
    for name in ["sse9", *sorted(set(_core.compiled_isas()) - set(_core.usable_isas()))]:
        assert f"got '{name}'" in fresh.run("import lmhead_native", environment={"LMHEAD_ISA": name}).stderr


def test_use_isa_refuses_and_changes_nothing() -> None:
    before = _core.isa()
    with pytest.raises(ValueError, match=r"expected one of scalar.*got 'sse9'"):
        _core.use_isa("sse9")
    assert _core.isa() == before


# ---- threads -------------------------------------------------------------------------------------------------------


@pytest.fixture
def keep_threads() -> Iterator[None]:
    before = native.get_num_threads()
    yield
    native.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2, 3, 1024])
def test_environment_sets_threads(threads: int) -> None:
    code = "import lmhead_native; print(lmhead_native.get_num_threads())"
    assert fresh.output(code, environment={"LMHEAD_NUM_THREADS": str(threads)}) == f"{threads}\n"


@pytest.mark.parametrize("value", ["0", "-1", "1025", "two", "1.5", "2 threads", "99999999999999999999"])
def test_wrong_threads_fail_the_import(value: str) -> None:
    finished = fresh.run("import lmhead_native", environment={"LMHEAD_NUM_THREADS": value})
    assert finished.returncode == 1
    last = finished.stderr.rstrip().splitlines()[-1]
    assert last.startswith(f"ImportError: LMHEAD_NUM_THREADS: expected an integer from 1 to 1024, got '{value}'; ")


def default_threads(setup: str = "pass", **environment: str) -> int:
    code = f"import os; {setup}; import lmhead_native; print(lmhead_native.get_num_threads())"
    unset = dict.fromkeys(["LMHEAD_NUM_THREADS", "OMP_NUM_THREADS", "OMP_THREAD_LIMIT"])
    return int(fresh.output(code, environment={**unset, **environment}))


def test_default_threads_follow_openmp_and_affinity() -> None:
    allowed = len(os.sched_getaffinity(0))
    assert 1 <= default_threads() <= allowed  # a container's quota may leave fewer
    assert default_threads("os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])") == 1
    if _core.config()["parallel"] == "openmp":
        assert default_threads(OMP_NUM_THREADS="1") == 1
        assert default_threads(OMP_NUM_THREADS="900") <= allowed


@pytest.mark.usefixtures("keep_threads")
def test_set_num_threads() -> None:
    counts: list[Any] = [1, np.int8(3), 1024, 2]
    for threads in counts:
        native.set_num_threads(threads)
        assert native.get_num_threads() == native.show_config("dicts")["threads"] == threads
        assert _core.check_threads(None) == threads
    assert _core.check_threads(3) == 3


COUNT = """
import os, numpy as np, lmhead_native as native
from lmhead_native import _core
{setup}
weight = np.ones((20000, 64), np.float32)
before = len(os.listdir("/proc/self/task"))
for _ in range(3):
    native.logits(weight[:64], weight{threads})
print(_core.config()["parallel"], len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.parametrize(
    ("setup", "threads", "environment", "expected"),
    [
        ("", "", {"LMHEAD_NUM_THREADS": "3"}, 3),
        ("", "", {"LMHEAD_NUM_THREADS": "1"}, 1),
        ("", ", threads=1", {"LMHEAD_NUM_THREADS": "3"}, 1),
        ("", ", threads=4", {"LMHEAD_NUM_THREADS": "1"}, 4),
        ("native.set_num_threads(2)", "", {"LMHEAD_NUM_THREADS": "4"}, 2),
    ],
)
def test_threads_that_run(setup: str, threads: str, environment: dict[str, str], expected: int) -> None:
    """OpenMP keeps its threads for the next call, so they can be counted; those of the other backend are gone."""
    backend, started = fresh.output(COUNT.format(setup=setup, threads=threads), environment=environment).split()
    assert int(started) == (expected - 1 if backend == "openmp" else 0)


# ---- show_config ---------------------------------------------------------------------------------------------------


def test_show_config_as_dictionary() -> None:
    config = native.show_config("dicts")
    assert config == native.show_config(mode="dicts") == _core.config()
    assert config["version"] == native.__version__ == metadata.version("lmhead-native")
    assert config["isa"] in config["usable_isas"]
    assert set(config["usable_isas"]) <= set(config["compiled_isas"])
    assert config["parallel"] in ("openmp", "threads")
    assert bool(config["openmp"]) == (config["parallel"] == "openmp")
    assert re.match(r"\w+ \d+\.", config["compiler"])
    assert all(isinstance(present, bool) for present in config["cpu_features"].values())
    config["isa"] = "changed"
    assert native.isa() != "changed"


def test_show_config_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert native.show_config() is None
    facts = dict(line.strip().split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert facts["isa"] == native.isa()
    assert facts["threads"] == str(native.get_num_threads())
    assert facts["compiled isas"] == ", ".join(_core.compiled_isas())
    assert facts["version"] == native.__version__
    assert len(facts) == len(_core.config())


# ---- the public surface --------------------------------------------------------------------------------------------


def signature(function: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def test_the_reference_has_every_function_and_no_other() -> None:
    assert sorted(reference.__all__) == COMPUTING
    assert len(COMPUTING) >= 8


@pytest.mark.parametrize("name", COMPUTING)
def test_the_reference_has_the_same_signature(name: str) -> None:
    assert signature(getattr(reference, name)) == signature(getattr(native, name))


@pytest.mark.parametrize("name", COMPUTING)
def test_everything_after_the_arrays_is_a_keyword(name: str) -> None:
    arrays = {"hidden", "weight", "logits", "targets", "draft_tokens", "x", "gain", "k"}
    arrays |= {"bias"} if name == "layer_norm" else set()
    parameters = inspect.signature(getattr(native, name)).parameters
    for parameter in parameters.values():
        assert (parameter.kind is parameter.KEYWORD_ONLY) == (parameter.name not in arrays)
    assert parameters["threads"].default is None


@pytest.mark.parametrize("name", COMPUTING)
@pytest.mark.parametrize("module", [native, reference], ids=["native", "reference"])
def test_docstrings_say_what_they_must(module: types.ModuleType, name: str) -> None:
    function = getattr(module, name)
    text = inspect.getdoc(function) or ""
    sections = re.findall(r"^(\w[\w ]*)\n-+$", text, re.MULTILINE)
    assert [s for s in sections if s != "See Also"] == ["Parameters", "Returns", "Raises", "Notes"]
    listed = text[text.index("Parameters") : text.index("Returns\n")]
    for parameter in inspect.signature(function).parameters:
        assert re.search(rf"^(\w+, )*{parameter}\b", listed, re.MULTILINE), parameter
    notes = text[text.index("Notes\n") :].lower()
    for word in ("nan",) if module is reference else ("memory", "determinism", "nan"):
        assert word in notes, word


def test_public_names() -> None:
    assert dir(native) == sorted(native.__all__)
    for name in native.__all__:
        assert getattr(native, name) is not None
    assert native.reference is reference
    with pytest.raises(AttributeError, match="has no attribute 'sofmax'"):
        vars(native)["__getattr__"]("sofmax")
