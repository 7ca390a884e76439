"""examples/server: answers to the bit, batching, shutdown; all in one process but for the last test.

Knows: what clients are promised. Refuses to know: errors (test_server_errors.py), how much load is borne (server.load).
"""

from __future__ import annotations

import asyncio
import json
import math
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test_lm_head_files import gguf_file

pytest.importorskip("httpx")
pytest.importorskip("starlette")

from server import load_cases
from server.app import create_app
from server.schemas import Limits
from server.service import Service

from serving import (
    HEAD,
    POISON,
    RNG,
    STATES,
    TEXTS,
    Answer,
    Client,
    Gate,
    H,
    V,
    ask,
    client_of,
    encoded,
    served,
    started,
    until,
)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(monkeypatch)
    yield made
    made.opened.set()


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

    async def work(client: Client, service: Service) -> None:
        async def one(i: int) -> Answer:
            body = requests[i] | {"hidden": encoded(STATES[i]), "logprobs": True, "top_logprobs": tops[i]}
            response = await client.post("/v1/next", json=body)
            answer: Answer = response.json()
            return answer

        first = asyncio.create_task(one(0))
        await until(gate.entered.is_set)
        others = [asyncio.create_task(one(i)) for i in range(1, 20)]
        await until(lambda: service.waiting() == 20)
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


def test_texts_of_many_clients_give_the_bits_of_single_calls() -> None:
    """In steps of so many rows, whatever each wants beside."""
    lengths = [2 + i % 5 for i in range(12)]
    ids = [RNG.integers(0, V, n) for n in lengths]
    answers: list[Answer] = []

    async def work(client: Client, service: Service) -> None:
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
    async def work(client: Client, service: Service) -> None:
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

    async def work(client: Client, service: Service) -> None:
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


def test_a_state_is_named_by_its_place_in_the_text() -> None:
    """Also where the text goes into several steps."""
    hidden = [STATES[0].tolist()] * 9 + [POISON, STATES[0].tolist()]
    response = ask("/v1/score", {"hidden": hidden, "ids": [1] * 11}, score_rows=4)
    assert response.status_code == 422
    assert response.json()["error"]["message"].endswith("in row 9")


def test_a_full_queue_and_a_late_answer(gate: Gate) -> None:
    """One runs, two wait, the next is sent away; the two give up, and are then not worth a step."""

    async def work(client: Client, service: Service) -> None:
        async def one() -> Any:
            return await client.post("/v1/next", json={"hidden": H, "seed": 1})

        tasks = [asyncio.create_task(one())]
        await until(gate.entered.is_set)
        tasks += [asyncio.create_task(one()) for _ in range(2)]
        await until(lambda: service.waiting() == 3)
        refused = await one()
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["error"]["code"] == "queue_full"
        assert {(await task).status_code for task in tasks} == {504}
        gate.opened.set()
        await until(lambda: service.waiting() == 0)
        assert (await one()).status_code == 200

    served(work, limits=Limits(queued=2, seconds=0.2), window=0.0)
    assert gate.sizes == [1, 1]


def test_shutdown_finishes_what_is_queued(gate: Gate) -> None:
    async def run() -> None:
        service = Service(HEAD, window=0.0, max_batch=3)
        async with asyncio.timeout(20), client_of(service) as client:
            ended = asyncio.Event()

            async def live() -> None:
                async with started(service):
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

    async def work(client: Client, service: Service) -> None:
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
        connections: list[Connection] = []
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
