"""What an agent sends next, to whom, and what follows from the answer. Pure: no I/O, no clock, no threads.

`Sender` drives this with its threads and a lock; the simulation drives it with messages that are lost, late and
repeated.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from artimon.model.acks import Position, Verdict
from artimon.model.batch import NO_LANE, BatchHeader, BatchId
from artimon.model.ranges import LaneId
from pipeline.delivery.ages import Ages
from pipeline.delivery.pace import Pacing
from pipeline.delivery.probe import Probing
from pipeline.delivery.tracker import Group, Item, Outcome, Tracker
from pipeline.link.answers import Answer, granted_by, is_useful
from pipeline.link.credits import LEAST
from pipeline.link.endpoints import Collectors, Endpoint
from pipeline.link.link import CALL_BYTES, CALL_COUNT, Flight, Link
from pipeline.wal.framing import RecordType
from pipeline.wal.records import Place, encode_acked, encode_forgotten, encode_sent
from pipeline.wal.recovery import Recovery

IDLE_S = 1.0
LEAST_WAIT_S = 0.02

Note = tuple[RecordType, Iterator[bytes]]
"""Records of one type to be noted in the log."""


class Call(NamedTuple):
    """A group on its way to a collector."""

    group: Group
    flight: Flight

    @property
    def endpoint(self) -> Endpoint:
        return self.flight.endpoint

    @property
    def deadline_s(self) -> float:
        """Time to wait for the answer."""
        return self.flight.deadline_s

    @property
    def size(self) -> int:
        """Bytes of its messages."""
        return self.flight.size


@dataclass(slots=True)
class Sending:
    """Every decision between the log and the collectors. Not thread-safe: its owner locks.

    Times (`now`) are seconds of a clock that never goes back."""

    tracker: Tracker
    link: Link
    probing: Probing
    probe: Group | None = None
    """The call that asks whether Kafka has room again."""
    damaged: int = 0
    """Batches that were accepted and that the disk no longer gives back."""
    held: bool = False
    """Nothing goes until it is let go: an operator paused the agent."""
    ages: Ages = field(default_factory=Ages)
    pacing: Pacing = field(default_factory=Pacing)
    _flights: dict[LaneId, tuple[Group, Flight]] = field(default_factory=dict)
    """Groups that were handed out and whose end is not known."""
    _began: float | None = None

    @classmethod
    def of(
        cls, tracker: Tracker, agent: str, chance: random.Random | None = None, pacing: Pacing | None = None
    ) -> Sending:
        """Of an agent that knows no collector yet. `chance`: what spreads the pauses of many agents."""
        probing = Probing(_random=chance or random.Random())
        return cls(tracker, Link(Collectors(agent)), probing, pacing=pacing or Pacing())

    @property
    def collectors(self) -> Collectors:
        """Those of the link."""
        return self.link.collectors

    def logged(self, placed: Iterable[tuple[BatchHeader, Place]], now_ms: int) -> None:
        """These are durable now and may go."""
        for header, place in placed:
            self.tracker.add(header, place, now_ms)
            self.pacing.came(place.length)

    def next(self, now: float, now_ms: int) -> Group | float:
        """The group that goes next, or how many seconds to wait for one. `now_ms`: the time of day, by which what
        waited long is told from what is new."""
        self._began = now if self._began is None else self._began
        if self.held or not self.tracker.unsent:
            return IDLE_S
        self.link.find_slow(now)
        window = self.probing.allowed(now, self.probe is not None)
        old_ms = now_ms - self.pacing.period_ms
        backlog = self.pacing.room(now, self.tracker.waiting_s(now, self._began))
        endpoint = self.collectors.pick(now)
        if endpoint is None:  # one that is found wakes
            return min(IDLE_S, max(LEAST_WAIT_S, self.collectors.next_try() - now))
        room = self.link.credits.room(endpoint)
        if room <= 0:
            return IDLE_S  # an answer makes room, and wakes
        count = CALL_COUNT if window is None else window
        group = self.tracker.take(now, count, min(room, CALL_BYTES), backlog, old_ms)
        if group is not None:
            self._take(group, endpoint, now, window is not None)
            return group
        if room < LEAST:
            return IDLE_S  # there may be a message that does not fit
        due = self.tracker.next_due(samples=window != 0, old_ms=0 if backlog > 0 else old_ms)
        if window == 0 and self.probe is None:
            due = self.probing.not_before if due is None else min(due, self.probing.not_before)
        if backlog <= 0:
            due = min(now + self.pacing.wait_s(), now + IDLE_S if due is None else due)
        return IDLE_S if due is None else min(IDLE_S, max(LEAST_WAIT_S, due - now))

    def begin(self, group: Group, now: float) -> Call | None:
        """The call for a group; None if no collector may be tried: the group waits."""
        endpoint, (_, flight) = self.collectors.pick(now), self._flights[group.lane]
        if endpoint is None:
            self.failed(group, now)
            return None
        if not self.link.begin(flight, endpoint, now):
            self._land(group)
            self.tracker.put_back(group)
            self._learn(group, (), now)
            return None
        return Call(group, flight)

    def unreadable(self, group: Group, items: Sequence[Item], now: float) -> list[Item]:
        """The log itself can no longer read these of a group: they are given up, the rest goes again. Returns those of
        them that were not shed meanwhile."""
        self._land(group)
        lost = self.tracker.lost(group, items)
        self.damaged += len(lost)
        self._learn(group, (), now)
        return lost

    def answered(self, call: Call, answers: Sequence[Answer], now: float) -> Outcome:
        """A collector answered, one answer an item."""
        self.link.answered(call.flight, granted_by(answers), now, is_useful(answers))
        self._land(call.group)
        outcome = self.tracker.answered(call.group, answers, now)
        self._learn(call.group, answers, now)
        return outcome

    def silent(self, call: Call, now: float, late: bool, reached: bool = True) -> None:
        """No answer, see Link.silent."""
        self.link.silent(call.flight, now, late, reached)
        self.failed(call.group, now, self.collectors.another(call.endpoint, now))

    def failed(self, group: Group, now: float, elsewhere: bool = False) -> None:
        """The group may or may not be in Kafka, and goes again; at once if that is `elsewhere`."""
        self._land(group)
        self.tracker.failed(group, now, elsewhere)
        self._learn(group, (), now)

    def forgotten(self, done: Iterable[Item], now_ms: int) -> None:
        """Nobody needs these from us any more: how long they took."""
        self.ages.ack(((i.source, i.poll_ms, i.logged_ms) for i in done if not i.is_series), now_ms)

    def judged(self, verdict: Verdict[BatchId]) -> list[Item]:
        """Apply what followed from the published states; what need not be kept any longer."""
        return self.tracker.judged(verdict)

    def _take(self, group: Group, endpoint: Endpoint, now: float, probe: bool) -> None:
        """A group was handed out, for this collector."""
        if probe and group.lane.lane != NO_LANE:
            self.probe = group
        if group.backlog:
            self.pacing.spent(group.size)
        self._flights[group.lane] = group, self.link.reserve(endpoint, group.size, now)

    def _land(self, group: Group) -> None:
        """It is no longer on its way."""
        flying, flight = self._flights.get(group.lane, (None, None))
        if flight is not None and flying is group:
            del self._flights[group.lane]
            self.link.cancel(flight)

    def _learn(self, group: Group, answers: Sequence[Answer], now: float) -> None:
        """What the end of a call says of Kafka's room. Announcements are never refused for want of it."""
        probe = group is self.probe
        if probe:
            self.probe = None
        full = next((answer.reason for answer in answers if answer.full), "")
        if full:
            self.probing.refused(full, now, probe)
        elif probe and answers and all(answer.position is not None for answer in answers):
            self.probing.taken()


