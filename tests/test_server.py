"""examples/server: endpoints, errors, batching to the bit, shutdown; all in one process but for the last test.

Knows: what clients are promised. Refuses to know: how much load a server bears (server.load).
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lmhead_native import LMHead
from lmhead_native.cli.vocabulary import Vocabulary
from test_lm_head_files import gguf_file

httpx = pytest.importorskip("httpx")
pytest.importorskip("starlette")

from server import load_cases, steps  # noqa: E402
from server.app import create_app  # noqa: E402
from server.schemas import Limits  # noqa: E402
from server.service import Service  # noqa: E402

V, D = 300, 16
RNG = np.random.default_rng(17)
HEAD = LMHead(RNG.standard_normal((V, D)).astype(np.float32))
STATES = RNG.standard_normal((64, D)).astype(np.float32)
TEXTS = Vocabulary([f"<t{i}>" for i in range(V)], byte_level=False)
# Finite, but its logits are not: only the step can find out.
POISON = np.full(D, 3e38, np.float32).tolist()

URL = "http://server"

Client = Any
Answer = dict[str, Any]


@asynccontextmanager
async def serving(service: Service) -> AsyncIterator[Client]:
    app = create_app(service)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url=URL) as client,
    ):
        yield client


def served(work: Callable[[Client], Awaitable[None]], **options: Any) -> Service:
    """Run some work of a client's against a service made for it."""
    service = Service(HEAD, **options)

    async def run() -> None:
        async with asyncio.timeout(20), serving(service) as client:
            await work(client)

    asyncio.run(run())
    return service


def ask(path: str, body: Any, **options: Any) -> Any:
    """Ask one thing and return the response."""
    responses = []

    async def work(client: Client) -> None:
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


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(monkeypatch)
    yield made
    made.opened.set()


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.001)


def test_next_says_what_the_library_says() -> None:
    options = {"temperature": 0.8, "top_p": 0.9, "seed": 2**64 - 1, "position": 7}
    body = options | {"hidden": STATES[0].tolist(), "logprobs": True, "top_logprobs": 3, "model": "x", "user": None}
    response = ask("/v1/next", body, vocabulary=TEXTS, name="toy")
    drawn = HEAD.sample(STATES[0], top_n=3, **options)
    assert drawn.top_ids is not None
    assert drawn.top_logprobs is not None
    top = zip(drawn.top_ids.tolist(), drawn.top_logprobs.tolist(), strict=True)
    assert response.status_code == 200
    assert response.json() == {
        "object": "next_token",
        "model": "toy",
        "token": int(drawn.token),
        "text": f"<t{drawn.token}>",
        "logprob": float(np.asarray(drawn.logprob)),
        "top_logprobs": [{"token": i, "logprob": p, "text": f"<t{i}>"} for i, p in top],
        "seed": 2**64 - 1,
        "position": 7,
        "usage": {"prompt_tokens": 0, "completion_tokens": 1, "total_tokens": 1},
    }


def test_a_seed_that_was_not_given_is_told() -> None:
    first, second = (ask("/v1/next", {"hidden": encoded(STATES[1])}).json() for _ in range(2))
    assert first["seed"] != second["seed"]
    assert first["token"] == int(HEAD.sample(STATES[1], seed=first["seed"]).token)
    assert "logprob" not in first
    assert "text" not in first


@pytest.mark.parametrize("score_rows", [4, 256])
def test_score_says_what_the_library_says(score_rows: int) -> None:
    """Also when the text is cut into pieces."""
    ids = RNG.integers(0, V, 11)
    ids[1:3], ids[4] = HEAD.topk(STATES[:2], 1).indices[:, 0], -100
    body = {"hidden": encoded(STATES[:11]), "ids": ids.tolist(), "top_logprobs": 2}
    answer = ask("/v1/score", body, vocabulary=TEXTS, score_rows=score_rows).json()
    found = HEAD.scores(STATES[:11], ids, shift=1, top_n=2)

    def column(values: Any) -> list[Any]:
        return [None, *(None if at == 3 else value for at, value in enumerate(values.tolist()))]

    assert answer["ids"] == ids.tolist()
    assert answer["tokens"][3:5] == [f"<t{ids[3]}>", None]
    assert answer["token_logprobs"] == column(found.logprob)
    assert answer["ranks"] == column(found.rank)
    assert answer["entropies"] == column(found.entropy)
    assert answer["argmax"] == column(found.argmax)
    lists = [None if one is None else [alternative["token"] for alternative in one] for one in answer["top_logprobs"]]
    assert lists == column(found.top_ids)
    total = math.fsum(found.logprob.tolist())
    assert answer["totals"] == {
        "tokens": 9,
        "logprob": total,
        "perplexity": math.exp(-total / 9),
        "greedy_matches": int((found.rank == 1).sum()),
    }
    assert answer["usage"]["total_tokens"] == 11


