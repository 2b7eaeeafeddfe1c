"""Unit tests of rules: the evaluator of the engine over the series of a test file, without a server."""

from __future__ import annotations

import glob
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from alerts.evaluation.promql_answer import vector_of
from alerts.evaluation.rule_answer import RuleAnswer
from alerts.evaluation.rule_evaluator import RuleEvaluator
from alerts.evaluation.verdicts import RuleFailedError, recorded_series
from alerts.rules.rule_file import parse_rules
from alerts.rules.unit_test_file import AlertTest, QueryTest, UnitTest, UnitTestFile
from alerts.state.alert import Alert, AlertPhase
from alerts.state.rule import Labels, ParsedRuleFile, RecordingRule, Rule
from artimon.compute.packed_samples import is_stale
from artimon.model.select import NAME, Store
from artimon.model.values import STALE
from artimon.runtime.config_file import read_config_text
from query_dsl import QueryError
from query_dsl.evaluation.offline import offline
from query_dsl.promql import Query, instant_query
from query_dsl.promql.scripted_samples import LiteralSamples
from query_dsl.promql.series_notation import Point
from query_dsl.tree.selector import series_text
from query_dsl.tree.times import format_duration

MAX_EVALUATIONS = 100_000
"""Limit of the evaluations of one test."""
BASE_MS = 1_767_225_600_000
"""Time of the first evaluation if there are rules of our own language, whose windows reach before it; else 0."""
AnyRule = Rule | RecordingRule
LabelledValue = tuple[tuple[tuple[str, str], ...], float]


def run_unit_tests(tests: UnitTestFile, folder: Path) -> list[str]:
    """Return the failures of the tests in a file of this folder. Raises ConfigFileError and OSError for rule files."""
    rules = load_rules(tests, folder)
    every, fuzzy = tests.evaluation_interval, tests.fuzzy_compare
    return [failure for test in tests.tests for failure in UnitTestRun(test, rules, every, fuzzy).failures()]


def load_rules(tests: UnitTestFile, folder: Path) -> list[AnyRule]:
    """Return the rules of the rule files in the order of their evaluation. Raises ConfigFileError, OSError."""
    files = [_read(path) for path in _rule_paths(tests.rule_files, folder)]
    order = {name: at for at, name in enumerate(tests.group_eval_order)}
    rules: list[AnyRule] = []
    for file in files:
        own: list[AnyRule] = [*file.rules, *file.records]
        rules += sorted(own, key=lambda one: one.line)
    rules.sort(key=lambda one: order.get(one.group, 0))
    return rules


def _rule_paths(patterns: Sequence[str], folder: Path) -> Iterator[Path]:
    for pattern in patterns:
        yield from (Path(found) for found in sorted(glob.glob(str(folder / pattern))))


def _read(path: Path) -> ParsedRuleFile:
    return parse_rules(read_config_text(path), str(path))


class _Evaluator(RuleEvaluator):
    """Evaluator that reads PromQL from samples at any times."""

    def __init__(self, samples: LiteralSamples, store: Store, rule: Rule, time_ms: int, test: UnitTest) -> None:
        super().__init__(
            store, [rule], time_ms, False, lambda: True,
            external_labels=test.external_labels, external_url=test.external_url,
        )  # fmt: skip
        self._samples = samples

    def _ask(self, rule: AnyRule, query: Query) -> RuleAnswer:
        return _answer(self._samples, query, self._time_ms - rule.offset_ms)

    def _query_of_template(self, text: str) -> Sequence[Mapping[str, object]]:
        found = vector_of(instant_query(text, self._time_ms, self._samples))
        return [
            {"Labels": {**({NAME: key.name} if key.name else {}), **dict(key.labels)}, "Value": value}
            for key, value in found
        ]


def _answer(samples: LiteralSamples, query: Query | str, time_ms: int) -> RuleAnswer:
    try:
        return RuleAnswer(vector_of(instant_query(query, time_ms, samples)))
    except QueryError as problem:
        return RuleAnswer(error=problem.message)


