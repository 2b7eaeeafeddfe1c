"""Notifications as data: created by an evaluation, stored in the outbox, formatted and delivered by a receiver kind."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import quote

from alerts.state.alert import Alert, AlertChange
from alerts.state.conditions import Value
from alerts.state.rule import Labels, Rule


@dataclass(frozen=True, slots=True)
class Notification:
    """One change of one alert. Its id depends only on the alert, its firing time and the kind of change."""

    kind: AlertChange
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
        """Identity of the change; equal whenever the notification is created again."""
        return self._identity(self.kind)

    @property
    def firing_id(self) -> str:
        """Id of the notification about the firing of this alert."""
        return self._identity(AlertChange.FIRING)

    @property
    def thread(self) -> str:
        """Key of the alert: notifications with the same key are delivered in order."""
        return fingerprint(self.rule, self.labels)

    def _identity(self, kind: AlertChange) -> str:
        return _digest([self.rule, self.labels, self.fired_ms, kind])

    def to_json(self) -> dict[str, Any]:
        """Convert to values for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Notification:
        """Inverse of `to_json`."""
        labels = tuple((str(name), str(value)) for name, value in data["labels"])
        return cls(**{**data, "kind": AlertChange(data["kind"]), "labels": labels})


def fingerprint(rule: str, labels: Labels) -> str:
    """Identity of one alert."""
    return _digest([rule, labels])


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts, ensure_ascii=True).encode()).hexdigest()[:24]


def notify(rule: Rule, labels: Labels, alert: Alert, change: AlertChange) -> Notification:
    """Make the notification of a change."""
    return Notification(
        change, rule.name, labels, rule.expr, rule.threshold.text, rule.hold_ms,
        alert.since_ms, alert.fired_ms, alert.resolved_ms, alert.value, alert.reason, rule.text(labels, alert.value),
    )  # fmt: skip


def resolution_of(firing: Notification, alert: Alert) -> Notification:
    """Make the notification of the end of an alert whose rule was removed or changed, with the texts of its firing."""
    end_ms = alert.resolved_ms
    return replace(firing, kind=AlertChange.RESOLVED, resolved_ms=end_ms, value=alert.value, reason=alert.reason)


def page_link(page: str, expr: str) -> str:
    """Address of the page with this query; "" without a page."""
    return f"{page.rstrip('/')}/?q={quote(expr, safe='')}" if page and expr else ""


MAIL = "mail"
"""Kind of targets without a prefix, from the time when mail was the only kind."""


def target_of(kind: str, address: str) -> str:
    """Text that names a receiver's kind and address: `name@host` for mail, `kind:address` for every other kind."""
    return address if kind == MAIL else f"{kind}:{address}"


def split_target(target: str) -> tuple[str, str]:
    """Split a target into kind and address. A mail address has no colon."""
    kind, colon, address = target.partition(":")
    return (kind, address) if colon else (MAIL, target)


@dataclass(frozen=True, slots=True)
class AlertLetter:
    """Notification addressed to one target."""

    notification: Notification
    target: str

    @property
    def key(self) -> str:
        """Unique key in the outbox, so that a letter is stored only once."""
        return f"{self.notification.id}:{self.target}"

    @property
    def thread(self) -> str:
        """Letters of one thread are delivered in order."""
        return f"{self.notification.thread}:{self.target}"


def letters(notification: Notification, targets: Iterable[str]) -> list[AlertLetter]:
    """One letter for each target."""
    return [AlertLetter(notification, target) for target in dict.fromkeys(targets)]
