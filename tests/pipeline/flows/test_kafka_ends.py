"""Kafka as a source and as a sink of flows, with a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from artimon.model.batch import BatchId, Samples
from artimon.model.batch_codec import encode_samples, verify
from artimon.stack.topics import TopicSpec, make_topics
from pipeline.control.shard_directory import ShardGroup, ShardInfo
from pipeline.delivery.batch_numbers import LaneNumbers
from pipeline.flows.context import Context
from pipeline.flows.event import Event, EventBatch, events_of, with_identity_and_bytes
from pipeline.flows.runtime.builtin_components import builtin_registry
from pipeline.flows.sinks.kafka_sink import KafkaSink, KafkaSinkOptions
from pipeline.flows.sinks.varstore_sink import VarstoreOptions, VarstoreSink
from pipeline.flows.sources.kafka_source import KafkaSource, KafkaSourceOptions
from pipeline.flows.spi import ChannelFailed, ChannelFull, SinkFailed
from tests.pipeline.kafka_helpers import APPEND_TIME, own_topics, read_topic
from tests.waiting import eventually

pytestmark = pytest.mark.stack


@pytest.fixture
def prefix(kafka: str) -> str:
    name = f"t{uuid.uuid4().hex[:12]}"
    make_topics(kafka, (TopicSpec(f"{name}.events", 2, APPEND_TIME),))
    return name


def about(folder: Path) -> Context:
    return Context("a", "f", "kafka", folder, builtin_registry())


class Into:
    """Channel that drops repeats; `crash` ends the process after a put."""

    def __init__(self) -> None:
        self.arrived: dict[BatchId, EventBatch] = {}
        self.full = self.crash = False

    def __call__(self, event_batches: Sequence[EventBatch]) -> None:
        if self.full:
            raise ChannelFull("full")
        for event_batch in event_batches:
            assert event_batch.id is not None
            assert self.arrived.setdefault(event_batch.id, event_batch).data == event_batch.data
        if self.crash:
            raise KeyboardInterrupt

    @property
    def events(self) -> list[Event]:
        return [event for event_batch in self.arrived.values() for event in events_of(event_batch)]


def produce(kafka: str, topic: str, bodies: Sequence[bytes], **more: Any) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka, acks="all")
    for body in bodies:
        producer.send(topic, body, **more).get(20)
    producer.close()


def drain(source: KafkaSource, into: Into, count: int) -> list[bytes]:
    def enough() -> bool:
        source.poll(into)
        return len(into.events) >= count

    eventually(enough, f"{count} events", pause=0.01)
    return sorted(event.body for event in into.events)


def test_messages_become_events_once_in_spite_of_refusals_and_kills(kafka: str, prefix: str, tmp_path: Path) -> None:
    topic, into = f"{prefix}.events", Into()
    options = KafkaSourceOptions(bootstrap=kafka, topic=topic, messages=3)
    produce(kafka, topic, [b"%d" % n for n in range(5)], key=b"k", headers=[("h", b"v")])
    source = KafkaSource(options, about(tmp_path))
    source.start()
    into.full = True
    with pytest.raises(ChannelFull):
        eventually(lambda: source.poll(into), "something to put")
    into.full, into.crash = False, True
    with pytest.raises(KeyboardInterrupt):
        source.poll(into)
    into.crash = False
    again = KafkaSource(options, about(tmp_path))  # the first run was killed
    again.start()
    assert drain(again, into, 5) == [b"%d" % n for n in range(5)]
    assert into.events[0].headers == {"key": "k", "h": "v"}
    again.stop(2)
    produce(kafka, topic, [b"5"])
    last = KafkaSource(options, about(tmp_path))
    last.start()
    assert drain(last, into, 6) == [b"%d" % n for n in range(6)]
    last.stop(2)
    source.stop(2)


def _delivered(sink: KafkaSink, event_batches: Sequence[EventBatch]) -> bool:
    try:
        sink.deliver(event_batches)
    except SinkFailed as failure:
        if "NotLeader" not in str(failure):
            raise
        return False
    return True


def test_batches_keep_identity_and_bytes_from_sink_to_source(kafka: str, prefix: str, tmp_path: Path) -> None:
    sink = KafkaSink(KafkaSinkOptions(bootstrap=kafka, prefix=prefix), about(tmp_path))
    sink.start()
    numbers = LaneNumbers("agent", 7)
    event_batches = [with_identity_and_bytes(EventBatch((Event({}, b"%d" % n),)), numbers, "flow", 1) for n in range(4)]
    eventually(lambda: _delivered(sink, event_batches[:2]), "the broker to lead its new partitions")
    sink.deliver(event_batches[1:])  # the second comes twice: under one identity
    sink.stop(1)
    values = [value for _, _, _, value in read_topic(kafka, f"{prefix}.events")]
    assert values == [p.data for p in (*event_batches[:2], *event_batches[1:])]  # one lane, one partition, in order
    source, into = (
        KafkaSource(KafkaSourceOptions(bootstrap=kafka, topic=f"{prefix}.events", batches=True), about(tmp_path)),
        Into(),
    )
    source.start()
    produce(kafka, f"{prefix}.events", [b"no batch"])
    assert drain(source, into, 4) == [b"0", b"1", b"2", b"3"]
    eventually(lambda: source.poll(into) or source.figures().get("bad") == 1, "what is no batch is counted")
    assert {id: p.data for id, p in into.arrived.items()} == {verify(p.data or b"").id: p.data for p in event_batches}
    source.stop(2)


def test_a_missing_topic_or_broker_is_an_error(kafka: str, tmp_path: Path) -> None:
    source = KafkaSource(KafkaSourceOptions(bootstrap=kafka, topic="no.such", call_s=5), about(tmp_path))
    source.start()
    with pytest.raises(ChannelFailed, match=r"topic no\.such does not exist"):
        source.poll(Into())
    sink = KafkaSink(KafkaSinkOptions(bootstrap=kafka, prefix="no.such"), about(tmp_path))
    sink.start()
    with pytest.raises(SinkFailed, match=r"no\.such\.events"):
        sink.deliver([with_identity_and_bytes(EventBatch((Event({}, b"x"),)), LaneNumbers("a"), "f", 1)])
    sink.stop(1)
    source.stop(1)


def test_samples_count_as_delivered_once_every_shard_has_them(kafka: str, zookeeper: str, tmp_path: Path) -> None:
    prefix = own_topics(kafka)
    context = replace(about(tmp_path), shared={"zookeeper": zookeeper})
    sink = VarstoreSink(VarstoreOptions(bootstrap=kafka, prefix=prefix, shown_s=0.5), context)
    sink.start()
    told: list[Any] = []
    sink.read_offsets = lambda _: told
    samples = encode_samples(BatchId("a", 1, 0, 0), "s", bytes(16), 1, 1, "default", Samples.of([(1, 1, 1, 5)]))
    event_batch = EventBatch((), samples.header.id, samples.data)
    with pytest.raises(SinkFailed, match="not every shard"):
        sink.deliver([event_batch])
    group = ShardGroup(ShardInfo("0", "h", 1, ""), 1)
    told[:] = [[(group, dict.fromkeys(range(3), 9))], [(group, dict.fromkeys(range(3), 9))]]
    sink.deliver([event_batch])
    told[1] = None  # a shard that does not answer
    with pytest.raises(SinkFailed, match="not every shard"):
        sink.deliver([event_batch])
    with pytest.raises(SinkFailed, match="takes samples") as refused:
        sink.deliver([EventBatch((Event({}, b"x"),))])
    assert not refused.value.retry
    sink.stop(1)
