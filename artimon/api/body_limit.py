"""Request bodies: read completely, with limits of size and time, before anything else runs."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from artimon.api.api_errors import ApiError
from artimon.api.api_limits import ApiLimits

HEADERS = [
    (b"content-type", b"application/json"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
]


class ClientDisconnectedError(Exception):
    """The client closed the connection."""


class BodyLimitMiddleware:
    """ASGI middleware. Counts bytes as they arrive, not only Content-Length; a refusal closes the connection."""

    def __init__(self, app: ASGIApp, limits: ApiLimits) -> None:
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            body = await self._read(scope, receive)
        except ClientDisconnectedError:
            return
        except ApiError as problem:
            await send_error(send, problem)
            return
        await self._app(scope, _replay(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        headers = dict(scope["headers"])
        size = len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(k) + len(v) for k, v in scope["headers"])
        if size > self._limits.header_bytes:  # uvicorn limits incomplete headers only
            raise ApiError(
                431,
                f"URL and headers have {size} bytes, the limit header_bytes is {self._limits.header_bytes}: send a "
                "long query by POST",
            )
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise ApiError(415, "compressed bodies are not supported: send the body uncompressed")
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self._limits.body_bytes:
            raise self._too_large()
        try:
            async with asyncio.timeout(self._limits.body_s):
                return await self._collect(receive)
        except TimeoutError as late:
            raise ApiError(408, f"the body did not arrive within body_s = {self._limits.body_s:g} s") from late

    async def _collect(self, receive: Receive) -> bytes:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnectedError
            body += message.get("body", b"")
            if len(body) > self._limits.body_bytes:
                raise self._too_large()
            if not message.get("more_body", False):
                return bytes(body)

    def _too_large(self) -> ApiError:
        return ApiError(413, f"the body is larger than body_bytes = {self._limits.body_bytes}: shorten the query")


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the complete body first, then the client's further messages."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return messages.pop() if messages else await receive()

    return next_message


async def send_error(send: Send, problem: ApiError) -> None:
    """Send the error and close the connection without reading the rest of the request."""
    body = problem.body()
    length = (b"content-length", str(len(body)).encode())
    await send(
        {
            "type": "http.response.start",
            "status": problem.status,
            "headers": [*HEADERS, length, (b"connection", b"close")],
        }
    )
    await send({"type": "http.response.body", "body": body})
