"""HTTP server that a discovery asks: address and credentials."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode, urlsplit

from sources.base.source_errors import PollError, TargetError
from sources.scrape.discovery.discovery import MAX_BODY
from sources.scrape.server.http_client import HttpRequest, HttpResponse, open_lines, send_request
from sources.targets.credentials import CredentialFiles
from sources.targets.http_target import join_host_port
from sources.targets.prometheus_target import PORTS, redact_url

JSON = "application/json"
MAX_LINE = 4 << 20
"""Size limit of one line of a stream in bytes."""


@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """Server at `scheme://host:port`, and the path before those of its requests."""

    scheme: str
    host: str
    port: int
    path: str = ""
    access: CredentialFiles = field(default_factory=CredentialFiles)

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> HttpResponse:
        """Return the answer to a GET. Raises PollError. The caller sets the timeout."""
        place = await self._place(path, headers or {})
        return await send_request(place[0], place[1], self.port, MAX_BODY, *place[2:])

    @asynccontextmanager
    async def lines(self, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the lines of the answer as they arrive. Raises PollError."""
        question, ip, *tls = await self._place(path, {})
        async with open_lines(question, ip, self.port, MAX_LINE, *tls) as lines:
            yield lines

    async def _place(self, path: str, headers: Mapping[str, str]) -> tuple[HttpRequest, str, Any, str]:
        """Return the request, the address of the server, TLS and the name in its certificate."""
        shown = await asyncio.to_thread(self.access.load, self.scheme)
        request = HttpRequest(
            join_host_port(self.host, self.port), self.path + path, JSON, headers={**headers, **shown.headers}
        )
        try:
            found = await asyncio.get_running_loop().getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise PollError("network", f"{self.host}: {error}") from error
        return request, str(found[0][4][0]), shown.tls, self.access.server_name or self.host

    def __str__(self) -> str:
        return f"{self.scheme}://{join_host_port(self.host, self.port)}{self.path}"


def parse_url(url: str) -> HttpEndpoint:
    """Return the endpoint of a URL; its query is part of the path. Raises TargetError."""
    shown = redact_url(url)
    try:
        parts = urlsplit(url)
        port = parts.port or PORTS.get(parts.scheme, 0)
    except ValueError as error:
        raise TargetError(f"{shown!r:.200}: {error}") from error
    bad = parts.scheme not in PORTS or not parts.hostname or parts.username is not None or parts.fragment
    if bad or not url.isascii() or not url.isprintable() or " " in url:
        raise TargetError(f"{shown!r:.200}: want http(s)://HOST:PORT/path, without user or fragment")
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    return HttpEndpoint(parts.scheme, parts.hostname or "", port, path)


def with_access(url: str, access: CredentialFiles) -> HttpEndpoint:
    """Return the endpoint of a URL with credentials. Raises TargetError."""
    return replace(parse_url(url), access=access)


def query_of(pairs: Mapping[str, str] | list[tuple[str, str]]) -> str:
    """Return `?name=value&…`, "" without values."""
    items = [(name, value) for name, value in (pairs.items() if isinstance(pairs, Mapping) else pairs) if value]
    return f"?{urlencode(items)}" if items else ""
