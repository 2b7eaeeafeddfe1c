"""One evaluation: queries the store for every rule and computes the next state of every alert. Stores nothing."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from time import perf_counter

from alerts.evaluation.newest_store import CLOCK_SLACK_MS, NewestStore, newest_buckets
from alerts.evaluation.promql_answer import ask_promql, promql_options, vector_of
from alerts.evaluation.recordings import RecordedSeries
from alerts.evaluation.rule_answer import RULE_LIMITS, SHAPE_LIMITS, STEP_MS, RuleAnswer, read_matrix
from alerts.evaluation.rule_history import RuleHistory
from alerts.evaluation.rule_shapes import ShapeAnswer, ShapedAnswers, common_shapes
from alerts.evaluation.shared_store import BucketsSource, SharedStore, popular_names
from alerts.evaluation.verdicts import (
    AlertStep,
    HasEnded,
    NewestValues,
    RuleFailedError,
    advance,
    end_alert,
    newest_values,
    recorded_series,
    values_by_alert,
)
from alerts.state.alert import Alert, AlertPhase, RuleMemory
from alerts.state.rule import Labels, MissingDataPolicy, Question, RecordingRule, Rule, ShapeKey
from alerts.templates.template_functions import TemplateContext
from artimon.model.select import NAME, Buckets, SelectError, Store
from query_dsl import Expr, Matrix
from query_dsl.evaluation.evaluator import QueryEvaluator, prepare, require_matrix
from query_dsl.promql import Query, query_store
from query_dsl.results.expected_points import Completeness
from query_dsl.results.result_cells import SeriesKey
from query_dsl.stores.engine_store import MemoryStore
from query_dsl.stores.levels import SETTLE_MS
from query_dsl.stores.query_limits import Limits, make_budget

log = logging.getLogger(__name__)

MAX_LAG_MS = 300_000

Alerts = Mapping[str, Mapping[Labels, Alert]]
"""Rule name -> labels -> alert."""


@dataclass(frozen=True, slots=True)
class RuleResult:
    """Result of one rule in one evaluation. If `error` is not "", alerts that this evaluation did not judge keep their
    state."""

    steps: Sequence[AlertStep] = ()
    error: str = ""
    duration_ms: float = 0.0
    truncated: bool = False
    """True if memory does not hold the windows or the range of the rule."""
    series: Mapping[Labels, SeriesKey] = field(default_factory=dict)
    """Series of each alert that has one."""
    completeness: Completeness | None = None
    """Completeness of the data of the rule; None: nothing is missing, or it was not measured."""

    def sample(self, labels: Labels) -> dict[str, str] | None:
        """Labels of the series of an alert, with its name; None if it has none now."""
        key = self.series.get(labels)
        return None if key is None else {**({NAME: key.name} if key.name else {}), **dict(key.labels)}


@dataclass(frozen=True, slots=True)
class RulePlan:
    """Parts of their queries that rules share: names of variables, shapes and whole questions."""

    popular: frozenset[str]
    shapes: frozenset[ShapeKey]
    questions: frozenset[Question]

    @classmethod
    def of(cls, rules: Iterable[Rule]) -> RulePlan:
        """Return the plan of rules. It reads each query, so it is kept while the rules do not change."""
        rules = list(rules)
        asked = Counter(rule.question for rule in rules)
        return cls(
            popular_names(rule.query.node for rule in rules if isinstance(rule.query, Expr)),
            common_shapes(rules),
            frozenset(question for question, count in asked.items() if count > 1),
        )


class RuleEvaluator:
    """Evaluates rules at one evaluation time and shares their common queries. Make a new one for each evaluation."""

    def __init__(
        self,
        store: Store,
        rules: Iterable[Rule] | RulePlan,
        time_ms: int,
        lagging: bool,
        in_time: Callable[[], bool],
        *,
        external_labels: Mapping[str, str] | None = None,
        external_url: str = "",
    ) -> None:
        """`rules`: those that share their queries, or the plan made of them; others may be evaluated, too."""
        self._plan = plan = rules if isinstance(rules, RulePlan) else RulePlan.of(rules)
        self._plain = store
        self._store = self._buckets = SharedStore(store, plan.popular)
        """Stores of PromQL and of our language."""
        self._shaped = ShapedAnswers(plan.shapes, self._shape, self._promql_shape)
        self._ranges = ValueRanges()
        self._indexes: dict[int, _SeriesIndex] = {}
        """Series behind the answers that several rules share, by the identity of their list."""
        self._answers: dict[Question, RuleAnswer] = {}
        self._time_ms, self._lagging, self._in_time = time_ms, lagging, in_time
        self._bucket_ms = self._until_ms = time_ms
        """End of the newest bucket, and of the newest sample in PromQL."""
        self.context = TemplateContext(external_labels or {}, external_url, cache(self._query_of_template))
        """Data of templates."""

    def read_newest(self) -> None:
        """Read the newest values, also of the minute that has not ended: for rules with an interval below a minute."""
        read = newest_buckets(self._time_ms)
        self._buckets = SharedStore(NewestStore(self._plain, read.n), self._plan.popular)
        self._bucket_ms, self._until_ms = read.end_ms, self._time_ms + CLOCK_SLACK_MS

    @property
    def queries(self) -> int:
        """Number of queries sent to the store."""
        return self._store.queries + (0 if self._buckets is self._store else self._buckets.queries)

    def evaluate_rule(
        self, rule: Rule, alerts: Mapping[Labels, Alert], history: RuleHistory | None = None
    ) -> RuleResult:
        """Compute the next states of the rule's alerts, from memory or, if given, with the history."""
        began = perf_counter()
        if not self._in_time():
            return RuleResult(error="not evaluated: the time limit of the evaluation was reached before this rule")
        steps: Sequence[AlertStep] = ()
        series: Mapping[Labels, SeriesKey] = {}
        answer = RuleAnswer()
        try:
            answer = self._query(rule) if history is None else history.answer(rule, self._time_ms)
            error = answer.error
            if not error:
                steps, error, series = self._steps(rule, alerts, answer, history)
        except RuleFailedError as problem:
            error = str(problem)
        except Exception as problem:  # a defect that affects one rule must not stop the others
            log.exception("rule %s", rule.name)
            error = f"{type(problem).__name__}: {problem}"
        return RuleResult(steps, error, (perf_counter() - began) * 1000, answer.truncated, series)

    def _steps(
        self, rule: Rule, alerts: Mapping[Labels, Alert], answer: RuleAnswer, history: RuleHistory | None
    ) -> tuple[list[AlertStep], str, Mapping[Labels, SeriesKey]]:
        """(steps, reason why some alerts cannot be judged, series of alerts)."""
        if not alerts and self._ranges.exclude_alerts(rule, answer.newest):
            return [], "", {}
        values, failed, series = values_by_alert(rule, answer.newest, self.context)
        endings = self._endings(rule, answer)
        open_ = [labels for labels, one in alerts.items() if one.phase is AlertPhase.FIRING and labels not in values]
        recovered = self._recovered(rule, history) if open_ else None
        steps = advance(rule, alerts, values, self._time_ms, endings, self._lagging, failed, recovered)
        active = sum(one.alert is not None and one.alert.phase.active for one in steps)
        if rule.limit and active > rule.limit:
            raise RuleFailedError(f"exceeded limit of {rule.limit} with {active} alerts")
        more = f" (and {len(failed) - 1} more alerts)" if len(failed) > 1 else ""
        return steps, f"{next(iter(failed.values()))}{more}" if failed else "", series

    def record(self, rule: RecordingRule, history: RuleHistory | None = None) -> list[RecordedSeries]:
        """Return the series of a recording rule. Raises RuleFailedError."""
        if not self._in_time():
            raise RuleFailedError("not evaluated: the time limit of the evaluation was reached before this rule")
        answer = self._ask(rule, rule.query)
        if answer.truncated and history is not None:
            answer = history.ask(rule, rule.query, self._time_ms)
        if answer.error:
            raise RuleFailedError(answer.error)
        return recorded_series(rule, answer.newest)

    def _recovered(self, rule: Rule, history: RuleHistory | None) -> set[Labels] | None:
        """Labels of the alerts that the recovery query of the rule names; None without one. Raises RuleFailedError."""
        if rule.recovery is None:
            return None
        answer = self._ask(rule, rule.recovery)
        if answer.truncated and history is not None:
            answer = history.ask(rule, rule.recovery, self._time_ms)
        if answer.error:
            raise RuleFailedError(f"recovery: {answer.error}")
        return {rule.alert_labels(key.labels) for key, _ in answer.newest}

    def _query_of_template(self, text: str) -> Sequence[Mapping[str, object]]:
        """Answer a query of a template from memory. Raises QueryError, SelectError, TemplateError."""
        found = query_store(text, MemoryStore(self._store), self._until_ms + SETTLE_MS, end_ms=self._until_ms,
                            budget=make_budget(RULE_LIMITS, None), **promql_options())  # fmt: skip
        return [
            {"Labels": {**({NAME: key.name} if key.name else {}), **dict(key.labels)}, "Value": value}
            for key, value in vector_of(found)
        ]

    def _ask(self, rule: Rule | RecordingRule, query: Query) -> RuleAnswer:
        """Answer PromQL from memory."""
        return self._promql(rule, query, RULE_LIMITS)

    def _promql_shape(self, rule: Rule, query: Query) -> RuleAnswer:
        return self._promql(rule, query, SHAPE_LIMITS)

    def _promql(self, rule: Rule | RecordingRule, query: Query, limits: Limits) -> RuleAnswer:
        self._store.begin()
        answer = ask_promql(rule, query, self._store, self._until_ms, limits)
        return replace(answer, sources=self._store.answers)

    def _query(self, rule: Rule) -> RuleAnswer:
        """Return the answer of memory, once for rules with equal questions."""
        found = self._answers.get(rule.question) or self._shaped.answer(rule)
        if found is None:
            query = rule.query
            found = self._ask(rule, query) if isinstance(query, Query) else self._evaluated(rule, query)
            if rule.question in self._plan.questions:
                self._answers[rule.question] = found
        return found

    def _endings(self, rule: Rule, answer: RuleAnswer) -> HasEnded:
        """Return the test for labels of alerts whose series have all ended, by the answers to the rule's queries."""
        index = self._indexes.get(id(answer.sources))
        if index is None:
            index = _SeriesIndex(answer.sources)
            if answer.selected:
                self._indexes[id(answer.sources)] = index
        own = rule.own_labels
        return lambda labels: index.have_ended([*answer.selected, *(pair for pair in labels if pair[0] not in own)])

    def _evaluated(self, rule: Rule, query: Expr) -> RuleAnswer:
        found = self._evaluate(rule, query, RULE_LIMITS)
        return found.answer if found.matrix is None else replace(found.answer, newest=newest_values(found.matrix))

    def _shape(self, rule: Rule, query: Expr) -> ShapeAnswer:
        return self._evaluate(rule, query, SHAPE_LIMITS)

    def _evaluate(self, rule: Rule, query: Expr, limits: Limits) -> ShapeAnswer:
        made: list[QueryEvaluator] = []

        def ask() -> Matrix:
            budget = make_budget(limits, None)
            made.append(prepare(query, store, self._bucket_ms + SETTLE_MS, budget, rule.accepts_partial))
            return require_matrix(made[0].answer())

        store = self._buckets
        store.begin()
        matrix, answer = read_matrix(rule, ask)
        error = answer.error or (f"the answer is incomplete: {store.partial}" if store.partial else "")
        return ShapeAnswer(replace(answer, error=error, sources=store.answers), matrix, made[0] if made else None)


