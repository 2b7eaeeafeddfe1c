"""In-memory path from a log to a store, step by step, with every network fault; the test controls the clock."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from artimon.model.ack_state import Position
from artimon.model.batch import BatchId
from artimon.model.batch_codec import verify
from artimon.model.clock import ManualClock
from pipeline.collector.collector import Collector
from pipeline.collector.kafka_writer import KafkaMessage, TopicDescription
from pipeline.delivery.send_planner import PlannedCall, SendPlanner
from pipeline.delivery.tracker import CallOutcome, LaneCall, Tracker
from pipeline.link.answers import decode_answer
from pipeline.link.collector_choice import CollectorEndpoint
from pipeline.wal.state_records import LogPosition

ONE, TWO = CollectorEndpoint("one", 1), CollectorEndpoint("two", 2)
Damage = Callable[[int, list[bytes]], list[bytes]]
"""From the number of the call and its messages to what arrives."""


@dataclass
class Store:
    """Substitute for Kafka: keeps what is written, in order; `refuses` is the reason of a refusal."""

    refuses: str = ""
    messages: list[KafkaMessage] = field(default_factory=list)

    def describe_topic(self, name: str) -> TopicDescription:
        return TopicDescription("cluster", name, uuid.UUID(int=1), dict.fromkeys(range(4), 1), 0.0)

    def write(self, messages: Sequence[KafkaMessage]) -> list[Position | str]:
        if self.refuses:
            return [self.refuses] * len(messages)
        at = len(self.messages)
        self.messages += messages
        return [Position("cluster", "t", m.partition, at + n, 0) for n, m in enumerate(messages)]

    def ids(self) -> list[BatchId]:
        """Identities in the order of their writes, repeats included."""
        return [verify(message.value).id for message in self.messages]


def exchange(collector: Collector, messages: Sequence[bytes]) -> list[Any]:
    """Return the answers of a collector to one call, which is written at once."""
    received = collector.begin(messages)
    accepted = [message for _, message in received.accepted]
    return collector.finish(received, collector.broker.write(accepted) if accepted else [])


@dataclass
class Transit:
    """Delivery decisions of an agent, a collector and a store. `sends` counts how often each batch was sent."""

    tracker: Tracker = field(default_factory=lambda: Tracker(ack_on_sent=True))
    store: Store = field(default_factory=Store)
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_000_000))
    sends: Counter[BatchId] = field(default_factory=Counter)
    calls: int = 0

    def __post_init__(self) -> None:
        self.sending = SendPlanner.for_agent(self.tracker, "agent-1")
        self.collector = Collector(self.store)
        self.log: dict[LogPosition, bytes] = {}
        self.now = 0.0
        self.sending.collectors.update({"one": ONE})

    def accept(self, data: bytes, now_ms: int | None = None) -> None:
        """Add a batch to the log."""
        place = LogPosition(1, len(self.log), len(data))
        self.log[place] = data
        self.sending.add_logged([(verify(data), place)], self.ms if now_ms is None else now_ms)

    @property
    def ms(self) -> int:
        return 1_000_000 + round(self.now * 1000)

    def take(self) -> LaneCall | None:
        """Select the next batches to send."""
        group = self.sending.next_call(self.now, self.ms)
        return group if isinstance(group, LaneCall) else None

    def begin(self, group: LaneCall) -> tuple[PlannedCall, list[bytes]] | None:
        messages = [self.log[item.place] for item in group.items]
        call = self.sending.begin(group, self.now)
        if call is None:
            return None
        self.calls += 1
        self.sends.update(item.id for item in group.items)
        return call, messages

    def answer(self, call: PlannedCall, messages: list[bytes]) -> CallOutcome:
        """Deliver these messages to the collector and its answers to the agent."""
        answers = [decode_answer(raw) for raw in exchange(self.collector, messages)]
        return self.sending.apply_answers(call, answers, self.now)

    def run(
        self, damage: Damage | None = None, lost: Callable[[int], bool] | None = None, seconds: float = 600
    ) -> None:
        """Run until nothing is left. `damage` changes the messages on arrival; the answers of `lost` calls are
        dropped."""
        until = self.now + seconds
        while self.tracker.pending and self.now < until:
            group = self.take()
            begun = self.begin(group) if group is not None else None
            if begun is None:
                self.now += 0.05
                continue
            call, messages = begun
            arrived = damage(self.calls, messages) if damage else messages
            if lost is not None and lost(self.calls):
                exchange(self.collector, arrived)
                self.now += call.reservation.deadline_s
                self.sending.call_unanswered(call, self.now, late=True)
            else:
                self.answer(call, arrived)
        assert not self.tracker.pending, "not everything arrived"
