"""Replay of rules over the history: the alerts that they would have raised, and the messages about them.

The evaluator and the state machine are those of the engine; only the answers to queries come from ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

from alerts.dispatch.dispatcher import Dispatcher
from alerts.dispatch.routes import Routing
from alerts.evaluation.replay_answers import (
    DAY_MS,
    TOO_MUCH,
    AnswerColumns,
    ChunkStore,
    dsl_columns,
    dsl_step_ms,
    ending_sources,
    is_columnwise,
    newest_answers,
    promql_columns,
    single_answers,
)
from alerts.evaluation.rule_answer import STEP_MS, RuleAnswer
from alerts.evaluation.rule_evaluator import RuleEvaluator, RuleResult
from alerts.state.alert import Alert, AlertChange
from alerts.state.conditions import Value
from alerts.state.notification import Notification, notify
from alerts.state.rule import Labels, MissingDataPolicy, Rule
from artimon.model.select import SelectError
from query_dsl import QueryError
from query_dsl.promql import Query
from query_dsl.stores.engine_store import EngineStore
from query_dsl.stores.levels import SETTLE_MS
from query_dsl.tree.times import format_time

MIN_PIECE_MS = 3_600_000
"""Range that is not halved any more if its query fails; all its evaluations have the error."""
MAX_FIRINGS = 100_000
"""Maximum number of firings of one replay."""
Progress = Callable[[float, str], None]


class ReplayError(RuntimeError):
    """Replay that cannot go on. The text says what to change."""


@dataclass(frozen=True, slots=True)
class Firing:
    """One firing of an alert. `resolved_ms` 0: it fires at the end of the replay. `value`: the one it began with."""

    labels: Labels
    since_ms: int
    fired_ms: int
    resolved_ms: int
    value: Value | None

    def duration_ms(self, end_ms: int) -> int:
        """Time for which it fired, up to the end of the replay."""
        return (self.resolved_ms or end_ms) - self.fired_ms


@dataclass(slots=True)
class RuleReplay:
    """Firings of one rule. `errors`: number of evaluations and time of the first, by text."""

    rule: Rule
    firings: list[Firing] = field(default_factory=list)
    evaluations: int = 0
    errors: dict[str, tuple[int, int]] = field(default_factory=dict)
    pages: int = 0
    """Messages that contain an alert of this rule."""

    @property
    def failed(self) -> int:
        """Number of evaluations that had an error."""
        return sum(count for count, _ in self.errors.values())

    def error_lines(self) -> list[str]:
        """Errors with the place of the rule."""
        place = f"{self.rule.file}:{self.rule.line}: rule {self.rule.name}"
        return [
            f"{place}: {count} of {self.evaluations} evaluations failed, first at {format_time(first_ms)}: {text}"
            for text, (count, first_ms) in self.errors.items()
        ]


@dataclass(frozen=True, slots=True)
class Replay:
    """Replay of all rules over the evaluations in (start, end]."""

    start_ms: int
    end_ms: int
    rules: Sequence[RuleReplay]
    pages: int
    """Messages after grouping, for each target."""


def replay_rules(
    rules: Mapping[str, Rule],
    store: EngineStore,
    start_ms: int,
    end_ms: int,
    routing: Routing,
    progress: Progress = lambda _done, _text: None,
) -> Replay:
    """Evaluate the rules at every minute in (start, end] on a history, or at their interval below a minute, and
    dispatch their alerts at these times.

    Raises ReplayError if there are too many firings."""
    start_ms, end_ms = start_ms // STEP_MS * STEP_MS, end_ms // STEP_MS * STEP_MS
    changes: list[tuple[int, Notification]] = []
    found = []
    for at, rule in enumerate(rules.values()):

        def shown(done: float, name: str = rule.shown_name, at: int = at) -> None:
            progress((at + done) / len(rules), f"rule {at + 1} of {len(rules)}: {name}")

        one = _RuleRun(rule, store, changes)
        one.run(start_ms, end_ms, shown)
        found.append(one.report)
    changes.sort(key=lambda change: change[0])
    total, by_rule = _count_messages(changes, routing, end_ms)
    for report in found:
        report.pages = by_rule.get(report.rule.name, 0)
    return Replay(start_ms, end_ms, found, total)


def held_end_ms(store: EngineStore, end_ms: int) -> int:
    """Return the end of a replay: not after the last minute that the history holds whole."""
    appended_ms = store.appended_ms()
    if appended_ms is None or end_ms <= appended_ms - STEP_MS:
        return end_ms
    return (appended_ms - STEP_MS) // STEP_MS * STEP_MS


def evaluation_times(rule: Rule, start_ms: int, end_ms: int) -> list[int]:
    """Return the minutes in (start, end] at which the engine evaluates the rule; multiples of an interval below a
    minute."""
    interval_ms = rule.interval_ms
    if rule.is_prompt:
        return list(range(start_ms // interval_ms * interval_ms + interval_ms, end_ms + 1, interval_ms))
    minutes = range(start_ms + STEP_MS, end_ms + 1, STEP_MS)
    return [time_ms for time_ms in minutes if (time_ms - STEP_MS) // interval_ms != time_ms // interval_ms]


class _ReplayEvaluator(RuleEvaluator):
    """Evaluator of one rule at one time, whose answers are given."""

    def __init__(
        self, store: EngineStore, rule: Rule, time_ms: int, answer: RuleAnswer, recovery: Callable[[], RuleAnswer]
    ) -> None:
        super().__init__(store, [rule], time_ms, False, lambda: True)
        self._given, self._recovery_answer = answer, recovery

    def _query(self, rule: Rule) -> RuleAnswer:  # noqa: ARG002
        return self._given

    def _ask(self, rule: object, query: Query) -> RuleAnswer:  # noqa: ARG002
        return self._recovery_answer()


class _RuleRun:
    """Run of one rule, chunk by chunk; holds the state of its alerts."""

    def __init__(self, rule: Rule, store: EngineStore, changes: list[tuple[int, Notification]]) -> None:
        self._rule, self._store, self._changes = rule, store, changes
        self._alerts: dict[Labels, Alert] = {}
        self._began: dict[Labels, Alert] = {}
        """Alerts that fire, as they began."""
        self.report = RuleReplay(rule)

    def run(self, start_ms: int, end_ms: int, progress: Callable[[float], None]) -> None:
        """Evaluate the rule in (start, end]. Raises ReplayError."""
        times = evaluation_times(self._rule, start_ms, end_ms)
        for day, chunk in groupby(times, lambda time_ms: (time_ms - STEP_MS) // DAY_MS):
            progress((day * DAY_MS - start_ms) / max(1, end_ms - start_ms))
            self._run_piece(list(chunk))
        for labels, alert in self._began.items():
            self._add(Firing(labels, alert.since_ms, alert.fired_ms, 0, alert.value))
        self.report.firings.sort(key=lambda one: (one.fired_ms, one.labels))

    def _run_piece(self, times: list[int]) -> None:
        """Evaluate at these times by one query; if it fails, by one for each half."""
        answer = self._read(times)
        if isinstance(answer, RuleAnswer) and answer.error and times[-1] - times[0] > MIN_PIECE_MS:
            middle = len(times) // 2
            self._run_piece(times[:middle])
            self._run_piece(times[middle:])
            return
        chunk = ChunkStore(self._store, times[-1])
        recovery = self._recovery(times)
        for time_ms in times:
            self.report.evaluations += 1
            if isinstance(answer, AnswerColumns):
                if not self._must_judge(answer, time_ms):
                    continue
                given = answer.answer(time_ms, self._alerts)
            elif isinstance(answer, RuleAnswer):
                if not answer.error and not self._alerts:
                    continue
                given = answer
            else:
                given = answer(self._rule, time_ms)
            sources = ending_sources(self._rule, chunk, time_ms) if self._alerts else ()
            given = RuleAnswer(given.newest, given.error, given.truncated, sources)
            evaluator = _ReplayEvaluator(self._store, self._rule, time_ms, given, partial(recovery, time_ms))
            self._take(evaluator, time_ms)

    def _must_judge(self, answer: AnswerColumns, time_ms: int) -> bool:
        return bool(self._alerts) or self._rule.missing is MissingDataPolicy.FIRE or answer.may_begin(time_ms)

    def _read(self, times: list[int]) -> AnswerColumns | RuleAnswer | Callable[[Rule, int], RuleAnswer]:
        """Return the answers of a piece: columns, one answer for all, or a function for each time."""
        rule, query = self._rule, self._rule.query
        try:
            if isinstance(query, Query):
                return promql_columns(rule, query, self._store, times[0], times[-1], _step_ms(rule))
            if rule.is_prompt:
                return newest_answers(query, self._store, times[-1])
            if is_columnwise(query):
                step_ms = dsl_step_ms(rule, self._store, times[-1])
                return dsl_columns(rule, self._store, times[0], times[-1], step_ms)
        except QueryError as problem:
            return RuleAnswer(error=problem.message)
        except SelectError as problem:
            return RuleAnswer(error=str(problem))
        return single_answers(self._store, times[-1])

    def _recovery(self, times: list[int]) -> Callable[[int], RuleAnswer]:
        """Return the answers to the recovery query; it is read when it is needed first."""
        known: list[AnswerColumns | RuleAnswer] = []
        rule = self._rule

        def answer(time_ms: int) -> RuleAnswer:
            if rule.recovery is None:
                return RuleAnswer()
            if not known:
                try:
                    known.append(promql_columns(rule, rule.recovery, self._store, times[0], times[-1], _step_ms(rule)))
                except TOO_MUCH as problem:
                    known.append(RuleAnswer(error=problem.message))
            found = known[0]
            return found if isinstance(found, RuleAnswer) else found.every(time_ms)

        return answer

    def _take(self, evaluator: RuleEvaluator, time_ms: int) -> None:
        result = evaluator.evaluate_rule(self._rule, self._alerts)
        if result.error:
            count, first_ms = self.report.errors.get(result.error, (0, time_ms))
            self.report.errors[result.error] = count + 1, first_ms
        for step in result.steps:
            if step.alert is None:
                self._alerts.pop(step.labels, None)
            else:
                self._alerts[step.labels] = step.alert
                if step.change is not None:
                    self._note(step.labels, step.alert, step.change, time_ms, result, evaluator)

    def _note(
        self,
        labels: Labels,
        alert: Alert,
        change: AlertChange,
        time_ms: int,
        result: RuleResult,
        evaluator: RuleEvaluator,
    ) -> None:
        made = notify(self._rule, labels, alert, change, result.sample(labels), evaluator.context)
        self._changes.append((time_ms, made))
        if change is AlertChange.FIRING:
            self._began[labels] = alert
        else:
            began = self._began.pop(labels)
            self._add(Firing(labels, began.since_ms, began.fired_ms, alert.resolved_ms, began.value))

    def _add(self, firing: Firing) -> None:
        self.report.firings.append(firing)
        if len(self._changes) > 2 * MAX_FIRINGS:
            place = f"{self._rule.file}:{self._rule.line}: rule {self._rule.name}"
            raise ReplayError(f"{place}: more than {MAX_FIRINGS:,} firings: replay fewer rules or a shorter range")


def _step_ms(rule: Rule) -> int:
    """Return the step of range queries at whose times all evaluations lie."""
    return rule.interval_ms if rule.is_prompt or rule.interval_ms % STEP_MS == 0 else STEP_MS


# ---- messages


def _count_messages(
    changes: Iterable[tuple[int, Notification]], routing: Routing, end_ms: int
) -> tuple[int, dict[str, int]]:
    """Dispatch the changes at their times; return the number of messages, and those with an alert of each rule."""
    total, by_rule = 0, dict[str, int]()
    for rules in _messages(changes, routing, end_ms):
        total += 1
        for rule in rules:
            by_rule[rule] = by_rule.get(rule, 0) + 1
    return total, by_rule


def _messages(changes: Iterable[tuple[int, Notification]], routing: Routing, end_ms: int) -> Iterator[set[str]]:
    """Yield the names of the rules in each message."""
    dispatcher = Dispatcher(routing)
    for time_ms, batch in groupby(changes, lambda change: change[0]):
        now_ms = time_ms + SETTLE_MS
        yield from _due_messages(dispatcher, now_ms)
        dispatcher.put([alert for _, alert in batch], now_ms)
        yield from _due_messages(dispatcher, now_ms)
        dispatcher.take_changes()
    yield from _due_messages(dispatcher, end_ms + SETTLE_MS)


def _due_messages(dispatcher: Dispatcher, until_ms: int) -> Iterator[set[str]]:
    while (next_ms := dispatcher.next_ms()) <= until_ms:
        for letter in dispatcher.flush(next_ms):
            yield {alert.rule for alert in letter.message.alerts}