class _SeriesIndex:
    """Series in the answers to queries by their labels, read when they are first needed."""

    def __init__(self, asked: Sequence[BucketsSource]) -> None:
        self._sources = asked
        self._buckets: list[Buckets] = []
        self._rows: dict[tuple[str, str], set[tuple[int, int]]] | None = None
        self._all: set[tuple[int, int]] = set()

    def have_ended(self, pairs: Labels | Sequence[tuple[str, str]]) -> bool:
        """Return True if there are series with these labels, and each has ended."""
        if self._rows is None:
            self._buckets = self._read_buckets()
            self._rows = self._index()
        behind = set.intersection(*(self._rows.get(pair, set()) for pair in pairs)) if pairs else self._all
        return bool(behind) and all(int(self._buckets[i].ended_ms[row]) > 0 for i, row in behind)

    def _read_buckets(self) -> list[Buckets]:
        try:
            return [ask() for ask in self._sources]
        except SelectError:
            return []  # unknown counts as not ended

    def _index(self) -> dict[tuple[str, str], set[tuple[int, int]]]:
        rows: dict[tuple[str, str], set[tuple[int, int]]] = {}
        for i, buckets in enumerate(self._buckets):
            if len(buckets.ended_ms) != len(buckets.series):
                continue
            for row, series in enumerate(buckets.series):
                self._all.add((i, row))
                for pair in series.labels.items():
                    rows.setdefault(pair, set()).add((i, row))
        return rows


