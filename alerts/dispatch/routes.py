"""Tree of routes: decides which receivers get an alert, and with which other alerts it forms a group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from alerts.dispatch.inhibition import InhibitRule
from alerts.dispatch.matchers import labels_text, matchers_text, matches
from alerts.dispatch.time_intervals import TimeInterval
from alerts.receivers.receiver_kind import Integration
from alerts.state.notification import ALERT_NAME
from artimon.model.select import Matcher


@dataclass(frozen=True, slots=True)
class Timing:
    """Delays of the messages about a group, in milliseconds.

    `wait_ms`: from the first alert to the first message; `interval_ms`: between messages about changes, 0: at each
    evaluation; `repeat_ms`: until an unchanged group is sent again, 0: never."""

    wait_ms: int = 30_000
    interval_ms: int = 300_000
    repeat_ms: int = 4 * 3_600_000


@dataclass(frozen=True, slots=True)
class EscalationStep:
    """Receiver that is told, too, once an alert has fired for `after_ms` without an acknowledgement."""

    after_ms: int
    receiver: str


AT_ONCE = Timing(0, 0, 0)
"""Timing of rules that name their receivers themselves."""


@dataclass(frozen=True, slots=True)
class Route:
    """Node of the tree. `group_by` None: a group for each alert. `key`: matchers from the root to here."""

    receiver: str
    """Name that messages show."""
    group_by: tuple[str, ...] | None = ()
    timing: Timing = Timing()
    matchers: tuple[Matcher, ...] = ()
    passes_on: bool = False
    """True if later siblings are tried, too (`continue`)."""
    mute_intervals: tuple[str, ...] = ()
    active_intervals: tuple[str, ...] = ()
    routes: tuple[Route, ...] = ()
    key: str = "{}"
    names: tuple[str, ...] = ()
    """Receivers of a rule that names them itself; (): `receiver`."""
    escalation: tuple[EscalationStep, ...] = ()

    def select(self, labels: Mapping[str, str]) -> Iterator[Route]:
        """Yield the routes of an alert that matches this route: the deepest ones, first match unless `continue`."""
        found = False
        for child in self.routes:
            if matches(child.matchers, labels):
                found = True
                yield from child.select(labels)
                if not child.passes_on:
                    break
        if not found:
            yield self

    def group_labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the labels that define the group of an alert."""
        if self.group_by is None:
            return dict(labels)
        return {name: labels[name] for name in self.group_by if name in labels}

    def group_key(self, group_labels: Mapping[str, str]) -> str:
        """Return the identity of a group of this route."""
        return f"{self.key}:{labels_text(group_labels)}"


def child_key(parent: str, matchers: tuple[Matcher, ...]) -> str:
    """Return the key of a child route."""
    return f"{parent}/{matchers_text(matchers)}"


def receivers_route(names: tuple[str, ...]) -> Route:
    """Return the route of rules that name their receivers themselves: one group for each rule, notified without
    delay."""
    shown = ",".join(names)
    return Route(shown, (ALERT_NAME,), AT_ONCE, key=f"receivers {shown}", names=names)


@dataclass(frozen=True, slots=True)
class Routing:
    """Configuration of the dispatcher. `root` None: rules that name no receiver use the default receiver."""

    default: str
    receivers: Mapping[str, tuple[Integration, ...]] = field(default_factory=dict)
    root: Route | None = None
    inhibit_rules: tuple[InhibitRule, ...] = ()
    intervals: Mapping[str, tuple[TimeInterval, ...]] = field(default_factory=dict)

    def routes_of(self, labels: Mapping[str, str], receivers: tuple[str, ...]) -> list[Route]:
        """Return the routes of an alert whose rule names these receivers."""
        if receivers or self.root is None:
            return [receivers_route(receivers or (self.default,))]
        return list(self.root.select(labels))

    def integrations(self, route: Route) -> list[Integration]:
        """Return how to reach the receivers of a route and of its escalation, each target once; the default receiver
        replaces an unknown one."""
        default = self.receivers.get(self.default, ())
        found = [one for name in route.names or (route.receiver,) for one in self.receivers.get(name, default)]
        for step in route.escalation:
            added = self.receivers.get(step.receiver, default)
            found += [replace(one, receiver=step.receiver, after_ms=step.after_ms) for one in added]
        return list({one.target: one for one in reversed(found)}.values())[::-1]

    def is_muted(self, route: Route, now_ms: int) -> bool:
        """Return True if the time intervals of a route forbid messages now."""
        if route.active_intervals and not any(self._within(name, now_ms) for name in route.active_intervals):
            return True
        return any(self._within(name, now_ms) for name in route.mute_intervals)

    def _within(self, name: str, now_ms: int) -> bool:
        return any(one.contains(now_ms) for one in self.intervals.get(name, ()))
