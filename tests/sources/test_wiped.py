"""A real ZooKeeper that comes back without its data, and processes that are found by IPv6."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from artimon.runtime.zookeeper_client import EphemeralNode, zookeeper_client
from artimon.stack.stack import Stack
from bookkeeper.process.ephemeral_node import EndpointRegistration
from sources.poll.agent_election import SLOTS_PATH
from sources.poll.unit_leases import CLAIMS, LEASES
from tests.sources.helpers import HOST, Application, KeepingSink, registry, running
from tests.waiting import eventually, until

pytestmark = pytest.mark.stack
MANY = 3_000


@contextlib.contextmanager
def registered(zookeeper: str, path: str) -> Iterator[None]:
    """Register a node as applications do, and one as processes of the platform do."""
    one = EndpointRegistration(zookeeper, path + "-app", b"{}", session_s=2.0)
    thread = threading.Thread(target=one.run, daemon=True)
    thread.start()
    client = zookeeper_client(zookeeper, 2.0)
    client.start_async()
    other = EphemeralNode(client, path + "-part", b"{}")
    other.start()
    try:
        yield
    finally:
        one.stop()
        other.stop()
        thread.join(60)
        client.stop()
        client.close()


def busy(zookeeper: str) -> None:
    """Make transactions that every client sees, so that all have seen more than a wiped server holds."""
    with registry(zookeeper) as client:
        client.create("/busy")
        for call in [client.set_async("/busy", b"") for _ in range(MANY)]:
            call.get(30)


def wait_until_there(zookeeper: str, paths: Sequence[str]) -> None:
    """Wait over one session, so that the server's count of transactions stays small."""
    with registry(zookeeper) as client:
        for path in paths:
            eventually(partial(client.exists, path), f"{path} to come back")


def wipe(stack: Stack) -> None:
    """Delete the data of ZooKeeper and restart it at the same address."""
    stack.kill_part("zookeeper")
    for path in (stack.data / "zookeeper" / "data").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    stack.start_part("zookeeper")
    stack.wait_healthy(60)


def slots(zookeeper: str) -> int:
    with registry(zookeeper) as client:
        return len(client.get_children(SLOTS_PATH))


def test_everybody_comes_back_to_a_zookeeper_without_data(zookeeper_stack: Stack, tmp_path: Path) -> None:
    """It refuses clients that have seen more than it holds, without an error of the session. No poll is missed."""

    async def run() -> None:
        zookeeper, sink, source = zookeeper_stack.zookeeper, KeepingSink(), f"wiped/{HOST}/0"
        app = Application(zookeeper, "wiped", tmp_path / "run")
        await app.do("add orders 1")
        with registered(zookeeper, "/wiped-test"):
            async with running(zookeeper, tmp_path / "data", sink, session_s=2.0) as artimon:
                await until(lambda: sink.last(source).get("orders") == 1, "the first poll")
                await asyncio.to_thread(busy, zookeeper)
                await asyncio.to_thread(wipe, zookeeper_stack)
                await app.do("add orders 1")
                await until(lambda: sink.last(source)["orders"] == 2, "polls to go on")
                nodes = ["/wiped-test-app", "/wiped-test-part", "/artimon/hosts/127.0.0.1", f"{CLAIMS}/127.0.0.1"]
                await asyncio.to_thread(wait_until_there, zookeeper, nodes)
                await until(lambda: artimon._coordinator.holds_lease("127.0.0.1"), "a sure lease")
                assert await asyncio.to_thread(slots, zookeeper) == 1
            assert None not in [value for _, _, _, value in sink.samples(source)]
        app.kill()

    asyncio.run(run())


def test_a_process_is_found_and_polled_by_ipv6(tree: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address has brackets in the znode and none in the host key. No agent is on that host."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    monkeypatch.setenv("ARTIMON_ADVERTISE", "::1")

    async def run() -> None:
        sink, source = KeepingSink(), f"six/{HOST}/0"
        app = Application(tree, "six", tmp_path / "run")
        await app.do("add orders 6")
        async with running(tree, tmp_path / "data", sink, takeover_s=0.5):
            await until(lambda: sink.last(source).get("orders") == 6, "the first poll")
            with registry(tree) as client:
                (node,) = await asyncio.to_thread(client.get_children, "/artimon/hosts/::1")
                leases: Any = await asyncio.to_thread(client.get_children, LEASES)
            assert node.startswith("six:[::1]:")
            assert leases == ["::1"]
        app.kill()

    asyncio.run(run())
