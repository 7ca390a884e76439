"""Kernel tables must be freestanding: what an object of one instruction set may define and ask for.

A weak function compiled with AVX-512 may be the one that the linker keeps for everybody: an illegal instruction on an
older CPU. So each object defines one symbol and shares none. The rule is about objects of a release build, and no wheel
has them: the tests exist where LMHEAD_OBJECTS names a build folder, as in .ci/run.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lmhead_native import _core

# What the compiler may call on its own, and the fused multiply-add of a CPU without the instruction.
MAY_NEED = {"memcpy", "memmove", "memset", "memcmp", "fma", "fmaf", "_GLOBAL_OFFSET_TABLE_"}
# Nothing that changes, is initialised at start, or belongs to a thread. Constants with addresses are in .data.rel.ro.
MUST_BE_EMPTY = (".data", ".bss", ".tdata", ".tbss", ".init_array", ".ctors", ".fini_array")


def symbols(path: Path, *options: str) -> list[tuple[str, str]]:
    """Return nm's (type, name) of every symbol; T: code, t and r: of this object only, U: undefined, V, W, u: weak."""
    lines = subprocess.run(["nm", *options, path], capture_output=True, text=True, check=True).stdout.splitlines()
    return [(line.split()[-2], line.split()[-1]) for line in lines]


def faults(path: Path, entry: str) -> list[str]:
    """Return what is wrong with an object that should define `entry` and nothing else."""
    found = symbols(path)
    wrong = [f"{kind} {name}" for kind, name in found if kind in "VWuvwiBbDGgSsC"]
    wrong += [f"U {name}" for kind, name in found if kind == "U" and name not in MAY_NEED]
    defined = [name for kind, name in found if kind == "T"]
    if len(defined) != 1 or entry not in defined[0]:
        wrong.append(f"T {defined}")
    sections = subprocess.run(["readelf", "-SW", path], capture_output=True, text=True, check=True).stdout
    for line in sections.splitlines():
        name, *fields = line.partition("]")[2].split() or [""]
        is_forbidden = any(name == s or name.startswith(f"{s}.") for s in MUST_BE_EMPTY)
        if is_forbidden and not name.startswith(".data.rel.ro") and int(fields[3], 16) > 0:
            wrong.append(f"section {name}")
    return wrong


if "LMHEAD_OBJECTS" in os.environ:
    BUILD = Path(os.environ["LMHEAD_OBJECTS"])

    @pytest.mark.parametrize("isa", _core.compiled_isas())
    def test_an_isa_object_is_freestanding(isa: str) -> None:
        (path,) = BUILD.rglob(f"{isa}.cpp.o")
        assert faults(path, f"table_{isa}") == []

    def test_the_module_exports_its_entry_alone() -> None:
        """Templates of the standard library stay weak by its own visibility; of ours nothing shows."""
        (path,) = BUILD.rglob("_core*.so")
        assert [name for kind, name in symbols(path, "-D", "--defined-only") if kind == "T"] == ["PyInit__core"]

    @pytest.mark.parametrize(
        ("code", "fault"),
        [
            ("int table_x() { return 1; }", None),
            ("int table_x() { return 1; } int second() { return 2; }", "T "),
            ("static int n; int table_x() { return ++n; }", "b "),
            ("int f(); int table_x() { return f(); }", "U "),
            ("inline int f() { return 3; } int (*table_x())() { return f; }", "W "),
            ("int f(); static const int n = f(); int table_x() { return n; }", "section .init_array"),
            ("static thread_local int n; int table_x() { return ++n; }", "section .tbss"),
            ("#include <vector>\nvoid table_x(std::vector<int>& v) { v.push_back(1); }", "W "),
        ],
    )
    def test_the_rule_sees_what_breaks_it(code: str, fault: str | None, tmp_path: Path) -> None:
        source, path = tmp_path / "x.cpp", tmp_path / "x.o"
        source.write_text(code)
        subprocess.run([os.environ.get("CXX", "c++"), "-fPIC", "-c", source, "-o", path], check=True)
        found = faults(path, "table_x")
        assert any(wrong.startswith(fault) for wrong in found) if fault else not found, found
