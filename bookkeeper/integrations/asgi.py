"""Middleware for ASGI applications (Starlette, FastAPI, Django's ASGI side with `integrations.django`, any other).

from bookkeeper.integrations.asgi import Middleware

app.add_middleware(Middleware)     # Starlette, FastAPI
app = Middleware(app)              # anything
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Protocol

import bookkeeper
from bookkeeper.integrations.route_patterns import RoutePatterns
from bookkeeper.integrations.web import BOUNDS, NO_ANSWER, UNMATCHED, WEBSOCKET, RequestVariables

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class App(Protocol):
    """An ASGI 3 application."""

    def __call__(self, scope: Scope, receive: Receive, send: Send, /) -> Awaitable[None]: ...


class Middleware:
    """Counts the requests of `app` in the variables of bookkeeper/integrations/web.py.

    `route(scope)`: pattern of an answered request, None if none matched; default: that of Starlette and FastAPI. A web
    socket counts when it ends: method `WEBSOCKET`, status 101 or 403, no duration. A request left without an answer,
    as after a disconnect of the client, has the status `none`; one that raised has `500`."""

    def __init__(
        self,
        app: App,
        *,
        book: bookkeeper.Bookkeeper | None = None,
        bounds: Sequence[float] = BOUNDS,
        route: Callable[[Scope], str | None] | None = None,
    ) -> None:
        self.app, self._requests = app, RequestVariables(book, bounds)
        self._pattern: Callable[[Scope, str], str] = RoutePatterns().pattern
        if route is not None:
            self._pattern = lambda scope, _root: route(scope) or UNMATCHED

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        kind = scope["type"]
        if kind != "http" and kind != "websocket":
            await self.app(scope, receive, send)
            return
        root = scope.get("root_path", "")
        status = 0

        def noted(message: Message) -> Awaitable[None]:
            nonlocal status
            if not status:
                status = message.get("status") or _ANSWERS.get(message["type"], 0)
            return send(message)

        begun = self._requests.begin()
        try:
            await self.app(scope, receive, noted)
        except Exception:
            status = status or 500
            raise
        finally:
            method = scope["method"] if kind == "http" else WEBSOCKET
            self._requests.end(begun, method, self._pattern(scope, root), status or NO_ANSWER)


_ANSWERS = {"websocket.accept": 101, "websocket.close": 403}
