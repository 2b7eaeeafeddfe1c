"""Registration where the network or ZooKeeper fails: a server that stands still, a container, a cut cable."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from kazoo.client import KazooClient

from artimon.stack.stack import Stack
from bookkeeper.process.ephemeral_node import EndpointRegistration
from tests.bookkeeper.polling import HOSTS, REPOSITORY, connect, nodes
from tests.faults.network import Network, forwarder, network
from tests.waiting import eventually

pytestmark = pytest.mark.stack
APPLICATION = """
import bookkeeper, sys
bookkeeper.add_to_integer_var("n", {}, 7)
sys.stdin.readline()
"""


@contextlib.contextmanager
def registering(zookeeper: str, path: str) -> Iterator[EndpointRegistration]:
    """A registration with the shortest session that the server grants."""
    one = EndpointRegistration(zookeeper, path, b"{}", session_s=2.0, reassert_s=1.0)
    thread = threading.Thread(target=one.run, daemon=True)
    thread.start()
    try:
        yield one
    finally:
        one.stop()
        thread.join(60)


def owner(zk: KazooClient, path: str) -> int:
    stat = zk.exists(path)
    return 0 if stat is None else int(stat.ephemeralOwner)


def test_a_server_that_stands_still_for_longer_than_the_session(
    zookeeper_stack: Stack, zk: KazooClient, context: str
) -> None:
    """Nobody is told that the session is over until the server goes on; then the node is there again."""
    path = f"{HOSTS}/here/{context}:127.0.0.1:1:x"
    with registering(zookeeper_stack.zookeeper, path) as one:
        eventually(lambda: owner(zk, path))
        zookeeper_stack.kill("zookeeper", signal.SIGSTOP)
        try:
            eventually(lambda: not one.connected)
        finally:
            zookeeper_stack.kill("zookeeper", signal.SIGCONT)
        eventually(lambda: one.connected and owner(zk, path) == one._client.client_id[0])


@contextlib.contextmanager
def contained(net: Network, folder: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """An application in a network of its own, as in a container."""
    (folder / "app.py").write_text(APPLICATION)
    command = ["ip", "netns", "exec", net.name, sys.executable, str(folder / "app.py")]
    own = {**os.environ, "PYTHONPATH": str(REPOSITORY), "ARTIMON_RUN": str(folder / "run"), **environment}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=own) as process:
        try:
            yield process
        finally:
            process.kill()


def polled(host: str, port: int) -> Any:
    with connect(port, host) as calls:
        return calls.getColumns(b"", None)


def test_a_container_is_found_where_it_can_be_reached(
    zookeeper: str, zk: KazooClient, context: str, tmp_path: Path
) -> None:
    """Its own address on the way to ZooKeeper, not its name, not 127.0.0.1; and it listens there alone."""
    with network() as net, forwarder(net.here, zookeeper) as way:
        with contained(net, tmp_path, ARTIMON_ZOOKEEPER=way, ARTIMON_CONTEXT=context):
            (node,) = eventually(lambda: nodes(zk, context))
            assert node.host == net.there
            assert polled(node.host, node.port).schema.names == ["n"]
        with contained(
            net,
            tmp_path,
            ARTIMON_ZOOKEEPER=way,
            ARTIMON_CONTEXT=context + "-mapped",
            ARTIMON_ADVERTISE="203.0.113.9:40000",
            ARTIMON_BIND="0.0.0.0:9000",
        ):
            (node,) = eventually(lambda: nodes(zk, context + "-mapped"))
            assert (node.host, node.port) == ("203.0.113.9", 40000)
            assert polled(net.there, 9000).schema.names == ["n"]


@pytest.mark.slow
def test_a_cable_that_is_pulled_for_longer_than_the_session(
    zookeeper: str, zk: KazooClient, context: str, tmp_path: Path
) -> None:
    """The node goes; when the network is back, so is the node, of the same process with its counts."""
    with (
        network() as net,
        forwarder(net.here, zookeeper) as way,
        contained(net, tmp_path, ARTIMON_ZOOKEEPER=way, ARTIMON_CONTEXT=context),
    ):
        (node,) = eventually(lambda: nodes(zk, context))
        net.cut()
        eventually(lambda: not nodes(zk, context))
        net.heal()
        began = perf_counter()
        eventually(lambda: nodes(zk, context) == [node])
        assert perf_counter() - began < 60
        assert polled(node.host, node.port).endpoint.uuid == uuid.UUID(node.uuid).bytes
