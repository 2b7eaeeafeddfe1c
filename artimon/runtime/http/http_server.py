"""uvicorn in a separate thread, with the limits of slow clients."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from typing import Any

import uvicorn
import uvloop

from artimon.runtime.exposure import family_of
from artimon.runtime.http.deadline_protocol import ClientCheck, protocol_with
from artimon.runtime.http.http_limits import HttpLimits

HOST = "127.0.0.1"
BACKLOG = 128
STOP_S = 5
HANDSHAKE_S = 10.0
"""Time for a TLS handshake in seconds, like that for headers; the default of 60 s would let silent clients hold
sockets."""


class HttpServer:
    """HTTP server of an ASGI application; `start` once, `stop` once. `tls` None: plain HTTP."""

    def __init__(
        self,
        app: Any,
        limits: HttpLimits,
        host: str = HOST,
        port: int = 0,
        *,
        name: str = "http",
        tls: ssl.SSLContext | None = None,
        lifespan: bool = True,
        clients: ClientCheck | None = None,
    ) -> None:
        """`lifespan`: the application handles the start and the end of the server. `clients`: check of certificates,
        if `tls` asks clients for theirs."""
        config = uvicorn.Config(
            app,
            http=protocol_with(limits, clients),
            ws="none",
            lifespan="on" if lifespan else "off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=limits.connections,
            timeout_keep_alive=max(1, round(limits.idle_s)),
            timeout_graceful_shutdown=STOP_S,
        )
        config.load()
        config.ssl = tls
        self.host, self._requested_port = host, port
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self.port = 0

    @property
    def is_alive(self) -> bool:
        """True while the server runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Listen and serve. Raises OSError if the port is in use."""
        self._socket = socket.create_server(
            (self.host, self._requested_port), family=family_of(self.host), backlog=BACKLOG
        )
        self.port = int(self._socket.getsockname()[1])
        self._thread.start()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=_ServerLoop) as runner:
            runner.run(self._server.serve([self._socket]))

    def stop(self) -> None:
        """Stop listening and let running answers finish, for at most some seconds."""
        self._server.should_exit = True
        self._thread.join(2 * STOP_S)
        self._socket.close()


class _ServerLoop(uvloop.Loop):
    """Event loop that limits the time of TLS handshakes, for which uvicorn has no setting."""

    async def create_server(self, *arguments: Any, **named: Any) -> Any:
        if named.get("ssl") is not None:
            named.setdefault("ssl_handshake_timeout", HANDSHAKE_S)
        return await super().create_server(*arguments, **named)
