"""Execution of one query: its plan, its store, its budget, the values of its nodes, and the notes of its answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import Self, TypeVar

import numpy as np

from artimon.compute.aggregate import Aggregate, AggregateRequest, NotPushed
from artimon.compute.true_sums import as_double_note
from artimon.model.grid import Grid
from artimon.model.select import Buckets, EngineShare, Matcher, SelectError, SelectRequest, Store
from query_dsl.evaluation.planner import Plan
from query_dsl.results.bucket_data import BucketData
from query_dsl.results.matrix import Matrix
from query_dsl.results.provenance import Origin, StoreRequest
from query_dsl.results.raw_series import RawSeries
from query_dsl.results.result_cells import STRING, Cells
from query_dsl.stores.engine_store import as_engine_store
from query_dsl.stores.query_limits import CELL_BYTES, QueryBudget, limited_select
from query_dsl.stores.raw_samples import SampleRequest, to_raw_series
from query_dsl.tree import nodes
from query_dsl.tree.nodes import Node
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.selector import Selector

S = TypeVar("S", Matrix, RawSeries)


@dataclass(frozen=True, slots=True)
class TimedScalar:
    """One value for each bucket of `grid`: `column` has one row. It pairs with every series."""

    grid: Grid
    column: Cells
    strings: tuple[str, ...] = ()


@dataclass(slots=True)
class NodeCost:
    """Milliseconds of the longest evaluation of a node with those below it, and the size of what it gave."""

    ms: float = 0.0
    series: int = 0
    points: int = 0


Value = Matrix | nodes.Scalar | TimedScalar
"""Operands of operators."""
Answer = Matrix | RawSeries
"""The two kinds of series: on a grid, and raw."""


class QueryExecution(ABC):
    """State of one query, used by one thread. Positions of the nodes of `tree` point into `text`.

    `now_ms`: time of the evaluation, the meaning of "now" in arguments of functions."""

    def __init__(
        self,
        store: Store,
        plan: Plan,
        tree: Node,
        text: str | None = None,
        now_ms: int | None = None,
        watch: QueryBudget | None = None,
    ) -> None:
        self.store, self.plan, self.tree, self.text = as_engine_store(store), plan, tree, text
        self.now_ms = plan.grid.end_ms if now_ms is None else now_ms
        self.budget = watch or QueryBudget()
        self.notes: list[str] = []
        self.folded: dict[int, nodes.Scalar] = {}
        """Defaults of the operators evaluated so far, by the id of their node."""
        self.costs: dict[int, NodeCost] | None = None
        """Costs of the nodes evaluated so far, by the id of the node; None: they are not measured."""
        self.complete = True
        self.partial = False
        self.approximate = ""
        """A function whose values are approximate, "" if there is none."""
        self._fetched: list[StoreRequest] = []
        self._answers: dict[tuple[SelectRequest, bool], Buckets] = {}
        self._aggregates: dict[AggregateRequest, Aggregate] = {}
        self._samples: dict[SampleRequest, RawSeries] = {}

    # --- values of nodes

    @abstractmethod
    def evaluate(self, node: Node, grid: Grid) -> Value | RawSeries:
        """Return the value of a node on `grid`; of a node over raw samples, those in (start, end] of the grid."""

    @abstractmethod
    def statistics(self, node: Node, grid: Grid, names: Sequence[str], opening: bool = False) -> BucketData:
        """Return bucket statistics of a fetch (possibly shifted in time); of other nodes values, one per bucket.
        `opening`: see SelectRequest."""

    def operand(self, node: Node, grid: Grid, function: str) -> Value:
        """Return the value of a node for `function`, which does not accept raw samples."""
        value = self.evaluate(node, grid)
        if isinstance(value, RawSeries):
            raise grid_required(function)
        return value

    def matrix(self, node: Node, grid: Grid, function: str) -> Matrix:
        """Return the series of a node for `function`, which accepts only series on a grid."""
        return self.matrix_of(self.operand(node, grid, function), function)

    def matrix_of(self, value: Value, function: str) -> Matrix:
        """Return the value if it is a matrix. Raises QueryError for a plain value."""
        if isinstance(value, Matrix):
            return value
        if isinstance(value, TimedScalar):
            raise QueryError(f"{function} works on series, not on a value that changes with time")
        raise QueryError(f"{function} works on series, not on the plain value {value.value!r:.80}")

    def raw(self, node: Node, after_ms: int, until_ms: int) -> RawSeries:
        """Return the raw samples, with time in (after_ms, until_ms], of a node over raw samples."""
        value = self.evaluate(node, Grid(until_ms, until_ms - after_ms, 1))
        if isinstance(value, RawSeries):
            return value
        raise QueryError(f"{type(node).__name__.lower()} gives no raw samples")

    # --- the same query with another store

    def with_store(self, store: Store) -> Self:
        """Return an execution of the same query over another store. The two have separate notes."""
        return type(self)(store, self.plan, self.tree, self.text, self.now_ms, self.budget)

    def merge_origin(self, other: QueryExecution) -> None:
        """Take over the fetches of another execution of the same query, and its `partial` flag."""
        self._fetched += other._fetched
        self.partial |= other.partial
        self.approximate = self.approximate or other.approximate

    # --- budget and notes

    def check(self) -> None:
        """Raise if the query was cancelled or has exceeded its time limit."""
        self.budget.check()

    def note(self, *notes: str) -> None:
        """Add notes to the answer; equal notes are kept once."""
        self.notes += [note for note in notes if note not in self.notes]

    def origin(self) -> Origin:
        """Engines, level and fetches of the answer so far."""
        engines = {part.engine for one in self._fetched for part in one.parts}
        both = {"memory", "history"} <= engines
        engine = "memory and history" if both else next(iter(engines)) if len(engines) == 1 else self.plan.engine
        ms = (monotonic() - self.budget.started) * 1000
        return Origin(engine, self.plan.base_step_ms, self.plan.why, tuple(self._fetched), ms)

    # --- the store

    def select(
        self,
        matchers: tuple[Matcher, ...],
        grid: Grid,
        statistics: tuple[str, ...],
        past: bool,
        opening: bool = False,
    ) -> Buckets:
        """Query the store, once for equal requests; with `past` only the history; `opening`: see SelectRequest. Raises
        LimitExceeded for too many series or bytes, if possible before they are read."""
        request = SelectRequest(matchers, grid, statistics, self.budget.limits.series, opening=opening)
        key = (request, past)
        found = self._answers.get(key)
        if found is None:
            store = self.store.history() if past else self.store
            began = perf_counter()
            try:
                found = limited_select(store, matchers, grid, statistics, self.budget, opening=opening)
            except SelectError as problem:
                raise _as_query_error(problem) from problem
            self._answers[key] = found
            bytes_ = sum(matrix.size for matrix in found.statistics.values()) * CELL_BYTES
            parts = found.parts or self._own_part(grid, past)
            self._record_request(matchers, grid, statistics, len(found.series), bytes_, began, parts)
            self.note(*map(as_double_note, found.notes))
            self.partial |= found.partial
        return found

    def aggregate(self, request: AggregateRequest) -> Aggregate:
        """Let the store aggregate, once for equal requests. Raises NotPushed if it cannot. Adds no notes."""
        found = self._aggregates.get(request)
        if found is None:
            if not self.store.can_aggregate:
                raise NotPushed("the store does not aggregate")
            began = perf_counter()
            try:
                found = self._aggregates[request] = self.store.aggregate(request)
            except SelectError as problem:
                raise _as_query_error(problem) from problem
            bytes_ = len(found.classes) * request.windows.outputs * CELL_BYTES
            function, selected = (request.windows.function, request.reducer), found.counts.selected
            parts = self._own_part(request.grid)
            self._record_request(request.matchers, request.grid, function, selected, bytes_, began, parts, reduced=True)
        return found

    def samples(self, selector: Selector, after_ms: int, until_ms: int) -> RawSeries:
        """Return raw samples with time in (after_ms, until_ms] of matching series, in canonical order.

        Raises QueryError if the store holds no raw samples."""
        request = SampleRequest(selector.matchers, after_ms, until_ms, self.budget.limits.series)
        found = self._samples.get(request)
        if found is None:
            began = perf_counter()
            try:
                answer = self.store.samples(request)
            except SelectError as problem:
                raise _as_query_error(problem) from problem
            found = self._samples[request] = to_raw_series(answer)
            grid = Grid(until_ms, max(1, until_ms - after_ms), 1)
            bytes_ = found.samples * 3 * CELL_BYTES
            parts = answer.parts or (EngineShare(self.plan.engine, after_ms, until_ms, found.samples),)
            self._record_request(request.matchers, grid, ("samples",), len(answer.series), bytes_, began, parts)
            self.note(*answer.notes)
            self.partial |= answer.partial
        return found

    def _own_part(self, grid: Grid, past: bool = False) -> tuple[EngineShare, ...]:
        return (EngineShare("history" if past else self.plan.engine, grid.start_ms, grid.end_ms),)

    def _record_request(
        self,
        matchers: tuple[Matcher, ...],
        grid: Grid,
        statistics: tuple[str, ...],
        series: int,
        bytes_: int,
        began: float,
        parts: tuple[EngineShare, ...],
        reduced: bool = False,
    ) -> None:
        ms = (perf_counter() - began) * 1000
        one = StoreRequest(str(Selector(matchers)), grid, statistics, series, bytes_, ms, reduced, parts)
        self._fetched.append(one)
        self.budget.charge(0 if reduced else series, bytes_, one.samples)

    @property
    def partial_windows(self) -> bool:
        """True if windows that the store holds in part are answered."""
        return self.plan.partial_windows

    def columns_held_before(self, grid: Grid) -> int | None:
        """Number of buckets before `grid` that the store can hold; None if unknown (raw samples)."""
        ring = self.plan.level(grid.step_ms) or self.plan.level(self.plan.base_step_ms)
        return None if ring is None else max(0, (grid.start_ms - ring.held_start_ms) // grid.step_ms)

    # --- series that a function takes

    def accepted_series(self, found: S, function: str, *, numbers: bool, texts: bool) -> S:
        """Keep the series that a function accepts. Raises QueryError if none is left."""
        if numbers and texts:
            return found
        if numbers:
            return self.numeric_only(found, function)
        rows = np.flatnonzero(found.types == STRING)
        if len(rows) == len(found):
            return found
        if not len(rows):
            raise QueryError(f"{function} takes STRING series only, and there are none: {', '.join(found.series[:3])}")
        self.note(f"{function}: {len(found) - len(rows)} series that are not STRING left out")
        return found.take(rows)

    def numeric_only(self, found: S, function: str) -> S:
        """Drop STRING series, which numeric functions do not accept. Raises QueryError if none is left."""
        texts = found.types == STRING
        if not texts.any():
            return found
        if texts.all():
            raise QueryError(
                f"{function} cannot take STRING series, and there are no others: {', '.join(found.series[:3])}"
            )
        self.note(f"{function}: {int(texts.sum())} STRING series left out")
        return found.take(np.flatnonzero(~texts))


def grid_required(function: str) -> QueryError:
    """Return the error for a function that was given raw samples."""
    return QueryError(
        f'{function} takes series on a grid, and samples() gives raw samples: say .bucketize("last", "1m") before'
    )


def _as_query_error(problem: SelectError) -> QueryError:
    error = QueryError(str(problem))
    error.of_query = problem.of_query
    return error


def to_scalar(found: Matrix) -> TimedScalar:
    """Return the only series of a matrix. Raises QueryError if there is none or more than one."""
    if len(found) != 1:
        shown = f", such as {', '.join(found.series[:3])}" if len(found) else ""
        raise QueryError(f"scalar wants exactly one series and got {len(found)}{shown}: reduce with by=[] before")
    return TimedScalar(found.grid, found.column, found.strings)
