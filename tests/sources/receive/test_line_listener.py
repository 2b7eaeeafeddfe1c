"""Listeners of lines: sockets, clients of StatsD, floods and slow senders."""

from __future__ import annotations

import asyncio
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
import statsd
from datadog.dogstatsd.base import DogStatsd

from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime.settings import SettingsError
from sources.artimon_source import ArtimonSource
from sources.delivery.source_config import SourceConfig
from sources.receive.line_listener import CONNECTIONS, MAX_WAITING, LineListener
from sources.receive.receive_address import parse_receive_address
from tests.sockets import free_port
from tests.sources.helpers import HOST, KeepingSink, running
from tests.waiting import until

NOWHERE = "127.0.0.1:1"
Found = dict[str, object]


class Agent:
    def __init__(self, source: ArtimonSource, sink: KeepingSink) -> None:
        self.source, self.sink = source, sink

    @property
    def listener(self) -> LineListener:
        assert self.source._receiver is not None
        listener = self.source._receiver._listeners[0]
        assert isinstance(listener, LineListener)
        return listener

    def values(self, sender: str) -> Found:
        protocol, _, name = sender.partition("/")
        return {text: value for text, _, _, value in self.sink.samples(f"{protocol}/{HOST}/{name}")}


@asynccontextmanager
async def receiving(place: Path, address: str) -> AsyncIterator[Agent]:
    sink = KeepingSink()
    async with running(NOWHERE, place, sink, receive=(address,)) as source:
        agent = Agent(source, sink)
        await until(lambda: agent.listener._thread is not None, "the listener")
        yield agent


def endless(client: socket.socket) -> None:
    for _ in range(10_000):
        client.sendall(b"x" * 65_536)


def run(place: Path, address: str, test: Callable[[Agent], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with receiving(place, address) as agent:
            await test(agent)

    asyncio.run(whole())


def test_clients_of_statsd(tmp_path: Path) -> None:
    """The client `statsd` by UDP."""
    port = free_port()

    async def test(agent: Agent) -> None:
        client = statsd.StatsClient("127.0.0.1", port, prefix="app")
        for _ in range(10):
            client.incr("hits", 2)
        client.gauge("level", 5)
        client.gauge("level", -2, delta=True)
        client.timing("took", 320)
        client.set("users", "a")
        await until(lambda: "app.users{}" in agent.values("statsd/default"), "the period")
        found = agent.values("statsd/default")
        assert (found["app.hits{}"], found["app.level{}"], found["app.users{}"]) == (20, 3.0, 1.0)
        assert (found['app.took_bucket{le="250"}'], found['app.took_bucket{le="500"}']) == (0, 1)

    run(tmp_path, f"statsd+udp://127.0.0.1:{port}", test)


def test_the_client_of_datadog_over_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "statsd.sock"

    async def test(agent: Agent) -> None:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        client = DogStatsd(socket_path=str(path), disable_telemetry=True, constant_tags=["env:prod"])
        client.increment("hits", 3, tags=["route:/"])
        client.distribution("size", 7.0)
        client.event("title", "text")
        client.flush()
        await until(lambda: len(agent.values("statsd/web")) > 1, "the period")
        found = agent.values("statsd/web")
        assert found['hits{env="prod",route="/"}'] == 3
        assert found['size_count{env="prod"}'] == 1
        assert any("not supported" in text for text in agent.source.figures()["problems"])

    run(tmp_path / "data", f"statsd+unix://{path}?sender=web", test)
    assert not path.exists()


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_graphite_and_its_times(tmp_path: Path, transport: str) -> None:
    port, now_s = free_port(), SYSTEM_CLOCK.now_ms() // 1000
    lines = b"".join(b"a.b%d;host=h %d %d\n" % (n, n, now_s) for n in range(50))

    async def test(agent: Agent) -> None:
        kind = socket.SOCK_STREAM if transport == "tcp" else socket.SOCK_DGRAM
        with socket.socket(socket.AF_INET, kind) as client:
            client.connect(("127.0.0.1", port))
            client.send(lines[:25])
            await asyncio.sleep(0)
            client.send(lines[25:] if transport == "tcp" else lines)
        wanted = 50
        await until(lambda: len(agent.values("graphite/default")) >= wanted, "the lines")
        rows = agent.sink.samples(f"graphite/{HOST}/default")
        assert {time_ms for text, time_ms, _, _ in rows if text.startswith("a.b49")} == {now_s * 1000}

    run(tmp_path, f"graphite+{transport}://127.0.0.1:{port}", test)


def test_influx_by_udp(tmp_path: Path) -> None:
    port = free_port()

    async def test(agent: Agent) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.sendto(b"cpu,host=h idle=3i", ("127.0.0.1", port))
        await until(lambda: agent.values("influx/default") == {'cpu.idle{host="h"}': 3}, "the line")

    run(tmp_path, f"influx+udp://127.0.0.1:{port}", test)


def test_a_log_that_refuses_holds_up_connections_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sources.receive.line_listener.RETRY_S", 0.1)
    port = free_port()
    lines = [b"a.%d 1\n" % n + b" " * 2_000 + b"\n" for n in range(1_200)]

    async def test(agent: Agent) -> None:
        agent.sink.refusing = "full"
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        sending = asyncio.create_task(drain(writer, lines))
        await until(lambda: len(agent.listener._waiting) >= MAX_WAITING, "a full buffer")
        assert len(agent.listener._waiting) < MAX_WAITING + 200_000
        agent.sink.refusing = ""
        await sending
        await until(lambda: len(agent.values("graphite/default")) == len(lines), "all lines")

    async def drain(writer: asyncio.StreamWriter, all_: list[bytes]) -> None:
        for line in all_:
            writer.write(line)
            await writer.drain()
        writer.close()

    run(tmp_path, f"graphite+tcp://127.0.0.1:{port}", test)


def test_endless_lines_and_too_many_connections_are_dropped(tmp_path: Path) -> None:
    port = free_port()

    async def test(agent: Agent) -> None:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.settimeout(30)
            with pytest.raises(OSError):
                await asyncio.to_thread(endless, client)
        assert agent.listener.dropped["long line"] == 1
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS + 5)]
        await until(lambda: agent.listener.dropped["too many connections"] == 5, "refusals")
        for client in clients:
            client.close()
        await until(lambda: agent.listener._connections == 0, "the end of connections")

    run(tmp_path, f"statsd+tcp://127.0.0.1:{port}", test)


