"""A second, smaller history: an agent of two data centres, with the shipped log, numbering, trackers, placing and
record of sites. In place of collectors, Kafka and table each site is a set of batches, which it acknowledges and later
reports durable. No batch may get to both sites, whatever crashes or is cut off."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from artimon.model.ack_state import AckDecision, Position
from artimon.model.batch import BatchHeader, BatchId
from artimon.model.protocols import SinkRefusedError
from pipeline.delivery.batch_numbers import BatchNumberer
from pipeline.delivery.send_planner import PlannedCall, SendPlanner, notes_of_released, notes_of_sent
from pipeline.delivery.tracker import LaneCall, TrackedBatch, Tracker
from pipeline.link.answers import MessageAnswer
from pipeline.link.collector_choice import CollectorEndpoint
from pipeline.sites.site_binding import SiteAssignment
from pipeline.sites.site_record import load_record, save_record
from pipeline.sites.site_router import SiteRouter
from pipeline.wal.log import MAX_NOTE_DELAY_S
from pipeline.wal.log_core import LogCore, LogEntry
from pipeline.wal.state_records import LogPosition
from tests.simulation.disk import SimDisk
from tests.simulation.payload import SimEncoder, polled
from tests.simulation.scheduler import Killed, Process, Scheduler, Violation

NAMES = ("near", "far")
DATA, FOLDER = Path("/data"), Path("/data/log")
LANES, SOURCES, BATCHES = 2, 4, 30
FAULTS_S, REST_S = 90.0, 900.0
PATIENCE_S = RETURN_S = 6.0
TICK_S, ACK_S = 1.0, 4.0
AGENT = "agent"


class SimSite:
    """One data centre. `reachable`: its collectors take connections; `answers`: their answers come back."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.endpoint = CollectorEndpoint(name, 1)
        self.stored: dict[BatchId, int] = {}
        """Offset of each batch."""
        self.reachable = self.answers = True
        self.full = False

    def take(self, items: Sequence[TrackedBatch]) -> list[MessageAnswer]:
        """Process a call."""
        if self.full:
            return [MessageAnswer(None, "full: no room")] * len(items)
        for item in items:
            self.stored.setdefault(item.id, len(self.stored))
        return [MessageAnswer(Position(self.name, self.name, 0, self.stored[item.id])) for item in items]


