"""Cost of counting in a small web server: a part of `artimon bench increment`.

The server is FastAPI under uvicorn in a separate process and answers a small JSON document; the cost of one request is
its processor time over many requests on one connection. The noise of a server exceeds the cost of counting, so that
cost is measured apart: a trivial application is called with and without the middleware of
`bookkeeper.integrations.asgi` in turn.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from time import process_time
from types import SimpleNamespace
from typing import Any

from benchmarks.common import Line, interleaved, line
from bookkeeper.integrations.asgi import Middleware

REQUESTS = 3_000
PATH = "/items/17"
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]


def application() -> Any:
    """Return an application with two routes; `/cpu` answers the processor time of the process in seconds."""
    from fastapi import FastAPI

    app = FastAPI()

    @app.get("/items/{number}")
    async def item(number: int) -> dict[str, object]:
        return {"number": number, "name": "lamp", "tags": ["a", "b"], "price": 12.5}

    @app.get("/cpu")
    async def cpu() -> float:
        return process_time()

    return app


def measure(rounds: int, requests: int = REQUESTS) -> list[Line]:
    """Measure the percentage of a request's processor time that the middleware adds."""
    whole = served(requests)
    plain, counted = interleaved(rounds, called(answering, 2_000), called(Middleware(answering), 2_000))
    added = max(counted - plain, 0.0)
    return [
        line("increment.web", 100.0 * added / whole, "% of a request"),
        line("increment.web@added", added * 1e6, "us"),
        line("increment.web@request", whole * 1e6, "us"),
    ]


ROUTE = SimpleNamespace(path="/items/{number}", path_format="/items/{number}", endpoint=None)


async def answering(scope: Scope, receive: Receive, send: Send) -> None:
    """Set the route in the scope, as FastAPI does, and answer."""
    scope["route"] = ROUTE
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


def called(app: Any, times: int) -> Callable[[], float]:
    """Return a function that measures the seconds of one request without a network."""
    loop = asyncio.new_event_loop()

    async def receive() -> Scope:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_: Scope) -> None:
        pass

    async def many() -> None:
        for _ in range(times):
            await app(scope(), receive, send)

    def run() -> float:
        begun = process_time()
        loop.run_until_complete(many())
        return (process_time() - begun) / times

    return run


def scope() -> Scope:
    """Return a scope as uvicorn passes it."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1"), (b"accept-encoding", b"identity")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
        "state": {},
    }


def served(requests: int) -> float:
    """Measure the processor seconds of one request in a real server."""
    command = [sys.executable, "-m", "benchmarks.counting.web"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            connection = http.client.HTTPConnection("127.0.0.1", int(server.stdout.readline()), timeout=30)
            for _ in range(100):
                _get(connection, PATH)
            before = float(_get(connection, "/cpu"))
            for _ in range(requests):
                _get(connection, PATH)
            return (float(_get(connection, "/cpu")) - before) / requests
        finally:
            server.terminate()


def _get(connection: http.client.HTTPConnection, path: str) -> str:
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read().decode()
    if answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status} {text}")
    return str(json.loads(text)) if path == "/cpu" else text


def serve() -> None:
    """Run the server: print its port, and end when terminated or when the parent process is gone."""
    import socket
    import threading

    import uvicorn

    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # else asyncio sets no TCP_NODELAY
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    server = uvicorn.Server(uvicorn.Config(application(), log_level="error", access_log=False))

    def follow() -> None:
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=follow, daemon=True).start()
    sys.stdout.write(f"{sock.getsockname()[1]}\n")
    sys.stdout.flush()
    server.run(sockets=[sock])


if __name__ == "__main__":
    serve()
