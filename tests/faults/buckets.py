"""Expected content of every bucket of a source, recomputed from the rows of the raw table with nothing of the memory
store's own code, and what a shard says that it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from artimon.model.grid import Grid, Level
from artimon.model.select import Buckets
from artimon.model.values import ValueType
from artimon.rawtable.schema import raw_uri, sources_uri
from artimon.rawtable.sources import read_sources
from tests.faults.batches import LATE_MS

Ints = npt.NDArray[np.int64]
CLOSE = 1e-9
"""Sums of doubles depend on their order in the last bits."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Samples of one source, by (series, time); `cell` as in docs/formats/raw.md, of strings a number of `texts`."""

    series: npt.NDArray[np.uint64]
    time_ms: Ints
    type: npt.NDArray[np.uint8]
    cell: Ints
    texts: list[str]


@dataclass(frozen=True, slots=True)
class Expected:
    """One row a (series, bucket), by both; `end_ms` of the bucket."""

    series: npt.NDArray[np.uint64]
    end_ms: Ints
    type: npt.NDArray[np.uint8]
    columns: dict[str, Ints]


def read_rows(hdfs: str, source: str) -> Rows:
    """Every sample with a value that the table holds of a source."""
    numbers = {name: number for number, name in read_sources(sources_uri(hdfs)).items()}
    wanted = DeltaTable(raw_uri(hdfs)).to_pyarrow_dataset().to_table(filter=ds.field("source") == numbers[source])
    series = wanted["series"].combine_chunks().to_numpy().view(np.uint64)
    times = wanted["time"].cast(pa.int64()).combine_chunks().to_numpy() // 1000
    cell, type_ = np.zeros(len(wanted), np.int64), np.full(len(wanted), ValueType.ENDED, np.uint8)
    strings = wanted["string"].combine_chunks().dictionary_encode()
    for kind, column in (
        (ValueType.INTEGER, wanted["integer"]),
        (ValueType.DOUBLE, wanted["double"]),
        (ValueType.BOOLEAN, wanted["boolean"].cast(pa.int64())),
        (ValueType.STRING, strings.indices.cast(pa.int64())),
    ):
        held = np.asarray(column.is_valid())
        cell[held] = np.asarray(column.drop_null()).view(np.int64)
        type_[held] = kind
    valued = type_ != ValueType.ENDED
    order = np.lexsort((times[valued], series[valued]))
    picked = [array[valued][order] for array in (series, times, type_, cell)]
    return Rows(picked[0], picked[1], picked[2], picked[3], strings.dictionary.to_pylist())


def recompute(rows: Rows, level: Level, spare: int, now_ms: int) -> Expected:
    """The buckets of one level. What was three hours late when it came is in no level that is shorter than that."""
    step = level.step_ms
    end = -(-rows.time_ms // step) * step
    kept = np.ones(len(end), np.bool_)
    if (level.count + spare) * step < LATE_MS:
        kept = rows.time_ms > now_ms - LATE_MS
    series, types = rows.series[kept], rows.type[kept]
    times, cell, end = rows.time_ms[kept], rows.cell[kept], end[kept]
    first = np.flatnonzero(np.concatenate(([True], (series[1:] != series[:-1]) | (end[1:] != end[:-1]))))
    last = np.append(first[1:], len(end)) - 1
    columns = {"last": cell[last], "last_time": times[last], "count": last - first + 1}
    as_double = cell.view(np.float64)
    doubles = types[first] == ValueType.DOUBLE
    with np.errstate(all="ignore"):
        for name, join in (("min", np.minimum), ("max", np.maximum), ("sum", np.add)):
            whole: Ints = join.reduceat(cell, first)
            whole[doubles] = join.reduceat(as_double, first).view(np.int64)[doubles]
            columns[name] = whole
    return Expected(series[first], end[first], types[first], columns)


def differences(expected: Expected, rows: Rows, held: Buckets) -> list[str]:
    """One line a statistic that differs anywhere on the grid of `held`; the answer must hold every series."""
    grid = held.grid
    inside = (expected.end_ms > grid.start_ms) & (expected.end_ms <= grid.end_ms)
    place = {series.fingerprint: row for row, series in enumerate(held.series)}
    missing = [print_ for print_ in np.unique(expected.series).tolist() if print_ not in place]
    if missing:
        return [f"{len(missing)} series are not there, {missing[0]:016x} first"]
    row = np.array([place[print_] for print_ in expected.series[inside].tolist()], np.int64)
    column = (expected.end_ms[inside] - grid.start_ms) // grid.step_ms - 1
    types = expected.type[inside]
    lines = []
    total = int(np.count_nonzero(held.statistics["count"]))
    if total != len(row):
        lines.append(f"{total} buckets hold something, {len(row)} should")
    for name, want in expected.columns.items():
        have = held.statistics[name][row, column]
        wrong = np.flatnonzero(~_same(name, want[inside], have, types, rows.texts, held.strings))
        if len(wrong):
            at = int(wrong[0])
            lines.append(
                f"{name} differs in {len(wrong)} of {len(row)} buckets, first of series "
                f"{expected.series[inside][at]:016x} at {expected.end_ms[inside][at]}: "
                f"{want[inside][at]} expected, {have[at]} held (type {types[at]})"
            )
    return lines


def _same(
    name: str, want: Ints, have: Ints, types: Any, wanted: list[str], held: tuple[str, ...]
) -> npt.NDArray[np.bool_]:
    same: npt.NDArray[np.bool_] = want == have
    if name in ("count", "last_time"):
        return same
    doubles = types == ValueType.DOUBLE
    a, b = want[doubles].view(np.float64), have[doubles].view(np.float64)
    with np.errstate(all="ignore"):
        near = (a == b) | (np.isnan(a) & np.isnan(b))
        if name == "sum":
            near |= np.abs(a - b) <= CLOSE * np.maximum(1.0, np.abs(a))
    same[doubles] = near
    texts = np.flatnonzero(types == ValueType.STRING)
    if name == "last":
        same[texts] = [wanted[want[at]] == held[have[at]] for at in texts.tolist()]
    else:
        same[texts] = True  # strings have no order to speak of
    return same


def grid_of(level: Level, now_ms: int) -> Grid:
    """All buckets of a level that are shown, the open one included."""
    return Grid(-(-now_ms // level.step_ms) * level.step_ms, level.step_ms, level.count)