class UnitTestRun:
    """One test: series, rules, and the state of alerts and recorded series."""

    def __init__(self, test: UnitTest, rules: Sequence[AnyRule], interval_ms: int, fuzzy: bool = False) -> None:
        self._test, self._rules, self._interval_ms, self._fuzzy = test, rules, interval_ms or 60_000, fuzzy
        self._samples = LiteralSamples()
        self._alerts: dict[str, Mapping[Labels, Alert]] = {}
        self.texts: dict[tuple[str, Labels], dict[str, str]] = {}
        """Annotations of each alert, by rule and labels."""
        self._made: dict[str, set[tuple[tuple[str, str], ...]]] = {}
        """Series that each rule made at its last evaluation."""
        self._dsl = any(isinstance(rule, Rule) and not rule.is_promql for rule in rules)
        start_ms = test.start_timestamp
        self._base_ms = start_ms if start_ms is not None else BASE_MS if self._dsl else 0
        self._typed: dict[str, list[tuple[int, Point]]] = {}

    def failures(self) -> Iterator[str]:
        """Run the test; yield what differs from the expectations."""
        name = f"    name: {self._test.name},\n" if self._test.name else ""
        unnamed = [one for one in self._test.alert_rule_test if not one.alertname]
        if unnamed:
            yield f"{name}    an item under alert_rule_test misses required attribute alertname"
            return
        if self._test.end_ms // self._interval_ms >= MAX_EVALUATIONS:
            yield f"{name}    more than {MAX_EVALUATIONS} evaluations: use a longer evaluation_interval"
            return
        try:
            self._load()
        except QueryError as problem:
            yield f"{name}    {problem.message}"
            return
        waiting = sorted(self._test.alert_rule_test, key=lambda one: one.eval_time)
        for time_ms in range(0, self._test.end_ms + 1, self._interval_ms):
            errors = list(self._evaluate(time_ms))
            yield from errors
            if errors:
                return
            while waiting and waiting[0].eval_time < time_ms + self._interval_ms:
                yield from self._compare_alerts(waiting.pop(0), name)
        for asked in self._test.promql_expr_test:
            yield from self._compare_samples(asked, name)

    def _load(self) -> None:
        """Take the series. Without an interval all values have the same time, as in promtool."""
        seen = set()
        for one in self._test.input_series:
            labels = dict(one.series)
            if one.series in seen:
                raise QueryError(f"{series_text('', labels)} is given twice")
            seen.add(one.series)
            points = [(self._base_ms + at * self._test.interval, value) for at, value in enumerate(one.values)]
            numbers = {at: float(value) for at, value in points if isinstance(value, float | bool)}
            if numbers or not any(isinstance(value, str) for _, value in points):
                self._samples.add(labels, numbers)
            text = series_text(labels.pop(NAME, ""), labels)
            self._typed[text] = [
                (at, None if isinstance(value, float) and _is_stale(value) else value)
                for at, value in points
                if value is not None
            ]

    def _store(self, time_ms: int) -> Store:
        """Return the store of our own language; what the series hold later is left out."""
        known = {text: [one for one in points if one[0] <= time_ms] for text, points in self._typed.items()}
        return offline(known if self._dsl else {})

    # --- evaluation

    def _evaluate(self, at_ms: int) -> Iterator[str]:
        time_ms = self._base_ms + at_ms
        store = self._store(time_ms)
        for rule in self._rules:
            error = (
                self._record(rule, time_ms) if isinstance(rule, RecordingRule) else self._judge(rule, store, time_ms)
            )
            if error:
                shown = rule.record if isinstance(rule, RecordingRule) else rule.shown_name
                yield f"    rule: {shown}, time: {format_duration(at_ms)}, err: {error}"

    def _record(self, rule: RecordingRule, time_ms: int) -> str:
        answer = _answer(self._samples, rule.query, time_ms - rule.offset_ms)
        if answer.error:
            return answer.error
        try:
            self._put(rule.name, time_ms, recorded_series(rule, answer.newest))
        except RuleFailedError as problem:
            return str(problem)
        return ""

    def _judge(self, rule: Rule, store: Store, time_ms: int) -> str:
        evaluator = _Evaluator(self._samples, store, rule, time_ms, self._test)
        if rule.is_prompt:
            evaluator.read_newest()
        result = evaluator.evaluate_rule(rule, self._alerts.get(rule.name, {}))
        if result.error:
            return result.error
        found = {one.labels: one.alert for one in result.steps if one.alert is not None}
        self._alerts[rule.name] = found
        made: list[tuple[Mapping[str, str], float]] = []
        for labels, alert in found.items():
            if not alert.phase.active:
                continue
            sample = result.sample(labels)
            if sample is not None:  # while an alert fires on without a series its texts stay
                texts = rule.annotation_texts(labels, alert.value, sample, evaluator.context)
                own = {} if rule.group else {"summary": rule.text(labels, alert.value, sample)}
                self.texts[rule.name, labels] = {**own, **dict(texts)}
            of_alert = {**dict(labels), "alertname": rule.shown_name}
            made.append(({**of_alert, NAME: "ALERTS", "alertstate": alert.phase.value}, 1.0))
            made.append(({**of_alert, NAME: "ALERTS_FOR_STATE"}, alert.since_ms // 1000))
        self._put(rule.name, time_ms, made)
        return ""

    def _put(self, rule: str, time_ms: int, found: Iterable[tuple[Mapping[str, str], float]]) -> None:
        """Add the series of a rule; those that it no longer gives end."""
        made = {tuple(sorted(labels.items())): value for labels, value in found}
        for gone in self._made.get(rule, set()) - made.keys():
            self._samples.add(dict(gone), {time_ms: STALE})
        for labels, value in made.items():
            self._samples.add(dict(labels), {time_ms: value})
        self._made[rule] = set(made)

    # --- comparison

    def _compare_alerts(self, asked: AlertTest, name: str) -> Iterator[str]:
        got = [
            ({**dict(labels), "alertname": asked.alertname}, self.texts.get((rule.name, labels), {}))
            for rule in self._rules
            if isinstance(rule, Rule) and rule.shown_name == asked.alertname
            for labels, alert in self._alerts.get(rule.name, {}).items()
            if alert.phase is AlertPhase.FIRING
        ]
        want = [({**one.exp_labels, "alertname": asked.alertname}, one.exp_annotations) for one in asked.exp_alerts]
        if sorted(map(_key, got)) != sorted(map(_key, want)):
            when = format_duration(asked.eval_time)
            exp, found = _alerts_text(want), _alerts_text(got)
            yield f"{name}    alertname: {asked.alertname}, time: {when}, \n        exp:{exp}, \n        got:{found}"

    def _compare_samples(self, asked: QueryTest, name: str) -> Iterator[str]:
        when = format_duration(asked.eval_time)
        answer = _answer(self._samples, asked.expr, self._base_ms + asked.eval_time)
        head = f'{name}    expr: "{asked.expr}", time: {when},'
        if answer.error:
            yield f"{head} err: {answer.error}"
            return
        got = [
            (tuple(sorted({**({NAME: key.name} if key.name else {}), **dict(key.labels)}.items())), float(value or 0))
            for key, value in answer.newest
        ]
        want = [(one.labels, one.value) for one in asked.exp_samples]
        if not self._equal(sorted(got, key=repr), sorted(want, key=repr)):
            yield f"{head}\n        exp: {_samples_text(want)}\n        got: {_samples_text(got)}"

    def _equal(self, got: Sequence[LabelledValue], want: Sequence[LabelledValue]) -> bool:
        """Compare sorted samples. NaN equals nothing, as in promtool."""
        same = _within_last_bit if self._fuzzy else operator.eq
        return [labels for labels, _ in got] == [labels for labels, _ in want] and all(
            same(a, b) for (_, a), (_, b) in zip(got, want, strict=True)
        )


def _within_last_bit(a: float, b: float) -> bool:
    return a == b or math.nextafter(a, b) == b


def _is_stale(value: float) -> bool:
    return bool(is_stale(np.array([value]))[0])


def _key(alert: tuple[Mapping[str, str], Mapping[str, str]]) -> tuple[Any, ...]:
    return tuple(tuple(sorted((name, text) for name, text in part.items())) for part in alert)


def _pairs_text(pairs: Iterable[tuple[str, str]]) -> str:
    return "{" + ", ".join(f'{name}="{text}"' for name, text in sorted(pairs)) + "}"


def _alerts_text(alerts: Sequence[tuple[Mapping[str, str], Mapping[str, str]]]) -> str:
    if not alerts:
        return "[]"
    lines = [
        f"\n{' ' * 12}{at}:\n{' ' * 14}Labels:{_pairs_text(labels.items())}"
        f"\n{' ' * 14}Annotations:{_pairs_text(texts.items())}"
        for at, (labels, texts) in enumerate(sorted(alerts, key=_key))
    ]
    return f"[{','.join(lines)}\n{' ' * 12}]"


def _samples_text(samples: Sequence[tuple[tuple[tuple[str, str], ...], float]]) -> str:
    shown = [
        f"{dict(labels).get(NAME, '')}{_pairs_text(pair for pair in labels if pair[0] != NAME)} {value!r}"
        for labels, value in samples
    ]
    return ", ".join(shown) or "nil"
