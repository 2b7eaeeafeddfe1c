"""A store that keeps raw samples in lists and cuts them into buckets on request, sample by sample: slow and plain."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import re2

from artimon.model.grid import Grid
from artimon.model.select import (
    INCARNATION_DTYPE,
    Buckets,
    Matcher,
    SelectError,
    SelectRequest,
    Series,
    too_many_series,
)
from artimon.model.series_table import SeriesTable
from artimon.model.values import Kind, Value, ValueType, type_of
from query_dsl import Matrix, evaluate, parse
from query_dsl.results.raw_series import RawSeries
from query_dsl.stores.engine_store import EngineStore
from query_dsl.stores.levels import SETTLE_MS
from query_dsl.stores.raw_samples import RawSamples, SampleRequest
from query_dsl.stores.sample_rows import ENDED, SampleRows

MINUTE = 60_000
LEVELS = ((MINUTE, 60), (5 * MINUTE, 48), (15 * MINUTE, 96), (60 * MINUTE, 72))


@dataclass(frozen=True)
class Sample:
    """One sample: epoch ms, value, and the birth of the life it belongs to."""

    time: int
    value: Value
    birth: int = 0


@dataclass
class PlainSeries:
    name: str
    labels: dict[str, str]
    samples: list[Sample]
    kind: Kind = Kind.UNKNOWN
    type: ValueType = ValueType.DOUBLE
    ended: int = 0


@dataclass
class PlainStore(EngineStore):
    """Implements EngineStore over `series`."""

    series: list[PlainSeries] = field(default_factory=list)
    level_table: tuple[tuple[int, int], ...] = LEVELS
    notes: tuple[str, ...] = ()
    partial: bool = False
    requests: list[SelectRequest] = field(default_factory=list)

    def add(
        self,
        name: str,
        labels: dict[str, str] | None = None,
        points: Iterable[tuple[int, Value]] | Sequence[Sample] = (),
        kind: Kind = Kind.UNKNOWN,
        ended: int = 0,
        birth: int = 0,
    ) -> PlainStore:
        samples = [p if isinstance(p, Sample) else Sample(*p, birth) for p in points]
        kind_of = type_of(samples[0].value) if samples else ValueType.DOUBLE
        self.series.append(PlainSeries(name, labels or {}, samples, kind, kind_of, ended))
        return self

    def levels(self) -> tuple[tuple[int, int], ...]:
        return self.level_table

    def names(self) -> list[str]:
        return sorted({s.name for s in self.series})

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        if label is None:
            return sorted({name for s in self.series for name in s.labels})[:limit]
        return sorted({s.labels[label] for s in self.series if label in s.labels})[:limit]

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        found = [described(s) for s in self.series if fits(s, matchers)]
        return sorted(found, key=lambda s: (s.name, sorted(s.labels.items())))[:limit]

    def select(self, request: SelectRequest) -> Buckets:
        self.requests.append(request)
        if request.grid.step_ms not in {step for step, _ in self.level_table}:
            raise SelectError(f"no level has the step {request.grid.step_ms}")
        chosen = [s for s in self.series if fits(s, request.matchers)]
        if len(chosen) > request.limit:
            raise too_many_series(len(chosen), request.limit)
        strings: list[str] = []
        rows = [cut(s, request.grid, strings) for s in chosen]
        n = request.grid.n
        statistics = {
            # laid out as a shard does, bucket by bucket
            name: np.asfortranarray(np.array([row[name] for row in rows], np.int64).reshape(len(rows), n))
            for name in request.statistics
        }
        births = [life for row, s in enumerate(chosen) for life in lives(row, s, strings)]
        return Buckets(
            request.grid,
            tuple(described(s) for s in chosen),
            statistics,
            tuple(strings),
            np.array(births, INCARNATION_DTYPE),
            np.array([s.ended for s in chosen], np.int64),
            np.array([max((x.time for x in s.samples), default=0) for s in chosen], np.int64),
            self.notes,
            self.partial,
        )

    def samples(self, request: SampleRequest) -> RawSamples:
        chosen = [s for s in self.series if fits(s, request.matchers)]
        texts = sorted({str(x.value) for s in chosen if s.type == ValueType.STRING for x in s.samples})
        rows = [
            (row, x.time, x.birth, int(s.type), cell(s, x.value, texts))
            for row, s in enumerate(chosen)
            for x in s.samples
            if request.after_ms < x.time <= request.until_ms
        ]
        rows += [(row, s.ended, 0, int(ENDED), 0) for row, s in enumerate(chosen) if s.ended]
        owner, times, births, types, cells = np.array(rows, np.int64).reshape(len(rows), 5).T
        found = SampleRows(owner, times, births, types.astype(np.uint8), cells, tuple(texts))
        return RawSamples(SeriesTable.from_series([described(s) for s in chosen]), found)


def fits(series: PlainSeries, matchers: tuple[Matcher, ...]) -> bool:
    return all(_fits(m, series.name if m.label == "__name__" else series.labels.get(m.label, "")) for m in matchers)


def _fits(matcher: Matcher, value: str) -> bool:
    match matcher.op:
        case "=":
            return value == matcher.value
        case "!=":
            return value != matcher.value
        case "prefix":
            return value.startswith(matcher.value)
    matched = re2.fullmatch(matcher.value, value) is not None
    return matched == (matcher.op == "=~")


def described(series: PlainSeries) -> Series:
    return Series(
        hash((series.name, *series.labels.items())) & 0xFFFF, series.name, series.labels, series.type, series.kind
    )


def cell(series: PlainSeries, value: Value, strings: list[str]) -> int:
    if series.type == ValueType.STRING:
        if value not in strings:
            strings.append(str(value))
        return strings.index(str(value))
    if series.type == ValueType.DOUBLE:
        return int(struct.unpack("<q", struct.pack("<d", float(value)))[0])
    return int(value)


def cut(series: PlainSeries, grid: Grid, strings: list[str]) -> dict[str, list[int]]:
    """The statistics of one series, bucket by bucket."""
    out: dict[str, list[int]] = {name: [] for name in ("last", "last_time", "min", "max", "sum", "count")}
    for end in grid.ends().tolist():
        inside = sorted((s for s in series.samples if end - grid.step_ms < s.time <= end), key=lambda s: s.time)
        values = [s.value for s in inside]
        out["count"].append(len(inside))
        out["last"].append(cell(series, values[-1], strings) if values else 0)
        out["last_time"].append(inside[-1].time if inside else 0)
        if not values or series.type == ValueType.STRING:
            least = most = total = 0
        else:
            numbers = [float(v) if series.type == ValueType.DOUBLE else int(v) for v in values]
            poisoned = [v for v in numbers if v != v]
            least = cell(series, poisoned[0] if poisoned else min(numbers), strings)
            most = cell(series, poisoned[0] if poisoned else max(numbers), strings)
            total = cell(series, sum(numbers), strings)
        out["min"].append(least)
        out["max"].append(most)
        out["sum"].append(total)
    return out


def lives(row: int, series: PlainSeries, strings: list[str]) -> list[tuple[int, int, int, int, int]]:
    """(row, birth, first, last, cell of last) of every birth, oldest first."""
    out = []
    for birth in sorted({s.birth for s in series.samples}):
        mine = sorted((s for s in series.samples if s.birth == birth), key=lambda s: s.time)
        out.append((row, birth, mine[0].time, mine[-1].time, cell(series, mine[-1].value, strings)))
    return out


def ask(text: str, store: PlainStore, end: int) -> Matrix:
    """The answer at the time when the bucket that ends at `end` has just settled."""
    return evaluate(parse(text), store, end + SETTLE_MS)


def by_series(found: Matrix | RawSeries) -> dict[str, list[Any]]:
    return dict(iter(found))
