"""Which kernels and how many threads are in use."""

from __future__ import annotations

from typing import Any, Literal, overload

from . import _core


def isa() -> str:
    """The instruction set in use: "scalar", "avx2", "avx512", "avx512vnni" or "avx512bf16".

    The best that the CPU has, or what the environment variable ``LMHEAD_ISA`` named at import.
    """
    return _core.isa()


def get_num_threads() -> int:
    """Threads of a call that does not say ``threads``.

    ``LMHEAD_NUM_THREADS`` at import, else what OpenMP allows now and the CPU affinity and the container's quota
    allowed at the first call.
    """
    return _core.get_num_threads()


def set_num_threads(n: int) -> None:
    """Set the threads of calls that do not say ``threads``, for this process.

    Parameters
    ----------
    n : int
        1 to 1024. Results do not depend on it.

    Raises
    ------
    ValueError, TypeError
        For anything else.
    """
    _core.set_num_threads(n)


@overload
def show_config(mode: Literal["stdout"] = "stdout") -> None: ...


@overload
def show_config(mode: Literal["dicts"]) -> dict[str, Any]: ...


def show_config(mode: str = "stdout") -> dict[str, Any] | None:
    """Show version, instruction sets, threads and libraries.

    Parameters
    ----------
    mode : {"stdout", "dicts"}
        Print, or return a dictionary.

    Raises
    ------
    ValueError
        For another mode.
    """
    if mode not in ("stdout", "dicts"):
        raise ValueError(f"mode: expected 'stdout' or 'dicts', got {mode!r}")
    config = _core.config()
    if mode == "dicts":
        return config
    for name, value in config.items():
        if isinstance(value, dict):
            value = ", ".join(key for key, present in value.items() if present) or "none"
        elif isinstance(value, list):
            value = ", ".join(value)
        print(f"{name.replace('_', ' '):>18}: {value}")
    return None
