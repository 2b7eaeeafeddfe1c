"""Rule files of Prometheus: groups of alerting and recording rules, with the checks of Prometheus.

https://prometheus.io/docs/prometheus/latest/configuration/recording_rules/ defines the form."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import InitErrorDetails

from alerts.state.rule import (
    MIN_INTERVAL_MS,
    MINUTE_MS,
    AcceptedAnswer,
    MissingDataPolicy,
    ParsedRuleFile,
    RecordingRule,
    Rule,
)
from alerts.templates.go_parser import parse_go
from alerts.templates.template_nodes import Template, TemplateError
from artimon.runtime.config_file import ConfigFile
from artimon.runtime.config_model import Section, checked, fault, parsed, raise_faults, repeated
from query_dsl.promql import Query
from query_dsl.promql import parse as parse_promql
from sources.scrape.discovery.prometheus_duration import parse_prometheus_duration

MAX_RULES = 20_000
SUMMARY = "{rule}: {value}"
SUMMARY_NAMES = ("summary", "description", "message")
"""Annotations of which the first is the summary of an alert."""
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
NAME = "__name__"


def _check_label(name: str) -> None:
    if not _LABEL.fullmatch(name) or name == NAME:
        raise ValueError(f"{name!r:.100} is not a label name: use letters, digits and _, and not {NAME}")


def _check_annotation(name: str) -> None:
    if not _LABEL.fullmatch(name):
        raise ValueError(f"{name!r:.100} is not the name of an annotation: use letters, digits and _")


def or_empty(kind: type[Any]) -> BeforeValidator:
    """Accept a key without a value as an empty list or mapping."""
    return BeforeValidator(lambda given: kind() if given == "" else given)


Duration = Annotated[int, parsed(parse_prometheus_duration)]
Promql = Annotated[Query, parsed(parse_promql, blank=False)]
LabelTexts = Annotated[dict[Annotated[str, checked(_check_label)], str], or_empty(dict)]
Annotations = Annotated[dict[Annotated[str, checked(_check_annotation)], str], or_empty(dict)]


class PrometheusRule(Section):
    """Alerting or recording rule."""

    record: str = ""
    alert: str = ""
    expr: Promql = Field(description="give the query, as in expr: up == 0")
    hold: Duration = Field(default=0, alias="for")
    keep: Duration = Field(default=0, alias="keep_firing_for")
    labels: LabelTexts = Field(default_factory=dict)
    annotations: Annotations = Field(default_factory=dict)

    @classmethod
    def contradictions(cls, data: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
        record, alert = data.get("record"), data.get("alert")
        if record and alert:
            yield fault("only one of record and alert can be set", "record", of_key=True)
        elif not (record or alert):
            yield fault("record: missing: name the rule by record or alert")
        if record and not alert:
            if not isinstance(record, str) or not _METRIC.fullmatch(record):
                yield fault(f"{record!r:.100} cannot be a name: use letters, digits, _ and :", "record")
            for key in ("annotations", "for", "keep_firing_for"):
                if data.get(key) not in (None, "", {}, "0", "0s"):
                    yield fault("is for alerts, not for recording rules", key, of_key=True)

    @model_validator(mode="after")
    def _check_templates(self) -> Self:
        if not self.alert:
            return self
        faults = []
        for key, texts in (("labels", self.labels), ("annotations", self.annotations)):
            for name, text in texts.items():
                try:
                    parse_go(text)
                except TemplateError as problem:
                    faults.append(fault(problem.message, key, name, offset=problem.position))
        raise_faults(faults)
        return self


class PrometheusGroup(Section):
    """Rules that are evaluated together, in their order."""

    name: Annotated[str, parsed(str, blank=False)] = Field(description="give each group a name")
    interval: Duration = 0
    query_offset: Duration = 0
    limit: int = 0
    labels: LabelTexts = Field(default_factory=dict)
    rules: Annotated[tuple[PrometheusRule, ...], or_empty(list)] = Field(default=(), max_length=MAX_RULES)


class PrometheusDocument(Section):
    """Rule file of Prometheus."""

    groups: Annotated[tuple[PrometheusGroup, ...], or_empty(list)] = ()

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        raise_faults(
            repeated((f"group {group.name!r:.100}", ("groups", at, "name")) for at, group in enumerate(self.groups))
        )
        return self


def prometheus_rules(parsed_file: ConfigFile) -> ParsedRuleFile:
    """Return the rules of a file. Raises ConfigFileError."""
    document = parsed_file.validate(PrometheusDocument)
    file, alerts, records = parsed_file.file, [], []
    places: dict[str, dict[str, tuple[int, int]]] = {}
    warnings: list[str] = []
    seen: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {}
    for at, group in enumerate(document.groups):
        for number, rule in enumerate(group.rules):
            line, column = parsed_file.position(("groups", at, "rules", number))
            key = f"{file}/{group.name}/{rule.alert or rule.record}"
            name = f"{key}#{number}" if key in places else key
            places[name] = {"": (line, column)}
            known = (rule.alert or rule.record, tuple(sorted(rule.labels.items())))
            if known in seen:
                warnings.append(f"{file}:{line}:{column}: {known[0]!r:.100} is a duplicate of line {seen[known]}")
            seen.setdefault(known, line)
            if rule.alert:
                alerts.append(_alert(name, group, rule, file, line))
            else:
                records.append(_record(name, group, rule, file, line))
    return ParsedRuleFile(file, parsed_file.text, (), tuple(alerts), places, tuple(records), tuple(warnings))


def _interval_ms(group: PrometheusGroup) -> int:
    return max(group.interval, MIN_INTERVAL_MS) if group.interval else MINUTE_MS


def _alert(name: str, group: PrometheusGroup, rule: PrometheusRule, file: str, line: int) -> Rule:
    labels = {key: parse_go(text) for key, text in {**group.labels, **rule.labels}.items()}
    fixed = {key: one.text for key, one in labels.items() if one.is_constant}
    annotations = {key: parse_go(text) for key, text in rule.annotations.items()}
    summary: str | Template = next((annotations[key] for key in SUMMARY_NAMES if key in annotations), SUMMARY)
    return Rule(
        name, rule.expr.text, rule.expr, None, None, rule.hold, MissingDataPolicy.RESOLVE, tuple(sorted(fixed.items())),
        (), summary, file, line, (AcceptedAnswer.APPROXIMATE,), rule.keep, None, rule.alert,
        tuple((key, one) for key, one in labels.items() if key not in fixed), tuple(annotations.items()),
        _interval_ms(group), group.limit, group.name, group.query_offset,
    )  # fmt: skip


def _record(name: str, group: PrometheusGroup, rule: PrometheusRule, file: str, line: int) -> RecordingRule:
    labels = tuple(sorted({**group.labels, **rule.labels}.items()))
    interval_ms = _interval_ms(group)
    return RecordingRule(
        name, rule.record, rule.expr, labels, file, line, interval_ms, group.limit, group.query_offset, group.name
    )
