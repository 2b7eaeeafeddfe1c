"""ASGI middleware under Starlette, FastAPI and a bare application: patterns never hold what a client wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Mount, Route, Router, WebSocketRoute
from starlette.websockets import WebSocket

from bookkeeper import Bookkeeper
from bookkeeper.integrations.asgi import Message, Middleware
from bookkeeper.integrations.route_patterns import replace_values
from bookkeeper.testing import snapshot
from tests.integrations.asking import ask_asgi, asked, counted, timed


@pytest.fixture
def book() -> Bookkeeper:
    return Bookkeeper(online=False, strict=True)


async def fine(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("fine")


async def broken(_request: Request) -> PlainTextResponse:
    raise RuntimeError("broken")


async def streaming(_request: Request) -> StreamingResponse:
    async def body() -> Any:
        for _ in range(3):
            yield "part"

    return StreamingResponse(body())


async def socket(websocket: WebSocket) -> None:
    if websocket.path_params["room"] == "closed":
        await websocket.close()
        return
    await websocket.accept()
    await websocket.close()


async def bare(_scope: Any, _receive: Any, send: Callable[[dict[str, Any]], Any]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"bare"})


class Anything(Convertor[str]):
    """A parameter of the application's own kind, which may hold slashes."""

    regex = ".+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


def starlette() -> Starlette:
    """Routes of all kinds, mounts in mounts, with parameters in both."""
    register_url_convertor("anything", Anything())
    shop = [Route("/", fine), Route("/items/{item:int}", fine), Route("/files/{path:path}", fine)]
    return Starlette(
        routes=[
            Route("/", fine),
            Route("/broken", broken),
            Route("/stream", streaming),
            Route("/users/{user}", fine, methods=["GET", "POST"]),
            Route("/old/{user}", fine),
            Route("/any/{what:anything}", fine),
            Route("/new/{user}", fine),
            Mount("/shops/{shop:int}", routes=[Mount("/v1", Router(routes=shop)), *shop]),
            Mount("/bare", bare),
            Mount("/of/{owner}", bare),
            WebSocketRoute("/rooms/{room}", socket),
        ]
    )


@pytest.mark.parametrize(
    ("path", "route", "status"),
    [
        ("/", "/", 200),
        ("/users/7", "/users/{user}", 200),
        ("/users/users", "/users/{user}", 200),
        ("/old/7", "/old/{user}", 200),
        ("/new/7", "/new/{user}", 200),
        ("/shops/7/", "/shops/{shop}/", 200),
        ("/shops/7/items/7", "/shops/{shop}/items/{item}", 200),
        ("/shops/7/v1/items/12", "/shops/{shop}/v1/items/{item}", 200),
        ("/shops/7/v1/files/a/b/7", "/shops/{shop}/v1/files/{path}", 200),
        ("/shops/7/nothing", "/shops/{shop}/{path}", 404),
        ("/shops/007/items/7", "unmatched", 200),
        ("/bare/whatever/1", "/bare/{path}", 200),
        ("/of/me/whatever", "/of/{owner}/{path}", 200),
        ("/any/1/2/3", "/any/{what}", 200),
        ("/nothing/here", "unmatched", 404),
        ("/users", "unmatched", 404),
        ("/users/7/", "unmatched", 307),
    ],
)
@pytest.mark.parametrize("root", ["", "/behind/proxy"])
def test_patterns_of_starlette(book: Bookkeeper, path: str, route: str, status: int, root: str) -> None:
    app = Middleware(starlette(), book=book)
    assert ask_asgi(app, path, root=root) == status
    assert counted(book) == {("GET", route, str(status)): 1}
    assert timed(book) == {("GET", route): 1}


def fastapi() -> FastAPI:
    app, router, inner, other = FastAPI(), APIRouter(prefix="/v1"), APIRouter(), FastAPI()

    @inner.get("/items/{item}")
    @router.get("/users/{user}/orders/{order}")
    @app.get("/users/{user}")
    @other.get("/things/{thing}")
    def one() -> str:
        return "one"

    router.include_router(inner, prefix="/shops/{shop}")
    app.include_router(router)
    app.mount("/other", other)
    return app


@pytest.mark.parametrize(
    ("path", "route", "status"),
    [
        ("/users/7", "/users/{user}", 200),
        ("/v1/users/7/orders/8", "/v1/users/{user}/orders/{order}", 200),
        ("/v1/shops/7/items/8", "/v1/shops/{shop}/items/{item}", 200),
        ("/other/things/7", "/other/things/{thing}", 200),
        ("/openapi.json", "/openapi.json", 200),
        ("/v1/nothing", "unmatched", 404),
    ],
)
def test_patterns_of_fastapi(book: Bookkeeper, path: str, route: str, status: int) -> None:
    app = fastapi()
    app.add_middleware(Middleware, book=book)
    assert ask_asgi(app, path) == status
    assert counted(book) == {("GET", route, str(status)): 1}


