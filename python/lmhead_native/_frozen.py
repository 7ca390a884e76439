"""What prepared heads and their norms have in common: nobody changes them once they are made."""

from __future__ import annotations


class Frozen:
    """A class with slots whose attributes are set by ``object.__setattr__`` while it is made, and then stay."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: {name} cannot be set; make another")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: {name} cannot be deleted")
