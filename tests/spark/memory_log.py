"""Kafka as the raw query sees it, in memory, so that a test can lose, cut and hide what it likes. Remembers
everything that ever stood in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from pipeline.spark.state import Span
from pipeline.spark.topic import DeadLetter, LeaderChanged, Topic, TopicError, TopicInfo

CLUSTER, NAME = "cluster", "t.samples"


@dataclass(slots=True)
class Stored:
    """A message in the log. `withheld`: at least one read did not get it. `hidden`: so many reads will not, -1: none
    ever will."""

    offset: int
    append_ms: int
    value: bytes | None
    hidden: int = 0
    withheld: bool = False


@dataclass(slots=True)
class PartitionLog:
    """Offsets [start, end)."""

    start: int = 0
    records: list[Stored] = field(default_factory=list)
    """All that were ever written and not cut, by offset: also those below `start`."""
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """(leader epoch, first offset written under it)."""

    @property
    def end(self) -> int:
        return len(self.records)

    def append(self, append_ms: int, value: bytes | None) -> None:
        self.records.append(Stored(self.end, append_ms, value))

    def trim(self, start: int) -> None:
        """The log now begins there: what lies below cannot be read any more."""
        for record in self.records[self.start : start]:
            record.withheld = True
        self.start = max(self.start, start)

    def cut(self, end: int) -> None:
        """The log now ends there, and another leader goes on."""
        del self.records[max(end, self.start) :]
        self.elect()

    def elect(self) -> None:
        """A leader, the same or another, under a new epoch."""
        newest = self.epochs[-1][0]
        self.epochs = [(epoch, start) for epoch, start in self.epochs if start < self.end]
        self.epochs.append((newest + 1, self.end))

    def read(self, start: int, end: int) -> list[Stored]:
        """What a consumer gets of [start, end)."""
        got = []
        for record in self.records[max(start, self.start) : end]:
            if record.hidden:
                record.hidden -= record.hidden > 0
                record.withheld = True
            else:
                got.append(record)
        return got


class MemoryLog:
    """One topic at a time; `recreate` makes another of the same name."""

    def __init__(self, partitions: int) -> None:
        self.topics: dict[str, list[PartitionLog]] = {}
        self._partitions = partitions
        self.letters: list[tuple[DeadLetter, bytes | None]] = []
        self.bury_fails = False
        self.recreate()

    def recreate(self) -> None:
        self.id = f"topic-{len(self.topics)}"
        self.topics[self.id] = [PartitionLog() for _ in range(self._partitions)]

    @property
    def partitions(self) -> list[PartitionLog]:
        return self.topics[self.id]


class MemoryTopic(Topic):
    """What pipeline.spark.topic.Topic tells the driver; only what asks Kafka is replaced."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__("memory", NAME)
        self._log = log

    def describe(self) -> TopicInfo:
        epochs = {p: log.epochs[-1][0] for p, log in enumerate(self._log.partitions)}
        return TopicInfo(CLUSTER, NAME, self._log.id, len(epochs), epochs, dict.fromkeys(epochs, 1))

    def _epoch_end(self, info: TopicInfo, partition: int, epoch: int) -> int:
        log = self._log.partitions[partition]
        if info.epochs[partition] != log.epochs[-1][0]:
            raise LeaderChanged(f"partition {partition} has another leader")
        return next((start for later, start in log.epochs if later > epoch), log.end)

    def bounds(self, partitions: int) -> dict[int, Span]:
        return {p: (log.start, log.end) for p, log in enumerate(self._log.partitions[:partitions])}

    def bury(self, letters: Sequence[DeadLetter], _graveyard: str) -> None:
        for letter in letters:
            log = self._log.partitions[letter.partition]
            if not log.start <= letter.offset < log.end:
                raise TopicError(f"{letter} is gone")
            self._log.letters.append((letter, log.records[letter.offset].value))
        if self._log.bury_fails:
            self._log.bury_fails = False
            raise TopicError("the answer to the dead letters was lost")

    def close(self) -> None:
        pass


class Row(NamedTuple):
    result: str


class Frame:
    """What foreachBatch gets: offset ranges of partitions, which several tasks share; each collect reads the log."""

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

    def _batches(self, records: Sequence[tuple[int, Stored]]) -> Iterable[Any]:
        for at in range(0, len(records), self._chunk):
            yield arrow(records[at : at + self._chunk])


def arrow(records: Sequence[tuple[int, Any]]) -> Any:
    """Records as Spark hands them to tasks: (partition, offset, timestamp, value)."""
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
    """What the driver needs of Spark to run tasks in its own process."""

    sparkContext = _Context()
