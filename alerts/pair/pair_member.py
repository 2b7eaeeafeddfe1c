"""Role of an engine of a pair: it leads, or follows the leader's journal and takes over.

Invariant: while `leads`, this engine has opened the last writer of the journal, or does not know yet that it has not;
then its next transaction is refused, and no letter is sent without one (letter_sender).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from alerts.api.handlers import ApiRequest
from alerts.pair.engine_lease import EngineLease
from alerts.pair.rule_shares import RuleShares
from alerts.pair.state_log import LogEntry, StateLog, StateLogError
from alerts.state.alert_database import SCHEMA_VERSION, AlertDatabase, EngineState
from alerts.state.operations import OperationError
from alerts.state.row_changes import NotLeadingError
from artimon.model.clock import Clock
from artimon.runtime.http.engine_client import EngineClient, EngineError
from artimon.runtime.zookeeper_watcher import ZOOKEEPER_ERRORS

log = logging.getLogger(__name__)

POLL_S = 0.2
RELOAD_S = 1.0
"""Minimum time in seconds between two loads of the state of another engine."""
LEADERLESS_S = 30.0
"""Time in seconds after which a pair without a leader is a problem."""
OUTBOX = frozenset({"outbox", "audit", "history"})
"""Tables that are read from the file only."""


class PairMember:
    """Changes the role of this engine when `step` is called, by the thread of the engine.

    `state_log` is the journal of `database`. `load` gives the engine a stored state. Other threads read the
    attributes."""

    def __init__(
        self,
        state_log: StateLog,
        lease: EngineLease,
        database: AlertDatabase,
        load: Callable[[EngineState], None],
        clock: Clock,
    ) -> None:
        self._log, self._lease, self._database, self._load, self._clock = state_log, lease, database, load, clock
        self._whole = True
        """True until the rows of this engine's file are replaced by those of the journal."""
        self._changed = False
        self._loaded_at = float("-inf")
        self._led_at = clock.monotonic()
        self.leads = False
        self.since_ms = 0
        """Time since which this engine leads."""
        self.takeovers = 0
        self.offset = 0
        """Position of the journal that the engine has loaded."""
        self.problem = ""

    def may_send(self) -> bool:
        """Return True if this engine leads, as far as it knows."""
        return self.leads

    def position(self) -> int:
        """Return the position of the journal on which the leader evaluates, or which a follower has loaded."""
        return self._log.position if self.leads else self.offset

    def step(self) -> None:
        """Read what the leader stored, or take over. Errors are kept in `problem` and retried."""
        try:
            if self.leads:
                self._check_leadership()
            if not self.leads:
                self._take_over() if self._lease.ours and not self._lease.resigned else self._follow()
            self.problem = ""
        except (StateLogError, NotLeadingError, *ZOOKEEPER_ERRORS) as error:
            text = f"{error}" if isinstance(error, StateLogError | NotLeadingError) else f"ZooKeeper: {error!r}"
            if text != self.problem:
                log.warning("%s", text)
            self.problem = text
            self._stop_writing()

    def _check_leadership(self) -> None:
        if self._log.broken:
            self._step_down(self._log.broken)
        elif self._lease.resigned or (self._lease.leader is not None and not self._lease.ours):
            self._step_down("another engine has the lease" if not self._lease.resigned else "it resigned")
        else:
            self._led_at = self._clock.monotonic()

    def _step_down(self, reason: str) -> None:
        log.warning("this engine leads no more: %s", reason)
        self._stop_writing()

    def _stop_writing(self) -> None:
        """Let the running transaction of another thread end, and refuse the next one."""
        self.leads, self.since_ms = False, 0
        with self._database.settled():
            self._log.close_writer()
        self._log.continue_reading()

    def _take_over(self) -> None:
        """Fence the leader before, read all that it stored, and lead.

        The lease is confirmed again after the fencing: an engine that was stopped meanwhile finds the lease of another
        one, which opens a writer again when it finds its own refused."""
        if not self._lease.confirm():
            self._lease.wake()
            self._follow()
            return
        self._log.open_writer()
        self._apply(self._log.read_to_end())
        if not self._lease.confirm():
            self._log.close_writer()
            return
        # an empty topic gets the rows of this engine
        self._log.begin_epoch(self._database.rows() if self._whole else [])
        self._whole = False
        self._load_state()
        self.leads, self.since_ms, self.takeovers = True, self._clock.now_ms(), self.takeovers + 1
        self._led_at = self._clock.monotonic()
        log.warning("this engine leads: epoch %d, position %d", self._log.epoch, self._log.position)

    def _follow(self) -> None:
        self._apply(self._log.read_to_end() if self._whole else self._log.read(POLL_S))
        if self._lease.leader is not None and not self._lease.ours:
            self._led_at = self._clock.monotonic()
        now = self._clock.monotonic()
        if not self._changed:
            self.offset = self._log.position
        elif now - self._loaded_at >= RELOAD_S:
            self._load_state()

    def _apply(self, entries: Sequence[LogEntry]) -> None:
        """Write entries to the file, all of them or none."""
        if not entries:
            return
        newest = max(one.version for one in entries)
        if newest > SCHEMA_VERSION:
            self._lease.resign()
            raise StateLogError(
                f"the state of the pair has version {newest}, this engine knows {SCHEMA_VERSION}: upgrade it"
            )
        changes = [change for one in entries for change in one.changes]
        try:
            tables = self._database.restore(changes, whole=self._whole)
        except BaseException:
            self._log.continue_reading()
            raise
        self._log.position, self._whole = entries[-1].offset, False
        self._changed = self._changed or bool(tables - OUTBOX)

    def _load_state(self) -> None:
        position = self._log.position
        self._load(self._database.load())
        self.offset, self._changed, self._loaded_at = position, False, self._clock.monotonic()

    def close(self) -> None:
        """End this role; the journal refuses changes from then on."""
        self.leads = False
        with self._database.settled():
            self._log.close()

    # ---- display

    def leaderless(self) -> str:
        """Return the problem of a pair without a leader; "" if it has one, or may have one soon."""
        seconds = self._clock.monotonic() - self._led_at
        return f"no engine of the pair leads for {seconds:.0f} s" if seconds > LEADERLESS_S else ""

    def problems(self) -> list[str]:
        """Return the problems to show."""
        found = [self.problem, self._lease.problem, self.leaderless()]
        if self._lease.conflict:
            found.append("another engine of the pair has the same id")
        return [one for one in found if one]

    def figures(self) -> dict[str, Any]:
        """Return role and engines, for the health file and the display."""
        leader = self._lease.leader
        return {
            "name": self._lease.pair,
            "leads": self.leads,
            "since_ms": self.since_ms if self.leads else leader.since_ms if leader else 0,
            "leader": leader.id if leader else "",
            "engines": [one.id for one in self._lease.engines],
            "takeovers": self.takeovers,
            "epoch": self._log.epoch,
            "position": self._log.position,
            "stale": self._log.stale,
        }


