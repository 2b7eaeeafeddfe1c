"""Shard processes and their client over real sockets, ZooKeeper and Kafka."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from artimon.model.batch import BatchId, SeriesBlock, SeriesInfo
from artimon.model.batch_codec import encode_series
from artimon.model.feed_codec import encode_range
from artimon.model.grid import Grid, parse_levels
from artimon.model.hash_routing import ownership, virtual_shard
from artimon.model.select import NAME, Buckets, Matcher, SelectError, SelectRequest
from artimon.model.values import Kind, ValueType
from artimon.model.vshards import from_hex, mask_of, to_hex
from artimon.runtime.health import read_health
from artimon.runtime.machine_memory import memory_limit
from artimon.runtime.zookeeper_client import zookeeper_client
from artimon.stack.topics import TopicSpec, make_topics
from bookkeeper.rpc.framed_server import FramedClient
from tests.pipeline.kafka_helpers import APPEND_TIME
from tests.varstore.worlds import TestBatch, print_of, range_of, text_of
from tests.waiting import eventually
from varstore.cluster import membership as membership_of
from varstore.cluster.log_ends import end_of_epoch, log_span
from varstore.cluster.membership import VARSTORE_PATH, Membership, MembershipWatch
from varstore.cluster.varstore_client import StoreUnavailable, VarstoreClient
from varstore.shard.shard_service import idl
from varstore.shard_process import SHARDS_PATH, LevelsDiffer, ShardConfig, run_shard

pytestmark = pytest.mark.stack

NOW = 1_800_000_000_000
ALL = SelectRequest((Matcher(NAME, "prefix", "test."),), Grid(NOW + 60_000, 60_000, 2))
MEMBERS = ("0", "1")


@dataclass
class Cluster:
    """Two shards of a separate store with separate topics."""

    zookeeper: str
    kafka: str
    prefix: str
    health: Path
    topic_id: str
    running: dict[str, tuple[threading.Event, threading.Thread]] = field(default_factory=dict)

    def start(self, id: str) -> None:
        """Run one shard in a thread."""
        stop = threading.Event()
        config = ShardConfig(
            id=id,
            members=MEMBERS,
            zookeeper=self.zookeeper,
            kafka=self.kafka,
            capacity=2_000,
            health=self.health / f"shard-{id}.json",
            topic_prefix=self.prefix,
        )
        thread = threading.Thread(target=run_shard, args=(config, stop), daemon=True)
        thread.start()
        self.running[id] = (stop, thread)

    def stop(self, id: str) -> None:
        """Stop the shard and wait."""
        stop, thread = self.running.pop(id)
        stop.set()
        thread.join(60)
        assert not thread.is_alive()
        (self.health / f"shard-{id}.json").unlink()

    def place(self, id: str) -> tuple[str, int]:
        """Return the address of a shard, once it is registered."""
        found: list[dict[str, Any]] = []

        def look() -> bool:
            health = read_health(self.health / f"shard-{id}.json")
            if health is None or health.state != "ok" or health.problem or not health.figures["vshards"]:
                return False
            found.append(health.figures)
            return True

        eventually(look)
        return "127.0.0.1", int(found[-1]["port"])

    def wait_whole(self, id: str) -> None:
        """Wait until a shard reports that it holds all of its virtual shards."""

        def look() -> bool:
            health = read_health(self.health / f"shard-{id}.json")
            figures = health.figures if health else {}
            return bool(figures.get("vshards_wanted")) and figures["vshards_wanted"] == figures["vshards_ready"]

        eventually(look)

    def feed(self, id: str, log: list[TestBatch], start: int, until: int, partition: int = 0) -> Any:
        """Feed a shard, as the buckets job does."""
        with FramedClient(idl().Shard, *self.place(id)) as client:
            (group,) = json.loads(client.call("groups"))
            range_ = range_of(log, start, until, partition, self.topic_id)
            return client.call("feed", encode_range(replace(range_, vshards=from_hex(group["vshards"]))))

    def announce(self, block: SeriesBlock) -> None:
        """Send an announcement, as the collector does, and an undecodable one."""
        producer = KafkaProducer(bootstrap_servers=self.kafka, acks="all")
        producer.send(f"{self.prefix}.series", key=block.key, value=encode_series("agent", block).data).get(timeout=20)
        producer.send(f"{self.prefix}.series", key=b"poison", value=b"no batch").get(timeout=20)
        producer.close()


def id_of(kafka: str, topic: str) -> str:
    """Return the id of a topic that was just made."""
    found: list[str] = []

    def is_known() -> bool:
        try:
            found.append(log_span(kafka, topic)[0])
        except KafkaError:
            return False
        return True

    eventually(is_known)
    return found[0]


@contextmanager
def chroot(zookeeper: str, path: str) -> Iterator[str]:
    """Yield the address of a ZooKeeper folder that clients use like a ZooKeeper of its own."""
    client = zookeeper_client(zookeeper)
    client.start(timeout=60)
    client.ensure_path(path)
    yield f"{zookeeper}{path}"
    client.stop()
    client.close()


@pytest.fixture
def cluster(zookeeper: str, kafka: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Two shards, stopped at the end."""
    prefix = f"h4.{request.node.name[:40].replace('[', '-').replace(']', '')}"
    make_topics(kafka, (TopicSpec(f"{prefix}.series", 2, APPEND_TIME), TopicSpec(f"{prefix}.samples", 2, APPEND_TIME)))
    with ExitStack() as stack:
        topic_id = id_of(kafka, f"{prefix}.samples")
        made = Cluster(stack.enter_context(chroot(zookeeper, f"/{prefix}")), kafka, prefix, tmp_path, topic_id)
        for id in MEMBERS:
            made.start(id)
        yield made
        for id in list(made.running):
            made.stop(id)


