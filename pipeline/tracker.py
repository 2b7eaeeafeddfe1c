"""What became of each batch in the log: logged -> sending -> sent -> acked, lane by lane. Pure: no I/O, no clock.

A lane has at most one call on its way, so its batches reach Kafka in order, and a lane that cannot go on holds up no
other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from artimon.model.batch import NO_LANE, BatchHeader, BatchId
from artimon.model.ranges import LaneId
from pipeline.acks import Position, Sent, Verdict
from pipeline.records import Place
from pipeline.timer import backoff

GROUP_BYTES = 4 * 1024 * 1024 - 64 * 1024
GROUP_COUNT = 2_000
FULL = "buffer full:"
"""What a collector's reason begins with while Kafka's quota is used up."""


class State(Enum):
    """Where a batch stands. An acked batch is forgotten, so it has no state."""

    LOGGED = "logged"
    SENDING = "sending"
    SENT = "sent"


class Answer(NamedTuple):
    """What the collector said of one message: a position, or why not. `ours` says that the message itself is at fault,
    so that it must not hold up those behind it."""

    position: Position | None
    reason: str = ""
    ours: bool = False

    @property
    def full(self) -> bool:
        """Kafka's quota is used up: the same would be said of every other batch."""
        return self.reason.startswith(FULL)


@dataclass(slots=True, eq=False)
class Item:
    """One batch or announcement that must still be kept."""

    id: BatchId
    place: Place
    rows: int
    logged_ms: int
    state: State = State.LOGGED
    position: Position | None = None
    since: int | None = None
    """Version of the ack state when it was first looked at with this position."""
    not_before: float = 0.0
    tries: int = 0

    @property
    def is_series(self) -> bool:
        return self.id.lane == NO_LANE


@dataclass(slots=True)
class Lane:
    """Invariant: `ready` is in log order but for what came back; at most one group of it is on its way."""

    ready: deque[Item] = field(default_factory=deque)
    held: list[Item] = field(default_factory=list)
    """Refused one by one for what they are; they come back when their time has come."""
    busy: bool = False
    flying: Item | None = None
    """The oldest of the group that is on its way."""
    failures: int = 0
    not_before: float = 0.0


@dataclass(frozen=True, slots=True)
class Group:
    """Items of one lane that go in one call."""

    lane: LaneId
    items: tuple[Item, ...]


class Outcome(NamedTuple):
    """What a call changed: items that have a position now, and those that need not be kept (announcements that Kafka
    has; at level `kafka` batches as well)."""

    sent: list[Item]
    done: list[Item]


