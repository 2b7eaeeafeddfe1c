"""A real server on a free port over a small store, and a client that says little."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

from fastapi import FastAPI

from artimon.api.api_limits import ApiLimits
from artimon.api.api_server import ApiServer
from artimon.api.app import make_app
from artimon.api.fleet_status import FleetPage
from artimon.api.matrix_service import MatrixServer
from artimon.api.pages import Pages
from artimon.api.query_executor import QueryExecutor
from artimon.dashboards.dashboard_store import DashboardStore
from artimon.model.clock import Clock, ManualClock
from artimon.model.select import Store
from artimon.model.values import Kind
from query_dsl.evaluation.host_acks import LiveAgents
from query_dsl.promql.promql_settings import PromqlSettings
from tests.query_dsl.plain_store import MINUTE, PlainStore
from tests.sockets import to_end

V = TypeVar("V")
NOW = 1_700_000_100_000
EDGE = NOW // MINUTE * MINUTE
STATUS: Mapping[str, Any] = {"healthy": True, "hops": [{"name": "agent: accepted", "count": 7}], "shards": {"0": {}}}


def minutes(values: Sequence[V], last: int = 0) -> list[tuple[int, V]]:
    """Samples a minute apart, the newest `last` minutes ago."""
    return [(EDGE - (len(values) - 1 - i + last) * MINUTE - 1, value) for i, value in enumerate(values)]


def small_store() -> PlainStore:
    """Two routes counting up by 60 a minute, a value that is NaN, one that is missing now and then."""
    counting = [(EDGE - i * MINUTE - 1, 60_000 - 60 * i) for i in range(30)]
    store = PlainStore()
    store.add("http.requests", {"route": "/"}, counting, Kind.COUNTER, birth=EDGE - 60 * MINUTE)
    store.add("http.requests", {"route": "/a"}, counting, Kind.COUNTER, birth=EDGE - 60 * MINUTE)
    store.add("heat", {}, [(EDGE - MINUTE - 1, float("nan")), (EDGE - 3 * MINUTE - 1, 20.5)], Kind.GAUGE)
    return store


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return str(self.json["error"]["message"])


@dataclass(frozen=True, slots=True)
class Client:
    """`thrift_port` and `desk` are those of a server of this process."""

    port: int
    thrift_port: int = 0
    desk: QueryExecutor | None = None

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, dict(headers or {}))
            found = connection.getresponse()
            return Answer(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read())
        finally:
            connection.close()

    def get(self, path: str, **parameters: object) -> Answer:
        return self.send("GET", f"{path}?{urlencode(parameters)}" if parameters else path)

    def ask(self, text: str, **parameters: object) -> Answer:
        return self.get("/api/query", q=text, **parameters)

    def raw(self, sent: bytes) -> socket.socket:
        """A connection on which `sent` was sent."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        connection.sendall(sent)
        return connection


def everything(connection: socket.socket) -> bytes:
    """All that comes until the other side closes; then the connection is closed here too."""
    with connection:
        return to_end(connection)


def small_app() -> FastAPI:
    """The application over the small store."""
    return make_app(small_store(), lambda _: STATUS, ManualClock(NOW))


@contextmanager
def served(
    store: Store | None = None,
    limits: ApiLimits | None = None,
    status: Callable[[FleetPage], Mapping[str, Any]] = lambda _: STATUS,
    alerts: Callable[[], Mapping[str, Any]] | None = None,
    pages: Pages | None = None,
    clock: Clock | None = None,
    history: Callable[[], Store] | None = None,
    promql: PromqlSettings | None = None,
    dashboards: DashboardStore | None = None,
    configuration: Callable[[], Mapping[str, Any]] | None = None,
    agents: LiveAgents | None = None,
) -> Iterator[Client]:
    """A server for as long as the block lasts."""
    bounds = limits or ApiLimits()
    time = clock or ManualClock(NOW)
    app = make_app(
        store or small_store(),
        status,
        time,
        bounds,
        alerts=alerts,
        pages=pages,
        history=history,
        promql=promql,
        dashboards=dashboards,
        configuration=configuration,
        agents=agents,
    )
    server, matrices = ApiServer(app, bounds), MatrixServer(app.state.desk)
    server.start()
    try:
        matrices.start()
        yield Client(server.port, matrices.port, app.state.desk)
    finally:
        matrices.stop()
        server.stop()