def test_score_of_nothing_and_of_targets() -> None:
    """One id has nothing before it; with shift 0 ids are targets."""
    totals = ask("/v1/score", {"hidden": [STATES[0].tolist()], "ids": [5]}).json()["totals"]
    assert totals == {"tokens": 0, "logprob": 0.0, "perplexity": None, "greedy_matches": 0}
    answer = ask("/v1/score", {"hidden": [STATES[0].tolist()], "ids": [5], "shift": 0}).json()
    assert answer["token_logprobs"] == HEAD.scores(STATES[:1], np.array([5])).logprob.tolist()


OPTIONS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.7, "top_k": 5},
    {"top_k": 2**70},
    {"top_p": 0.6, "min_p": 0.01},
    {"typical_p": 0.5, "temperature": 1.5},
    {"logit_bias": {3: 4.5, 299: -2.0}, "temperature": 0.5},
    {"repetition_penalty": 1.3, "history": [1, 2, 3, 3]},
    {"presence_penalty": 0.5, "frequency_penalty": 0.25, "output": [7, 7, 9]},
    {"presence_penalty": 1.0, "output": []},
    {"allowed_ids": [4, 250, 17], "temperature": 2.0},
]


def test_a_batch_gives_the_bits_of_single_calls(gate: Gate) -> None:
    """Twenty different requests, of which nineteen go into one step."""
    requests = [OPTIONS[i % len(OPTIONS)] | {"seed": 1000 + i, "position": i} for i in range(20)]
    tops = [i % 7 for i in range(20)]  # more than are allowed, too
    answers: list[Answer] = []

    async def work(client: Client) -> None:
        async def one(i: int) -> Answer:
            body = requests[i] | {"hidden": encoded(STATES[i]), "logprobs": True, "top_logprobs": tops[i]}
            response = await client.post("/v1/next", json=body)
            answer: Answer = response.json()
            return answer

        first = asyncio.create_task(one(0))
        await until(gate.entered.is_set)
        others = [asyncio.create_task(one(i)) for i in range(1, 20)]
        await until(lambda: service_of(client).waiting() == 20)
        assert (await client.get("/health")).json()["waiting"] == 20  # the loop goes on while a step runs
        gate.opened.set()
        answers.extend(await asyncio.gather(first, *others))

    served(work)
    assert gate.sizes == [1, 19]
    for i, answer in enumerate(answers):
        drawn = HEAD.sample(STATES[i], top_n=tops[i], **requests[i])
        top = [] if drawn.top_ids is None else [t for t in drawn.top_ids.tolist() if t != -1]
        assert (answer["token"], answer["logprob"]) == (int(drawn.token), float(np.asarray(drawn.logprob))), requests[i]
        assert [one["token"] for one in answer["top_logprobs"]] == top, requests[i]


def service_of(client: Client) -> Service:
    service: Service = client._transport.app.state.service
    return service


def test_texts_of_many_clients_give_the_bits_of_single_calls() -> None:
    """In steps of so many rows, whatever each wants beside."""
    lengths = [2 + i % 5 for i in range(12)]
    ids = [RNG.integers(0, V, n) for n in lengths]
    answers: list[Answer] = []

    async def work(client: Client) -> None:
        bodies = [
            {"hidden": encoded(STATES[i : i + n]), "ids": ids[i].tolist(), "top_logprobs": i % 3}
            for i, n in enumerate(lengths)
        ]
        responses = await asyncio.gather(*(client.post("/v1/score", json=body) for body in bodies))
        answers.extend(response.json() for response in responses)

    service = served(work, window=0.1, score_rows=10)
    assert service.counts['step_rows_total{step="score"}'] == sum(lengths) - 12 == 33
    assert service.counts['steps_total{step="score"}'] == 4
    for i, answer in enumerate(answers):
        found = HEAD.scores(STATES[i : i + lengths[i]], ids[i], shift=1)
        assert answer["token_logprobs"][1:] == found.logprob.tolist()
        assert answer["ranks"][1:] == found.rank.tolist()
        assert [len(one) for one in answer.get("top_logprobs", [None])[1:]] == [i % 3] * (lengths[i] - 1) * (i % 3 > 0)