@pytest.fixture
def cluster_store(cluster: Cluster) -> Iterator[VarstoreClient]:
    """A client that sees both shards."""
    for id in MEMBERS:
        cluster.place(id)
    with VarstoreClient(cluster.zookeeper, deadline_s=5) as client:
        eventually(lambda: len(statuses(client)) == 2)
        eventually(lambda: is_whole(client))
        yield client


def statuses(client: VarstoreClient) -> dict[str, Any]:
    """Return the statuses, empty while no shard answers."""
    try:
        return client.statuses()
    except StoreUnavailable:
        return {}


def is_whole(client: VarstoreClient) -> bool:
    """Return True if nothing is missing."""
    try:
        return not client.select(ALL).partial
    except StoreUnavailable:
        return False


def source_of(id: str) -> str:
    """Return a source that a shard owns."""
    owned = ownership(MEMBERS)[id]
    return next(f"s{i}" for i in range(1_000) if virtual_shard(f"s{i}") in owned)


def held_by(id: str) -> str:
    """Return the mask of the virtual shards of a member."""
    return to_hex(mask_of(ownership(MEMBERS)[id]))


def log_of(id: str, series: list[int], batches: int = 3, lane: int = 0) -> list[TestBatch]:
    """Return batches of integers 1, 2, 3 … of a source of that shard."""
    return [
        TestBatch(
            BatchId("agent", 1, lane, i),
            source_of(id),
            NOW + 2_000,
            [(print_of(s), NOW + 1_000 + i, NOW, i + 1) for s in series],
        )
        for i in range(batches)
    ]


def block_of(id: str, series: list[int], version: int = 1) -> SeriesBlock:
    """Return the announcement of these series."""
    infos = tuple(SeriesInfo(text_of(s), ValueType.INTEGER, Kind.COUNTER) for s in series)
    return SeriesBlock(source_of(id), 0, version, infos)


def counts(buckets: Buckets) -> dict[str, int]:
    """Return the samples in the last bucket, by name."""
    column = buckets.statistics["count"][:, -1].tolist()
    return dict(zip((s.name for s in buckets.series), column, strict=True))


