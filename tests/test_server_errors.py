"""examples/server: every way in which a request can be wrong, and what its client gets to read.

Knows: statuses, fields and sentences. Refuses to know: right answers (test_server.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("httpx")
pytest.importorskip("starlette")

from server.schemas import Limits
from server.service import Service

from serving import STATES, Client, H, V, ask, encoded, served

BAD_NEXT: list[tuple[Any, str, str]] = [
    ([], "body", "expected a JSON object, got []"),
    ({}, "hidden", "expected numbers of shape (D,) = (16,), as lists or base64 of float32, got none"),
    ({"hidden": 3}, "hidden", "got 3"),
    ({"hidden": H[:-1]}, "hidden", "got 15 numbers"),
    ({"hidden": [H]}, "hidden", "got others"),
    ({"hidden": [*H[:-1], "1"]}, "hidden", "got others"),
    ({"hidden": [*H[:-1], 10**400]}, "hidden", "got others"),
    ({"hidden": [*H[:-1], 1e39]}, "hidden", "expected finite float32 numbers, got inf as number 15"),
    ({"hidden": "!!!!"}, "hidden", "expected base64 of little-endian float32"),
    ({"hidden": "AAAAAAA="}, "hidden", "got 5 bytes"),
    ({"hidden": encoded(STATES[0, 1:])}, "hidden", "got 15 numbers"),
    ({"hidden": H, "temperature": "1"}, "temperature", 'expected a number, got "1"'),
    ({"hidden": H, "temperature": True}, "temperature", "expected a number, got true"),
    ({"hidden": H, "temperature": 10**400}, "temperature", "beyond float64"),
    ({"hidden": H, "temperature": -1}, "temperature", "expected >= 0 and finite, got -1"),
    ({"hidden": H, "temperature": [0.5]}, "temperature", "expected a number"),
    ({"hidden": H, "top_k": 1.5}, "top_k", "expected an integer, got 1.5"),
    ({"hidden": H, "top_k": -2}, "top_k", "expected an integer >= -1, got -2"),
    ({"hidden": H, "top_p": 0}, "top_p", "expected > 0 and <= 1, got 0"),
    ({"hidden": H, "min_p": 1.5}, "min_p", "expected >= 0 and <= 1, got 1.5"),
    ({"hidden": H, "typical_p": 2}, "typical_p", "expected > 0 and <= 1, got 2"),
    ({"hidden": H, "seed": -1}, "seed", "expected an integer from 0 to"),
    ({"hidden": H, "position": 2**64}, "position", "expected an integer from 0 to"),
    ({"hidden": H, "repetition_penalty": 0}, "repetition_penalty", "expected > 0 and finite, got 0"),
    ({"hidden": H, "presence_penalty": 0.5}, "output", "which presence_penalty counts"),
    ({"hidden": H, "frequency_penalty": 0.5}, "output", "which frequency_penalty counts"),
    ({"hidden": H, "history": [1, V]}, "history", f"expected an id from 0 to V - 1 = {V - 1}, got {V} at position 1"),
    ({"hidden": H, "history": [0.5]}, "history", "expected a list of token ids"),
    ({"hidden": H, "history": 5}, "history", "expected a list of token ids"),
    ({"hidden": H, "history": [0] * 101}, "history", "expected at most 100 ids, got 101"),
    ({"hidden": H, "output": [-100]}, "output", "got -100 at position 0"),
    ({"hidden": H, "logit_bias": {"300": 1}}, "logit_bias", 'got "300"'),
    ({"hidden": H, "logit_bias": {"-1": 1}}, "logit_bias", 'got "-1"'),
    ({"hidden": H, "logit_bias": {"1": "x"}}, "logit_bias", "expected a number"),
    ({"hidden": H, "logit_bias": [1]}, "logit_bias", "expected an object"),
    ({"hidden": H, "allowed_ids": []}, "allowed_ids", "expected at least one id, got none"),
    ({"hidden": H, "allowed_ids": [True]}, "allowed_ids", "expected a list of token ids, got [true]"),
    ({"hidden": H, "allowed_ids": [V]}, "allowed_ids", f"got {V} at position 0"),
    ({"hidden": H, "logprobs": 1}, "logprobs", "expected true or false, got 1"),
    ({"hidden": H, "logprobs": True, "top_logprobs": 21}, "top_logprobs", "expected an integer from 0 to 20, got 21"),
    ({"hidden": H, "top_logprobs": 2}, "top_logprobs", "expected logprobs to be true"),
    ({"hidden": H, "temprature": 2}, "temprature", "expected no such field, got 2"),
]
BAD_SCORE: list[tuple[Any, str, str]] = [
    ({"hidden": [H]}, "ids", "expected one id for each of the 1 states of hidden, got none"),
    ({"hidden": [H], "ids": [1, 2]}, "ids", "got 2"),
    ({"hidden": [H], "ids": [V]}, "ids", f"got {V} at position 0"),
    ({"hidden": [H], "ids": [-1]}, "ids", "got -1 at position 0"),
    ({"hidden": [H, H[1:]], "ids": [1, 2]}, "hidden", "got a row of 15"),
    ({"hidden": [H, 3], "ids": [1, 2]}, "hidden", "got 3"),
    ({"hidden": [], "ids": []}, "hidden", "got 0 numbers"),
    ({"hidden": "AAAAAA==", "ids": [1]}, "hidden", "got 1 numbers"),
    ({"hidden": [H] * 33, "ids": [1] * 32}, "hidden", "expected at most T = 32 states, got 33"),
    ({"hidden": [H], "ids": [1], "shift": 2}, "shift", "got 2"),
    ({"hidden": [H], "ids": [1], "logprobs": False}, "logprobs", "got false"),
    ({"hidden": [H], "ids": [1], "temperature": 1}, "temperature", "expected no such field, got 1"),
]


def test_every_bad_field_is_named() -> None:
    """A 400 with the field and a sentence of the library's form, and never a step."""
    wrong = []

    async def work(client: Client, service: Service) -> None:
        for path, cases in (("/v1/next", BAD_NEXT), ("/v1/score", BAD_SCORE)):
            for body, field, message in cases:
                response = await client.post(path, content=json.dumps(body))
                error = response.json()["error"]
                told = (response.status_code, error["type"], error["param"])
                if told != (400, "invalid_request_error", field) or message not in error["message"]:
                    wrong.append((body, error))

    service = served(work, limits=Limits(states=32, ids=100))
    assert wrong == []
    assert not any(name.startswith("step") for name in service.counts)