def notes_of_sent(items: Iterable[Item]) -> Iterator[Note]:
    """What the log is told of batches that Kafka has."""
    by_agent: dict[str, list[tuple[BatchId, Position]]] = {}
    for item in items:
        if item.position is not None:
            by_agent.setdefault(item.id.agent, []).append((item.id, item.position))
    for agent, sent in by_agent.items():
        yield RecordType.SENT, encode_sent(agent, sent)


def notes_of_done(done: Sequence[Item]) -> Iterator[Note]:
    """What the log is told of what nobody needs from us any more."""
    yield RecordType.ACKED, encode_acked(item.id for item in done if not item.is_series)
    yield RecordType.FORGOTTEN, encode_forgotten([item.place for item in done if item.is_series])


def restore(tracker: Tracker, found: Recovery, now_ms: int, ack_on_sent: bool) -> list[tuple[BatchId, Place]]:
    """Go on with what a log holds. What is acked by being sent (`ack_on_sent`: level `kafka`) and need not be kept."""
    acked: list[tuple[BatchId, Place]] = []
    for header, place in (*found.batches, *found.series):
        position = found.sent.get(header.id)
        logged_ms = min(now_ms, header.poll_ms)
        if position is None:
            tracker.add(header, place, logged_ms)
        elif ack_on_sent and not position.durable_later:
            acked.append((header.id, place))
        else:
            tracker.restore_sent(header, place, position, logged_ms)
    return acked
