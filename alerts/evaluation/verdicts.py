"""Verdicts on the answer to a rule: its alerts, the judgement of each value, and the policy for missing data. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from alerts.state.alert import Alert, AlertChange, AlertPhase, AlertVerdict, Outcome, next_state
from alerts.state.conditions import ConditionError, Value
from alerts.state.rule import Labels, MissingDataPolicy, RecordingRule, Rule
from alerts.templates.template_functions import NO_CONTEXT, TemplateContext
from artimon.model.grid import Grid
from query_dsl import Matrix
from query_dsl.results.result_cells import SeriesKey
from query_dsl.tree.selector import series_text
from query_dsl.tree.times import format_duration

MAX_ALERTS = 10_000
"""Maximum number of alerts of one rule."""
MISSING_MS = 86_400_000
"""Time without data after which an alert ends under every policy for missing data."""

NewestValues = Sequence[tuple[SeriesKey, Value | None]]
AlertValues = Mapping[Labels, Value]
HasEnded = Callable[[Labels], bool]


class RuleFailedError(Exception):
    """Rule that cannot be judged in this evaluation; its alerts stay as they are."""


@dataclass(frozen=True, slots=True)
class AlertStep:
    """One alert after the evaluation; `alert` None: it has ended. `change`: notification to send, if any."""

    labels: Labels
    alert: Alert | None
    change: AlertChange | None


def newest_values(matrix: Matrix) -> NewestValues:
    """Each series with its value in the newest bucket; None without one."""
    return values_at(matrix, matrix.grid.n - 1)


def values_at(matrix: Matrix, at: int, rows: Sequence[int] | None = None) -> NewestValues:
    """Each series, or those of `rows`, with its value in bucket `at`; None without one."""
    if not matrix.keys:
        return []
    bucket = bucket_at(matrix, at, rows)
    return list(zip(bucket.keys, bucket.latest(), strict=True))


def bucket_at(matrix: Matrix, at: int, rows: Sequence[int] | None = None) -> Matrix:
    """Return bucket `at` of all series, or of those of `rows`."""
    chosen = slice(None) if rows is None else rows
    keys = matrix.keys if rows is None else tuple(matrix.keys[row] for row in rows)
    column, one = matrix.column, slice(at, at + 1)
    cells = type(column)(column.types[chosen], column.cells[chosen, one], column.present[chosen, one])
    return Matrix(keys, Grid(int(matrix.grid.ends()[at]), 1, 1), cells, matrix.strings)


def values_by_alert(
    rule: Rule, newest: NewestValues, context: TemplateContext = NO_CONTEXT
) -> tuple[dict[Labels, Value], dict[Labels, str], dict[Labels, SeriesKey]]:
    """Labels of each alert -> newest value; labels that two series would share -> message; labels -> series."""
    found: dict[Labels, Value] = {}
    failed: dict[Labels, str] = {}
    first: dict[Labels, SeriesKey] = {}
    for key, value in newest:
        labels = rule.alert_labels(key.labels, value, key.name, context)
        if labels in first:
            pair = " and ".join(series_text(one.name, dict(one.labels)) for one in (first[labels], key))
            failed[labels] = f"{pair} give the same alert: select one variable, or reduce by the labels of the alert"
        first[labels] = key
        if value is not None:
            found[labels] = value
    return {labels: value for labels, value in found.items() if labels not in failed}, failed, first


def recorded_series(rule: RecordingRule, newest: NewestValues) -> list[tuple[Mapping[str, str], float]]:
    """Return labels and values of recorded series. Raises RuleFailedError."""
    found: list[tuple[Mapping[str, str], float]] = [
        (rule.series_labels(dict(key.labels)), float(value)) for key, value in newest if value is not None
    ]
    if rule.limit and len(found) > rule.limit:
        raise RuleFailedError(f"exceeded limit of {rule.limit} with {len(found)} series")
    if len({tuple(sorted(labels.items())) for labels, _ in found}) < len(found):
        raise RuleFailedError("vector contains metrics with the same labelset after applying rule labels")
    return found


def verdict_on(rule: Rule, value: Value) -> AlertVerdict:
    """Verdict on a value. ConditionError if the condition does not apply to its type."""
    if rule.threshold is None:
        return AlertVerdict(Outcome.TRUE, value)
    if rule.threshold.holds(value):
        return AlertVerdict(Outcome.TRUE, value)
    if rule.resolve is not None and not rule.resolve.holds(value):
        return AlertVerdict(Outcome.BETWEEN, value)
    return AlertVerdict(Outcome.FALSE, value)


def verdict_without_data(
    rule: Rule, alert: Alert, now_ms: int, *, ended: bool, lagging: bool, recovered: bool = True
) -> AlertVerdict:
    """Verdict on an alert whose series has no value in the newest bucket."""
    if rule.threshold is None:  # the absence of the series is the answer
        if lagging:
            return AlertVerdict(Outcome.KEEP, reason="no data")
        return AlertVerdict(Outcome.FALSE if recovered else Outcome.BETWEEN)
    if ended:
        return AlertVerdict(Outcome.FALSE, reason="the source says that the series ended")
    if now_ms - (alert.data_ms or alert.since_ms) > MISSING_MS:
        return AlertVerdict(Outcome.FALSE, reason=f"no data for {format_duration(MISSING_MS)}")
    if lagging or rule.missing is MissingDataPolicy.KEEP:
        return AlertVerdict(Outcome.KEEP, reason="no data")
    if rule.missing is MissingDataPolicy.FIRE:
        return AlertVerdict(Outcome.TRUE, reason="no data")
    return AlertVerdict(Outcome.FALSE, reason="no data")


def advance(
    rule: Rule,
    alerts: Mapping[Labels, Alert],
    answer: AlertValues,
    now_ms: int,
    ended: HasEnded,
    lagging: bool = False,
    failed: dict[Labels, str] | None = None,
    recovered: Collection[Labels] | None = None,
) -> list[AlertStep]:
    """Steps of the rule's alerts that exist before or after the evaluation at `now_ms`.

    `alerts`: the alerts before. `ended`: True if all series behind these labels have ended. `failed`: alerts that
    cannot be judged, with the reason; they stay as they are, and more are added here. `recovered`: alerts that
    resolve without a series; None: all. RuleFailedError: no change."""
    steps = []
    failed = {} if failed is None else failed
    for labels, value in answer.items():
        known = alerts.get(labels)
        try:
            verdict = verdict_on(rule, value)
        except ConditionError as problem:
            failed[labels] = str(problem)
            continue
        if known is None and verdict.outcome is not Outcome.TRUE and rule.missing is not MissingDataPolicy.FIRE:
            continue
        alert, change = next_state(known, verdict, now_ms, rule.hold_ms, rule.keep_ms, rule.flaps)
        if (
            alert is None and rule.missing is MissingDataPolicy.FIRE
        ):  # remembered, so that missing data is detected later
            alert = Alert(AlertPhase.INACTIVE, 0, 0, now_ms, value)
        steps.append(AlertStep(labels, alert, change))
    for labels, known in alerts.items():
        if labels not in answer and labels not in failed:
            verdict = verdict_without_data(
                rule, known, now_ms, ended=ended(labels), lagging=lagging,
                recovered=recovered is None or labels in recovered,
            )  # fmt: skip
            steps.append(_step_without_value(rule, labels, known, now_ms, verdict))
    if sum(one.alert is not None for one in steps) > MAX_ALERTS:
        raise RuleFailedError(f"more than {MAX_ALERTS} alerts at once: reduce to fewer series, or narrow the selector")
    return steps


def _step_without_value(rule: Rule, labels: Labels, known: Alert, now_ms: int, verdict: AlertVerdict) -> AlertStep:
    alert, change = next_state(known, verdict, now_ms, rule.hold_ms, rule.keep_ms, rule.flaps)
    if known.phase is AlertPhase.INACTIVE and verdict.outcome is Outcome.KEEP:
        alert = known
    return AlertStep(labels, alert, change)


def end_alert(alert: Alert, now_ms: int, reason: str) -> tuple[Alert | None, AlertChange | None]:
    """Next state of an alert whose rule was removed or changed."""
    return next_state(alert, AlertVerdict(Outcome.FALSE, reason=reason), now_ms, 0)
