"""Request bodies: read completely, with limits of size and time, before anything else runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from artimon.runtime.http.http_limits import HttpError, HttpLimits

if TYPE_CHECKING:  # an agent has no web framework
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = [
    (b"content-type", b"application/json"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
]


DRAIN_BYTES, DRAIN_S = 16 * 1024 * 1024, 1.0
"""Bytes, and seconds, for which the rest of a body that is too large is read and dropped."""


class ClientDisconnectedError(Exception):
    """The client closed the connection."""


class BodyLimitMiddleware:
    """ASGI middleware. Counts bytes as they arrive, not only Content-Length; a refusal closes the connection."""

    def __init__(self, app: ASGIApp, limits: HttpLimits, encodings: Collection[bytes] = (b"identity",)) -> None:
        """`encodings`: values of the header Content-Encoding that the application accepts."""
        self._app, self._limits, self._encodings = app, limits, encodings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            body = await self._read(scope, receive)
        except ClientDisconnectedError:
            return
        except HttpError as problem:
            await send_error(send, problem)
            return
        await self._app(scope, _replay(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        headers = dict(scope["headers"])
        size = len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(k) + len(v) for k, v in scope["headers"])
        if size > self._limits.header_bytes:  # uvicorn limits incomplete headers only
            raise HttpError(
                431,
                f"URL and headers have {size} bytes, the limit header_bytes is {self._limits.header_bytes}: send a "
                "long query by POST",
            )
        if headers.get(b"content-encoding", b"identity").lower() not in self._encodings:
            known = ", ".join(one.decode() for one in self._encodings)
            raise HttpError(415, f"the body has an encoding that is not supported: use {known}")
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self._limits.body_bytes:
            if b"expect" not in headers:  # else the client waits for the answer before it sends the body
                await self._drain(receive)
            raise self._too_large()
        try:
            async with asyncio.timeout(self._limits.body_s):
                return await self._collect(receive)
        except TimeoutError as late:
            raise HttpError(408, f"the body did not arrive within body_s = {self._limits.body_s:g} s") from late

    async def _collect(self, receive: Receive) -> bytes:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnectedError
            body += message.get("body", b"")
            if len(body) > self._limits.body_bytes:
                if message.get("more_body", False):
                    await self._drain(receive)
                raise self._too_large()
            if not message.get("more_body", False):
                return bytes(body)

    async def _drain(self, receive: Receive) -> None:
        """Drop the rest of a body that is too large, within limits of size and time: a connection that is closed while
        its client still sends is reset, and the client does not see the answer."""
        left = DRAIN_BYTES
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                while left > 0:
                    message = await receive()
                    left -= len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return

    def _too_large(self) -> HttpError:
        return HttpError(413, f"the body is larger than body_bytes = {self._limits.body_bytes}: send less at once")


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the complete body first, then the client's further messages."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return messages.pop() if messages else await receive()

    return next_message


async def send_error(send: Send, problem: HttpError) -> None:
    """Send the error and close the connection without reading the rest of the request."""
    await send_answer(send, problem.status, problem.body(), [*HEADERS, (b"connection", b"close")])


async def send_answer(send: Send, status: int, body: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Send a whole answer."""
    length = [] if status == 204 else [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
    await send({"type": "http.response.body", "body": body})
