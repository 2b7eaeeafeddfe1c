"""WSGI middleware under Flask and bare applications, and the middleware of Django in both of its forms."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from wsgiref.util import FileWrapper

import pytest
from flask import Flask, Response

from bookkeeper import Bookkeeper
from bookkeeper.integrations.wsgi import ROUTE, Middleware
from tests.bookkeeper.polling import REPOSITORY
from tests.integrations.asking import ask_wsgi, counted, timed


@pytest.fixture
def book() -> Bookkeeper:
    return Bookkeeper(online=False, strict=True)


def flask(book: Bookkeeper) -> Flask:
    app = Flask("test")

    @app.get("/")
    @app.get("/items/<int:item>")
    def one(item: int = 0) -> str:
        return f"one {item}"

    @app.get("/broken")
    def broken() -> str:
        raise RuntimeError("broken")

    @app.get("/stream")
    def stream() -> Response:
        return Response(f"part {i}\n" for i in range(3))

    app.wsgi_app = Middleware(app.wsgi_app, book=book)  # type: ignore[method-assign]
    return app


@pytest.mark.parametrize(
    ("path", "method", "route", "status"),
    [
        ("/", "GET", "/", "200"),
        ("/items/7", "GET", "/items/<int:item>", "200"),
        ("/items/7", "POST", "unmatched", "405"),
        ("/items/x", "GET", "unmatched", "404"),
        ("/broken", "GET", "/broken", "500"),
        ("/stream", "GET", "/stream", "200"),
        ("/", "BREW", "unmatched", "405"),
    ],
)
def test_patterns_of_flask(book: Bookkeeper, path: str, method: str, route: str, status: str) -> None:
    told, _ = ask_wsgi(flask(book), path, method)
    assert told.startswith(status)
    method = "other" if method == "BREW" else method
    assert counted(book) == {(method, route, status): 1}
    assert timed(book) == {(method, route): 1}
    assert book.get_integer_var("http.requests.active", {}) == 0


def test_a_streamed_answer_ends_when_it_is_closed(book: Bookkeeper) -> None:
    closed: list[bool] = []

    class Body:
        def __iter__(self) -> Iterator[bytes]:
            return iter([b"a", b"b"])

        def close(self) -> None:
            closed.append(True)

    def app(_environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [])
        return Body()

    answer: Any = Middleware(app, book=book)({"REQUEST_METHOD": "GET"}, lambda *_: None)
    assert list(answer) == [b"a", b"b"]
    assert book.get_integer_var("http.requests.active", {}) == 1
    assert counted(book) == {}
    answer.close()
    answer.close()
    assert closed == [True, True]
    assert counted(book) == {("GET", "unmatched", "200"): 1}
    assert book.get_integer_var("http.requests.active", {}) == 0


def test_an_answer_that_fails_on_its_way_is_counted_once(book: Bookkeeper) -> None:
    def app(_environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        yield b"a"
        raise OSError("the client is gone")

    with pytest.raises(OSError, match="gone"):
        ask_wsgi(Middleware(app, book=book), "/")
    assert counted(book) == {("GET", "unmatched", "200"): 1}


def test_an_application_that_raises(book: Bookkeeper) -> None:
    def app(_environ: dict[str, Any], _start_response: Any) -> Iterable[bytes]:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        ask_wsgi(Middleware(app, book=book), "/")
    assert counted(book) == {("GET", "unmatched", "500"): 1}
    assert book.get_integer_var("http.requests.active", {}) == 0


def test_a_file_of_the_server_reaches_it_as_it_is(book: Bookkeeper, tmp_path: Path) -> None:
    """A server that sends files in its own way must see its own object."""
    (tmp_path / "file").write_bytes(b"content")
    with (tmp_path / "file").open("rb") as file:
        wrapped = FileWrapper(file)

        def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            start_response("200 OK", [])
            environ[ROUTE] = "/files/<name>"
            return wrapped

        middleware = Middleware(app, book=book)
        assert middleware({"REQUEST_METHOD": "GET", "wsgi.file_wrapper": FileWrapper}, lambda *_: None) is wrapped
    assert counted(book) == {("GET", "/files/<name>", "200"): 1}


DJANGO = """
import asyncio, json, sys
import django
from django.conf import settings
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import include, path, re_path
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="x", DEBUG=False, LOGGING_CONFIG=None,
    MIDDLEWARE=["bookkeeper.integrations.django.middleware", "django.middleware.common.CommonMiddleware"])
import logging; logging.disable()
def one(request, **_): return HttpResponse("one")
async def later(request, **_): return HttpResponse("later")
def broken(request): raise RuntimeError("broken")
inner = [path("items/<int:item>/", one)]
urlpatterns = [path("", one), path("later/<slug:what>", later), path("broken", broken), path("v1/", include(inner)),
    re_path(r"^old/(?P<year>[0-9]{4})/$", one)]
django.setup()
import bookkeeper
from bookkeeper import testing
from tests.integrations.asking import ask_asgi, ask_wsgi, counted
paths = ["/", "/later/x", "/later/y", "/broken", "/v1/items/7/", "/v1/items/7", "/old/2011/", "/nothing/1"]
found = []
for form in ("wsgi", "asgi"):
    with testing.isolated() as book:
        if form == "wsgi":
            from django.core.wsgi import get_wsgi_application
            app = get_wsgi_application()
            for one_path in paths: ask_wsgi(app, one_path)
        else:
            from django.core.asgi import get_asgi_application
            app = get_asgi_application()
            for one_path in paths: ask_asgi(app, one_path)
        assert book.get_integer_var("http.requests.active", {}) == 0
        found.append(sorted(counted(book).items()))
assert found[0] == found[1], found
print(json.dumps(found[0]))
"""


def test_django_by_wsgi_and_by_asgi(tmp_path: Path) -> None:
    """Its settings are of a whole process, so it has one of its own. Sync and async views, includes, regular
    expressions, redirects of APPEND_SLASH."""
    import json

    (tmp_path / "app.py").write_text(DJANGO)
    command = [sys.executable, "app.py"]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY), "ARTIMON_DISABLED": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {tuple(key): value for key, value in json.loads(done.stdout)} == {
        ("GET", "/", "200"): 1,
        ("GET", "/later/<slug:what>", "200"): 2,
        ("GET", "/broken", "500"): 1,
        ("GET", "/v1/items/<int:item>/", "200"): 1,
        ("GET", "/^old/(?P<year>[0-9]{4})/$", "200"): 1,
        ("GET", "unmatched", "301"): 1,
        ("GET", "unmatched", "404"): 1,
    }
