"""Announcements of known content, and the expected rows of the table of series."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from artimon.model.batch import SeriesBlock, SeriesInfo
from artimon.model.batch_codec import encode_series
from artimon.model.fingerprint import fingerprint, signed
from artimon.model.labels import canonical, parse_canonical
from artimon.model.values import Kind, ValueType
from artimon.rawtable.announced_rows import merge_rows
from artimon.rawtable.series_delta import SeriesTable, read_span

START_MS = 1_794_960_000_000
PARTITIONS = 2
Plain = dict[tuple[str, str], tuple[Any, ...]]
"""(source, canonical text) -> (fingerprint, type, kind, unit, help, block, first_seen, last_seen)."""


@dataclass(frozen=True)
class World:
    """A separate topic on the broker, and a separate HDFS folder."""

    kafka: str
    topic: str
    hdfs: str

    def send(self, blocks: Iterable[SeriesBlock]) -> None:
        self.send_bytes([(block.key, encode_series("agent", block).data) for block in blocks])

    def send_bytes(self, messages: Iterable[tuple[bytes, bytes | None]]) -> None:
        producer = KafkaProducer(bootstrap_servers=self.kafka, acks="all")
        try:
            for key, value in messages:
                producer.send(self.topic, key=key, value=value).get(timeout=20)
        finally:
            producer.close(timeout=5)


def make_world(kafka: str, hdfs: str) -> World:
    name = f"t{uuid.uuid4().hex[:10]}"
    make_topic(kafka, f"{name}.series")
    return World(kafka, f"{name}.series", f"{hdfs}/{name}")


def make_topic(kafka: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    config = {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact,delete"}
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, topic_configs=config)])
    admin.close()


def block(source: str, number: int, version: int, texts: Iterable[str], **details: Any) -> SeriesBlock:
    """Return a block announced at START_MS + version."""
    known = {"type": ValueType.INTEGER, "kind": Kind.COUNTER, "help": "", "unit": "", "first_seen_ms": 0, **details}
    return SeriesBlock(source, number, START_MS + version, tuple(SeriesInfo(text, **known) for text in texts))


def expected(blocks: Iterable[SeriesBlock]) -> Plain:
    """Return the expected rows: of each series of a source the newest announcement, and the earliest sighting."""
    plain: Plain = {}
    first: dict[tuple[str, str], int] = {}
    for one in sorted(blocks, key=lambda b: (b.version, b.block)):
        for info in one.series:
            key = one.source, info.text
            seen = min(info.first_seen_ms or one.version, one.version)
            first[key] = min(first.get(key, seen), seen)
            details = info.type.name.lower(), info.kind.name.lower(), info.unit, info.help, one.block
            plain[key] = (signed(fingerprint(info.text)), *details, first[key], one.version)
    return plain


def stored_rows(world: World) -> Plain:
    """Return the rows of the table, merged over its files."""
    from artimon.rawtable.schema import sources_uri
    from artimon.rawtable.sources import read_sources

    table = SeriesTable(world.hdfs)
    parts = [read_span(f"{table.uri}/{file.path}", -(2**63), 2**63 - 1) for file in table.live()]
    return plain(merge_rows(pa.concat_tables(parts)).table if parts else None, read_sources(sources_uri(world.hdfs)))


def plain(rows: Any, sources: Mapping[int, str]) -> Plain:
    found: Plain = {}
    for row in rows.to_pylist() if rows is not None else ():
        text = canonical(row["name"], dict(row["labels"]))
        assert parse_canonical(text)[0] == row["name"]
        details = tuple(row[name] for name in ("series", "type", "kind", "unit", "help", "block"))
        key = sources[row["source"]], text
        assert key not in found
        found[key] = (*details, ms(row["first_seen"]), ms(row["last_seen"]))
    return found


def ms(moment: datetime) -> int:
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)
