"""The raw query on real servers: the table holds exactly the rows that were sent."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from dataclasses import replace
from functools import partial
from io import BytesIO

import pyarrow.parquet as pq
import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from pyspark.sql import SparkSession

from artimon.model.batch import BatchId, SeriesBlock
from artimon.model.batch_codec import encode_series
from artimon.model.fingerprint import fingerprint
from artimon.model.values import Value
from artimon.rawtable.commit import RawTable
from artimon.rawtable.head import read_state
from artimon.rawtable.lane_columns import decode_lanes
from artimon.rawtable.schema import raw_uri, sources_uri
from artimon.rawtable.sources import SourcesTable, read_sources
from artimon.rawtable.table_reader import read_raw
from artimon.rawtable.table_state import END_OF_LOG
from artimon.runtime import file_access as files
from pipeline.spark.raw_query import RawQuery
from pipeline.spark.spark_settings import SparkConfig
from tests.spark.driving import raw_query, reached
from tests.spark.helpers import Ledger, Sender, make_topics, now_ms, table_rows
from tests.waiting import eventually

pytestmark = pytest.mark.stack


def senders(config: SparkConfig, count: int) -> list[Sender]:
    return [Sender(config.kafka, config.samples_topic, lane=lane) for lane in range(count)]


def ledger(*of: Sender) -> Ledger:
    total: Ledger = Counter()
    for sender in of:
        total.update(sender.ledger)
    return total


def test_every_value_arrives_exact(config: SparkConfig, session: SparkSession) -> None:
    """All four types, their extremes, end markers, samples hours late or ahead, in their classes of retention."""
    (sender,) = senders(config, 1)
    at = now_ms()
    values: list[Value | None] = [
        2**63 - 1,
        -(2**63),
        2**53 + 1,
        float("nan"),
        float("-inf"),
        -0.0,
        True,
        False,
        "",
        "naïve ☃ 𝄞",
        None,
    ]
    rows = [(fingerprint(f"v{i}{{}}"), at - i * 3_600_000, at, value) for i, value in enumerate(values)]
    sender.send("shop/host/0", rows)
    sender.send("shop/host/0", [(fingerprint("ahead{}"), at + 600_000, at, 1), (1, at, at, 2)], keep="short")
    sender.send("empty/host/0", [])
    with raw_query(config, session) as query:
        eventually(reached(query, 3), "three batches")
    assert table_rows(config) == sender.ledger
    table = read_raw(raw_uri(config.hdfs), ["future", "keep", "series", "period"])
    assert sorted(table.column("future").to_pylist()) == [False] * 12 + [True]
    assert Counter(table.column("keep").to_pylist()) == {"default": 11, "short": 2}


def test_partitions_share_the_files_of_an_append(config: SparkConfig, session: SparkSession) -> None:
    """A few rows are one task, whatever the number of Kafka partitions: one file for each class of retention."""
    several = senders(config, 12)
    for number, sender in enumerate(several):
        for keep in ("default", "short"):
            sender.send(f"s{number}/h/0", [(fingerprint(f"f{n}{{}}"), now_ms(), 0, n) for n in range(50)], keep=keep)
    assert len({sender.partition for sender in several}) > 1
    with raw_query(config, session) as query:
        eventually(reached(query, 24), "all batches")
        appends = query.figures()["since_start"]["appends"]
    assert table_rows(config) == ledger(*several)
    table = RawTable(config.hdfs)
    paths = [path.removeprefix(table.uri + "/") for path in table.refresh().file_uris()]
    assert len(paths) <= 2 * appends
    for path in paths:
        assert "/append-" in path
        rows = pq.read_table(BytesIO(files.read_file(f"{table.uri}/{path}"))).to_pylist()
        keys = [(row["source"], row["series"], row["time"]) for row in rows]
        assert keys == sorted(keys)


def test_repeats_are_stored_once(config: SparkConfig, session: SparkSession) -> None:
    """In one micro-batch, across appends, and after a restart of the query."""
    first, second = senders(config, 2)
    old = [first.numbers("a/h/0", 5, n, copies=1 + n % 3) for n in range(6)]
    second.numbers("b/h/0", 5)
    with raw_query(config, session) as query:
        eventually(reached(query, 7), "first round")
        for data in old:
            first.send_bytes(data)
        first.numbers("a/h/0", 5, 100)
        eventually(reached(query, 8), "second round")
    first.send_bytes(old[0])
    second.numbers("b/h/0", 5, 200)
    with raw_query(config, session) as query:
        eventually(reached(query, 9), "after the restart")
        eventually(lambda: query.figures()["duplicates"] == 13, "all repeats seen")
    assert table_rows(config) == ledger(first, second)


def test_undecodable_messages_become_dead_letters_and_nothing_stops(config: SparkConfig, session: SparkSession) -> None:
    (sender,) = senders(config, 1)
    good = sender.numbers("a/h/0", 5)
    flipped = bytearray(good)
    flipped[-1] ^= 1
    announcement = encode_series("x", SeriesBlock("a/h/0", 0, 1, ())).data
    poison = [b"garbage", None, bytes(flipped), announcement, good[:60]]
    where = [sender.send_bytes(data) for data in poison]
    sender.numbers("a/h/0", 5, 50)
    with raw_query(config, session) as query:
        eventually(reached(query, 2), "good batches around the poison")
        assert query.figures()["dead_letters"] == len(poison)
    assert table_rows(config) == sender.ledger
    letters = read_letters(config, len(poison))
    assert [value for value, _ in letters] == poison
    assert [(int(h["partition"]), int(h["offset"])) for _, h in letters] == where
    assert all(h["reason"] and h["topic"].decode() == config.samples_topic for _, h in letters)


def read_letters(config: SparkConfig, count: int) -> list[tuple[bytes | None, dict[str, bytes]]]:
    consumer = KafkaConsumer(bootstrap_servers=config.kafka, group_id=None, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(config.deadletters_topic, 0)])
    found: list[tuple[bytes | None, dict[str, bytes]]] = []

    def poll() -> bool:
        for records in consumer.poll(timeout_ms=500).values():
            found.extend((r.value, dict(r.headers)) for r in records)
        return len(found) >= count

    eventually(poll, "dead letters")
    consumer.close()
    return found


@pytest.mark.slow
def test_a_deleted_checkpoint_changes_nothing(config: SparkConfig, session: SparkSession) -> None:
    (sender,) = senders(config, 1)
    with raw_query(config, session) as query:
        for n in range(4):
            sender.numbers("a/h/0", 5, n * 10)
            sender.numbers("a/h/0", 5, n * 10 + 5)
            eventually(reached(query, 2 * n + 1), f"round {n}")
            shutil.rmtree(config.data / "checkpoints", ignore_errors=True)
        eventually(reached(query, 8), "all rounds")
    assert table_rows(config) == sender.ledger


def behind_by(queries: tuple[RawQuery, ...], batches: int, most: int) -> bool:
    return bool(max(query.figures()["batches"] for query in queries) >= batches - most)


def appends(config: SparkConfig) -> Counter[str]:
    """Return the number of appends of each writer."""
    version, _ = RawTable(config.hdfs).head()
    states = [read_state(raw_uri(config.hdfs), v) for v in range(1, version + 1)]
    return Counter(state.writer for state in states if state is not None)


def test_two_drivers_at_once_store_every_row_once(config: SparkConfig, session: SparkSession) -> None:
    """Both write files; each append is made by one driver, and the other begins again from it."""
    both = senders(config, 2)
    other = replace(config, data=config.data / "other")
    with raw_query(config, session) as one, raw_query(other, session, name="raw-2") as two:
        for n in range(10):
            for i, sender in enumerate(both):
                sender.numbers(f"s{i}/h/0", 5, n * 10)
            eventually(partial(behind_by, (one, two), 2 * n, 6), "progress")
        eventually(partial(behind_by, (one, two), 20, 0), "everything")
        eventually(lambda: one.figures()["append"] == two.figures()["append"], "both at the head")
    assert min(appends(config).values()) > 0
    assert len(appends(config)) > 1
    assert table_rows(config) == ledger(*both)


def test_a_driver_that_was_overtaken_begins_again(config: SparkConfig, session: SparkSession) -> None:
    """The first driver is held between its files and its commit while another appends the same offsets."""
    (sender,) = senders(config, 1)
    sender.numbers("a/h/0", 5)
    held, go_on = threading.Event(), threading.Event()

    def hold(point: str) -> None:
        if point == "written" and not held.is_set():
            held.set()
            go_on.wait(60)

    other = replace(config, data=config.data / "other")
    with raw_query(config, session, hold) as zombie:
        eventually(held.is_set, "files written")
        with raw_query(other, session, name="raw-2") as query:
            eventually(reached(query, 1), "the other's append")
        go_on.set()
        sender.numbers("a/h/0", 5, 50)
        eventually(reached(zombie, 2), "the first driver continues")
    assert table_rows(config) == sender.ledger


def test_a_recreated_topic_is_named_lost_and_read_from_its_start(config: SparkConfig, session: SparkSession) -> None:
    (sender,) = senders(config, 1)
    old = sender.numbers("a/h/0", 5)
    with raw_query(config, session) as query:
        eventually(reached(query, 1), "the first topic")
        admin = KafkaAdminClient(bootstrap_servers=config.kafka)
        admin.delete_topics([config.samples_topic, config.deadletters_topic, f"{config.topic_prefix}.series"])
        mine = f"{config.topic_prefix}."
        eventually(lambda: not any(name.startswith(mine) for name in admin.list_topics()), "deletion")
        admin.close()
        make_topics(config.kafka, config.topic_prefix)
        again = Sender(config.kafka, config.samples_topic, sender.agent, sender.lane)
        again.send_bytes(old)  # the agent sends it again, and the table has it
        again.sequence = 1
        again.numbers("a/h/0", 5, 60)
        eventually(reached(query, 2), "the second topic")
    assert table_rows(config) == ledger(sender, again)
    _, state = RawTable(config.hdfs).head()
    assert [topic.closed for topic in state.topics] == [True, False]
    assert state.topics[0].lost[sender.partition] == ((1, END_OF_LOG),)


def test_messages_deleted_at_the_start_of_the_log_are_named_lost(config: SparkConfig, session: SparkSession) -> None:
    (sender,) = senders(config, 1)
    for n in range(3):
        sender.numbers("a/h/0", 5, n * 10)
    admin = KafkaAdminClient(bootstrap_servers=config.kafka)
    admin.delete_records({TopicPartition(config.samples_topic, sender.partition): 2})
    admin.close()
    with raw_query(config, session) as query:
        eventually(reached(query, 1), "the remaining batch")
    _, state = RawTable(config.hdfs).head()
    assert state.current is not None
    assert dict(state.current.lost) == {sender.partition: ((0, 2),)}
    assert sum(table_rows(config).values()) == 5


def test_an_unreachable_hdfs_at_the_start_is_an_error(config: SparkConfig, session: SparkSession) -> None:
    lost = replace(config, hdfs="hdfs://127.0.0.1:1/x")
    with pytest.raises(OSError, match=r"NameNode at hdfs://127\.0\.0\.1:1 is not reachable"):
        RawQuery(lost, session, lambda: None).run(threading.Event())


def test_sources_get_one_number_for_ever(config: SparkConfig) -> None:
    """Four drivers that allot numbers at once agree."""
    tables = [SourcesTable(config.hdfs) for _ in range(4)]
    given: list[dict[str, int]] = []
    tables[0].lookup(())

    def allot(table: SourcesTable, first: int) -> None:
        given.append(table.assign([f"s{i}" for i in range(first, first + 5)]))

    threads = [threading.Thread(target=allot, args=(table, i)) for i, table in enumerate(tables)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    final = {name: number for number, name in read_sources(sources_uri(config.hdfs)).items()}
    assert sorted(final.values()) == list(range(1, 9))
    assert len(given) == 4
    assert all(final[name] == number for one in given for name, number in one.items())


def test_the_state_in_the_commit(config: SparkConfig, session: SparkSession) -> None:
    """The state in the commit is JSON; the ranges of the lane are among its columns of lanes."""
    (sender,) = senders(config, 1)
    for n in range(3):
        sender.numbers("a/h/0", 2, n)
    with raw_query(config, session) as query:
        eventually(reached(query, 3), "three batches")
        version = query.figures()["version"]
    lines = files.read_file(f"{raw_uri(config.hdfs)}/_delta_log/{version:020d}.json").decode().splitlines()
    info = next(entry["commitInfo"] for entry in map(json.loads, lines) if "commitInfo" in entry)
    lane = BatchId(sender.agent, sender.epoch, sender.lane, 0).lane_id
    lanes, _ = decode_lanes(info["artimon"]["lanes"])
    assert lanes[sender.partition].to_json() == {str(lane): [[0, 3]]}
    assert info["artimon"]["topics"][0]["until"][str(sender.partition)] == 3