def test_samples_appear_once_their_series_are_announced(cluster: Cluster, cluster_store: VarstoreClient) -> None:
    """Samples without an announcement are kept, and appear once it arrives; an undecodable announcement stops
    nothing."""
    cluster.feed("0", log_of("0", [0, 1]), 0, 3)
    cluster.feed("1", log_of("1", [2], lane=1), 0, 3)
    assert cluster_store.select(ALL).series == ()
    assert {s["unannounced"] for s in cluster_store.statuses().values()} == {1, 2}
    cluster.announce(block_of("0", [0, 1]))
    cluster.announce(block_of("1", [2]))
    eventually(lambda: len(cluster_store.names()) == 3)
    answer = cluster_store.select(ALL)
    assert counts(answer) == {"test.v0": 3, "test.v1": 3, "test.v2": 3}
    assert sorted(answer.statistics["last"][:, -1].tolist()) == [3, 3, 3]
    assert (answer.partial, answer.notes) == (False, ())
    assert cluster_store.names() == ["test.v0", "test.v1", "test.v2"]
    assert (cluster_store.label_values("part"), cluster_store.label_values(None)) == (["0", "1", "2"], ["part"])
    assert [s.name for s in cluster_store.find((Matcher("part", "=~", "1|2"),))] == ["test.v1", "test.v2"]
    assert cluster_store.matching_values("part", (Matcher(NAME, "!=", "test.v0"),)) == ["1", "2"]
    assert cluster_store.matching_values(None, (Matcher(NAME, "=", "test.v0"),)) == ["part"]
    assert cluster_store.metadata(None) == cluster_store.metadata(["test.v0"]) == {}
    count = cluster_store.cardinality(2)
    assert (count.series, count.series_by_name) == (3, {"test.v0": 1, "test.v1": 1})
    assert count.series_by_pair == {"part=0": 1, "part=1": 1}
    assert cluster_store.levels() == ((60_000, 60), (300_000, 48), (900_000, 96), (3_600_000, 72))


def test_answers_are_partial_while_a_shard_is_gone_and_complete_after_it_is_fed(
    cluster: Cluster, cluster_store: VarstoreClient
) -> None:
    """The missing shard is named; fed again from 0 it gives the same answers."""
    log = log_of("0", [0, 1])
    cluster.announce(block_of("0", [0, 1]))
    cluster.announce(block_of("1", [2]))
    cluster.feed("0", log, 0, 3)
    eventually(lambda: len(cluster_store.names()) == 3)
    before = cluster_store.select(ALL)
    cluster.stop("0")
    eventually(lambda: cluster_store.select(ALL).partial)
    away = cluster_store.select(ALL)
    assert [s.name for s in away.series] == ["test.v2"]
    assert away.notes == (
        f"shard 0 is not alive: series of {len(ownership(MEMBERS)['0'])} of 256 virtual shards are missing",
    )
    cluster.start("0")
    assert cluster.feed("0", log, 2, 3).next_offset == 0  # the shard is empty and requests offset 0
    assert cluster.feed("0", log, 0, 3).next_offset == 3
    eventually(lambda: len(cluster_store.names()) == 3 and is_whole(cluster_store))
    after = cluster_store.select(ALL)
    assert (counts(after), after.partial) == (counts(before), False)
    cluster.stop("0")
    cluster.stop("1")
    with pytest.raises(StoreUnavailable, match="shard"):
        cluster_store.select(ALL)


def test_a_restarted_shard_reports_that_it_refills(cluster: Cluster, cluster_store: VarstoreClient) -> None:
    """Its answers are partial until it holds everything that Kafka had when it started."""
    producer = KafkaProducer(bootstrap_servers=cluster.kafka, acks="all")
    for _ in range(3):
        producer.send(f"{cluster.prefix}.samples", value=b"any", partition=0).get(timeout=20)
    producer.close()
    cluster.stop("0")
    cluster.start("0")
    cluster.place("0")
    eventually(lambda: any("refilling: 3 batches" in note for note in cluster_store.select(ALL).notes))
    assert cluster_store.select(ALL).partial
    cluster.feed("0", log_of("0", [0]), 0, 3)
    eventually(lambda: is_whole(cluster_store))


