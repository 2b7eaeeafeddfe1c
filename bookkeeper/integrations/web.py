"""Variables of the middleware of all web frameworks, under one set of names.

| variable | labels | kind |
| --- | --- | --- |
| `http.requests` | method, route, status | counter |
| `http.request.seconds` | method, route | histogram |
| `http.requests.active` | | gauge |

`route` is the pattern that matched, never the path: requests without a match share the constant `unmatched`, so that
clients cannot create variables by requesting paths. For the same reason unknown methods count as `other`.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import bookkeeper

UNMATCHED = "unmatched"
OTHER = "other"
NO_ANSWER = "none"
WEBSOCKET = "WEBSOCKET"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", WEBSOCKET})
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
MAX_HANDLES = 4096


class RequestVariables:
    """Counts the requests of one application. `book`: None for the `bookkeeper.default()` of each request.

    Thread-safe: threads share only handles, and a cache that may lose an entry."""

    def __init__(self, book: bookkeeper.Bookkeeper | None = None, bounds: Sequence[float] = BOUNDS) -> None:
        self._given, self._bounds = book, tuple(bounds)
        self._book: bookkeeper.Bookkeeper | None = None
        self._handles: dict[tuple[str, str, str | int], tuple[Any, Any]] = {}
        self._active: Any = None

    def begin(self) -> float:
        """Count the start of a request; return the time for `end`."""
        book = self._given or bookkeeper.default()
        if book is not self._book:
            self._use_book(book)
        self._active.add(1)
        return perf_counter()

    def end(self, begun: float, method: str, route: str, status: str | int) -> None:
        """Count the end of a request, answered or failed. Raises nothing unless the book is strict."""
        seconds = perf_counter() - begun
        self._active.add(-1)
        key = method, route, status
        counter, timing = self._handles.get(key) or self._handle(key)
        counter.add(1)
        if timing is not None:
            timing.observe(seconds)

    def _use_book(self, book: bookkeeper.Bookkeeper) -> None:
        self._handles = {}
        book.describe("http.requests", "Requests answered", kind="counter")
        book.describe("http.request.seconds", "Time from the request to the end of its answer", "seconds")
        book.describe("http.requests.active", "Requests being answered", kind="gauge")
        self._active = book.integer("http.requests.active")
        self._book = book

    def _handle(self, key: tuple[str, str, str | int]) -> tuple[Any, Any]:
        """Counter of requests and histogram of their durations; None instead of the histogram for web sockets."""
        given, route, status = key
        method = given if given in METHODS else OTHER
        book = self._book or bookkeeper.default()
        counter = book.integer("http.requests", {"method": method, "route": route, "status": str(status)})
        labels = {"method": method, "route": route}
        timing = None if method == WEBSOCKET else book.histogram("http.request.seconds", labels, self._bounds)
        if len(self._handles) >= MAX_HANDLES:  # a client sends invented methods
            self._handles.clear()
        self._handles[key] = counter, timing
        return counter, timing
