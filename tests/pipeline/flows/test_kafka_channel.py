"""Channel in a topic of a real broker: fault 27 (a failed commit is an error, a put is whole or absent)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

from artimon.model.batch import BatchId
from artimon.model.event_codec import encode_events
from pipeline.flows.channels.kafka_channel import KafkaChannel, KafkaOptions
from pipeline.flows.event import EventBatch
from pipeline.flows.spi import ChannelFailed, ChannelFull
from tests.pipeline.flows.parts import event, event_batch, numbers_of
from tests.pipeline.kafka_helpers import own_topics
from tests.waiting import eventually


class Opened:
    """Channels on one topic, closed at the end."""

    def __init__(self, kafka: str) -> None:
        self._kafka, self.topic = kafka, f"{own_topics(kafka, 1)}.samples"
        self.channels: list[KafkaChannel] = []

    def __call__(self, agent: str = "a", behind: int = 1000) -> KafkaChannel:
        options = KafkaOptions(bootstrap=self._kafka, topic=self.topic, group="g", behind=behind, call_s=30)
        channel = KafkaChannel(options, agent, "f")
        channel.start()
        self.channels.append(channel)
        return channel


@pytest.fixture
def opened(kafka: str) -> Iterator[Opened]:
    made = Opened(kafka)
    yield made
    for channel in made.channels:
        channel.stop(5.0)


def taken(channel: KafkaChannel, count: int) -> list[EventBatch]:
    """Next event batches, at least `count`, committed one take after another."""
    found: list[EventBatch] = []

    def more() -> bool:
        with channel.take(10, 2.0) as take:
            found.extend(take.event_batches)
        return len(found) >= count

    eventually(more, f"{count} event batches")
    return found


@pytest.mark.stack
def test_puts_takes_and_rollbacks_survive_restarts(opened: Opened) -> None:
    channel = opened()
    channel.put([event_batch(1), event_batch(2)], 60.0)
    channel.put([event_batch(3)], 60.0)
    first: Any = None

    def some() -> bool:
        nonlocal first
        first = channel.take(10, 2.0)
        return bool(first)

    eventually(some, "the first take")
    with pytest.raises(ChannelFailed, match="neither committed nor rolled back"):
        channel.take(1, 0.0)
    ids = [p.id for p in first.event_batches]
    first.rollback()
    again = taken(channel, 3)
    assert numbers_of(again) == [1, 2, 3]
    assert [p.id for p in again][: len(ids)] == ids
    channel.put([event_batch(4)], 60.0)
    channel.put(again, 60.0)  # repeat: dropped
    assert channel.repeats == 3
    channel.stop(10.0)
    channel = opened()
    assert numbers_of(taken(channel, 1)) == [4]


@pytest.mark.stack
def test_uncommitted_event_batches_go_to_the_next_owner_and_a_failed_commit_is_an_error(opened: Opened) -> None:
    """Scenario 38 for this channel, and fault 27: puts and commits of a fenced owner are errors."""
    old = opened()
    old.put([event_batch(1), event_batch(2)], 60.0)
    take: Any = None

    def some() -> bool:
        nonlocal take
        take = old.take(10, 2.0)
        return bool(take)

    eventually(some, "the first take")
    old._consumer.close(autocommit=False)  # the broker takes it out of the group
    new = opened()
    assert numbers_of(taken(new, 2)) == [1, 2]
    with pytest.raises(ChannelFailed, match="commit"):
        take.commit()
    new.put([event_batch(3)], 60.0)
    with pytest.raises(ChannelFailed):
        old.put([event_batch(4)], 60.0)  # its producer was fenced: nothing of it is read
    new._producer = None  # and is fenced itself once `old` opened another producer
    new.put([event_batch(5)], 60.0)
    assert numbers_of(taken(new, 2)) == [3, 5]


@pytest.mark.stack
def test_a_full_channel_refuses_puts(opened: Opened) -> None:
    channel = opened(behind=2)
    with pytest.raises(ChannelFull, match="at most 2"):
        channel.put([event_batch(1), event_batch(2), event_batch(3)], 60.0)
    channel.put([event_batch(1)], 60.0)
    assert numbers_of(taken(channel, 1)) == [1]


class Record(NamedTuple):
    """Message in the shape of Kafka's consumer."""

    topic: str
    partition: int
    offset: int
    value: bytes


class Unsteady:
    """Consumer with one message whose position is unavailable while `fails`."""

    def __init__(self, fails: bool) -> None:
        self._fails, self._left = fails, [0]

    def poll(self, **_: Any) -> dict[TopicPartition, list[Record]]:
        id = BatchId("a", 1, 0, 0)
        value = encode_events(id, "s", 1, [event(7)]).data
        return {TopicPartition("t", 0): [Record("t", 0, self._left.pop(), value)]} if self._left else {}

    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition("t", 0)}

    def position(self, _part: TopicPartition) -> int:
        if self._fails:
            raise KafkaTimeoutError("no answer")
        return 1

    def highwater(self, _part: TopicPartition) -> int:
        return 1

    def close(self, **_: Any) -> None:
        pass


def test_a_message_of_a_failed_poll_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the next commit would skip it, or every later take would be refused."""
    channel = KafkaChannel(KafkaOptions(bootstrap="127.0.0.1:1", topic="t", call_s=60), "a", "f")
    consumers = [Unsteady(True), Unsteady(False)]
    monkeypatch.setattr(channel, "_new_consumer", lambda: consumers.pop(0))
    channel._open = True
    with pytest.raises(ChannelFailed, match="no answer"):
        channel.take(10, 0.0)
    assert numbers_of(channel.take(10, 0.0).event_batches) == [7]


def test_start_without_kafka_is_an_error() -> None:
    channel = KafkaChannel(KafkaOptions(bootstrap="127.0.0.1:1", topic="t", call_s=2), "a", "f")
    with pytest.raises(ChannelFailed, match="127"):
        channel.start()
    channel.stop(1.0)
