"""State of each batch in the log: logged -> sending -> sent -> acked, lane by lane. Pure: no I/O, no clock.

A lane has at most one call in flight, so its batches reach Kafka in order, and a blocked lane delays no other.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from artimon.model.ack_state import AckDecision, Position, SentBatch
from artimon.model.batch import NO_LANE, BatchHeader, BatchId
from artimon.model.ranges import LaneId
from pipeline.delivery.ordered_queue import OrderedQueue
from pipeline.link.answers import MessageAnswer
from pipeline.link.collector_link import MAX_CALL_BYTES, MAX_CALL_MESSAGES
from pipeline.link.timer import backoff_s
from pipeline.wal.batch_states import BatchEvent, BatchState, transition
from pipeline.wal.state_records import LogPosition

QUARANTINE_AFTER = 40
"""Quarantine a batch after this many permanent refusals (about three hours of retries)."""
_MAX_REASONS = 50


@dataclass(slots=True, eq=False)
class TrackedBatch:
    """Batch or announcement that must still be kept."""

    id: BatchId
    place: LogPosition
    rows: int
    logged_ms: int
    source: str = ""
    poll_ms: int = 0
    state: BatchState = BatchState.LOGGED
    position: Position | None = None
    ack_wait_since: int | None = None
    """Version of the ack state when it was first compared with this position."""
    not_before: float = 0.0
    attempts: int = 0
    sent_at: float | None = None
    """Time at which the answer with the position came; None: before this process began."""
    is_fresh: bool = False
    """True if it was new when it was last taken."""

    def __lt__(self, other: TrackedBatch) -> bool:
        """Compare by log order."""
        return self.place < other.place

    @property
    def is_series(self) -> bool:
        return self.id.lane == NO_LANE


@dataclass(slots=True)
class Lane:
    """Queues of one lane. Invariant: at most one group is in flight, and its items are out of the queue they came from.
    Items of `live` come after those of `ready` in the log."""

    backlog: OrderedQueue[TrackedBatch] = field(default_factory=OrderedQueue)
    fresh: OrderedQueue[TrackedBatch] = field(default_factory=OrderedQueue)
    """New data that overtakes the backlog in `ready`; data not sent in time moves there."""
    refused: list[TrackedBatch] = field(default_factory=list)
    """Batches that were refused for their own content; they return to `ready` after their back-off."""
    busy: bool = False
    failures: int = 0
    not_before: float = 0.0

    @property
    def is_idle(self) -> bool:
        """True if nothing waits or is in flight."""
        return not (self.backlog or self.fresh or self.refused or self.busy)

    @property
    def in_flight(self) -> Iterator[TrackedBatch]:
        """Items in flight."""
        return chain(self.backlog.taken, self.fresh.taken)

    def queue_of(self, item: TrackedBatch) -> OrderedQueue[TrackedBatch]:
        """Return the queue that an item was taken from."""
        return self.fresh if item.is_fresh else self.backlog


@dataclass(frozen=True, slots=True)
class LaneCall:
    """Items of one lane that go in one call."""

    lane: LaneId
    items: tuple[TrackedBatch, ...]
    is_backlog: bool = False
    """True for batches of the backlog, False for new data."""

    @property
    def size(self) -> int:
        """Bytes of its messages."""
        return sum(item.place.length for item in self.items)


class CallOutcome(NamedTuple):
    """Result of a call: items with a position now, and items that need not be kept any more (announcements that Kafka
    has; at level `kafka` batches as well)."""

    sent: list[TrackedBatch]
    done: list[TrackedBatch]
    quarantined: Sequence[tuple[TrackedBatch, str]] = ()
    """Items to quarantine after too many refusals, with the last reason."""


class Tracker:
    """Every item of one log that is not acked. Not thread-safe: its owner locks."""

    def __init__(self, ack_on_sent: bool = False, live_first: bool = False) -> None:
        """`ack_on_sent`: level `kafka`. `live_first`: new data overtakes what has waited for more than a minute."""
        self._ack_on_sent, self._live_first = ack_on_sent, live_first
        self._lanes: dict[LaneId, Lane] = {}
        self._turn: deque[LaneId] = deque()
        self._sent: dict[BatchId, TrackedBatch] = {}
        self.pending = 0
        """Items not acked, announcements included."""
        self.sent_count = self.acked_count = self.resent_count = 0
        self.nacks: dict[str, int] = {}

    def set_ack_on_sent(self, on: bool) -> list[TrackedBatch]:
        """Set level `kafka` or `hdfs`. Returns the items that this acks at once and that need not be kept any more."""
        self._ack_on_sent = on
        done = [i for i in self._sent.values() if i.position and not i.position.is_future] if on else []
        for item in done:
            transition(item, BatchState.SENT, BatchEvent.ACK)
            del self._sent[item.id]
        self.pending -= len(done)
        self.acked_count += len(done)
        return done

    def add(self, header: BatchHeader, place: LogPosition, now_ms: int) -> TrackedBatch:
        item = TrackedBatch(header.id, place, header.rows, now_ms, header.source, header.poll_ms)
        lane = self._lane(item.id.lane_id)
        (lane.fresh if self._live_first else lane.backlog).add(item)
        self.pending += 1
        return item

    def restore_sent(self, header: BatchHeader, place: LogPosition, position: Position, now_ms: int) -> None:
        """Add a batch of which the log says that Kafka holds it."""
        item = TrackedBatch(
            header.id, place, header.rows, now_ms, header.source, header.poll_ms, BatchState.SENT, position
        )
        self._sent[item.id] = item
        self.pending += 1

    def take_call(
        self,
        now: float,
        samples: int = MAX_CALL_MESSAGES,
        most: int = MAX_CALL_BYTES,
        backlog: int = MAX_CALL_BYTES,
        old_ms: int = 0,
    ) -> LaneCall | None:
        """Take the next group, the lanes in turn, with at most `samples` batches of samples (0: announcements only) and
        `most` bytes; None if nothing may go now. Batches logged before `old_ms` are backlog, of which about `backlog`
        bytes may go. With `live_first` new data goes before it."""
        for live in (True, False) if self._live_first else (False,):
            for _ in range(len(self._turn)):
                lane_id = self._turn[0]
                self._turn.rotate(-1)
                lane = self._lanes[lane_id]
                count = MAX_CALL_MESSAGES if lane_id.lane == NO_LANE else samples
                if lane.busy or lane.not_before > now or not count:
                    continue
                self._retry_refused(lane, now)
                while lane.fresh and lane.fresh.peek().logged_ms < old_ms:
                    lane.backlog.add(lane.fresh.pop())
                group = self._make_call(
                    lane_id, lane, count, most, lane.fresh if live else lane.backlog, backlog, old_ms
                )
                if group is not None:
                    return group
        return None

    def put_back(self, group: LaneCall) -> None:
        """Return a group that was not sent, without counting a try."""
        lane = self._lanes[group.lane]
        lane.busy = False
        for item in group.items:
            transition(item, BatchState.SENDING, BatchEvent.BACK)
            item.attempts -= 1
        self._return(lane, group.items)

    def next_due(self, samples: bool = True, old_ms: int = 0) -> float | None:
        """Return the time at which a waiting item may go; None if none waits for a time. Without `samples`: only
        announcements. Batches logged before `old_ms` are left out: they wait for the backlog limit."""
        lanes = [lane for id_, lane in self._lanes.items() if not lane.busy and (samples or id_.lane == NO_LANE)]
        due = [lane for lane in lanes if lane.fresh or (lane.backlog and lane.backlog.peek().logged_ms >= old_ms)]
        times = [lane.not_before for lane in due]
        times += [item.not_before for lane in lanes for item in lane.refused]
        return min(times, default=None)

    def apply_answers(self, group: LaneCall, answers: Sequence[MessageAnswer], now: float) -> CallOutcome:
        """Apply the answers of a collector, one for each item."""
        lane = self._lanes[group.lane]
        lane.busy = False
        poison: list[tuple[TrackedBatch, str]] = []
        outcome = CallOutcome([], [], poison)
        back: list[TrackedBatch] = []
        failed = False
        for item, answer in zip(group.items, answers, strict=True):
            if answer.position is not None:
                self._apply_position(item, answer.position, outcome, now)
                continue
            self._count_nack(answer.reason)
            if answer.is_permanent and item.attempts >= QUARANTINE_AFTER and not item.is_series:
                transition(item, BatchState.SENDING, BatchEvent.ASIDE)
                if self._remove(item):
                    self.pending -= 1
                    poison.append((item, answer.reason))
                continue
            transition(item, BatchState.SENDING, BatchEvent.BACK)
            if answer.is_permanent:
                item.not_before = now + backoff_s(item.attempts, 1.0, 300.0)
                if self._remove(item):
                    lane.refused.append(item)
            else:
                back.append(item)
                failed = failed or not answer.is_buffer_full  # the sender paces a full Kafka, not the lane
        self._return(lane, back)
        self._back_off(lane, failed, now)
        self._forget_if_idle(group.lane)
        return outcome

    def call_failed(self, group: LaneCall, now: float, elsewhere: bool = False) -> None:
        """Return a group without an answer to its lane: it may or may not be in Kafka. `elsewhere`: retry at once, with
        another collector; a lane that pauses as long as a dead collector would try that one for ever."""
        lane = self._lanes[group.lane]
        lane.busy = False
        for item in group.items:
            transition(item, BatchState.SENDING, BatchEvent.BACK)
        self._return(lane, group.items)
        if elsewhere:
            lane.not_before = now + backoff_s(1)
        else:
            self._back_off(lane, True, now)

    def drop_unreadable(self, group: LaneCall, items: Iterable[TrackedBatch]) -> list[TrackedBatch]:
        """Give up items that the log cannot read and return the rest of the group to its lane. Returns the lost items,
        without those shed meanwhile."""
        gone = set(map(id, items))
        lane = self._lanes[group.lane]
        lane.busy = False
        rest = [item for item in group.items if id(item) not in gone]
        lost = [item for item in group.items if id(item) in gone and self._remove(item)]
        self.pending -= len(lost)
        for item in group.items:
            transition(item, BatchState.SENDING, BatchEvent.ASIDE if id(item) in gone else BatchEvent.BACK)
        self._return(lane, rest)
        return lost

    def unacked(self) -> list[SentBatch[BatchId]]:
        """Return the batches that have an offset and wait for their ack."""
        return [SentBatch(i.id, i.position, i.ack_wait_since) for i in self._sent.values() if i.position is not None]

    def apply_verdict(self, verdict: AckDecision[BatchId]) -> list[TrackedBatch]:
        """Apply the verdict on the published states; return the items that need not be kept any more."""
        for key, version in verdict.checked:
            if key in self._sent:
                self._sent[key].ack_wait_since = version
        for key, _ in verdict.resend:
            item = self._sent.pop(key, None)
            if item is not None and transition(item, BatchState.SENT, BatchEvent.RETRY):
                item.position = item.ack_wait_since = None
                self._lane(item.id.lane_id).backlog.add(item)
                self.resent_count += 1
        done = [item for key in verdict.acked if (item := self._sent.pop(key, None)) is not None]
        for item in done:
            transition(item, BatchState.SENT, BatchEvent.ACK)
        self.pending -= len(done)
        self.acked_count += len(done)
        return done

    def stop_sending(self, places: Iterable[LogPosition]) -> set[LogPosition]:
        """Stop sending these batches: they are deleted. Returns the places of those that Kafka has confirmed."""
        gone = set(places)
        sent = [item for item in self._sent.values() if item.place in gone]
        for item in sent:
            del self._sent[item.id]
        count = len(sent)
        for lane in self._lanes.values():
            for line in (lane.backlog, lane.fresh):
                count += len(line.drop(lambda item: item.place in gone))
            kept = [item for item in lane.refused if item.place not in gone]
            count, lane.refused = count + len(lane.refused) - len(kept), kept
        self.pending -= count
        return {item.place for item in sent}

    def oldest_ms(self) -> int | None:
        """Log time of the oldest batch that is not acked, epoch ms."""
        times = (item.logged_ms for items in (self._sent.values(), self._unsent()) for item in items)
        return min(times, default=None)

    def waiting_s(self, now: float, began: float) -> float:
        """Return the seconds for which the batch sent first has waited for its ack. `began`: start of this process."""
        first = next(iter(self._sent.values()), None)
        if first is None:
            return 0.0
        return now - (began if first.sent_at is None else first.sent_at)

    def oldest_unsent_ms(self) -> int | None:
        """Log time of the oldest batch that Kafka does not have, epoch ms."""
        return min((item.logged_ms for item in self._unsent()), default=None)

    @property
    def unsent_count(self) -> int:
        """Number of items that are not known to be in Kafka."""
        return self.pending - len(self._sent)

    def lanes(self) -> Iterator[tuple[LaneId, Lane]]:
        return iter(self._lanes.items())

    # --- several sites, a tracker each: pipeline/sites/site_router.py

    def is_idle(self, lane_id: LaneId) -> bool:
        """True if nothing of a lane waits or is in flight."""
        lane = self._lanes.get(lane_id)
        return lane is None or lane.is_idle

    def waiting_above(self, lane_id: LaneId, number: int) -> list[TrackedBatch]:
        """Return the items of a lane that wait, outside of calls, with a greater number."""
        lane = self._lanes.get(lane_id)
        return [] if lane is None else [i for i in (*lane.backlog, *lane.refused) if i.id.sequence > number]

    def first_above(self, lane_id: LaneId, number: int) -> BatchId | None:
        """Return the identity of the first item of `above`."""
        lane = self._lanes.get(lane_id)
        if lane is None:
            return None
        if lane.backlog and (first := lane.backlog.peek()).id.sequence > number:
            return first.id
        return min((item.id for item in chain(lane.backlog, lane.refused) if item.id.sequence > number), default=None)

    def reclaim(self, lane_id: LaneId, number: int) -> list[TrackedBatch]:
        """Remove the items of `above`: another tracker takes them over."""
        items = self.waiting_above(lane_id, number)
        if items:
            lane = self._lanes[lane_id]
            waiting = set(map(id, items))  # items in flight stay in their call
            lane.backlog.drop(lambda item: id(item) in waiting)
            lane.refused = [item for item in lane.refused if item.id.sequence <= number]
            self.pending -= len(items)
            self._forget_if_idle(lane_id)
        return items

    def adopt(self, lane_id: LaneId, items: Iterable[TrackedBatch]) -> None:
        """Take over items of another tracker, in log order."""
        for item in items:
            self._lane(lane_id).backlog.add(item)
            self.pending += 1

    def requeue_sent(self, lane_id: LaneId) -> int:
        """Let sent batches without an ack be sent again; return their number."""
        items = [item for item in self._sent.values() if item.id.lane_id == lane_id]
        for item in items:
            del self._sent[item.id]
            transition(item, BatchState.SENT, BatchEvent.RETRY)
            item.position = item.ack_wait_since = None
            self._lane(lane_id).backlog.add(item)
        return len(items)

    def outstanding(self, lane_id: LaneId) -> int:
        """Count the batches of a lane that are not acked, without those in flight."""
        return len(self.waiting_above(lane_id, -1)) + sum(
            1 for item in self._sent.values() if item.id.lane_id == lane_id
        )

    def count_bound(self, top: Callable[[LaneId], int]) -> dict[LaneId, int]:
        """Count per lane the batches that are sent and not acked, or wait with a number up to `top` of their lane."""
        found = Counter(item.id.lane_id for item in self._sent.values())
        for lane_id, lane in self._lanes.items():
            if lane_id.lane != NO_LANE:
                most = top(lane_id)
                found[lane_id] += sum(1 for item in chain(lane.backlog, lane.refused) if item.id.sequence <= most)
        return {lane: count for lane, count in found.items() if count}

    def _unsent(self) -> Iterator[TrackedBatch]:
        """Yield the oldest unsent items of each lane, enough to find the oldest of all."""
        for lane in self._lanes.values():
            yield from lane.in_flight
            yield from (line.peek() for line in (lane.backlog, lane.fresh) if line)
            yield from lane.refused

    def _lane(self, lane_id: LaneId) -> Lane:
        lane = self._lanes.get(lane_id)
        if lane is None:
            lane = self._lanes[lane_id] = Lane()
            self._turn.append(lane_id)
        return lane

    def _make_call(
        self,
        id_: LaneId,
        lane: Lane,
        count: int,
        most: int,
        line: OrderedQueue[TrackedBatch],
        backlog: int,
        old_ms: int,
    ) -> LaneCall | None:
        if not line:
            return None
        first = line.peek()
        old = line is lane.backlog and first.logged_ms < old_ms
        if first.place.length > most < MAX_CALL_BYTES or (old and backlog <= 0):
            return None
        lane.busy = True
        most = max(min(most, MAX_CALL_BYTES, backlog if old else most), first.place.length)
        items = tuple(self._fill(line, count, most))
        for item in items:
            item.is_fresh = line is lane.fresh
        return LaneCall(id_, items, old)

    def _fill(self, line: OrderedQueue[TrackedBatch], count: int, most: int) -> Iterator[TrackedBatch]:
        size = taken = 0
        while line and taken < count:
            size += line.peek().place.length
            if size > most:
                return
            item = line.take()
            transition(item, BatchState.LOGGED, BatchEvent.CLAIM)
            item.attempts += 1
            taken += 1
            yield item

    def _return(self, lane: Lane, items: Iterable[TrackedBatch]) -> None:
        """Return items to the queues they were taken from; those given up meanwhile are ignored."""
        for item in items:
            lane.queue_of(item).put_back((item,))

    def _remove(self, item: TrackedBatch) -> bool:
        """Remove an item from its queue; False if it was given up meanwhile."""
        return bool(self._lanes[item.id.lane_id].queue_of(item).remove_taken((item,)))

    def _retry_refused(self, lane: Lane, now: float) -> None:
        due = [item for item in lane.refused if item.not_before <= now]
        if due:
            lane.refused = [item for item in lane.refused if item.not_before > now]
            for item in due:
                lane.backlog.add(item)

    def _apply_position(self, item: TrackedBatch, position: Position, outcome: CallOutcome, now: float) -> None:
        transition(item, BatchState.SENDING, BatchEvent.PLACED)
        item.position, item.ack_wait_since, item.sent_at = position, None, now
        self.sent_count += 1
        if not self._remove(item):
            return
        if item.is_series or (self._ack_on_sent and not position.is_future):
            self.pending -= 1
            self.acked_count += not item.is_series
            transition(item, BatchState.SENT, BatchEvent.ACK)
            outcome.done.append(item)
        else:
            self._sent[item.id] = item
            outcome.sent.append(item)

    def _back_off(self, lane: Lane, failed: bool, now: float) -> None:
        lane.failures = lane.failures + 1 if failed else 0
        lane.not_before = now + backoff_s(lane.failures) if failed else 0.0

    def _count_nack(self, reason: str) -> None:
        name = reason.split(":", 1)[0][:40]
        if name not in self.nacks and len(self.nacks) >= _MAX_REASONS:
            name = "other"  # the reasons of collectors must not grow the dictionary
        self.nacks[name] = self.nacks.get(name, 0) + 1

    def _forget_if_idle(self, lane_id: LaneId) -> None:
        """Forget lanes of former epochs when they are empty, so that restarts do not pile up lanes."""
        if self._lanes[lane_id].is_idle:
            del self._lanes[lane_id]
            self._turn.remove(lane_id)
