"""Batches of days that are over, written to Kafka with the append times of then: work for the compactor."""

from __future__ import annotations

from typing import Any

from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from artimon.model.batch import BatchId
from artimon.model.batch_codec import encode_samples
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.hash_routing import lane_of, partition_of
from artimon.stack.topics import TOPICS
from tests.faults.batches import make_sources, worth
from tests.faults.ledger import Ledger

SAMPLES = TOPICS[0]
HOUR_MS = 3_600_000
DAYS, HOURS = 2, 3
_AGENTS = 4


def write_earlier(kafka: str, batches: int, ledger: Ledger) -> None:
    """`batches` batches of 2,000 samples in each of 3 hours of the last 2 days before this one, noted in `ledger`."""
    _stamp(kafka, "CreateTime")
    try:
        _write(kafka, batches, ledger)
    finally:
        _stamp(kafka, "LogAppendTime")


def _write(kafka: str, batches: int, ledger: Ledger) -> None:
    producer: Any = KafkaProducer(bootstrap_servers=kafka, acks="all")
    sources = make_sources("earlier", 12, 2_000)
    numbers: dict[tuple[str, int], int] = {}
    today = SYSTEM_CLOCK.now_ms() // (24 * HOUR_MS) * 24 * HOUR_MS
    for hour in range(DAYS * HOURS):
        begin = today + (hour // HOURS - DAYS) * 24 * HOUR_MS + (12 + hour % HOURS) * HOUR_MS
        for n in range(batches):
            source, at = sources[n % len(sources)], begin + n * (HOUR_MS // (batches + 1))
            agent, lane = f"earlier-{n % _AGENTS}", lane_of(source.name)
            sequence = numbers.get((agent, lane), 0)
            numbers[agent, lane] = sequence + 1
            polled = source.poll(at)
            id_ = BatchId(agent, 1, lane, sequence)
            batch = encode_samples(
                id_, source.name, bytes(16), polled.birth_ms, polled.poll_ms, polled.keep, polled.samples
            )
            partition = partition_of(agent, 1, lane, SAMPLES.partitions)
            producer.send(SAMPLES.name, value=batch.data, partition=partition, timestamp_ms=at)
            ledger.add(source.name, worth(polled.samples))
    producer.flush(60)
    producer.close()


def _stamp(kafka: str, whose: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka, request_timeout_ms=20_000)
    try:
        configs = {"message.timestamp.type": whose}
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, SAMPLES.name, configs=configs)])
    finally:
        admin.close()