def test_refusals_reach_the_caller(cluster: Cluster, cluster_store: VarstoreClient) -> None:
    """Refusals are SelectErrors with numbers, not broken connections; also where only the sum over all shards is too
    large."""
    cluster.announce(block_of("0", [0, 1]))
    cluster.announce(block_of("1", [2]))
    eventually(lambda: len(cluster_store.names()) == 3)
    for limit, text in ((1, "2 series of shard 0 fit, at most 1"), (2, "3 series fit, at most 2")):
        with pytest.raises(SelectError, match=text):
            cluster_store.select(SelectRequest(ALL.matchers, ALL.grid, limit=limit))
    with pytest.raises(SelectError, match="60 x 60 s"):
        cluster_store.select(SelectRequest(ALL.matchers, Grid(NOW, 1_000, 1)))
    with FramedClient(idl().Shard, *cluster.place("0")) as client:
        for method, argument in (("select", b"{}"), ("find", b"[1]"), ("find", b'{"what":"x"}'), ("feed", [b"x"])):
            with pytest.raises(idl().ShardError):
                client.call(method, argument)
        assert {group["vshards"] for group in json.loads(client.call("groups"))} == {held_by("0")}


def test_a_series_of_two_sources_is_merged_into_one_row(cluster: Cluster, cluster_store: VarstoreClient) -> None:
    """Two shards hold some of its samples (its poller moved); the client merges them."""
    cluster.announce(block_of("0", [0]))
    cluster.announce(block_of("1", [0, 1], version=2))
    cluster.feed("0", log_of("0", [0]), 0, 3)
    cluster.feed("1", log_of("1", [0, 1], batches=5, lane=1), 0, 5)
    eventually(lambda: len(cluster_store.names()) == 2)
    answer = cluster_store.select(SelectRequest(ALL.matchers, ALL.grid, ("last", "sum", "count", "max")))
    assert counts(answer) == {"test.v0": 8, "test.v1": 5}
    at = [s.name for s in answer.series].index("test.v0")
    assert {name: int(matrix[at, -1]) for name, matrix in answer.statistics.items()} == {
        "last": 5, "sum": 6 + 15, "count": 8, "max": 5,
    }  # fmt: skip
    assert [tuple(life)[2:] for life in answer.births.tolist() if life[0] == at] == [(NOW + 1_000, NOW + 1_004, 5)]


def test_a_hanging_shard_delays_an_answer_by_the_deadline_at_most(
    cluster: Cluster, cluster_store: VarstoreClient
) -> None:
    """The answer of the other shard arrives, with a note."""
    cluster.announce(block_of("1", [2]))
    eventually(lambda: len(cluster_store.names()) == 1)
    cluster.stop("0")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = zookeeper_client(cluster.zookeeper)
        client.start(timeout=60)
        at = {"host": "127.0.0.1", "port": silent.getsockname()[1], "pid": 0, "incarnation": "x"}
        node = {**at, "held": held_by("0"), "holds": held_by("0")}
        client.create(f"{SHARDS_PATH}/0", json.dumps(node).encode(), ephemeral=True)
        with VarstoreClient(cluster.zookeeper, deadline_s=1.5) as impatient:
            began = monotonic()
            answer = impatient.select(ALL)
            assert monotonic() - began < 30
        client.stop()
        client.close()
    assert [s.name for s in answer.series] == ["test.v2"]
    assert answer.partial
    assert any("shard 0 did not answer" in note for note in answer.notes)


def test_kafka_reports_the_end_offset_of_each_leader_epoch(cluster: Cluster, cluster_store: VarstoreClient) -> None:
    topic = f"{cluster.prefix}.samples"
    producer = KafkaProducer(bootstrap_servers=cluster.kafka, acks="all")
    producer.send(topic, value=b"x", partition=0).get(timeout=20)
    producer.close()
    admin = KafkaAdminClient(bootstrap_servers=cluster.kafka)
    (found,) = admin.describe_topics([topic])
    partition = next(p for p in found["partitions"] if p["partition_index"] == 0)
    assert end_of_epoch(admin, topic, partition, partition["leader_epoch"]) == 1
    assert end_of_epoch(admin, topic, partition, partition["leader_epoch"] + 3) == 0
    with pytest.raises(KafkaError):
        end_of_epoch(admin, topic, {**partition, "leader_epoch": partition["leader_epoch"] + 1}, 0)
    admin.close()


