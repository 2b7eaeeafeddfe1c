"""Rules as data, parsed from their files. Pure."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from alerts.state.conditions import Condition, Value
from alerts.state.promql_shape import PromqlShape, promql_shape_of
from alerts.state.rule_shape import RuleShape, shape_of
from alerts.templates.renderer import render
from alerts.templates.template_functions import NO_CONTEXT, TemplateContext, TemplateData
from alerts.templates.template_nodes import Template, TemplateError
from query_dsl import Expr
from query_dsl.promql import Query

Labels = tuple[tuple[str, str], ...]
"""Sorted pairs without empty values; together with the rule's name they identify an alert."""

MINUTE_MS = 60_000
MIN_INTERVAL_MS = 5_000
"""Least time between evaluations of a rule: that of two polls which shards apply one after another."""

_PLACE = re.compile(r"\{\{|\}\}|\{([a-zA-Z_][a-zA-Z0-9_]*)\}|[{}]")


class AlertsError(RuntimeError):
    """Unusable configuration of the engine; the text says what to change."""


class MissingDataPolicy(StrEnum):
    """Policy for an alert whose series has no value in the newest bucket."""

    RESOLVE = "resolve"
    KEEP = "keep"
    FIRE = "fire"


class AcceptedAnswer(StrEnum):
    """Answers that a rule judges although they may not be exact; else they are errors of the rule."""

    PARTIAL = "partial"
    """Windows that the store does not hold whole."""
    APPROXIMATE = "approximate"
    """Points computed from buckets in place of samples."""


Question = tuple[str, int | None, tuple[AcceptedAnswer, ...]]
"""Text of the query, its offset if it is PromQL, and accepted answers."""


ShapeKey = tuple[str, tuple[str, ...], tuple[AcceptedAnswer, ...], int]
"""Text of the query without selected values, their labels, accepted answers, and offset."""


def check_template(template: str) -> None:
    """Raise TemplateError unless every brace belongs to a `{label}` or is doubled."""
    for found in _PLACE.finditer(template):
        if found[0] in "{}":
            raise TemplateError('a lone brace: write {label}, or "{{" and "}}" for braces themselves', found.start())


def fill_template(template: str, labels: Mapping[str, str]) -> str:
    """Replace each {label} of the template; an absent label becomes "?". Values of labels are not expanded again."""

    def one(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0][0]
        return labels.get(found[1], "?")

    return _PLACE.sub(one, template)


@dataclass(frozen=True, slots=True)
class FlapLimit:
    """Limit from which an alert flaps: it fires again after `ends` ends within `within_ms`. Then it fires on until its
    condition has not held for `within_ms`."""

    ends: int
    within_ms: int


