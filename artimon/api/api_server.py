"""Process of the API: the HTTP server, health checks from outside its event loop."""

from __future__ import annotations

import http.client
import ssl
import threading
from pathlib import Path

from fastapi import FastAPI

from artimon.access.authenticator import Authenticator
from artimon.access.server_tls import ServerTls
from artimon.api.api_limits import ApiLimits
from artimon.api.matrix_service import MatrixServer
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.runtime.exposure import ENCRYPT, KEEP_LOCAL, require_protection
from artimon.runtime.health import REPEAT_S, HealthFile, Publish, unpublished
from artimon.runtime.http.http_server import HOST, HttpServer
from artimon.runtime.process_setup import gc_tuned
from artimon.runtime.settings import security

HEALTH_TIMEOUT_S = 5.0
RECHECK_S = 1.0
"""Interval of the checks after one that failed."""


class ApiServer(HttpServer):
    """HTTP server of the API."""

    def __init__(
        self, app: FastAPI, limits: ApiLimits | None = None, host: str = HOST, port: int = 0, *, insecure: bool = False
    ) -> None:
        """Raises UnprotectedError if `host` is not of this machine and login or TLS is missing, unless `insecure`;
        SettingsError for an unusable certificate."""
        found: Authenticator | None = app.state.authenticator
        access = found.access if found else None
        self.warnings = []
        if access is None or not access.is_encrypted:
            remedy = ENCRYPT if access else KEEP_LOCAL
            self.warnings = require_protection("the API with the page", host, None, insecure=insecure, remedy=remedy)
        certificate, key = (access.certificate, access.key) if access else (None, None)
        self.tls = ServerTls(certificate, key) if certificate and key else None
        tls = self.tls.context if self.tls else None
        super().__init__(app, limits or ApiLimits(), host, port, name="api", tls=tls)

    def problem(self) -> str:
        """Return "" if the server answers, else the problem. Takes at most some seconds."""
        if not self.is_alive:
            return "the server thread has ended"
        if self.tls is not None:
            self.tls.reload()
            own = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            own.check_hostname, own.verify_mode = (
                False,
                ssl.CERT_NONE,
            )  # it asks itself
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self.host, self.port, timeout=HEALTH_TIMEOUT_S, context=own
            )
        else:
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
    matrices = MatrixServer(
        app.state.desk, host, thrift_port, insecure=insecure, access=app.state.authenticator, security=security()
    )
    file = HealthFile(health, "api", clock, publish)
    server.start()
    with gc_tuned():
        try:
            matrices.start()
            ports = {"port": server.port, "thrift_port": matrices.port}
            warnings = [*server.warnings, *matrices.warnings]
            while not stop.is_set():
                problem, figures = server.problem(), {**app.state.counts.figures(), **_access_figures(app)}
                file.write("failing" if problem else "ok", problem, **ports, warnings=warnings, **figures)
                clock.wait(stop, RECHECK_S if problem else REPEAT_S)
        finally:
            matrices.stop()
            server.stop()


def _access_figures(app: FastAPI) -> dict[str, int]:
    """Return counters of the login and of the audit log for the health file."""
    found: Authenticator | None = app.state.authenticator
    if found is None:
        return {}
    audit = found.audit
    return {"logins_refused": found.failures.refused, "audit_written": audit.written, "audit_failed": audit.failed}
