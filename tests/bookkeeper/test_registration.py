"""The znode of a process, with a real ZooKeeper: expired sessions, deleted nodes, restarts, exit and final poll."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from artimon.stack.stack import Stack
from bookkeeper import Bookkeeper
from bookkeeper.process.ephemeral_node import EndpointRegistration
from tests.bookkeeper.polling import HOSTS, Node, application, end, hear, nodes, rows, say
from tests.waiting import LIMIT_S, eventually
from tests.zookeepers import connected

pytestmark = pytest.mark.stack
HOUR_MS = 3_600_000


@pytest.fixture
def book(zookeeper: str, context: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bookkeeper]:
    """A Bookkeeper that registers."""
    monkeypatch.setenv("ARTIMON_RUN", str(tmp_path))
    book = Bookkeeper(context=context, zookeeper=zookeeper)
    yield book
    endpoint = book.endpoint
    if endpoint is not None:
        endpoint.close(last_poll_s=0.0)


def registered(zk: KazooClient, context: str) -> Node:
    """The one endpoint of a context, once it is there."""
    found: list[Node] = eventually(lambda: nodes(zk, context))
    assert len(found) == 1
    return found[0]


def nodes_if_possible(zk: KazooClient, context: str) -> list[Node]:
    """The endpoints of a context, none while ZooKeeper is away."""
    try:
        return nodes(zk, context)
    except KazooException:
        return []


def registration(book: Bookkeeper) -> Any:
    """The running registration."""
    endpoint = book.endpoint
    assert endpoint is not None
    return eventually(lambda: endpoint.registration)


def test_the_first_write_registers(zk: KazooClient, book: Bookkeeper, context: str) -> None:
    """Address, port and uuid in the name are those of the endpoint that answers; the data tells the rest."""
    assert nodes(zk, context) == []
    book.add_to_integer_var("n", {}, 7)
    node = registered(zk, context)
    who, values = rows(node.port)
    assert values == {("n", "{}"): 7}
    assert node.host == "127.0.0.1"
    assert uuid.UUID(node.uuid).bytes == who.uuid
    assert node.data == {"instance": "0", "birth_ms": who.birth_ms, "pid": os.getpid(), "version": 1}
    stat = zk.exists(node.path)
    assert stat.ephemeralOwner == registration(book)._client.client_id[0]


def test_a_node_deleted_by_hand_comes_back(zk: KazooClient, book: Bookkeeper, context: str) -> None:
    """The same name, at once: the registration watches its own node."""
    book.add_to_integer_var("n", {}, 1)
    node = registered(zk, context)
    for _ in range(3):
        zk.delete(node.path)
        eventually(lambda: nodes(zk, context) == [node])


def test_a_node_of_a_foreign_session_is_replaced(zk: KazooClient, book: Bookkeeper, context: str) -> None:
    """A node of that name that would vanish with somebody else's session is no registration."""
    book.add_to_integer_var("n", {}, 1)
    node = registered(zk, context)
    path = node.path
    ours = zk.exists(path).ephemeralOwner
    transaction = zk.transaction()
    transaction.delete(path)
    transaction.create(path, b"foreign", ephemeral=True)
    assert not [result for result in transaction.commit() if isinstance(result, Exception)]
    eventually(lambda: (stat := zk.exists(path)) is not None and stat.ephemeralOwner == ours)


