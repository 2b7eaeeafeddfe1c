"""Acknowledgements: somebody takes care of an alert, so that unchanged groups of such alerts are not repeated.

An acknowledgement ends with the alert, or at a time before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from alerts.dispatch.silences import Save
from alerts.state.alert import AlertChange
from alerts.state.notification import Notification
from alerts.state.operations import AuditEntry, OperationCommit, OperationError, checked_author, checked_comment

MAX_ACKNOWLEDGED = 20_000
MAX_AT_ONCE = 1_000
"""Alerts of one action, so that the audit log holds each."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """`fired_ms`: the firing that it belongs to; `until_ms` 0: it lasts as long as the alert."""

    fingerprint: str
    fired_ms: int
    author: str
    comment: str
    time_ms: int
    until_ms: int = 0

    def to_json(self) -> dict[str, Any]:
        """Convert to values for JSON."""
        return asdict(self)


@dataclass(slots=True)
class Acknowledgements:
    """Acknowledgements of an engine. `save` stores changes before they take effect.

    `_lock` serialises changes and is held during `save`; readers take `acknowledged`, which is replaced as a whole."""

    save: Save
    acknowledged: Mapping[str, Acknowledgement] = field(default_factory=dict)
    """By fingerprint of the alert."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, alert: Notification, now_ms: int) -> Acknowledgement | None:
        """Return the acknowledgement of an alert that is in force."""
        found = self.acknowledged.get(alert.thread)
        if found is None or not _lasts(found, alert, now_ms):
            return None
        return found

    def put(
        self, alerts: Iterable[Notification], author: str, comment: str, now_ms: int, until_ms: int = 0
    ) -> list[Acknowledgement]:
        """Acknowledge alerts that fire. Raises OperationError."""
        author, comment = checked_author(author), checked_comment(comment)
        firing = [one for one in alerts if one.kind is AlertChange.FIRING]
        if not firing:
            raise OperationError("no such alert fires", 404)
        if until_ms and until_ms <= now_ms:
            raise OperationError("the end of an acknowledgement cannot be in the past")
        if len(firing) > MAX_AT_ONCE:
            raise OperationError(f"{len(firing):,} alerts: acknowledge at most {MAX_AT_ONCE:,} at once")
        made = {
            one.thread: Acknowledgement(one.thread, one.fired_ms, author, comment, now_ms, until_ms) for one in firing
        }
        with self._lock:
            if len({**self.acknowledged, **made}) > MAX_ACKNOWLEDGED:
                raise OperationError(f"at most {MAX_ACKNOWLEDGED:,} alerts can be acknowledged", 409)
            audit = [_entry(one, author, "acknowledged", comment, now_ms) for one in firing]
            self._store(made, audit)
        return list(made.values())

    def remove(self, alerts: Iterable[Notification], author: str, now_ms: int) -> list[str]:
        """Withdraw acknowledgements; return the fingerprints. Raises OperationError."""
        author = checked_author(author)
        with self._lock:
            gone = [one for one in alerts if one.thread in self.acknowledged]
            if not gone:
                raise OperationError("no such alert is acknowledged", 404)
            audit = [_entry(one, author, "acknowledgement withdrawn", "", now_ms) for one in gone]
            self._store({one.thread: None for one in gone}, audit)
        return [one.thread for one in gone]

    def purge(self, alerts: Mapping[str, Notification], now_ms: int) -> None:
        """Delete the acknowledgements that have ended."""
        if not self.acknowledged:
            return
        with self._lock:
            ended: dict[str, Acknowledgement | None] = {}
            for one, found in self.acknowledged.items():
                alert = alerts.get(one)
                if alert is None or not _lasts(found, alert, now_ms):
                    ended[one] = None
            if ended:
                self._store(ended, ())

    def _store(self, changes: Mapping[str, Acknowledgement | None], audit: Iterable[AuditEntry]) -> None:
        self.save(
            OperationCommit(acknowledgements={id: one and one.to_json() for id, one in changes.items()}, audit=audit)
        )
        after = {**self.acknowledged, **changes}
        self.acknowledged = {id: one for id, one in after.items() if one is not None}


def _lasts(one: Acknowledgement, alert: Notification, now_ms: int) -> bool:
    same = alert.kind is AlertChange.FIRING and alert.fired_ms == one.fired_ms
    return same and (not one.until_ms or now_ms < one.until_ms)


def _entry(alert: Notification, author: str, action: str, comment: str, now_ms: int) -> AuditEntry:
    labels = ",".join(f"{name}={value}" for name, value in alert.labels)
    return AuditEntry(now_ms, author, action, alert.thread, f"{alert.rule} {labels}: {comment}"[:2_000])
