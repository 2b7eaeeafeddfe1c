"""Disk failover of an agent: the way past its log, straight to a collector."""

from __future__ import annotations

from collections.abc import Sequence

from artimon.model.clock import Clock
from artimon.model.ranges import LaneId
from pipeline.delivery.sender import Sender
from pipeline.link.client import NotSent
from pipeline.wal.log import Entry

CALL_S = 10.0
"""Seconds that a source may wait for a collector before its batch goes into the log."""
_LEAST_S = 1.0


class CollectorWay:
    """Calls the collectors of the sender that drains the log, with its credits and deadlines."""

    def __init__(self, sender: Sender, clock: Clock) -> None:
        self._sender, self._clock = sender, clock

    @property
    def reachable(self) -> bool:
        """As in Way."""
        return self._sender.may_call

    def backlog(self, entries: Sequence[Entry]) -> bool:
        """As in Way; the entries are of one lane."""
        first = entries[0].header.id
        return not self._sender.idle(LaneId(first.agent, first.epoch, first.lane))

    def send(self, entries: Sequence[Entry]) -> list[tuple[Entry, str]]:
        """Send until all are answered or a call fails; return the entries not delivered, with reasons."""
        left: list[tuple[Entry, str]] = []
        at, until = 0, self._clock.monotonic() + CALL_S
        while at < len(entries) and not left:
            within_s = max(_LEAST_S, until - self._clock.monotonic())
            try:
                answers = self._sender.client.send([entry.payload for entry in entries[at:]], within_s).answers
            except NotSent:
                break
            for entry, answer in zip(entries[at:], answers, strict=False):
                if answer.position is None or answer.position.durable_later:
                    left.append((entry, answer.reason.split(":", 1)[0] or "not durable yet"))
            at += len(answers)
        reason = left[0][1] if left else "no answer"
        return [*left, *((entry, reason) for entry in entries[at:])]
