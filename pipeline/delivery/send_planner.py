"""Decides what an agent sends next and to which collector, and applies the answers. Pure: no I/O, no clock, no threads.

`Sender` drives this with its threads and a lock; the simulation drives it with messages that are lost, late and
repeated.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from artimon.model.ack_state import Position
from artimon.model.batch import NO_LANE, BatchHeader, BatchId
from artimon.model.ranges import LaneId
from pipeline.delivery.backlog_limiter import BacklogLimiter
from pipeline.delivery.delivery_delays import DeliveryDelays
from pipeline.delivery.slow_start import SlowStart
from pipeline.delivery.tracker import CallOutcome, LaneCall, TrackedBatch, Tracker
from pipeline.link.answers import MessageAnswer, granted_credit, is_any_accepted
from pipeline.link.collector_choice import CollectorEndpoint, Collectors
from pipeline.link.collector_link import MAX_CALL_BYTES, MAX_CALL_MESSAGES, CallReservation, CollectorLink
from pipeline.link.credits import MIN_CREDIT_BYTES
from pipeline.wal.recovery import Recovery
from pipeline.wal.segment_format import RecordType
from pipeline.wal.state_records import LogPosition, encode_acked, encode_forgotten, encode_sent

MAX_IDLE_S = 1.0
MIN_WAIT_S = 0.02

LogNote = tuple[RecordType, Iterator[bytes]]
"""Records of one type to append to the log."""


class PlannedCall(NamedTuple):
    """Group on its way to a collector."""

    group: LaneCall
    reservation: CallReservation


@dataclass(slots=True)
class SendPlanner:
    """All decisions between the log and the collectors. Not thread-safe: its owner locks.

    Times (`now`) are seconds of a monotonic clock."""

    tracker: Tracker
    link: CollectorLink
    slow_start: SlowStart
    probe: LaneCall | None = None
    """Group of the call that probes whether Kafka has room again."""
    damaged_count: int = 0
    """Accepted batches that can no longer be read from the disk."""
    paused: bool = False
    """True while an operator has paused the agent: nothing is sent."""
    delays: DeliveryDelays = field(default_factory=DeliveryDelays)
    limiter: BacklogLimiter = field(default_factory=BacklogLimiter)
    _reservations: dict[LaneId, tuple[LaneCall, CallReservation]] = field(default_factory=dict)
    """Groups in flight, one a lane."""
    _started_at: float | None = None

    @classmethod
    def for_agent(
        cls, tracker: Tracker, agent: str, chance: random.Random | None = None, pacing: BacklogLimiter | None = None
    ) -> SendPlanner:
        """Return the state of an agent that knows no collector yet. `chance`: jitter, which spreads the pauses of
        agents."""
        probing = SlowStart(_random=chance or random.Random())
        return cls(tracker, CollectorLink(Collectors(agent)), probing, limiter=pacing or BacklogLimiter())

    @property
    def collectors(self) -> Collectors:
        """Collectors of the link."""
        return self.link.collectors

    def add_logged(self, placed: Iterable[tuple[BatchHeader, LogPosition]], now_ms: int) -> None:
        """Add batches that are durable now and may be sent."""
        for header, place in placed:
            self.tracker.add(header, place, now_ms)
            self.limiter.count_new(place.length)

    def next_call(self, now: float, now_ms: int) -> LaneCall | float:
        """Return the next group to send, or the seconds to wait for one. `now_ms`: epoch milliseconds, which separate
        backlog from new data."""
        self._started_at = now if self._started_at is None else self._started_at
        if self.paused or not self.tracker.unsent_count:
            return MAX_IDLE_S
        self.link.find_slow(now)
        window = self.slow_start.window_now(now, self.probe is not None)
        old_ms = now_ms - self.limiter.period_ms
        backlog = self.limiter.available(now, self.tracker.waiting_s(now, self._started_at))
        endpoint = self.collectors.pick(now)
        if endpoint is None:  # a collector that appears wakes the thread
            return min(MAX_IDLE_S, max(MIN_WAIT_S, self.collectors.next_try() - now))
        room = self.link.credits.room(endpoint)
        if room <= 0:
            return MAX_IDLE_S  # an answer returns credit, and wakes the thread
        count = MAX_CALL_MESSAGES if window is None else window
        group = self.tracker.take_call(now, count, min(room, MAX_CALL_BYTES), backlog, old_ms)
        if group is not None:
            self._reserve(group, endpoint, now, window is not None)
            return group
        if room < MIN_CREDIT_BYTES:
            return MAX_IDLE_S  # the first message may be larger than the room
        due = self.tracker.next_due(samples=window != 0, old_ms=0 if backlog > 0 else old_ms)
        if window == 0 and self.probe is None:
            due = self.slow_start.not_before if due is None else min(due, self.slow_start.not_before)
        if backlog <= 0:
            due = min(now + self.limiter.until_token_s(), now + MAX_IDLE_S if due is None else due)
        return MAX_IDLE_S if due is None else min(MAX_IDLE_S, max(MIN_WAIT_S, due - now))

    def begin(self, group: LaneCall, now: float) -> PlannedCall | None:
        """Begin the call for a group; None if no collector may be tried now, so the group waits."""
        endpoint, (_, flight) = self.collectors.pick(now), self._reservations[group.lane]
        if endpoint is None:
            self.call_failed(group, now)
            return None
        if not self.link.begin(flight, endpoint, now):
            self._end_call(group, now)
            self.tracker.put_back(group)
            return None
        return PlannedCall(group, flight)

    def drop_unreadable(self, group: LaneCall, items: Sequence[TrackedBatch], now: float) -> list[TrackedBatch]:
        """Give up items of a group that the log cannot read and return the rest to the queue. Returns the lost items,
        without those shed meanwhile."""
        self._end_call(group, now)
        lost = self.tracker.drop_unreadable(group, items)
        self.damaged_count += len(lost)
        return lost

    def apply_answers(self, call: PlannedCall, answers: Sequence[MessageAnswer], now: float) -> CallOutcome:
        """Apply the answers of a collector, one for each item."""
        self.link.end_answered(call.reservation, granted_credit(answers), now, is_any_accepted(answers))
        self._end_call(call.group, now, answers)
        return self.tracker.apply_answers(call.group, answers, now)

    def call_unanswered(self, call: PlannedCall, now: float, late: bool, reached: bool = True) -> None:
        """Apply a call without an answer, see Link.silent."""
        self.link.end_unanswered(call.reservation, now, late, reached)
        self.call_failed(call.group, now, self.collectors.has_other(call.reservation.endpoint, now))

    def call_failed(self, group: LaneCall, now: float, elsewhere: bool = False) -> None:
        """Return a group that may or may not be in Kafka to the queue, at once if `elsewhere` (another collector)."""
        self._end_call(group, now)
        self.tracker.call_failed(group, now, elsewhere)

    def record_acks(self, done: Iterable[TrackedBatch], now_ms: int) -> None:
        """Record the ack times of batches that may be forgotten."""
        self.delays.record_acks(((i.source, i.poll_ms, i.logged_ms) for i in done if not i.is_series), now_ms)

    def _reserve(self, group: LaneCall, endpoint: CollectorEndpoint, now: float, probe: bool) -> None:
        """Note that a group was handed out, for this collector."""
        if probe and group.lane.lane != NO_LANE:
            self.probe = group
        if group.is_backlog:
            self.limiter.consume(group.size)
        self._reservations[group.lane] = group, self.link.reserve(endpoint, group.size, now)

    def _end_call(self, group: LaneCall, now: float, answers: Sequence[MessageAnswer] = ()) -> None:
        """Remove a group from those in flight, and learn from its answers whether Kafka has room. Announcements are
        never refused for lack of room."""
        flying, flight = self._reservations.get(group.lane, (None, None))
        if flight is not None and flying is group:
            del self._reservations[group.lane]
            self.link.cancel(flight)
        probe = group is self.probe
        if probe:
            self.probe = None
        full = next((answer.reason for answer in answers if answer.is_buffer_full), "")
        if full:
            self.slow_start.record_refusal(full, now, probe)
        elif probe and answers and all(answer.position is not None for answer in answers):
            self.slow_start.record_accepted()


def notes_of_sent(items: Iterable[TrackedBatch]) -> Iterator[LogNote]:
    """Yield the log records for batches that Kafka has."""
    by_agent: dict[str, list[tuple[BatchId, Position]]] = {}
    for item in items:
        if item.position is not None:
            by_agent.setdefault(item.id.agent, []).append((item.id, item.position))
    for agent, sent in by_agent.items():
        yield RecordType.SENT, encode_sent(agent, sent)


def notes_of_released(done: Sequence[TrackedBatch]) -> Iterator[LogNote]:
    """Yield the log records for batches that may be forgotten."""
    yield RecordType.ACKED, encode_acked(item.id for item in done if not item.is_series)
    yield RecordType.FORGOTTEN, encode_forgotten([item.place for item in done if item.is_series])


def restore_tracker(
    tracker: Tracker, found: Recovery, now_ms: int, ack_on_sent: bool
) -> list[tuple[BatchId, LogPosition]]:
    """Restore the tracker from a log. Returns the sent batches that `ack_on_sent` (level `kafka`) acks at once."""
    acked: list[tuple[BatchId, LogPosition]] = []
    for header, place in (*found.batches, *found.series):
        position = found.sent.get(header.id)
        logged_ms = min(now_ms, header.poll_ms)
        if position is None:
            tracker.add(header, place, logged_ms)
        elif ack_on_sent and not position.is_future:
            acked.append((header.id, place))
        else:
            tracker.restore_sent(header, place, position, logged_ms)
    return acked