@pytest.mark.parametrize("body", [b"", b"{", b'{"hidden": NaN}', b"\xff", b"[" * 100_000, b'{"seed": -Infinity}'])
def test_no_json(body: bytes) -> None:
    response = ask("/v1/next", body)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_json"


def test_other_endpoints_and_methods() -> None:
    async def work(client: Client, service: Service) -> None:
        for response, status in ((await client.get("/v1/next"), 405), (await client.post("/v2/next"), 404)):
            assert response.status_code == status
            assert response.json()["error"]["type"] == "invalid_request_error"

    served(work)


def test_a_body_that_is_too_long_is_not_read() -> None:
    read: list[int] = []

    async def chunks() -> AsyncIterator[bytes]:
        for i in range(100):
            read.append(i)
            yield b" " * 100

    async def work(client: Client, service: Service) -> None:
        declared = await client.post("/v1/next", content=chunks(), headers={"content-length": "1001"})
        assert (declared.status_code, declared.json()["error"]["code"]) == (413, "too_large")
        assert read == []
        assert (await client.post("/v1/next", content=chunks())).status_code == 413

    served(work, limits=Limits(body_bytes=1000))
    assert len(read) <= 12


def test_a_body_that_does_not_come() -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(5)

    async def work(client: Client, service: Service) -> None:
        response = await client.post("/v1/next", content=slow())
        assert (response.status_code, response.json()["error"]["code"]) == (408, "timeout")

    served(work, limits=Limits(seconds=0.05))


def out_of_memory(*_: Any, **__: Any) -> Any:
    raise MemoryError("no room")


def short_of_answers(*_: Any, **__: Any) -> list[Any]:
    return []


@pytest.mark.parametrize("broken", [out_of_memory, short_of_answers])
def test_a_failing_step_is_no_end(monkeypatch: pytest.MonkeyPatch, broken: Any) -> None:

    async def work(client: Client, service: Service) -> None:
        assert (await client.get("/health")).json()["status"] == "ready"
        response = await client.post("/v1/next", json={"hidden": H})
        assert (response.status_code, response.json()["error"]["type"]) == (500, "server_error")
        score = await client.post("/v1/score", json={"hidden": [H, H], "ids": [1, 2]})
        assert score.status_code == 200

    monkeypatch.setattr("server.service.draw", broken)
    served(work)
