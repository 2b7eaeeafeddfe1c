"""A model of Kafka: topics with ids, partitions with leader epochs, logs that lose their end, are trimmed or recreated.

The classes of the shipped processes that query Kafka are used unchanged; only the requests over the wire are
replaced."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from artimon.model.ack_state import Position
from pipeline.collector import kafka_writer as broker
from pipeline.collector.kafka_quota import LogSizes
from pipeline.collector.kafka_writer import KafkaWriteError, is_same_leader, position_of
from pipeline.spark.raw_task import KafkaRecord
from pipeline.spark.topic_client import DeadLetter, TopicError, TopicInfo
from tests.simulation.log import CLUSTER, LogTopic, Partition
from tests.simulation.scheduler import Process, Scheduler

SAMPLES, SERIES = "artimon.samples", "artimon.series"
METADATA_AGE_S = 60.0
MESSAGE_BYTES = 100


class SimKafka:
    """The cluster. `down`: requests are not answered."""

    def __init__(self, scheduler: Scheduler, partitions: int) -> None:
        self._scheduler, self.partition_count = scheduler, partitions
        self.topics: dict[str, tuple[str, list[Partition]]] = {}
        """Name -> topic id, partitions."""
        self.down = False
        self.letters: list[tuple[DeadLetter, bytes | None]] = []
        self._made = 0
        self.produced = 0
        self.slow = 0.0
        """Additional seconds of every request."""
        self.recreate(SAMPLES)
        self.recreate(SERIES)

    def recreate(self, name: str) -> None:
        """Begin a topic of that name, under a new id."""
        self._made += 1
        count = self.partition_count if name == SAMPLES else 1
        self.topics[name] = f"topic-{self._made}", [Partition() for _ in range(count)]

    @property
    def samples_id(self) -> str:
        return self.topics[SAMPLES][0]

    @property
    def samples(self) -> list[Partition]:
        return self.topics[SAMPLES][1]

    def ends(self) -> dict[int, int]:
        """Return the ends of the partitions of the topic of samples."""
        return {p: one.end for p, one in enumerate(self.samples)}

    def read(
        self, start: Mapping[int, int], end: Mapping[int, int], whole: bool = True
    ) -> list[tuple[int, KafkaRecord]]:
        """Return the records that Spark's source gets, sorted by partition and offset."""
        logs, wanted = self.samples, [p for p in sorted(start) if end[p] > start[p]]
        return [(p, record) for p in wanted for record in logs[p].read(start[p], end[p], whole)]


class SimTopic(LogTopic):
    """The topic of samples, behind a network."""

    def __init__(self, kafka: SimKafka, scheduler: Scheduler, owner: Process, name: str = SAMPLES) -> None:
        super().__init__(name, kafka.letters)
        self._kafka, self._scheduler, self._owner = kafka, scheduler, owner

    def _wait(self) -> None:
        if self._scheduler.chance(0.02):
            self._scheduler.block(self._owner, self._scheduler.random.random() * 0.2)
        if self._kafka.down:
            raise TopicError("Kafka does not answer")

    def _logs(self) -> tuple[str, Sequence[Partition]]:
        return self._kafka.topics[self.topic]

    def _epoch_ends(self, info: TopicInfo, epochs: Mapping[int, int]) -> dict[int, int]:
        if self._kafka.down:
            raise TopicError("Kafka does not answer")
        return super()._epoch_ends(info, epochs)

    def offsets_at(self, partitions: int, time_ms: int) -> dict[int, int]:
        """Return the first offsets at or after a time, as Kafka does; none where every message is older."""
        found = {}
        for p, log in enumerate(self._logs()[1][:partitions]):
            for stored in log.records[log.start :]:
                if stored.record.append_ms >= time_ms:
                    found[p] = stored.record.offset
                    break
        return found

    def sizes(self, _partitions: int) -> LogSizes:
        return sizes_of(self._kafka, self.topic)

    def settings(self) -> dict[str, str]:
        return {}

    def delete_below(self, cuts: Mapping[int, int]) -> None:
        self._wait()
        for p, cut in cuts.items():
            log = self._logs()[1][p]
            if cut > log.end:
                raise TopicError(f"partition {p} ends at {log.end}, below {cut}")
            log.trim(cut)


