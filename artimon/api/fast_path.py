"""Fast path for the most frequent requests: GET /api/query with valid, common parameters, and addresses whose handlers
read the request themselves. FastAPI handles all other requests and reports invalid parameters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

from fastapi import Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from artimon.api.query_parameters import MAX_FIELDS, NUMBERS, QueryParameters, parse_digits
from artimon.runtime.http.http_limits import HttpError

PATH = "/api/query"
_PLAIN_PARAMETERS = frozenset({"q", "format", "engine", "time_ms", "newest"})
Answer = Callable[[Request, QueryParameters], Awaitable[Response]]
Handler = Callable[[Request], Awaitable[Response]]
METHODS = ("GET", "POST")


@dataclass(frozen=True, slots=True)
class _Route:
    """Stand-in for a route in the ASGI scope, where `CountingMiddleware` reads its path."""

    path: str = PATH


_ROUTE = _Route()


def parse_plain_query(query_string: bytes) -> QueryParameters | None:
    """Parse a query string; None if FastAPI must handle it."""
    try:
        pairs = parse_qsl(query_string.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        return None
    found = dict(pairs)
    if len(found) != len(pairs) or not found.keys() <= _PLAIN_PARAMETERS or "q" not in found:
        return None
    numbers = dict[str, int | None]()
    for name, (least, most) in NUMBERS.items():
        if name in found:
            number = numbers[name] = parse_digits(found[name])
            if number is None or not least <= number <= most:
                return None
    return QueryParameters(
        found["q"], numbers.get("time_ms"), found.get("format"), found.get("engine"), newest=numbers.get("newest")
    )


class FastQueryMiddleware:
    """Innermost ASGI middleware; `answer`, `handlers` (by path, for GET and POST) and `refuse` are the functions that
    the application's routes use."""

    def __init__(
        self,
        app: ASGIApp,
        answer: Answer,
        handlers: Mapping[str, Handler],
        refuse: Callable[[HttpError, str], Response],
    ) -> None:
        self._app, self._answer, self._refuse = app, answer, refuse
        self._handlers = {path: (_Route(path), handler) for path, handler in handlers.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call: Callable[[], Awaitable[Response]] | None = None
        if scope["type"] == "http" and scope["method"] in METHODS:
            call = self._call(scope, receive)
        if call is None:
            await self._app(scope, receive, send)
            return
        try:
            response = await call()
        except HttpError as problem:
            response = self._refuse(problem, scope["path"])
        await response(scope, receive, send)

    def _call(self, scope: Scope, receive: Receive) -> Callable[[], Awaitable[Response]] | None:
        """Return the call that answers a request; None if FastAPI must handle it."""
        path = scope["path"]
        if path in self._handlers:
            scope["route"], handler = self._handlers[path]
            return lambda: handler(Request(scope, receive))
        question = parse_plain_query(scope["query_string"]) if path == PATH and scope["method"] == "GET" else None
        if question is None:
            return None
        scope["route"] = _ROUTE

        async def answer() -> Response:
            await receive()  # the body, already read by BodyLimitMiddleware; the next message is the disconnect
            return await self._answer(Request(scope, receive), question)

        return answer
