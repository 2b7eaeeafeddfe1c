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
from sources.poll.group_leases import AGENTS, LEASES
from tests.sources.helpers import HOST, Application, KeepingSink, registry, running
from tests.waiting import eventually, until

pytestmark = pytest.mark.stack
MANY = 3_000


@contextlib.contextmanager
def registered(zookeeper: str, path: str) -> Iterator[None]:
    """A node as applications have it, and one as parts of the platform have it."""
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
    """Transactions that every client sees: none of them has seen so many once the data are gone."""
    with registry(zookeeper) as client:
        client.create("/busy")
        for call in [client.set_async("/busy", b"") for _ in range(MANY)]:
            call.get(30)


def wait_until_there(zookeeper: str, paths: Sequence[str]) -> None:
    """Over one session, so that the server's count of transactions stays small."""
    with registry(zookeeper) as client:
        for path in paths:
            eventually(partial(client.exists, path), f"{path} to come back")


def wipe(stack: Stack) -> None:
    """Its data are gone, its address is the same."""
    stack.kill_part("zookeeper")
    for path in (stack.data / "zookeeper" / "data").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    stack.start_part("zookeeper")
    stack.wait_healthy(60)


def test_everybody_comes_back_to_a_zookeeper_without_data(zookeeper_stack: Stack, tmp_path: Path) -> None:
    """It refuses clients that have seen more than it holds, without a word of their sessions. No poll is missed."""

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
                nodes = ["/wiped-test-app", "/wiped-test-part", "/artimon/contexts/wiped"]
                nodes += [f"{AGENTS}/agent1", f"{LEASES}/127.0.0.1,wiped"]
                await asyncio.to_thread(wait_until_there, zookeeper, nodes)
                await until(
                    lambda: any(artimon._leases.holds_lease(group) for group in artimon._leases._held), "a sure lease"
                )
            assert None not in [value for _, _, _, value in sink.samples(source)]
        app.kill()

    asyncio.run(run())


def test_a_process_is_found_and_polled_by_ipv6(tree: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address stands in brackets in the znode, and bare in the lease."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    monkeypatch.setenv("ARTIMON_ADVERTISE", "::1")

    async def run() -> None:
        sink, source = KeepingSink(), f"six/{HOST}/0"
        app = Application(tree, "six", tmp_path / "run")
        await app.do("add orders 6")
        async with running(tree, tmp_path / "data", sink):
            await until(lambda: sink.last(source).get("orders") == 6, "the first poll")
            with registry(tree) as client:
                (node,) = await asyncio.to_thread(client.get_children, "/artimon/contexts/six")
                leases: Any = await asyncio.to_thread(client.get_children, LEASES)
            assert node.startswith("[::1]:")
            assert leases == ["::1,six"]
        app.kill()

    asyncio.run(run())