class SiteAgent(Process):
    """One agent with a tracker and a sending for each site, driven as by pipeline.sites.multi_site_sender."""

    def __init__(self, scheduler: Scheduler, sites: Sequence[SimSite], accepted: set[BatchId]) -> None:
        super().__init__(AGENT)
        self._scheduler, self.sites, self.accepted = scheduler, {site.name: site for site in sites}, accepted
        self.disk = SimDisk(scheduler.random)

    # -- start and end

    def start(self) -> None:
        """Recover log and record, then continue."""
        self.started()
        try:
            self._start()
        except (Killed, OSError):
            self._crash(power=True)

    def _start(self) -> None:
        chance = self._scheduler.random
        self.log = LogCore(
            FOLDER, AGENT, LANES, segment_bytes=2_000, files=self.disk, host="host", draw=lambda: chance.getrandbits(64)
        )
        found = self.log.recovered
        lost = self.accepted - {header.id for header, _ in found.batches}
        if lost:
            raise Violation(f"sites: {len(lost)} accepted batches are not found by a restart")
        trackers = {name: Tracker() for name in NAMES}
        binding = SiteAssignment(NAMES, PATIENCE_S, RETURN_S)
        self.placing = SiteRouter(binding, trackers, load_record(DATA, self.disk))
        rows = [(header, place, found.sent.get(header.id), header.poll_ms) for header, place in found.batches]
        self.placing.restore(rows)
        self.sending = {
            n: SendPlanner.for_agent(t, AGENT, random.Random(chance.getrandbits(32))) for n, t in trackers.items()
        }
        for name, one in self.sending.items():
            one.collectors.update({name: self.sites[name].endpoint})
        self._numbering = BatchNumberer(self.log, AGENT, SimEncoder())
        for turn, every in (
            (self._flush, MAX_NOTE_DELAY_S),
            (self._tick, TICK_S),
            (self._pump, 0.3),
            (self._hear, ACK_S),
        ):
            self._every(every, turn)

    def crash(self, power: bool) -> None:
        """End the process, with its machine or without; it is started again."""
        if self.up:
            self._crash(power)

    def _crash(self, power: bool) -> None:
        self.died()
        if power:
            self.disk.power_failure()
        else:
            self.disk.kill()
        self._scheduler.later(1 + self._scheduler.random.random() * 8, self.start)

    def _every(self, seconds: float, turn: Callable[[], None]) -> None:
        def again() -> None:
            try:
                turn()
            except Killed:
                self._crash(power=True)
            else:
                self._scheduler.later(seconds * (0.5 + self._scheduler.random.random()), again, self)

        self._scheduler.later(seconds * self._scheduler.random.random(), again, self)

    @property
    def pending(self) -> int:
        """Number of batches that no site is known to keep."""
        return sum(tracker.pending for tracker in self.placing.trackers.values())

    # -- the log

    def offer(self, source: str, token: int) -> bool:
        """Offer one poll; False if it must be offered again."""
        if not self.up:
            return False
        try:
            self._numbering.begin([polled(source, token, self._scheduler.now_ms)])
        except SinkRefusedError:
            return False
        return True

    def _flush(self) -> None:
        placed: Sequence[tuple[LogEntry, LogPosition]] = self.log.flush()
        logged: list[tuple[BatchHeader, LogPosition]] = [(entry.header, place) for entry, place in placed]
        self.accepted.update(header.id for header, _ in logged)
        self.placing.add_logged(logged, self._scheduler.now_ms)
        if self.log.problem:
            self._crash(power=False)

    def _note(self, notes: Any) -> None:
        for type_, payloads in notes:
            self.log.append_notes(type_, payloads)

    # -- sites

    def _tick(self) -> None:
        up = [
            n
            for n, one in self.sending.items()
            if one.collectors.count_healthy() and one.collectors.pick(self._scheduler.now)
        ]
        self.placing.move_due(self._scheduler.now, up, self.log.segment_range)

    def _pump(self) -> None:
        for name, sending in self.sending.items():
            group = sending.next_call(self._scheduler.now, self._scheduler.now_ms)
            while isinstance(group, LaneCall):
                self._send(name, sending, group)
                group = sending.next_call(self._scheduler.now, self._scheduler.now_ms)

    def _send(self, name: str, sending: SendPlanner, group: LaneCall) -> None:
        """Send a group, as pipeline.sites.multi_site_sender.SiteSender."""
        now, site = self._scheduler.now, self.sites[name]
        call = sending.begin(group, now)
        if call is None:
            return
        top = self.placing.bound_until.get(group.lane, -1)
        if self.placing.bind(name, group) and not self._save():
            self.placing.unbind(name, group, top)
            sending.call_unanswered(call, now, late=False)
            return
        answers = site.take(group.items) if site.reachable else None
        heard = answers if site.answers else None
        flight = _SiteAnswer(self, name, call, top, heard, site.reachable)
        self._scheduler.later(self._scheduler.random.random() * 2, flight, self)

    def _save(self) -> bool:
        record = self.placing.record
        try:
            save_record(DATA, record.to_json(), self.disk)
        except OSError:
            return False
        record.saved = record.version
        return True

    def answered(
        self, name: str, call: PlannedCall, top: int, answers: list[MessageAnswer] | None, reached: bool
    ) -> None:
        """Process the end of a call."""
        now, sending = self._scheduler.now, self.sending[name]
        if answers is None:
            sending.call_unanswered(call, now, late=False, reached=reached)
        else:
            outcome = sending.apply_answers(call, answers, now)
            self._note(notes_of_sent(outcome.sent))
        self.placing.end_call(name, call.group, top, answers, reached)

    def _hear(self) -> None:
        """Process the durable batches that each site reports."""
        for name, sending in self.sending.items():
            site = self.sites[name]
            if not site.reachable:
                continue
            waiting = [sent.key for sent in sending.tracker.unacked()]
            done = sending.tracker.apply_verdict(AckDecision(acked=tuple(waiting)))
            for item in done:
                if item.id not in site.stored:
                    raise Violation(f"sites: {item.id} is forgotten, and {name} does not have it")
                self.accepted.discard(item.id)
            self._note(notes_of_released(done))
            self.log.release([item.place for item in done])


