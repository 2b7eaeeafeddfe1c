"""Alerts from outside, such as those of a Prometheus: checked, and kept until the engine takes them."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from alerts.receivers.webhook import is_url
from alerts.state.alert import AlertChange
from alerts.state.notification import ALERT_NAME, Notification
from alerts.state.operations import OperationError

MAX_ALERTS = 20_000
"""Alerts that wait for the engine."""
MAX_LABELS = 64
MAX_NAME = 256
MAX_LABEL = 4_096
MAX_ANNOTATION = 16_384
RESOLVE_MS = 300_000
"""Time after which an alert without `endsAt` has resolved unless it is sent again (`resolve_timeout`)."""
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class AlertInbox:
    """Alerts that wait for the engine, the newest state of each. `_lock` guards `_waiting`."""

    def __init__(self) -> None:
        self._waiting: dict[str, Notification] = {}
        self._lock = threading.Lock()

    def add(self, alerts: Iterable[Notification]) -> None:
        """Keep alerts until the engine takes them. Raises OperationError if too many wait."""
        new = {one.thread: one for one in alerts}
        with self._lock:
            after = {**self._waiting, **new}
            if len(after) > MAX_ALERTS:
                raise OperationError(f"{MAX_ALERTS:,} alerts wait for the engine: send them again later", 503)
            self._waiting = after

    def take(self) -> list[Notification]:
        """Return the waiting alerts and forget them."""
        with self._lock:
            taken, self._waiting = self._waiting, {}
        return list(taken.values())

    def give_back(self, alerts: Iterable[Notification]) -> None:
        """Keep alerts that could not be stored; newer states stay."""
        with self._lock:
            self._waiting = {**{one.thread: one for one in alerts}, **self._waiting}


def parse_alert(given: Any, now_ms: int) -> Notification:
    """Return an alert in the form of Alertmanager's API. Raises OperationError."""
    if not isinstance(given, Mapping):
        raise OperationError("an alert is an object with labels")
    labels = {name: value for name, value in _texts(given, "labels", MAX_LABEL).items() if value}
    if not labels:
        raise OperationError("labels: an alert needs at least one")
    annotations = _texts(given, "annotations", MAX_ANNOTATION)
    ends_ms = parse_time(given.get("endsAt"), "endsAt")
    starts_ms = parse_time(given.get("startsAt"), "startsAt") or min(ends_ms or now_ms, now_ms)
    ends_ms = ends_ms or now_ms + RESOLVE_MS
    if ends_ms < starts_ms:
        raise OperationError("endsAt: an alert cannot end before it starts")
    source = str(given.get("generatorURL") or "")
    resolved = ends_ms <= now_ms
    name = labels.pop(ALERT_NAME, "")
    summary = annotations.get("summary") or annotations.get("description") or annotations.get("message") or name
    return Notification(
        AlertChange.RESOLVED if resolved else AlertChange.FIRING, name, tuple(sorted(labels.items())),
        "", "", 0, starts_ms, starts_ms, ends_ms if resolved else 0, None, "", summary,
        annotations=tuple(sorted(annotations.items())), source=source if is_url(source) else "", expires_ms=ends_ms,
    )  # fmt: skip


def parse_time(given: Any, name: str) -> int:
    """Return a time of RFC 3339 in milliseconds; 0 without one. Raises OperationError."""
    if given is None or given == "":
        return 0
    try:
        moment = datetime.fromisoformat(str(given)[:40])
        if moment.tzinfo is None:
            raise ValueError("no zone")
        found = round((moment - datetime.fromtimestamp(0, UTC)).total_seconds() * 1000)
    except (ValueError, OverflowError):
        raise OperationError(f"{name}: {given!r:.60} is no time: write 2026-01-31T12:00:00Z") from None
    return max(0, found)


def _texts(given: Mapping[str, Any], key: str, most: int) -> dict[str, str]:
    found = given.get(key) or {}
    if not isinstance(found, Mapping):
        raise OperationError(f"{key}: write an object of texts")
    if len(found) > MAX_LABELS:
        raise OperationError(f"{key}: {len(found):,} entries: at most {MAX_LABELS}")
    for name, value in found.items():
        if not (isinstance(name, str) and len(name) <= MAX_NAME and _LABEL.fullmatch(name)):
            raise OperationError(f"{key}: {name!r:.80} is no name: use letters, digits and _, at most {MAX_NAME}")
        if not isinstance(value, str):
            raise OperationError(f"{key}: {name}: {value!r:.80} is no text")
        if len(value) > most:
            raise OperationError(f"{key}: {name}: {len(value):,} characters: at most {most:,}")
    return {str(name): str(value) for name, value in found.items()}
