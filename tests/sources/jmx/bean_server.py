"""Small scripted HTTP server, and the beans of a process that may restart."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime.config_file import parse_config
from sources.scrape.jmx.mapping_file import BeanRule, rules_of

Serve = Callable[[asyncio.StreamWriter], Awaitable[None]]


def parse_rules(text: str, shown: str) -> tuple[BeanRule, ...]:
    """Return the rules of a file with this text."""
    return rules_of(parse_config(text, shown))


class BeanServer:
    """Server that answers with `beans`, or calls `serve`; records the requested paths."""

    def __init__(self) -> None:
        self.port = 0
        self.paths: list[str] = []
        self.serve: Serve | None = None
        self.beans: list[dict[str, Any]] = []
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.restart()

    def restart(self) -> None:
        """Change to another process."""
        self.start_ms = SYSTEM_CLOCK.now_ms() - 60_000
        self.name = f"{self.start_ms}@test"

    def body(self) -> bytes:
        runtime = {"name": "java.lang:type=Runtime", "StartTime": self.start_ms, "Name": self.name, "Uptime": 60_000}
        return json.dumps({"beans": [runtime, *self.beans]}).encode()

    async def up(self) -> None:
        """Listen on the same port as before."""
        self._server = await asyncio.start_server(self._client, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def down(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.paths.append(head.split()[1].decode())
            if self.serve is not None:
                await self.serve(writer)
            else:
                writer.write(good(self.body()))
            await writer.drain()
        writer.close()
        self._writers.discard(writer)


def good(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def saying(data: bytes) -> Serve:
    """Return a handler that writes these bytes and closes."""

    async def serve(writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    return serve


@contextlib.asynccontextmanager
async def bean_server() -> AsyncIterator[BeanServer]:
    """Run a server on 127.0.0.1."""
    server = BeanServer()
    await server.up()
    try:
        yield server
    finally:
        await server.down()
