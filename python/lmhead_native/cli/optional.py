"""Packages that may be missing: torch, gguf, tokenizers, matplotlib, ml_dtypes, threadpoolctl.

Knows: how to import one only when a command needs it. Refuses to know: what it is used for.
"""

from __future__ import annotations

import importlib
from types import ModuleType


def optional_module(name: str) -> ModuleType | None:
    """Import a module, or return None when its package is not installed.

    Only the absence of that package counts: a package that is there but broken raises its own error.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == name.partition(".")[0]:
            return None
        raise