def end_orphaned_alerts(
    known: Mapping[str, RuleMemory], rules: Mapping[str, Rule], time_ms: int
) -> dict[str, list[AlertStep]]:
    """End the alerts of rules that were removed, or changed since the alerts began."""
    gone: dict[str, list[AlertStep]] = {}
    for name, before in known.items():
        rule = rules.get(name)
        if rule is not None and rule.digest == before.digest:
            continue
        reason = "the rule was removed" if rule is None else "the rule was changed"
        gone[name] = [AlertStep(labels, *end_alert(alert, time_ms, reason)) for labels, alert in before.alerts.items()]
    return gone


def is_lagging(newest_samples_ms: Iterable[int], time_ms: int) -> bool:
    """True if a shard has no sample in the bucket that ends at `time_ms`, but has some from the minutes before."""
    return any(time_ms - MAX_LAG_MS < newest <= time_ms - STEP_MS for newest in newest_samples_ms)


_MEETS_LOWEST = {"<": True, "<=": True, ">": False, ">=": False}
"""True: if any value fulfils the operator, the lowest does. False: the highest does."""


@dataclass(slots=True)
class _Range:
    newest: NewestValues
    """Kept, so that its identity stays its own."""
    ends: tuple[float, float] | None
    """Lowest and highest value; None if there is a value that is not an ordered number."""
    distinct: dict[frozenset[str], bool] = field(default_factory=dict)
    """Labels that a rule sets -> True if no two series give the same alert."""


