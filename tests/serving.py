"""examples/server in the process of the test: a service, clients of it, and a gate before its steps.

Knows: how to start and end one. Refuses to know: what it promises (test_server.py, test_server_errors.py).
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from server import steps
from server.app import create_app
from server.service import Service

from lmhead_native import LMHead
from lmhead_native.cli.vocabulary import Vocabulary

V, D = 300, 16
RNG = np.random.default_rng(17)
HEAD = LMHead(RNG.standard_normal((V, D)).astype(np.float32))
STATES = RNG.standard_normal((64, D)).astype(np.float32)
H = STATES[0].tolist()
TEXTS = Vocabulary([f"<t{i}>" for i in range(V)], byte_level=False)
# Finite, but its logits are not: only the step can find out.
POISON = np.full(D, 3e38, np.float32).tolist()

Client = httpx.AsyncClient
Answer = dict[str, Any]


def client_of(service: Service) -> Client:
    """Make a client whose requests are calls of the application."""
    transport = httpx.ASGITransport(create_app(service), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://server")


@asynccontextmanager
async def started(service: Service) -> AsyncIterator[Service]:
    """Start a service as its application's lifespan does, and end it so."""
    app = create_app(service)
    async with app.router.lifespan_context(app):
        yield service


def served(work: Callable[[Client, Service], Awaitable[None]], **options: Any) -> Service:
    """Run some work of a client's against a service made for it."""
    service = Service(HEAD, **options)

    async def run() -> None:
        async with asyncio.timeout(20), started(service), client_of(service) as client:
            await work(client, service)

    asyncio.run(run())
    return service


def ask(path: str, body: Any, **options: Any) -> httpx.Response:
    """Ask one thing and return the response."""
    responses = []

    async def work(client: Client, _: Service) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        responses.append(await client.post(path, content=raw))

    served(work, **options)
    return responses[0]


def encoded(states: NDArray[np.float32]) -> str:
    return base64.b64encode(states.astype("<f4").tobytes()).decode()


class Gate:
    """Holds steps back until it is opened, and notes how many jobs each had."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: str = "draw") -> None:
        self.opened = threading.Event()
        self.entered = threading.Event()
        self.sizes: list[int] = []
        inner = getattr(steps, step)

        def gated(head: LMHead, jobs: Sequence[Any], threads: int | None = None) -> Any:
            self.sizes.append(len(jobs))
            self.entered.set()
            assert self.opened.wait(20)
            return inner(head, jobs, threads)

        monkeypatch.setattr(f"server.service.{step}", gated)


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.001)
