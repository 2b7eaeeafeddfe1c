"""Agent processes: the shipped log, numbering, tracker, sending and control, on a simulated disk and network."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from artimon.model.ack_state import AckDecision
from artimon.model.batch import BatchHeader, BatchId, PollResult
from artimon.model.protocols import SinkRefusedError
from pipeline.control.ack_watcher import AckWatcher
from pipeline.delivery.batch_numbers import BatchEncoder, BatchNumberer
from pipeline.delivery.send_planner import PlannedCall, SendPlanner, notes_of_released, notes_of_sent, restore_tracker
from pipeline.delivery.shedder import QuotaBypass, Shedder
from pipeline.delivery.tracker import LaneCall, TrackedBatch, Tracker
from pipeline.link.answers import MessageAnswer
from pipeline.link.collector_choice import CollectorEndpoint, CollectorMode
from pipeline.wal.log import MAX_NOTE_DELAY_S
from pipeline.wal.log_core import AppendRequest, LogCore, LogEntry, LogWriteError
from pipeline.wal.segment_format import RecordType
from pipeline.wal.segments import CorruptRecordError
from pipeline.wal.state_records import LogPosition, encode_acked
from tests.simulation.disk import SimDisk
from tests.simulation.network import Network
from tests.simulation.payload import RealEncoder, SimEncoder
from tests.simulation.scheduler import Killed, Process, Scheduler
from tests.simulation.zookeeper import SimClient, SimZookeeper

FOLDER = Path("/data/log")
LANES = 2
THREADS = LANES + 2
SEGMENT_BYTES = 2_000
SHED_SEGMENT_BYTES = 8_000
"""Segment size of an agent that sheds: a record must be smaller than the batches that it gives up."""
CONTROL_S = 12.0


class Ledger(Protocol):
    """Observer that checks the actions of an agent."""

    def offered(self, agent: str, header: BatchHeader, data: bytes) -> None:
        """A batch got an identity and bytes."""
        ...

    def sends(self, agent: str, items: Sequence[TrackedBatch], messages: Sequence[bytes]) -> None:
        """Messages leave the agent."""
        ...

    def accepted(self, agent: str, header: BatchHeader) -> None:
        """The source was informed that a batch is durable."""
        ...

    def announced(self, agent: str, header: BatchHeader) -> None:
        """The source of an announcement was informed that it is durable."""
        ...

    def recovered(self, agent: str, found: set[BatchId]) -> None:
        """Batches that an agent continues with after a start."""
        ...

    def forgets(self, agent: str, items: Sequence[TrackedBatch], level: str) -> None:
        """The agent will not keep these batches any longer."""
        ...

    def damaged(self, agent: str, items: Sequence[TrackedBatch]) -> None:
        """The agent can no longer read these batches."""
        ...


class SimAgent(Process):
    """One agent, whose disk survives it."""

    def __init__(
        self,
        name: str,
        scheduler: Scheduler,
        network: Network,
        zookeeper: SimZookeeper,
        ledger: Ledger,
        level: str = "hdfs",
        quota_bytes: int = 1 << 20,
        sheds: bool = False,
    ) -> None:
        super().__init__(name)
        self._scheduler, self._network, self._zookeeper, self._ledger = scheduler, network, zookeeper, ledger
        self.level, self._quota_bytes, self._sheds = level, quota_bytes, sheds
        self.disk = SimDisk(scheduler.random)
        self.host = "host"
        self.starts = 0

    # -- start and end

    def start(self) -> None:
        """Recover the log, then continue."""
        self.started()
        try:
            self._start()
        except Killed:
            self.kill(power=True)
            self._scheduler.later(1.0, self.start)
        except (OSError, LogWriteError):  # the disk refuses: a supervisor tries again
            self.kill(power=False)
            self._scheduler.later(3.0, self.start)

    def _start(self) -> None:
        chance = self._scheduler.random
        self.starts += 1
        lazy = chance.random() < 0.3
        self.log = LogCore(
            FOLDER,
            self.name,
            LANES,
            segment_bytes=SHED_SEGMENT_BYTES if self._sheds else SEGMENT_BYTES,
            quota_bytes=self._quota_bytes,
            files=self.disk,
            host=self.host,
            lazy=lazy,
            draw=lambda: chance.getrandbits(64),
        )
        while not self.log.recover_next_segment():
            pass
        self.log.finish_recovery()
        self._ledger.recovered(self.name, {header.id for header, _ in self.log.recovered.batches})
        self.tracker = Tracker(ack_on_sent=self.level == "kafka", live_first=chance.random() < 0.3)
        acked = restore_tracker(self.tracker, self.log.recovered, self._scheduler.now_ms, self.level == "kafka")
        self.log.append_notes(RecordType.ACKED, encode_acked(id for id, _ in acked))
        self.sending = SendPlanner.for_agent(self.tracker, self.name, random.Random(chance.getrandbits(32)))
        self.sending.collectors.prefer(
            (), chance.choice((CollectorMode.FAILOVER, CollectorMode.FAILOVER, CollectorMode.FAILOVER, *CollectorMode))
        )
        log: Any = _SheddableLog(self)
        appender: QuotaBypass[AppendRequest] = QuotaBypass(log)
        self._numbering = numbering = _RecordingNumberer(appender, self, RealEncoder() if self._sheds else SimEncoder())
        self.at = {place: header.id for header, place in (*self.log.recovered.batches, *self.log.recovered.series)}
        self._shedder = Shedder(log, self.name, numbering, appender, self.tracker.stop_sending, self._wait)
        self._tickets: list[tuple[AppendRequest, Any]] = []
        self._flush_at = self._pump_at = float("inf")
        self._release([place for _, place in acked])
        self._flying = 0
        self._looking = self.keeps_damaged = False
        self._looks_later = True
        """A look is due once a batch waits: the agent knows no collector yet."""
        client: Any = SimClient(self._zookeeper, self._scheduler, self)
        self._control = _Control(client, self)
        self._look_later(CONTROL_S)
        self.wake()
        self.pump()

    def kill(self, power: bool) -> None:
        """End the process, with the machine or without it."""
        self.died()
        if power:
            self.disk.power_failure()
        else:
            self.disk.kill()

    def stop(self) -> None:
        """Flush the log and end in an orderly way."""
        self._flush()
        if not self.up:
            return
        try:
            self.log.sync()
            self.log.close()
            self.kill(power=False)
        except Killed:
            self.kill(power=True)

    @property
    def idle(self) -> bool:
        """True if nothing is left to do."""
        return self.up and not self.tracker.pending and not self._tickets

    # -- sources

    def offer(self, polled: Sequence[PollResult], on_result: Any) -> None:
        """Accept polls of a source; `on_result(True)` once they are accepted, `on_result(False)` if nothing is kept."""
        try:
            begun = (self._shedder if self._sheds else self._numbering).begin(polled)
        except (SinkRefusedError, LogWriteError):
            on_result(False)
            return
        except Killed:
            return
        if begun is None:
            on_result(True)
            return
        self._tickets.append((begun[1], on_result))
        self._flush_later(0.001 + self._scheduler.random.random() * 0.02)

    def numbered(self, entries: Sequence[LogEntry]) -> None:
        """Record batches that got an identity and bytes."""
        for entry in entries:
            self._ledger.offered(self.name, entry.header, entry.payload)

    def _wait(self, ticket: AppendRequest) -> None:
        """Return once a shed record is durable. Raises Killed, SinkRefusedError, LogWriteError."""
        self._tickets.append((ticket, _ignore_result))
        life = self.life
        self._flush()
        if self.life != life:
            raise Killed
        if ticket.error is not None:
            raise ticket.error

    def hold(self, on: bool) -> None:
        """Pause the agent or resume it, as an operator does."""
        self.sending.paused = on
        self.pump()

    # -- the log

    def _flush_later(self, delay_s: float) -> None:
        at = self._scheduler.now + delay_s
        if at < self._flush_at:
            self._flush_at = at
            self._scheduler.later(delay_s, self._flush_in_turn, self)

    def _flush_in_turn(self) -> None:
        if self._flush_at <= self._scheduler.now:  # else it was flushed meanwhile
            self._flush()

    def _flush(self) -> None:
        self._flush_at = float("inf")
        try:
            placed = self.log.flush()
        except Killed:
            self.kill(power=True)
            self._scheduler.later(1.0 + self._scheduler.random.random() * 5, self.start)
            return
        self._logged(placed)
        waiting, self._tickets = self._tickets, []
        for ticket, on_result in waiting:
            if not ticket.done:
                self._tickets.append((ticket, on_result))
            elif ticket.error is not None:
                on_result(False)
            else:
                self._accept(ticket)
                on_result(True)
        if self.log.problem:  # an operator restarts it
            self.kill(power=False)
            self._scheduler.later(2.0, self.start)

    def _accept(self, ticket: AppendRequest) -> None:
        for entry in ticket.entries:
            if entry.type == RecordType.BATCH:
                self._ledger.accepted(self.name, entry.header)
            else:
                self._ledger.announced(self.name, entry.header)

    def _logged(self, placed: Sequence[tuple[LogEntry, LogPosition]]) -> None:
        if placed:
            self.at |= {place: entry.header.id for entry, place in placed}
            self.sending.add_logged(((entry.header, place) for entry, place in placed), self._scheduler.now_ms)
            if self._looks_later:
                self.wake()
            self.pump()

    def _release(self, places: Iterable[LogPosition]) -> None:
        """Release places, also none: after a start, old segments may hold nothing that is needed. The flusher of the
        shipped log deletes such at its next turn; a turn that has nothing to do is left out here."""
        self.log.release(places)
        self._flush_later(MAX_NOTE_DELAY_S)

    def _note(self, notes: Any) -> None:
        for type_, payloads in notes:
            self.log.append_notes(type_, payloads)
        self._flush_later(MAX_NOTE_DELAY_S)

    def _forget(self, done: list[TrackedBatch]) -> None:
        if not done:
            return
        self._ledger.forgets(self.name, done, self.level)
        self._note(notes_of_released(done))
        self._release([item.place for item in done])

    # -- sending

    def pump(self) -> None:
        """Send all that may go now, and return when more may. The power may fail meanwhile."""
        while self.up and self._flying < THREADS:
            group = self.sending.next_call(self._scheduler.now, self._scheduler.now_ms)
            if not isinstance(group, LaneCall):
                self._pump_later(group)
                return
            self._send(group)

    def _pump_later(self, delay_s: float) -> None:
        if not self.tracker.unsent_count or self.tracker.next_due() is None:
            return
        at = self._scheduler.now + delay_s
        if at < self._pump_at or self._pump_at <= self._scheduler.now:
            self._pump_at = at
            self._scheduler.later(delay_s, self._pump_again, self)

    def _pump_again(self) -> None:
        self._pump_at = float("inf")
        self.pump()

    def _send(self, group: LaneCall) -> None:
        """Read and send a group, mostly at once; now and then reading the log takes a while."""
        self._flying += 1
        if self._scheduler.chance(0.08):
            self._scheduler.later(self._scheduler.random.random() * 0.5, lambda: self._read(group), self)
        else:
            self._read(group, pump=False)

    def _read(self, group: LaneCall, pump: bool = True) -> None:
        self._flying -= 1
        messages, bad = [], []
        for item in group.items:
            try:
                messages.append(self.log.read(item.place))
            except (CorruptRecordError, OSError):
                bad.append(item)
        now = self._scheduler.now
        if bad:
            lost = self.sending.drop_unreadable(group, bad, now)
            self.lose(lost)
            return
        self._ledger.sends(self.name, group.items, messages)
        call = self.sending.begin(group, now)
        if call is None:
            self._pump_later(0.05)
            return
        self._flying += 1
        flight = _Flight(self, call)
        self._network.call(self.name, call.reservation.endpoint, messages, flight.answered, flight.broken)
        self._scheduler.later(call.reservation.deadline_s, flight.late, self)
        if pump:
            self.pump()

    def lose(self, bad: Sequence[TrackedBatch]) -> None:
        """Give up unreadable records, as pipeline.wal.log.WriteAheadLog.quarantine_bytes."""
        self._ledger.damaged(self.name, bad)
        for item in bad:
            try:
                self.log.quarantine_bytes(item.place)
            except Killed:
                self.kill(power=True)
                self._scheduler.later(1.0, self.start)
                return
            except OSError:
                self.keeps_damaged = True
            else:
                self._release([item.place])
        self._pump_later(0.05)

    def answered(self, call: PlannedCall, answers: Sequence[MessageAnswer]) -> None:
        """Process the answers of a collector to a group."""
        self._flying -= 1
        outcome = self.sending.apply_answers(call, answers, self._scheduler.now)
        self._note(notes_of_sent(outcome.sent))
        self._forget(outcome.done)
        self.pump()

    def silent(self, call: PlannedCall, late: bool) -> None:
        """Process a call without an answer."""
        self._flying -= 1
        self.sending.call_unanswered(call, self._scheduler.now, late)
        self.pump()

    # -- interface of the control (as pipeline.delivery.sender.Sender)

    def update_collectors(self, found: dict[str, CollectorEndpoint], *_more: Any, **_named: Any) -> None:
        """Update the collectors that ZooKeeper lists."""
        self.sending.collectors.update(found, *_more, **_named)
        self.pump()

    def unacked(self) -> list[Any]:
        """Return the batches that wait for acks."""
        return self.tracker.unacked()

    def apply_verdict(self, verdict: AckDecision[BatchId]) -> None:
        """Process the decisions that follow from the published states."""
        if self._scheduler.tracing:
            for key, why in verdict.resend:
                self._scheduler.say(f"{self.name}: {key} again: {why}")
        self._forget(self.sending.tracker.apply_verdict(verdict))
        self.pump()

    def wake(self) -> None:
        """React to a watch. An agent that waits for nothing looks once it does, which makes no difference."""
        self._looks_later = not self.tracker.pending
        if not self._looking and not self._looks_later:
            self._looking = True
            self._scheduler.later(0.05, self._look, self)

    def _look_later(self, delay_s: float) -> None:
        self._scheduler.later(delay_s, self._look_in_turn, self)

    def _look_in_turn(self) -> None:
        self._look_later(CONTROL_S)
        if self.tracker.pending:
            self.wake()

    def _look(self) -> None:
        self._looking = False
        try:
            self._control.refresh()
        except Killed:
            pass


class _Flight:
    """One call, which ends once; later ends are ignored."""

    __slots__ = ("_agent", "_call", "_life", "_over")

    def __init__(self, agent: SimAgent, call: PlannedCall) -> None:
        self._agent, self._call, self._life, self._over = agent, call, agent.life, False

    def _ends(self) -> bool:
        if self._over or self._agent.life != self._life:
            return False
        self._over = True
        return True

    def answered(self, answers: list[MessageAnswer]) -> None:
        if self._ends():
            self._agent.answered(self._call, answers)

    def broken(self) -> None:
        if self._ends():
            self._agent.silent(self._call, late=False)

    def late(self) -> None:
        if self._ends():
            self._agent.silent(self._call, late=True)


def _ignore_result(_good: bool) -> None:
    """Result callback of a shed record, which does nothing."""


class _SheddableLog:
    """Log of an agent that sheds, as pipeline.wal.log.WriteAheadLog."""

    def __init__(self, agent: SimAgent) -> None:
        self._agent = agent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent.log, name)

    def quarantine_bytes(self, places: Iterable[LogPosition]) -> None:
        """Give up damaged records; raises Killed if the agent ends meanwhile."""
        agent, life = self._agent, self._agent.life
        agent.lose([TrackedBatch(agent.at[place], place, 0, 0) for place in places])
        if agent.life != life:
            raise Killed


class _RecordingNumberer(BatchNumberer[AppendRequest]):
    """Reports numbered batches to the ledger."""

    def __init__(self, log: QuotaBypass[AppendRequest], agent: SimAgent, encoder: BatchEncoder) -> None:
        super().__init__(log, agent.name, encoder)
        self._owner = agent

    def begin(self, polled: Sequence[PollResult]) -> tuple[list[LogEntry], AppendRequest] | None:
        begun = super().begin(polled)
        if begun is not None:
            self._owner.numbered(begun[0])
        return begun


class _Control(AckWatcher):
    """Watcher without a thread: its wake-ups go to the agent. It reads ZooKeeper at every turn."""

    collectors_check_s = 0.0

    def __init__(self, client: Any, agent: Any) -> None:
        super().__init__(client, agent, "artimon.samples")
        self._agent = agent

    def wake(self) -> None:
        self._agent.wake()
