"""A file in memory that is only read, and a cursor that cannot leave it.

Knows: bytes, little-endian numbers, where the file ends, and the form of every message about a file. Refuses to know:
what the bytes are for.

A mapping does not protect from a file that somebody cuts short while it is in use: touching what is gone ends the
process (SIGBUS), as it does with every mapped file.
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

SHOWN = 80  # characters of a name or value in a message; a hostile one may have millions

_U64 = struct.Struct("<Q")


def malformed(path: Path, field: str, expected: str, got: object) -> ValueError:
    """Build the error about one field of a file."""
    name = shown(field) or "''"
    return ValueError(f"{path}: {name}: expected {expected}, got {got}")


def shown(text: str) -> str:
    """Return a text from a file as it may stand in a message: printable, and not endless."""
    start = text[: SHOWN + 1]
    printable = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in start)
    return printable if len(printable) <= SHOWN else printable[: SHOWN - 3] + "..."


class Extent(NamedTuple):
    """Where something lies in the file: `n_bytes` from `offset` on."""

    field: str
    offset: int
    n_bytes: int


class MappedFile:
    """The bytes of a regular file, mapped read-only.

    Views keep the mapping alive; nothing has to be closed.

    Raises
    ------
    OSError
        What opening the file says: not there, a folder, not permitted.
    ValueError
        The file is empty, or a pipe or device.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        # Not to wait for somebody to write into a pipe, O_NONBLOCK; regular files ignore it.
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(21, os.strerror(21), str(self.path))
            if not stat.S_ISREG(status.st_mode):
                raise malformed(self.path, "file", "a regular file", "a pipe, socket or device")
            if status.st_size == 0:
                raise malformed(self.path, "file", "at least one byte", "an empty file")
            self.buffer = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)
        self.size = len(self.buffer)

    def check_extent(self, extent: Extent) -> None:
        """Refuse what is not wholly inside the file."""
        if extent.offset < 0 or extent.n_bytes < 0 or extent.n_bytes > self.size - extent.offset:
            raise malformed(
                self.path,
                extent.field,
                f"data inside the file of {self.size} bytes",
                f"{extent.n_bytes} bytes at offset {extent.offset}",
            )

    def view(self, extent: Extent, dtype: DTypeLike, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return read-only memory of the file as an array, at any alignment."""
        self.check_extent(extent)
        octets = np.frombuffer(self.buffer, dtype=np.uint8, count=extent.n_bytes, offset=extent.offset)
        return octets.view(np.dtype(dtype).newbyteorder("<")).reshape(shape)


def check_disjoint(path: Path, extents: Iterable[Extent]) -> None:
    """Refuse two extents that share a byte."""
    end, before = 0, ""
    for field, offset, n_bytes in sorted((e for e in extents if e.n_bytes), key=lambda e: e.offset):
        if offset < end:
            raise malformed(path, field, "data of its own", f"offset {offset}, inside that of {shown(before)}")
        end, before = offset + n_bytes, field


class Cursor:
    """A place in a mapped file that moves forward as values are read; each read names its field."""

    def __init__(self, file: MappedFile, position: int = 0) -> None:
        self.file = file
        self.position = position

    @property
    def left(self) -> int:
        """Bytes from here to the end of the file."""
        return self.file.size - self.position

    def need(self, field: str, n_bytes: int) -> None:
        """Refuse to go on when fewer bytes are left."""
        if n_bytes > self.left:
            raise malformed(self.file.path, field, f"{n_bytes} bytes at offset {self.position}", f"{self.left} left")

    def skip(self, field: str, n_bytes: int) -> None:
        """Pass over bytes."""
        self.need(field, n_bytes)
        self.position += n_bytes

    def number(self, field: str, layout: struct.Struct) -> Any:
        """Read one little-endian number."""
        self.need(field, layout.size)
        (value,) = layout.unpack_from(self.file.buffer, self.position)
        self.position += layout.size
        return value

    def u32(self, field: str) -> int:
        """Read an unsigned 32-bit integer."""
        return int(self.number(field, _U32))

    def u64(self, field: str) -> int:
        """Read an unsigned 64-bit integer."""
        return int(self.number(field, _U64))

    def boolean(self, field: str) -> bool:
        """Read a byte that is 0 or 1."""
        value = self.number(field, _U8)
        if value > 1:
            raise malformed(self.file.path, field, "a byte 0 or 1", value)
        return bool(value)

    def octets(self, field: str, n_bytes: int) -> bytes:
        """Read bytes."""
        self.need(field, n_bytes)
        value = self.file.buffer[self.position : self.position + n_bytes]
        self.position += n_bytes
        return value

    def text(self, field: str, longest: int) -> str:
        """Read a UTF-8 string behind its 64-bit length."""
        length = self.u64(field)
        if length > longest:
            raise malformed(self.file.path, field, f"a text of at most {longest} bytes", f"{length} bytes")
        try:
            return self.octets(field, length).decode()
        except UnicodeDecodeError as error:
            raise malformed(self.file.path, field, "UTF-8", f"byte {error.object[error.start]:#04x}") from None

    def count(self, field: str, smallest: int, most: int | None = None) -> int:
        """Read a 64-bit number of items of at least `smallest` bytes each, which must fit into what is left."""
        count = self.u64(field)
        if count > self.left // smallest:
            raise malformed(
                self.file.path, field, f"items of {smallest} bytes or more in the {self.left} left", f"{count} items"
            )
        if most is not None and count > most:
            raise malformed(self.file.path, field, f"at most {most} items", f"{count} items")
        return count

    def skip_strings(self, field: str, count: int) -> None:
        """Pass over strings, each behind its 64-bit length.

        A vocabulary has some 10^5 of them, so the loop holds nothing but the sum: a length that leads out of the
        file makes the next read fail, or the last comparison.
        """
        position, length_at, buffer = self.position, _U64.unpack_from, self.file.buffer
        try:
            for _ in range(count):
                position += 8 + length_at(buffer, position)[0]
        except (struct.error, OverflowError):
            position = self.file.size + 1
        if position > self.file.size:
            raise malformed(self.file.path, field, f"{count} strings inside the file", "one that leads out of it")
        self.position = position


_U8 = struct.Struct("<B")
_U32 = struct.Struct("<I")