FORWARD_S = 25.0
"""Timeout in seconds of an answer of the leader: a transaction of the journal may take 10 s."""


@dataclass(slots=True)
class EnginePair:
    """`token`: that of the API, the same at all engines."""

    lease: EngineLease
    member: PairMember
    shares: RuleShares
    token: str = ""

    def start(self) -> None:
        """Take part in the election."""
        self.lease.start()

    def stop(self) -> None:
        """Give up the lease, so that another engine leads at once."""
        self.shares.close()
        self.member.close()
        self.lease.stop()

    # ---- alerts.api.handlers.Pair

    def is_elsewhere(self) -> bool:
        """Return True if another engine takes the changes."""
        return not self.member.leads

    def forward(self, request: ApiRequest) -> Any:
        """Return the answer of the engine that leads. Raises OperationError."""
        leader = self.lease.leader
        if leader is None or self.lease.ours or request.forwarded:
            raise OperationError("no engine of the pair leads at the moment: try again", 503)
        client = EngineClient(leader.api, request.author, self.token, FORWARD_S, forwards=True)
        try:
            return client.ask(request.method, request.path, request.json() if request.body else None, **request.query)
        except EngineError as problem:
            raise OperationError(str(problem), problem.status or 503) from None

    def answer_share(self, asked: Mapping[str, Any]) -> Any:
        """Evaluate rules for the engine that leads. Raises OperationError."""
        return self.shares.answer(asked)

    def peers(self) -> list[dict[str, Any]]:
        """Return the engines in the form of the peers of an Alertmanager."""
        return [{"name": one.id, "address": one.api} for one in self.lease.engines]

    # ---- display

    def problems(self) -> list[str]:
        """Return the problems to show."""
        return [*self.member.problems(), *self.shares.problems.values()]
