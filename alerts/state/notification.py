"""Notifications as data: made by an evaluation, kept in the outbox, written and delivered by a kind of receiver."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from alerts.state.alert import Alert, Change
from alerts.state.conditions import Value
from alerts.state.rule import Labels, Rule


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


def page_link(page: str, expr: str) -> str:
    """Address of the page with this question; "" without a page."""
    return f"{page.rstrip('/')}/?q={quote(expr, safe='')}" if page and expr else ""


MAIL = "mail"
"""Kind of targets without a prefix: the outbox had mails only when its format was made."""


def target_of(kind: str, address: str) -> str:
    """Text that names a receiver's kind and address: `name@host` for mail, `kind:address` for every other kind."""
    return address if kind == MAIL else f"{kind}:{address}"


def split_target(target: str) -> tuple[str, str]:
    """Kind and address. A mail address has no colon."""
    kind, colon, address = target.partition(":")
    return (kind, address) if colon else (MAIL, target)


@dataclass(frozen=True, slots=True)
class Letter:
    """A notification on its way to one target."""

    notification: Notification
    target: str

    @property
    def key(self) -> str:
        """Unique in the outbox: the same letter is never put there twice."""
        return f"{self.notification.id}:{self.target}"

    @property
    def thread(self) -> str:
        """Letters of one thread are delivered in order."""
        return f"{self.notification.thread}:{self.target}"


def letters(notification: Notification, targets: Iterable[str]) -> list[Letter]:
    """One letter for each target."""
    return [Letter(notification, target) for target in dict.fromkeys(targets)]
