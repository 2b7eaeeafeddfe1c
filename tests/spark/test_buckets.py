"""The buckets query on real servers: every shard gets the rows that it owns exactly once, from any position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from pipeline.spark.spark_settings import SparkConfig
from tests.spark.driving import buckets_query
from tests.spark.helpers import Sender
from tests.spark.recorder import RecordingShard
from tests.waiting import eventually

pytestmark = pytest.mark.stack
MEMBERS = ["0", "1"]


@pytest.fixture
def shards(client: KazooClient) -> Iterator[list[RecordingShard]]:
    made = [RecordingShard(id_, MEMBERS) for id_ in MEMBERS]
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


def wanted(sender: Sender) -> Counter[tuple[int, int, int, str]]:
    """Return the ledger without the sources, which shards do not keep with their rows."""
    rows: Counter[tuple[int, int, int, str]] = Counter()
    for (_, fingerprint, time, birth, value), count in sender.ledger.items():
        rows[fingerprint, time, birth, value] += count
    return rows


def is_exact(sender: Sender, shards: list[RecordingShard]) -> bool:
    held: Counter[tuple[int, int, int, str]] = Counter()
    for shard in shards:
        held.update(shard.rows)
    return held == wanted(sender)


def test_two_shards_get_the_rows_they_own(
    config: SparkConfig, session: SparkSession, client: KazooClient, shards: list[RecordingShard], sender: Sender
) -> None:
    """Both shards count repeats and store none; an undecodable message only moves the offset."""
    with buckets_query(config, session, client):
        for n in range(10):
            sender.numbers(f"s{n}/h/0", 20, n, copies=1 + n % 2)
        sender.send_bytes(b"garbage")
        sender.numbers("last/h/0", 3)
        eventually(lambda: all(s.next.get(key) == 17 for s in shards for key in s.next), "all offsets")
        eventually(lambda: is_exact(sender, shards), "every row")
    assert [s.repeated for s in shards] == [5, 5]
    assert [s.dead for s in shards] == [1, 1]
    assert all(s.rows for s in shards)


def test_a_shard_that_restarts_empty_is_filled_again(
    config: SparkConfig, session: SparkSession, client: KazooClient, shards: list[RecordingShard], sender: Sender
) -> None:
    """The other shard is fed meanwhile."""
    for n in range(40):
        sender.numbers(f"s{n}/h/0", 5, n)
    with buckets_query(config, session, client) as query:
        eventually(lambda: is_exact(sender, shards), "both full")
        shards[0].stop(client)
        shards[0].forget()
        for n in range(40, 45):
            sender.numbers(f"s{n}/h/0", 5, n)
        eventually(lambda: max(shards[1].next.values()) == 45, "the other continues")
        shards[0].start(client)
        for n in range(45, 50):
            sender.numbers(f"s{n}/h/0", 5, n)
        eventually(lambda: is_exact(sender, shards), "both full again")
        eventually(lambda: query.figures().get("lagging") == [], "no shard lags")


def test_a_shard_that_was_down_from_the_start_joins(
    config: SparkConfig, session: SparkSession, client: KazooClient, shards: list[RecordingShard], sender: Sender
) -> None:
    shards[1].stop(client)
    for n in range(10):
        sender.numbers(f"s{n}/h/0", 5, n)
    with buckets_query(config, session, client):
        eventually(lambda: bool(shards[0].next) and max(shards[0].next.values()) == 10, "the running shard")
        shards[1].start(client)
        eventually(lambda: is_exact(sender, shards), "both")


def test_all_shards_are_filled_again_after_an_empty_restart(
    config: SparkConfig, session: SparkSession, client: KazooClient, shards: list[RecordingShard], sender: Sender
) -> None:
    for n in range(10):
        sender.numbers(f"s{n}/h/0", 5, n)
    with buckets_query(config, session, client):
        eventually(lambda: is_exact(sender, shards), "both full")
        for shard in shards:
            shard.stop(client)
            shard.forget()
        for shard in shards:
            shard.start(client)
        sender.numbers("more/h/0", 5)
        eventually(lambda: is_exact(sender, shards), "both full again")


def test_the_query_starts_without_shards_and_feeds_late_ones(
    config: SparkConfig, session: SparkSession, client: KazooClient, sender: Sender
) -> None:
    sender.numbers("s/h/0", 5)
    late = RecordingShard("0", ["0"])
    with buckets_query(config, session, client):
        late.start(client)
        eventually(lambda: is_exact(sender, [late]), "the late shard")
    late.stop(client)
