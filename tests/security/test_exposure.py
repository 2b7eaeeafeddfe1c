"""Beyond loopback no listener of the platform serves people who have not said who they are, unless it is told so."""

from __future__ import annotations

import ast
import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

import pipeline.collector.collector_service as serving
import varstore.shard_process as shards
from alerts.api.engine_server import EngineServer
from artimon.api.api_server import ApiServer, run_server
from artimon.api.app import LOCAL_HOSTS, make_app, served_hosts
from artimon.api.matrix_service import MatrixServer
from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime.exposure import UnprotectedError, is_loopback, require_protection
from artimon.runtime.health import read_health, unpublished
from artimon.runtime.zookeeper_client import zookeeper_client
from artimon.stack.stack import Stack
from artimon.stack.stack_state import read_state
from bookkeeper.rpc.security import Security
from pipeline.collector.collector import Collector
from pipeline.collector.collector_process import CollectorConfig, server_of
from pipeline.collector.hdfs.hdfs_collector import HdfsCollectorConfig, run_hdfs_collector
from pipeline.flows.context import INSECURE
from pipeline.flows.options import FramedOptions, ServerOptions
from pipeline.flows.registry import Component, ComponentKind
from pipeline.flows.runtime.builtin_components import builtin_registry
from pipeline.flows.runtime.flows import Flows, open_flows
from pipeline.flows.sources import byte_server as flow_protection
from tests.api.serving import STATUS, small_app, small_store
from tests.security.serving import tokens
from tests.waiting import eventually

NOBODY = "127.0.0.1:1"
EVERYWHERE = ("0.0.0.0", "::")
SECRET = "a token of sixteen and more characters"


@pytest.fixture
def required(tmp_path: Path) -> Security:
    return tokens(tmp_path / "tokens", SECRET)


# --- the rule


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("127.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("0", False),
        ("", False),
        ("::", False),
        ("10.1.2.3", False),
        ("fe80::1", False),
        ("2001:db8::1", False),
        ("::ffff:10.1.2.3", False),
        ("no-such-host.invalid", False),
        ("a b", False),
    ],
)
def test_addresses_that_other_machines_reach(host: str, local: bool) -> None:
    assert is_loopback(host) is local


