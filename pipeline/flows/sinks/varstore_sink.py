"""Samples into the memory store. Shards read only from Kafka, in its order (which makes their buckets exact), so the
sink writes there, and delivers once the shards have read that far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from pydantic import Field

from artimon.model.ack_state import Position
from artimon.model.batch import BatchKind
from artimon.model.batch_codec import parse_header
from pipeline.collector.kafka_writer import KafkaMessage
from pipeline.control.shard_directory import GroupOffsets, ShardDirectory, ShardsUnknownError, read_groups
from pipeline.flows.context import Context
from pipeline.flows.event import EventBatch
from pipeline.flows.registry import Component
from pipeline.flows.sinks.kafka_sink import OUTSIDE, KafkaSink, KafkaSinkOptions
from pipeline.flows.spi import SinkFailed

OffsetsByShard = Callable[[str], Iterable[GroupOffsets | None]]


class VarstoreOptions(KafkaSinkOptions):
    """`shown_s`: timeout for the shards in seconds; then the event batches go again (the stores drop repeats)."""

    shown_s: float = Field(default=30.0, gt=0, le=600)


class VarstoreSink(KafkaSink):
    """Delivered means: every live shard has applied them, or was told that they are not its own. Takes samples and
    announcements; events are refused permanently."""

    def __init__(self, options: VarstoreOptions, context: Context) -> None:
        super().__init__(options, context)
        self._shown_s = options.shown_s
        self.read_offsets: OffsetsByShard = self._read_offsets
        """Returns the positions of the live shards in a topic id."""

    def start(self) -> None:
        """Raises SinkFailed without ZooKeeper, which lists the shards."""
        if not self._address:
            raise SinkFailed("sink varstore needs ZooKeeper, and this agent has none")
        super().start()

    def deliver(self, event_batches: Sequence[EventBatch]) -> None:
        if any(
            event_batch.data is None or parse_header(event_batch.data).kind == BatchKind.EVENTS
            for event_batch in event_batches
        ):
            raise SinkFailed("the memory store takes samples and announcements, no events", retry=False)
        super().deliver(event_batches)

    def _on_written(self, messages: Sequence[KafkaMessage], positions: Sequence[Position]) -> None:
        wanted: dict[str, dict[int, int]] = {}
        for message, position in zip(messages, positions, strict=True):
            if message.key is None:
                until = wanted.setdefault(position.topic_id, {})
                until[position.partition] = max(until.get(position.partition, 0), position.offset + 1)
        deadline = self._clock.monotonic() + self._shown_s
        while behind := [topic for topic, until in wanted.items() if not have_applied(self.read_offsets(topic), until)]:
            if self._clock.monotonic() > deadline or self._clock.wait(self._stop, 0.2):
                raise SinkFailed(f"not every shard has applied what was written to topic {behind[0]}")

    def _read_offsets(self, topic_id: str) -> Iterable[GroupOffsets | None]:
        if self._zookeeper is None or not self._zookeeper.connected:
            return [None]
        try:
            return [read_groups(shard, topic_id) for shard in ShardDirectory(self._zookeeper).live_shards().values()]
        except ShardsUnknownError:
            return [None]


def have_applied(shards: Iterable[GroupOffsets | None], until: Mapping[int, int]) -> bool:
    """True if all shards have applied every partition up to these offsets; a shard that does not answer has not."""
    found = list(shards)
    return bool(found) and all(
        shard is not None and all(at.get(p, 0) >= end for _, at in shard for p, end in until.items()) for shard in found
    )


VARSTORE = Component("varstore", VarstoreOptions, VarstoreSink, outside=OUTSIDE)
