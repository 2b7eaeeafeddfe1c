"""The buckets query over two generations of the topic: every shard gets all of the first and of the second, once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from artimon.model.hash_routing import partition_of
from artimon.model.ranges import LaneRanges
from artimon.stack.topics import migrate_samples
from pipeline.spark.spark_settings import SparkConfig
from tests.spark.conftest import client, config, connector, session
from tests.spark.driving import buckets_query
from tests.spark.helpers import Sender
from tests.spark.recorder import RecordingShard
from tests.spark.test_buckets import MEMBERS, is_exact
from tests.waiting import eventually

__all__ = ["client", "config", "connector", "session"]
pytestmark = pytest.mark.stack
GROWN = 6


class _OneForAll(dict[tuple[str, int], LaneRanges]):
    """Numbers seen, whatever the topic: as a shard keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self._seen = LaneRanges()

    def setdefault(self, _key: tuple[str, int], _default: LaneRanges | None = None) -> LaneRanges:
        return self._seen


class Shard(RecordingShard):
    def forget(self) -> None:
        super().forget()
        self.seen = _OneForAll()


@pytest.fixture
def shards(client: KazooClient) -> Iterator[list[RecordingShard]]:
    made: list[RecordingShard] = [Shard(id_, MEMBERS) for id_ in MEMBERS]
    for shard in made:
        shard.start(client)
    yield made
    for shard in made:
        shard.stop(client)


@pytest.fixture
def sender(config: SparkConfig) -> Iterator[Sender]:
    made = Sender(config.kafka, config.samples_topic)
    yield made
    made.close()


def grow(config: SparkConfig, sender: Sender) -> None:
    """The sender goes over to the new topic."""
    _, sender.topic = migrate_samples(config.kafka, config.topic_prefix, GROWN)
    sender.partition = partition_of(sender.agent, sender.epoch, sender.lane, GROWN)


def test_a_shard_that_was_away_gets_the_rest_of_the_old_topic_too(
    config: SparkConfig, session: SparkSession, client: KazooClient, shards: list[RecordingShard], sender: Sender
) -> None:
    for n in range(10):
        sender.numbers(f"s{n}/h/0", 5, n)
    with buckets_query(config, session, client):
        eventually(lambda: is_exact(sender, shards), "both full")
        shards[0].stop(client)
        data = [sender.numbers(f"s{n}/h/0", 5, n) for n in range(10, 20)]
        grow(config, sender)
        sender.send_bytes(data[-1])  # sent again over the change
        for n in range(20, 30):
            sender.numbers(f"s{n}/h/0", 5, n)
        eventually(lambda: len(shards[1].rows) > 0 and shards[1].repeated == 1, "the other one goes on")
        shards[0].start(client)
        eventually(lambda: is_exact(sender, shards), "both full again")
    assert [shard.gaps for shard in shards] == [0, 0]
    assert len({topic for topic, _ in shards[0].next}) == 2


def test_a_query_that_begins_after_the_change_reads_both(
    config: SparkConfig, session: SparkSession, client: KazooClient, shards: list[RecordingShard], sender: Sender
) -> None:
    for n in range(10):
        sender.numbers(f"s{n}/h/0", 5, n)
    grow(config, sender)
    sender.numbers("new/h/0", 5)
    with buckets_query(config, session, client):
        eventually(lambda: is_exact(sender, shards), "both full")
        for shard in shards:  # empty, while the query goes on
            shard.stop(client)
            shard.forget()
            shard.start(client)
        sender.numbers("newer/h/0", 5)
        eventually(lambda: is_exact(sender, shards), "both full again")
