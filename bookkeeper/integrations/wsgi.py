"""Middleware for WSGI applications (Flask and all of Werkzeug, Bottle, any other).

from bookkeeper.integrations.wsgi import Middleware

app.wsgi_app = Middleware(app.wsgi_app)    # Flask
application = Middleware(application)      # anything
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import bookkeeper
from bookkeeper.integrations.web import BOUNDS, NO_ANSWER, UNMATCHED, Requests

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]
ROUTE = "bookkeeper.route"
"""An application of no known framework may put the pattern there, in the environ."""


class Middleware:
    """Counts the requests of `app` (bookkeeper/integrations/web.py says which variables).

    A request ends when the server closes its answer; one that is handed over whole, as a list or as a file of the
    server, ends at once. `route(environ)`: the pattern, None if none matched; by default that of Flask (Werkzeug) and
    Bottle, and what stands in the environ under ROUTE."""

    def __init__(
        self,
        app: App,
        *,
        book: bookkeeper.Bookkeeper | None = None,
        bounds: Sequence[float] = BOUNDS,
        route: Callable[[Environ], str | None] | None = None,
    ) -> None:
        self.app, self._requests, self._route = app, Requests(book, bounds), route or pattern

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """One request."""
        requests, route = self._requests, self._route
        status, found, ended = NO_ANSWER, None, False

        def noted(line: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            nonlocal status, found
            status, found = line[:3], route(environ)  # now: later Flask has cleared up
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
        if isinstance(answer, (list, tuple)) or _of_server(answer, environ.get("wsgi.file_wrapper")):
            end()
            return answer
        return _Answer(answer, end)


def _of_server(answer: object, wrapper: object) -> bool:
    """Whether it is a file that the server sends in its own way, for which it must see the object itself."""
    return isinstance(wrapper, type) and isinstance(answer, wrapper)


class _Answer:
    """An answer that tells when it is closed."""

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
    """The pattern that the framework has found, None if it found none or is not known."""
    given = environ.get(ROUTE)
    if given:
        return str(given)
    request = environ.get("werkzeug.request")
    if request is not None:
        rule = getattr(request, "url_rule", None)
        return None if rule is None else str(rule.rule)
    route = environ.get("bottle.route")
    return None if route is None else str(route.rule)
