"""Dispatcher: keeps alerts in groups, and makes the messages that are due. Pure: the caller brings the time.

Meaning as in Alertmanager: a new group waits (`group_wait`), then is told about changes once in `group_interval`, and
repeated after `repeat_interval`. Alerts that are muted by time, inhibition or a silence are left out of a message; an
alert that resolves while it is muted is forgotten in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from alerts.dispatch.groups import NEVER_MS, Group, TargetLog, group_id
from alerts.dispatch.inhibition import Inhibitor
from alerts.dispatch.routes import Route, Routing
from alerts.state.alert import AlertChange
from alerts.state.notification import AlertLetter, Notification
from alerts.state.operations import HistoryEntry

Silenced = Callable[[Mapping[str, str], int], bool]
"""Return True if a silence hides an alert with these labels at a time."""


def never_silenced(_labels: Mapping[str, str], _now_ms: int) -> bool:
    """Default of `Silenced`: there are no silences."""
    return False


Acknowledged = Callable[[Notification, int], object]
"""Return something true if somebody takes care of an alert at a time."""


def never_acknowledged(_alert: Notification, _now_ms: int) -> bool:
    """Default of `Acknowledged`."""
    return False


@dataclass(frozen=True, slots=True)
class DispatchChanges:
    """Entries to store, by identity; None: deleted."""

    alerts: Mapping[str, Notification | None]
    groups: Mapping[str, Group | None]
    history: tuple[HistoryEntry, ...] = ()
    """Begins and ends of alerts."""


@dataclass(slots=True)
class Dispatcher:
    """Alerts by fingerprint and groups by id. `copy` before changes that may have to be undone."""

    routing: Routing
    alerts: dict[str, Notification] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    told_before: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Targets that were told of an alert's firing before there were groups (databases of version 1)."""
    _routed: dict[str, Routing | None] = field(default_factory=dict)
    """Configuration by which an alert was last routed; None: one before the start."""
    _dirty_alerts: set[str] = field(default_factory=set)
    _dirty_groups: set[str] = field(default_factory=set)
    _history: list[HistoryEntry] = field(default_factory=list)

    def __post_init__(self) -> None:
        for group in self.groups.values():
            for one in group.members:
                self._routed.setdefault(one, None)

    def copy(self) -> Dispatcher:
        """Return an independent dispatcher with equal state."""
        return Dispatcher(
            self.routing,
            dict(self.alerts),
            dict(self.groups),
            dict(self.told_before),
            dict(self._routed),
            set(self._dirty_alerts),
            set(self._dirty_groups),
            list(self._history),
        )

    def take_changes(self) -> DispatchChanges:
        """Return the changes since the last call."""
        changes = DispatchChanges(
            {one: self.alerts.get(one) for one in self._dirty_alerts},
            {one: self.groups.get(one) for one in self._dirty_groups},
            tuple(self._history),
        )
        self._dirty_alerts, self._dirty_groups, self._history = set(), set(), []
        return changes

    def next_ms(self) -> int:
        """Return the time of the next message."""
        return min((group.next_ms for group in self.groups.values()), default=NEVER_MS)

    def put(self, alerts: Iterable[Notification], now_ms: int) -> None:
        """Take the alerts that fire, and those that have resolved."""
        joined: dict[str, tuple[Route, Mapping[str, str], set[str]]] = {}
        for alert in alerts:
            one = alert.thread
            known = self.alerts.get(one)
            if known is None and alert.kind is AlertChange.RESOLVED:
                continue
            if known is not None and alert.expires_ms and not known.expires_ms:
                continue  # an alert of a rule of this engine is not changed from outside
            self._keep(one, known, alert)
            if alert.kind is AlertChange.FIRING and self._must_route(one, alert):
                self._join(one, alert, joined)
        for id, (route, labels, members) in joined.items():
            self._add_members(id, route, labels, members, now_ms)
        for id, group in self.groups.items():
            if group.route.timing.interval_ms == 0 and group.members:
                self.groups[id] = replace(group, next_ms=min(group.next_ms, now_ms))

    def _keep(self, one: str, known: Notification | None, alert: Notification) -> None:
        if known is None or known.kind is not alert.kind:
            self._history.append(history_entry(alert))
        if known is None or known.stored_state != alert.stored_state:
            self._dirty_alerts.add(one)
        self.alerts[one] = alert

    def end_expired(self, now_ms: int) -> None:
        """Resolve the alerts from outside that were not sent again in time."""
        for one, alert in list(self.alerts.items()):
            if alert.expires_ms and alert.expires_ms <= now_ms and alert.kind is AlertChange.FIRING:
                self._keep(one, alert, replace(alert, kind=AlertChange.RESOLVED, resolved_ms=alert.expires_ms))

    def _must_route(self, one: str, alert: Notification) -> bool:
        """Return True for an alert without a group, and for one whose routes may have changed."""
        if one not in self._routed:
            return True
        by_tree = self.routing.root is not None and not alert.receivers
        return by_tree and self._routed[one] is not self.routing

    def _join(
        self, one: str, alert: Notification, joined: dict[str, tuple[Route, Mapping[str, str], set[str]]]
    ) -> None:
        labels = alert.labels_with_name
        for route in self.routing.routes_of(labels, alert.receivers):
            group_labels = route.group_labels(labels)
            id = group_id(route, group_labels)
            joined.setdefault(id, (route, group_labels, set()))[2].add(one)
        self._routed[one] = self.routing

    def _add_members(self, id: str, route: Route, labels: Mapping[str, str], members: set[str], now_ms: int) -> None:
        wait_ms = route.timing.wait_ms
        group = self.groups.get(id) or Group(route, labels, now_ms + wait_ms)
        fresh = members - group.members
        earliest_ms = min((self.alerts[one].fired_ms for one in fresh), default=now_ms)
        next_ms = now_ms if not group.flushed and earliest_ms + wait_ms < now_ms else group.next_ms
        log = {**group.log}
        for one in fresh:
            for target in self.told_before.pop(one, ()):
                before = log.get(target, TargetLog(time_ms=now_ms, thread_ms=self.alerts[one].fired_ms))
                log[target] = replace(before, firing=before.firing | {one})
        self.groups[id] = replace(group, route=route, members=group.members | members, next_ms=next_ms, log=log)
        self._dirty_groups.add(id)

    def inhibitor(self) -> Inhibitor:
        """Return the inhibition by the alerts that fire."""
        alerts = self.alerts.items()
        firing = ((one, alert.labels_with_name) for one, alert in alerts if alert.kind is AlertChange.FIRING)
        return Inhibitor(self.routing.inhibit_rules, firing)

    def flush(
        self,
        now_ms: int,
        silenced: Silenced = never_silenced,
        acknowledged: Acknowledged = never_acknowledged,
    ) -> list[AlertLetter]:
        """Return the messages that are due, for each target."""
        due = [id for id, group in self.groups.items() if group.next_ms <= now_ms]
        if not due:
            return []
        self.end_expired(now_ms)
        inhibitor = self.inhibitor()
        letters: list[AlertLetter] = []
        for id in due:
            group, escalation_ms = self.groups[id], NEVER_MS
            members = [self.alerts[one] for one in group.members]
            shown = [] if self.routing.is_muted(group.route, now_ms) else members
            shown = [one for one in shown if not self._hidden(one, inhibitor, silenced, now_ms)]
            if shown:
                begins_ms = self._unacknowledged_ms(shown, acknowledged, now_ms)
                waiting_ms = max(0, now_ms - min(begins_ms)) if begins_ms else None  # senders' clocks may be ahead
                current = self.routing.integrations(group.route)
                group, told = group.tell(shown, current, now_ms, waiting_ms=waiting_ms)
                letters += [AlertLetter(message, target) for message, target in told]
                escalation_ms = group.next_escalation_ms(begins_ms, now_ms)
            self._end_flush(id, group, now_ms, escalation_ms)
        self._forget_resolved()
        return letters

    def _unacknowledged_ms(self, shown: Iterable[Notification], acknowledged: Acknowledged, now_ms: int) -> list[int]:
        """Return when the alerts began that fire without an acknowledgement."""
        firing = (one for one in shown if one.kind is AlertChange.FIRING)
        return [one.fired_ms for one in firing if not acknowledged(one, now_ms)]

    def _hidden(self, alert: Notification, inhibitor: Inhibitor, silenced: Silenced, now_ms: int) -> bool:
        labels = alert.labels_with_name
        return inhibitor.mutes(labels) or silenced(labels, now_ms)

    def _end_flush(self, id: str, group: Group, now_ms: int, escalation_ms: int) -> None:
        left = frozenset(one for one in group.members if self.alerts[one].kind is AlertChange.FIRING)
        interval_ms = group.route.timing.interval_ms
        next_ms = min(now_ms + interval_ms if interval_ms else NEVER_MS, escalation_ms)
        before, after = self.groups[id], replace(group, members=left, flushed=True, next_ms=next_ms)
        if interval_ms or replace(after, next_ms=before.next_ms) != before:
            self._dirty_groups.add(id)
        if left:
            self.groups[id] = after
        else:
            del self.groups[id]

    def _forget_resolved(self) -> None:
        grouped = {one for group in self.groups.values() for one in group.members}
        for one in [one for one, alert in self.alerts.items() if alert.kind is AlertChange.RESOLVED]:
            if one not in grouped:
                del self.alerts[one]
                self._routed.pop(one, None)
                self._dirty_alerts.add(one)


def history_entry(alert: Notification) -> HistoryEntry:
    """Return the entry for the begin or end of an alert."""
    time_ms = alert.fired_ms if alert.kind is AlertChange.FIRING else alert.resolved_ms
    return HistoryEntry(
        time_ms, alert.thread, alert.kind.value, alert.rule, dict(alert.labels), alert.summary, alert.reason
    )
