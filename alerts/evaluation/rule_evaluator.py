"""One evaluation: queries the store for every rule and computes the next state of every alert. Stores nothing."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from alerts.evaluation.rule_history import RuleHistory
from alerts.evaluation.shared_store import BucketsSource, SharedStore, popular_names
from alerts.evaluation.verdicts import (
    AlertStep,
    NewestValues,
    RuleFailedError,
    advance,
    end_alert,
    newest_values,
    values_by_alert,
)
from alerts.state.alert import Alert, RuleMemory
from alerts.state.rule import AcceptedAnswer, Labels, Rule
from artimon.model.select import Buckets, SelectError, Store
from query_dsl import Matrix, NothingSelected, QueryError, evaluate
from query_dsl.evaluation.fetches import NOTHING_HELD
from query_dsl.evaluation.windows import APPROXIMATE, ROUNDED_UP
from query_dsl.stores.levels import SETTLE_MS

log = logging.getLogger(__name__)

STEP_MS = 60_000
MAX_LAG_MS = 300_000
TRUNCATED = "the answer is truncated"

Alerts = Mapping[str, Mapping[Labels, Alert]]
"""Rule name -> labels -> alert."""


@dataclass(frozen=True, slots=True)
class RuleResult:
    """Result of one rule in one evaluation. If `error` is not "", its alerts without a step stay as they are."""

    steps: Sequence[AlertStep] = ()
    error: str = ""
    duration_ms: float = 0.0
    truncated: bool = False
    """True if memory does not hold the windows or the range of the rule."""


class RuleEvaluator:
    """Evaluates rules at one evaluation time and shares their common queries. Make a new one for each evaluation."""

    def __init__(
        self, store: Store, rules: Iterable[Rule], time_ms: int, lagging: bool, in_time: Callable[[], bool]
    ) -> None:
        rules = list(rules)
        self._store = SharedStore(store, popular_names(rule.query.node for rule in rules))
        self._shared_expressions = {text for text, count in Counter(rule.expr for rule in rules).items() if count > 1}
        self._answers: dict[str, tuple[NewestValues, str, list[BucketsSource]]] = {}
        self._time_ms, self._lagging, self._in_time = time_ms, lagging, in_time

    @property
    def queries(self) -> int:
        """Number of queries sent to the store."""
        return self._store.queries

    def evaluate_rule(
        self, rule: Rule, alerts: Mapping[Labels, Alert], history: RuleHistory | None = None
    ) -> RuleResult:
        """Compute the next states of the rule's alerts, from memory or, if given, with the history."""
        began = perf_counter()
        if not self._in_time():
            return RuleResult(error="not evaluated: the time limit of the evaluation was reached before this rule")
        try:
            steps, error = self._steps(rule, alerts, history)
        except RuleFailedError as problem:
            duration_ms = (perf_counter() - began) * 1000
            return RuleResult((), str(problem), duration_ms, isinstance(problem, TruncatedError))
        except Exception as problem:  # a defect that affects one rule must not stop the others
            log.exception("rule %s", rule.name)
            error = f"{type(problem).__name__}: {problem}"
            return RuleResult(error=error, duration_ms=(perf_counter() - began) * 1000)
        return RuleResult(steps, error, (perf_counter() - began) * 1000)

    def _steps(
        self, rule: Rule, alerts: Mapping[Labels, Alert], history: RuleHistory | None
    ) -> tuple[list[AlertStep], str]:
        """(steps, reason why some alerts cannot be judged)."""
        newest, error, asked = self._query(rule) if history is None else self._read(rule, history)
        if error.startswith(TRUNCATED):
            raise TruncatedError(error)
        if error:
            raise RuleFailedError(error)
        answer, failed = values_by_alert(rule, newest)
        endings = _SeriesEndings(asked, {name for name, _ in rule.labels})
        steps = advance(rule, alerts, answer, self._time_ms, endings, self._lagging, failed)
        more = f" (and {len(failed) - 1} more alerts)" if len(failed) > 1 else ""
        return steps, f"{next(iter(failed.values()))}{more}" if failed else ""

    def _query(self, rule: Rule) -> tuple[NewestValues, str, list[BucketsSource]]:
        """(newest values, empty if nothing is selected; error or ""; queries sent to the store)."""
        found = self._answers.get(rule.expr)
        if found is None:
            found = self._evaluated(rule)
            if rule.expr in self._shared_expressions:
                self._answers[rule.expr] = found
        return found

    def _read(self, rule: Rule, history: RuleHistory) -> tuple[NewestValues, str, list[BucketsSource]]:
        """See `_query`; of memory and history."""
        try:
            return *history.answer(rule, self._time_ms + SETTLE_MS), []
        except NothingSelected:
            return [], "", []
        except (QueryError, SelectError) as problem:
            return [], problem.message if isinstance(problem, QueryError) else str(problem), []

    def _evaluated(self, rule: Rule) -> tuple[NewestValues, str, list[BucketsSource]]:
        self._store.begin()
        newest: NewestValues = []
        error = ""
        try:
            accepts_partial = AcceptedAnswer.PARTIAL in rule.accept
            matrix = evaluate(rule.query, self._store, self._time_ms + SETTLE_MS, partial_windows=accepts_partial)
            newest, error = newest_values(matrix), doubt(rule, matrix)
        except NothingSelected:
            pass
        except (QueryError, SelectError) as problem:
            error = problem.message if isinstance(problem, QueryError) else str(problem)
            if error.startswith(NOTHING_HELD):
                error = f"{TRUNCATED}: {error}"
        partial = self._store.partial
        return newest, error or (f"the answer is incomplete: {partial}" if partial else ""), self._store.answers


class TruncatedError(RuleFailedError):
    """Rule whose windows or range memory does not hold."""


def doubt(rule: Rule, matrix: Matrix) -> str:
    """Return the reason why the values of an answer are not judged; "" if they are exact, or accepted by the rule."""
    if not matrix.complete and AcceptedAnswer.PARTIAL not in rule.accept:
        return f"{TRUNCATED}: {'; '.join(matrix.notes)}"
    coarse = matrix.grid.step_ms > STEP_MS  # the finest level has no window of 90 s, and the note says so
    near = [note for note in matrix.notes if APPROXIMATE in note or (coarse and ROUNDED_UP in note)]
    if near and AcceptedAnswer.APPROXIMATE not in rule.accept:
        return f"{'; '.join(near)}: use another function or window, or write accept: [approximate]"
    return ""


class _SeriesEndings:
    """Checks if every series behind the labels of an alert has ended, by the answers to the queries of its rule."""

    def __init__(self, asked: Sequence[BucketsSource], own: set[str]) -> None:
        self._sources, self._own = asked, own
        self._buckets: list[Buckets] = []
        self._rows: dict[tuple[str, str], set[tuple[int, int]]] | None = None
        self._all: set[tuple[int, int]] = set()

    def __call__(self, labels: Labels) -> bool:
        if self._rows is None:
            self._buckets = self._read_buckets()
            self._rows = self._index()
        pairs = [pair for pair in labels if pair[0] not in self._own]
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
