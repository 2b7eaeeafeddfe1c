"""Expected content of the raw table, from a plain reading of the log without ranges, tasks or files. It follows the
chain of appends, and reads exactly the part of the log that each append claims."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from artimon.model.batch import BatchId
from artimon.model.fingerprint import unsigned
from artimon.model.values import Value
from artimon.rawtable.commit import RawTable
from artimon.rawtable.head import read_state
from artimon.rawtable.sources import read_sources
from artimon.rawtable.table_reader import read_raw
from artimon.rawtable.table_state import END_OF_LOG, FORGET_MS, RawState, TopicState
from pipeline.spark.message_checks import FUTURE_MS
from pipeline.spark.raw_task import KafkaRecord
from tests.spark.memory_log import MemoryLog

StoredRow = tuple[str, int, int, int, bool, str, str, bytes]
"""(source, series, time, birth, future, keep, type, bits of the value)."""
Rows = list[tuple[int, int, int, Value | None]]


@dataclass(frozen=True, slots=True)
class AgentBatch:
    """A batch, as the agent that made it knows it."""

    id: BatchId
    source: str
    poll_ms: int
    keep: str
    rows: Rows
    data: bytes
    buggy: bool
    """True if the program refuses it until it is fixed."""


def bits(value: Value | None) -> tuple[str, bytes]:
    """Return type and exact content of a value."""
    if value is None:
        return "ended", b""
    if isinstance(value, bool):
        return "boolean", bytes([value])
    if isinstance(value, int):
        return "integer", struct.pack("<q", value)
    if isinstance(value, float):
        return "double", struct.pack("<d", value)
    return "string", value.encode()


@dataclass
class Reference:
    """Expected rows; `made` is every valid batch by its bytes, and any other message is a dead letter."""

    log: MemoryLog
    made: dict[bytes, AgentBatch]
    uri: str
    version: int = 0
    until: dict[str, dict[int, int]] = field(default_factory=dict)
    seen: set[BatchId] = field(default_factory=set)
    rows: Counter[StoredRow] = field(default_factory=Counter)
    dead: int = 0
    append: int = 0

    def follow(self, mended: bool) -> None:
        """Read on to the offsets that the table claims; `mended`: state of the program since the last call."""
        newest, _ = RawTable(self.uri).head()
        while self.version < newest:
            self.version += 1
            state = read_state(RawTable(self.uri).uri, self.version)
            if state is not None:
                self._take(state, mended)

    def _take(self, state: RawState, mended: bool) -> None:
        assert state.append == self.append + 1
        self.append = state.append
        for topic in state.topics[:-1]:
            assert topic.closed
            for p, until in topic.until.items():
                assert until == self.until.get(topic.topic_id, {}).get(p, 0), "a closed topic was read on"
                assert topic.lost[p][-1][1] == END_OF_LOG, "the rest of a closed topic is not named lost"
        current = state.topics[-1]
        at = self.until.setdefault(current.topic_id, dict.fromkeys(current.until, 0))
        for gap in state.gaps:
            if gap.kind == "cut":
                # a gap reaches to the last known end of the log, read or not
                assert gap.end >= at[gap.partition], "the truncated range ends before the offset read"
                at[gap.partition] = min(at[gap.partition], gap.start)
        for p, until in current.until.items():
            assert until >= at[p], "an ack moved backwards"
            self._read(current, p, until, mended)
            at[p] = until

    def _read(self, topic: TopicState, p: int, until: int, mended: bool) -> None:
        log = self.log.topics[topic.topic_id][p]
        lost = topic.lost.get(p, ())
        for offset in range(self.until[topic.topic_id][p], until):
            assert offset < log.end, "the table claims an offset that was never written"
            stored = log.records[offset]
            if any(start <= offset < end for start, end in lost):
                assert stored.withheld, f"offset {offset} is named lost, but was readable"
            else:
                self._store(p, stored.record, mended)

    def _store(self, p: int, record: KafkaRecord, mended: bool) -> None:
        made = self.made.get(record.value or b"")
        if made is None or made.poll_ms < record.append_ms - FORGET_MS:
            self._bury(p, record)
        elif made.id not in self.seen:
            if made.buggy and not mended:
                self._bury(p, record)
                return
            self.seen.add(made.id)
            for series, time, birth, value in made.rows:
                future = time > record.append_ms + FUTURE_MS
                self.rows[made.source, series, time, birth, future, made.keep, *bits(value)] += 1

    def _bury(self, p: int, record: KafkaRecord) -> None:
        self.dead += 1
        found = [
            letter
            for letter, value in self.log.letters
            if (letter.partition, letter.offset, value) == (p, record.offset, record.value)
        ]
        assert found, f"partition {p} offset {record.offset} was skipped without a dead letter"
        assert found[0].reason


def table_rows(hdfs: str) -> Counter[StoredRow]:
    """Return the rows of the table."""
    table = RawTable(hdfs)
    names = read_sources(SOURCES.format(hdfs))
    held: Counter[StoredRow] = Counter()
    for row in read_raw(table.uri).cast(_plain(read_raw(table.uri).schema)).to_pylist():
        given = [row[name] for name in ("integer", "double", "boolean", "string") if row[name] is not None]
        assert len(given) <= 1
        held[
            names[row["source"]],
            unsigned(row["series"]),
            row["time"] // 1000,
            row["birth"] // 1000,
            row["future"],
            row["keep"],
            *bits(given[0] if given else None),
        ] += 1
    return held


SOURCES = "{}/artimon/sources"


def _plain(schema: Any) -> Any:
    return pa.schema([pa.field(f.name, pa.int64()) if f.name in ("time", "birth") else f for f in schema])


def difference(wanted: Counter[StoredRow], held: Counter[StoredRow]) -> Mapping[str, Any]:
    """Return the missing and the surplus rows; both empty if the table is exact."""
    return {"missing": dict(wanted - held), "too much": dict(held - wanted)}
