"""The application without a socket: requests as the server would hand them over."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import FastAPI

from artimon.access.access_file import build_access
from artimon.access.audit_log import AuditLog
from artimon.access.authenticator import Authenticator
from artimon.access.passwords import hash_password
from artimon.api.app import make_app
from artimon.api.pages import Pages
from artimon.model.clock import Clock, ManualClock
from artimon.model.select import Store
from artimon.runtime.config_file import parse_config
from tests.api.serving import NOW, STATUS, small_store

PASSWORD = "correct horse battery"
HASH = str(hash_password(PASSWORD, 4))
"""A cheap hash: the cost is a parameter of the file."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    cookies: tuple[str, ...]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class AsgiClient:
    """Client of an application; `peer` is its address, `cookies` those that a browser would keep."""

    app: FastAPI
    loop: asyncio.AbstractEventLoop
    peer: str = "192.0.2.1"
    cookies: dict[str, str] = field(default_factory=dict)

    def send(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        sending = self._send(method, path, body, headers or {})
        return asyncio.run_coroutine_threadsafe(sending, self.loop).result(20)

    async def _send(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        path, _, given = path.partition("?")
        sent = {"host": "127.0.0.1", **{name.lower(): value for name, value in headers.items()}}
        if self.cookies:
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": quote(path).encode(),
            "root_path": "",
            "query_string": given.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in sent.items()],
            "client": (self.peer, 1234),
            "server": ("127.0.0.1", 8780),
            "state": {},
        }
        asked = [{"type": "http.request", "body": body, "more_body": False}]
        told: list[dict[str, Any]] = []
        ended = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if asked:
                return asked.pop()
            await ended.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            told.append(message)

        await self.app(scope, receive, send)
        ended.set()
        found = [(name.decode(), value.decode("latin-1")) for name, value in told[0]["headers"]]
        cookies = tuple(value for name, value in found if name == "set-cookie")
        for one in cookies:
            name, _, value = one.partition(";")[0].partition("=")
            self.cookies[name] = value.strip('"')
            if "Max-Age=0" in one:
                del self.cookies[name]
        return Answer(told[0]["status"], dict(found), cookies, b"".join(one.get("body", b"") for one in told[1:]))

    def get(self, path: str, headers: Mapping[str, str] | None = None, **query: str) -> Answer:
        return self.send("GET", f"{path}?{urlencode(query)}" if query else path, headers=headers)

    def post(self, path: str, headers: Mapping[str, str] | None = None, **form: str) -> Answer:
        kind = {"content-type": "application/x-www-form-urlencoded", **(headers or {})}
        return self.send("POST", path, urlencode(form).encode(), kind)

    def log_in(self, user: str) -> Answer:
        return self.post("/login", {"origin": "http://127.0.0.1"}, user=user, password=PASSWORD)

    def other(self, peer: str = "192.0.2.2") -> AsgiClient:
        """Another browser."""
        return AsgiClient(self.app, self.loop, peer)


ACCESS = f"""
roles:
- name: shop
  level: viewer
  sees: '{{route="/a"}}'
users:
- name: vera
  role: viewer
  password: {HASH}
- name: eddie
  role: editor
  password: {HASH}
- name: ada
  role: admin
  password: {HASH}
- name: sam
  role: shop
  password: {HASH}
tokens: tokens.json
proxy:
  addresses: [10.0.0.0/8]
  roles: {{dev: editor}}
audit: {{file: audit.jsonl}}
"""


@lru_cache(maxsize=1)
def pages() -> Pages:
    """The files of the page, compressed once."""
    return Pages()


def opened(text: str, folder: Path, clock: Clock | None = None) -> Authenticator:
    """The verifier of an access file."""
    access = build_access(parse_config(text, "access.yaml"), folder)
    time = clock or ManualClock(NOW)
    return Authenticator(access, AuditLog(access.audit, time), time)


@contextmanager
def asked(
    access: Authenticator | None,
    store: Store | None = None,
    clock: Clock | None = None,
    alerts: Any = None,
    history: Store | None = None,
    alerts_token: str = "",
) -> Iterator[AsgiClient]:
    """A client of an application over the small store."""
    past = None if history is None else lambda: history
    time = clock or ManualClock(NOW)
    app = make_app(
        store or small_store(),
        lambda _: STATUS,
        time,
        access=access,
        alerts=alerts,
        history=past,
        pages=pages(),
        alerts_token=alerts_token,
    )
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    lifespan = app.router.lifespan_context(app)
    asyncio.run_coroutine_threadsafe(lifespan.__aenter__(), loop).result(20)
    try:
        yield AsgiClient(app, loop)
    finally:
        asyncio.run_coroutine_threadsafe(lifespan.__aexit__(None, None, None), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()
