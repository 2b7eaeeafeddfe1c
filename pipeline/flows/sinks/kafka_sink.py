"""Event batches into Kafka, written as a collector does: delivered once all in-sync replicas have them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

from kazoo.client import KazooClient
from pydantic import Field

from artimon.model.ack_state import Position
from artimon.model.batch import BatchError, BatchId
from artimon.model.batch_codec import parse_header
from artimon.runtime.partition_counts import confirmed_partitions
from artimon.runtime.topic_check import TopicCheck, TopicsUnfitError, required_topics
from artimon.runtime.zookeeper_client import zookeeper_client
from pipeline.collector.kafka_writer import KafkaMessage, KafkaWriteError, KafkaWriter, message_for
from pipeline.delivery.batch_numbers import LaneNumbers
from pipeline.flows.context import Context
from pipeline.flows.event import EventBatch, with_identity_and_bytes
from pipeline.flows.options import Options
from pipeline.flows.registry import Component, Outside
from pipeline.flows.spi import Figures, SinkFailed

REQUIRED_TOPICS = ("samples", "events")
"""Topics whose settings a sink checks, if they exist."""


class KafkaSinkOptions(Options):
    """Events go to the topic `<prefix>.events`, samples to `<prefix>.samples`, announcements to `<prefix>.series`."""

    bootstrap: str = Field(min_length=3)
    prefix: str = Field(default="artimon", pattern=r"^[A-Za-z0-9._-]{1,200}$")
    call_s: float = Field(default=10.0, gt=0, le=300)


class KafkaSink:
    """Delivered means: Kafka has it. A lane always goes to the same partition, in order. A repeat is stored twice under
    one identity; readers drop the later one, as the stores do."""

    def __init__(self, options: KafkaSinkOptions, context: Context) -> None:
        self._options, self._clock = options, context.clock
        self._numbers, self._flow = LaneNumbers(context.agent), context.flow
        self._broker: KafkaWriter | None = None
        self.counts: Counter[str] = Counter()
        self._encoded: dict[BatchId, bytes] = {}
        """Bytes of event batches not delivered yet: a retry sends the same bytes."""
        self.problem = ""
        self._address = context.shared.get("zookeeper", "")
        self._zookeeper: KazooClient | None = None
        self._stop = threading.Event()
        self._check = TopicCheck(options.bootstrap, required_topics(options.prefix, REQUIRED_TOPICS), self._clock)

    def start(self) -> None:
        if self._address:
            self._zookeeper = zookeeper_client(self._address)
            self._zookeeper.start_async()
        pins = confirmed_partitions(self._zookeeper) if self._zookeeper is not None else None
        self._broker = KafkaWriter(self._options.bootstrap, self._clock, pins)
        self._check.start(self._stop)

    def deliver(self, event_batches: Sequence[EventBatch]) -> None:
        """Raises SinkFailed."""
        broker = self._broker
        if broker is None:
            raise SinkFailed("the sink has not started")
        try:
            self._check.raise_unfit()
        except TopicsUnfitError as error:
            raise SinkFailed(str(error)) from error
        try:
            messages = [self._message(broker, event_batch) for event_batch in event_batches]
        except KafkaWriteError as error:
            raise SinkFailed(str(error)) from error
        except BatchError as error:
            raise SinkFailed(str(error), retry=False) from error
        found = broker.write(messages, self._options.call_s)
        failed = [one for one in found if isinstance(one, str)]
        if failed:
            self.problem = failed[0]
            raise SinkFailed(f"Kafka refused {len(failed)} of {len(messages)} messages: {failed[0]}")
        self._on_written(messages, [one for one in found if not isinstance(one, str)])
        self.problem = ""
        self._encoded.clear()
        self.counts["parcels"] += len(event_batches)
        self.counts["bytes"] += sum(len(message.value) for message in messages)

    def stop(self, deadline_s: float) -> None:
        del deadline_s  # closing a connection does not block
        self._stop.set()
        if self._broker is not None:
            self._broker.close()
        if self._zookeeper is not None:
            self._zookeeper.stop()
            self._zookeeper.close()

    def figures(self) -> Figures:
        altered = self._broker.problem if self._broker is not None else ""
        return {**self.counts, "problems": [text for text in (self.problem, altered) if text]}

    def _on_written(self, messages: Sequence[KafkaMessage], positions: Sequence[Position]) -> None:
        """Called once Kafka has the messages; waits for nothing else here."""

    def _message(self, broker: KafkaWriter, event_batch: EventBatch) -> KafkaMessage:
        data = event_batch.data or (self._encoded.get(event_batch.id) if event_batch.id is not None else None)
        if data is None:
            data = with_identity_and_bytes(event_batch, self._numbers, self._flow, self._clock.now_ms()).data
            if data is None:
                raise BatchError("an event batch without events and without bytes")
            if event_batch.id is not None:
                self._encoded[event_batch.id] = data
        return message_for(broker, self._options.prefix, parse_header(data), data)


OUTSIDE = {"bootstrap": Outside.HOST, "prefix": Outside.HOST}
KAFKA = Component("kafka", KafkaSinkOptions, KafkaSink, outside=OUTSIDE)
