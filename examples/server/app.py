"""The endpoints: bodies in, JSON out.

Knows: HTTP, sizes and times of bodies. Refuses to know: what is in a body, and how it is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from .errors import ApiError
from .service import Answer, Service


def create_app(service: Service) -> Starlette:
    """Make the ASGI application; its lifespan starts the service, and at the end finishes what is queued."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        service.start()
        try:
            yield
        finally:
            await service.close()

    async def health(_: Request) -> Response:
        return JSONResponse(service.health(), 503 if service.draining else 200)

    async def metrics(_: Request) -> Response:
        return PlainTextResponse(service.metrics())

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # what the router raises
        return ApiError(error.status_code, error.detail, code="no_such_endpoint").response()

    async def failed(_: Request, error: Exception) -> Response:
        return ApiError(500, f"the server failed: {type(error).__name__}", code="internal_error").response()

    return Starlette(
        routes=[
            Route("/v1/next", endpoint(service, "next", service.next), methods=["POST"]),
            Route("/v1/score", endpoint(service, "score", service.score), methods=["POST"]),
            Route("/health", health),
            Route("/metrics", metrics),
        ],
        exception_handlers={HTTPException: refused, Exception: failed},
        lifespan=lifespan,
    )


def endpoint(
    service: Service, name: str, answer: Callable[[object], Awaitable[Answer]]
) -> Callable[[Request], Awaitable[Response]]:
    """Serve one kind of request: read, answer, count."""

    async def serve(request: Request) -> Response:
        status = 500
        try:
            body = parsed(await read_body(request, service.limits.body_bytes, service.limits.seconds))
            response: Response = JSONResponse(await answer(body))
            status = 200
        except ApiError as error:
            response, status = error.response(), error.status
        except ClientDisconnect:
            response, status = Response(status_code=499), 499  # which nobody reads
        finally:
            service.counts[f'requests_total{{endpoint="{name}",status="{status}"}}'] += 1
        return response

    return serve


async def read_body(request: Request, most: int, seconds: float) -> bytes:
    """Read a body without holding more of it than is allowed, and without waiting for ever.

    Raises
    ------
    ApiError
        It is longer than `most`, or takes longer than `seconds`.
    """
    too_long = ApiError(413, f"body: expected at most {most} bytes, got more", code="too_large", field="body")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > most:
        raise too_long
    chunks, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                chunks.append(chunk)
                size += len(chunk)
                if size > most:
                    raise too_long
    except TimeoutError as error:
        raise ApiError(408, f"body: expected within {seconds} s, got a part of it", code="timeout") from error
    return b"".join(chunks)


def parsed(body: bytes) -> Any:
    """Parse JSON as its standard has it: no NaN, no Infinity.

    Raises
    ------
    ApiError
        It is none.
    """
    try:
        return json.loads(body, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"body: expected JSON, got {error}", code="invalid_json", field="body") from error


def no_constant(name: str) -> NoReturn:
    """Refuse the constants that Python's parser knows beyond the standard."""
    raise ValueError(f"{name}, which is none")
