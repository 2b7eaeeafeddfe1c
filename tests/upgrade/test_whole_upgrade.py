"""The whole story of an upgrade: today's agent sends what the log of version 1 holds, today's raw query goes on with
the table of version 1, and each batch is there once."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from pyspark.sql import SparkSession

from artimon.model.batch_codec import verify
from artimon.model.hash_routing import partition_of
from pipeline.wal.log import WriteAheadLog
from tests.spark.driving import raw_query
from tests.spark.helpers import config_for, table_rows_at
from tests.upgrade.golden import ABOUT, BATCHES, batches, log_in_place, rows_of
from tests.upgrade.make_golden import AGENT, LANES, PARTITIONS
from tests.waiting import eventually

pytestmark = pytest.mark.stack


def make_topics(kafka: str, prefix: str) -> None:
    """With the times that we give: those of the story, whatever year it is."""
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    settings = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
    admin.create_topics([NewTopic(f"{prefix}.samples", PARTITIONS, 1, topic_configs=settings)])
    admin.create_topics([NewTopic(f"{prefix}.deadletters", 1, 1)])
    admin.close()


def in_the_log(place: Path) -> list[bytes]:
    log = WriteAheadLog(log_in_place(place), AGENT, LANES, lambda _placed: None)
    found = [log.read(where) for _, where in log.recovered.batches]
    log.close()
    return found


def letters(kafka: str, topic: str) -> list[tuple[bytes, str]]:
    """Value and reason of every dead letter."""
    where = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=kafka, group_id=None, enable_auto_commit=False)
    consumer.assign([where])
    consumer.seek(where, 0)
    polled = consumer.poll(timeout_ms=20_000).get(where, [])
    consumer.close()
    return [(record.value, dict(record.headers)["reason"].decode()) for record in polled]


def test_each_batch_once(
    tables: str, tmp_path: Path, zookeeper: str, kafka: str, session: SparkSession, connector: list[str]
) -> None:
    """Kafka lost everything, so the agent sends all ten batches; six of them stood in the table before. A batch of a
    newer format goes to the dead letters, whole."""
    prefix = f"u{uuid.uuid4().hex[:10]}"
    make_topics(kafka, prefix)
    config = replace(config_for(tmp_path, zookeeper, kafka, "", prefix, connector), hdfs=tables)
    times = {one.header.id: at for one, at in batches()}
    sent = in_the_log(tmp_path)
    assert len(sent) == BATCHES > ABOUT["in_table"]
    producer = KafkaProducer(bootstrap_servers=kafka, acks="all")
    for data in sent:
        id_ = verify(data).id
        partition = partition_of(id_.agent, id_.epoch, id_.lane, PARTITIONS)
        producer.send(f"{prefix}.samples", data, partition=partition, timestamp_ms=times[id_]).get(timeout=20)
    newer = sent[-1][:4] + b"\x02" + sent[-1][5:]
    producer.send(f"{prefix}.samples", newer, partition=0, timestamp_ms=max(times.values())).get(timeout=20)
    producer.close(timeout=5)
    with raw_query(config, session) as query:
        eventually(lambda: query.figures()["dead_letters"] == 1 and query.figures()["batches"] == BATCHES, "all", 240)
        figures = query.figures()
    assert figures["duplicates"] == ABOUT["in_table"]
    assert table_rows_at(tables) == rows_of(range(BATCHES))
    ((value, reason),) = letters(kafka, f"{prefix}.deadletters")
    assert value == newer
    assert "format version 2: this program reads version 1" in reason
