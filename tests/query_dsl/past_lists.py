"""The history engine over samples in lists: it reads only samples within the requested grid."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from artimon.model.select import Buckets, Matcher, SelectRequest, Series
from artimon.model.series_table import NAME, SeriesTable
from artimon.model.values import ValueType
from query_dsl.stores.bucket_accumulator import BucketAccumulator
from query_dsl.stores.engine_store import EngineStore
from query_dsl.stores.levels import StoreReach
from query_dsl.stores.partial_buckets import bucketize
from query_dsl.stores.sample_rows import Ints, SampleRows, unify_types
from query_dsl.tree.selector import accepts
from tests.query_dsl.engine_worlds import rows_of, table_of, text_of
from tests.query_dsl.test_pushdown import Told

ALWAYS = 2**60


@dataclass
class PastLists(EngineStore):
    """Implements EngineStore as HistoryStore does, with lists in place of the tables on HDFS."""

    told: list[Told]
    level_table: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        found = table_of(self.told)
        types = found.types.copy()
        order = list(dict.fromkeys(map(text_of, self.told)))
        for one in self.told:  # a source announces its series again once an INTEGER becomes DOUBLE
            if types[order.index(text_of(one))] == ValueType.INTEGER and any(type(v) is float for *_, v in one.samples):
                types[order.index(text_of(one))] = ValueType.DOUBLE
        self._table = SeriesTable(found.fingerprints, types, found.kinds, found.columns)
        self._rows, self._source = rows_of(self.told)

    def reach(self) -> StoreReach:
        return StoreReach(unbounded=True, engine="history")

    def levels(self) -> tuple[tuple[int, int], ...]:
        return self.level_table

    def names(self) -> list[str]:
        return sorted({one.name for one in self._table})

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        if label is None:
            return sorted({name for one in self._table for name in one.labels})[:limit]
        found = {one.name if label == NAME else one.labels.get(label, "") for one in self._table}
        return sorted(found - {""})[:limit]

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        found = [self._table[row] for row in self._fitting(matchers)]
        return sorted(found, key=lambda one: (one.name, sorted(one.labels.items())))[:limit]

    def _fitting(self, matchers: tuple[Matcher, ...]) -> list[int]:
        return [
            row
            for row, one in enumerate(self._table)
            if all(accepts(m, one.name if m.label == NAME else one.labels.get(m.label, "")) for m in matchers)
        ]

    def select(self, request: SelectRequest) -> Buckets:
        chosen, grid = np.array(self._fitting(request.matchers), np.int64), request.grid
        held = BucketAccumulator(len(chosen), grid, request.statistics)
        held.add(bucketize(self._read(chosen, np.arange(len(chosen)), grid.start_ms, grid.end_ms), grid))
        ended = held.ended()
        later = self._read(chosen, ended, grid.end_ms, ALWAYS)
        valued = later.type != ValueType.ENDED
        held.add_later(later.row[valued], later.time_ms[valued])
        sources = {(row, source) for row, source in zip(self._rows.row.tolist(), self._source.tolist(), strict=True)}
        several = np.bincount([row for row, _ in sources], minlength=len(self._table)) > 1
        twins = held.maybe_overlapping(several[chosen])
        held.replace(bucketize(self._read(chosen, twins, -ALWAYS, ALWAYS), grid), twins)
        return held.buckets(request, self._table.take(chosen))

    def newest(self, matchers: tuple[Matcher, ...], end_ms: int, prints: Collection[int] = ()) -> dict[int, int]:
        chosen = self._fitting(matchers)
        found: dict[int, int] = {}
        rows = self._rows
        for row, time, kind in zip(rows.row.tolist(), rows.time_ms.tolist(), rows.type.tolist(), strict=True):
            print_ = self._table[row].fingerprint
            if row in chosen and time <= end_ms and kind != ValueType.ENDED and (not prints or print_ in prints):
                found[print_] = max(found.get(print_, 0), time)
        return found

    def _read(self, chosen: Ints, wanted: Ints, after_ms: int, until_ms: int) -> SampleRows:
        """Samples in (after, until] of the `wanted` ones of the `chosen` series, each series of one type."""
        place = np.full(len(self._table), -1, np.int64)
        place[chosen[wanted]] = wanted
        rows, number = self._rows, place[self._rows.row]
        inside = (rows.time_ms > after_ms) & (rows.time_ms <= until_ms) & (number >= 0)
        rows, number, source = rows.select(inside), number[inside], self._source[inside]
        numbered = SampleRows(number, rows.time_ms, rows.birth_ms, rows.type, rows.cell, rows.strings)
        return unify_types(numbered, source).rows
