"""Kafka: three brokers, two copies in sync, under load. Brokers end, lose their disks, leaders change
all the while, partitions move, the topic grows; table and shards hold exactly what was accepted."""

from __future__ import annotations

import random
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaError

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.topic_spec import SEALED_BYTES
from artimon.runtime.settings import kafka_security
from artimon.runtime.topic_check import describe_topics, newest_generation, open_admin
from artimon.stack.kafka_part import broker_name
from artimon.stack.topics import TOPICS, migrate_samples
from tests.faults.conftest import Scale
from tests.faults.test_shards import REPLICAS, SHARDS, holds_all, wrong_buckets
from tests.faults.world import World
from tests.kafka.secure import broker_options, client_environment
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.stack, pytest.mark.timeout(5400)]
BROKERS = 3
SAMPLES = TOPICS[0].name
PREFERRED = 0
HEALTHY_S = 300.0
RATE = 30_000.0
CHANGE_S = 10.0
"""From one change of leaders to the next: the raw query begins again after each."""


@pytest.fixture
def options(scale: Scale) -> dict[str, str]:
    return {
        "rate": str(min(RATE, scale.rate)),
        "sources": "30",
        "series": "1000",
        "capacity": "100000",
        "shards": str(len(SHARDS)),
        "replicas": str(REPLICAS),
        "kafka_heap_mb": "256",
    }


class Brokers:
    """Faults of the brokers of a world."""

    def __init__(self, world: World, seed: int) -> None:
        self._stack, self._random = world.stack, random.Random(seed)
        self.moves: Counter[str] = Counter()

    def kill(self, number: int) -> None:
        """kill -9; the supervisor starts it again."""
        self._stack.kill(broker_name(number))
        self._recover()

    def wipe(self, number: int) -> None:
        """The disk is lost with all that was on it, metadata of the cluster too."""
        self._stack.kill_part(broker_name(number))
        shutil.rmtree(self._stack.data / broker_name(number) / "data")
        self._stack.start_part(broker_name(number))
        self._recover()

    @contextmanager
    def leaders_change(self) -> Iterator[None]:
        """All the while: replicas move to other places, then the preferred leaders are elected."""
        stop = threading.Event()
        thread = threading.Thread(target=self._change, args=(stop,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(60)

    def _change(self, stop: threading.Event) -> None:
        while not SYSTEM_CLOCK.wait(stop, CHANGE_S):
            try:
                self._change_once()
            except (KafkaError, OSError, RuntimeError) as error:  # a broker is away
                self.moves[type(error).__name__] += 1

    def _change_once(self) -> None:
        admin = open_admin(self._stack.kafka)
        try:
            found = newest_generation(admin, SAMPLES)
            assert found is not None
            order = {
                TopicPartition(found.name, p): self._random.sample(sorted(nodes), len(nodes))
                for p, nodes in found.replicas.items()
            }
            admin.alter_partition_reassignments(order, timeout_ms=10_000)
            admin.elect_leaders(PREFERRED, {found.name: sorted(found.replicas)}, timeout_ms=10_000, raise_errors=False)
            self.moves["elections"] += 1
        finally:
            admin.close()

    def _recover(self) -> None:
        self._stack.wait_healthy(HEALTHY_S, [broker_name(n) for n in range(1, BROKERS + 1)])
        eventually(self._whole, "all copies are in sync", HEALTHY_S)

    def _whole(self) -> bool:
        try:
            admin = open_admin(self._stack.kafka)
        except RuntimeError:
            return False
        try:
            topics = admin.describe_topics([topic.name for topic in TOPICS])
            return all(len(p["isr_nodes"]) >= BROKERS for topic in topics for p in topic["partitions"])
        except (KafkaError, OSError):
            return False
        finally:
            admin.close()


def check_everything(world: World) -> None:
    """Ledger, table and every bucket of every shard."""
    proof = world.prove(1800)
    eventually(lambda: holds_all(world.stack), "every shard holds everything", 600)
    wrong = wrong_buckets(world.stack, world.sources())
    print(f"# {proof}", flush=True)
    assert not wrong, f"{len(wrong)} differences: " + "; ".join(wrong[:6])
    assert proof.dead_letters == 0


def test_brokers_end_lose_disks_and_change_leaders(folder: Path, options: dict[str, str], scale: Scale) -> None:
    print(f"# seed {scale.seed}")
    with World(folder / "brokers", {**options, "brokers": str(BROKERS)}, shards=len(SHARDS)) as world:
        brokers = Brokers(world, scale.seed)
        world.produce()
        world.wait_appends(2)
        for number in range(1, BROKERS + 1):
            brokers.kill(number)
            world.wait_appends(1)
        brokers.wipe(2)
        world.wait_appends(1)
        with brokers.leaders_change():
            SYSTEM_CLOCK.wait(threading.Event(), scale.zookeeper_s)
            brokers.kill(1)
            world.wait_appends(2)
        brokers.wipe(3)
        print(f"# {dict(brokers.moves)}", flush=True)
        assert brokers.moves["elections"] > 0
        check_everything(world)


def test_the_topic_grows_under_load(folder: Path, options: dict[str, str]) -> None:
    with World(folder / "grow", options, shards=len(SHARDS)) as world:
        world.produce()
        world.wait_appends(2)
        migrate_samples(world.stack.kafka, "artimon", 12)
        eventually(lambda: len(world.figures("spark")["raw"]["until"]) == 12, "the table goes over", 300)
        world.wait_appends(2)
        world.stack.kill("shard-0")
        world.stack.kill("spark")
        world.stack.wait_healthy(HEALTHY_S)
        admin = open_admin(world.stack.kafka)
        assert describe_topics(admin, [SAMPLES])[SAMPLES].config["max.message.bytes"] == str(SEALED_BYTES)
        admin.close()
        check_everything(world)


@pytest.fixture
def secured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Options of a stack whose broker wants SASL_SSL; this process and those it starts may use it."""
    made = broker_options(tmp_path, "SCRAM-SHA-512")
    for name, value in client_environment(tmp_path, "SCRAM-SHA-512").items():
        monkeypatch.setenv(name, value)
    kafka_security.cache_clear()
    yield made
    monkeypatch.undo()
    kafka_security.cache_clear()


def test_every_process_over_sasl_and_tls(folder: Path, options: dict[str, str], secured: dict[str, str]) -> None:
    with World(folder / "secured", {**options, **secured}, shards=len(SHARDS)) as world:
        world.produce()
        world.wait_appends(3)
        world.stack.kill("kafka")
        world.wait_appends(2)
        check_everything(world)
