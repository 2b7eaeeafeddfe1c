"""Listener of the API of an engine: who may ask, limits, and answers over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from alerts.api.handlers import AlertHandlers, ApiRequest
from alerts.state.operations import MAX_AUTHOR, OperationError
from artimon.access.authenticator import Authenticator
from artimon.access.principal import LOCAL, Level, LoginMethod, Principal, Role, acting_as
from artimon.runtime.exposure import is_loopback, require_protection
from artimon.runtime.http.body_limit import HEADERS, BodyLimitMiddleware, send_answer
from artimon.runtime.http.engine_client import FORWARDED_HEADER
from artimon.runtime.http.http_limits import HttpError, HttpLimits
from artimon.runtime.http.http_server import HOST, HttpServer
from sources.receive.listener import SenderToken

log = logging.getLogger(__name__)

LIMITS = HttpLimits(body_bytes=8 * 1024 * 1024, body_s=30.0, connections=64)
MAX_FIELDS = 100
"""Parameters of a URL."""
MAX_RUNNING = 4
"""Requests that are answered at once; the others wait."""
AUTHOR_HEADER = b"x-artimon-author"
REMEDY = "give --api-token, or --access with url: https://... of a proxy that ends TLS, or listen on 127.0.0.1"
ENGINE = Principal("engine", Role("engine", Level.ADMIN), LoginMethod.ENGINE)
"""Holder of the token of the engine: another engine of a pair, or a command."""


class EngineServer:
    """HTTP server of the API; `start` once, `stop` once.

    `token`: file with a token that may do everything, and that engines of a pair present to each other; None: no token.
    `access`: verifier of users and their tokens; None: no users. Raises UnprotectedError if other machines reach `host`
    without either, unless `insecure`; SettingsError for an unusable token."""

    def __init__(
        self,
        handlers: AlertHandlers,
        host: str = HOST,
        port: int = 0,
        *,
        token: Path | None,
        insecure: bool = False,
        access: Authenticator | None = None,
    ) -> None:
        self._handlers, self._host, self._access = handlers, host, access
        self._token = None if token is None else SenderToken(token, "--api-token")
        self.token = "" if token is None else token.read_text(encoding="ascii").strip()
        """Token that the engines of a pair present to each other."""
        self.warnings: list[str] = []
        if self._token is None and not (access and access.access.url.startswith("https://")):
            self.warnings = require_protection(
                "the API of the alert engine", host, None, insecure=insecure, remedy=REMEDY
            )
        self._names = _names(host)
        self._running = ThreadPoolExecutor(MAX_RUNNING, "alerts api")
        self._server = HttpServer(BodyLimitMiddleware(self._serve, LIMITS), LIMITS, host, port, lifespan=False)

    @property
    def address(self) -> str:
        """Return host:port once it listens."""
        return f"[{self._host}]:{self._server.port}" if ":" in self._host else f"{self._host}:{self._server.port}"

    def start(self) -> None:
        """Listen and serve. Raises OSError if the port is in use."""
        self._server.start()

    def stop(self) -> None:
        """Stop listening; running answers end."""
        self._server.stop()
        self._running.shutdown(wait=False, cancel_futures=True)

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            request = self._request(scope, (await receive())["body"])
            loop = asyncio.get_running_loop()
            status, body = 200, await loop.run_in_executor(self._running, self._answer, request, scope)
        except (OperationError, HttpError) as problem:
            status, body = problem.status, json.dumps(str(problem)).encode()
        except Exception as error:  # a full disk, or a defect: this request only
            log.exception("alerts API")
            status, body = 500, json.dumps(f"{type(error).__name__}: {error}").encode()
        await send_answer(send, status, body, HEADERS)

    def _answer(self, request: ApiRequest, scope: Mapping[str, Any]) -> bytes:
        principal = self._principal(scope)
        with acting_as(principal):
            found = self._handlers.answer(self._attributed(request, principal))
        return b"" if found is None else json.dumps(found).encode()

    def _principal(self, scope: Mapping[str, Any]) -> Principal:
        """Return who asks, in a thread, because a password takes long to verify. Raises HttpError."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if self._token is not None and self._token.admits(headers.get(b"authorization", b"")):
            return ENGINE
        if self._access is None:
            if self._token is None:
                return LOCAL
            raise HttpError(401, "the header Authorization must be 'Bearer' and the token of this engine")
        given = self._access.credentials(headers, str((scope.get("client") or ("",))[0]))
        found = self._access.identify(given)
        principal = found() if callable(found) else found
        if principal is None:
            raise HttpError(401, "send a token: Authorization: Bearer TOKEN (docs/access.md)")
        return principal

    def _attributed(self, request: ApiRequest, principal: Principal) -> ApiRequest:
        """Return the request with the name of its user: who has logged in cannot act under another name."""
        if principal in (ENGINE, LOCAL):
            return request
        body = request.body
        if request.method == "POST" and isinstance(given := _parsed(body), dict):
            body = json.dumps({**given, "createdBy": principal.user}).encode()
        return replace(request, author=principal.user, body=body)

    def _request(self, scope: Mapping[str, Any], body: bytes) -> ApiRequest:
        """Return a request that may be answered. Raises HttpError."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if self._names and _host_of(headers.get(b"host", b"")) not in self._names:
            raise HttpError(400, "the header Host names another server")
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if scope["method"] == "POST" and kind != b"application/json":  # what a page of another site cannot send
            raise HttpError(415, "send JSON with the header Content-Type: application/json")
        try:
            query = parse_qs(scope["query_string"].decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS)
        except ValueError:
            raise HttpError(400, f"the URL has no valid query of at most {MAX_FIELDS} parameters") from None
        given = headers.get(AUTHOR_HEADER, b"").decode("utf-8", "replace").strip()[:MAX_AUTHOR]
        client = str((scope.get("client") or ("an unknown address",))[0])
        path, forwarded = str(scope["path"]).rstrip("/"), FORWARDED_HEADER.lower().encode() in headers
        return ApiRequest(scope["method"], path, query, body, given or client, forwarded)


def _parsed(body: bytes) -> Any:
    """Return a body of JSON; None for anything else, which the handler refuses."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _host_of(header: bytes) -> str:
    name = header.decode("latin-1").lower()
    return name.partition("]")[0] + "]" if name.startswith("[") else name.partition(":")[0]


def _names(host: str) -> frozenset[str]:
    """Return the accepted names in the header Host, against DNS rebinding; beyond loopback the token protects."""
    if not is_loopback(host):
        return frozenset()
    shown = f"[{host}]" if ":" in host else host.lower()
    return frozenset({"localhost", "127.0.0.1", "[::1]", shown, socket.gethostname().lower()})
