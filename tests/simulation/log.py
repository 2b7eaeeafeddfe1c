"""The log of a partition in memory, and a topic of such logs as the driver sees it. The owner of a log loses, truncates
and hides its messages; messages that were not truncated are never forgotten."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from artimon.rawtable.table_state import Span
from pipeline.spark.raw_task import KafkaRecord
from pipeline.spark.topic_client import DeadLetter, LeaderChangedError, TopicClient, TopicError, TopicInfo

CLUSTER = "sim"


@dataclass(slots=True)
class Stored:
    """A message. `hidden`: number of reads that will miss it; below 0: all of them. `withheld`: at least one missed
    it."""

    record: KafkaRecord
    hidden: int = 0
    withheld: bool = False


@dataclass(slots=True)
class Partition:
    """Offsets [start, end)."""

    start: int = 0
    records: list[Stored] = field(default_factory=list)
    """All records ever written and not truncated, by offset, including those below `start`."""
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """(leader epoch, first offset written under it)."""

    @property
    def end(self) -> int:
        return len(self.records)

    @property
    def epoch(self) -> int:
        """Epoch of its leader."""
        return self.epochs[-1][0]

    def append(self, now_ms: int, value: bytes | None) -> int:
        """Append a message and return its offset."""
        self.records.append(Stored(KafkaRecord(self.end, now_ms, value)))
        return self.end - 1

    def trim(self, start: int) -> None:
        """Move the start of the log up to `start`."""
        for stored in self.records[self.start : start]:
            stored.withheld = True
        self.start = max(self.start, start)

    def cut(self, end: int) -> None:
        """End the log at `end`, under another leader."""
        del self.records[max(end, self.start) :]
        self.elect()

    def elect(self) -> None:
        """Elect a leader, the same or another, under a new epoch."""
        newest = self.epoch
        self.epochs = [one for one in self.epochs if one[1] < self.end]
        self.epochs.append((newest + 1, self.end))

    def end_of(self, epoch: int) -> int:
        """Return the end of the records written under that leader epoch or before."""
        return next((start for later, start in self.epochs if later > epoch), self.end)

    def read(self, start: int, end: int, whole: bool = False) -> list[KafkaRecord]:
        """Return the records of [start, end) that a consumer gets; `whole`: hidden messages as well."""
        found = self.records[max(start, self.start) : end]
        if whole:
            return [stored.record for stored in found]
        got = []
        for stored in found:
            if stored.hidden:
                stored.hidden -= stored.hidden > 0
                stored.withheld = True
            else:
                got.append(stored.record)
        return got


class LogTopic(TopicClient):
    """The driver's view of a topic; only requests to Kafka are replaced. `letters` receives the dead letters."""

    def __init__(self, name: str, letters: list[tuple[DeadLetter, bytes | None]]) -> None:
        super().__init__("memory", name)
        self._letters = letters

    @abstractmethod
    def _logs(self) -> tuple[str, Sequence[Partition]]:
        """Return the current topic id and partitions."""

    def _wait(self) -> None:
        """Wait for a request and its answer. Raises TopicError."""

    def describe(self) -> TopicInfo:
        self._wait()
        topic_id, logs = self._logs()
        epochs = {p: log.epoch for p, log in enumerate(logs)}
        return TopicInfo(CLUSTER, self.topic, topic_id, len(logs), epochs, dict.fromkeys(epochs, 1))

    def generations(self) -> list[TopicInfo]:
        """Return the only generation of the simulated topic."""
        topic_id, logs = self._logs()
        return [TopicInfo(CLUSTER, self.topic, topic_id, len(logs))]

    def _epoch_ends(self, info: TopicInfo, epochs: Mapping[int, int]) -> dict[int, int]:
        logs = self._logs()[1]
        for partition in epochs:
            if info.epochs[partition] != logs[partition].epoch:
                raise LeaderChangedError(f"{self.topic}, partition {partition}: another leader")
        return {partition: logs[partition].end_of(epoch) for partition, epoch in epochs.items()}

    def log_bounds(self, partitions: int) -> dict[int, Span]:
        self._wait()
        return {p: (log.start, log.end) for p, log in enumerate(self._logs()[1][:partitions])}

    def copy_to(self, letters: Sequence[DeadLetter], _graveyard: str) -> None:
        self._wait()
        for letter in letters:
            log = self._logs()[1][letter.partition]
            if not log.start <= letter.offset < log.end:
                raise TopicError(f"{letter} is gone")
            self._letters.append((letter, log.records[letter.offset].record.value))

    def close(self) -> None:
        """Do nothing, because there is no connection."""
