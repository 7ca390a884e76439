"""The same values in other memory: what NumPy, a file or another library may hand over.

Knows strides, alignment, byte order, read-only memory and DLPack. Refuses to know what the values are for.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle import BFLOAT16

Array = NDArray[Any]

_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def layouts(array: Array) -> dict[str, Array]:
    """Return views and copies with the values, shape and dtype (up to byte order) of an array of 1 or more axes."""
    every_other = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    every_other[..., ::2] = array
    sliced = np.zeros((*array.shape[:-1], array.shape[-1] + 5), array.dtype)
    sliced[..., 2:-3] = array
    raw = np.zeros(array.nbytes + 1, np.uint8)
    misaligned = raw[1:].view(array.dtype).reshape(array.shape)
    misaligned[...] = array
    read_only = array.copy()
    read_only.flags.writeable = False
    found = {
        "contiguous": array.copy(),
        "fortran": np.asfortranarray(array),
        "every other": every_other[..., ::2],
        "column slice": sliced[..., 2:-3],
        "reversed columns": array[..., ::-1].copy()[..., ::-1],
        "reversed rows": array[::-1].copy()[::-1],
        "misaligned": misaligned,
        "read-only": read_only,
    }
    if array.dtype != BFLOAT16:  # ml_dtypes has no swapped bfloat16
        found["byte-swapped"] = array.astype(array.dtype.newbyteorder())
    return found


class _DLPackTensor:
    """A CPU tensor that is no NumPy array and speaks DLPack only; bfloat16 goes out as other libraries send it."""

    def __init__(self, array: Array, *, device: int = 1) -> None:
        self._array, self._device = array, device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device, 0

    def __dlpack__(self, **_: object) -> object:
        if self._array.dtype != BFLOAT16:
            return self._array.__dlpack__()
        capsule = self._array.view(np.uint16).__dlpack__()
        # DLTensor: data pointer (8 bytes), device (2 x int32), ndim (int32), then the dtype's code; 4 is kDLBfloat.
        ctypes.c_uint8.from_address(_capsule_pointer(capsule, b"dltensor") + 20).value = 4
        return capsule


def dlpack(array: Array, *, device: int = 1) -> Any:
    """Return a tensor that only DLPack can read, by default on the CPU."""
    return _DLPackTensor(array, device=device)
