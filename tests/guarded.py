"""Arrays whose last byte is the last of its page, before a page that must not be touched.

For code in a fresh interpreter, which a read past the end kills.

Knows memory. Refuses to know what reads it.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)


def at_the_end(array: NDArray[Any]) -> NDArray[Any]:
    """Return a C-contiguous copy that ends where a guard page begins."""
    array = np.ascontiguousarray(array)
    pages = -(-array.nbytes // PAGE)
    memory = mmap.mmap(-1, (pages + 1) * PAGE)
    whole = np.frombuffer(memory, np.uint8)
    guard = ctypes.c_void_p(whole.ctypes.data + pages * PAGE)
    assert _libc.mprotect(guard, ctypes.c_size_t(PAGE), 0) == 0
    copy = whole[pages * PAGE - array.nbytes : pages * PAGE].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