def test_nobody_makes_variables_by_asking(book: Bookkeeper) -> None:
    """Paths, methods and parameters that a client invents end in the same few variables."""
    app = Middleware(starlette(), book=book)
    for i in range(50):
        ask_asgi(app, f"/nothing/{i}")
        ask_asgi(app, f"/users/{i}")
        ask_asgi(app, f"/shops/{i}/files/{i}/{i}")
        ask_asgi(app, "/", method=f"GET{i}")
    assert counted(book) == {
        ("GET", "unmatched", "404"): 50,
        ("GET", "/users/{user}", "200"): 50,
        ("GET", "/shops/{shop}/files/{path}", "200"): 50,
        ("other", "/", "405"): 50,
    }


def test_status_of_what_goes_wrong(book: Bookkeeper) -> None:
    app = Middleware(starlette(), book=book)
    with pytest.raises(RuntimeError, match="broken"):
        ask_asgi(app, "/broken")
    assert ask_asgi(app, "/users/7", "DELETE") == 405
    assert ask_asgi(app, "/stream") == 200
    assert counted(book) == {
        ("GET", "/broken", "500"): 1,
        ("DELETE", "/users/{user}", "405"): 1,
        ("GET", "/stream", "200"): 1,
    }
    assert book.get_integer_var("http.requests.active", {}) == 0


def test_an_application_that_is_cancelled_or_says_nothing(book: Bookkeeper) -> None:
    async def silent(*_: Any) -> None:
        await asyncio.sleep(0)

    async def waiting(*_: Any) -> None:
        await asyncio.Event().wait()

    async def cancel() -> None:
        task = asyncio.create_task(asked(Middleware(waiting, book=book), "/"))
        await asyncio.sleep(0)
        assert book.get_integer_var("http.requests.active", {}) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert ask_asgi(Middleware(silent, book=book), "/") == 0
    asyncio.run(cancel())
    assert counted(book) == {("GET", "unmatched", "none"): 2}
    assert book.get_integer_var("http.requests.active", {}) == 0


def test_web_sockets_have_no_duration_and_lifespan_passes(book: Bookkeeper) -> None:
    app = Middleware(starlette(), book=book)
    ask_asgi(app, "/rooms/7", kind="websocket")
    ask_asgi(app, "/rooms/closed", kind="websocket")
    assert counted(book) == {
        ("WEBSOCKET", "/rooms/{room}", "101"): 1,
        ("WEBSOCKET", "/rooms/{room}", "403"): 1,
    }
    assert timed(book) == {}

    async def lifespan() -> list[str]:
        sent: list[str] = []
        coming = iter(["lifespan.startup", "lifespan.shutdown"])

        async def receive() -> Message:
            return {"type": next(coming)}

        async def send(message: Message) -> None:
            sent.append(message["type"])

        await app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)
        return sent

    assert asyncio.run(lifespan()) == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert len(counted(book)) == 2


def test_a_rule_of_the_users_own(book: Bookkeeper) -> None:
    app = Middleware(bare, book=book, route=lambda scope: scope["path"] if scope["path"] == "/known" else None)
    ask_asgi(app, "/known")
    ask_asgi(app, "/unknown")
    assert set(counted(book)) == {("GET", "/known", "200"), ("GET", "unmatched", "200")}


def test_what_is_counted_is_described_and_timed(book: Bookkeeper) -> None:
    ask_asgi(Middleware(bare, book=book, bounds=(0.5, 1.0)), "/")
    entries = {(one.name, one.labels.get("le")): one for one in book.collect()}
    assert entries["http.requests", None].kind == "counter"
    assert entries["http.requests.active", None].kind == "gauge"
    assert entries["http.request.seconds.bucket", "+Inf"].value == 1
    assert entries["http.request.seconds.bucket", "+Inf"].unit == "seconds"
    assert {le for name, le in entries if name.endswith(".bucket")} == {"0.5", "1.0", "+Inf"}
    assert 0 < snapshot(book).total("http.request.seconds.sum") < 10


@pytest.mark.parametrize(
    ("path", "values", "pattern"),
    [
        ("/a/b", {}, "/a/b"),
        ("/a/7", {"x": 7}, "/a/{x}"),
        ("/7/7", {"x": 7}, "/7/{x}"),
        ("/7/7", {"x": 7, "y": 7}, "/{x}/{y}"),
        ("/a/007", {"x": 7}, None),
        ("/a/77", {"x": 7}, None),
        ("/a/b/c", {"x": "b/c"}, "/a/{x}"),
        ("/", {"x": ""}, "/{x}"),
        ("", {"x": 1}, None),
    ],
)
def test_values_are_replaced_by_their_names_or_not_at_all(path: str, values: Any, pattern: str | None) -> None:
    assert replace_values(path, values) == pattern
