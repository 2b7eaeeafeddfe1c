"""Store wrapper for one query: enforces limits before computing, and stops an abandoned query."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, wait
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from artimon.access.scoped_store import ScopedStore
from artimon.api.api_errors import QueryCancelledError, QueryTooLargeError
from artimon.api.api_limits import ApiLimits
from artimon.compute.aggregate import Aggregate, AggregateRequest
from artimon.model.select import Buckets, EngineShare, Matcher, SelectError, SelectRequest, TooManySeries
from query_dsl import Expr, Matrix
from query_dsl.evaluation.completeness import measure_prepared, measure_promql
from query_dsl.evaluation.evaluator import QueryEvaluator, prepare, require_matrix
from query_dsl.evaluation.explain import Explanation, explain_prepared
from query_dsl.evaluation.host_acks import LiveAgents, add_host_states
from query_dsl.promql import Query
from query_dsl.results.expected_points import Completeness
from query_dsl.stores.engine_store import EngineStore, ForwardingStore
from query_dsl.stores.query_limits import DEFAULT_LIMITS, QueryBudget, make_budget
from query_dsl.stores.query_limits import Limits as QueryLimits
from query_dsl.stores.raw_samples import RawSamples, SampleRequest
from query_dsl.stores.table_read import HISTORY_NOTE
from query_dsl.tree.nodes import Window, walk
from varstore.cluster.varstore_client import StoreUnavailable

CANCEL_CHECK_S = 0.1
CELL_BYTES = 64
"""Memory estimate of a cell, which has up to six statistics."""
FETCHES = 16
"""Fetches of maximum size in the memory limit of a query."""
T = TypeVar("T")


@dataclass(slots=True)
class LimitedStore(ForwardingStore):
    """Wrapper of a store for one query. `columns` is the number of buckets that a fetch of the query allocates.

    `threads` run the calls to a store that does not check for cancellation itself, so that an abandoned query does not
    wait for the store."""

    store: EngineStore
    limits: ApiLimits
    stop: threading.Event = field(default_factory=threading.Event)
    """Set when the query is over or abandoned; its next call to the store then fails."""
    buckets_per_series: int = 1
    threads: Executor | None = None
    remarks: dict[str, None] = field(default_factory=dict)
    """Reasons why a list of series, names or values is not complete."""
    engines: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Engines that answered, and the notes of the history on what it read."""

    @property
    def sees(self) -> tuple[Matcher, ...]:
        """Matchers of the series that the role may see; () for all."""
        return self.store.sees if isinstance(self.store, ScopedStore) else ()

    def select(self, request: SelectRequest) -> Buckets:
        """Select within the limits. Raises QueryTooLargeError if more series match than this query may read."""
        allowed, what = self._series_limit(max(self.buckets_per_series, request.grid.n))
        try:
            found = self._call(lambda: self.store.select(replace(request, limit=min(request.limit, allowed))))
        except StoreUnavailable:
            raise
        except SelectError as problem:
            if len(self.find(request.matchers, allowed + 1)) > allowed:
                raise QueryTooLargeError(what) from problem
            raise
        if len(found.series) > allowed:
            raise QueryTooLargeError(what)
        self._record(found.parts, found.notes)
        return found

    def aggregate(self, request: AggregateRequest) -> Aggregate:
        """Aggregate within the limits. Raises QueryTooLargeError if too many series match, NotPushed if the store
        cannot."""
        columns = max(self.buckets_per_series, request.grid.n)
        allowed = min(request.limit, self.limits.cells_reduced // columns)
        try:
            found = self._call(lambda: self.store.aggregate(replace(request, limit=allowed)))
            self._record((), ())
            return found
        except TooManySeries as problem:
            raise QueryTooLargeError(
                f"too much to reduce: over {allowed} series of {columns} buckets, more than the limit of "
                f"{self.limits.cells_reduced} cells (cells_reduced): add matchers, or ask for a shorter range or window"
            ) from problem

    def _series_limit(self, columns: int) -> tuple[int, str]:
        by_cells = self.limits.cells_read // columns
        if by_cells < self.limits.series:
            return by_cells, (
                f"too much to read: over {by_cells} series of {columns} buckets, more than the limit of "
                f"{self.limits.cells_read} cells (cells_read): add matchers, or ask for a shorter range or window"
            )
        return self.limits.series, f"more series match than the limit of {self.limits.series} (series): add matchers"

    def check(self) -> None:
        """Raise QueryCancelledError if the query is abandoned."""
        if self.stop.is_set():
            raise QueryCancelledError("the query took too long")

    def _call(self, question: Callable[[], T]) -> T:
        self.check()
        if self.threads is None:
            return question()
        try:
            asked = self.threads.submit(question)
        except RuntimeError as ended:
            raise QueryCancelledError("the server is stopping") from ended
        while not wait([asked], CANCEL_CHECK_S).done:
            if self.stop.is_set():
                asked.cancel()
                raise QueryCancelledError("the query took too long")
        return asked.result()

    def watching(self, watch: QueryBudget) -> LimitedStore:
        """Return a wrapper for one evaluation. A store that checks `watch` itself is called without another thread."""
        if not self.checks_budget:
            return self
        return replace(self, store=self.store.watching(watch), threads=None)

    def cancellable(self) -> LimitedStore:
        """Return a wrapper that checks `stop`, for calls outside an evaluation."""
        return self.watching(QueryBudget(checks=(self.check,), missing=self.remarks))

    def history(self) -> EngineStore:
        return replace(self, store=self.store.history())

    def samples(self, request: SampleRequest) -> RawSamples:
        allowed, _ = self._series_limit(1)
        found = self._call(lambda: self.store.samples(replace(request, limit=min(request.limit, allowed))))
        self._record(found.parts, found.notes)
        return found

    def _record(self, parts: tuple[EngineShare, ...], notes: tuple[str, ...]) -> None:
        """Record which engines answered; without parts it was the memory store."""
        read = tuple(note for note in notes if note.startswith(HISTORY_NOTE))
        for engine in dict.fromkeys(part.engine for part in parts) or ("memory",):
            known = self.engines.setdefault(engine, ())
            if engine == "history":
                self.engines[engine] = tuple(dict.fromkeys((*known, *read)))


def evaluate_query(
    query: str | Expr, store: LimitedStore, now_ms: int, partial_windows: bool = False, newest: int | None = None
) -> Matrix:
    """Evaluate a query within the limits; `newest`: see QueryParameters. Raises QueryError or SelectError, see
    `refusal`."""
    matrix = require_matrix(_prepare_query(query, store, now_ms, partial_windows, newest).answer())
    cells = len(matrix) * matrix.grid.n
    if cells > store.limits.cells_answered:
        raise QueryTooLargeError(
            f"the answer has {len(matrix)} series of {matrix.grid.n} buckets, {cells} cells, more than the limit of "
            f"{store.limits.cells_answered} (cells_answered): reduce by labels, add matchers, ask for a shorter range"
        )
    return matrix


def explain_query(query: str | Expr, store: LimitedStore, now_ms: int, partial_windows: bool = False) -> Explanation:
    """Explain a query, which runs within the limits. Raises as `evaluate_query`."""
    return explain_prepared(_prepare_query(query, store, now_ms, partial_windows))


def measure_query(
    query: str | Expr, store: LimitedStore, now_ms: int, agents: LiveAgents | None = None
) -> Completeness:
    """Measure the completeness of a query within the limits, with the states of silent hosts; `agents`: those that are
    live. Raises as `evaluate_query`."""
    return _with_states(measure_prepared(_prepare_query(query, store, now_ms)), store, now_ms, agents)


def measure_promql_query(
    query: Query,
    store: LimitedStore,
    now_ms: int,
    start_ms: int,
    end_ms: int,
    agents: LiveAgents | None = None,
    **options: Any,
) -> Completeness:
    """Measure the completeness of a query in PromQL, as `measure_query`; `options`: those of `measure_promql`."""
    budget = make_budget(history_limits(store), store.check)
    found = measure_promql(query, store, now_ms, start_ms, end_ms, budget, **options)
    return _with_states(found, store, now_ms, agents)


def _with_states(found: Completeness, store: LimitedStore, now_ms: int, agents: LiveAgents | None) -> Completeness:
    """Add the states of silent hosts, if memory is asked."""
    reach = store.reach()
    is_history = reach.unbounded and not reach.prefers_memory
    return found if is_history else add_host_states(found, store, now_ms, agents)


def history_limits(store: LimitedStore, seconds: float | None = None) -> QueryLimits:
    """Return the limits that the history enforces; this wrapper limits series and cells."""
    limits = store.limits
    series, memory = max(limits.series, DEFAULT_LIMITS.series), limits.cells_read * CELL_BYTES * FETCHES
    return QueryLimits(series, limits.samples_read, memory_bytes=memory, seconds=seconds)


def _prepare_query(
    query: str | Expr, store: LimitedStore, now_ms: int, partial_windows: bool = False, newest: int | None = None
) -> QueryEvaluator:
    """Prepare a query and set the store's `columns`. Raises QueryTooLargeError if the buckets of a single series exceed
    the limit."""
    budget = make_budget(history_limits(store), store.check)
    evaluator = prepare(query, store, now_ms, budget, partial_windows, newest)
    planned = evaluator.plan
    windows = [node for node in walk(evaluator.tree) if isinstance(node, Window)]
    windows_ms = sum((one.since.most_ms if one.since else one.before_ms or 0) + one.after_ms for one in windows)
    span_ms = planned.grid.end_ms - planned.grid.start_ms + windows_ms
    columns = max(1, span_ms // planned.base_step_ms)
    if columns > store.limits.cells_read:
        raise QueryTooLargeError(
            f"the range and windows span {columns} buckets, more than the limit of {store.limits.cells_read} "
            "(cells_read): ask for a shorter range or window"
        )
    if isinstance(evaluator.store, LimitedStore):
        evaluator.store.buckets_per_series = columns
    return evaluator


def until_cancelled(pieces: Iterator[bytes], store: LimitedStore) -> Iterator[bytes]:
    """Yield the pieces until the query is abandoned."""
    for piece in pieces:
        store.check()
        yield piece
