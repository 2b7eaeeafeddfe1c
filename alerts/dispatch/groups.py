"""Groups of alerts, and the log of what each target was told about them. Immutable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from alerts.dispatch.routes import EscalationStep, Route, Timing
from alerts.receivers.receiver_kind import Integration
from alerts.state.alert import AlertChange
from alerts.state.notification import Message, Notification, digest

NEVER_MS = 2**62
"""Time of the next message of a group that waits for a change."""


@dataclass(frozen=True, slots=True)
class TargetLog:
    """State of a group as last told to one target. Alerts are named by their fingerprints.

    `thread_ms`, `sequence`: first message of the present thread and number of messages since; a thread ends once all
    its alerts have resolved."""

    firing: frozenset[str] = frozenset()
    resolved: frozenset[str] = frozenset()
    time_ms: int = 0
    thread_ms: int = 0
    sequence: int = 0

    def needs_update(self, firing: frozenset[str], resolved: frozenset[str], one: Integration, until_ms: int) -> bool:
        """Return True if the target must be told. `until_ms`: messages before it are repeated."""
        if not firing <= self.firing:
            return True
        if not firing:
            return bool(self.firing)
        if one.send_resolved and not resolved <= self.resolved:
            return True
        return self.time_ms <= until_ms

    def after(self, firing: frozenset[str], resolved: frozenset[str], now_ms: int) -> TargetLog:
        """Return the log once the target is told at `now_ms`."""
        goes_on = bool(self.firing)
        thread_ms, sequence = (self.thread_ms, self.sequence + 1) if goes_on else (now_ms, 0)
        return TargetLog(firing, resolved, now_ms, thread_ms, sequence)


@dataclass(frozen=True, slots=True)
class Group:
    """Alerts of one route with equal labels. `members`: fingerprints; `next_ms`: time of the next message."""

    route: Route
    labels: Mapping[str, str]
    next_ms: int
    members: frozenset[str] = frozenset()
    flushed: bool = False
    log: Mapping[str, TargetLog] = field(default_factory=dict)
    """Target -> what it was told."""

    @property
    def key(self) -> str:
        """Identity as receivers see it; groups of different receivers may share it."""
        return self.route.group_key(self.labels)

    @property
    def id(self) -> str:
        """Identity of the group."""
        return group_id(self.route, self.labels)

    def to_json(self) -> dict[str, Any]:
        """Convert to values for JSON. Of the route only what later messages need is kept."""
        route = self.route
        kept = ("receiver", "group_by", "key", "names", "mute_intervals", "active_intervals")
        return {
            "route": {
                **{name: getattr(route, name) for name in kept},
                "timing": asdict(route.timing),
                **({"escalation": [asdict(step) for step in route.escalation]} if route.escalation else {}),
            },
            "labels": dict(self.labels),
            "next_ms": self.next_ms,
            "members": sorted(self.members),
            "flushed": self.flushed,
            "log": {
                target: {**asdict(log), "firing": sorted(log.firing), "resolved": sorted(log.resolved)}
                for target, log in self.log.items()
            },
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Group:
        """Inverse of `to_json`."""
        route: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data["route"].items()
        }
        route["timing"] = Timing(**route["timing"])
        route["escalation"] = tuple(EscalationStep(**step) for step in route.get("escalation", ()))
        log = {
            target: TargetLog(**{**told, "firing": frozenset(told["firing"]), "resolved": frozenset(told["resolved"])})
            for target, told in data["log"].items()
        }
        return cls(
            Route(**route),
            data["labels"],
            data["next_ms"],
            frozenset(data["members"]),
            data["flushed"],
            log,
        )

    def tell(
        self,
        alerts: Iterable[Notification],
        integrations: Iterable[Integration],
        now_ms: int,
        *,
        waiting_ms: int | None = 0,
    ) -> tuple[Group, list[tuple[Message, str]]]:
        """Return the group and the messages with their targets, once these alerts are told to all who need them.

        `waiting_ms`: time for which one of them has fired without an acknowledgement; None: there is no such alert, and
        the group is not told again after its `repeat_interval`."""
        shown = sorted(alerts, key=lambda one: (one.kind is AlertChange.RESOLVED, -one.fired_ms, one.labels))
        firing = frozenset(one.thread for one in shown if one.kind is AlertChange.FIRING)
        resolved = frozenset(one.thread for one in shown if one.kind is AlertChange.RESOLVED)
        log, told = dict(self.log), []
        current = {one.target: one for one in integrations}
        repeat_ms = self.route.timing.repeat_ms if waiting_ms is not None else 0
        for target, one in current.items():
            before = log.get(target, TargetLog())
            if one.after_ms > (waiting_ms or 0) and not before.firing:
                continue
            if not before.needs_update(firing, resolved, one, now_ms - repeat_ms if repeat_ms else -1):
                continue
            log[target] = before.after(firing, resolved, now_ms)
            if firing or one.send_resolved:
                listed = shown if one.send_resolved else [a for a in shown if a.kind is AlertChange.FIRING]
                told.append((self._message(listed, one.max_alerts, log[target], one.receiver), target))
        for target in set(log) - set(current):  # a receiver without this address: it gets the ends of what it was told
            ended = [one for one in shown if one.thread in log[target].firing & resolved]
            if ended:
                left = log[target].after(log[target].firing - resolved, resolved, now_ms)
                told.append((self._message(ended, 0, left), target))
                log[target] = left
        return replace(self, log=log), told

    def next_escalation_ms(self, begins_ms: Iterable[int], now_ms: int) -> int:
        """Return the time of the next step for alerts without an acknowledgement; `begins_ms`: their begins."""
        steps = [begin + step.after_ms for begin in begins_ms for step in self.route.escalation]
        return min((time_ms for time_ms in steps if time_ms > now_ms), default=NEVER_MS)

    def _message(self, alerts: list[Notification], most: int, log: TargetLog, receiver: str = "") -> Message:
        listed = tuple(alerts[:most] if most else alerts)
        return Message(
            receiver or self.route.receiver,
            self.key,
            tuple(sorted(self.labels.items())),
            listed,
            len(alerts) - len(listed),
            digest([self.id, log.thread_ms, log.sequence]),
            digest([self.id, log.thread_ms, 0]),
        )


def group_id(route: Route, labels: Mapping[str, str]) -> str:
    """Return the identity of the group with these labels."""
    return digest([route.receiver, route.group_key(labels)])
