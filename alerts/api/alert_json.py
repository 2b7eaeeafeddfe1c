"""Forms of Alertmanager's API v2 for alerts and silences. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alerts.dispatch.alert_status import AlertStatus
from alerts.dispatch.foreign_alerts import RESOLVE_MS, parse_time
from alerts.dispatch.silences import Silence, checked_matchers
from alerts.state.notification import Notification, link_of
from alerts.state.operations import OperationError
from query_dsl.tree.times import format_time

_OPERATORS = {(True, False): "=", (True, True): "=~", (False, False): "!=", (False, True): "!~"}


def alert_json(
    alert: Notification, status: AlertStatus, receivers: list[str], now_ms: int, page: str
) -> dict[str, Any]:
    """Return an alert. `acknowledged` is an addition to the form of Alertmanager."""
    return {
        "annotations": {name: text for name, text in alert.shown_annotations.items() if text or alert.expires_ms},
        "endsAt": format_time(alert.expires_ms or now_ms + RESOLVE_MS),
        "fingerprint": alert.thread,
        "receivers": [{"name": name} for name in receivers],
        "startsAt": format_time(alert.fired_ms),
        "status": {
            "inhibitedBy": list(status.inhibited_by),
            "silencedBy": list(status.silenced_by),
            "state": status.state,
        },
        "updatedAt": format_time(now_ms),
        "generatorURL": link_of(alert, page),
        "labels": alert.labels_with_name,
        "acknowledged": status.acknowledged_json(),
    }


def silence_json(silence: Silence, now_ms: int) -> dict[str, Any]:
    return {
        "id": silence.id,
        "status": {"state": silence.state(now_ms).value},
        "updatedAt": format_time(silence.updated_ms),
        "comment": silence.comment,
        "createdBy": silence.author,
        "startsAt": format_time(silence.starts_ms),
        "endsAt": format_time(silence.ends_ms),
        "matchers": [
            {"name": one.label, "value": one.value, "isRegex": "~" in one.op, "isEqual": not one.op.startswith("!")}
            for one in silence.matchers
        ],
    }


def parse_silence(given: Any) -> Silence:
    """Return the silence that a client wants. Raises OperationError."""
    if not isinstance(given, Mapping):
        raise OperationError("a silence is an object")
    matchers = given.get("matchers")
    if not isinstance(matchers, list):
        raise OperationError("matchers: write a list")
    starts_ms, ends_ms = (parse_time(given.get(key), key) for key in ("startsAt", "endsAt"))
    if not (starts_ms and ends_ms):
        raise OperationError("startsAt, endsAt: a silence needs both")
    author, comment = str(given.get("createdBy") or ""), str(given.get("comment") or "")
    found = checked_matchers(_matcher(one) for one in matchers)
    return Silence(str(given.get("id") or ""), found, starts_ms, ends_ms, author, comment)


def _matcher(given: Any) -> tuple[str, str, str]:
    if not isinstance(given, Mapping):
        raise OperationError("matchers: each is an object with name, value, isRegex and isEqual")
    name, value = given.get("name"), given.get("value")
    if not (isinstance(name, str) and isinstance(value, str)):
        raise OperationError("matchers: name and value are texts")
    equal = given.get("isEqual")
    return name, _OPERATORS[equal is None or bool(equal), bool(given.get("isRegex"))], value
