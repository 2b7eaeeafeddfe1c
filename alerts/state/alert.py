"""State machine of one alert: pure decisions on verdicts and evaluation times, without clock, files or mail.

Times are ends of evaluated buckets, epoch milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from typing import Any

from alerts.state.conditions import Value
from alerts.state.rule import FlapLimit, Labels

MAX_GAP_MS = 3_600_000
"""A pending alert restarts its waiting time if its condition was not confirmed for longer than this."""
SHOWN_MS = 900_000
"""Time for which a resolved alert stays on display."""


class AlertPhase(StrEnum):
    """State of an alert, in the order in which alerts are shown."""

    FIRING = "firing"
    PENDING = "pending"
    RESOLVED = "resolved"
    INACTIVE = "inactive"

    @property
    def active(self) -> bool:
        """True for the phases that give their rule a state of the same name."""
        return self in (AlertPhase.FIRING, AlertPhase.PENDING)

    @property
    def notified(self) -> bool:
        """True once receivers were notified of the firing."""
        return self in (AlertPhase.FIRING, AlertPhase.RESOLVED)


class Outcome(Enum):
    """Result of one evaluation for one alert."""

    TRUE = "the threshold is fulfilled"
    FALSE = "it is not"
    BETWEEN = "it is not, but the recovery threshold is not fulfilled either"
    KEEP = "nothing is known, and the alert stays as it is"


class AlertChange(StrEnum):
    """Change of an alert that receivers are notified of."""

    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class AlertVerdict:
    """Verdict on one alert. `value` None: no data. `reason`: the cause if the value did not decide."""

    outcome: Outcome
    value: Value | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Alert:
    """State of one alert: one rule and one set of labels.

    Times of evaluations: `since_ms`: start of the present run of true verdicts, which a false one ends; `true_ms`: last
    true verdict; `data_ms`: last evaluation with a value. Invariant: since_ms <= fired_ms <= resolved_ms where they are
    not 0."""

    phase: AlertPhase
    since_ms: int
    true_ms: int
    data_ms: int
    value: Value | None
    fired_ms: int = 0
    resolved_ms: int = 0
    reason: str = ""
    kept_ms: int = 0
    """First evaluation at which the condition did not hold although the alert fires on (`keep_firing_for`); 0: none."""
    ended_ms: tuple[int, ...] = ()
    """Ends of earlier firings, for a rule with a FlapLimit."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Alert:
        """Return an alert from its fields as JSON has them. Raises TypeError, ValueError, KeyError."""
        return cls(**{**data, "phase": AlertPhase(data["phase"]), "ended_ms": tuple(data.get("ended_ms", ()))})

    def ends(self, now_ms: int, flaps: FlapLimit | None) -> tuple[int, ...]:
        """Return the ends that count for a limit."""
        return tuple(end for end in self.ended_ms if flaps and end > now_ms - flaps.within_ms)


@dataclass(frozen=True, slots=True)
class RuleMemory:
    """State of one rule between evaluations."""

    digest: str
    alerts: Mapping[Labels, Alert] = field(default_factory=dict)


def next_state(
    alert: Alert | None,
    verdict: AlertVerdict,
    now_ms: int,
    hold_ms: int,
    keep_ms: int = 0,
    flaps: FlapLimit | None = None,
) -> tuple[Alert | None, AlertChange | None]:
    """Return the alert after the evaluation at `now_ms` (None: there is none), and the change to notify, if any.

    `keep_ms`: time for which an alert fires on after its condition held last (`keep_firing_for`). An alert that flaps
    keeps the ends that it had when it began to fire.

    >>> bad, well = AlertVerdict(Outcome.TRUE, 0), AlertVerdict(Outcome.FALSE, 1)
    >>> alert, change = next_state(None, bad, 60_000, 60_000)
    >>> alert.phase, change
    (<AlertPhase.PENDING: 'pending'>, None)
    >>> alert, change = next_state(alert, bad, 120_000, 60_000)
    >>> alert.phase, change
    (<AlertPhase.FIRING: 'firing'>, <AlertChange.FIRING: 'firing'>)
    >>> next_state(alert, well, 180_000, 60_000)[1]
    <AlertChange.RESOLVED: 'resolved'>
    """
    phase = alert.phase if alert else AlertPhase.INACTIVE
    ends = alert.ends(now_ms, flaps) if alert else ()
    if flaps and alert and phase is AlertPhase.FIRING and len(alert.ended_ms) >= flaps.ends:
        keep_ms = max(keep_ms, flaps.within_ms)
        verdict = replace(verdict, reason=verdict.reason or f"flaps: it ended {len(alert.ended_ms)} times")
    match phase, verdict.outcome:
        case AlertPhase.FIRING, Outcome.FALSE if alert and now_ms - (alert.kept_ms or now_ms) < keep_ms:
            return replace(alert, kept_ms=alert.kept_ms or now_ms), None
        case AlertPhase.FIRING, Outcome.FALSE if alert:
            value = alert.value if verdict.value is None else verdict.value
            calm = flaps is None or len(alert.ended_ms) >= flaps.ends
            ended = replace(alert, phase=AlertPhase.RESOLVED, resolved_ms=now_ms, value=value, reason=verdict.reason)
            return replace(ended, kept_ms=0, ended_ms=() if calm else (*ends, now_ms)), AlertChange.RESOLVED
        case AlertPhase.FIRING, _ if alert:
            return _with_value(alert, verdict, now_ms), None
        case AlertPhase.PENDING, Outcome.KEEP:
            return alert, None
        case AlertPhase.PENDING, Outcome.TRUE if alert:
            since = now_ms if now_ms - alert.true_ms > MAX_GAP_MS else min(alert.since_ms, now_ms)
            return _promote_pending(replace(_with_value(alert, verdict, now_ms), since_ms=since), now_ms, hold_ms)
        case _, Outcome.TRUE:
            data_ms = now_ms if verdict.value is not None else alert.data_ms if alert else 0
            fresh = Alert(
                AlertPhase.PENDING, now_ms, now_ms, data_ms, verdict.value, reason=verdict.reason, ended_ms=ends
            )
            return _promote_pending(fresh, now_ms, hold_ms)
        case AlertPhase.RESOLVED, _ if alert and (ends or now_ms - alert.resolved_ms < SHOWN_MS):
            return alert, None
        case AlertPhase.PENDING, _ if alert and ends:
            end_ms = ends[-1]
            return replace(alert, phase=AlertPhase.RESOLVED, since_ms=end_ms, fired_ms=end_ms, resolved_ms=end_ms), None
    return None, None


def _promote_pending(alert: Alert, now_ms: int, hold_ms: int) -> tuple[Alert, AlertChange | None]:
    if now_ms - alert.since_ms < hold_ms:
        return alert, None
    return replace(alert, phase=AlertPhase.FIRING, fired_ms=now_ms), AlertChange.FIRING


def _with_value(alert: Alert, verdict: AlertVerdict, now_ms: int) -> Alert:
    """Update the alert by the newest verdict; without a value the last one stays."""
    holds = verdict.outcome is Outcome.TRUE
    true_ms, kept_ms = (now_ms, 0) if holds else (alert.true_ms, alert.kept_ms)
    changed = replace(alert, true_ms=true_ms, kept_ms=kept_ms, reason=verdict.reason)
    return changed if verdict.value is None else replace(changed, data_ms=now_ms, value=verdict.value)