class Tracker:
    """Every item of one log that is not acked. Not thread-safe: its owner locks."""

    def __init__(self, ack_on_sent: bool = False) -> None:
        """`ack_on_sent`: level `kafka`."""
        self._ack_on_sent = ack_on_sent
        self._lanes: dict[LaneId, Lane] = {}
        self._turn: deque[LaneId] = deque()
        self._sent: dict[BatchId, Item] = {}
        self.pending = 0
        """Items not acked, announcements included."""
        self.sent_count = self.acked_count = self.resent_count = 0
        self.nacks: dict[str, int] = {}

    def add(self, header: BatchHeader, place: Place, now_ms: int) -> Item:
        """A batch is in the log."""
        item = Item(header.id, place, header.rows, now_ms)
        self._lane(item.id.lane_id).ready.append(item)
        self.pending += 1
        return item

    def restore_sent(self, header: BatchHeader, place: Place, position: Position, now_ms: int) -> None:
        """A batch of which the log knows that Kafka held it."""
        item = Item(header.id, place, header.rows, now_ms, State.SENT, position)
        self._sent[item.id] = item
        self.pending += 1

    def take(self, now: float, samples: int = GROUP_COUNT) -> Group | None:
        """The next group that may go, its lanes in turn, with at most `samples` batches of samples (0: announcements
        only); None if nothing may go now."""
        for _ in range(len(self._turn)):
            lane_id = self._turn[0]
            self._turn.rotate(-1)
            lane = self._lanes[lane_id]
            most = GROUP_COUNT if lane_id.lane == NO_LANE else samples
            if lane.busy or lane.not_before > now or not most:
                continue
            self._bring_back(lane, now)
            if lane.ready:
                lane.busy, lane.flying = True, lane.ready[0]
                return Group(lane_id, tuple(self._fill(lane, most)))
        return None

    def next_due(self, samples: bool = True) -> float | None:
        """When something that waits now may go: a time, None if nothing waits for one. Without `samples`: of the
        announcements."""
        lanes = [lane for id_, lane in self._lanes.items() if not lane.busy and (samples or id_.lane == NO_LANE)]
        times = [lane.not_before for lane in lanes if lane.ready]
        times += [item.not_before for lane in lanes for item in lane.held]
        return min(times, default=None)

    def answered(self, group: Group, answers: Sequence[Answer], now: float) -> Outcome:
        """The collector answered, one answer an item."""
        lane = self._lanes[group.lane]
        lane.busy, lane.flying = False, None
        outcome = Outcome([], [])
        back: list[Item] = []
        failed = False
        for item, answer in zip(group.items, answers, strict=True):
            if answer.position is not None:
                self._place(item, answer.position, outcome)
                continue
            self._count_nack(answer.reason)
            item.state = State.LOGGED
            if answer.ours:
                item.not_before = now + backoff(item.tries, 1.0, 300.0)
                lane.held.append(item)
            else:
                back.append(item)
                failed = failed or not answer.full  # how long to leave a full Kafka alone is for the sender to say
        lane.ready.extendleft(reversed(back))
        self._pause(lane, failed, now)
        self._forget_if_idle(group.lane)
        return outcome

    def failed(self, group: Group, now: float) -> None:
        """No answer: the group may or may not be in Kafka, and goes again."""
        lane = self._lanes[group.lane]
        lane.busy, lane.flying = False, None
        for item in group.items:
            item.state = State.LOGGED
        lane.ready.extendleft(reversed(group.items))
        self._pause(lane, True, now)

    def lost(self, group: Group, items: Iterable[Item]) -> None:
        """The log itself can no longer read these: they are given up, and the rest of the group goes again."""
        gone = set(map(id, items))
        lane = self._lanes[group.lane]
        lane.busy, lane.flying = False, None
        for item in reversed(group.items):
            if id(item) in gone:
                self.pending -= 1
            else:
                item.state = State.LOGGED
                lane.ready.appendleft(item)

    def sent(self) -> list[Sent[BatchId]]:
        """Batches that have an offset and wait for their ack."""
        return [Sent(i.id, i.position, i.since) for i in self._sent.values() if i.position is not None]

    def judged(self, verdict: Verdict[BatchId]) -> list[Item]:
        """Apply what followed from the published states; returns what need not be kept any longer."""
        for key, version in verdict.looked:
            if key in self._sent:
                self._sent[key].since = version
        for key, _ in verdict.resend:
            item = self._sent.pop(key, None)
            if item is not None:
                item.state, item.position, item.since = State.LOGGED, None, None
                self._lane(item.id.lane_id).ready.append(item)
                self.resent_count += 1
        done = [item for key in verdict.acked if (item := self._sent.pop(key, None)) is not None]
        self.pending -= len(done)
        self.acked_count += len(done)
        return done

    def oldest_ms(self) -> int | None:
        """When the oldest batch that is not acked was logged."""
        times = (item.logged_ms for items in (self._sent.values(), self._unsent()) for item in items)
        return min(times, default=None)

    def oldest_unsent_ms(self) -> int | None:
        """When the oldest batch that Kafka does not have was logged."""
        return min((item.logged_ms for item in self._unsent()), default=None)

    @property
    def unsent(self) -> int:
        """Items that Kafka does not have, as far as we know."""
        return self.pending - len(self._sent)

    def lanes(self) -> Iterator[tuple[LaneId, Lane]]:
        return iter(self._lanes.items())

    def _unsent(self) -> Iterator[Item]:
        """Of the items that are not sent the oldest of each lane: enough for ages."""
        for lane in self._lanes.values():
            if lane.flying is not None:
                yield lane.flying
            if lane.ready:
                yield lane.ready[0]
            yield from lane.held

    def _lane(self, lane_id: LaneId) -> Lane:
        lane = self._lanes.get(lane_id)
        if lane is None:
            lane = self._lanes[lane_id] = Lane()
            self._turn.append(lane_id)
        return lane

    def _fill(self, lane: Lane, most: int) -> Iterator[Item]:
        size = count = 0
        while lane.ready and count < most:
            item = lane.ready[0]
            size += item.place.length
            if count and size > GROUP_BYTES:
                return
            lane.ready.popleft()
            item.state = State.SENDING
            item.tries += 1
            count += 1
            yield item

    def _bring_back(self, lane: Lane, now: float) -> None:
        due = [item for item in lane.held if item.not_before <= now]
        if due:
            lane.held = [item for item in lane.held if item.not_before > now]
            lane.ready.extendleft(sorted(due, key=lambda item: item.place, reverse=True))

    def _place(self, item: Item, position: Position, outcome: Outcome) -> None:
        item.state, item.position, item.since = State.SENT, position, None
        self.sent_count += 1
        if item.is_series or self._ack_on_sent:
            self.pending -= 1
            self.acked_count += not item.is_series
            outcome.done.append(item)
        else:
            self._sent[item.id] = item
            outcome.sent.append(item)

    def _pause(self, lane: Lane, failed: bool, now: float) -> None:
        lane.failures = lane.failures + 1 if failed else 0
        lane.not_before = now + backoff(lane.failures) if failed else 0.0

    def _count_nack(self, reason: str) -> None:
        name = reason.split(":", 1)[0][:40]
        self.nacks[name] = self.nacks.get(name, 0) + 1

    def _forget_if_idle(self, lane_id: LaneId) -> None:
        """Lanes of former epochs go when they are empty, so that restarts do not pile up lanes."""
        lane = self._lanes[lane_id]
        if not lane.ready and not lane.held and not lane.busy:
            del self._lanes[lane_id]
            self._turn.remove(lane_id)
