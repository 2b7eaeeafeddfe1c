"""Ephemeral nodes on a real ZooKeeper, which are restored after the loss of a session."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from artimon.runtime.zookeeper_client import EphemeralNode, zookeeper_client
from tests.waiting import eventually

pytestmark = pytest.mark.stack


@pytest.fixture
def path() -> str:
    return f"/artimon/test-registration/{uuid.uuid4().hex}"


@pytest.fixture
def clients(zookeeper: str) -> Iterator[list[KazooClient]]:
    """Three clients, started in the background as in processes."""
    made = [zookeeper_client(zookeeper) for _ in range(3)]
    for client in made:
        client.start_async()
    eventually(lambda: all(client.connected for client in made), "ZooKeeper answers")
    yield made
    for client in made:
        client.stop()
        client.close()


def owner(client: KazooClient, path: str) -> int:
    stat = client.exists(path)
    return int(stat.ephemeralOwner) if stat else 0


def test_a_node_is_created_updated_and_removed(clients: list[KazooClient], path: str) -> None:
    registration = EphemeralNode(clients[0], path, b"one")
    registration.start()
    eventually(lambda: registration.registered, "it is registered")
    registration.update(b"two")
    eventually(lambda: bool(clients[1].get(path)[0] == b"two"), "the new data is there")
    registration.stop()
    assert clients[1].exists(path) is None


def test_a_node_is_restored_after_its_session_expired(clients: list[KazooClient], path: str, zookeeper: str) -> None:
    registration = EphemeralNode(clients[0], path, b"x")
    registration.start()
    eventually(lambda: registration.registered, "it is registered")
    session = clients[0].client_id
    assassin = KazooClient(zookeeper, client_id=session)
    assassin.start(10)
    assassin.stop()  # closes the session that both share
    assassin.close()
    eventually(lambda: owner(clients[1], path) not in (0, session[0]), "another session owns it")
    assert owner(clients[1], path) == clients[0].client_id[0]
    registration.stop()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_node_that_goes_before_its_watch_is_set(
    clients: list[KazooClient], path: str, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    ours, theirs = clients[:2]
    exists = ours.exists

    def late(path: str, watch: object = None) -> object:
        monkeypatch.undo()
        theirs.delete(path)
        if replaced:
            theirs.create(path, b"theirs", ephemeral=True)
        return exists(path, watch=watch)

    monkeypatch.setattr(ours, "exists", late)
    registration = EphemeralNode(ours, path, b"x")
    registration.start()
    if replaced:
        eventually(lambda: registration.conflict, "it notices the other one", 60)
        theirs.delete(path)
    eventually(lambda: registration.registered and owner(theirs, path) == ours.client_id[0], "it is there again", 60)
    registration.stop()


def test_a_dead_node_is_replaced_and_a_live_one_is_not(clients: list[KazooClient], path: str) -> None:
    """The node of a killed process is replaced; that of a live process that replaced ours is left until it goes."""
    clients[2].create(path, b"dead", ephemeral=True, makepath=True)
    first = EphemeralNode(clients[0], path, b"first")
    first.start()
    eventually(lambda: bool(clients[2].get(path)[0] == b"first"), "it takes over")
    second = EphemeralNode(clients[1], path, b"second")
    second.start()
    eventually(lambda: first.conflict, "the first notices")
    assert clients[2].get(path)[0] == b"second"
    second.stop()
    eventually(lambda: first.registered and not first.conflict, "the first is back")
    assert clients[2].get(path)[0] == b"first"
    first.stop()


def test_stop_is_bounded_without_zookeeper() -> None:
    client = zookeeper_client("127.0.0.1:1")
    client.start_async()
    registration = EphemeralNode(client, "/artimon/x", b"")
    registration.start()
    registration.stop(2.0)
    client.stop()
    client.close()
    assert not registration.registered
