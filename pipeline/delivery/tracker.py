"""What became of each batch in the log: logged -> sending -> sent -> acked, lane by lane. Pure: no I/O, no clock.

A lane has at most one call on its way, so its batches reach Kafka in order, and a lane that cannot go on holds up no
other.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from artimon.model.acks import Position, Sent, Verdict
from artimon.model.batch import NO_LANE, BatchHeader, BatchId
from artimon.model.ranges import LaneId
from pipeline.delivery.ordered_queue import OrderedQueue
from pipeline.link.answers import Answer
from pipeline.link.link import CALL_BYTES, CALL_COUNT
from pipeline.link.timer import backoff
from pipeline.wal.records import Place
from pipeline.wal.states import Event, State, move

POISON_TRIES = 40
"""So many refusals of a batch for what it is (some three hours), and it is set aside for a person to look at."""
_MAX_REASONS = 50


@dataclass(slots=True, eq=False)
class Item:
    """One batch or announcement that must still be kept."""

    id: BatchId
    place: Place
    rows: int
    logged_ms: int
    source: str = ""
    poll_ms: int = 0
    state: State = State.LOGGED
    position: Position | None = None
    since: int | None = None
    """Version of the ack state when it was first looked at with this position."""
    not_before: float = 0.0
    tries: int = 0
    sent_at: float | None = None
    """When Kafka was known to have it, as `answered` was told; None: before this process began."""
    live: bool = False
    """It was new when it was taken last."""

    def __lt__(self, other: Item) -> bool:
        """Log order."""
        return self.place < other.place

    @property
    def is_series(self) -> bool:
        return self.id.lane == NO_LANE


@dataclass(slots=True)
class Lane:
    """Invariant: at most one group is on its way; its items are out of the line that they were taken from. What is
    `live` stands behind what is `ready` in the log."""

    ready: OrderedQueue[Item] = field(default_factory=OrderedQueue)
    live: OrderedQueue[Item] = field(default_factory=OrderedQueue)
    """New data that overtakes the backlog in `ready`; what is not sent in time joins it."""
    held: list[Item] = field(default_factory=list)
    """Refused one by one for what they are; they come back when their time has come."""
    busy: bool = False
    failures: int = 0
    not_before: float = 0.0

    @property
    def idle(self) -> bool:
        """Nothing waits or is on its way."""
        return not (self.ready or self.live or self.held or self.busy)

    @property
    def flying(self) -> Iterator[Item]:
        """Items on their way."""
        return chain(self.ready.out, self.live.out)

    def line_of(self, item: Item) -> OrderedQueue[Item]:
        """The line that an item was taken from."""
        return self.live if item.live else self.ready


@dataclass(frozen=True, slots=True)
class Group:
    """Items of one lane that go in one call."""

    lane: LaneId
    items: tuple[Item, ...]
    backlog: bool = False
    """It had waited long, and new data did not."""

    @property
    def size(self) -> int:
        """Bytes of its messages."""
        return sum(item.place.length for item in self.items)


class Outcome(NamedTuple):
    """What a call changed: items that have a position now, and those that need not be kept (announcements that Kafka
    has; at level `kafka` batches as well)."""

    sent: list[Item]
    done: list[Item]
    poison: Sequence[tuple[Item, str]] = ()
    """Refused so often for what they are that they are to be set aside, and why."""


class Tracker:
    """Every item of one log that is not acked. Not thread-safe: its owner locks."""

    def __init__(self, ack_on_sent: bool = False, live_first: bool = False) -> None:
        """`ack_on_sent`: level `kafka`. `live_first`: what is new overtakes what has waited for more than a minute."""
        self._ack_on_sent, self._live_first = ack_on_sent, live_first
        self._lanes: dict[LaneId, Lane] = {}
        self._turn: deque[LaneId] = deque()
        self._sent: dict[BatchId, Item] = {}
        self.pending = 0
        """Items not acked, announcements included."""
        self.sent_count = self.acked_count = self.resent_count = 0
        self.nacks: dict[str, int] = {}

    def set_ack_on_sent(self, on: bool) -> list[Item]:
        """Level `kafka` from now on, or `hdfs`. What is acked by that at once and need not be kept."""
        self._ack_on_sent = on
        done = [i for i in self._sent.values() if i.position and not i.position.durable_later] if on else []
        for item in done:
            move(item, State.SENT, Event.ACK)
            del self._sent[item.id]
        self.pending -= len(done)
        self.acked_count += len(done)
        return done

    def add(self, header: BatchHeader, place: Place, now_ms: int) -> Item:
        """A batch is in the log."""
        item = Item(header.id, place, header.rows, now_ms, header.source, header.poll_ms)
        lane = self._lane(item.id.lane_id)
        (lane.live if self._live_first else lane.ready).add(item)
        self.pending += 1
        return item

    def restore_sent(self, header: BatchHeader, place: Place, position: Position, now_ms: int) -> None:
        """A batch of which the log knows that Kafka held it."""
        item = Item(header.id, place, header.rows, now_ms, header.source, header.poll_ms, State.SENT, position)
        self._sent[item.id] = item
        self.pending += 1

    def take(
        self,
        now: float,
        samples: int = CALL_COUNT,
        most: int = CALL_BYTES,
        backlog: int = CALL_BYTES,
        old_ms: int = 0,
    ) -> Group | None:
        """The next group that may go, its lanes in turn, with at most `samples` batches of samples (0: announcements
        only) and `most` bytes; None if nothing may go now. What was logged before `old_ms` is a backlog: about
        `backlog` bytes of it may go; what is new goes before it if so configured."""
        for live in (True, False) if self._live_first else (False,):
            for _ in range(len(self._turn)):
                lane_id = self._turn[0]
                self._turn.rotate(-1)
                lane = self._lanes[lane_id]
                count = CALL_COUNT if lane_id.lane == NO_LANE else samples
                if lane.busy or lane.not_before > now or not count:
                    continue
                self._bring_back(lane, now)
                while lane.live and lane.live.peek().logged_ms < old_ms:
                    lane.ready.add(lane.live.pop())
                group = self._group(lane_id, lane, count, most, lane.live if live else lane.ready, backlog, old_ms)
                if group is not None:
                    return group
        return None

    def put_back(self, group: Group) -> None:
        """It was not sent after all, for no fault of anybody."""
        lane = self._lanes[group.lane]
        lane.busy = False
        for item in group.items:
            move(item, State.SENDING, Event.BACK)
            item.tries -= 1
        self._return(lane, group.items)

    def next_due(self, samples: bool = True, old_ms: int = 0) -> float | None:
        """When something that waits now may go: a time, None if nothing waits for one. Without `samples`: of the
        announcements. What was logged before `old_ms` waits for something else."""
        lanes = [lane for id_, lane in self._lanes.items() if not lane.busy and (samples or id_.lane == NO_LANE)]
        due = [lane for lane in lanes if lane.live or (lane.ready and lane.ready.peek().logged_ms >= old_ms)]
        times = [lane.not_before for lane in due]
        times += [item.not_before for lane in lanes for item in lane.held]
        return min(times, default=None)

    def answered(self, group: Group, answers: Sequence[Answer], now: float) -> Outcome:
        """The collector answered, one answer an item."""
        lane = self._lanes[group.lane]
        lane.busy = False
        poison: list[tuple[Item, str]] = []
        outcome = Outcome([], [], poison)
        back: list[Item] = []
        failed = False
        for item, answer in zip(group.items, answers, strict=True):
            if answer.position is not None:
                self._place(item, answer.position, outcome, now)
                continue
            self._count_nack(answer.reason)
            if answer.ours and item.tries >= POISON_TRIES and not item.is_series:
                move(item, State.SENDING, Event.ASIDE)
                if self._settle(item):
                    self.pending -= 1
                    poison.append((item, answer.reason))
                continue
            move(item, State.SENDING, Event.BACK)
            if answer.ours:
                item.not_before = now + backoff(item.tries, 1.0, 300.0)
                if self._settle(item):
                    lane.held.append(item)
            else:
                back.append(item)
                failed = failed or not answer.full  # how long to leave a full Kafka alone is for the sender to say
        self._return(lane, back)
        self._pause(lane, failed, now)
        self._forget_if_idle(group.lane)
        return outcome

    def failed(self, group: Group, now: float, elsewhere: bool = False) -> None:
        """No answer: the group may or may not be in Kafka, and goes again. `elsewhere`: at once, to another collector;
        else a lane whose pause is as long as that of a dead collector would try that one for ever."""
        lane = self._lanes[group.lane]
        lane.busy = False
        for item in group.items:
            move(item, State.SENDING, Event.BACK)
        self._return(lane, group.items)
        if elsewhere:
            lane.not_before = now + backoff(1)
        else:
            self._pause(lane, True, now)

    def lost(self, group: Group, items: Iterable[Item]) -> list[Item]:
        """The log itself can no longer read these: they are given up, and the rest of the group goes again. Returns
        those of them that were not shed meanwhile."""
        gone = set(map(id, items))
        lane = self._lanes[group.lane]
        lane.busy = False
        rest = [item for item in group.items if id(item) not in gone]
        lost = [item for item in group.items if id(item) in gone and self._settle(item)]
        self.pending -= len(lost)
        for item in group.items:
            move(item, State.SENDING, Event.ASIDE if id(item) in gone else Event.BACK)
        self._return(lane, rest)
        return lost

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
            if item is not None and move(item, State.SENT, Event.RETRY):
                item.position = item.since = None
                self._lane(item.id.lane_id).ready.add(item)
                self.resent_count += 1
        done = [item for key in verdict.acked if (item := self._sent.pop(key, None)) is not None]
        for item in done:
            move(item, State.SENT, Event.ACK)
        self.pending -= len(done)
        self.acked_count += len(done)
        return done

    def give_up(self, places: Iterable[Place]) -> set[Place]:
        """Send none of these any more: they are deleted to make room. Returns those that Kafka has said to hold."""
        gone = set(places)
        sent = [item for item in self._sent.values() if item.place in gone]
        for item in sent:
            del self._sent[item.id]
        count = len(sent)
        for lane in self._lanes.values():
            for line in (lane.ready, lane.live):
                count += len(line.drop(lambda item: item.place in gone))
            kept = [item for item in lane.held if item.place not in gone]
            count, lane.held = count + len(lane.held) - len(kept), kept
        self.pending -= count
        return {item.place for item in sent}

    def oldest_ms(self) -> int | None:
        """When the oldest batch that is not acked was logged."""
        times = (item.logged_ms for items in (self._sent.values(), self._unsent()) for item in items)
        return min(times, default=None)

    def waiting_s(self, now: float, began: float) -> float:
        """How long the batch that was sent first has waited for its ack; `began`: when this process did."""
        first = next(iter(self._sent.values()), None)
        if first is None:
            return 0.0
        return now - (began if first.sent_at is None else first.sent_at)

    def oldest_unsent_ms(self) -> int | None:
        """When the oldest batch that Kafka does not have was logged."""
        return min((item.logged_ms for item in self._unsent()), default=None)

    @property
    def unsent(self) -> int:
        """Items that Kafka does not have, as far as we know."""
        return self.pending - len(self._sent)

    def lanes(self) -> Iterator[tuple[LaneId, Lane]]:
        return iter(self._lanes.items())

    # --- several sites, a tracker each: pipeline/sites/placing.py

    def idle(self, lane_id: LaneId) -> bool:
        """Whether nothing of a lane waits or is on its way."""
        lane = self._lanes.get(lane_id)
        return lane is None or lane.idle

    def above(self, lane_id: LaneId, number: int) -> list[Item]:
        """What waits of a lane, is on no call, and has a greater number."""
        lane = self._lanes.get(lane_id)
        return [] if lane is None else [i for i in (*lane.ready, *lane.held) if i.id.sequence > number]

    def first_above(self, lane_id: LaneId, number: int) -> BatchId | None:
        """The first of these."""
        lane = self._lanes.get(lane_id)
        if lane is None:
            return None
        if lane.ready and (first := lane.ready.peek()).id.sequence > number:
            return first.id
        return min((item.id for item in chain(lane.ready, lane.held) if item.id.sequence > number), default=None)

    def reclaim(self, lane_id: LaneId, number: int) -> list[Item]:
        """Take these out: another tracker has them from now on."""
        items = self.above(lane_id, number)
        if items:
            lane = self._lanes[lane_id]
            waiting = set(map(id, items))  # what is on a call stays with it
            lane.ready.drop(lambda item: id(item) in waiting)
            lane.held = [item for item in lane.held if item.id.sequence <= number]
            self.pending -= len(items)
            self._forget_if_idle(lane_id)
        return items

    def adopt(self, lane_id: LaneId, items: Iterable[Item]) -> None:
        """Items that another tracker had, among those of their lane in log order."""
        for item in items:
            self._lane(lane_id).ready.add(item)
            self.pending += 1

    def release(self, lane_id: LaneId) -> int:
        """What was sent and not acked waits to be sent again; how many that are."""
        items = [item for item in self._sent.values() if item.id.lane_id == lane_id]
        for item in items:
            del self._sent[item.id]
            move(item, State.SENT, Event.RETRY)
            item.position = item.since = None
            self._lane(lane_id).ready.add(item)
        return len(items)

    def outstanding(self, lane_id: LaneId) -> int:
        """How many of a lane are not acked, those on a call left out."""
        return len(self.above(lane_id, -1)) + sum(1 for item in self._sent.values() if item.id.lane_id == lane_id)

    def bound(self, top: Callable[[LaneId], int]) -> dict[LaneId, int]:
        """Per lane: how many are sent and not acked, or wait with a number that is at most `top` of their lane."""
        found = Counter(item.id.lane_id for item in self._sent.values())
        for lane_id, lane in self._lanes.items():
            if lane_id.lane != NO_LANE:
                most = top(lane_id)
                found[lane_id] += sum(1 for item in chain(lane.ready, lane.held) if item.id.sequence <= most)
        return {lane: count for lane, count in found.items() if count}

    def _unsent(self) -> Iterator[Item]:
        """Of the items that are not sent the oldest of each lane: enough for ages."""
        for lane in self._lanes.values():
            yield from lane.flying
            yield from (line.peek() for line in (lane.ready, lane.live) if line)
            yield from lane.held

    def _lane(self, lane_id: LaneId) -> Lane:
        lane = self._lanes.get(lane_id)
        if lane is None:
            lane = self._lanes[lane_id] = Lane()
            self._turn.append(lane_id)
        return lane

    def _group(
        self, id_: LaneId, lane: Lane, count: int, most: int, line: OrderedQueue[Item], backlog: int, old_ms: int
    ) -> Group | None:
        if not line:
            return None
        first = line.peek()
        old = line is lane.ready and first.logged_ms < old_ms
        if first.place.length > most < CALL_BYTES or (old and backlog <= 0):
            return None
        lane.busy = True
        most = max(min(most, CALL_BYTES, backlog if old else most), first.place.length)
        items = tuple(self._fill(line, count, most))
        for item in items:
            item.live = line is lane.live
        return Group(id_, items, old)

    def _fill(self, line: OrderedQueue[Item], count: int, most: int) -> Iterator[Item]:
        size = taken = 0
        while line and taken < count:
            size += line.peek().place.length
            if size > most:
                return
            item = line.take()
            move(item, State.LOGGED, Event.CLAIM)
            item.tries += 1
            taken += 1
            yield item

    def _return(self, lane: Lane, items: Iterable[Item]) -> None:
        """To where they were taken from; what was given up meanwhile does not come back."""
        for item in items:
            lane.line_of(item).back((item,))

    def _settle(self, item: Item) -> bool:
        """It does not come back to its line; False for one that was given up meanwhile."""
        return bool(self._lanes[item.id.lane_id].line_of(item).settle((item,)))

    def _bring_back(self, lane: Lane, now: float) -> None:
        due = [item for item in lane.held if item.not_before <= now]
        if due:
            lane.held = [item for item in lane.held if item.not_before > now]
            for item in due:
                lane.ready.add(item)

    def _place(self, item: Item, position: Position, outcome: Outcome, now: float) -> None:
        move(item, State.SENDING, Event.PLACED)
        item.position, item.since, item.sent_at = position, None, now
        self.sent_count += 1
        if not self._settle(item):
            return
        if item.is_series or (self._ack_on_sent and not position.durable_later):
            self.pending -= 1
            self.acked_count += not item.is_series
            move(item, State.SENT, Event.ACK)
            outcome.done.append(item)
        else:
            self._sent[item.id] = item
            outcome.sent.append(item)

    def _pause(self, lane: Lane, failed: bool, now: float) -> None:
        lane.failures = lane.failures + 1 if failed else 0
        lane.not_before = now + backoff(lane.failures) if failed else 0.0

    def _count_nack(self, reason: str) -> None:
        name = reason.split(":", 1)[0][:40]
        if name not in self.nacks and len(self.nacks) >= _MAX_REASONS:
            name = "other"  # what a collector says is no reason to grow
        self.nacks[name] = self.nacks.get(name, 0) + 1

    def _forget_if_idle(self, lane_id: LaneId) -> None:
        """Lanes of former epochs go when they are empty, so that restarts do not pile up lanes."""
        if self._lanes[lane_id].idle:
            del self._lanes[lane_id]
            self._turn.remove(lane_id)