def test_a_name_is_judged_by_all_of_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver that this test has in its hand: no name of this machine is sure to have two addresses."""
    known = {"inside": ["127.0.0.1", "::1"], "both": ["127.0.0.1", "10.0.0.5"], "outside": ["2001:db8::5"]}
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_, **__: [(0, 0, 0, "", (ip, 0)) for ip in known[host]])
    assert [is_loopback(name) for name in known] == [True, False, False]


def test_what_counts_as_authentication(tmp_path: Path, required: Security) -> None:
    """Modes that let in peers without a certificate or token are for changing over, and protect nothing yet."""
    assert require_protection("x", "0.0.0.0", required, insecure=False) == []
    assert require_protection("x", "127.0.0.1", None, insecure=False) == []
    for mode in ("accept", "prefer"):
        open_to_all = tokens(tmp_path / "more", SECRET, mode=mode)
        with pytest.raises(
            UnprotectedError, match=r"x does not start: '::' is reachable from other machines.*--insecure"
        ):
            require_protection("x", "::", open_to_all, insecure=False)
        assert require_protection("x", "::", open_to_all, insecure=True) == [
            "x serves every client that reaches '::' (--insecure)"
        ]


# --- each listener

Start = Callable[[str, Security | None, bool], Any]


def _collector(host: str, security: Security | None, insecure: bool) -> list[str]:
    config = CollectorConfig("0", NOBODY, NOBODY, host=host, insecure=insecure)
    server = server_of(Collector(cast(Any, None)), config)
    service = serving.CollectorService(server, config, zookeeper_client(NOBODY), SYSTEM_CLOCK, unpublished)
    service.stop(lambda: None)
    return service.warnings


def _shard(host: str, security: Security | None, insecure: bool) -> list[str]:
    config = shards.ShardConfig("0", ("0",), NOBODY, NOBODY, host=host, capacity=10, insecure=insecure)
    return shards.ShardProcess(config).warnings


def _api(host: str, security: Security | None, insecure: bool) -> list[str]:
    return ApiServer(small_app(), host=host, insecure=insecure).warnings


def _alerts(host: str, security: Security | None, insecure: bool) -> list[str]:
    return EngineServer(cast(Any, None), host, token=None, insecure=insecure).warnings


def _matrix(host: str, security: Security | None, insecure: bool) -> list[str]:
    return MatrixServer(small_app().state.desk, host, insecure=insecure).warnings


@pytest.fixture
def process_security(monkeypatch: pytest.MonkeyPatch) -> Callable[[Security | None], None]:
    """Sets what ARTIMON_TLS_* and ARTIMON_TOKENS would say; a process reads it once."""

    def put(security: Security | None) -> None:
        for module in (serving, shards, flow_protection):
            monkeypatch.setattr(module, "security", lambda: security)

    return put


@pytest.mark.parametrize("host", EVERYWHERE)
@pytest.mark.parametrize("start", [_collector, _shard, _api, _alerts, _matrix])
def test_no_service_starts_open_to_all(
    start: Start, host: str, process_security: Callable[[Security | None], None]
) -> None:
    process_security(None)
    with pytest.raises(UnprotectedError, match="--insecure"):
        start(host, None, False)
    (warning,) = start(host, None, True)
    assert host in warning
    assert start("127.0.0.1", None, False) == []


@pytest.mark.parametrize("start", [_collector, _shard])
def test_services_with_tokens_start(
    start: Start, required: Security, process_security: Callable[[Security | None], None]
) -> None:
    process_security(required)
    assert start("0.0.0.0", required, False) == []


@pytest.mark.parametrize("start", [_api, _matrix])
def test_tokens_of_processes_are_no_login_for_people(
    start: Start, required: Security, process_security: Callable[[Security | None], None]
) -> None:
    process_security(required)
    with pytest.raises(UnprotectedError, match="it has no login"):
        start("0.0.0.0", required, False)


def test_a_collector_that_writes_files_does_not_start_either(tmp_path: Path) -> None:
    config = HdfsCollectorConfig("0", NOBODY, f"file://{tmp_path}", host="0.0.0.0")
    with pytest.raises(UnprotectedError, match="collector 0 does not start"):
        run_hdfs_collector(config, threading.Event())


def test_an_insecure_api_serves_other_machines_and_says_so(tmp_path: Path) -> None:
    """Over the name of this machine, as another one would; a name that nobody told it stays refused."""
    stop, file = threading.Event(), tmp_path / "api.json"
    app = make_app(small_store(), lambda _: dict(STATUS), SYSTEM_CLOCK, hosts=served_hosts("0.0.0.0", ["metrics.test"]))
    options = {"host": "0.0.0.0", "insecure": True}
    thread = threading.Thread(target=run_server, args=(app, 0, file, stop), kwargs=options)
    thread.start()
    try:
        eventually(lambda: (said := read_health(file)) is not None and said.state == "ok", "it serves")
        said = read_health(file)
        assert said is not None
        figures = said.figures
        assert [text.partition(" serves ")[0] for text in figures["warnings"]] == [
            "the API with the page",
            "the service Matrix",
        ]
        own = next(iter(_own_addresses()), "127.0.0.1")
        statuses = {name: _status(own, figures["port"], name) for name in (own, "metrics.test", "evil.test")}
        assert statuses == {own: 200, "metrics.test": 200, "evil.test": 400}
    finally:
        stop.set()
        thread.join(20)


def test_the_page_is_served_over_ipv6() -> None:
    server = ApiServer(
        make_app(small_store(), lambda _: dict(STATUS), SYSTEM_CLOCK, hosts=served_hosts("::1")), host="::1"
    )
    server.start()
    try:
        assert _status("::1", server.port, "[::1]") == 200
    finally:
        server.stop()


def test_names_by_which_the_page_is_served() -> None:
    assert served_hosts("127.0.0.1") == sorted(LOCAL_HOSTS)
    assert served_hosts("::1") == ["127.0.0.1", "[::1]", "localhost"]
    assert {socket.gethostname().lower(), "10.0.0.5", "metrics"} <= set(served_hosts("10.0.0.5", ["Metrics"]))
    assert _own_addresses() <= set(served_hosts("0.0.0.0"))


def _own_addresses() -> set[str]:
    found = (one for many in psutil.net_if_addrs().values() for one in many if one.family == socket.AF_INET)
    return {one.address for one in found if not one.address.startswith("127.")}


def _status(host: str, port: int, name: str) -> int:
    connection = http.client.HTTPConnection(host, port, timeout=10)
    connection.request("GET", "/api/health", headers={"Host": f"{name}:{port}"})
    try:
        return connection.getresponse().status
    finally:
        connection.close()


# --- sources of flows


def _listening() -> list[Component]:
    """Sources that listen, by their options."""
    return [one for one in _sources() if issubclass(one.options, ServerOptions)]


def _sources() -> list[Component]:
    registry = builtin_registry()
    return [registry.find(ComponentKind.SOURCE, name) for name in registry.names(ComponentKind.SOURCE)]


@pytest.fixture
def flows(tmp_path: Path) -> Iterator[Callable[..., Flows]]:
    made: list[Flows] = []

    def start(kind: str, host: str, insecure: bool) -> Flows:
        file = tmp_path / f"{len(made)}.toml"
        file.write_text(
            f'[[flow]]\nname = "f"\n[flow.source]\ntype = "{kind}"\nhost = "{host}"\n[flow.sink]\ntype = "null"\n'
        )
        found = open_flows(file, "a", tmp_path / str(len(made)), NOBODY)
        found.share_object(INSECURE, insecure)
        made.append(found)
        found.start()
        eventually(lambda: found.report()[0]["state"] in ("running", "error"), "it has started, or not")
        return found

    yield start
    for one in made:
        one.stop()


@pytest.mark.parametrize("component", _listening(), ids=lambda one: one.name)
def test_sources_of_flows_hold_the_rule(
    component: Component,
    flows: Callable[..., Flows],
    required: Security,
    process_security: Callable[[Security | None], None],
) -> None:
    process_security(None)
    refused = flows(component.name, "0.0.0.0", False)
    assert refused.fault().startswith("flow f: the source of flow f does not start: '0.0.0.0'")
    allowed = flows(component.name, "0.0.0.0", True)
    assert allowed.fault() == ""
    assert allowed.figures()["warnings"] == [
        "the source of flow f serves every client that reaches '0.0.0.0' (--insecure)"
    ]
    process_security(required)
    asked = flows(component.name, "0.0.0.0", False)
    assert (asked.fault() == "") is issubclass(component.options, FramedOptions), "the others ask for nothing"


def test_a_source_with_an_address_uses_the_common_options() -> None:
    """So that the rule sees it: see pipeline/flows/sources/byte_server.py."""
    listening = _listening()
    assert {"agent", "http", "netcat", "syslog", "thrift"} <= {one.name for one in listening}
    others = [one for one in _sources() if one not in listening]
    assert [one.name for one in others if {"host", "port", "bind", "listen"} & set(one.options.model_fields)] == []


# --- nobody is left out

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("artimon", "alerts", "bookkeeper", "pipeline", "query_dsl", "sources", "varstore")
LISTENS = frozenset(
    {"create_server", "start_server", "start_unix_server", "create_datagram_endpoint", "listen", "FramedServer"}
    | {"HTTPServer", "ThreadingHTTPServer", "TCPServer", "UDPServer", "ThreadingTCPServer", "make_server"}
)
CHECKED = {
    "artimon/api/matrix_service.py",
    "varstore/shard_process.py",
}
"""They ask for protection themselves."""
ELSEWHERE = {
    "pipeline/collector/link_server.py": "pipeline/collector/collector_service.py, which starts it, asks",
    "pipeline/flows/sources/http_source.py": "byte_server.py beside it asks for every source with such options",
    "pipeline/flows/sources/byte_server.py": "as http.py",
    "pipeline/flows/sources/syslog_source.py": "as http.py",
    "artimon/runtime/http/http_server.py": "artimon/api/api_server.py, alerts/api and sources/receive ask",
    "sources/receive/line_listener.py": "sources/receive/receiver.py, which makes it, asks",
    "artimon/stack/port_leases.py": "looks whether a port of loopback is free",
    "artimon/stack/smtp.py": "a constant: loopback",
    "bookkeeper/rpc/framed_server.py": "the server that the others are made of",
    "bookkeeper/process/process_endpoint.py": "applications must be reached by agents: docs/security.md",
    "bookkeeper/export/metrics_server.py": "off unless the application asks for it, on loopback by default",
}


def _listens(path: Path) -> bool:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef) and LISTENS & {_name(base) for base in node.bases}:
            return True
        if not isinstance(node, ast.Call):
            continue
        # a socket's bind takes one address
        binds = _name(node.func) == "bind" and isinstance(node.func, ast.Attribute) and len(node.args) == 1
        if _name(node.func) in LISTENS or (binds and isinstance(node.args[0], ast.Tuple)):
            return True
    return False


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def test_every_listener_is_known() -> None:
    """A new listener calls `require_protection` or is listed here with the reason why it need not."""
    found = {str(path.relative_to(ROOT)) for name in PACKAGES for path in (ROOT / name).rglob("*.py") if _listens(path)}
    assert found == CHECKED | ELSEWHERE.keys()
    asking = ("alerts/api/engine_server.py", "pipeline/flows/sources/byte_server.py")
    for name in (*CHECKED, *asking, "pipeline/collector/collector_service.py"):
        assert "require_protection(" in (ROOT / name).read_text(), name


def _connections(process: psutil.Process) -> list[Any]:
    """Its sockets; none if it has ended, as short programs of the stack do."""
    try:
        return list(process.net_connections("inet"))
    except psutil.NoSuchProcess:
        return []


@pytest.mark.stack
def test_the_stack_listens_on_loopback_alone(whole_stack: Stack) -> None:
    """Every socket of every process of the stack, those of its JVMs and of Spark's workers too."""
    state = read_state(whole_stack.data)
    assert state is not None
    parts = {part.pid: part.name for part in state.parts if part.pid}
    sockets = [
        (parts.get(process.pid, f"child {process.name()}"), connection.laddr.ip)
        for pid in (state.pid, *parts)
        for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        for connection in _connections(process)
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(sockets) >= 12
    assert [one for one in sockets if not is_loopback(one[1].removeprefix("::ffff:"))] == []
