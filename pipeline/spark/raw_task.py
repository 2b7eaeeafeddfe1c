"""Task of the raw query: decodes the rows of one or more Kafka partitions, drops repeats, sorts, and writes Parquet
itself. The driver gets file names and counts only; samples never go back to the JVM."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from artimon.model.batch import DEFAULT_KEEP, BatchError, BatchHeader
from artimon.model.ranges import LaneId, LaneRanges
from artimon.rawtable.schema import DataFile
from artimon.rawtable.sources import SourcesTable
from pipeline.spark import message_checks as messages
from pipeline.spark.append_pace import CHUNK_BYTES
from pipeline.spark.decoder_trial import TrialDecoder
from pipeline.spark.raw_file_writer import NamedBatch, RawFileWriter
from pipeline.spark.source_numbers import BroadcastNumbers, SourceNumbers

MAX_REASON = 300

Decode = Callable[[BatchHeader, bytes], Any]
"""Returns the columns of a checked batch. Raises BatchError if they cannot be stored."""


class KafkaRecord(NamedTuple):
    """One Kafka message."""

    offset: int
    append_ms: int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class RawPlan:
    """Parameters of all tasks of one micro-batch."""

    table: str
    """URI of the raw table."""
    accepted: Mapping[int, LaneRanges]
    """By partition: sequence numbers of batches at lower offsets."""
    sources: BroadcastNumbers
    recent_sources: Mapping[str, int] = field(default_factory=dict)
    """Numbers of sources that are not in the broadcast yet."""
    hdfs: str = ""
    """File system of the table of sources, for those without a number."""
    open_sources: Callable[[str], SourcesTable] = SourcesTable
    append: int = 0
    """Number of the next append; part of the names of the files."""
    chunk_bytes: int = CHUNK_BYTES
    """Decoded bytes that a task buffers before it writes a file."""
    suspects: frozenset[str] = frozenset()
    """Digests of messages that a subprocess decodes first."""
    try_all: bool = False
    """True if every message is suspect, because a worker died."""
    partitions: int = 0
    """Partitions that lanes are spread over; 0: any lane may be in any partition."""


@dataclass(slots=True)
class RawResult:
    """Result of a task for one of its partitions. The files of a task hold rows of all its partitions and are in its
    last result."""

    partition: int
    first: int
    until: int
    missing: list[tuple[int, int]] = field(default_factory=list)
    """Offset ranges between `first` and `until` without messages."""
    sources: dict[str, int] = field(default_factory=dict)
    """Numbers that the task looked up. All of a task are in its last result."""
    files: list[DataFile] = field(default_factory=list)
    rows: int = 0
    batches: int = 0
    duplicates: int = 0
    dead_letters: list[tuple[int, str]] = field(default_factory=list)
    """Offset and reason of each message that is not a storable batch."""
    accepted: LaneRanges = field(default_factory=LaneRanges)
    last_ms: dict[LaneId, int] = field(default_factory=dict)
    newest_append_ms: int = 0
    poison: list[str] = field(default_factory=list)
    """Digests of messages that kill their decoder. All of a task are in its last result."""


def records_of(batches: Iterable[Any]) -> Iterator[tuple[int, KafkaRecord]]:
    """Yield partition and record of each row of Spark's Arrow batches (partition, offset, timestamp, value), in their
    order."""
    for batch in batches:
        partitions, offsets = (batch.column(i).to_numpy() for i in range(2))
        stamps = batch.column(2).cast(pa.int64()).to_numpy() // 1000
        values = batch.column(3).to_pylist()
        for row in zip(partitions.tolist(), offsets.tolist(), stamps.tolist(), values, strict=True):
            yield row[0], KafkaRecord(*row[1:])


def numbers_of(plan: RawPlan) -> SourceNumbers:
    """Return the numbers of sources for one task; the table is opened only if a source is not known."""

    def assign(names: Iterable[str]) -> Mapping[str, int]:
        return plan.open_sources(plan.hdfs).assign(names)

    return SourceNumbers(plan.sources.value, plan.recent_sources, assign)


def run_raw(plan: RawPlan, batches: Iterable[Any]) -> Iterator[Any]:
    """Body of the raw query's mapInArrow: one result row for each Kafka partition that has rows. The rows of a
    partition are contiguous."""
    results: list[RawResult] = []
    guard = TrialDecoder(plan.suspects, plan.try_all)
    sources = SourceNumbers(
        plan.sources.value, plan.recent_sources, lambda names: SourcesTable(plan.hdfs).assign(names)
    )
    with RawFileWriter(plan.table, plan.append, plan.chunk_bytes, sources) as output, guard:
        reader: PartitionReader | None = None
        for partition, record in records_of(batches):
            if reader is None or reader.result.partition != partition:
                reader = PartitionReader(plan, output, partition, record.offset, guard.decode)
                results.append(reader.result)
            reader.add(record)
        if results:
            results[-1].files, results[-1].poison = output.close(), guard.poison
            results[-1].sources = sources.learned
    for result in results:
        yield result_row(result)


def result_row(result: object) -> Any:
    """Return the row in which a task sends a result to the driver, which runs the same program (`run_task`)."""
    return pa.record_batch([pa.array([pickle.dumps(result)], pa.binary())], names=["result"])


def run_task(frame: Any, task: Callable[[Iterable[Any]], Iterable[Any]]) -> list[Any]:
    """Run a task over the rows of a frame in Spark; return the results of all."""
    rows = frame.mapInArrow(task, "result binary").collect()
    return [pickle.loads(row.result) for row in rows]  # noqa: S301 - our own task wrote it


class PartitionReader:
    """Takes the records of one partition in offset order and decides on each message."""

    def __init__(
        self, plan: RawPlan, output: RawFileWriter, partition: int, first: int, decode: Decode | None = None
    ) -> None:
        self._output, self._decode = output, decode or messages.decode
        self._accepted, self._partitions = plan.accepted.get(partition, LaneRanges()), plan.partitions
        self.result = RawResult(partition, first, first)

    def add(self, record: KafkaRecord) -> None:
        result = self.result
        if record.offset > result.until:
            result.missing.append((result.until, record.offset))
        result.until = record.offset + 1
        result.newest_append_ms = max(result.newest_append_ms, record.append_ms)
        try:
            header = messages.check_message(record.value, record.append_ms)
            messages.check_partition(header, result.partition, self._partitions)
            self._add_batch(header, record)
        except BatchError as error:
            result.dead_letters.append((record.offset, str(error)[:MAX_REASON]))

    def _add_batch(self, header: BatchHeader, record: KafkaRecord) -> None:
        result, lane, sequence = self.result, header.id.lane_id, header.id.sequence
        if self._accepted.contains(lane, sequence) or result.accepted.contains(lane, sequence):
            result.duplicates += 1
            result.last_ms[lane] = record.append_ms
            return
        columns = self._decode(header, record.value or b"")
        result.accepted.add(lane, sequence)
        result.last_ms[lane] = record.append_ms
        result.batches += 1
        result.rows += len(columns)
        if len(columns):
            self._output.append(header.keep or DEFAULT_KEEP, NamedBatch(header.source, record.append_ms, columns))
