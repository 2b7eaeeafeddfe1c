"""Kafka and Spark in memory, as the raw query sees them, so that a test can lose, truncate and hide messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from artimon.rawtable.table_state import Span
from pipeline.spark.raw_task import KafkaRecord
from pipeline.spark.topic_client import DeadLetter, TopicError
from tests.simulation.log import LogTopic, Partition

NAME = "t.samples"


class MemoryLog:
    """One topic at a time; `recreate` makes another of the same name."""

    def __init__(self, partitions: int) -> None:
        self.topics: dict[str, list[Partition]] = {}
        self._partitions = partitions
        self.letters: list[tuple[DeadLetter, bytes | None]] = []
        self.bury_fails = False
        self.recreate()

    def recreate(self) -> None:
        self.id = f"topic-{len(self.topics)}"
        self.topics[self.id] = [Partition() for _ in range(self._partitions)]

    @property
    def partitions(self) -> list[Partition]:
        return self.topics[self.id]


class MemoryTopic(LogTopic):
    """The topic, as the driver sees it."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(NAME, log.letters)
        self._log = log

    def _logs(self) -> tuple[str, Sequence[Partition]]:
        return self._log.id, self._log.partitions

    def copy_to(self, letters: Sequence[DeadLetter], graveyard: str) -> None:
        super().copy_to(letters, graveyard)
        if self._log.bury_fails:
            self._log.bury_fails = False
            raise TopicError("the answer to the dead letters was lost")


class Row(NamedTuple):
    result: str


class Frame:
    """Input of foreachBatch: offset ranges of partitions, shared by several tasks; each collect reads the log."""

    def __init__(self, log: MemoryLog, spans: Mapping[int, Span], tasks: int, chunk: int = 3) -> None:
        self._log, self._spans, self._tasks, self._chunk = log, spans, tasks, chunk
        self._function: Callable[[Iterable[Any]], Iterable[Any]] | None = None

    def coalesce(self, _tasks: int) -> Frame:
        return self  # as many tasks as the test wants

    def mapInArrow(self, function: Callable[[Iterable[Any]], Iterable[Any]], _schema: str) -> Frame:
        mapped = Frame(self._log, self._spans, self._tasks, self._chunk)
        mapped._function = function
        return mapped

    def collect(self) -> list[Row]:
        assert self._function is not None
        rows = []
        for task in range(self._tasks):
            mine = [p for p in sorted(self._spans) if p % self._tasks == task]
            records = [(p, record) for p in mine for record in self._log.partitions[p].read(*self._spans[p])]
            for batch in self._function(self._batches(records)):
                rows += [Row(text) for text in batch.column(0).to_pylist()]
        return rows

    def _batches(self, records: Sequence[tuple[int, KafkaRecord]]) -> Iterable[Any]:
        for at in range(0, len(records), self._chunk):
            yield arrow(records[at : at + self._chunk])


def arrow(records: Sequence[tuple[int, Any]]) -> Any:
    """Return records as Spark hands them to tasks: (partition, offset, timestamp, value)."""
    columns = [
        pa.array([p for p, _ in records], pa.int32()),
        pa.array([record.offset for _, record in records], pa.int64()),
        pa.array([record.append_ms * 1000 for _, record in records], pa.timestamp("us", tz="UTC")),
        pa.array([record.value for _, record in records], pa.binary()),
    ]
    return pa.record_batch(columns, names=["partition", "offset", "timestamp", "value"])


class _Broadcast(NamedTuple):
    value: Mapping[str, int]

    def unpersist(self, blocking: bool) -> None:
        pass


class _Context:
    defaultParallelism = 2

    def broadcast(self, value: Mapping[str, int]) -> _Broadcast:
        return _Broadcast(value)


class LocalSession:
    """The parts of a Spark session that the driver needs to run tasks in its own process."""

    sparkContext = _Context()
