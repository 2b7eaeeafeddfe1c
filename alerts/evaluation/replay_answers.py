"""Answers of a rule's query over a range of evaluations, each read from the history by one query."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np

from alerts.evaluation.newest_store import NewestStore
from alerts.evaluation.promql_answer import doubt_of, promql_options
from alerts.evaluation.rule_answer import STEP_MS, RuleAnswer, read_answer, read_matrix
from alerts.evaluation.rule_history import RuleHistory
from alerts.evaluation.shared_store import BucketsSource
from alerts.evaluation.verdicts import NewestValues, values_at
from alerts.state.rule import Labels, MissingDataPolicy, Rule
from artimon.compute.cells import Bools
from artimon.model.grid import Grid, bucket_end
from artimon.model.select import Buckets, Matcher, SelectError, SelectRequest
from artimon.model.values import ValueType
from query_dsl import Expr, Matrix, QueryError
from query_dsl.evaluation.evaluator import prepare, require_matrix
from query_dsl.functions.reducers import ENTRIES as REDUCERS
from query_dsl.promql import Query, query_store
from query_dsl.promql.tree import selectors
from query_dsl.stores.bucket_accumulator import BucketAccumulator
from query_dsl.stores.engine_store import EngineStore, ForwardingStore
from query_dsl.stores.history.sample_query import TooMuchHistory
from query_dsl.stores.levels import SETTLE_MS
from query_dsl.stores.partial_buckets import bucketize
from query_dsl.stores.query_limits import LimitExceeded, Limits, QueryBudget
from query_dsl.stores.raw_samples import RawSamples, SampleRequest
from query_dsl.tree import nodes
from query_dsl.tree.times import Instant

REPLAY_LIMITS = Limits(samples=100_000_000, memory_bytes=1024**3)
"""Limits of one query of a replay. A range that exceeds them is halved."""
TOO_MUCH = (LimitExceeded, TooMuchHistory)
"""Errors of a query whose range is too long."""
DAY_MS = 86_400_000
BEYOND_LEVELS_MS = 366 * DAY_MS
"""Distance of the time at which PromQL is asked: no level of memory reaches back, so that raw samples answer."""
MAX_LEVEL_BUCKETS = 2**22
_COLUMNWISE = (
    nodes.Scalar, nodes.Fetch, nodes.Absent, nodes.Clock, nodes.Offset, nodes.Window, nodes.Point, nodes.Reduce,
    nodes.Binary, nodes.Unary, nodes.Named,
)  # fmt: skip
_EXACT_INTEGER = 2**53


class StepStore(ForwardingStore):
    """Store whose only level has one step, so that ranges of any length have this step."""

    def __init__(self, store: EngineStore, step_ms: int) -> None:
        super().__init__(store)
        self._step_ms = step_ms

    def levels(self) -> tuple[tuple[int, int], ...]:
        return ((self._step_ms, MAX_LEVEL_BUCKETS),)

    def watching(self, watch: QueryBudget) -> StepStore:
        return StepStore(self.store.watching(watch), self._step_ms)


class ChunkStore(ForwardingStore):
    """Store that keeps the raw samples of each selector up to `until_ms` in memory, and makes buckets of them as they
    were at the end of the grid."""

    def __init__(self, store: EngineStore, until_ms: int) -> None:
        super().__init__(store)
        self._until_ms = until_ms
        self._known: dict[tuple[Matcher, ...], tuple[int, RawSamples]] = {}
        """Start of the samples, exclusive, and samples by time."""
        self._failed: dict[tuple[Matcher, ...], str] = {}
        """Errors of reads, which are not repeated."""

    def watching(self, watch: QueryBudget) -> ChunkStore:  # noqa: ARG002
        """Return this store: its reads have limits of their own."""
        return self

    def select(self, request: SelectRequest) -> Buckets:
        grid = request.grid
        known = self._known.get(request.matchers)
        if known is None or known[0] > grid.start_ms:
            known = self._known[request.matchers] = grid.start_ms, self._read(request)
        found, times = known[1], known[1].rows.time_ms
        first, end = np.searchsorted(times, (grid.start_ms, grid.end_ms), side="right")
        held = BucketAccumulator(len(found.series), grid, request.statistics)
        held.add(bucketize(found.rows.select(np.arange(first, end)), grid))
        return held.buckets(request, found.series, ())

    def _read(self, request: SelectRequest) -> RawSamples:
        """Read the samples. Raises SelectError, also for what exceeds the limits."""
        if request.matchers in self._failed:
            raise SelectError(self._failed[request.matchers])
        store = self.store.watching(QueryBudget(REPLAY_LIMITS))
        try:
            found = store.samples(SampleRequest(request.matchers, request.grid.start_ms, self._until_ms, request.limit))
        except QueryError as problem:
            self._failed[request.matchers] = problem.message
            raise SelectError(problem.message) from problem
        if found.partial:
            raise SelectError(f"the answer is incomplete: {'; '.join(found.notes)}")
        return replace(found, rows=found.rows.select(np.argsort(found.rows.time_ms, kind="stable")))


class AnswerColumns:
    """Answer to a query over a range of evaluations: a column for each, or for several if the step is longer."""

    def __init__(self, rule: Rule, matrix: Matrix) -> None:
        self._matrix, self._is_promql = matrix, rule.is_promql
        self._offset_ms = rule.offset_ms if rule.is_promql else 0
        self._candidates = _candidates(rule, matrix)
        """(series, columns) False if the value cannot fulfil the threshold."""
        self._any_candidate: Bools = np.any(self._candidates, axis=0, keepdims=True)[0]
        self._row_of = _rows_by_alert(rule, matrix)
        """Row of the series of each alert; None if every series is needed at every evaluation."""

    def _column(self, time_ms: int) -> int:
        grid = self._matrix.grid
        return (time_ms - self._offset_ms - grid.end_ms) // grid.step_ms + grid.n - 1

    def may_begin(self, time_ms: int) -> bool:
        """Return False if no value of an evaluation fulfils the threshold."""
        return bool(self._any_candidate[self._column(time_ms)])

    def answer(self, time_ms: int, alerts: Collection[Labels]) -> RuleAnswer:
        """Answer at one evaluation, without the series that neither begin an alert nor have one."""
        at, rows = self._column(time_ms), None
        if self._row_of is not None:
            known = {self._row_of[labels] for labels in alerts if labels in self._row_of}
            rows = sorted(known.union(np.flatnonzero(self._candidates[:, at]).tolist()))
        return RuleAnswer(self._present(at, rows))

    def every(self, time_ms: int) -> RuleAnswer:
        """Answer at one evaluation with all series."""
        return RuleAnswer(self._present(self._column(time_ms), None))

    def _present(self, at: int, rows: list[int] | None) -> NewestValues:
        """Values in a column; PromQL has no series without one."""
        found = values_at(self._matrix, at, rows)
        return [one for one in found if one[1] is not None] if self._is_promql else found


def promql_columns(
    rule: Rule, query: Query, store: EngineStore, first_ms: int, last_ms: int, step_ms: int
) -> AnswerColumns | RuleAnswer:
    """Answer PromQL at each step from first to last; an answer without values if it is empty or has an error.

    Raises TOO_MUCH."""
    try:
        found = query_store(
            query, store, last_ms + BEYOND_LEVELS_MS, start_ms=first_ms - rule.offset_ms,
            end_ms=last_ms - rule.offset_ms, step_ms=step_ms, budget=QueryBudget(REPLAY_LIMITS), **promql_options(),
        )  # fmt: skip
    except TOO_MUCH:
        raise
    except QueryError as problem:
        return RuleAnswer(error=problem.message)
    except SelectError as problem:
        return RuleAnswer(error=str(problem))
    error, truncated = doubt_of(rule, query, found.warnings)
    if error:
        return RuleAnswer(error=error, truncated=truncated)
    return AnswerColumns(rule, found.to_matrix()) if found.labels.count else RuleAnswer()


def dsl_step_ms(rule: Rule, store: EngineStore, time_ms: int) -> int:
    """Step of the buckets that the engine reads for this rule. Raises QueryError, SelectError."""
    assert isinstance(rule.query, Expr)
    grid = prepare(rule.query, store, time_ms + SETTLE_MS, QueryBudget(REPLAY_LIMITS), rule.accepts_partial).plan.grid
    return grid.step_ms


def is_columnwise(query: Expr) -> bool:
    """Return True if a range of the query has at each of its times the values of the query at that time: no node
    depends on later values, on the length of the range or on other series than those of its own time."""
    node = query.node
    if not isinstance(node, nodes.Range) and not (
        isinstance(node, nodes.At) and node.instant == Instant(0, relative=True)
    ):
        return False
    return all(_is_columnwise(one) for one in nodes.walk(node.child))


def _is_columnwise(node: nodes.Node) -> bool:
    match node:
        case nodes.Window(function=function, after_ms=after_ms):
            return isinstance(function, str) and after_ms == 0
        case nodes.Reduce(function=function):
            entry = REDUCERS.get(function) if isinstance(function, str) else None
            return entry is not None and all(one.name != "rank" for one in entry.arguments)
        case nodes.Fetch(default=default):
            return default is None
        case nodes.Clock(reading=reading):
            return reading == "time"
    return isinstance(node, _COLUMNWISE)


def dsl_columns(
    rule: Rule, store: EngineStore, first_ms: int, last_ms: int, step_ms: int
) -> AnswerColumns | RuleAnswer:
    """Answer a columnwise query of our language for the evaluations from first to last, in buckets of `step_ms`.

    Raises TOO_MUCH."""
    assert isinstance(rule.query, Expr)
    node = rule.query.node
    assert isinstance(node, nodes.Range | nodes.At)
    end_ms = last_ms // step_ms * step_ms
    length_ms = end_ms - first_ms // step_ms * step_ms + step_ms
    asked = Expr(nodes.Range(node.child, length_ms), 1, rule.query.text)

    def ask() -> Matrix:
        watch = QueryBudget(REPLAY_LIMITS)
        query = prepare(asked, StepStore(store, step_ms), end_ms + SETTLE_MS, watch, rule.accepts_partial)
        return require_matrix(query.answer())

    limits: list[QueryError] = []
    matrix, answer = read_matrix(rule, _noting(ask, limits))
    if limits:
        raise limits[0]
    return answer if matrix is None or answer.error or not matrix.keys else AnswerColumns(rule, matrix)


def _noting(ask: Callable[[], Matrix], limits: list[QueryError]) -> Callable[[], Matrix]:
    """Return `ask` that also keeps the limit that it exceeded."""

    def asked() -> Matrix:
        try:
            return ask()
        except TOO_MUCH as problem:
            limits.append(problem)
            raise

    return asked


def single_answers(store: EngineStore, last_ms: int) -> Callable[[Rule, int], RuleAnswer]:
    """Return a function that answers a rule of our language at one time, from samples kept in memory."""
    history = RuleHistory(ChunkStore(store, last_ms))
    return history.answer


def newest_answers(query: Expr, store: EngineStore, last_ms: int) -> Callable[[Rule, int], RuleAnswer]:
    """Return a function that answers a rule of our language with the newest values at one time."""
    chunk = ChunkStore(store, last_ms)

    def answer(rule: Rule, time_ms: int) -> RuleAnswer:
        newest = NewestStore(_UntilStore(chunk, time_ms))
        now_ms = bucket_end(time_ms, STEP_MS) + SETTLE_MS

        def ask() -> Matrix:
            return require_matrix(prepare(query, newest, now_ms, QueryBudget(REPLAY_LIMITS), True).answer())

        return read_answer(rule, ask)

    return answer


class _UntilStore(ForwardingStore):
    """Store without the samples after `until_ms`."""

    def __init__(self, store: ChunkStore, until_ms: int) -> None:
        super().__init__(store)
        self._until_ms = until_ms

    def levels(self) -> tuple[tuple[int, int], ...]:
        return ((STEP_MS, MAX_LEVEL_BUCKETS),)

    def select(self, request: SelectRequest) -> Buckets:
        """Return two buckets, of which the second has the samples of both."""
        grid = request.grid
        cut = Grid(self._until_ms, self._until_ms - grid.start_ms, 1)
        found = self.store.select(replace(request, grid=cut))
        both = {name: np.concatenate((np.zeros_like(cells), cells), axis=1) for name, cells in found.statistics.items()}
        return replace(found, grid=grid, statistics=both)


def ending_sources(rule: Rule, store: ChunkStore, time_ms: int) -> list[BucketsSource]:
    """Return the queries by which the ends of the rule's series are known at `time_ms`."""
    query = rule.query
    if isinstance(query, Query):
        wanted = [one.matchers for one in selectors(query.node)]
    else:
        wanted = [one.selector.matchers for one in nodes.walk(query.node) if isinstance(one, nodes.Fetch)]

    def source(matchers: tuple[Matcher, ...]) -> BucketsSource:
        return lambda: store.select(SelectRequest(matchers, Grid(time_ms, DAY_MS, 1), ("last",)))

    return [source(matchers) for matchers in wanted]


