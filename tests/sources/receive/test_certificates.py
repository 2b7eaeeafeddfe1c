"""Certificates and tokens of all receivers that speak TLS: HTTP, gRPC, and lines over TCP."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import grpc
import pytest

from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime.http import http_server
from artimon.runtime.settings import SettingsError
from bookkeeper.rpc import tls
from bookkeeper.rpc.security import Security
from bookkeeper.rpc.tls import Tls, TlsFiles
from sources.artimon_source import ArtimonSource
from sources.delivery.source_config import SourceConfig
from sources.receive.receiver import Receiver
from tests.security.certificates import Authority, Pair
from tests.security.serving import certificates
from tests.sockets import free_port
from tests.sources.helpers import KeepingSink, running
from tests.sources.receive.bodies import request_1, series_1
from tests.sources.receive.test_grpc import METHOD
from tests.sources.receive.test_otlp import body, metric, point
from tests.waiting import until

NOWHERE = "127.0.0.1:1"
TOKEN = "a token of 24 characters"
LISTENERS = {
    "http": "127.0.0.1:{}",
    "grpc": "otlp+grpc://127.0.0.1:{}",
    "statsd": "statsd+tcp://127.0.0.1:{}",
    "graphite": "graphite+tcp://127.0.0.1:{}",
    "influx": "influx+tcp://127.0.0.1:{}",
}
REFUSED = (OSError, http.client.HTTPException, grpc.RpcError)


@pytest.fixture(autouse=True)
def _look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "REFRESH_PERIOD_S", 0.0)


@dataclass(frozen=True)
class Client:
    """Authorities of servers ("": no TLS), own certificate, token."""

    authorities: str
    pair: Pair | None = None
    token: str = ""

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authorities)
        if self.pair is not None:
            context.load_cert_chain(self.pair.certificate, self.pair.key)
        return context

    def connect(self, port: int) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", port), timeout=30)
        return self.context().wrap_socket(sock, server_hostname="127.0.0.1") if self.authorities else sock

    def open_http(self, port: int) -> http.client.HTTPConnection:
        if not self.authorities:
            return http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        return http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=self.context())

    def post(self, port: int, path: str, content: bytes, headers: Mapping[str, str]) -> int:
        """Return the status."""
        connection = self.open_http(port)
        try:
            return self.post_on(connection, path, content, headers)
        finally:
            connection.close()

    def post_on(
        self, connection: http.client.HTTPConnection, path: str, content: bytes, headers: Mapping[str, str]
    ) -> int:
        authorization = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        connection.request("POST", path, content, {**headers, **authorization})
        answer = connection.getresponse()
        answer.read()
        return answer.status

    def remote_write(self, port: int, name: str) -> int:
        return self.post(port, "/api/v1/write", remote_write(name), REMOTE_WRITE)

    def remote_write_on(self, connection: http.client.HTTPConnection, name: str) -> int:
        return self.post_on(connection, "/api/v1/write", remote_write(name), REMOTE_WRITE)

    def otlp(self, port: int, name: str) -> int:
        return self.post(port, "/v1/metrics", load(name), {"Content-Type": "application/x-protobuf"})

    def influx(self, port: int, name: str) -> int:
        return self.post(port, "/write", f"{name} v=1".encode(), {})

    def call_grpc(self, port: int, name: str) -> int:
        metadata = (("authorization", f"Bearer {self.token}"),) if self.token else ()
        with self.channel(f"127.0.0.1:{port}") as channel:
            channel.unary_unary(METHOD)(load(name), metadata=metadata, timeout=30)
        return 200

    def channel(self, address: str) -> grpc.Channel:
        return grpc.secure_channel(address, self.credentials()) if self.authorities else grpc.insecure_channel(address)

    def credentials(self) -> grpc.ChannelCredentials:
        own: tuple[bytes | None, bytes | None] = (None, None)
        if self.pair is not None:
            own = (Path(self.pair.key).read_bytes(), Path(self.pair.certificate).read_bytes())
        return grpc.ssl_channel_credentials(Path(self.authorities).read_bytes(), *own)

    def lines(self, port: int, line: str) -> int:
        with self.connect(port) as sock:
            sock.sendall(line.encode() + b"\n")
        return 200


REMOTE_WRITE = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}


def remote_write(name: str) -> bytes:
    return request_1(series_1({"__name__": name}, [(SYSTEM_CLOCK.now_ms(), 1.0)]))


def load(name: str) -> bytes:
    return body(metric(name, "gauge", point(SYSTEM_CLOCK.now_ms(), asDouble=0.5)))


Send = Callable[[Client, int, str], int]
SENDS: Mapping[str, tuple[str, Send]] = {
    "remote_write": ("http", Client.remote_write),
    "otlp": ("http", Client.otlp),
    "influx_http": ("http", Client.influx),
    "grpc": ("grpc", Client.call_grpc),
    "statsd": ("statsd", lambda client, port, name: client.lines(port, f"{name}:1|c")),
    "graphite": ("graphite", lambda client, port, name: client.lines(port, f"{name} 1")),
    "influx": ("influx", lambda client, port, name: client.lines(port, f"{name} v=1")),
}


class Agent:
    def __init__(self, source: ArtimonSource, sink: KeepingSink, ports: Mapping[str, int]) -> None:
        self.source, self.sink, self.ports = source, sink, ports

    @property
    def receiver(self) -> Receiver:
        assert self.source._receiver is not None
        return self.source._receiver

    async def send(self, client: Client, kind: str, name: str) -> int:
        """Return the status, or that of a refused connection, 0."""
        listener, send = SENDS[kind]
        try:
            return await asyncio.to_thread(send, client, self.ports[listener], name)
        except REFUSED:
            return 0

    def names(self) -> set[str]:
        """Return the names of the samples that clients sent."""
        texts = {text for text, _, _, value in self.sink.samples() if value is not None}
        return {text.partition("{")[0].removesuffix(".v") for text in texts if text.startswith("x_")}

    def dropped(self) -> dict[str, int]:
        """Return what each listener dropped because of certificates."""
        names = dict(zip(self.ports, self.receiver._listeners, strict=True))
        counts = {name: sum(n for why, n in one.dropped.items() if "certif" in why) for name, one in names.items()}
        return {name: n for name, n in counts.items() if n}


@asynccontextmanager
async def receiving(
    place: Path, security: Security, token: Path | None = None, kinds: tuple[str, ...] = tuple(LISTENERS)
) -> AsyncIterator[Agent]:
    sink, ports = KeepingSink(), {kind: free_port() for kind in kinds}
    addresses = tuple(LISTENERS[kind].format(port) for kind, port in ports.items())
    async with running(NOWHERE, place, sink, receive=addresses, receive_token=token, security=security) as source:

        def listens(port: int) -> bool:
            with socket.socket() as client:
                return client.connect_ex(("127.0.0.1", port)) == 0

        await until(lambda: all(map(listens, ports.values())), "the listeners")
        yield Agent(source, sink, ports)


def test_only_clients_with_an_admitted_certificate_are_taken(
    authority: Authority, server_pair: Pair, tmp_path: Path
) -> None:
    """Each of the others, by each protocol; none of their samples is there, and the good ones of all protocols are."""
    other = Authority(tmp_path / "other")
    good = Client(authority.certificate, authority.sign("agent-1", "DNS:agent-1.artimon"))
    bad = {
        "without_tls": Client(""),
        "without_certificate": Client(authority.certificate),
        "stranger": Client(authority.certificate, other.sign("agent-1", "DNS:agent-1.artimon")),
        "expired": Client(authority.certificate, authority.sign("agent-2", "DNS:agent-2.artimon", expired=True)),
        "other_name": Client(authority.certificate, authority.sign("web-1", "DNS:web-1.shop")),
        "other_server": Client(other.certificate, good.pair),
    }

    async def whole() -> None:
        security = certificates(authority, server_pair, peers=("agent-*.artimon",))
        async with receiving(tmp_path / "data", security) as agent:
            for who, client in bad.items():
                for kind in SENDS:
                    status = await agent.send(client, kind, f"x_{who}_{kind}")
                    assert status == 0 or SENDS[kind][0] in ("statsd", "graphite", "influx"), (who, kind)
            for kind in SENDS:
                assert await agent.send(good, kind, f"x_good_{kind}") in (200, 204), kind
            await until(lambda: len(agent.names()) >= len(SENDS), "the good samples")
            assert agent.names() == {f"x_good_{kind}" for kind in SENDS}
            assert agent.dropped() == {"http": 3, "statsd": 1, "graphite": 1, "influx": 1}

    asyncio.run(whole())


def test_a_token_is_asked_for_besides(authority: Authority, server_pair: Pair, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    pair = authority.sign("agent-3", "DNS:agent-3.artimon")
    security = certificates(authority, server_pair)

    async def whole() -> None:
        async with receiving(tmp_path / "data", security, file, ("http", "grpc")) as agent:
            for token, status in (("", 401), (f"{TOKEN}x", 401), (TOKEN, 204)):
                client = Client(authority.certificate, pair, token)
                assert await agent.send(client, "remote_write", "x_a") == status
                assert (await agent.send(client, "grpc", "x_b") == 200) == (token == TOKEN)
            assert await agent.send(Client(authority.certificate, token=TOKEN), "remote_write", "x_c") == 0
            assert agent.names() == {"x_a", "x_b"}

    asyncio.run(whole())


def copied(pair: Pair, authorities: str, folder: Path) -> None:
    """Put the files of a server in place, each at once."""
    for source, name in ((pair.certificate, "own.pem"), (pair.key, "own.key"), (authorities, "ca.pem")):
        shutil.copy(source, folder / f"{name}.new")
        (folder / f"{name}.new").replace(folder / name)


def test_replaced_files_hold_for_new_connections_and_end_old_ones(
    authority: Authority, server_pair: Pair, tmp_path: Path
) -> None:
    """Without a restart."""
    other = Authority(tmp_path / "other")
    before = Client(authority.certificate, authority.sign("agent-4", "DNS:agent-4.artimon"))
    after = Client(other.certificate, other.sign("agent-4", "DNS:agent-4.artimon"))
    copied(server_pair, authority.certificate, tmp_path)
    files = TlsFiles(str(tmp_path / "own.pem"), str(tmp_path / "own.key"), str(tmp_path / "ca.pem"))

    async def whole() -> None:
        async with receiving(tmp_path / "data", Security(Tls(files))) as agent:
            kept, lines = before.open_http(agent.ports["http"]), before.connect(agent.ports["graphite"])
            lines.sendall(b"x_line_1 1\n")
            assert await asyncio.to_thread(before.remote_write_on, kept, "x_kept_1") == 204
            await until(lambda: agent.names() == {"x_line_1", "x_kept_1"}, "both")
            copied(other.sign("collector-2"), other.certificate, tmp_path)
            for kind in SENDS:
                assert await agent.send(after, kind, f"x_after_{kind}") in (200, 204), kind
                await agent.send(before, kind, f"x_before_{kind}")
            with contextlib.suppress(*REFUSED):
                await asyncio.to_thread(before.remote_write_on, kept, "x_kept_2")
            with contextlib.suppress(*REFUSED):
                lines.sendall(b"x_line_2 1\n")
            await until(lambda: agent.dropped().get("graphite"), "the old connection of lines")
            await until(lambda: len(agent.names()) >= 2 + len(SENDS), "the samples of new connections")
            assert agent.names() == {"x_line_1", "x_kept_1", *(f"x_after_{kind}" for kind in SENDS)}
            lines.close()

    asyncio.run(whole())


def test_a_revoked_certificate_is_refused(authority: Authority, server_pair: Pair, tmp_path: Path) -> None:
    """By HTTP and TCP; gRPC does not start with a revocation list."""
    pair = authority.sign("agent-5", "DNS:agent-5.artimon")
    client = Client(authority.certificate, pair)
    security = certificates(authority, server_pair, revoked=authority.crl())
    kinds = ("http", "graphite")

    async def whole() -> None:
        async with receiving(tmp_path / "data", security, kinds=kinds) as agent:
            for kind in ("remote_write", "graphite"):
                assert await agent.send(client, kind, f"x_{kind}_1") in (200, 204)
            await until(lambda: agent.names() == {"x_remote_write_1", "x_graphite_1"}, "both")
            authority.crl(pair)
            good = Client(authority.certificate, authority.sign("agent-6", "DNS:agent-6.artimon"))
            for kind in ("remote_write", "graphite"):
                await agent.send(client, kind, f"x_{kind}_2")
                assert await agent.send(good, kind, f"x_{kind}_3") in (200, 204)
            await until(lambda: len(agent.names()) >= 4, "those of the good client")
            assert {name[-1] for name in agent.names()} == {"1", "3"}

    asyncio.run(whole())
    config = SourceConfig("agent1", NOWHERE, tmp_path, receive=("otlp+grpc://127.0.0.1:1",), security=security)
    with pytest.raises(SettingsError, match="revocation"):
        ArtimonSource(config, KeepingSink(), SYSTEM_CLOCK)


def test_a_silent_handshake_is_given_up(
    authority: Authority, server_pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "HANDSHAKE_S", 0.5)
    monkeypatch.setattr("sources.receive.line_listener.HANDSHAKE_S", 0.5)

    def closed(port: int) -> float:
        """Return the seconds after which the server closes a connection that sends nothing."""
        began = monotonic()
        with socket.create_connection(("127.0.0.1", port), timeout=40) as sock, contextlib.suppress(ConnectionError):
            assert sock.recv(1) == b""
        return monotonic() - began

    async def whole() -> None:
        async with receiving(tmp_path, certificates(authority, server_pair), kinds=("http", "graphite")) as agent:
            for port in agent.ports.values():
                assert await asyncio.to_thread(closed, port) < 30

    asyncio.run(whole())