def test_a_clock_that_jumps_changes_nothing(
    zk: KazooClient, book: Bookkeeper, context: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hours forth and back, in the middle of all: the same node, the same birth, and a node that is lost comes back."""
    book.add_to_integer_var("n", {}, 1)
    node = registered(zk, context)
    born = rows(node.port)[0].birth_ms
    for hours in (5, -30):
        seconds = hours * 3600
        with monkeypatch.context() as jumped:
            jumped.setattr(time, "time_ns", lambda real=time.time_ns, by=seconds: real() + by * 10**9)
            jumped.setattr(time, "time", lambda real=time.time, by=seconds: real() + by)
            zk.delete(node.path)
            eventually(lambda: nodes(zk, context) == [node])
            who, values = rows(node.port)
            assert (who.birth_ms, values) == (born, {("n", "{}"): 1})
            assert abs(who.time_ms - time.time_ns() // 10**6) < HOUR_MS


def test_an_expired_session_registers_anew(zk: KazooClient, zookeeper: str, book: Bookkeeper, context: str) -> None:
    """Another session, the same name, still the same process."""
    book.add_to_integer_var("n", {}, 1)
    node = registered(zk, context)
    path = node.path
    before = zk.exists(path).ephemeralOwner
    thief = KazooClient(zookeeper, client_id=registration(book)._client.client_id)
    thief.start()
    thief.stop()
    eventually(lambda: (stat := zk.exists(path)) is not None and stat.ephemeralOwner != before)
    assert rows(node.port)[1] == {("n", "{}"): 1}


@pytest.mark.parametrize("withdrawn", [False, True])
def test_a_node_in_the_session_of_an_owner_goes_with_it(
    zk: KazooClient, zookeeper: str, context: str, withdrawn: bool
) -> None:
    """Unless it is withdrawn before."""
    path = f"{HOSTS}/here/{context}:127.0.0.1:1:x"
    with connected(zookeeper) as owner:
        one = EndpointRegistration(zookeeper, path, b"{}", session=owner)
        threading.Thread(target=one.run, daemon=True).start()
        assert one.registered.wait(LIMIT_S)
        if withdrawn:
            one.withdraw()
            assert one.withdrawn.wait(LIMIT_S)
        one.stop()
        assert one.stopped.wait(LIMIT_S)
        assert (zk.exists(path) is None) == withdrawn
    assert zk.exists(path) is None


def test_a_dead_client_is_replaced(zk: KazooClient, zookeeper: str, context: str) -> None:
    """kazoo stays closed after an unexpected error in its loop; the watchdog makes another client."""
    path = f"{HOSTS}/here/{context}:127.0.0.1:1:x"
    one = EndpointRegistration(zookeeper, path, b"{}", reassert_s=0.2)
    thread = threading.Thread(target=one.run, daemon=True)
    thread.start()
    eventually(lambda: zk.exists(path))
    dead = one._client
    one._started -= 60  # as if it had run for a minute
    dead.stop()
    eventually(lambda: one._client is not dead and zk.exists(path))
    one.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert zk.exists(path) is None


def test_zookeeper_that_comes_late_and_goes(
    zookeeper_stack: Stack, zk: KazooClient, book: Bookkeeper, context: str
) -> None:
    """Absent at the start: counting works, and the node appears once it can. A restart later brings it back."""
    zookeeper_stack.stop_part("zookeeper")
    started = perf_counter()
    for i in range(1000):
        book.add_to_integer_var("n", {"i": str(i)}, 1)
    assert perf_counter() - started < 9.0
    zookeeper_stack.start_part("zookeeper")
    zookeeper_stack.wait_healthy(60)
    node = eventually(lambda: nodes_if_possible(zk, context))[0]
    zookeeper_stack.restart("zookeeper")
    zookeeper_stack.wait_healthy(60)
    eventually(lambda: [one.path for one in nodes_if_possible(zk, context)] == [node.path])
    assert len(rows(node.port)[1]) == 1000


def test_configure_registers_anew(zk: KazooClient, book: Bookkeeper, context: str) -> None:
    """Another context: the old node goes, the new one has the same process and values. The number is kept or new."""
    book.add_to_integer_var("n", {}, 3)
    old = registered(zk, context)
    book.configure(context=context + "-b")
    new = registered(zk, context + "-b")
    eventually(lambda: nodes(zk, context) == [])
    assert new.uuid == old.uuid
    assert rows(new.port)[1] == {("n", "{}"): 3}
    book.configure(instance="seven")
    eventually(lambda: [node.data["instance"] for node in nodes(zk, context + "-b")] == ["seven"])


EXITING = """
import bookkeeper, signal, sys
bookkeeper.add_to_integer_var("n", {}, 1)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready", flush=True)
sys.stdin.readline()
bookkeeper.add_to_integer_var("n", {}, 41)
"""


def start(folder: Path, zookeeper: str, context: str, script: str = EXITING) -> Any:
    """A program that registers, and adds 41 when it is told to end."""
    process = application(script, folder, ARTIMON_ZOOKEEPER=zookeeper, ARTIMON_CONTEXT=context)
    assert hear(process) == "ready"
    return process


def test_exit_serves_one_more_poll(zk: KazooClient, zookeeper: str, context: str, tmp_path: Path) -> None:
    """The znode goes first, then the final values are handed over, then the process ends without waiting longer."""
    process = start(tmp_path, zookeeper, context)
    node = registered(zk, context)
    assert rows(node.port)[1] == {("n", "{}"): 1}
    say(process, "")
    eventually(lambda: nodes(zk, context) == [])
    assert process.poll() is None
    polled = perf_counter()
    who, values = rows(node.port)
    assert values == {("n", "{}"): 42}
    assert who.instance == "0"
    end(process)
    assert perf_counter() - polled < 4.9, "without a poll it waits for 5 s"


def test_exit_without_a_poller_is_bounded(zk: KazooClient, zookeeper: str, context: str, tmp_path: Path) -> None:
    """At most 5 s for the poll and a little for ZooKeeper."""
    process = start(tmp_path, zookeeper, context)
    registered(zk, context)
    started = perf_counter()
    say(process, "")
    end(process)
    assert 4.0 < perf_counter() - started < 20.0


def wait_until_gone(zk: KazooClient, context: str, node: Node) -> None:
    """Until a znode is no longer there."""
    eventually(lambda: node not in nodes(zk, context))


def test_workers_ended_by_sigterm_keep_their_numbers(
    zk: KazooClient, zookeeper: str, context: str, tmp_path: Path
) -> None:
    """Four workers, restarted one by one: always the numbers 0 to 3, never one twice, and nothing is lost."""
    total = 0
    workers = [start(tmp_path, zookeeper, context) for _ in range(4)]
    eventually(lambda: len(nodes(zk, context)) == 4)
    for i in range(4):
        mine = next(node for node in nodes(zk, context) if node.data["pid"] == workers[i].pid)
        workers[i].send_signal(signal.SIGTERM)
        wait_until_gone(zk, context, mine)
        total += rows(mine.port)[1]["n", "{}"]
        end(workers[i])
        workers[i] = start(tmp_path, zookeeper, context)
        eventually(lambda: len(nodes(zk, context)) == 4)
        again = next(node for node in nodes(zk, context) if node.data["pid"] == workers[i].pid)
        assert again.data["instance"] == mine.data["instance"]
        assert again.data["birth_ms"] >= mine.data["birth_ms"]
        assert sorted(node.data["instance"] for node in nodes(zk, context)) == ["0", "1", "2", "3"]
    assert total == 4
    for worker in workers:
        worker.kill()
        worker.communicate(timeout=60)


FORKING = """
import bookkeeper, os, sys
bookkeeper.add_to_integer_var("n", {}, 1)
e = bookkeeper.default().endpoint
while not (e.registration and e.registration.registered.is_set()): e._closing.wait(0.01)
pid = os.fork()
if pid == 0:
    bookkeeper.add_to_integer_var("n", {}, 10)
    sys.stdin.readline()
    os._exit(0)
print("ready", flush=True)
os.waitpid(pid, 0)
bookkeeper.add_to_integer_var("n", {}, 1)
print("child gone", flush=True)
sys.stdin.readline()
"""


def test_a_forked_child_never_touches_its_parents_session(
    zk: KazooClient, zookeeper: str, context: str, tmp_path: Path
) -> None:
    """Two nodes of two sessions; the child's sudden end leaves the parent's node and session alone."""
    process = start(tmp_path, zookeeper, context, FORKING)
    both = eventually(lambda: len(found := nodes(zk, context)) == 2 and found)
    paths = [node.path for node in both]
    owners = {zk.exists(path).ephemeralOwner for path in paths}
    assert len(owners) == 2
    assert [rows(node.port)[1]["n", "{}"] for node in both] == [1, 10]
    assert {node.data["instance"] for node in both} == {"0", "1"}
    parent = zk.exists(paths[0]).ephemeralOwner
    say(process, "")
    assert hear(process) == "child gone"
    eventually(lambda: len(nodes(zk, context)) == 1)  # the child's session ends by its timeout
    assert zk.exists(paths[0]).ephemeralOwner == parent
    assert rows(both[0].port)[1]["n", "{}"] == 2
    process.kill()
    process.communicate(timeout=60)


MULTIPROCESSING = """
import bookkeeper, multiprocessing, sys
def work(go):
    bookkeeper.add_to_integer_var("n", {}, 5)
    print("ready", flush=True)
    go.wait()
if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    go = context.Event()
    child = context.Process(target=work, args=(go,))
    child.start()
    sys.stdin.readline()
    go.set()
    child.join()
"""


def test_children_of_multiprocessing_serve_a_last_poll(
    zk: KazooClient, zookeeper: str, context: str, tmp_path: Path
) -> None:
    """They end without atexit, but not without handing over."""
    (tmp_path / "run").mkdir()
    process = start(tmp_path, zookeeper, context, MULTIPROCESSING)
    (node,) = eventually(lambda: len(found := nodes_if_possible(zk, context)) == 1 and found)
    say(process, "")
    eventually(lambda: not nodes_if_possible(zk, context))
    assert rows(node.port)[1] == {("n", "{}"): 5}
    end(process)
