"""Routing of an engine's receivers, and the dispatcher as rows of the database."""

from __future__ import annotations

from dataclasses import replace

from alerts.dispatch.dispatcher import Dispatcher
from alerts.dispatch.foreign_alerts import RESOLVE_MS
from alerts.dispatch.groups import Group
from alerts.dispatch.routes import Routing
from alerts.receivers.receiver_kind import Integration, receiver_kinds
from alerts.rules.rule_file import DEFAULT_RECEIVER
from alerts.rules.rule_folder import ActiveRules
from alerts.state.alert import AlertChange
from alerts.state.alert_database import DispatchCommit, EngineState
from alerts.state.notification import AlertLetter, Notification, split_target


def routing_of(force: ActiveRules) -> Routing:
    """Return the routing without a routing file: each receiver of the rules has its targets."""
    receivers = {
        name: tuple(Integration(target, max_alerts=max_alerts_of(target)) for target in targets)
        for name, targets in force.receivers.items()
    }
    return Routing(DEFAULT_RECEIVER, receivers)


def restored_dispatcher(memory: EngineState, now_ms: int) -> Dispatcher:
    """Return the dispatcher of a stored state. Alerts from outside, which could not be sent while the engine was down,
    get time to be sent again."""
    alerts = {one: Notification.from_json(data) for one, data in memory.dispatched.items()}
    for one, alert in alerts.items():
        if alert.expires_ms and alert.kind is AlertChange.FIRING:
            alerts[one] = replace(alert, expires_ms=max(alert.expires_ms, now_ms + RESOLVE_MS))
    groups = {id: Group.from_json(data) for id, data in memory.groups.items()}
    return Dispatcher(Routing(DEFAULT_RECEIVER), alerts, groups, dict(memory.told_before))


def dispatch_commit(dispatcher: Dispatcher, letters: list[AlertLetter], now_ms: int) -> DispatchCommit:
    """Return what changed in the dispatcher since the last commit."""
    changes = dispatcher.take_changes()
    return DispatchCommit(
        now_ms,
        letters,
        {one: alert and alert.to_json() for one, alert in changes.alerts.items()},
        {id: group and group.to_json() for id, group in changes.groups.items()},
        changes.history,
    )


def max_alerts_of(target: str) -> int:
    """Return the maximum number of alerts in a letter to a target; 0: no limit."""
    kind = receiver_kinds().get(split_target(target)[0])
    return kind.max_alerts if kind else 0
