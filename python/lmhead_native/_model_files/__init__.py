"""Model files: the head that a GGUF or safetensors checkpoint holds, mapped into memory and checked.

Nothing else of the package imports this on its own: who reads no file pays nothing for it.
"""

from __future__ import annotations

from .found_head import FoundHead, FoundNorm
from .gguf import GgufFile
from .gguf_head import find_gguf_head
from .safetensors_head import find_safetensors_head
from .stored_matrix import Progress, StoredMatrix

__all__ = ["FoundHead", "FoundNorm", "GgufFile", "Progress", "StoredMatrix", "find_gguf_head", "find_safetensors_head"]
