"""Request counters for the API's self metrics: by route, status class, duration."""

from __future__ import annotations

import threading
from collections import Counter
from time import monotonic
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

UNKNOWN = "other"


class RequestCounters:
    """Counters of requests since the start. `_lock` guards all fields: another thread reads them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[str, Counter[str]] = {}
        self._ms: dict[str, float] = {}
        self._errors: Counter[str] = Counter()
        self._running = 0

    def request_started(self) -> None:
        """Count a request as running."""
        with self._lock:
            self._running += 1

    def request_ended(self, route: str, status: int, took_s: float) -> None:
        """Count a finished request. `route` is the path of a known route, never a client's text (label cardinality)."""
        with self._lock:
            self._running -= 1
            self._requests.setdefault(route, Counter())[f"{status // 100}xx"] += 1
            self._ms[route] = self._ms.get(route, 0.0) + took_s * 1000
            if status >= 400:
                self._errors[str(status)] += 1

    def figures(self) -> dict[str, Any]:
        """Return the counters for the health file."""
        with self._lock:
            return {
                "requests": {route: dict(counts) for route, counts in self._requests.items()},
                "requests_ms": {route: round(ms, 3) for route, ms in self._ms.items()},
                "errors": dict(self._errors),
                "running": self._running,
            }


class CountingMiddleware:
    """Outermost ASGI middleware, which also counts requests that the limits refuse."""

    def __init__(self, app: ASGIApp, counts: RequestCounters) -> None:
        self._app, self._counts = app, counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = monotonic(), 499

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._counts.request_started()
        try:
            await self._app(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path", UNKNOWN)
            self._counts.request_ended(route, status, monotonic() - began)
