"""Dead letters on real servers: refused messages are kept with their reason, the query continues, and after a fix a
replay stores them exactly once, in the table and in the shards."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from artimon.cli.commands.deadletter import replay_and_report, show
from artimon.model.batch import BatchError, BatchHeader, BatchId, Samples
from artimon.model.batch_codec import encode_samples
from artimon.model.values import Value
from artimon.rawtable.commit import RawTable
from pipeline.spark import buckets_query as buckets
from pipeline.spark import message_checks as messages
from pipeline.spark import raw_query as raw
from pipeline.spark.dead_letters import DeadLetterError, DeadLetters, LetterAddress, LetterState, ReplayRequest, replay
from pipeline.spark.feed_task import run_feed
from pipeline.spark.raw_query import RawQuery
from pipeline.spark.raw_task import KafkaRecord, run_raw
from pipeline.spark.spark_settings import SparkConfig
from pipeline.spark.topic_client import DeadLetter, TopicClient
from tests.spark.driving import buckets_query, raw_query, reached
from tests.spark.helpers import Sender, now_ms, table_rows
from tests.spark.memory_log import LocalSession, Row, arrow
from tests.spark.recorder import RecordingShard
from tests.waiting import eventually

pytestmark = pytest.mark.stack
DAY_MS = 86_400_000
REFUSED = "refused/h/0"


class KafkaFrame:
    """Input of foreachBatch: everything of a topic from `start` on, read again by each collect."""

    def __init__(self, config: SparkConfig, start: Mapping[int, int]) -> None:
        self._config, self._start = config, start
        self._function: Callable[[Iterable[Any]], Iterable[Any]] = lambda batches: batches

    def coalesce(self, _tasks: int) -> KafkaFrame:
        return self

    def mapInArrow(self, function: Callable[[Iterable[Any]], Iterable[Any]], _schema: str) -> KafkaFrame:
        self._function = function
        return self

    def collect(self) -> list[Row]:
        records = read_topic(self._config.kafka, self._config.samples_topic, self._start)
        return [Row(text) for batch in self._function([arrow(records)]) for text in batch.column(0).to_pylist()]


def read_topic(kafka: str, topic: str, start: Mapping[int, int]) -> list[tuple[int, KafkaRecord]]:
    consumer = KafkaConsumer(bootstrap_servers=kafka, group_id=None, enable_auto_commit=False)
    try:
        parts = [TopicPartition(topic, p) for p in start]
        consumer.assign(parts)
        ends = consumer.end_offsets(parts)
        for part in parts:
            consumer.seek(part, start[part.partition])
        found = []
        while any(consumer.position(part) < ends[part] for part in parts):
            for records in consumer.poll(timeout_ms=200).values():
                found += [(r.partition, KafkaRecord(r.offset, r.timestamp, r.value)) for r in records]
        return sorted(found, key=lambda one: (one[0], one[1].offset))
    finally:
        consumer.close()


def append_all(config: SparkConfig) -> None:
    """Run one micro-batch of the raw query, without Spark."""
    query = RawQuery(config, LocalSession(), lambda: None)
    life = query.begin(threading.Event())
    life.on_batch(KafkaFrame(config, life.state.until()), 0)


def letters_of(config: SparkConfig) -> DeadLetters:
    return DeadLetters(config.kafka, config.hdfs, config.topic_prefix)


def states(config: SparkConfig) -> list[tuple[LetterAddress, LetterState, str]]:
    return [(one.address, one.state, one.objection) for one, _ in letters_of(config).read(threading.Event())]


def send_rows(sender: Sender, source: str, count: int = 3) -> None:
    rows: list[tuple[int, int, int, Value | None]] = [(n, now_ms(), 0, n) for n in range(count)]
    sender.send(source, rows)


@contextmanager
def defective_decoder() -> Iterator[None]:
    """Make the decoder fail at one source with an unexpected exception."""
    decode = messages.decode_columns  # type: ignore[attr-defined]

    def defective(header: BatchHeader, value: bytes) -> Any:
        if header.source == REFUSED:
            raise ZeroDivisionError("a defect")
        return decode(header, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "decode_columns", defective)
        yield


@pytest.mark.slow
def test_a_replay_after_the_fix_is_stored_once(config: SparkConfig, capsys: pytest.CaptureFixture[str]) -> None:
    sender = Sender(config.kafka, config.samples_topic)
    send_rows(sender, "good/h/0")
    send_rows(sender, REFUSED)
    send_rows(sender, "good/h/0")
    at = LetterAddress(sender.partition, 1)
    with defective_decoder():
        append_all(config)
        assert states(config) == [
            (at, LetterState.WAITING, "this program failed to decode it: ZeroDivisionError: a defect")
        ]
        assert (
            replay_and_report(letters_of(config), ReplayRequest(), threading.Event()) == 1
        )  # the batch would be refused again
    assert "refused" in capsys.readouterr().out
    assert states(config) == [(at, LetterState.WAITING, "")]
    assert replay_and_report(letters_of(config), ReplayRequest(dry_run=True), threading.Event()) == 0
    for _ in range(2):
        assert replay_and_report(letters_of(config), ReplayRequest(addresses=[at]), threading.Event()) == 0
    assert f"{at}  written at {sender.partition}:3" in capsys.readouterr().out
    append_all(config)
    assert table_rows(config) == sender.ledger
    _, state = RawTable(config.hdfs).head()
    assert (state.totals.dead_letters, state.totals.duplicates, state.totals.batches) == (1, 1, 3)
    assert states(config) == [(at, LetterState.STORED, "")]
    assert replay_and_report(letters_of(config), ReplayRequest(), threading.Event()) == 0
    assert capsys.readouterr().err.endswith("nothing to replay\n")
    sender.close()


def test_the_list_shows_the_state_of_each_letter(config: SparkConfig, capsys: pytest.CaptureFixture[str]) -> None:
    """Damaged, not a batch, of a newer format, too old; a letter that occurs twice is listed once."""
    sender = Sender(config.kafka, config.samples_topic)
    batch = sender.numbers("a/h/0", 2)
    damaged, newer = bytearray(batch), bytearray(batch)
    damaged[-1] ^= 1
    newer[4] = 2
    polled = now_ms() - 91 * DAY_MS
    old = encode_samples(
        BatchId("x", 1, 0, 0), "old\x1b/h/0", bytes(16), 0, polled, "", Samples.of([(1, polled, 0, 1)])
    )
    for value in (None, bytes(damaged), bytes(newer), old.data):
        sender.send_bytes(value)
    append_all(config)
    again = [DeadLetter(sender.partition, 2, "digest")]
    TopicClient(config.kafka, config.samples_topic).copy_to(again * 2, config.deadletters_topic)
    found = states(config)
    wanted = [
        "unreadable",
        "unreadable",
        "waiting",
        "waiting",
        "unreadable",
    ]  # the last has another reason, so it is another letter
    assert [str(state) for _, state, _ in found] == wanted
    assert [address.offset for address, _, _ in found] == [1, 2, 3, 4, 2]
    assert "format version 2" in found[2][2]
    assert "90 days" in found[3][2]
    capsys.readouterr()
    assert show(letters_of(config), True, 2, "", True, threading.Event()) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["offset"] for one in shown["letters"]] == [4, 2]
    assert shown["counts"] == {"waiting": 2, "stored": 0, "unreadable": 3}
    assert show(letters_of(config), False, 100, "90 days", False, threading.Event()) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 1
    assert "\x1b" not in out
    outcomes = list(replay(letters_of(config), ReplayRequest(), threading.Event()))
    assert [one.result for one in outcomes] == ["refused"] * 2
    named = list(replay(letters_of(config), ReplayRequest([LetterAddress(sender.partition, 1)]), threading.Event()))
    assert [(one.result, one.detail) for one in named] == [("refused", "a message without a value")]
    forced = list(replay(letters_of(config), ReplayRequest(force=True, dry_run=True), threading.Event()))
    assert [one.result for one in forced].count("would be written") == 1  # the old one: its header can be trusted
    sender.close()


def test_an_unknown_address_is_an_error_that_names_existing_letters(config: SparkConfig) -> None:
    sender = Sender(config.kafka, config.samples_topic)
    sender.send_bytes(b"garbage")
    append_all(config)
    with pytest.raises(DeadLetterError, match=f"no letter at 0:99; there are {sender.partition}:0"):
        list(replay(letters_of(config), ReplayRequest(addresses=[LetterAddress(0, 99)]), threading.Event()))
    sender.close()


def test_missing_servers_and_topics_are_reported(config: SparkConfig, capsys: pytest.CaptureFixture[str]) -> None:
    away = DeadLetters("127.0.0.1:1", config.hdfs)
    assert show(away, False, 10, "", False, threading.Event()) == 1
    assert "Kafka at 127.0.0.1:1" in capsys.readouterr().err
    assert show(DeadLetters(config.kafka, config.hdfs, "nosuch"), False, 10, "", False, threading.Event()) == 1
    assert "no topic nosuch.deadletters" in capsys.readouterr().err


def test_a_stopped_replay_reports_it(config: SparkConfig, capsys: pytest.CaptureFixture[str]) -> None:
    stop = threading.Event()
    stop.set()
    assert replay_and_report(letters_of(config), ReplayRequest(), stop) == 130
    assert "run it again" in capsys.readouterr().err


def defective(run: Callable[[Any, Iterable[Any]], Iterator[Any]]) -> Callable[[Any, Iterable[Any]], Iterator[Any]]:
    """Return a task whose decoder refuses one source, in the process that runs the task."""

    def run_defective(plan: Any, batches: Iterable[Any]) -> Iterator[Any]:
        from pipeline.spark import message_checks as here

        decode = here.decode

        def refuse(header: BatchHeader, value: bytes) -> Any:
            if header.source == "refused/h/0":
                raise BatchError("a defect")
            return decode(header, value)

        here.decode = refuse
        try:
            yield from run(plan, batches)
        finally:
            here.decode = decode

    return run_defective


@pytest.mark.slow
def test_a_replay_reaches_table_and_shards_once(
    config: SparkConfig, session: SparkSession, client: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = Sender(config.kafka, config.samples_topic)
    shard = RecordingShard("0", ["0"])
    shard.start(client)
    with monkeypatch.context() as patch:
        patch.setattr(raw, "run_raw", defective(run_raw))
        patch.setattr(buckets, "run_feed", defective(run_feed))
        with raw_query(config, session) as query, buckets_query(config, session, client):
            for source in ("good/h/0", REFUSED, "good/h/0", REFUSED):
                send_rows(sender, source)
            eventually(reached(query, 2), "the query continues")
            eventually(lambda: query.figures()["dead_letters"] == 2, "two letters")
            eventually(lambda: sum(shard.rows.values()) == 6 and shard.dead == 2, "the shard continues")
    assert [state for _, state, _ in states(config)] == [LetterState.WAITING] * 2
    with raw_query(config, session) as query, buckets_query(config, session, client):
        for _ in range(2):
            assert replay_and_report(letters_of(config), ReplayRequest(), threading.Event()) == 0
        eventually(reached(query, 4), "the replay")
        eventually(lambda: sum(shard.rows.values()) == 12, "the shard")
        for _ in range(2):
            assert (
                replay_and_report(
                    letters_of(config), ReplayRequest(addresses=[LetterAddress(sender.partition, 1)]), threading.Event()
                )
                == 0
            )
        send_rows(sender, "good/h/0")
        eventually(reached(query, 5), "the next batch")
        eventually(lambda: sum(shard.rows.values()) == 15, "the next batch in the shard")
    assert table_rows(config) == sender.ledger
    assert sorted(shard.rows.elements()) == sorted((f, t, b, v) for _, f, t, b, v in sender.ledger.elements())
    assert {state for _, state, _ in states(config)} == {LetterState.STORED}
    shard.stop(client)
    sender.close()