def _rows_by_alert(rule: Rule, matrix: Matrix) -> dict[Labels, int] | None:
    """Return the row of each alert; None if labels depend on values, if two series have the same, and if the rule
    remembers every series."""
    if rule.label_templates or rule.missing is MissingDataPolicy.FIRE:
        return None
    found = {rule.alert_labels(key.labels): row for row, key in enumerate(matrix.keys)}
    return found if len(found) == len(matrix.keys) else None


def _candidates(rule: Rule, matrix: Matrix) -> Bools:
    """Return True for values that may fulfil the threshold; exact for DOUBLE and for integers up to 2**53."""
    types, cells, present = matrix.column
    threshold = rule.threshold
    if threshold is None or isinstance(threshold.operand, bool | str):
        return np.array(present, np.bool_)
    double = (types == ValueType.DOUBLE)[:, None]
    values = np.where(double, cells.view(np.float64), cells.astype(np.float64))
    operand = float(threshold.operand)
    compare = {
        "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
    }[threshold.op]  # fmt: skip
    with np.errstate(invalid="ignore"):
        holds = compare(values, operand)
    unsure = (types == ValueType.STRING)[:, None] | (~double & (np.abs(values) >= _EXACT_INTEGER))
    if abs(operand) >= _EXACT_INTEGER:
        return np.array(present, np.bool_)
    return np.array(present & (holds | unsure), np.bool_)
