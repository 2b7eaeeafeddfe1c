"""Process of the API: the HTTP server, health checks from outside its event loop."""

from __future__ import annotations

import http.client
import threading
from pathlib import Path

from fastapi import FastAPI

from artimon.api.api_limits import ApiLimits
from artimon.api.matrix_service import MatrixServer
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.runtime.exposure import KEEP_LOCAL, require_protection
from artimon.runtime.gc_tuning import gc_tuned
from artimon.runtime.health import HealthFile, Publish, unpublished
from artimon.runtime.http.http_server import HOST, HttpServer

HEALTH_PERIOD_S = 1.0
HEALTH_TIMEOUT_S = 5.0


class ApiServer(HttpServer):
    """HTTP server of the API."""

    def __init__(
        self, app: FastAPI, limits: ApiLimits | None = None, host: str = HOST, port: int = 0, *, insecure: bool = False
    ) -> None:
        """Raises UnprotectedError if other machines reach `host` (the API has no authentication), unless `insecure`."""
        self.warnings = require_protection("the API with the page", host, None, insecure=insecure, remedy=KEEP_LOCAL)
        super().__init__(app, limits or ApiLimits(), host, port, name="api")

    def problem(self) -> str:
        """Return "" if the server answers, else the problem. Takes at most some seconds."""
        if not self.is_alive:
            return "the server thread has ended"
        connection = http.client.HTTPConnection(self.host, self.port, timeout=HEALTH_TIMEOUT_S)
        try:
            connection.request("GET", "/api/health")
            connection.getresponse().read(4096)  # any status counts, "too many connections" too
        except (OSError, http.client.HTTPException) as error:
            return f"the health check failed: {error!r}"
        finally:
            connection.close()
        return ""


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
    """Serve HTTP and Thrift with the limits of `app` until `stop`. Raises OSError if a port is in use, UnprotectedError
    if other machines reach `host`, unless `insecure`."""
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