def test_a_step_waits_for_others_until_it_is_full() -> None:
    async def work(client: Client) -> None:
        tasks = []
        for i in range(4):
            tasks.append(asyncio.create_task(client.post("/v1/next", json={"hidden": H, "seed": i})))
            await asyncio.sleep(0.01)
        assert [(await task).status_code for task in tasks] == [200] * 4

    service = served(work, window=60.0, max_batch=2)
    assert service.counts['steps_total{step="next"}'] == 2


def test_a_poisoned_request_fails_alone() -> None:
    statuses: list[int] = []
    bodies: list[Answer] = []

    async def work(client: Client) -> None:
        states = [STATES[i].tolist() for i in range(15)]
        states[6] = POISON
        posts = [client.post("/v1/next", json={"hidden": h, "seed": i}) for i, h in enumerate(states)]
        for response in await asyncio.gather(*posts):
            statuses.append(response.status_code)
            bodies.append(response.json())

    service = served(work, window=0.1)
    assert statuses == [422 if i == 6 else 200 for i in range(15)]
    assert bodies[6]["error"]["param"] == "hidden"
    assert "finite logits to draw from" in bodies[6]["error"]["message"]
    for i in (5, 7):
        assert bodies[i]["token"] == int(HEAD.sample(STATES[i], seed=i).token)
    assert service.counts['steps_total{step="next"}'] == 1
    assert service.counts['step_calls_total{step="next"}'] <= 9  # by halves, not one by one


def test_a_text_without_finite_logits() -> None:
    response = ask("/v1/score", {"hidden": [STATES[0].tolist(), POISON, STATES[0].tolist()], "ids": [1, 2, 3]})
    assert response.status_code == 422
    assert response.json()["error"]["param"] == "hidden"


H = STATES[0].tolist()
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

    async def work(client: Client) -> None:
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
    async def work(client: Client) -> None:
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

    async def work(client: Client) -> None:
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

    async def work(client: Client) -> None:
        response = await client.post("/v1/next", content=slow())
        assert (response.status_code, response.json()["error"]["code"]) == (408, "timeout")

    served(work, limits=Limits(seconds=0.05))


def test_a_full_queue_and_a_late_answer(gate: Gate) -> None:
    """One runs, two wait, the next is sent away; the two give up, and are then not worth a step."""

    async def work(client: Client) -> None:
        async def one() -> Any:
            return await client.post("/v1/next", json={"hidden": H, "seed": 1})

        tasks = [asyncio.create_task(one())]
        await until(gate.entered.is_set)
        tasks += [asyncio.create_task(one()) for _ in range(2)]
        await until(lambda: service_of(client).waiting() == 3)
        refused = await one()
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["error"]["code"] == "queue_full"
        assert {(await task).status_code for task in tasks} == {504}
        gate.opened.set()
        await until(lambda: service_of(client).waiting() == 0)
        assert (await one()).status_code == 200

    served(work, limits=Limits(queued=2, seconds=0.2), window=0.0)
    assert gate.sizes == [1, 1]


def test_a_failing_step_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise MemoryError("no room")

    async def work(client: Client) -> None:
        assert (await client.get("/health")).json()["status"] == "ready"
        response = await client.post("/v1/next", json={"hidden": H})
        assert (response.status_code, response.json()["error"]["type"]) == (500, "server_error")
        score = await client.post("/v1/score", json={"hidden": [H, H], "ids": [1, 2]})
        assert score.status_code == 200

    monkeypatch.setattr("server.service.draw", broken)
    served(work)


