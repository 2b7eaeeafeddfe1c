"""Service level objectives: their indicators become recording rules, and their error budgets alerts on burn rates.

The windows and shares are those of the SRE Workbook of Google, chapter 5, "Alerting on SLOs"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import Field, model_validator
from pydantic_core import InitErrorDetails

from alerts.rules.prometheus_rules import LabelTexts, Promql
from alerts.state.rule import AcceptedAnswer, MissingDataPolicy, RecordingRule, Rule
from alerts.templates.go_parser import parse_go
from artimon.runtime.config_model import Section, Text, choice, fault, parsed, raise_faults
from query_dsl.promql import PromqlError
from query_dsl.promql import parse as parse_promql
from query_dsl.tree.selector import quote
from query_dsl.tree.times import format_duration, parse_duration

ERRORS, REQUESTS = "slo:errors:rate5m", "slo:requests:rate5m"
"""Names of the recorded series."""
SLO, SEVERITY = "slo", "severity"
"""Labels of the series and of the alerts."""
MAX_SLOS = 1_000
MIN_WINDOW_MS, MAX_WINDOW_MS = 86_400_000, 90 * 86_400_000
SUMMARY = "{{ $value | humanizePercentage }} of the requests of {{ $labels.slo }} fail"
_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000


@dataclass(frozen=True, slots=True)
class BurnWindow:
    """Alert condition: `share` of the budget is used within `long_ms`, and at this rate within `short_ms`, too."""

    share: float
    long_ms: int
    short_ms: int


WINDOWS: Mapping[str, Sequence[BurnWindow]] = {
    "page": (BurnWindow(0.02, _HOUR, 5 * _MINUTE), BurnWindow(0.05, 6 * _HOUR, 30 * _MINUTE)),
    "ticket": (BurnWindow(0.1, _DAY, 2 * _HOUR), BurnWindow(0.1, 3 * _DAY, 6 * _HOUR)),
}
"""Conditions of each severity."""


def _window(text: str) -> int:
    found = parse_duration(text, "window")
    if not MIN_WINDOW_MS <= found <= MAX_WINDOW_MS:
        raise ValueError(f"{text} is not a window of an objective: use 1d to 90d, for example 30d")
    return found


class SloSection(Section):
    """Objective as written in a file."""

    name: Text = Field(min_length=1, max_length=100, description="give each objective a unique name")
    objective: float = Field(gt=0, lt=100, description="give the percentage of good requests, as in objective: 99.9")
    errors: Promql = Field(description="give the failed requests a second, by PromQL over [5m]")
    requests: Promql = Field(description="give all requests a second, by PromQL over [5m]")
    window_ms: Annotated[int, parsed(_window, blank=False)] = Field(default=30 * _DAY, alias="window")
    alerts: tuple[Annotated[str, choice({name: name for name in WINDOWS})], ...] = tuple(WINDOWS)
    labels: LabelTexts = Field(default_factory=dict)
    receivers: tuple[Text, ...] = ()

    @classmethod
    def contradictions(cls, data: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
        labels = data.get("labels")
        for name in (SLO, SEVERITY):
            if isinstance(labels, Mapping) and name in labels:
                yield fault(f"{name} is a label of every objective: choose another name", "labels", name, of_key=True)

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        """Refuse queries that are too long or too deep once they are parts of others."""
        try:
            list(self.records("", 0))
            list(self.build("", 0))
        except PromqlError as problem:
            raise_faults([fault(f"the rules of this objective are not valid: {problem.message}", "errors")])
        return self

    @property
    def budget(self) -> float:
        """Fraction of requests that may fail."""
        return (100 - self.objective) / 100

    def error_ratio(self, window_ms: int) -> str:
        """Return the PromQL of the fraction of failed requests in a window, from the recorded series."""
        matcher = f"{{{SLO}={quote(self.name)}}}"
        if window_ms <= 5 * _MINUTE:  # the recorded rates are over five minutes
            return f"{ERRORS}{matcher} / {REQUESTS}{matcher}"
        window = format_duration(window_ms)
        return f"sum_over_time({ERRORS}{matcher}[{window}]) / sum_over_time({REQUESTS}{matcher}[{window}])"

    def records(self, file: str, line: int) -> Iterator[RecordingRule]:
        """Yield the recording rules of the indicator. Without a failed request the errors are 0."""
        errors = parse_promql(f"({self.errors.text}) or ({self.requests.text}) * 0")
        labels = tuple(sorted({**self.labels, SLO: self.name}.items()))
        for record, query in ((ERRORS, errors), (REQUESTS, self.requests)):
            name = f"{file}/{self.name}/{record}"
            yield RecordingRule(name, record, query, labels, file, line, group=f"slo/{self.name}")

    def build(self, file: str, line: int) -> Iterator[Rule]:
        """Yield the alerts on the burn rates."""
        for severity in self.alerts:
            query = parse_promql(" or ".join(map(self._condition, WINDOWS[severity])))
            labels = tuple(sorted({**self.labels, SLO: self.name, SEVERITY: severity}.items()))
            summary = parse_go(SUMMARY)
            yield Rule(
                f"{self.name}/{severity}", query.text, query, None, None, 0, MissingDataPolicy.RESOLVE, labels,
                self.receivers, summary, file, line, (AcceptedAnswer.APPROXIMATE,),
                alert_name=self.name, annotations=(("summary", summary),), group=f"slo/{self.name}",
            )  # fmt: skip

    def _condition(self, window: BurnWindow) -> str:
        least = window.share * self.window_ms / window.long_ms * self.budget
        long, short = (f"({self.error_ratio(one)} > {least:.10g})" for one in (window.long_ms, window.short_ms))
        return f"({long} and {short})"
