"""What a person is to be told, as data: made by an evaluation, kept in the outbox, turned into a mail by message.py."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from alerts.conditions import Value
from alerts.rule import Labels, Rule
from alerts.state import Alert, Change


@dataclass(frozen=True, slots=True)
class Notification:
    """One change of one alert. Its identity depends on the alert and when it fired only, never on when it is sent."""

    kind: Change
    rule: str
    labels: Labels
    expr: str
    threshold: str
    hold_ms: int
    since_ms: int
    fired_ms: int
    resolved_ms: int
    value: Value | None
    reason: str
    summary: str

    @property
    def id(self) -> str:
        """The same for the same change of the same alert, whoever makes it and however often."""
        return self._identity(self.kind)

    @property
    def firing_id(self) -> str:
        """The id of what said that this alert fires."""
        return self._identity(Change.FIRING)

    @property
    def thread(self) -> str:
        """What is told of one alert is told in order."""
        return fingerprint(self.rule, self.labels)

    def _identity(self, kind: Change) -> str:
        return _digest([self.rule, self.labels, self.fired_ms, kind])

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Notification:
        """Inverse of `to_json`."""
        labels = tuple((str(name), str(value)) for name, value in data["labels"])
        return cls(**{**data, "kind": Change(data["kind"]), "labels": labels})


def fingerprint(rule: str, labels: Labels) -> str:
    """Names one alert."""
    return _digest([rule, labels])


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts, ensure_ascii=True).encode()).hexdigest()[:24]


def notify(rule: Rule, labels: Labels, alert: Alert, change: Change) -> Notification:
    """What is to be told of a change."""
    return Notification(
        change, rule.name, labels, rule.expr, rule.threshold.text, rule.hold_ms,
        alert.since_ms, alert.fired_ms, alert.resolved_ms, alert.value, alert.reason, rule.text(labels, alert.value),
    )  # fmt: skip


def resolved_of(firing: Notification, alert: Alert) -> Notification:
    """The end of an alert whose rule is no more: told in the words in which it began."""
    return Notification(
        Change.RESOLVED, firing.rule, firing.labels, firing.expr, firing.threshold, firing.hold_ms,
        firing.since_ms, firing.fired_ms, alert.resolved_ms, alert.value, alert.reason, firing.summary,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Letter:
    """A notification on its way to one address."""

    notification: Notification
    address: str

    @property
    def key(self) -> str:
        """Unique in the outbox: the same letter is never put there twice."""
        return f"{self.notification.id}:{self.address}"


def letters(notification: Notification, addresses: Iterable[str]) -> list[Letter]:
    """One letter an address."""
    return [Letter(notification, address) for address in dict.fromkeys(addresses)]
