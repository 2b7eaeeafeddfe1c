"""The directory of the shards asks ZooKeeper when a watch fired, and now and then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from artimon.model.clock import ManualClock
from tests.waiting import eventually
from tests.zookeepers import connected, own_tree
from varstore.cluster.cluster_directory import CACHE_TTL_S, REREAD_S, ClusterDirectory, ShardAddress
from varstore.cluster.membership import SHARDS_PATH, VARSTORE_PATH, Membership

pytestmark = pytest.mark.stack


class CountingClient:
    """Client of ZooKeeper that counts readings of the membership, one for each look of a directory."""

    def __init__(self, client: KazooClient) -> None:
        self._client = client
        self.looks = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def get_async(self, path: str, watch: Any = None) -> Any:
        self.looks += path == VARSTORE_PATH
        return self._client.get_async(path, watch=watch)


@pytest.fixture
def client(zookeeper: str) -> Iterator[CountingClient]:
    with own_tree(zookeeper) as place, connected(place) as found:
        yield CountingClient(found)


def address(port: int) -> bytes:
    return ShardAddress("0", "h", port, "a").to_bytes(1)


def ports(directory: ClusterDirectory) -> list[int]:
    return [one.port for one in directory.read().live]


def test_nothing_is_asked_until_a_watch_fires_or_the_answer_is_old(client: CountingClient) -> None:
    clock = ManualClock(1_000)
    client.create(VARSTORE_PATH, Membership(("0",)).to_bytes(), makepath=True)
    client.create(f"{SHARDS_PATH}/0", address(1), makepath=True)
    directory = ClusterDirectory(client, clock=clock)
    assert ports(directory) == [1]
    clock.advance(int(CACHE_TTL_S * 1000))
    assert ports(directory) == [1]
    assert client.looks == 1

    client.set(f"{SHARDS_PATH}/0", address(2))
    eventually(lambda: ports(directory) == [2], "a change of a shard is seen")
    clock.advance(int(CACHE_TTL_S * 1000))
    client.create(f"{SHARDS_PATH}/1", address(3))
    eventually(lambda: ports(directory) == [2, 3], "a new shard is seen")
    clock.advance(int(CACHE_TTL_S * 1000))
    client.set(VARSTORE_PATH, Membership(("0", "1")).to_bytes())
    eventually(lambda: directory.read().members == ("0", "1"), "a new member is seen")
    looks = client.looks
    clock.advance(int(REREAD_S * 1000))
    directory.read()
    assert client.looks == looks + 1


def test_nodes_that_do_not_exist_yet_are_looked_for_every_second(client: CountingClient) -> None:
    clock = ManualClock(1_000)
    directory = ClusterDirectory(client, clock=clock)
    assert directory.read().live == ()
    client.create(f"{SHARDS_PATH}/0", address(1), makepath=True)
    clock.advance(int(CACHE_TTL_S * 1000))
    assert ports(directory) == [1]
