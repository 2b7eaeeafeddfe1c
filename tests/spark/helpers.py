"""Batches of known content, separate topics, and the content of tables, for the tests of the Spark application."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from artimon.model.batch import BatchId, Samples
from artimon.model.batch_codec import encode_samples
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.fingerprint import fingerprint, unsigned
from artimon.model.hash_routing import partition_of
from artimon.model.values import Value
from artimon.rawtable.schema import raw_uri, sources_uri
from artimon.rawtable.sources import read_sources
from artimon.rawtable.table_reader import read_raw
from pipeline.spark.spark_settings import SparkConfig

Row = tuple[int, int, int, Value | None]
Ledger = Counter[tuple[str, int, int, int, str]]
"""(source, fingerprint, time_ms, birth_ms, repr of the value) -> number of rows."""

NOW_MS = 1_795_000_000_000
PARTITIONS = 4


class Sender:
    """One lane of an agent: numbers its batches, writes them to the topic, and keeps the ledger of the expected
    rows."""

    def __init__(self, kafka: str, topic: str, agent: str = "", lane: int = 0) -> None:
        self.agent, self.lane, self.topic = agent or f"agent-{uuid.uuid4().hex[:8]}", lane, topic
        self.epoch, self.sequence = 7, 0
        self.ledger: Ledger = Counter()
        self.partition = partition_of(self.agent, self.epoch, lane, PARTITIONS)
        self._producer = KafkaProducer(bootstrap_servers=kafka, acks="all")

    def send(self, source: str, rows: Sequence[Row], copies: int = 1, keep: str = "default") -> bytes:
        """Send a batch `copies` times; only the first copy counts."""
        id_ = BatchId(self.agent, self.epoch, self.lane, self.sequence)
        poll = max((row[1] for row in rows), default=NOW_MS)
        batch = encode_samples(id_, source, bytes(16), 0, max(poll, now_ms()), keep, Samples.of(rows))
        self.sequence += 1
        for _ in range(copies):
            self.send_bytes(batch.data)
        self.ledger.update((source, f, t, b, repr(v)) for f, t, b, v in rows)
        return batch.data

    def send_bytes(self, data: bytes | None, partition: int | None = None) -> tuple[int, int]:
        """Send any bytes to the partition of this lane or the given one, and return (partition, offset)."""
        place = self.partition if partition is None else partition
        sent = self._producer.send(self.topic, value=data, key=b"k", partition=place).get(timeout=20)
        return sent.partition, sent.offset

    def numbers(self, source: str, count: int, start: int = 0, copies: int = 1) -> bytes:
        """Send a batch of `count` integers."""
        at = now_ms()
        rows: list[Row] = [(fingerprint(f"n{i}{{}}"), at, at - 1000, start + i) for i in range(count)]
        return self.send(source, rows, copies)

    def close(self) -> None:
        self._producer.close(timeout=5)


def now_ms() -> int:
    return SYSTEM_CLOCK.now_ms()


def make_topics(kafka: str, prefix: str) -> None:
    """Create topics for samples, dead letters and announcements."""
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    config = {"message.timestamp.type": "LogAppendTime"}
    admin.create_topics([NewTopic(f"{prefix}.samples", PARTITIONS, 1, topic_configs=config)])
    admin.create_topics([NewTopic(f"{prefix}.deadletters", 1, 1, topic_configs=config)])
    admin.create_topics([NewTopic(f"{prefix}.series", 2, 1, topic_configs={**config, "cleanup.policy": "compact"})])
    admin.close()


def table_rows(config: SparkConfig) -> Ledger:
    """Return the multiset of the rows in the raw table."""
    return table_rows_at(config.hdfs)


def table_rows_at(hdfs: str) -> Ledger:
    """Return the multiset of the rows in the tables on `hdfs`."""
    names = read_sources(sources_uri(hdfs))
    rows: Ledger = Counter()
    for row in read_raw(raw_uri(hdfs)).to_pylist():
        given = [row[name] for name in ("integer", "double", "boolean", "string") if row[name] is not None]
        assert len(given) <= 1
        value = given[0] if given else None
        rows[names[row["source"]], unsigned(row["series"]), _ms(row["time"]), _ms(row["birth"]), repr(value)] += 1
    return rows


def _ms(moment: Any) -> int:
    return round(float(moment.timestamp()) * 1000)


def config_for(folder: Path, zookeeper: str, kafka: str, hdfs: str, name: str, jars: list[str]) -> SparkConfig:
    """Return a configuration with separate znodes, topics and HDFS folder called `name` on the shared servers."""
    return SparkConfig(
        zookeeper=f"{zookeeper}/{name}",
        kafka=kafka,
        hdfs=f"{hdfs}/{name}",
        data=folder,
        health=folder / "health.json",
        jars=jars,
        topic_prefix=name,
        raw_interval_s=1.0,
        bucket_interval_s=0.3,
        acks_interval_s=1.0,
        raw_messages=200,
        bucket_messages=100,
    )
