"""Requests are counted by the application's own routes, whatever clients invent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fastapi import FastAPI, HTTPException
from starlette.types import Message

from artimon.api.request_counters import CountingMiddleware, RequestCounters


def application(counts: RequestCounters) -> FastAPI:
    app = FastAPI()

    @app.get("/api/things/{name}")
    async def things(name: str) -> dict[str, int]:
        if name == "bad":
            raise HTTPException(503)
        return {"running": counts.figures()["running"]}

    app.add_middleware(CountingMiddleware, counts=counts)
    return app


async def ask(app: FastAPI, path: str, method: str = "GET") -> int:
    """The status of one request, sent straight into the application."""
    scope: dict[str, Any] = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "headers": [],
        "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1),
    }  # fmt: skip
    statuses: list[int] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app(scope, receive, send)
    return statuses[0]


@pytest.fixture
def counts() -> RequestCounters:
    return RequestCounters()


def test_routes_are_labels_and_paths_are_not(counts: RequestCounters) -> None:
    app = application(counts)
    asked = [asyncio.run(ask(app, path)) for path in ("/api/things/a", "/api/things/b", "/api/things/bad", "/x", "/y")]
    assert asked == [200, 200, 503, 404, 404]
    figures = counts.figures()
    assert figures["requests"] == {"/api/things/{name}": {"2xx": 2, "5xx": 1}, "other": {"4xx": 2}}
    assert figures["errors"] == {"503": 1, "404": 2}
    assert set(figures["requests_ms"]) == {"/api/things/{name}", "other"}
    assert figures["running"] == 0


def test_a_request_whose_client_left_is_counted_and_ends(counts: RequestCounters) -> None:
    async def gone(scope: Any, receive: Any, send: Any) -> None:
        assert counts.figures()["running"] == 1
        raise asyncio.CancelledError

    async def run() -> None:
        with pytest.raises(asyncio.CancelledError):
            await CountingMiddleware(gone, counts)({"type": "http"}, None, None)  # type: ignore[arg-type]

    asyncio.run(run())
    assert counts.figures()["running"] == 0
    assert counts.figures()["errors"] == {"499": 1}
