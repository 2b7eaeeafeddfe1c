"""Files of unit tests of rules, in the form of `promtool test rules`.

https://prometheus.io/docs/prometheus/latest/configuration/unit_testing_rules/ defines the form. Values
may also be `true`, `false` and texts in quotes."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from alerts.rules.prometheus_rules import Annotations, Duration, LabelTexts, or_empty
from artimon.runtime.config_file import parse_config, read_config_text
from artimon.runtime.config_model import Conversion, Section, parsed, text_of
from query_dsl.promql.series_notation import Point, series_of, typed_points
from query_dsl.tree.times import MAX_MS

MAX_TESTS = 10_000
DEFAULT_INTERVAL_MS = 60_000
_WORDS = {".nan": math.nan, ".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf}


def _labels(given: Any, _info: Any) -> tuple[tuple[str, str], ...]:
    labels, rest = series_of(text_of(given))
    if rest:
        raise ValueError(f"{rest!r:.60} after the labels")
    return tuple(sorted(labels.items()))


def _value(text: str) -> float:
    word = text.lower()
    if word.strip("+-") in ("inf", "infinity", "nan"):
        raise ValueError(f"{text!r:.60} is not a number in YAML: write .inf, -.inf or .nan")
    return _WORDS[word] if word in _WORDS else float(text)


def _time_ms(text: str) -> int:
    """Return a time in seconds or RFC 3339 in ms."""
    try:
        seconds = float(text)
    except ValueError:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            raise ValueError(f"{text!r:.60} has no zone: write 2024-01-01T00:00:00Z") from None
        seconds = found.timestamp()
    if not 0 <= seconds * 1000 <= MAX_MS:
        raise ValueError(f"{text!r:.60} is not a time from 1970 on: write seconds, or 2024-01-01T00:00:00Z")
    return round(seconds * 1000)


class InputSeries(Section):
    """Series of a test, with a value at each interval."""

    series: Annotated[tuple[tuple[str, str], ...], Conversion(_labels)]
    values: Annotated[list[Point], parsed(typed_points)] = Field(default_factory=list)


class ExpectedAlert(Section):
    """Alert that must fire."""

    exp_labels: LabelTexts = Field(default_factory=dict)
    exp_annotations: Annotations = Field(default_factory=dict)


class AlertTest(Section):
    """Alerts of a name that fire at a time."""

    eval_time: Duration = 0
    alertname: str = ""
    exp_alerts: Annotated[tuple[ExpectedAlert, ...], or_empty(list)] = ()


class ExpectedSample(Section):
    """Sample of an answer."""

    labels: Annotated[tuple[tuple[str, str], ...], Conversion(_labels)] = ()
    value: Annotated[float, parsed(_value)] = 0.0


class QueryTest(Section):
    """Answer of a query at a time."""

    expr: str
    eval_time: Duration = 0
    exp_samples: Annotated[tuple[ExpectedSample, ...], or_empty(list)] = ()


class UnitTest(Section):
    """Group of tests over the same series."""

    name: str = ""
    interval: Duration = 0
    start_timestamp: Annotated[int | None, parsed(_time_ms)] = None
    """Time of the first evaluation in ms."""
    input_series: Annotated[tuple[InputSeries, ...], or_empty(list)] = ()
    alert_rule_test: Annotated[tuple[AlertTest, ...], or_empty(list)] = ()
    promql_expr_test: Annotated[tuple[QueryTest, ...], or_empty(list)] = ()
    external_labels: LabelTexts = Field(default_factory=dict)
    external_url: str = ""

    @property
    def end_ms(self) -> int:
        """Time of the last evaluation that a test needs."""
        times = [*(one.eval_time for one in self.alert_rule_test), *(one.eval_time for one in self.promql_expr_test)]
        return max(times, default=0)


class UnitTestFile(Section):
    """File of unit tests."""

    rule_files: Annotated[tuple[str, ...], or_empty(list)] = ()
    evaluation_interval: Duration = DEFAULT_INTERVAL_MS
    group_eval_order: Annotated[tuple[str, ...], or_empty(list)] = ()
    fuzzy_compare: bool = False
    """True: values of answers may differ in their last bit."""
    tests: Annotated[tuple[UnitTest, ...], or_empty(list)] = Field(default=(), max_length=MAX_TESTS)


def read_unit_tests(path: Path) -> UnitTestFile:
    """Read a file of unit tests. Raises ConfigFileError, OSError."""
    return parse_config(read_config_text(path), str(path)).validate(UnitTestFile)
