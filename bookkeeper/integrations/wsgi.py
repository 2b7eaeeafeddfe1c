"""Middleware for WSGI applications (Flask and all of Werkzeug, Bottle, any other).

from bookkeeper.integrations.wsgi import Middleware

app.wsgi_app = Middleware(app.wsgi_app)    # Flask
application = Middleware(application)      # anything
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import bookkeeper
from bookkeeper.integrations.web import BOUNDS, NO_ANSWER, UNMATCHED, RequestVariables

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]
ROUTE = "bookkeeper.route"
"""Key of the environ for the pattern, set by applications of other frameworks."""


class Middleware:
    """Counts the requests of `app` in the variables of bookkeeper/integrations/web.py.

    A request ends when the server closes its answer; an answer that is a list or a file of the server ends at once.
    `route(environ)`: the pattern, None if none matched; default: that of Flask (Werkzeug) and Bottle, or the value of
    ROUTE in the environ."""

    def __init__(
        self,
        app: App,
        *,
        book: bookkeeper.Bookkeeper | None = None,
        bounds: Sequence[float] = BOUNDS,
        route: Callable[[Environ], str | None] | None = None,
    ) -> None:
        self.app, self._requests, self._route = app, RequestVariables(book, bounds), route or pattern

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Handle one request."""
        requests, route = self._requests, self._route
        status, found, ended = NO_ANSWER, None, False

        def noted(line: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            nonlocal status, found
            status, found = line[:3], route(environ)  # now, because Flask clears it later
            return start_response(line, headers, *more)

        def end() -> None:
            nonlocal ended
            if not ended:  # a server may close twice
                ended = True
                requests.end(begun, environ.get("REQUEST_METHOD", ""), found or route(environ) or UNMATCHED, status)

        begun = requests.begin()
        try:
            answer = self.app(environ, noted)
        except BaseException as error:
            if isinstance(error, Exception):
                status = "500"
            end()
            raise
        if isinstance(answer, (list, tuple)) or _is_file_wrapper(answer, environ.get("wsgi.file_wrapper")):
            end()
            return answer
        return _ClosingResponse(answer, end)


def _is_file_wrapper(answer: object, wrapper: object) -> bool:
    """True for a file wrapper of the server, which needs the object itself to send it in its own way."""
    return isinstance(wrapper, type) and isinstance(answer, wrapper)


class _ClosingResponse:
    """Answer that calls `end` when it is closed."""

    __slots__ = ("_answer", "_end")

    def __init__(self, answer: Iterable[bytes], end: Callable[[], None]) -> None:
        self._answer, self._end = answer, end

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._answer)

    def close(self) -> None:
        try:
            close = getattr(self._answer, "close", None)
            if close is not None:
                close()
        finally:
            self._end()


def pattern(environ: Environ) -> str | None:
    """Pattern found by the framework; None if it found none or is unknown."""
    given = environ.get(ROUTE)
    if given:
        return str(given)
    request = environ.get("werkzeug.request")
    if request is not None:
        rule = getattr(request, "url_rule", None)
        return None if rule is None else str(rule.rule)
    route = environ.get("bottle.route")
    return None if route is None else str(route.rule)
