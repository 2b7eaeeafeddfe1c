"""Alerts as receivers see them, and the messages about groups of them: made by the dispatcher, stored in the outbox,
formatted and delivered by a receiver kind."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import quote

from alerts.state.alert import Alert, AlertChange
from alerts.state.conditions import Value
from alerts.state.rule import Labels, Rule, value_text
from alerts.templates.template_functions import NO_CONTEXT, TemplateContext

ALERT_NAME = "alertname"
"""Label with the name of the rule."""
COMPLETENESS = "completeness"
"""Annotation that tells which part of the data was missing."""


@dataclass(frozen=True, slots=True)
class Notification:
    """One alert that fires or has resolved."""

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

    receivers: tuple[str, ...] = ()
    """Receivers that the rule names; (): those of the routes."""
    annotations: Labels = ()
    """Texts, beside the summary; of an alert from outside all of them."""
    source: str = ""
    """Link to the origin of an alert from outside."""
    alert_name: str = ""
    """`alertname`, if it is not the name of the rule."""
    expires_ms: int = 0
    """Time at which an alert from outside has resolved unless it is sent again; 0: an alert of this engine."""

    @property
    def stored_state(self) -> tuple[object, ...]:
        """Fields whose change is stored at once; the value of an alert that fires changes with every evaluation."""
        return self.kind, self.summary, self.annotations, self.expires_ms

    @property
    def labels_with_name(self) -> dict[str, str]:
        """Labels and the rule as `alertname`: what routes and receivers see."""
        return {**dict(self.labels), ALERT_NAME: self.shown_name} if self.rule else dict(self.labels)

    @property
    def shown_name(self) -> str:
        """Name of the alert as receivers see it."""
        return self.alert_name or self.rule

    @property
    def shown_annotations(self) -> dict[str, str]:
        """Annotations as receivers see them."""
        given = dict(self.annotations)
        if self.expires_ms:
            return given
        return {"summary": self.summary, "value": value_text(self.value), "reason": self.reason, **given}

    @property
    def thread(self) -> str:
        """Fingerprint of the alert."""
        return fingerprint(self.rule, self.labels)

    def to_json(self) -> dict[str, Any]:
        """Convert to values for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Notification:
        """Inverse of `to_json`."""
        texts = {
            field: tuple((str(name), str(value)) for name, value in data.get(field, ()))
            for field in ("labels", "annotations")
        }
        receivers = tuple(data.get("receivers", ()))
        return cls(**{**data, **texts, "kind": AlertChange(data["kind"]), "receivers": receivers})


def fingerprint(rule: str, labels: Labels) -> str:
    """Identity of one alert."""
    return digest([rule, labels])


def digest(parts: list[Any]) -> str:
    """Return an identity for values of JSON."""
    return hashlib.sha256(json.dumps(parts, ensure_ascii=True).encode()).hexdigest()[:24]


def notify(
    rule: Rule,
    labels: Labels,
    alert: Alert,
    change: AlertChange,
    sample: Mapping[str, str] | None = None,
    context: TemplateContext = NO_CONTEXT,
    completeness: str = "",
) -> Notification:
    """Make the notification of a change. `sample`: labels of the series, for templates; `completeness`: text about
    missing data, which becomes an annotation."""
    annotations = rule.annotation_texts(labels, alert.value, sample, context)
    if completeness and all(name != COMPLETENESS for name, _ in annotations):
        annotations = (*annotations, (COMPLETENESS, completeness))
    return Notification(
        change, rule.name, labels, rule.expr, rule.threshold_text, rule.hold_ms,
        alert.since_ms, alert.fired_ms, alert.resolved_ms, alert.value, alert.reason,
        rule.text(labels, alert.value, sample, context), rule.receivers,
        annotations, alert_name=rule.alert_name,
    )  # fmt: skip


def resolution_of(firing: Notification, alert: Alert) -> Notification:
    """Make the notification of the end of an alert whose rule was removed or changed, with the texts of its firing."""
    end_ms = alert.resolved_ms
    return replace(firing, kind=AlertChange.RESOLVED, resolved_ms=end_ms, value=alert.value, reason=alert.reason)


def page_link(page: str, expr: str) -> str:
    """Address of the page with this query; "" without a page."""
    return f"{page.rstrip('/')}/?q={quote(expr, safe='')}" if page and expr else ""


def link_of(alert: Notification, page: str) -> str:
    """Address of the origin of an alert; "" if there is none."""
    return alert.source or page_link(page, alert.expr)


DIGEST_KEY = "digest"
"""Group key of messages about several groups."""
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
class Message:
    """State of a group of alerts for one receiver: those that fire first, then those that have resolved since the last
    message. `id` names it, however often it is sent; `thread` is the id of the first message of its thread."""

    receiver: str
    group_key: str
    group_labels: Labels
    alerts: tuple[Notification, ...]
    truncated: int
    """Number of alerts left out."""
    id: str
    thread: str

    @property
    def status(self) -> AlertChange:
        """FIRING if any alert fires."""
        fires = any(one.kind is AlertChange.FIRING for one in self.alerts)
        return AlertChange.FIRING if fires else AlertChange.RESOLVED

    def to_json(self) -> dict[str, Any]:
        """Convert to values for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Message:
        """Inverse of `to_json`."""
        labels = tuple((str(name), str(value)) for name, value in data["group_labels"])
        return cls(**{**data, "group_labels": labels, "alerts": tuple(map(Notification.from_json, data["alerts"]))})

    @classmethod
    def of_one(cls, alert: Notification, receiver: str = "") -> Message:
        """Return a message about one alert, as they were before there were groups."""
        begin, key = digest([alert.rule, alert.labels, alert.fired_ms]), digest([alert.rule, alert.labels])
        id = begin if alert.kind is AlertChange.FIRING else digest([begin])
        return cls(receiver, key, alert.labels, (alert,), 0, id, begin)


def merge(messages: Sequence[Message]) -> Message:
    """Return one message in place of several for one target, in their order: each alert in its latest state."""
    latest = {alert.thread: alert for message in messages for alert in message.alerts}
    alerts = sorted(latest.values(), key=lambda one: one.kind is AlertChange.RESOLVED)
    keys = {message.group_key for message in messages}
    same = messages[-1] if len(keys) == 1 else None
    id = digest([message.id for message in messages])
    return Message(
        messages[-1].receiver,
        same.group_key if same else DIGEST_KEY,
        same.group_labels if same else (),
        tuple(alerts),
        sum(message.truncated for message in messages),
        id,
        same.thread if same else id,
    )


@dataclass(frozen=True, slots=True)
class AlertLetter:
    """Message addressed to one target."""

    message: Message
    target: str

    @property
    def key(self) -> str:
        """Unique key in the outbox, so that a letter is stored only once."""
        return f"{self.message.id}:{self.target}"

    @property
    def thread(self) -> str:
        """Letters of one thread are delivered in order."""
        return f"{digest([self.message.group_key])}:{self.target}"