@dataclass(frozen=True)
class Rule:
    """Query, condition on each value of its answer, and notification once the condition holds for `hold_ms`."""

    name: str
    expr: str
    query: Expr | Query
    """Parsed `expr`: PromQL, or our language, restricted to the newest bucket unless it states its time."""
    threshold: Condition | None
    """None (PromQL only): every series of the answer is an alert."""
    resolve: Condition | None
    """If given, a firing alert resolves only on a value that fulfils this."""
    hold_ms: int
    missing: MissingDataPolicy
    labels: Labels
    receivers: tuple[str, ...]
    """Names of receivers; (): the default receiver."""
    summary: str | Template
    file: str
    line: int
    accept: tuple[AcceptedAnswer, ...] = ()
    keep_ms: int = 0
    """Time for which an alert fires on after its condition held last."""
    recovery: Query | None = None
    """If given, a firing alert without a series in the answer resolves only if this query has a series with its
    labels."""
    alert_name: str = ""
    """`alertname` of the alerts, if it is not `name`."""
    label_templates: tuple[tuple[str, Template], ...] = ()
    """Labels whose values depend on the series; they replace those of the series, too."""
    annotations: tuple[tuple[str, Template], ...] = ()
    interval_ms: int = MINUTE_MS
    """Minimum time between evaluations, each at a minute; below a minute the maximum, see `is_prompt`."""
    limit: int = 0
    """Maximum number of alerts; 0: none of its own."""
    group: str = ""
    """Group of a rule of Prometheus."""
    offset_ms: int = 0
    """PromQL only: the query is evaluated at this time before the evaluation."""
    flaps: FlapLimit | None = None

    @property
    def shown_name(self) -> str:
        """Value of the label `alertname`; several rules may have the same."""
        return self.alert_name or self.name

    @property
    def threshold_text(self) -> str:
        """Text of the threshold; "" without one."""
        return self.threshold.text if self.threshold else ""

    @property
    def is_promql(self) -> bool:
        """True if the query is PromQL."""
        return isinstance(self.query, Query)

    @property
    def is_prompt(self) -> bool:
        """True if the rule is evaluated between minutes, on the newest samples."""
        return self.interval_ms < MINUTE_MS

    @property
    def accepts_partial(self) -> bool:
        """True if the rule judges windows that the store does not hold whole."""
        return AcceptedAnswer.PARTIAL in self.accept

    @property
    def question(self) -> Question:
        """Query and accepted answers: rules with equal ones have one answer."""
        return self.expr, self.offset_ms if self.is_promql else None, self.accept

    @cached_property
    def shape(self) -> RuleShape | PromqlShape | None:
        return shape_of(self.query) if isinstance(self.query, Expr) else promql_shape_of(self.query)

    @cached_property
    def shape_key(self) -> ShapeKey | None:
        """Key that is equal for rules with one shape; None without one."""
        shape = self.shape
        if shape is None:
            return None
        asked = shape.text if isinstance(shape, RuleShape) else repr(shape.node)
        return sys.intern(asked), shape.labels, self.accept, self.offset_ms

    @cached_property
    def digest(self) -> str:
        """Hash of all fields that define the alerts of this rule: all but names, receivers, texts and position."""
        asked = (self.expr, self.threshold_text, self.resolve and self.resolve.text, self.hold_ms, self.missing)
        kept = (self.keep_ms,) if self.keep_ms else ()  # rules without it have the digests of older versions
        if self.flaps:
            kept = (*kept, self.flaps.ends, self.flaps.within_ms)
        promql = ("promql", self.recovery and self.recovery.text) if self.is_promql else ()
        made = [(name, template.text) for name, template in self.label_templates]
        return hashlib.sha256(json.dumps([*asked, *kept, *promql, *made, self.labels]).encode()).hexdigest()[:16]

    @property
    def own_labels(self) -> set[str]:
        """Names of the labels that the rule sets."""
        return {name for name, _ in (*self.labels, *self.label_templates)}

    def alert_labels(
        self, series: Labels, value: Value | None = None, name: str = "", context: TemplateContext = NO_CONTEXT
    ) -> Labels:
        """Labels of the series, overridden by those of the rule. `name`: name of the series."""
        if not self.labels and not self.label_templates:
            return series
        found = {**dict(series), **dict(self.labels)}
        if self.label_templates:
            data = self._data(_sample_labels(series, name), value, context)
            found |= {label: _rendered(template, data) for label, template in self.label_templates}
        return tuple(sorted((label, text) for label, text in found.items() if text))

    def text(
        self,
        labels: Labels,
        value: Value | None,
        sample: Mapping[str, str] | None = None,
        context: TemplateContext = NO_CONTEXT,
    ) -> str:
        """Summary of one alert, see `annotation_texts`."""
        if isinstance(self.summary, Template):
            return _rendered(self.summary, self._data(self._sample(labels, sample), value, context))
        own = {"rule": self.shown_name, "value": value_text(value), "threshold": self.threshold_text}
        return fill_template(self.summary, {**own, **dict(labels)})

    def annotation_texts(
        self,
        labels: Labels,
        value: Value | None,
        sample: Mapping[str, str] | None = None,
        context: TemplateContext = NO_CONTEXT,
    ) -> Labels:
        """Annotations of one alert. `sample`: labels of the series; None: those of the alert that the rule does not
        set."""
        if not self.annotations:
            return ()
        data = self._data(self._sample(labels, sample), value, context)
        return tuple((name, _rendered(template, data)) for name, template in self.annotations)

    def _sample(self, labels: Labels, sample: Mapping[str, str] | None) -> Mapping[str, str]:
        if sample is not None:
            return sample
        return {name: text for name, text in labels if name not in self.own_labels}

    def _data(self, labels: Mapping[str, str], value: Value | None, context: TemplateContext) -> TemplateData:
        own = {"$rule": self.shown_name, "$threshold": self.threshold_text}
        return TemplateData(labels, value, context, own)


def _sample_labels(labels: Labels, name: str) -> dict[str, str]:
    return {**({"__name__": name} if name else {}), **dict(labels)}


def _rendered(template: Template, data: TemplateData) -> str:
    """Return the text, or what is wrong with it, as Prometheus does."""
    try:
        return render(template, data)
    except TemplateError as problem:
        return f"<error expanding template: {problem.message}>"


def value_text(value: Value | None) -> str:
    """Format a value; "no data" for None."""
    if value is None:
        return "no data"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.10g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class RecordingRule:
    """Query whose result becomes the series `record`. `name` identifies the rule."""

    name: str
    record: str
    query: Query
    labels: Labels
    file: str
    line: int
    interval_ms: int = MINUTE_MS
    limit: int = 0
    offset_ms: int = 0
    group: str = ""
    accept: tuple[AcceptedAnswer, ...] = (AcceptedAnswer.APPROXIMATE,)
    accepts_partial: bool = False

    @property
    def question(self) -> Question:
        return self.query.text, self.offset_ms, self.accept

    @property
    def is_prompt(self) -> bool:
        return self.interval_ms < MINUTE_MS

    def is_due(self, before_ms: int, time_ms: int) -> bool:
        """Return True if a multiple of the interval lies in (before, time]."""
        return before_ms // self.interval_ms != time_ms // self.interval_ms

    def series_labels(self, series: Mapping[str, str]) -> dict[str, str]:
        """Labels of a recorded series, with its name as `__name__`."""
        found = {**series, "__name__": self.record, **dict(self.labels)}
        return {name: text for name, text in found.items() if text}


@dataclass(frozen=True, slots=True)
class Receiver:
    """Named targets of notifications, see notification.target_of."""

    name: str
    targets: tuple[str, ...]
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class ParsedRuleFile:
    """Content of a valid file. `places`: (line, column) of each rule's name, and of each receiver it names."""

    name: str
    text: str
    receivers: tuple[Receiver, ...]
    rules: tuple[Rule, ...]
    places: Mapping[str, Mapping[str, tuple[int, int]]]
    """Rule name -> "" (itself) or a receiver's name -> position."""
    records: tuple[RecordingRule, ...] = ()
    warnings: tuple[str, ...] = ()
    """Remarks on valid rules, as `file:line:column: text`."""
