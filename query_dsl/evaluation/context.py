"""What one evaluation carries along: the store, the plan, and what the answer will have to say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import monotonic, perf_counter

import numpy as np

from artimon.compute.aggregate import Aggregate, AggregateRequest, Aggregating, NotPushed
from artimon.model.grid import Grid
from artimon.model.select import Buckets, Matcher, Part, SelectError, SelectRequest, Store
from query_dsl.evaluation.planner import Plan
from query_dsl.results.cells import STRING, take
from query_dsl.results.irregular import Irregular
from query_dsl.results.matrix import Matrix
from query_dsl.results.origin import Fetched, Origin
from query_dsl.stores.levels import Layered
from query_dsl.stores.limits import CELL_BYTES, LimitExceeded, Watch, watched
from query_dsl.stores.sampled import SampleRequest, Sampling, irregular
from query_dsl.tree.errors import QueryError
from query_dsl.tree.selector import Selector


class Context:
    """Belongs to one evaluation and one thread."""

    def __init__(
        self,
        store: Store,
        plan: Plan,
        check: Callable[[], None] | None = None,
        watch: Watch | None = None,
        watched_already: bool = False,
    ) -> None:
        self.plan = plan
        self.watch = watch or Watch(checks=() if check is None else (check,))
        self.store = store if watched_already else watched(store, self.watch)
        self.notes: list[str] = []
        self.complete = True
        self.partial = False
        self.now_ms = plan.grid.end_ms
        """The moment of evaluation: what "now" means in arguments of functions."""
        self._fetched: list[Fetched] = []
        self._answers: dict[tuple[SelectRequest, bool], Buckets] = {}
        self._aggregates: dict[AggregateRequest, Aggregate] = {}
        self._samples: dict[SampleRequest, Irregular] = {}

    def of(self, store: Store) -> Context:
        """The same evaluation with another store. What is said there is not said here."""
        other = Context(store, self.plan, watch=self.watch)
        other.now_ms = self.now_ms
        return other

    def adopt(self, other: Context) -> None:
        """Take over what was fetched by another one of the same evaluation, and whether it was all."""
        self._fetched += other._fetched
        self.partial |= other.partial

    def check(self) -> None:
        """Go on, or raise what whoever asked wants raised: the query was called off, or its time is over."""
        self.watch.check()

    def note(self, *notes: str) -> None:
        """Say something once."""
        self.notes += [note for note in notes if note not in self.notes]

    def select(self, request: SelectRequest, past: bool = False) -> Buckets:
        """Ask the store, once for equal requests; `past`: only the history. LimitExceeded for too many series or bytes,
        before they are asked for where that can be known."""
        key = (request, past)
        found = self._answers.get(key)
        if found is None:
            store = self._past() if past else self.store
            allowed, refusal = self.watch.series_allowed(request.grid.n, len(request.statistics))
            began = perf_counter()
            try:
                found = store.select(replace(request, limit=min(request.limit, max(1, allowed))))
            except SelectError as problem:
                if allowed <= request.limit and "are allowed" in str(problem):
                    raise LimitExceeded(f"{problem}; {refusal}") from problem
                raise _as_query_error(problem) from problem
            self._answers[key] = found
            bytes_ = sum(matrix.size for matrix in found.statistics.values()) * CELL_BYTES
            parts = found.parts or self._part(request.grid, past)
            self._took(request.matchers, request.grid, request.statistics, len(found.series), bytes_, began, parts)
            self.note(*found.notes)
            self.partial |= found.partial
        return found

    def aggregate(self, request: AggregateRequest) -> Aggregate:
        """Let the store aggregate, once for equal requests; NotPushed where it cannot do this one. Says nothing yet."""
        found, store = self._aggregates.get(request), self.store
        if found is None:
            if not isinstance(store, Aggregating):
                raise NotPushed("the store does not aggregate")
            began = perf_counter()
            try:
                found = self._aggregates[request] = store.aggregate(request)
            except SelectError as problem:
                raise _as_query_error(problem) from problem
            bytes_ = len(found.classes) * request.windows.outputs * CELL_BYTES
            function, selected = (request.windows.function, request.reducer), found.counts.selected
            parts = self._part(request.grid)
            self._took(request.matchers, request.grid, function, selected, bytes_, began, parts, reduced=True)
        return found

    def samples(self, selector: Selector, after_ms: int, until_ms: int) -> Irregular:
        """Raw samples with time in (after_ms, until_ms] of the series that fit, in canonical order.

        QueryError where the store holds no raw samples."""
        request = SampleRequest(selector.matchers, after_ms, until_ms, self.watch.limits.series)
        found = self._samples.get(request)
        if found is None:
            store = self.store
            if not isinstance(store, Sampling):
                raise QueryError(
                    "samples(): the memory store holds buckets, not samples; ask with the history engine"
                    ' (engine="auto" or "history"), or use fetch()'
                )
            began = perf_counter()
            try:
                answer = store.samples(request)
            except SelectError as problem:
                raise _as_query_error(problem) from problem
            found = self._samples[request] = irregular(answer)
            grid = Grid(until_ms, max(1, until_ms - after_ms), 1)
            bytes_ = found.samples * 3 * CELL_BYTES
            parts = answer.parts or (Part(self.plan.engine, after_ms, until_ms, found.samples),)
            self._took(request.matchers, grid, ("samples",), len(answer.series), bytes_, began, parts)
            self.note(*answer.notes)
            self.partial |= answer.partial
        return found

    def _past(self) -> Store:
        if isinstance(self.store, Layered):
            return self.store.past()
        raise QueryError('resolution="raw" needs the history engine, and this store has none: leave it out')

    def _part(self, grid: Grid, past: bool = False) -> tuple[Part, ...]:
        return (Part("history" if past else self.plan.engine, grid.start_ms, grid.end_ms),)

    def _took(
        self,
        matchers: tuple[Matcher, ...],
        grid: Grid,
        statistics: tuple[str, ...],
        series: int,
        bytes_: int,
        began: float,
        parts: tuple[Part, ...],
        reduced: bool = False,
    ) -> None:
        ms = (perf_counter() - began) * 1000
        one = Fetched(str(Selector(matchers)), grid, statistics, series, bytes_, ms, reduced, parts)
        self._fetched.append(one)
        self.watch.took(0 if reduced else series, bytes_, one.samples)

    def origin(self) -> Origin:
        """Where the answer came from, so far."""
        engines = {part.engine for one in self._fetched for part in one.parts}
        both = {"memory", "history"} <= engines
        engine = "memory and history" if both else next(iter(engines)) if len(engines) == 1 else self.plan.engine
        ms = (monotonic() - self.watch.started) * 1000
        return Origin(engine, self.plan.base_step_ms, self.plan.why, tuple(self._fetched), ms)

    def columns_held_before(self, grid: Grid) -> int | None:
        """Number of buckets before `grid` that the store can hold; None if unknown (raw samples)."""
        ring = self.plan.ring(grid.step_ms) or self.plan.ring(self.plan.base_step_ms)
        return None if ring is None else max(0, (grid.start_ms - ring.held_start_ms) // grid.step_ms)

    def seconds_left(self) -> float | None:
        """How long the evaluation may go on; None without a limit."""
        return self.watch.seconds_left()

    def suited(self, matrix: Matrix, function: str, *, numbers: bool, texts: bool) -> Matrix:
        """The series that a function takes; QueryError if none is left."""
        if numbers and texts:
            return matrix
        if numbers:
            return self.numeric(matrix, function)
        rows = np.flatnonzero(matrix.types == STRING)
        if len(rows) == len(matrix.keys):
            return matrix
        if not len(rows):
            raise QueryError(f"{function} takes STRING, and no series is one: {', '.join(matrix.series[:3])}")
        self.note(f"{function}: {len(matrix.keys) - len(rows)} series that are no STRING left out")
        return Matrix(tuple(matrix.keys[i] for i in rows), matrix.grid, take(matrix.column, rows), matrix.strings)

    def numeric(self, matrix: Matrix, function: str) -> Matrix:
        """The matrix without STRING series, which numeric functions leave out; QueryError if none is left."""
        texts = matrix.types == STRING
        if not texts.any():
            return matrix
        if texts.all():
            raise QueryError(f"{function} cannot take STRING, and every series is one: {', '.join(matrix.series[:3])}")
        self.note(f"{function}: {int(texts.sum())} STRING series left out")
        rows = np.flatnonzero(~texts)
        return Matrix(tuple(matrix.keys[i] for i in rows), matrix.grid, take(matrix.column, rows), matrix.strings)


def _as_query_error(problem: SelectError) -> QueryError:
    error = QueryError(str(problem))
    error.of_query = problem.of_query
    return error
