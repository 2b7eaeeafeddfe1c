"""Fast path for the most frequent request: GET /api/query with valid, common parameters. FastAPI handles all other
requests and reports invalid parameters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl

from fastapi import Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from artimon.api.api_errors import ApiError
from artimon.api.query_parameters import MAX_FIELDS, TIME_MAX_MS, QueryParameters

PATH = "/api/query"
_PLAIN_PARAMETERS = frozenset({"q", "format", "engine", "time_ms"})
Answer = Callable[[Request, QueryParameters], Awaitable[Response]]


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
    time_ms = None
    if "time_ms" in found:
        text = found["time_ms"]
        if not (text.isascii() and text.isdigit() and len(text) <= 15 and int(text) <= TIME_MAX_MS):
            return None
        time_ms = int(text)
    return QueryParameters(found["q"], time_ms, found.get("format"), found.get("engine"))


class FastQueryMiddleware:
    """Innermost ASGI middleware; `answer` and `refuse` are the functions that the application's routes use."""

    def __init__(self, app: ASGIApp, answer: Answer, refuse: Callable[[ApiError], Response]) -> None:
        self._app, self._answer, self._refuse = app, answer, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        question = None
        if scope["type"] == "http" and scope["path"] == PATH and scope["method"] == "GET":
            question = parse_plain_query(scope["query_string"])
        if question is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = _ROUTE
        await receive()  # the body, already read by BodyLimitMiddleware; the next message is the disconnect
        try:
            response = await self._answer(Request(scope, receive), question)
        except ApiError as problem:
            response = self._refuse(problem)
        await response(scope, receive, send)
