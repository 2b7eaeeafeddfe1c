"""Raw samples of a store: the finest level of memory as far as it reaches, the history before.

Processes are polled once a minute, so that a bucket of the finest level holds one sample as it was polled."""

from __future__ import annotations

import numpy as np

from artimon.compute.cells import Bools, Floats, Ints
from artimon.model.grid import Grid
from artimon.model.select import Buckets, Matcher
from artimon.model.series_table import SeriesTable
from artimon.model.values import STALE
from query_dsl.promql.evaluation import Remarks
from query_dsl.promql.label_sets import LabelSets
from query_dsl.promql.samples import SeriesSamples, no_samples, unite_samples
from query_dsl.stores.engine_store import EngineStore
from query_dsl.stores.levels import LevelSnapshot, level_snapshots
from query_dsl.stores.query_limits import QueryBudget, limited_select
from query_dsl.stores.raw_samples import RawSamples, SampleRequest
from query_dsl.stores.sample_rows import DOUBLE, ENDED, STRING, SampleRows, Types
from query_dsl.tree.times import format_time

STATISTICS = ("last", "last_time", "count")


class StoreSamples:
    """A SampleSource over a store; what the reader should know goes to `remarks`."""

    def __init__(self, store: EngineStore, now_ms: int, remarks: Remarks, budget: QueryBudget) -> None:
        self._store, self._remarks, self._budget, self._now_ms = store, remarks, budget, now_ms
        self._memory: LevelSnapshot = level_snapshots(store.levels(), now_ms)[0]

    def read(self, matchers: tuple[Matcher, ...], after_ms: int, until_ms: int) -> SeriesSamples:
        """See SampleSource. Raises SelectError and QueryError as the store does."""
        border = self._memory.ring_start_ms
        if after_ms >= border:
            return self._read_memory(matchers, after_ms, until_ms)
        if not self._store.has_history:
            self._warn(
                f"memory holds raw samples since {format_time(border)} only, and there is no history to read: the"
                " answer is partial"
            )
            return no_samples() if until_ms <= border else self._read_memory(matchers, border, until_ms)
        older = self._read_history(matchers, after_ms, min(until_ms, border))
        if until_ms <= border:
            return older
        return unite_samples((older, self._read_memory(matchers, border, until_ms)))

    def _warn(self, text: str) -> None:
        self._remarks.warnings[text] = None

    def _read_memory(self, matchers: tuple[Matcher, ...], after_ms: int, until_ms: int) -> SeriesSamples:
        step_ms = self._memory.step_ms
        newest = -(-self._now_ms // step_ms) * step_ms
        end_ms = min(-(-until_ms // step_ms) * step_ms, newest)
        n = max(1, -(-(end_ms - after_ms) // step_ms))
        found = limited_select(self._store, matchers, Grid(end_ms, step_ms, n), STATISTICS, self._budget)
        if found.partial:
            self._warn("; ".join(("the answer is partial", *found.notes)))
        return self._of_buckets(found, after_ms, until_ms)

    def _of_buckets(self, found: Buckets, after_ms: int, until_ms: int) -> SeriesSamples:
        """Return the newest sample of each bucket, and markers of ends."""
        types = np.array([one.type for one in found.series], np.uint8)
        counts = np.ascontiguousarray(found.statistics["count"])
        times = np.ascontiguousarray(found.statistics["last_time"])
        here = (counts > 0) & (times > after_ms) & (times <= until_ms)
        self._note_types(types[here.any(axis=1)])
        if (counts > 1)[types != STRING].any():
            self._warn(
                "some series have several samples a minute, of which memory holds the newest: counts and sums of"
                " samples are approximate"
            )
        row, column = np.nonzero(here & (types != STRING)[:, None])
        cells = np.ascontiguousarray(found.statistics["last"])[row, column]
        values = _numbers(cells, types[row])
        ended = found.ended_ms if len(found.ended_ms) else np.zeros(len(types), np.int64)
        over = np.flatnonzero((ended > after_ms) & (ended <= until_ms) & (types != STRING))
        return _packed(
            LabelSets.from_table(SeriesTable.from_series(found.series)),
            np.concatenate((row, over)),
            np.concatenate((times[row, column], ended[over])),
            np.concatenate((values, np.full(len(over), STALE))),
        )

    def _read_history(self, matchers: tuple[Matcher, ...], after_ms: int, until_ms: int) -> SeriesSamples:
        found = self._store.samples(SampleRequest(matchers, after_ms, until_ms, self._budget.limits.series))
        if found.partial:
            self._warn("; ".join(("the answer is partial", *found.notes)))
        return self._of_rows(found)

    def _of_rows(self, found: RawSamples) -> SeriesSamples:
        rows: SampleRows = found.rows
        self._note_types(rows.type)
        rows = rows.select(rows.type != STRING)
        values = _numbers(rows.cell, rows.type)
        values[rows.type == ENDED] = STALE
        return _packed(LabelSets.from_table(found.series), rows.row, rows.time_ms, values)

    def _note_types(self, types: Types) -> None:
        if (types == STRING).any():
            self._remarks.infos["series of texts are left out: PromQL has only numbers"] = None


def _numbers(cells: Ints, types: Types) -> Floats:
    """Return the cells of INTEGER, DOUBLE and BOOLEAN samples as numbers."""
    double: Bools = types == DOUBLE
    return np.where(double, cells.view(np.float64), cells.astype(np.float64))


def _packed(labels: LabelSets, row: Ints, times_ms: Ints, values: Floats) -> SeriesSamples:
    """Sort samples by series and time; a value at the time of an end marker comes before it. Series without samples are
    left out."""
    order = np.lexsort((np.isnan(values), times_ms, row))
    row = row[order]
    counts = np.bincount(row, minlength=labels.count)
    held = np.flatnonzero(counts)
    offsets = np.concatenate(([0], np.cumsum(counts[held]))).astype(np.int64)
    return SeriesSamples(labels.take(held), offsets, times_ms[order], values[order], np.zeros(len(held), np.bool_))
