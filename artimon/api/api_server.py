"""Process of the API: uvicorn in a separate thread, health checks from outside its event loop."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from artimon.api.api_limits import ApiLimits
from artimon.api.connection import protocol_with
from artimon.api.matrix_service import MatrixServer
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.runtime.exposure import KEEP_LOCAL, family_of, require_protection
from artimon.runtime.gc_tuning import gc_tuned
from artimon.runtime.health import HealthFile, Publish, unpublished

HOST = "127.0.0.1"
BACKLOG = 128
HEALTH_PERIOD_S = 1.0
HEALTH_TIMEOUT_S = 5.0
STOP_S = 5


class ApiServer:
    """HTTP server of an application; `start` once, `stop` once."""

    def __init__(
        self, app: FastAPI, limits: ApiLimits | None = None, host: str = HOST, port: int = 0, *, insecure: bool = False
    ) -> None:
        """Raises Unprotected if other machines reach `host` (the API has no authentication), unless `insecure`."""
        self.warnings = require_protection("the API with the page", host, None, insecure=insecure, remedy=KEEP_LOCAL)
        bounds = limits or ApiLimits()
        config = uvicorn.Config(
            app,
            http=protocol_with(bounds),
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=bounds.connections,
            timeout_keep_alive=max(1, round(bounds.idle_s)),
            timeout_graceful_shutdown=STOP_S,
            h11_max_incomplete_event_size=bounds.header_bytes,
        )
        self._host, self._requested_port = host, port
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="api", daemon=True)
        self.port = 0

    def start(self) -> None:
        """Listen and serve. Raises OSError if the port is in use."""
        self._socket = socket.create_server(
            (self._host, self._requested_port), family=family_of(self._host), backlog=BACKLOG
        )
        self.port = int(self._socket.getsockname()[1])
        self._thread.start()

    def _serve(self) -> None:
        asyncio.run(self._server.serve([self._socket]))

    def problem(self) -> str:
        """Return "" if the server answers, else the problem. Takes at most some seconds."""
        if not self._thread.is_alive():
            return "the server thread has ended"
        connection = http.client.HTTPConnection(self._host, self.port, timeout=HEALTH_TIMEOUT_S)
        try:
            connection.request("GET", "/api/health")
            connection.getresponse().read(4096)  # any status counts, "too many connections" too
        except (OSError, http.client.HTTPException) as error:
            return f"the health check failed: {error!r}"
        finally:
            connection.close()
        return ""

    def stop(self) -> None:
        """Stop listening and let running answers finish, for at most some seconds."""
        self._server.should_exit = True
        self._thread.join(2 * STOP_S)
        self._socket.close()


def run_server(
    app: FastAPI,
    port: int,
    health: Path | None,
    stop: threading.Event,
    clock: Clock = SYSTEM_CLOCK,
    publish: Publish = unpublished,
    thrift_port: int = 0,
    host: str = HOST,
    *,
    insecure: bool = False,
) -> None:
    """Serve HTTP and Thrift with the limits of `app` until `stop`. Raises OSError if a port is in use, Unprotected if
    other machines reach `host`, unless `insecure`."""
    server = ApiServer(app, app.state.desk.limits, host, port, insecure=insecure)
    matrices = MatrixServer(app.state.desk, host, thrift_port, insecure=insecure)
    file = HealthFile(health, "api", clock, publish)
    server.start()
    with gc_tuned():
        try:
            matrices.start()
            ports = {"port": server.port, "thrift_port": matrices.port}
            warnings = [*server.warnings, *matrices.warnings]
            while not stop.is_set():
                problem, figures = server.problem(), app.state.counts.figures()
                file.write("failing" if problem else "ok", problem, **ports, warnings=warnings, **figures)
                clock.wait(stop, HEALTH_PERIOD_S)
        finally:
            matrices.stop()
            server.stop()
