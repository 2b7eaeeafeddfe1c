"""Push-down: a shard selects, windows and reduces series itself and returns a partial result for each class.

Two ways give the same answer. Most functions run part by part of the series, and in each part bucket by bucket
(artimon/compute/rolling_windows.py). The others run by chunks of series through the arithmetic of the evaluator. Twins
in this process are read as buckets, joined and reduced separately."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import numpy as np
import numpy.typing as npt

from artimon.compute.aggregate import (
    NO_FINGERPRINTS,
    Aggregate,
    AggregateRequest,
    ClassLabels,
    NotPushed,
    aggregate_buckets,
    check_aggregate,
    distinct_fingerprints,
    drop_empty_classes,
    gathered_values,
    merge_aggregates,
    reduce_gathered,
    reducer_params,
)
from artimon.compute.arrays import Arrays
from artimon.compute.cells import Types, is_whole_number
from artimon.compute.function import WindowFunction, mask_shown
from artimon.compute.functions import WINDOW_FUNCTIONS
from artimon.compute.params import Args, bind_params
from artimon.compute.partials import REDUCERS
from artimon.compute.ranks import ORDERED
from artimon.compute.reduction import Reduction, Rows
from artimon.compute.rolling_windows import (
    ClassOrder,
    MaskOrBool,
    MatrixNeeded,
    Rolling,
    RollingContext,
    intersect,
    simplify_mask,
)
from artimon.compute.sample_order import Cells
from artimon.compute.statistics import STATISTICS, with_needs
from artimon.compute.succession import normalize_incarnations
from artimon.compute.true_sums import may_wrap
from artimon.model.grid import Grid, Level
from artimon.model.select import SelectError, too_many_series
from artimon.model.values import Kind
from varstore.cells.level_ring import LevelRing
from varstore.cells.locks import FairLock, FairSemaphore
from varstore.index.label_index import LabelIndex
from varstore.query.answer_merge import merge_answers
from varstore.query.bucket_reader import LOCK_HOLD_S, BucketReader, SeriesChanged, check_request
from varstore.query.captured_buckets import (
    CapturedBucket,
    MayWrap,
    ReadFields,
    SelectionColumn,
    warm_captured,
)
from varstore.query.query_deadline import DeadlinePassed, IsDisconnected, QueryDeadline, never_disconnected
from varstore.query.row_reduction import PartValues, ReducedRow, RowReduction, SampledSlots, Scratch
from varstore.query.selection import SelectionCache, SelectionChanged, SeriesSelection, labels_of_slot
from varstore.query.selection_parts import SelectionLayout, SelectionPart, part_size
from varstore.store.bucket_store import BucketStore

MEMORY_BYTES = 256 * 1024 * 1024
"""Limit of the memory of one pushdown besides the store."""
SLICE_BYTES = 4 * 1024 * 1024
COLUMN_BYTES = 32
"""Bytes of a bucket of a series while a window needs it."""
GATHERED_BYTES = 26
"""Bytes of a gathered value, for reducers that sort."""
CHUNK_CELLS = 500_000
MAX_ATTEMPTS = 3
CACHED_FUNCTIONS = frozenset({"last", "min", "max", "sum", "mean"})
"""Window functions whose results for one bucket are cached until the bucket changes."""
NO_REDUCTION_CLASSES = 10_000
MIN_CHOSEN_LIMIT, MAX_CHOSEN_LIMIT = 1_000, 20_000
"""Bounds on the limit of chosen members: half of the selection, but at least 1,000 and at most 20,000."""
MAX_CONCURRENT = max(1, min(4, (os.cpu_count() or 1) - 1))
"""Queries computed at a time, taking turns part by part. Threads that wait for the interpreter's lock after every step
of numpy delay feeding too, so one core is left to it."""

MakeRolling = Callable[[RollingContext], Rolling]

__all__ = ["DeadlinePassed", "Pushdown", "check_memory"]


@dataclass(slots=True)
class _PushdownQuery:
    """Push-down in progress."""

    request: AggregateRequest
    ring: LevelRing
    selection: SeriesSelection
    types: Types
    ended_ms: Cells
    deadline: QueryDeadline


class Pushdown:
    """Pushdowns of one shard. `cells` is the lock of the store, held for about HOLD_S at a time to capture rows, once
    per part if a function reads incarnations, and once per chunk. `answers` reads the buckets of twins."""

    def __init__(
        self, store: BucketStore, index: LabelIndex, cells: FairLock, levels: Sequence[Level], answers: BucketReader
    ) -> None:
        self._store, self._index, self._cells, self._answers = store, index, cells, answers
        self._levels = tuple(levels)
        self._selections = SelectionCache(index, store.slots)
        self._permits = FairSemaphore(MAX_CONCURRENT)

    def aggregate(self, request: AggregateRequest, gone: IsDisconnected = never_disconnected) -> Aggregate:
        """Return the partial result of all announced series that fit. Raises SelectError, also as DeadlinePassed or
        CallerDisconnected (`gone` returned True), and NotPushed if the caller must select buckets instead."""
        waiting = QueryDeadline(gone, request.deadline_ms)
        check_aggregate(request)
        check_request(request.buckets(), self._levels)
        for _ in range(MAX_ATTEMPTS):
            try:
                return self._attempt(request, waiting)
            except (SeriesChanged, SelectionChanged):
                continue
        raise NotPushed("series changed during every attempt to read them")

    def _attempt(self, request: AggregateRequest, waiting: QueryDeadline) -> Aggregate:
        selection = self._selections.get(request)
        if request.exclude:
            excluded = np.array(request.exclude, np.uint64)
            selection = selection.subset(np.flatnonzero(~np.isin(selection.fingerprints, excluded)))
        if len(selection) > request.limit:
            raise too_many_series(len(selection), request.limit)
        check_memory(request, len(selection), len(selection.classes))
        prints = np.unique(selection.fingerprints) if request.with_fingerprints else NO_FINGERPRINTS
        twins = self._store.slots.twins(selection.slots)
        if not len(twins):
            return replace(self._reduce(request, selection, waiting), fingerprints=prints)
        apart = np.isin(selection.slots, twins)
        asked = replace(request, gather=request.reducer in ORDERED)
        both = merge_aggregates(
            [
                self._reduce(asked, selection.subset(np.flatnonzero(~apart)), waiting),
                self._reduce_twins(asked, selection.subset(np.flatnonzero(apart)), waiting),
            ]
        )
        return replace(both if request.gather else reduce_gathered(both, request), fingerprints=prints)

    def _reduce_twins(self, request: AggregateRequest, twins: SeriesSelection, waiting: QueryDeadline) -> Aggregate:
        asked = replace(request.buckets(), statistics=STATISTICS)
        check_request(asked, self._levels, len(twins))
        buckets = merge_answers(
            [self._answers.buckets(asked, twins.slots, twins.fingerprints, waiting)], request.buckets()
        )
        if buckets.notes:
            raise NotPushed("; ".join(buckets.notes))
        return aggregate_buckets(buckets, replace(request, with_fingerprints=False))

    def _reduce(self, request: AggregateRequest, selection: SeriesSelection, waiting: QueryDeadline) -> Aggregate:
        ring = self._store.ring(request.grid.step_ms)
        if ring is None:
            raise SelectError(f"no level has buckets of {request.grid.step_ms} ms")
        with self._cells:
            types = self._store.types.types_of(selection.slots)
            ended = self._store.ended_ms(selection.slots)
        job = _PushdownQuery(request, ring, selection, types, ended, waiting)
        args = bind_params(request.reducer, reducer_params(request.reducer), request.args)
        reducing = Reduction(request.windows, request.reducer, len(selection.classes), reducer_args=args)
        reducing.ranks = partial(selection.ranks, self._index)
        reducing.counts.selected = len(selection)
        rolling = WINDOW_FUNCTIONS[request.windows.function].rolling
        if rolling is not None:
            self._by_rows(job, reducing, rolling)
        else:
            self._by_chunks(job, reducing, np.arange(len(selection)))
        gauge = self._first_gauge(selection, reducing)
        best = distinct_fingerprints(selection.fingerprints, reducing.best)
        if len(best) > max(MIN_CHOSEN_LIMIT, min(MAX_CHOSEN_LIMIT, len(selection) // 2)):
            raise NotPushed(f"{len(best)} of {len(selection)} series may be chosen")
        values, blocks = reducing.result(request.gather), gathered_values(reducing, request)
        found = Aggregate(selection.classes, values, reducing.counts, gauge, candidates=best, gathered=blocks)
        self._check_unchanged(job)
        if not found.counts.sampled and len(selection):
            with self._cells:
                newest = int(self._store.incarnations.newest_ms(selection.slots).max(initial=0))
            found = replace(found, newest_ms=newest)
        return drop_empty_classes(found)

    def _check_unchanged(self, job: _PushdownQuery) -> None:
        """Raise SeriesChanged unless every slot still has the series and type with which it was read."""
        selection, slots = job.selection, self._store.slots
        with self._cells:
            same = np.array_equal(self._store.types.types_of(selection.slots), job.types)
            same = same and (
                slots.epoch == selection.stamp[1] or bool(slots.holds(selection.slots, selection.fingerprints).all())
            )
        if not same:
            raise SeriesChanged

    # row by row

    def _by_rows(self, job: _PushdownQuery, reducing: Reduction, make: MakeRolling) -> None:
        layout, scratch = self._layout(job), Scratch()
        for part in layout.parts:
            try:
                with self._permits:
                    rows = self._roll(job, layout, part, scratch, reducing, make)
            except MatrixNeeded:
                self._by_chunks(job, reducing, np.arange(part.rows.start, part.rows.stop))
                continue
            except MayWrap as problem:
                raise NotPushed(str(problem)) from problem
            rows.add_to(reducing)
            self._add_counts(job, layout, part, rows, reducing)

    def _layout(self, job: _PushdownQuery) -> SelectionLayout:
        """Return the cached layout of an equal query if the types are unchanged, else make one."""
        windows, selection = job.request.windows, job.selection
        size = part_size(windows.width, windows.outputs, len(selection.classes))
        how = windows.function, job.request.reducer, size
        key = (*how, job.request.grid.step_ms)
        held: SelectionLayout | None = selection.layouts.get(key)
        if held is None or not np.array_equal(held.types, job.types):
            held = SelectionLayout(how, selection.slots, selection.codes, job.types, job.ring)
            selection.cache_layout(key, held)
        return held

    def _roll(
        self,
        job: _PushdownQuery,
        layout: SelectionLayout,
        part: SelectionPart,
        scratch: Scratch,
        reducing: Reduction,
        make: MakeRolling,
    ) -> RowReduction | PartValues:
        """Compute and reduce all windows of a part with the rolling form `make`. Raises MatrixNeeded and MayWrap."""
        windows, function = job.request.windows, WINDOW_FUNCTIONS[job.request.windows.function]
        wide = windows.padded_grid(job.request.grid)
        rows: RowReduction | PartValues
        if job.request.reducer in REDUCERS:
            rows = RowReduction(part, job.request.reducer, windows.outputs, scratch)
        else:
            rows = PartValues(part, reducing)
        keeps = (
            isinstance(rows, RowReduction)
            and layout.is_cacheable
            and _is_cacheable(job.request)
            and not (function.name == "last" and job.ended_ms.any())
        )
        captured, lives = self._capture(job, part, keeps)
        members: MaskOrBool = True
        if function.total and (function.min_count if windows.min_count is None else windows.min_count) <= 0:
            held_rows = list(captured)  # an empty window has a value, but only for series with any sample
            for one in held_rows:
                column = _column(one, part, 0, function) if isinstance(one, CapturedBucket) else None
                rows.add_present(column is not None and column.present)
            captured, members = iter(held_rows), simplify_mask(rows.sampled())
        rolling = make(_span(job, part, wide, lives, reducing.args, _summed(job.request, part)))
        until = windows.left + job.request.grid.n
        for at in range(wide.n):
            job.deadline.check()
            held = next(captured) if windows.left <= at < until else None
            output, rest = divmod(at - windows.first_end, windows.each)
            if isinstance(held, ReducedRow) and isinstance(rows, RowReduction):
                rows.set_row(output, held)
                rolling.skip()
                continue
            captured_now = held if isinstance(held, CapturedBucket) else None
            column = _column(captured_now, part, wide.start_ms + at * wide.step_ms, function)
            if column is not None:
                rows.add_present(column.present)
            rolling.push(column)
            if rest or not 0 <= output < windows.outputs:
                continue
            shown = mask_shown(rolling, rolling.result(), function, windows.min_count, windows.full)
            if shown.wide is not None:
                raise MatrixNeeded
            rows.add(output, shown if members is True else shown._replace(present=intersect(shown.present, members)))
            if keeps and isinstance(rows, RowReduction) and captured_now is not None and column is not None:
                rows.cache_row(output, captured_now.number, captured_now.version, column.present)
        return rows

    def _capture(
        self, job: _PushdownQuery, part: SelectionPart, keeps: bool
    ) -> tuple[Iterator[CapturedBucket | ReducedRow], npt.NDArray[np.void] | None]:
        """Capture every row of the grid, and incarnations of the same moment if the function reads them."""
        grid, function = job.request.grid, WINDOW_FUNCTIONS[job.request.windows.function]
        numbers = iter(range(grid.start_ms // grid.step_ms + 1, grid.end_ms // grid.step_ms + 1))
        reading = ReadFields.of(function.statistics)
        if not function.births:
            return self._captured(job, part, reading, numbers, keeps), None
        with self._cells:
            captured = [reading.capture(job.ring, number, part) for number in numbers]
            lives = self._store.read_incarnations(part.selection.slots)
        warm_captured(captured, reading)
        return iter(captured), normalize_incarnations(lives)

    def _captured(
        self, job: _PushdownQuery, part: SelectionPart, reading: ReadFields, numbers: Iterator[int], keeps: bool
    ) -> Iterator[CapturedBucket | ReducedRow]:
        """Yield rows, captured some at a time under the lock. Rows unchanged since they were last reduced are not read
        again."""
        kept, ring = part.cached_rows if keeps else {}, job.ring
        while True:
            found, copied = list[CapturedBucket | ReducedRow](), 0
            with self._cells:
                began = perf_counter()
                for number in numbers:
                    known = kept.get(number)
                    if known is not None and known.version == ring.version(number):
                        found.append(known)
                    else:
                        found.append(captured := reading.capture(ring, number, part))
                        copied += captured.nbytes
                    if copied > SLICE_BYTES or perf_counter() - began > LOCK_HOLD_S:
                        break
            if not found:
                return
            warm_captured(found, reading)
            yield from found

    def _add_counts(
        self, job: _PushdownQuery, layout: SelectionLayout, part: SelectionPart, rows: SampledSlots, reducing: Reduction
    ) -> None:
        """Add the counts and gauges of a part to the result."""
        function, counts = WINDOW_FUNCTIONS[job.request.windows.function], reducing.counts
        seen, texts = rows.sampled().take(part.places), layout.is_string[part.rows]
        counts.sampled += int(seen.sum())
        counts.approximate += rows.approximate
        if not function.strings:
            counts.left_out += int((seen & texts).sum())
        elif job.request.reducer != "count" and function.name != "count":
            counts.texts += int((seen & texts).sum())
        if function.counter:
            gauges = np.flatnonzero(seen & ~texts & (job.selection.kinds[part.rows] == Kind.GAUGE)) + part.rows.start
            counts.gauges += len(gauges)
            reducing.gauge_rows.append(gauges)

    # by chunks of series

    def _by_chunks(self, job: _PushdownQuery, reducing: Reduction, members: Rows) -> None:
        request, selection = job.request, job.selection
        statistics = with_needs(WINDOW_FUNCTIONS[request.windows.function].statistics)
        each = max(1, CHUNK_CELLS // (request.windows.padded_grid(request.grid).n * len(statistics)))
        for start in range(0, len(members), each):
            job.deadline.check()
            rows = members[start : start + each]
            with self._permits:
                data = self._copy_chunk(job, rows, statistics)
                reducing.add(data, selection.codes[rows], rows)

    def _first_gauge(self, selection: SeriesSelection, reducing: Reduction) -> ClassLabels:
        """Return name and labels of the first counted gauge in the order of `ranks`; empty if there is none."""
        if not reducing.counts.gauges:
            return ()
        rows = np.concatenate(reducing.gauge_rows)
        if len(rows) > 1:
            rows = rows[[np.argmin(selection.ranks(self._index)[rows])]]
        return labels_of_slot(self._index, selection.slots[rows])

    def _copy_chunk(self, job: _PushdownQuery, rows: npt.NDArray[np.intp], statistics: set[str]) -> Arrays:
        request, slots, grid = job.request, job.selection.slots[rows], job.request.grid
        numbers = range(grid.start_ms // grid.step_ms + 1, grid.end_ms // grid.step_ms + 1)
        job.ring.warm(numbers, slots, statistics)
        with self._cells:
            stats = job.ring.read(slots, request.grid, statistics)
            births = WINDOW_FUNCTIONS[request.windows.function].births
            lives = self._store.read_incarnations(slots if births else slots[:0])
        types = job.types[rows]
        if "sum" in statistics:
            low, high, count = (stats[name][:, is_whole_number(types)] for name in ("min", "max", "count"))
            if ((count > 1) & may_wrap(count, low, high)).any():
                raise NotPushed("a sum may exceed 64 bits")
        return Arrays(
            kinds=job.selection.kinds[rows],
            types=types,
            grid=request.grid,
            stats={name: matrix.T for name, matrix in stats.items()},
            lives=normalize_incarnations(lives),
            ended_ms=job.ended_ms[rows],
        )


def _summed(request: AggregateRequest, part: SelectionPart) -> ClassOrder | None:
    """Return the classes if their sums alone are wanted, of doubles."""
    if request.reducer not in ("sum", "mean") or len(part.groups) != 1 or not part.groups[0].double:
        return None
    return ClassOrder(part.order, part.groups[0].starts)


def _span(
    job: _PushdownQuery,
    part: SelectionPart,
    wide: Grid,
    lives: npt.NDArray[np.void] | None,
    args: Args,
    summed: ClassOrder | None,
) -> RollingContext:
    windows = job.request.windows
    ended = job.ended_ms[part.rows]
    return RollingContext(
        frame=windows.frame(job.request.grid),
        rows=part.size,
        step_ms=wide.step_ms,
        start_ms=wide.start_ms,
        double=part.double,
        members=True if part.not_members is None else ~part.not_members,
        counter=part.spread_mask(job.selection.kinds == Kind.COUNTER) if lives is not None else False,
        ended_ms=part.spread(job.ended_ms) if ended.any() else None,
        incarnations=lives,
        first_held=windows.left,
        args=args,
        summed=summed,
    )


def _column(
    held: CapturedBucket | None, part: SelectionPart, left_ms: int, function: WindowFunction
) -> SelectionColumn | None:
    """Return the column of the bucket that begins at `left_ms`; None if empty. MayWrap if a sum may exceed 64 bits."""
    if held is None or held.source is None:
        return None
    column = SelectionColumn(held, part, left_ms)
    if "sum" in function.statistics:
        column.check_sums()
    return column


def _is_cacheable(request: AggregateRequest) -> bool:
    """True if each window is one bucket of a QUICK function, and an empty one never has a result."""
    windows = request.windows
    least = 1 if windows.min_count is None else windows.min_count
    return (
        windows.function in CACHED_FUNCTIONS
        and (windows.width, windows.each, windows.first_end, least) == (1, 1, 0, 1)
        and windows.outputs == windows.left + request.grid.n + windows.right
    )


def check_memory(request: AggregateRequest, series: int, classes: int) -> None:
    """Raise SelectError if the work needs over MEMORY_BYTES, NotPushed if it hardly reduces or gathers too much."""
    if classes > NO_REDUCTION_CLASSES and classes * 2 > series:
        raise NotPushed(f"{series} series make {classes} classes")
    windows, most = request.windows, part_size(request.windows.width, request.windows.outputs, classes)
    held = min(series, most) * (windows.width + 8) * COLUMN_BYTES
    cells = (classes * 24 + min(classes, most) * 48) * windows.outputs
    if request.reducer in ORDERED and series * windows.outputs * GATHERED_BYTES > MEMORY_BYTES:
        raise NotPushed(f"{series} series of {windows.outputs} buckets are too many to sort in the shard")
    needed = series * 64 + SLICE_BYTES + held + cells
    if needed > MEMORY_BYTES:
        raise SelectError(
            f"{series} series in {classes} classes of {request.windows.outputs} buckets would take {needed} bytes of "
            f"the shard, at most {MEMORY_BYTES} are allowed: reduce to fewer classes, or ask for a shorter range"
        )