class _SiteAnswer:
    """An answer, or its absence, on the way back."""

    def __init__(
        self,
        agent: SiteAgent,
        name: str,
        call: PlannedCall,
        top: int,
        answers: list[MessageAnswer] | None,
        reached: bool,
    ) -> None:
        self._agent, self._name, self._call, self._top = agent, name, call, top
        self._answers, self._reached = answers, reached

    def __call__(self) -> None:
        self._agent.answered(self._name, self._call, self._top, self._answers, self._reached)


class SitesWorld:
    """World of one run with two sites."""

    def __init__(self, seed: int, trace: Callable[[str], None] | None = None) -> None:
        self.scheduler = Scheduler(seed, trace)
        self.sites = [SimSite(name) for name in NAMES]
        self.accepted: set[BatchId] = set()
        """Accepted batches that are not forgotten yet."""
        self.agent = SiteAgent(self.scheduler, self.sites, self.accepted)

    @property
    def moved(self) -> bool:
        """True if batches went to another site than their first."""
        return self.agent.up and bool(self.agent.placing.moved)

    def run(self) -> None:
        """Start, disturb, heal, rest, check. Raises Violation."""
        scheduler, chance = self.scheduler, self.scheduler.random
        self.agent.start()
        for n in range(BATCHES):
            self._offer_at(1 + chance.random() * FAULTS_S * 0.9, n)
        for _ in range(chance.randrange(2, 7)):
            scheduler.later(chance.random() * FAULTS_S, self._trouble)
        scheduler.run(FAULTS_S + 30)
        self._heal()
        until = scheduler.now + REST_S
        while not self.agent.up or self.agent.pending or self.accepted:
            if scheduler.now > until:
                raise Violation(f"sites: {len(self.accepted)} batches are never acked")
            scheduler.run(scheduler.now + 5.0)
            self._check()
        self._check()

    def _offer_at(self, delay_s: float, number: int) -> None:
        def offer() -> None:
            if not self.agent.offer(f"app/{number % SOURCES}", number + 1):
                self._offer_at(2.0, number)

        self.scheduler.later(delay_s, offer)

    def _trouble(self) -> None:
        chance, agent = self.scheduler.random, self.agent
        site = chance.choice(self.sites)
        lot = chance.randrange(6)
        self.scheduler.say(f"sites: trouble {lot} of {site.name}")
        if lot == 0:
            agent.crash(power=chance.random() < 0.5)
        elif lot == 1:
            agent.disk.dies_after = chance.randrange(8)
        elif lot == 2:
            agent.disk.no_more_files = True
            self.scheduler.later(10 * chance.random(), lambda: setattr(agent.disk, "no_more_files", False))
        else:
            name = ("reachable", "answers", "full")[lot - 3]
            setattr(site, name, name == "full")
            self.scheduler.later(5 + chance.random() * 40, lambda: setattr(site, name, name != "full"))

    def _heal(self) -> None:
        self.scheduler.say("sites: all faults end")
        for site in self.sites:
            site.reachable = site.answers = True
            site.full = False
        self.agent.disk.no_more_files, self.agent.disk.dies_after = False, None

    def _check(self) -> None:
        near, far = self.sites
        if both := near.stored.keys() & far.stored.keys():
            raise Violation(f"sites: {len(both)} batches are at both sites, {min(both)} among them")
