"""`artimon shards`: who there is to be, what each holds and refuses, by a real ZooKeeper and a real shard's service."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Sequence

import pytest
from kazoo.client import KazooClient
from typer.testing import CliRunner, Result

from artimon.cli import app
from artimon.model.batch import SeriesBlock, SeriesInfo
from artimon.model.values import ValueType
from artimon.model.vshards import ALL_VSHARDS
from artimon.runtime.zookeeper_client import zookeeper_client
from bookkeeper.rpc.framed_server import FramedServer
from pipeline.control.shard_directory import ShardDirectory
from varstore.cluster.cluster_directory import ShardAddress
from varstore.cluster.membership import SHARDS_PATH, Membership, ensure_membership
from varstore.index.shard_limits import ShardLimits
from varstore.shard.shard import Shard
from varstore.shard.shard_service import ShardService, idl

pytestmark = pytest.mark.stack


@pytest.fixture
def place(zookeeper: str) -> Iterator[tuple[str, KazooClient]]:
    """A ZooKeeper folder of its own, and a client of it."""
    path = f"/cli.shards.{uuid.uuid4().hex[:8]}"
    with_root = zookeeper_client(zookeeper)
    with_root.start(timeout=60)
    with_root.ensure_path(path)
    with_root.stop()
    with_root.close()
    client = zookeeper_client(f"{zookeeper}{path}")
    client.start(timeout=60)
    yield f"{zookeeper}{path}", client
    client.stop()
    client.close()


@pytest.fixture
def shard(place: tuple[str, KazooClient]) -> Iterator[Shard]:
    """Shard 0 of a store of one, registered; at most three series of a name."""
    made = Shard(capacity=1_000, limits=ShardLimits(series_a_name=3))
    server = FramedServer(idl().Shard, ShardService(made), name="cli")
    ensure_membership(place[1], Membership(("0",)))
    node = ShardAddress("0", "127.0.0.1", server.start(), "i", ALL_VSHARDS, ALL_VSHARDS).to_bytes(os.getpid())
    place[1].create(f"{SHARDS_PATH}/0", node, ephemeral=True, makepath=True)
    yield made
    server.stop()


def run(place: tuple[str, KazooClient], *words: str) -> Result:
    return CliRunner().invoke(app, ["shards", *words, "--zookeeper", place[0]])


def announce(shard: Shard, texts: Sequence[str]) -> None:
    shard.announce(SeriesBlock("s", 0, 1, tuple(SeriesInfo(text, ValueType.INTEGER) for text in texts)), 1)


def test_who_is_refused_and_how_many(place: tuple[str, KazooClient], shard: Shard) -> None:
    assert "0 of 1,000 series" in run(place, "limits").stdout
    names = {"few": 3, "many": 10, "more": 5}
    announce(shard, [f'{name}{{n="{n}"}}' for name, count in names.items() for n in range(count)])
    told = run(place, "limits")
    assert told.exit_code == 0
    first, *others = told.stdout.splitlines()
    assert "refused: 9 announced series, 0 samples" in first
    assert [line.split() for line in others] == [["7", "many"], ["2", "more"]]
    (one,) = json.loads(run(place, "limits", "--json").stdout)["shards"]
    assert (one["id"], one["capacity"], one["refused_series"]) == ("0", 1_000, 9)
    assert one["refused_names"] == [["many", 7], ["more", 2]]


def test_a_shard_that_does_not_answer_is_named(place: tuple[str, KazooClient], shard: Shard) -> None:
    gone = ShardAddress("1", "127.0.0.1", 1, "j").to_bytes(os.getpid())
    place[1].create(f"{SHARDS_PATH}/1", gone, ephemeral=True)
    told = run(place, "limits")
    assert told.exit_code == 1
    assert "shard 1 at 127.0.0.1:1 does not answer" in told.stdout
    assert shard.status()["capacity"] == 1_000  # the other one was asked all the same
    assert "0 of 1,000 series" in told.stdout


def test_members_come_and_go(place: tuple[str, KazooClient], shard: Shard) -> None:
    assert shard.id == "0"
    assert "256 of 256 virtual shards" in run(place, "list").stdout
    assert "now members 0, 1; 1 replicas" in run(place, "add", "1").stderr
    assert "now members 0, 1; 2 replicas" in run(place, "replicas", "2").stderr
    listed = run(place, "list").stdout.splitlines()
    assert [line.split()[:2] for line in listed[1:]] == [["0", "member"], ["1", "member"]]
    assert "not there" in listed[2]
    assert "0 of 256 virtual shards" in listed[2]
    (first, second) = json.loads(run(place, "list", "--json").stdout)["shards"]
    assert (first["ready"], second["address"], second["wanted"]) == (256, None, 256)
    for words, said in (
        (["remove", "1"], "1 members are left for 2 replicas: add a shard or lower the replicas first"),
        (["remove", "7"], "shard 7 is not a member"),
        (["add", "1"], "shard 1 is already a member"),
        (["add", "a/b"], "'a/b' cannot be the id of a shard"),
        (["replicas", "3"], "3 replicas are impossible on 2 members"),
    ):
        refused = run(place, *words)
        assert (refused.exit_code, said in refused.stderr) == (1, True), (words, refused.stderr)
    run(place, "replicas", "1")
    assert "now members 0; 1 replicas" in run(place, "remove", "1").stderr


def test_nobody_is_there(place: tuple[str, KazooClient]) -> None:
    for words in (["list"], ["limits"]):
        told = run(place, *words)
        assert told.exit_code == 1
        assert "there are no shards yet: start one with `artimon shard`" in told.stderr
    assert "start a shard first" in run(place, "add", "1").stderr


def test_an_entry_that_is_no_shard_hides_none(place: tuple[str, KazooClient], shard: Shard) -> None:
    """With an unreadable entry of any origin, queries and the feed continue with the present shards."""
    place[1].create(f"{SHARDS_PATH}/a/b", b"{}", makepath=True)
    place[1].create(f"{SHARDS_PATH}/c", b'{"host": 1}')
    assert "256 of 256 virtual shards" in run(place, "list").stdout
    assert list(ShardDirectory(place[1]).live_shards()) == [shard.id]
