"""View of an engine's rules and alerts after an evaluation: counts for figures, JSON for the znode. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from alerts.dispatch.alert_status import AlertStatus, AlertStatuses
from alerts.evaluation.recorder import RecordingResult
from alerts.evaluation.rule_evaluator import RuleResult
from alerts.rules.rule_folder import ActiveRules
from alerts.state.alert import Alert, AlertPhase, RuleMemory
from alerts.state.notification import Notification, fingerprint, page_link
from alerts.state.publication import encode_display, json_value
from alerts.state.rule import MINUTE_MS, Labels, RecordingRule, Rule
from alerts.templates.template_nodes import Template

ERROR = "error"
"""State of a rule whose evaluation failed."""
ACTIVE = tuple(phase for phase in AlertPhase if phase.active)
RULE_STATES = (ACTIVE[0].value, ERROR, *(phase.value for phase in ACTIVE[1:]), AlertPhase.INACTIVE.value)
"""States of rules in the order in which rules are shown."""
SHOWN_PHASES = tuple(phase for phase in AlertPhase if phase is not AlertPhase.INACTIVE)
MAX_ALERTS_SHOWN = 20_000
NO_PAIR: Mapping[str, Any] = MappingProxyType({})
"""Role of an engine that is alone."""


@dataclass(frozen=True, slots=True)
class AlertView:
    """State after the last evaluation. `page`: address of the page for links; `dispatched`: alerts by fingerprint, as
    receivers see them."""

    id: str
    page: str
    time_ms: int
    active: ActiveRules
    known: Mapping[str, RuleMemory]
    dispatched: Mapping[str, Notification]
    results: Mapping[str, RuleResult]
    statuses: AlertStatuses
    api: str = ""
    """Address of the API of the engine."""
    recorded: Mapping[str, RecordingResult] = field(default_factory=dict)
    """Last evaluation of each recording rule."""

    def encode(self, mail: Mapping[str, Any], pair: Mapping[str, Any] = NO_PAIR) -> bytes:
        """JSON for the znode. Rules are sorted by state (firing, error, pending, inactive), then by name. An engine
        that follows another one shows none."""
        states = {name: self.rule_state(name) for name in self.active.rules}
        names = sorted(states, key=lambda name: (RULE_STATES.index(states[name]), name))
        head = {
            "id": self.id,
            "time_ms": self.time_ms,
            "mail": mail,
            "problems": list(self.active.problems),
            "api": self.api,
            "pair": dict(pair),
        }
        if pair and not pair["leads"]:
            return encode_display(head, (), ())
        records = {one.name: one for one in self.active.records}
        return encode_display(
            head,
            names,
            self.alerts(),
            lambda name: self._recording(records[name]) if name in records else self._rule(name, states[name]),
            records,
            ([name, _annotations(self.active.rules[name])] for name in names),
        )

    def rule_state(self, name: str) -> str:
        """State of a rule: an error, or the state of its most urgent active alert."""
        if self.results[name].error:
            return ERROR
        known = self.known.get(name)
        found = {alert.phase for alert in known.alerts.values()} if known else set()
        return next((phase.value for phase in ACTIVE if phase in found), AlertPhase.INACTIVE.value)

    def rule_counts(self) -> dict[str, int]:
        """Rules by state."""
        counts = Counter(map(self.rule_state, self.active.rules))
        return {state: counts[state] for state in RULE_STATES}

    def alert_counts(self) -> dict[str, int]:
        """Active alerts by phase."""
        counts = Counter(alert.phase for known in self.known.values() for alert in known.alerts.values())
        return {phase.value: counts[phase] for phase in ACTIVE}

    def _rule(self, name: str, state: str) -> dict[str, Any]:
        rule, judged = self.active.rules[name], self.results[name]
        return {
            "name": name,
            "file": rule.file,
            "line": rule.line,
            "expr": rule.expr[:2000],
            "lang": "promql" if rule.is_promql else "artimon",
            "threshold": rule.threshold_text,
            "for_ms": rule.hold_ms,
            "keep_firing_for_ms": rule.keep_ms,
            "state": state,
            "error": judged.error[:500],
            "duration_ms": round(judged.duration_ms, 3),
            "receivers": list(rule.receivers),
            **({"completeness": str(judged.completeness)} if judged.completeness else {}),
            **({"labels": dict(rule.labels)} if rule.labels else {}),
            **({"group": rule.group} if rule.group else {}),
            **({"alert": rule.alert_name} if rule.alert_name else {}),
            **({"interval_ms": rule.interval_ms} if rule.interval_ms != MINUTE_MS else {}),
        }

    def _recording(self, rule: RecordingRule) -> dict[str, Any]:
        last = self.recorded.get(rule.name, RecordingResult())
        return {
            "name": rule.name,
            "record": rule.record,
            "file": rule.file,
            "line": rule.line,
            "expr": rule.query.text[:2000],
            "error": last.error[:500],
            "duration_ms": round(last.duration_ms, 3),
            "time_ms": last.time_ms,
            "group": rule.group,
            **({"labels": dict(rule.labels)} if rule.labels else {}),
            **({"interval_ms": rule.interval_ms} if rule.interval_ms != MINUTE_MS else {}),
        }

    def alerts(self) -> list[dict[str, Any]]:
        """Alerts by phase, the newest of each first."""
        found = [
            (SHOWN_PHASES.index(alert.phase), -max(alert.fired_ms, alert.since_ms), name, labels, alert)
            for name, known in self.known.items()
            for labels, alert in known.alerts.items()
            if alert.phase in SHOWN_PHASES
        ]
        found.sort(key=lambda one: one[:4])
        return [self._alert(name, labels, alert) for _, _, name, labels, alert in found[:MAX_ALERTS_SHOWN]]

    def _alert(self, name: str, labels: Labels, alert: Alert) -> dict[str, Any]:
        rule = self.active.rules.get(name)
        id = fingerprint(name, labels)
        first = self.dispatched.get(id)
        told = first is not None and (rule is None or isinstance(rule.summary, Template))
        summary = first.summary if first and told else rule.text(labels, alert.value) if rule else ""
        firing = first if alert.phase is AlertPhase.FIRING else None
        status = AlertStatus() if firing is None else self.statuses.of(firing)
        return {
            "rule": name,
            **({"alert": rule.alert_name} if rule and rule.alert_name else {}),
            "id": id,
            "labels": dict(labels),
            "state": alert.phase.value,
            "since_ms": alert.since_ms,
            "fired_ms": alert.fired_ms,
            "resolved_ms": alert.resolved_ms,
            "value": json_value(alert.value),
            "reason": alert.reason,
            "summary": summary,
            "link": page_link(self.page, rule.expr if rule else first.expr if first else ""),
            "silenced_by": list(status.silenced_by),
            "inhibited_by": list(status.inhibited_by),
            "acknowledged": status.acknowledged_json(),
        }


def _annotations(rule: Rule) -> dict[str, str]:
    """Templates of the annotations; the summary if the rule has no other."""
    summary = rule.summary if isinstance(rule.summary, str) else rule.summary.text
    return {name: template.text for name, template in rule.annotations} or {"summary": summary}