def test_health_has_the_figures_of_the_shard(cluster: Cluster, cluster_store: VarstoreClient) -> None:
    """The figures are those that `artimon status` shows."""
    cluster.feed("0", log_of("0", [0, 1]), 0, 3)
    path = cluster.health / "shard-0.json"

    def figures() -> dict[str, Any]:
        health = read_health(path)
        return health.figures if health else {}

    eventually(lambda: figures().get("applied") == 6)
    assert figures()["next_offsets"] == {"0": 3}
    assert figures()["newest_sample_ms"] == NOW + 2_000
    assert figures()["slots"] == 2
    eventually(lambda: figures()["memory_limit"] == memory_limit() // len(MEMBERS))  # both run on one machine


def test_a_shard_serves_without_zookeeper_and_kafka_and_reports_it(tmp_path: Path) -> None:
    """Both are absent at the start: the shard serves, reports the problem, and stops on request."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        nowhere = f"127.0.0.1:{nobody.getsockname()[1]}"
    stop = threading.Event()
    path = tmp_path / "health.json"
    config = ShardConfig("0", ("0",), nowhere, nowhere, capacity=1_000, health=path)
    thread = threading.Thread(target=run_shard, args=(config, stop), daemon=True)
    thread.start()

    def is_reported() -> bool:
        health = read_health(path)
        return health is not None and "not registered in ZooKeeper" in health.problem and health.state == "starting"

    eventually(is_reported)
    health = read_health(path)
    assert health is not None
    with FramedClient(idl().Shard, "127.0.0.1", int(health.figures["port"])) as client:
        assert client.call("groups") == "[]"
    with VarstoreClient(nowhere, deadline_s=0.5) as client_, pytest.raises(StoreUnavailable, match="ZooKeeper"):
        client_.select(ALL)
    stop.set()
    thread.join(60)
    assert not thread.is_alive()


def test_a_shard_that_is_no_member_is_idle_and_reports_it(zookeeper: str, kafka: str, tmp_path: Path) -> None:
    """The membership in ZooKeeper overrides the command line."""
    health = tmp_path / "health.json"

    def is_reported() -> bool:
        found = read_health(health)
        return found is not None and "not among the members 7, and holds nothing: it can be stopped" in found.problem

    with chroot(zookeeper, "/h4.members") as place:
        propose(place, Membership(("7",)))
        stop = threading.Event()
        config = ShardConfig("0", ("0",), place, kafka, capacity=1_000, health=health)
        thread = threading.Thread(target=run_shard, args=(config, stop), daemon=True)
        thread.start()
        eventually(is_reported)
        stop.set()
        thread.join(60)


def test_a_shard_with_other_levels_is_refused(zookeeper: str, kafka: str) -> None:
    with chroot(zookeeper, "/h4.levels") as place:
        propose(place, Membership(("0",), levels=parse_levels("60x60,300x48")))
        with pytest.raises(LevelsDiffer, match=r"started with levels 60x60,300x48,900x96.*the store has 60x60,300x48 "):
            run_shard(ShardConfig("0", ("0",), place, kafka, capacity=1_000), threading.Event())
        with VarstoreClient(place) as client:
            assert client.levels() == ((60_000, 60), (300_000, 48))


def test_the_membership_is_restored_to_an_emptied_zookeeper(zookeeper: str) -> None:
    """The running shards write the last membership, not that of their command lines."""
    with chroot(zookeeper, "/h4.emptied") as place:
        client = zookeeper_client(place)
        client.start(timeout=60)
        watch = MembershipWatch(client, Membership(("0",)))
        assert not watch.current.confirmed
        assert watch.poll() == Membership(("0",))
        changed = membership_of.update_membership(
            client, lambda membership: membership.with_member("1").with_replicas(2)
        )
        eventually(lambda: watch.poll() == changed)
        client.delete(VARSTORE_PATH)
        eventually(lambda: watch.poll() == changed and membership_of.read_membership(client) == changed)
        client.stop()
        client.close()


def propose(place: str, membership: Membership) -> None:
    """Register a membership, as a first shard does."""
    client = zookeeper_client(place)
    client.start(timeout=60)
    assert membership_of.ensure_membership(client, membership) == membership
    client.stop()
    client.close()