def test_shutdown_finishes_what_is_queued(gate: Gate) -> None:
    async def run() -> None:
        service = Service(HEAD, window=0.0, max_batch=3)
        app = create_app(service)
        transport = httpx.ASGITransport(app)
        async with asyncio.timeout(20), httpx.AsyncClient(transport=transport, base_url=URL) as client:
            ended = asyncio.Event()

            async def live() -> None:
                async with app.router.lifespan_context(app):
                    await ended.wait()

            life = asyncio.create_task(live())
            await asyncio.sleep(0)
            tasks = [
                asyncio.create_task(client.post("/v1/next", json={"hidden": encoded(h), "seed": 5})) for h in STATES[:8]
            ]
            await until(lambda: service.waiting() == 8 and gate.entered.is_set())
            ended.set()
            await until(lambda: service.draining)
            health = await client.get("/health")
            assert (health.status_code, health.json()["status"]) == (503, "draining")
            refused = await client.post("/v1/next", json={"hidden": H})
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
            assert not life.done()
            gate.opened.set()
            tokens = [(await task).json()["token"] for task in tasks]
            assert tokens == [int(HEAD.sample(h, seed=5).token) for h in STATES[:8]]
            await life
            assert (await client.get("/metrics")).text.endswith("waiting 0\n")

    asyncio.run(run())


def test_the_cases_of_the_load_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """All kinds of them at once are answered to the bit; and another's answer would be found out."""
    monkeypatch.setattr(load_cases, "CASES", 96)
    cases = load_cases.cases_for(HEAD, 0.2)
    assert {case.kind for case in cases} == {"next", "score"}
    answers: list[Answer] = []

    async def work(client: Client) -> None:
        responses = await asyncio.gather(*(client.post(case.path, content=case.body) for case in cases))
        answers.extend(response.json() for response in responses)

    served(work)
    assert [case.difference(answer) for case, answer in zip(cases, answers, strict=True)] == [None] * len(cases)
    assert all(case.difference(answer) for case, answer in zip(cases, answers[1:], strict=False))


def test_the_end_waits_for_answers_and_for_who_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    uvicorn = pytest.importorskip("uvicorn")
    from server.__main__ import Server

    service = Service(HEAD)
    waiting = [1]
    monkeypatch.setattr(service, "waiting", lambda: waiting[0])
    server = Server(uvicorn.Config(create_app(service)), service, 0.0)
    assert not asyncio.run(server.on_tick(1))
    server.handle_exit(signal.SIGTERM, None)
    assert service.draining
    assert not asyncio.run(server.on_tick(1))
    waiting[0] = 0
    assert asyncio.run(server.on_tick(1))
    patient = Server(uvicorn.Config(create_app(service)), service, 3600.0)
    patient.handle_exit(signal.SIGTERM, None)
    assert not asyncio.run(patient.on_tick(1))
    patient.handle_exit(signal.SIGTERM, None)
    assert asyncio.run(patient.on_tick(1))


def test_the_server_as_a_process(tmp_path: Path) -> None:
    """It says where it is, answers over a socket, and at SIGTERM says so, answers what waits, and ends well."""
    pytest.importorskip("uvicorn")
    from server.load_client import Connection, free_port

    port = free_port()
    command = [sys.executable, "-m", "server", "--model", str(gguf_file(tmp_path, "F32")), "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--window-ms", "300", "--drain-seconds", "0"],
        cwd=Path(__file__).parent.parent / "examples",
        stdout=subprocess.PIPE,
        text=True,
    )

    async def talk() -> None:
        body = json.dumps({"hidden": [0.0] * 64}).encode()
        connections = []
        while len(connections) < 2:
            try:
                connections.append(await Connection.open(port))
            except OSError:  # it says where it is just before it listens
                await asyncio.sleep(0.01)
        waiting = asyncio.create_task(connections[0].post("/v1/next", body))
        while json.loads((await connections[1].get("/health"))[1])["waiting"] == 0:
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        while (health := await connections[1].get("/health"))[0] == 200:
            await asyncio.sleep(0.01)
        assert (health[0], json.loads(health[1])["status"]) == (503, "draining")
        assert (await connections[1].post("/v1/next", body))[0] == 503
        status, answer = await waiting
        assert (status, json.loads(answer)["position"]) == (200, 0)
        for connection in connections:
            connection.close()

    try:
        assert process.stdout is not None
        assert f"127.0.0.1:{port}" in process.stdout.readline()
        asyncio.run(asyncio.wait_for(talk(), 60))
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