class ValueRanges:
    """Ranges of the answers of one evaluation; answers that rules share are read once."""

    def __init__(self) -> None:
        self._ranges: dict[int, _Range] = {}

    def exclude_alerts(self, rule: Rule, newest: NewestValues) -> bool:
        """True if the rule, which has no alert, gets no alert and no error from these values. False: unknown."""
        threshold = rule.threshold
        if threshold is None or threshold.op not in _MEETS_LOWEST or type(threshold.operand) not in (int, float):
            return False
        if rule.missing is MissingDataPolicy.FIRE or rule.label_templates:
            return False
        if len(newest) == 1:  # most rules that share no answer: nothing to keep
            ends = _ends(newest)
            return ends is not None and not threshold.holds(ends[0])
        found = self._ranges.get(id(newest))
        if found is None:
            found = self._ranges[id(newest)] = _Range(newest, _ends(newest))
        if found.ends is None or threshold.holds(found.ends[0 if _MEETS_LOWEST[threshold.op] else 1]):
            return False
        return _distinct(rule, found)


def _ends(newest: NewestValues) -> tuple[float, float] | None:
    values = [value for _, value in newest if value is not None]
    numbers = [value for value in values if type(value) in (int, float) and value == value]  # NaN is unequal to itself
    if not values or len(numbers) < len(values):
        return None
    return min(numbers), max(numbers)  # type: ignore[return-value]


def _distinct(rule: Rule, found: _Range) -> bool:
    """True if no two series differ only in labels that the rule replaces."""
    own = frozenset(rule.own_labels)
    known = found.distinct.get(own)
    if known is None:
        made = {rule.alert_labels(key.labels) for key, _ in found.newest}
        known = found.distinct[own] = len(made) == len(found.newest)
    return known
