"""Which kernel tables a CPU may run: what CPUID was read as, against what the kernel of the operating system says."""

from __future__ import annotations

import platform
from pathlib import Path

from lmhead_native import _core

# Names as /proc/cpuinfo has them; `abm` is lzcnt.
X86_64_V3 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}
X86_64_V4 = X86_64_V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
NEEDS: dict[str, set[str]] = {
    "scalar": set(),
    "avx2": X86_64_V3,
    "avx512": X86_64_V4,
    "avx512vnni": X86_64_V4 | {"avx512_vnni"},
    "avx512bf16": X86_64_V4 | {"avx512_bf16", "avx512_vnni"},
}


def cpu_flags() -> set[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return set(value.split())
    return set()


def test_features_are_those_the_operating_system_lists() -> None:
    flags = cpu_flags()
    assert _core.cpu_features() == {
        "x86-64-v3": flags >= X86_64_V3,
        "x86-64-v4": flags >= X86_64_V4,
        "avx512_bf16": flags >= X86_64_V4 | {"avx512_bf16"},
        "avx512_vnni": flags >= X86_64_V4 | {"avx512_vnni"},
    }


def test_usable_tables_are_those_whose_instructions_are_there() -> None:
    flags = cpu_flags()
    assert _core.usable_isas() == [isa for isa in _core.compiled_isas() if flags >= NEEDS[isa]]


def test_compiled_tables() -> None:
    x86 = platform.machine() in ("x86_64", "AMD64")
    assert _core.compiled_isas() == (list(NEEDS) if x86 else ["scalar"])


def test_the_name_of_the_cpu() -> None:
    """The brand string is what /proc/cpuinfo calls the model name, where there is one."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    assert not names or _core.config()["cpu"].strip() == names[0]
