"""Store over Python lists of samples, for tests, private files and examples. Needs no server.

>>> from query_dsl import offline
>>> store = offline({'temp{rack="r1"}': [(60_000, 20.5), (120_000, 21.0)]})
>>> store.query("fetch('temp').map('max', '2m')").latest()
[21.0]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from artimon.model.grid import bucket_end
from artimon.model.select import Buckets, EngineShare, Matcher, SelectRequest, Series, Store, too_many_series
from artimon.model.series_table import NAME, SeriesTable
from artimon.model.values import ValueType, double_to_cell
from artimon.rawtable.value_columns import intern_texts
from query_dsl.evaluation.query_runner import QueryRunner
from query_dsl.evaluation.time_limit import DEFAULT_TIMEOUT_S
from query_dsl.stores.bucket_accumulator import BucketAccumulator
from query_dsl.stores.engine_store import EngineStore
from query_dsl.stores.levels import SETTLE_MS, StoreReach
from query_dsl.stores.literal_samples import LiteralSeries, SampleList, parse_all
from query_dsl.stores.partial_buckets import bucketize
from query_dsl.stores.query_limits import Limits
from query_dsl.stores.raw_samples import RawSamples, SampleRequest
from query_dsl.stores.sample_rows import Ints, SampleRows, unify_types
from query_dsl.tree.selector import accepts
from query_dsl.tree.times import parse_duration

LEVEL_BUCKETS = 2**40
"""Span of the only level, in milliseconds: it covers every range."""


class LiteralStore(EngineStore, QueryRunner):
    """Store and collector over fixed samples. Immutable; threads may share it."""

    default_limits = Limits(seconds=DEFAULT_TIMEOUT_S)

    def __init__(self, series: Sequence[LiteralSeries], step_ms: int) -> None:
        self._series = tuple(one.series for one in series)
        self._step_ms = step_ms
        found = unify_types(*_rows(series))
        self._rows, self._conflicts = found.rows, found.conflicts
        self._newest_ms = max((time for one in series for time, _, _, _ in one.samples), default=0)
        types = np.array([one.type for one in self._series], np.uint8)
        valued = self._rows.type != ValueType.ENDED
        types[self._rows.row[valued]] = self._rows.type[valued]
        table = SeriesTable.from_series(self._series)
        self._table = SeriesTable(table.fingerprints, types, table.kinds, table.columns)

    # --- EngineStore

    def select(self, request: SelectRequest) -> Buckets:
        """See EngineStore; any grid."""
        chosen, rows = self._chosen(request.matchers, request.limit)
        held = BucketAccumulator(len(chosen), request.grid, request.statistics)
        held.add(bucketize(rows, request.grid))
        part = EngineShare("samples", request.grid.start_ms, request.grid.end_ms, held.samples)
        found = held.buckets(request, self._table.take(chosen), self._notes())
        return replace(found, parts=(part,))

    def samples(self, request: SampleRequest) -> RawSamples:
        chosen, rows = self._chosen(request.matchers, request.limit)
        inside = (rows.time_ms > request.after_ms) & (rows.time_ms <= request.until_ms)
        part = EngineShare("samples", request.after_ms, request.until_ms, int(inside.sum()))
        return RawSamples(self._table.take(chosen), rows.select(inside), self._notes(), parts=(part,))

    def _chosen(self, matchers: tuple[Matcher, ...], limit: int) -> tuple[Ints, SampleRows]:
        """Return the matching series, and their samples with `row` as an index into them."""
        fits = [i for i, one in enumerate(self._series) if all(_accepts(m, one) for m in matchers)]
        if len(fits) > limit:
            raise too_many_series(len(fits), limit)
        place = np.full(len(self._series), -1, np.int64)
        place[fits] = np.arange(len(fits))
        numbers = place[self._rows.row]
        rows = self._rows.select(numbers >= 0)
        return np.array(fits, np.int64), replace(rows, row=numbers[numbers >= 0])

    def _notes(self) -> tuple[str, ...]:
        return (f"{self._conflicts} samples left out: their type is not that of their series",) * bool(self._conflicts)

    def reach(self) -> StoreReach:
        return StoreReach(unbounded=True, any_step=True, engine="samples")

    def levels(self) -> tuple[tuple[int, int], ...]:
        """See EngineStore: one level, of the step given to `offline`."""
        return ((self._step_ms, LEVEL_BUCKETS // self._step_ms),)

    def names(self) -> list[str]:
        return sorted({one.name for one in self._series})

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        if label is None:
            return sorted({name for one in self._series for name in one.labels})[:limit]
        found = {one.name if label == NAME else one.labels.get(label, "") for one in self._series}
        return sorted(found - {""})[:limit]

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        fits = [one for one in self._table if all(_accepts(m, one) for m in matchers)]
        return sorted(fits, key=lambda one: (one.name, sorted(one.labels.items())))[:limit]

    # --- QueryRunner

    @property
    def now_ms(self) -> int:
        """Time at which the bucket of the newest sample has just settled: `now` of queries without `at`."""
        return bucket_end(self._newest_ms, self._step_ms) + SETTLE_MS

    @contextmanager
    def _engine(self, engine: str) -> Iterator[Store]:  # noqa: ARG002
        yield self

    def __repr__(self) -> str:
        return f"<offline: {len(self._rows):,} samples of {len(self._series):,} series>"


def offline(
    series: Mapping[str, SampleList],
    step: str = "1m",
    *,
    kinds: Mapping[str, object] | None = None,
    births: Mapping[str, object] | None = None,
    ended: Mapping[str, object] | None = None,
) -> LiteralStore:
    """Make a store from series such as 'temp{rack="r1"}', each with a list of (time, value) in any order.

    Times are epoch milliseconds, ISO 8601 or datetimes. Values are int (INTEGER), float (DOUBLE; one of them
    makes all numbers of its series DOUBLE), bool or str; None marks the end of the series, as does `ended` (a time per
    series). `step` is the step of a fetch. `kinds`: counter, gauge or unknown; `births`: the time at which the count
    of a series began, or a list with one per sample; 0 is an unknown time. Without a list, a declared counter that
    falls began anew at the sample before. Raises QueryError that names the problem."""
    return LiteralStore(parse_all(series, kinds, births, ended), parse_duration(step, "step"))


def _accepts(matcher: Matcher, one: Series) -> bool:
    return accepts(matcher, one.name if matcher.label == NAME else one.labels.get(matcher.label, ""))


def _rows(series: Sequence[LiteralSeries]) -> tuple[SampleRows, Ints]:
    """Return all samples and their source, which is the same for all."""
    flat = [(row, *sample) for row, one in enumerate(series) for sample in one.samples]
    strings, places = intern_texts([value for *_, value in flat if isinstance(value, str)])
    texts = iter(places)
    cells = [
        next(texts) if isinstance(value, str) else double_to_cell(value) if isinstance(value, float) else int(value)
        for *_, value in flat
    ]
    columns = list(zip(*flat, strict=True)) or [()] * 5
    row, time, birth = (np.array(column, np.int64) for column in columns[:3])
    rows = SampleRows(row, time, birth, np.array(columns[3], np.uint8), np.array(cells, np.int64), strings)
    return rows, np.zeros(len(flat), np.int64)