@pytest.mark.slow
def test_a_flood_of_datagrams_takes_no_memory(tmp_path: Path) -> None:
    """What is too much is dropped by the kernel and counted; the agent goes on."""
    port = free_port()

    async def test(agent: Agent) -> None:
        before = psutil.Process().memory_info().rss
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.connect(("127.0.0.1", port))
            data = b"\n".join(b"hits:1|c" for _ in range(150))

            def flood() -> None:
                for _ in range(60_000):
                    client.send(data)

            await asyncio.to_thread(flood)
        await until(lambda: agent.listener.dropped["datagrams"] > 0, "drops")
        await until(lambda: bool(agent.values("statsd/default")), "the period")
        assert psutil.Process().memory_info().rss - before < 64 << 20

    run(tmp_path, f"statsd+udp://127.0.0.1:{port}", test)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("statsd+udp://0.0.0.0:8125", "UDP has no login"),
        ("graphite+tcp://0.0.0.0:2003", "clients are not authenticated"),
        ("statsd+http://127.0.0.1:1", "no receiver"),
        ("statsd+udp://127.0.0.1:1/x", "without a path"),
        ("statsd+udp://127.0.0.1:1?x=1", "only option"),
        ("statsd+udp://127.0.0.1:1?sender=a/b", "only option"),
        ("statsd+unix://host/a", "unix:///PATH"),
        ("otlp+grpc://0.0.0.0:4317", "clients are not authenticated"),
    ],
)
def test_addresses_are_checked_at_the_start(tmp_path: Path, address: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        ArtimonSource(SourceConfig("agent1", NOWHERE, tmp_path, receive=(address,)), KeepingSink(), SYSTEM_CLOCK)


def test_a_unix_socket_that_nobody_reads_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    old = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    old.bind(str(path))
    address = parse_receive_address(f"statsd+unix://{path}")
    with pytest.raises(OSError, match="in use"):
        LineListener(address, None, None, SYSTEM_CLOCK).start()  # type: ignore[arg-type]
    old.close()
    listener = LineListener(address, None, None, SYSTEM_CLOCK)  # type: ignore[arg-type]
    listener.start()
    listener.stop()
    assert not path.exists()
