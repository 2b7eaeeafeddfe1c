"""Rules as data, parsed from their files. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from alerts.state.conditions import Condition, Value
from query_dsl import Expr
from query_dsl.promql import Query

Labels = tuple[tuple[str, str], ...]
"""Sorted pairs without empty values; together with the rule's name they identify an alert."""

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


class TemplateError(ValueError):
    """Unmatched brace; `position` counts characters from the start."""

    def __init__(self, position: int) -> None:
        super().__init__('a lone brace: write {label}, or "{{" and "}}" for braces themselves')
        self.position = position


def check_template(template: str) -> None:
    """Raise TemplateError unless every brace belongs to a `{label}` or is doubled."""
    for found in _PLACE.finditer(template):
        if found[0] in "{}":
            raise TemplateError(found.start())


def fill_template(template: str, labels: Mapping[str, str]) -> str:
    """Replace each {label} of the template; an absent label becomes "?". Values of labels are not expanded again."""

    def one(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0][0]
        return labels.get(found[1], "?")

    return _PLACE.sub(one, template)


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
    summary: str
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
    annotations: Labels = ()
    offset_ms: int = 0
    """PromQL only: the query is evaluated at this time before the evaluation."""

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
    def accepts_partial(self) -> bool:
        """True if the rule judges windows that the store does not hold whole."""
        return AcceptedAnswer.PARTIAL in self.accept

    @property
    def question(self) -> Question:
        """Query and accepted answers: rules with equal ones have one answer."""
        return self.expr, self.offset_ms if self.is_promql else None, self.accept

    @cached_property
    def digest(self) -> str:
        """Hash of all fields that define the alerts of this rule: all but names, receivers, texts and position."""
        asked = (self.expr, self.threshold_text, self.resolve and self.resolve.text, self.hold_ms, self.missing)
        kept = (self.keep_ms,) if self.keep_ms else ()  # rules without it have the digests of older versions
        promql = ("promql", self.recovery and self.recovery.text) if self.is_promql else ()
        return hashlib.sha256(json.dumps([*asked, *kept, *promql, self.labels]).encode()).hexdigest()[:16]

    def alert_labels(self, series: Labels) -> Labels:
        """Labels of the series, overridden by those of the rule."""
        return tuple(sorted({**dict(series), **dict(self.labels)}.items())) if self.labels else series

    def text(self, labels: Labels, value: Value | None) -> str:
        """Summary of one alert."""
        return fill_template(self.summary, self._places(labels, value))

    def annotation_texts(self, labels: Labels, value: Value | None) -> Labels:
        """Annotations of one alert."""
        places = self._places(labels, value) if self.annotations else {}
        return tuple((name, fill_template(text, places)) for name, text in self.annotations)

    def _places(self, labels: Labels, value: Value | None) -> dict[str, str]:
        own = {"rule": self.shown_name, "value": value_text(value), "threshold": self.threshold_text}
        return {**own, **dict(labels)}


def value_text(value: Value | None) -> str:
    """Format a value; "no data" for None."""
    if value is None:
        return "no data"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.10g}" if isinstance(value, float) else str(value)


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
