"""Asks applications without a server: one request, its status."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Iterable
from typing import Any

from bookkeeper import Bookkeeper
from bookkeeper.testing import snapshot

Asgi = Callable[..., Any]


async def asked(app: Asgi, path: str, method: str = "GET", kind: str = "http", root: str = "") -> list[dict[str, Any]]:
    """The messages that an ASGI application sends for one request."""
    sent: list[dict[str, Any]] = []
    scope = {
        "type": kind,
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http" if kind == "http" else "ws",
        "path": root + path,
        "raw_path": (root + path).encode(),
        "root_path": root,
        "query_string": b"",
        "headers": [(b"host", b"test")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "subprotocols": [],
    }
    first = {"type": "http.request", "body": b""} if kind == "http" else {"type": "websocket.connect"}
    coming = iter([first])

    async def receive() -> dict[str, Any]:
        message = next(coming, None)
        if message is None:
            await asyncio.Event().wait()  # a client that stays
        return message or {}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


def ask_asgi(app: Asgi, path: str, method: str = "GET", kind: str = "http", root: str = "") -> int:
    """The status of the answer of an ASGI application; 0 if there was none."""
    sent = asyncio.run(asked(app, path, method, kind, root))
    return next((message["status"] for message in sent if "status" in message), 0)


def ask_wsgi(app: Callable[..., Iterable[bytes]], path: str, method: str = "GET", **environ: Any) -> tuple[str, bytes]:
    """Status line and body of a WSGI application's answer, which is closed as a server would."""
    told: list[str] = []

    def start(status: str, _headers: list[tuple[str, str]], *_more: Any) -> Callable[[bytes], None]:
        told.append(status)
        return lambda _data: None

    environment = {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "SERVER_NAME": "test",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        **environ,
    }
    answer = app(environment, start)
    try:
        body = b"".join(answer)
    finally:
        close = getattr(answer, "close", None)
        if close is not None:
            close()
    return told[-1], body


def counted(book: Bookkeeper) -> dict[tuple[str, str, str], object]:
    """(method, route, status) -> requests."""
    return {
        (labels["method"], labels["route"], labels["status"]): value
        for labels, value in snapshot(book).series("http.requests")
    }


def timed(book: Bookkeeper) -> dict[tuple[str, str], object]:
    """(method, route) -> how many durations were observed."""
    return {
        (labels["method"], labels["route"]): value
        for labels, value in snapshot(book).series("http.request.seconds.count")
    }
