"""Raw samples of a store: the finest level of memory as far as it reaches, the history before.

Processes are polled once a minute, so that a bucket of the finest level holds one sample as it was polled."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import numpy as np

from artimon.compute.aggregate import Aggregate, NotPushed
from artimon.compute.cells import Bools, Floats, Ints
from artimon.compute.functions import WINDOW_FUNCTIONS
from artimon.model.grid import Grid
from artimon.model.select import Buckets, Matcher, SelectError
from artimon.model.series_table import SeriesTable
from artimon.model.values import STALE
from query_dsl.promql.evaluation_context import Remarks
from query_dsl.promql.label_sets import LabelSets
from query_dsl.promql.promql_values import VectorValue, is_identity
from query_dsl.promql.pushed_windows import (
    ALIGNED,
    EXACT,
    NAN_SENSITIVE,
    REDUCERS,
    LevelChoice,
    choose_level,
    plan_requests,
    reduce_request,
    vector_of_classes,
    vector_of_series,
)
from query_dsl.promql.sample_source import Reducer, WindowQuery
from query_dsl.promql.samples import SeriesSamples, no_samples, unite_samples
from query_dsl.promql.similar_names import similar_matchers
from query_dsl.results.expected_points import silence_of
from query_dsl.stores.engine_store import EngineStore
from query_dsl.stores.history.sample_query import HistoryError, HistoryInterrupted
from query_dsl.stores.levels import LevelSnapshot, last_settled_ms, level_snapshots
from query_dsl.stores.query_limits import QueryBudget, limited_select
from query_dsl.stores.raw_samples import RawSamples, SampleRequest
from query_dsl.stores.sample_rows import DOUBLE, ENDED, INTEGER, STRING, SampleRows, Types
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.times import format_duration, format_time

NO_HISTORY = "and there is no history to read: the answer is partial"
COARSE_RATES = "rates and increases are those between the last samples of buckets, approximately"
PARTIAL = "the answer is partial"
"""Parts of warnings, by which rules decide if they judge an answer."""
MISSING = "data is missing: "
"""Begin of the remark on series that fell silent."""
STATISTICS = ("last", "last_time", "count")
NUMBERS = ("last", "min", "max", "sum")
"""Statistics in the type of their series."""
EXACT_INTEGER = 2**53
"""Integers up to this one are exact as DOUBLE."""
ROUNDED = "some integers are beyond 2^53 and rounded: PromQL has only floats"
NEWEST, MEAN = ALIGNED[""], ALIGNED["avg_over_time"]
OF_STATISTICS = frozenset((*ALIGNED.values(), *EXACT.values()))
"""Functions of whole buckets, whose values do not depend on the number of samples in a bucket."""
SEVERAL_SAMPLES = (
    "some series have several samples in a bucket of the finest level of memory, which holds the newest: functions of"
    " samples are approximate"
)
SAMPLES_A_BUCKET, MAX_REREAD = 4, 4_000_000
"""Usual number of samples in a bucket that holds several, and limit of the samples that are read from the history for
this reason."""


class StoreSamples:
    """A SampleSource and BucketSource over a store. Remarks for the user go to `remarks`."""

    def __init__(
        self,
        store: EngineStore,
        now_ms: int,
        remarks: Remarks,
        budget: QueryBudget,
        exact_increase: bool = False,
        similar_names: bool = False,
    ) -> None:
        """exact_increase: increases and rates count from the starts of processes, without extrapolation.
        similar_names: a name finds those that differ in dots and underscores only."""
        self._store, self._remarks, self._budget, self._now_ms = store, remarks, budget, now_ms
        self._levels: Sequence[LevelSnapshot] = level_snapshots(store.levels(), now_ms)
        reach = store.reach()
        self._is_history = reach.unbounded and not reach.prefers_memory
        self._exact_increase, self._similar_names = exact_increase, similar_names
        self._only: tuple[int, ...] | None = None
        """Fingerprints of the series that are read; None: all."""

    @property
    def _memory(self) -> LevelSnapshot:
        return self._levels[0]

    def read(self, matchers: tuple[Matcher, ...], after_ms: int, until_ms: int) -> SeriesSamples:
        """See SampleSource. Raises SelectError and QueryError as the store does."""
        matchers = self._wanted(matchers)
        if self._is_history:
            return self._read_history(matchers, after_ms, until_ms)
        border = self._memory.ring_start_ms
        if after_ms >= border:
            return self._read_memory(matchers, after_ms, until_ms)
        if not self._store.has_history:
            self._warn(f"memory holds raw samples since {format_time(border)} only, {NO_HISTORY}")
            return no_samples() if until_ms <= border else self._read_memory(matchers, border, until_ms)
        older = self._read_history(matchers, after_ms, min(until_ms, border))
        if until_ms <= border:
            return older
        return unite_samples((older, self._read_memory(matchers, border, until_ms)))

    # --- windows that the store computes

    def map(self, asked: WindowQuery) -> VectorValue | None:
        """See BucketSource. Returns None if samples give the answer."""
        asked, choice = self._choose(asked)
        if choice is None or choice.function not in OF_STATISTICS:
            return None
        planned = plan_requests(choice, asked, self._now_ms)
        if planned is None or len(planned[0]) > 1:
            return None
        ((grid, windows),), back = planned
        statistics = dict.fromkeys(("count", *WINDOW_FUNCTIONS[windows.function].statistics))
        timeless = windows.function == NEWEST and asked.range_ms == windows.width * grid.step_ms
        if timeless:  # every sample of the buckets is within the range
            del statistics["last_time"]
        found = limited_select(self._store, asked.matchers, grid, tuple(statistics), self._budget, self._only)
        self._note_partial(found.partial, found.notes)
        self._note_silent(found)
        held = found.statistics["count"]
        self._budget.charge(len(held), len(statistics) * held.nbytes, int(held.sum()))
        types = SeriesTable.from_series(found.series).types
        self._note_types(types[held.any(axis=1)])
        for name in statistics.keys() & NUMBERS:
            self._note_rounded(found.statistics[name], types)
        if timeless:
            ends_ms = np.broadcast_to(np.array(grid.ends(), np.int64), held.shape)
            found = replace(found, statistics={**found.statistics, "last_time": ends_ms})
        made = vector_of_series(found, windows, asked, choice.scale)
        if windows.function in NAN_SENSITIVE and np.isnan(made.values[made.here]).any():
            return None
        if windows.function == MEAN and not np.isfinite(made.values[made.here]).all():
            return None
        self._note_approximate(choice)
        if not is_identity(back, made.here.shape[1]):
            made = replace(made, values=made.values[:, back], here=made.here[:, back])
        return made.present()

    def reduce(self, asked: WindowQuery, reducer: Reducer) -> VectorValue | None:
        """See BucketSource."""
        found = self._aggregate(asked, reducer)
        if found is None:
            return None
        choice, parts, back = found
        made = vector_of_classes(parts, back, asked, reducer, choice.scale)
        means = reducer.name == "avg" or choice.function == MEAN
        sensitive, held = {choice.function, REDUCERS[reducer.name]} & NAN_SENSITIVE, made.values[made.here]
        if (sensitive and np.isnan(held).any()) or (means and not np.isfinite(held).all()):
            return None  # a mean may be finite although its sum is not
        self._note_parts(choice, parts)
        return made.present()

    def narrow(self, asked: WindowQuery, reducer: Reducer) -> StoreSamples | None:
        """See BucketSource."""
        found = self._aggregate(asked, reducer)
        if found is None:
            return None
        choice, parts, _ = found
        self._note_parts(choice, parts)
        narrower = copy(self)
        narrower._only = tuple(np.unique(np.concatenate([part.candidates for part in parts])).tolist())
        return narrower

    def _wanted(self, matchers: tuple[Matcher, ...]) -> tuple[Matcher, ...]:
        """Return the matchers that the store is asked for."""
        return similar_matchers(matchers) if self._similar_names else matchers

    def _choose(self, asked: WindowQuery) -> tuple[WindowQuery, LevelChoice | None]:
        """Return the level that answers, and what it is asked for; exact increases end with the last whole bucket."""
        asked = replace(asked, matchers=self._wanted(asked.matchers))
        if not len(asked.ends_ms):
            return asked, None
        if self._exact_increase and asked.function in EXACT:
            step_ms = self._memory.step_ms
            exact = replace(asked, ends_ms=asked.ends_ms // step_ms * step_ms)
            choice = choose_level(exact, self._levels, True, self._store.has_history)
            if choice is not None:
                return exact, choice
            self._warn(
                f"{asked.function}() is extrapolated: exact increases need ranges of whole minutes that memory holds,"
                " or of whole hours with a history"
            )
        choice = choose_level(asked, self._levels, False, self._store.has_history)
        by_samples = self._is_history and choice is not None and choice.function not in OF_STATISTICS
        return asked, None if by_samples else choice

    def _aggregate(self, asked: WindowQuery, reducer: Reducer) -> tuple[LevelChoice, list[Aggregate], Ints] | None:
        """Let the store aggregate; None if it cannot."""
        if not self._store.can_aggregate or self._only is not None:
            return None
        asked, choice = self._choose(asked)
        planned = None if choice is None else plan_requests(choice, asked, self._now_ms)
        if choice is None or planned is None:
            return None
        requests, back = planned
        try:
            parts = [self._store.aggregate(reduce_request(asked, reducer, *one)) for one in requests]
        except NotPushed:
            return None
        except (SelectError, QueryError) as problem:
            if problem.of_query:
                return None  # the evaluation of samples raises it again, if it is one there
            raise
        if choice.level is self._memory and any(part.counts.approximate for part in parts):
            buckets = max(part.counts.sampled for part in parts) * max(grid.n for grid, _ in requests)
            if self._rereads(buckets * SAMPLES_A_BUCKET):
                return None
        return choice, parts, back

    def _rereads(self, samples: int) -> bool:
        """Return True if the history gives the samples that memory does not hold."""
        return self._store.has_history and samples <= MAX_REREAD

    # --- notes

    def _note_parts(self, choice: LevelChoice, parts: Sequence[Aggregate]) -> None:
        for part in parts:
            self._note_partial(part.partial, part.notes)
            if part.counts.left_out or part.counts.texts:
                self._note_types(np.array([STRING], np.uint8))
            if part.counts.approximate and choice.level is self._levels[0]:
                self._warn(SEVERAL_SAMPLES)
        self._note_approximate(choice)

    def _note_approximate(self, choice: LevelChoice) -> None:
        if choice.approximate:
            self._warn(
                f"memory holds buckets of {format_duration(choice.level.step_ms)} of this range, and there is no"
                f" history to read: {COARSE_RATES}"
            )

    def _note_silent(self, found: Buckets) -> None:
        """Remark on series that fell silent within the range."""
        for text in silence_of(found, last_settled_ms(self._now_ms, found.grid.step_ms)):
            self._remarks.infos[f"{MISSING}{text}"] = ""

    def _note_partial(self, partial: bool, notes: Sequence[str]) -> None:
        if partial:
            self._warn("; ".join((PARTIAL, *notes)))

    def _warn(self, text: str) -> None:
        self._remarks.warnings[text] = ""

    def _read_memory(self, matchers: tuple[Matcher, ...], after_ms: int, until_ms: int) -> SeriesSamples:
        """Read the newest sample of each bucket; also the others from the history if buckets hold several."""
        step_ms = self._memory.step_ms
        newest = -(-self._now_ms // step_ms) * step_ms
        end_ms = min(-(-until_ms // step_ms) * step_ms, newest)
        n = max(1, -(-(end_ms - after_ms) // step_ms))
        found = limited_select(self._store, matchers, Grid(end_ms, step_ms, n), STATISTICS, self._budget, self._only)
        self._note_partial(found.partial, found.notes)
        self._note_silent(found)
        table = SeriesTable.from_series(found.series)
        kept = self._of_buckets(found, table, after_ms, until_ms)
        counts = found.statistics["count"][table.types != STRING]
        if not (counts > 1).any():
            return kept
        if self._rereads(int(counts.sum())):
            try:
                return unite_samples((self._read_history(matchers, after_ms, until_ms), kept))
            except HistoryInterrupted:
                raise
            except (HistoryError, SelectError, OSError) as problem:
                self._warn(f"the history does not give the samples that memory does not hold: {problem}")
        self._warn(SEVERAL_SAMPLES)
        return kept

    def _of_buckets(self, found: Buckets, table: SeriesTable, after_ms: int, until_ms: int) -> SeriesSamples:
        """Return the newest sample of each bucket, and markers of ends."""
        types = table.types
        times = np.ascontiguousarray(found.statistics["last_time"])
        here = (np.ascontiguousarray(found.statistics["count"]) > 0) & (times > after_ms) & (times <= until_ms)
        self._note_types(types[here.any(axis=1)])
        row, column = np.nonzero(here & (types != STRING)[:, None])
        cells = np.ascontiguousarray(found.statistics["last"])[row, column]
        values = _numbers(cells, types[row])
        self._note_rounded(cells, types[row])
        ended = found.ended_ms if len(found.ended_ms) else np.zeros(len(types), np.int64)
        over = np.flatnonzero((ended > max(after_ms, 0)) & (ended <= until_ms) & (types != STRING))
        return _packed(
            LabelSets.from_table(table),
            np.concatenate((row, over)),
            np.concatenate((times[row, column], ended[over])),
            np.concatenate((values, np.full(len(over), STALE))),
        )

    def _read_history(self, matchers: tuple[Matcher, ...], after_ms: int, until_ms: int) -> SeriesSamples:
        found = self._store.samples(SampleRequest(matchers, after_ms, until_ms, self._budget.limits.series))
        self._note_partial(found.partial, found.notes)
        return self._of_rows(found)

    def _of_rows(self, found: RawSamples) -> SeriesSamples:
        rows: SampleRows = found.rows
        self._note_types(rows.type)
        rows = rows.select(rows.type != STRING)
        values = _numbers(rows.cell, rows.type)
        self._note_rounded(rows.cell, rows.type)
        values[rows.type == ENDED] = STALE
        return _packed(LabelSets.from_table(found.series), rows.row, rows.time_ms, values)

    def _note_types(self, types: Types) -> None:
        if (types == STRING).any():
            self._remarks.infos["series of texts are left out: PromQL has only numbers"] = ""

    def _note_rounded(self, cells: Ints, types: Types) -> None:
        """Note integers that are no floats; `types`: of each row of `cells`."""
        rows = types == INTEGER
        held = cells if rows.all() else cells[rows]
        if held.size and (held.max() > EXACT_INTEGER or held.min() < -EXACT_INTEGER):
            large = held[(held > EXACT_INTEGER) | (held < -EXACT_INTEGER)]
            if any(int(float(cell)) != cell for cell in large.tolist()):
                self._remarks.infos[ROUNDED] = ""


def _numbers(cells: Ints, types: Types) -> Floats:
    """Return the cells of INTEGER, DOUBLE and BOOLEAN samples as numbers."""
    double: Bools = types == DOUBLE
    return np.where(double, cells.view(np.float64), cells.astype(np.float64))


def _packed(labels: LabelSets, row: Ints, times_ms: Ints, values: Floats) -> SeriesSamples:
    """Sort samples by series and time; a value at the time of an end marker comes before it. Series without samples are
    left out."""
    if not _is_packed(row, times_ms):
        order = np.lexsort((np.isnan(values), times_ms, row))
        row, times_ms, values = row[order], times_ms[order], values[order]
    counts = np.bincount(row, minlength=labels.count)
    held = np.flatnonzero(counts)
    offsets = np.concatenate(([0], np.cumsum(counts[held]))).astype(np.int64)
    return SeriesSamples(offsets, times_ms, values, labels.take(held), np.zeros(len(held), np.bool_))


def _is_packed(row: Ints, times_ms: Ints) -> bool:
    """Return True if samples are in the order of series and of distinct times."""
    rises, same = np.diff(row), np.diff(times_ms) > 0
    return bool(((rises > 0) | ((rises == 0) & same)).all())
