"""Shard processes that die, hang, join and leave under load: answers stay correct and complete, or are marked
partial."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from artimon.runtime.zookeeper_client import zookeeper_client
from artimon.stack.topics import TopicSpec, make_topics
from tests.pipeline.kafka_helpers import APPEND_TIME
from tests.varstore.cluster import Cluster, Watcher
from tests.varstore.feeding import PARTITIONS
from tests.varstore.test_server import chroot, id_of
from tests.waiting import eventually
from varstore.cluster import membership as membership_of
from varstore.cluster.membership import Membership
from varstore.cluster.varstore_client import VarstoreClient

pytestmark = pytest.mark.stack
LATE_S = 4.0


@contextmanager
def made(
    zookeeper: str,
    kafka: str,
    folder: Path,
    name: str,
    members: str,
    replicas: int,
    batches: int = 120,
    **options: Any,
) -> Iterator[Cluster]:
    """Return a running store of these members that holds some batches."""
    prefix = f"h6.{name}"
    counts = {f"{prefix}.series": 2, f"{prefix}.samples": PARTITIONS}
    make_topics(kafka, tuple(TopicSpec(topic, count, APPEND_TIME) for topic, count in counts.items()))
    topic_id = id_of(kafka, f"{prefix}.samples")
    with chroot(zookeeper, f"/{prefix}") as place, VarstoreClient(place) as store:
        client = zookeeper_client(place)
        client.start(timeout=60)
        membership_of.ensure_membership(client, Membership(tuple(members), replicas))
        cluster = Cluster(place, kafka, prefix, topic_id, folder, client, store, options)
        cluster.start(*members)
        try:
            cluster.announce_all()
            cluster.sample(batches)
            cluster.load()
            cluster.settle(*members)
            yield cluster
        finally:
            cluster.close()
            client.stop()
            client.close()


@pytest.fixture(scope="module")
def running(zookeeper: str, kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three shards, each virtual shard on two of them."""
    with made(zookeeper, kafka, tmp_path_factory.mktemp("cluster"), "trio", "012", 2) as cluster:
        yield cluster


@pytest.fixture
def trio(running: Cluster) -> Iterator[Cluster]:
    """The running store, settled before and after each test."""
    running.settle("0", "1", "2")
    yield running
    running.rest()
    for id_, process in running.processes.items():
        process.send_signal(signal.SIGCONT)
        if process.poll() is not None:
            running.restart(id_)
    running.problems.clear()
    running.load()


def pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def test_a_killed_replica_does_not_affect_answers(trio: Cluster) -> None:
    """After its restart the shard holds the same data as the others."""
    trio.rest()
    trio.load(10)
    with Watcher(trio, LATE_S) as watcher:
        trio.kill("1")
        pause(1.5)
        trio.restart("1")
        trio.settle("0", "1", "2")
    trio.rest()
    trio.check()
    assert watcher.wrong == []
    assert watcher.asked > 10
    trio.kill("0")  # the remaining shards have to be complete without it
    trio.check()


def test_a_hanging_replica_delays_answers_little(trio: Cluster) -> None:
    trio.rest()
    trio.check()
    trio.send("2", signal.SIGSTOP)
    with Watcher(trio, LATE_S) as watcher:
        pause(2.0)
    trio.send("2", signal.SIGCONT)
    assert watcher.wrong == []
    assert watcher.asked > 10
    trio.check()


@pytest.mark.slow
def test_a_replica_suspended_past_its_session_never_answers_with_old_data(trio: Cluster) -> None:
    trio.rest()
    trio.load(10)
    with Watcher(trio, LATE_S + 2) as watcher:
        trio.send("0", signal.SIGSTOP)
        eventually(lambda: "0" not in trio.places(), "its session is over")
        pause(5.0)
        trio.send("0", signal.SIGCONT)
        trio.settle("0", "1", "2")
    trio.rest()
    trio.check()
    assert watcher.wrong == []
    trio.kill("2")  # half of its virtual shards are now held by the resumed shard alone
    trio.check()


@pytest.mark.slow
def test_a_shard_joins_and_another_leaves_under_load(zookeeper: str, kafka: str, tmp_path: Path) -> None:
    """With one replica the moved virtual shards are never missing."""
    with made(zookeeper, kafka, tmp_path, "moves", "01", 1) as cluster:
        cluster.rest()
        cluster.load(10)
        with Watcher(cluster, LATE_S) as watcher:
            cluster.start("2")
            cluster.change(lambda membership: membership.with_member("2"))
            cluster.settle("0", "1", "2")
            cluster.change(lambda membership: membership.without_member("0"))
            cluster.settle("1", "2")
        cluster.rest()
        cluster.check()
        assert watcher.wrong == []
        assert cluster.places()["0"].held_vshards == 0
        cluster.kill("0")
        cluster.check()


def test_answers_stay_right_after_replicas_are_added_and_one_is_killed(
    zookeeper: str, kafka: str, tmp_path: Path
) -> None:
    with made(zookeeper, kafka, tmp_path, "copies", "01", 1) as cluster:
        cluster.change(lambda membership: membership.with_replicas(2))
        cluster.settle("0", "1")
        cluster.rest()
        cluster.kill("1")
        cluster.check(10)