def sizes_of(kafka: SimKafka, name: str) -> LogSizes:
    """Return the bytes of each partition."""
    sizes = {}
    for p, log in enumerate(kafka.topics[name][1]):
        held = sum(MESSAGE_BYTES + len(one.record.value or b"") for one in log.records[log.start :])
        sizes[p] = held
    return LogSizes(sizes)


class SimBroker:
    """Kafka as a collector's `KafkaWriter` sees it: described a minute ago at most, with its id."""

    def __init__(self, kafka: SimKafka, scheduler: Scheduler) -> None:
        self._kafka, self._scheduler = kafka, scheduler
        self._topics: dict[str, broker.TopicDescription] = {}

    def describe_topic(self, name: str) -> broker.TopicDescription:
        """Return the description of a topic. Raises KafkaWriteError."""
        info = self._topics.get(name)
        if info is None or self._scheduler.now - info.read_at >= METADATA_AGE_S:
            info = self._describe(name)
        return info

    def _describe(self, name: str) -> broker.TopicDescription:
        if self._kafka.down:
            raise KafkaWriteError("Kafka does not answer")
        topic_id, logs = self._kafka.topics[name]
        number = uuid.UUID(int=int(topic_id.rpartition("-")[2]))
        leaders = dict.fromkeys(range(len(logs)), 1)
        epochs = {p: log.epoch for p, log in enumerate(logs)}
        info = _Info(CLUSTER, name, number, leaders, self._scheduler.now, (1,), epochs)
        self._topics[name] = info
        return info

    def produce(self, messages: Sequence[broker.KafkaMessage]) -> list[_Written]:
        """Send the request to the leaders, and return each position, or the reason for a failure."""
        written = []
        for message in messages:
            try:
                info = self.describe_topic(message.topic)
            except KafkaWriteError as error:
                written.append(_Written(None, -1, -1, f"kafka: {error}"))
                continue
            topic_id, logs = self._kafka.topics[message.topic]
            if self._kafka.down or topic_id != info.topic_id:
                self._topics.pop(message.topic, None)
                written.append(_Written(None, -1, -1, "kafka: UnknownTopicIdError"))
                continue
            self._kafka.produced += 1
            offset = logs[message.partition].append(self._scheduler.now_ms, message.value)
            written.append(_Written(info, message.partition, offset, ""))
        return written

    def write(self, messages: Sequence[broker.KafkaMessage]) -> list[Position | str]:
        """Produce and confirm at once, as pipeline.collector.kafka_writer.KafkaWriter does."""
        return self.confirm(self.produce(messages))

    def confirm(self, written: Sequence[_Written]) -> list[Position | str]:
        """Return the results: a position is valid if the leader is still the same."""
        results: list[Position | str] = []
        now: dict[str, broker.TopicDescription] = {}
        for one in written:
            if one.info is None:
                results.append(one.reason)
                continue
            try:
                name = one.info.name
                described = now.get(name) or now.setdefault(name, self._describe(name))
            except KafkaWriteError as error:
                results.append(f"kafka: not described after the write: {error}")
                continue
            good = is_same_leader(one.info, described, one.partition)
            results.append(position_of(one.info, one.partition, one.offset) if good else "kafka: its leader changed")
        return results


@dataclass(frozen=True, slots=True)
class _Written:
    info: broker.TopicDescription | None
    partition: int
    offset: int
    reason: str


class _Info(broker.TopicDescription):
    """A description whose id has the form of the model's ids."""

    @property
    def topic_id(self) -> str:
        return f"topic-{self.uuid.int}"
