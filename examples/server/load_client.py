"""HTTP/1.1 over one kept connection, as little of it as a load test needs: the clients share the server's cores.

Knows: requests with a body, responses with a length. Refuses to know: what is in them; other servers' responses.
"""

from __future__ import annotations

import asyncio
import re
import socket
from typing import Self

LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Connection:
    """A connection to a server on this machine."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Self:
        """Connect to 127.0.0.1."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Send JSON, and return status and body."""
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        self._writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        return await self._response()

    async def get(self, path: str) -> tuple[int, bytes]:
        """Return status and body."""
        self._writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        return await self._response()

    async def _response(self) -> tuple[int, bytes]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = LENGTH.search(head)
        if length is None:
            raise EOFError(f"expected a response with a length, got {head!r}")
        return int(head.split(b" ", 2)[1]), await self._reader.readexactly(int(length[1]))

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


def free_port() -> int:
    """Return a port that nobody listened on just now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
