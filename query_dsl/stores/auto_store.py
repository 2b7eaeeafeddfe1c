"""Store over memory and history: memory as far as it reaches, else the history, and both combined for a range that
begins in the history and ends in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TypeVar

import numpy as np

from artimon.compute.aggregate import Aggregate, AggregateRequest, NotPushed
from artimon.compute.statistics import with_needs
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.grid import Grid
from artimon.model.select import (
    Buckets,
    EngineShare,
    Matcher,
    SelectError,
    SelectRequest,
    Series,
    Store,
    too_many_series,
)
from query_dsl.stores.engine_store import EngineStore, as_engine_store
from query_dsl.stores.history.sample_query import HistoryError, HistoryInterrupted, TooMuchHistory
from query_dsl.stores.history_catalogue import sort_series
from query_dsl.stores.levels import LevelSnapshot, StoreReach, level_snapshots
from query_dsl.stores.query_limits import QueryBudget
from query_dsl.stores.raw_samples import RawSamples, SampleRequest
from query_dsl.stores.stitched_buckets import downsample, stitch
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.times import format_time

T = TypeVar("T")


class AutoStore(EngineStore):
    """Store over a memory store and a history, which is opened on first use. Threads may share it if they may share
    these two."""

    def __init__(self, memory: Store, past: Callable[[], Store], clock: Clock = SYSTEM_CLOCK) -> None:
        self._memory, self._open_past, self._clock = as_engine_store(memory), past, clock

    def watching(self, watch: QueryBudget) -> AutoStore:
        return AutoStore(self._memory.watching(watch), lambda: self.history().watching(watch), self._clock)

    def reach(self) -> StoreReach:
        return StoreReach(unbounded=True, prefers_memory=True, store_now_ms=self._clock.now_ms())

    def history(self) -> EngineStore:
        return as_engine_store(self._open_past())

    def levels(self) -> tuple[tuple[int, int], ...]:
        """See EngineStore: the levels of memory."""
        return self._memory.levels()

    def names(self) -> list[str]:
        """See EngineStore: the names of both."""
        return sorted({*self._memory.names(), *(self._ask_history(lambda past: past.names()) or ())})

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        """See EngineStore: the values of both."""
        past = self._ask_history(lambda store: store.label_values(label, limit)) or ()
        return sorted({*self._memory.label_values(label, limit), *past})[:limit]

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        """Series of both, preferably as in memory; the history is queried if memory does not fill the limit."""
        found = self._memory.find(matchers, limit)
        if len(found) >= limit:
            return found
        known = {_key(one) for one in found}
        past = self._ask_history(lambda store: store.find(matchers, limit)) or ()
        return sort_series([*found, *(one for one in past if _key(one) not in known)])[:limit]

    def newest(self, matchers: tuple[Matcher, ...], end_ms: int, prints: Collection[int] = ()) -> dict[int, int]:
        """See EngineStore: the times of the history."""
        return self._ask_history(lambda past: past.newest(matchers, end_ms, prints)) or {}

    def _ask_history(self, ask: Callable[[EngineStore], T]) -> T | None:
        """Query the history; None if it does not answer, so that the answer of memory remains."""
        try:
            return ask(self.history())
        except (HistoryInterrupted, TooMuchHistory):
            raise
        except (HistoryError, SelectError, OSError):
            return None

    def samples(self, request: SampleRequest) -> RawSamples:
        """See EngineStore: from the history."""
        return self.history().samples(request)

    def aggregate(self, request: AggregateRequest) -> Aggregate:
        """See EngineStore: for grids that memory alone holds. Raises NotPushed for others."""
        memory, ring = self._memory, self._ring(request.grid.step_ms)
        if request.grid.step_ms != ring.step_ms:
            raise NotPushed("the memory store does not aggregate this")
        if request.grid.start_ms < ring.held_start_ms:
            raise NotPushed("part of it lies in the history")
        return memory.aggregate(request)

    def select(self, request: SelectRequest) -> Buckets:
        """See EngineStore: any multiple of a level's step.

        If one of the two cannot be read, the answer is that of the other one, partial, with a note."""
        grid = request.grid
        ring = self._ring(grid.step_ms)
        if grid.start_ms >= ring.held_start_ms and grid.step_ms == ring.step_ms:
            return _with_engine(self._memory.select(request))
        border = -(-ring.span_start_ms // grid.step_ms) * grid.step_ms
        border += (grid.end_ms - border) % grid.step_ms
        if grid.end_ms <= border:
            return _with_engine(self.history().select(request), "history")
        newer = Grid(grid.end_ms, grid.step_ms, min(grid.n, (grid.end_ms - border) // grid.step_ms))
        if newer.n == grid.n:
            return self._newer(request, newer, ring, request.statistics)
        older = Grid(newer.start_ms, grid.step_ms, grid.n - newer.n)
        return self._both(request, older, newer, ring)

    def _both(self, request: SelectRequest, older: Grid, newer: Grid, ring: LevelSnapshot) -> Buckets:
        statistics = tuple(sorted(with_needs(request.statistics)))  # a type may change at the seam
        new: Buckets | SelectError
        try:
            new = self._newer(request, newer, ring, statistics)
        except SelectError as problem:
            if problem.of_query:
                raise
            new = problem
        try:
            whole = request.grid if isinstance(new, SelectError) else older
            old = _with_engine(self.history().select(replace(request, grid=whole, statistics=statistics)), "history")
        except (TooMuchHistory, HistoryInterrupted):
            raise
        except HistoryError as problem:
            if isinstance(new, SelectError):
                raise
            note = f"the history does not answer ({problem}): data up to {format_time(older.end_ms)} is missing"
            old = _empty_answer(older, statistics, note)
        if isinstance(new, SelectError):
            note = f"the memory store does not answer ({new}): the whole answer is from the history"
            return replace(_from_memory_only(old, request), notes=(*old.notes, note), partial=True)
        found = stitch(old, new, request)
        if len(found.series) > request.limit:
            raise too_many_series(len(found.series), request.limit)
        return found

    def _newer(self, request: SelectRequest, grid: Grid, ring: LevelSnapshot, statistics: tuple[str, ...]) -> Buckets:
        """Read memory and merge its buckets to those of the query."""
        times = grid.step_ms // ring.step_ms
        wanted = statistics if times == 1 else tuple(dict.fromkeys((*statistics, "count")))
        finer = Grid(grid.end_ms, ring.step_ms, grid.n * times)
        found = self._memory.select(replace(request, grid=finer, statistics=wanted))
        return _from_memory_only(downsample(_with_engine(found), grid), replace(request, statistics=statistics))

    def _ring(self, step_ms: int) -> LevelSnapshot:
        """Return the coarsest level whose step divides this step."""
        rings = level_snapshots(self._memory.levels(), self._clock.now_ms())
        fit = [ring for ring in rings if step_ms % ring.step_ms == 0]
        if not fit:
            raise QueryError(f"the step of {step_ms} ms is not a multiple of the step of any level")
        return fit[-1]


def _key(one: Series) -> tuple[str, frozenset[tuple[str, str]]]:
    return one.name, frozenset(one.labels.items())


def _with_engine(found: Buckets, engine: str = "memory") -> Buckets:
    """Record that this engine answered, unless the answer names its parts."""
    return (
        found if found.parts else replace(found, parts=(EngineShare(engine, found.grid.start_ms, found.grid.end_ms),))
    )


def _from_memory_only(found: Buckets, request: SelectRequest) -> Buckets:
    return replace(found, statistics={name: found.statistics[name] for name in request.statistics})


def _empty_answer(grid: Grid, statistics: tuple[str, ...], note: str) -> Buckets:
    empty = {name: np.zeros((0, grid.n), np.int64) for name in statistics}
    return Buckets(grid, (), empty, notes=(note,), partial=True)
