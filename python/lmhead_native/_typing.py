"""The types that signatures name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray


class SupportsDLPack(Protocol):
    """A tensor in CPU memory that shares itself through DLPack, such as ``torch.Tensor``."""

    def __dlpack__(self) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, int]: ...


class StoredWeight(Protocol):
    """A weight in storage of its own, such as `QuantizedWeight`."""

    @property
    def __lmhead_weight__(self) -> Any: ...


Array: TypeAlias = ArrayLike | SupportsDLPack
Weight: TypeAlias = Array | StoredWeight
Result: TypeAlias = NDArray[Any]
Ids: TypeAlias = NDArray[np.int64]
# One list of ids for all rows, or one for each row, where None allows everything.
AllowedIds: TypeAlias = Array | Sequence[Array | None]
