"""``QuantizedWeight``: a head of 8- or 4-bit integers in groups that share a scale.

Knows what such a weight is made of and what its values are. Refuses to know how one is chosen: that is `quantize`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _core
from ._typing import Array


class QuantizedWeight:
    """A weight (V, D) of integers q with a scale for each row, or for each group of a row: ``w = scale * q``.

    Every function that takes a weight takes one of these. `quantize` makes them; they are immutable and picklable, and
    may be used from many threads.

    Attributes
    ----------
    shape : tuple of int
        (V, D).
    bits : int
        8 or 4.
    group_size : int or None
        Elements of a row that share a scale; None: the whole row.
    scale_dtype : dtype
        float32 or float16.
    values : ndarray, read-only
        int8 of shape (V, D) for 8 bits. For 4 bits uint8 of shape (V, 16 * ceil(D / 32)): 16 bytes for each 32
        elements, their low nibbles elements 0 to 15 and the high ones 16 to 31, in two's complement. Of the blocks of
        a model file, int8 of shape (V, D / 32, 32), a view.
    scales : ndarray, read-only
        Of shape (V, number of groups).
    nbytes : int
        Of values and scales.

    Notes
    -----
    Accumulation: the meaning of such a weight is `dequantize`: each element is ``float32(scale) * float32(q)``, rounded
    once to float32 (a float16 scale makes that exact). Logits, losses and gradients have the very bits that this
    float32 matrix gives, with hidden states of float32, float16 or bfloat16; they are never rounded to integers.

    Memory: a call makes no dequantised copy of the weight. Up to 16 hidden states meet the integers where they are; for
    more, at most 256 rows at a time are dequantised into scratch.

    Determinism: as that of `logits`. NaN and inf: scales that `quantize` makes are finite; in blocks of a file they
    follow IEEE arithmetic, within their rows.
    """

    __slots__ = ("__lmhead_weight__", "bits", "group_size", "scales", "values")

    __lmhead_weight__: Any
    bits: int
    group_size: int | None
    values: NDArray[Any]
    scales: NDArray[Any]

    def __init__(self) -> None:
        raise TypeError("QuantizedWeight: expected to be made by quantize, got a call of the class")

    @classmethod
    def _of(
        cls, values: NDArray[Any], scales: NDArray[Any], width: int, bits: int, group_size: int | None
    ) -> QuantizedWeight:
        """Take over arrays as `quantize` makes them."""
        group = max(1, width) if group_size is None else group_size
        stored = _core.quantized_weight(values, scales, width, bits, group)
        return cls._with(stored, bits, group_size, values, scales)

    @classmethod
    def _from_q8_0(cls, blocks: NDArray[np.uint8]) -> QuantizedWeight:
        """Wrap blocks (V, D / 32 * 34) of uint8 without a copy: for each 32 elements a float16 scale and 32 int8."""
        stored = _core.q8_0_weight(blocks)
        # Bytes of any alignment: views of structures, which need none.
        block = np.dtype({"names": ["d", "qs"], "formats": ["<f2", ("i1", 32)], "offsets": [0, 2], "itemsize": 34})
        fields = blocks.view(block)
        return cls._with(stored, 8, 32, fields["qs"], fields["d"])

    @classmethod
    def _with(
        cls, stored: Any, bits: int, group_size: int | None, values: NDArray[Any], scales: NDArray[Any]
    ) -> QuantizedWeight:
        self = object.__new__(cls)
        views = values.view(), scales.view()
        for view in views:
            view.flags.writeable = False
        for name, value in zip(cls.__slots__, (stored, bits, group_size, views[1], views[0]), strict=True):
            object.__setattr__(self, name, value)
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name}: expected no assignment, as a QuantizedWeight is immutable, got one")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name}: expected no deletion, as a QuantizedWeight is immutable, got one")

    @property
    def shape(self) -> tuple[int, int]:
        """(V, D)."""
        shape: tuple[int, int] = self.__lmhead_weight__.shape
        return shape

    @property
    def scale_dtype(self) -> np.dtype[Any]:
        """float32 or float16."""
        return self.scales.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of values and scales."""
        return self.values.nbytes + self.scales.nbytes

    def dequantize(self) -> NDArray[np.float32]:
        """Return the values as a new array, shape (V, D)."""
        values: NDArray[np.float32] = self.__lmhead_weight__.dequantize()
        return values

    def gather(self, ids: Array) -> NDArray[np.float32]:
        """Return rows by token id, dequantised: with a tied head, the embedding of these tokens.

        Parameters
        ----------
        ids : array_like, shape (...)
            0 to V - 1, of any integer dtype.

        Returns
        -------
        ndarray of float32, shape (..., D)
            The bits of ``dequantize()[ids]``.

        Raises
        ------
        IndexError
            An id out of range (a negative one too); it names its position.
        TypeError
            Ids that are no integers.
        """
        rows: NDArray[np.float32] = _core.gather(self.__lmhead_weight__, ids)
        return rows

    def __repr__(self) -> str:
        return (
            f"QuantizedWeight(shape={self.shape}, bits={self.bits}, group_size={self.group_size}, "
            f"scale_dtype={self.scale_dtype}, nbytes={self.nbytes})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        if self.values.ndim == 3:
            return QuantizedWeight._from_q8_0, (np.ascontiguousarray(self.__lmhead_weight__.stored),)
        return QuantizedWeight._of, (self.values, self.scales, self.shape[1], self.bits, self.group_size)
