"""Rows of roll-ups in columns: made of samples, merged with each other, written to and read from Arrow. Pure.

A row is a bucket of one series, one start time (birth) and one type. All its statistics merge exactly, so rows of any
samples, in any order and at any step that divides another, give the buckets and incarnations of all their samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from artimon.compute.bucketizer import bucketize_samples, coarsen_buckets, run_starts
from artimon.compute.cells import DOUBLE, STRING, Bools, Ints, Types
from artimon.compute.sample_order import rank
from artimon.compute.statistics import FOLDS, STATISTICS, Stats
from artimon.model.grid import bucket_ends
from artimon.model.value_traits import TRAITS, VALUE_FIELDS
from artimon.model.values import WHOLE_TYPES, ValueType
from artimon.rawtable.schema import STAMP
from artimon.rawtable.value_columns import read_values, to_milliseconds

ENDED = int(ValueType.ENDED)
INTEGER_FOLDS = {"min": "below", "max": "above", "sum": "rest"}
"""Columns of the folded statistics of INTEGER and BOOLEAN: last - min, max - last, and sum - count * m, m the mean
of min and max, rounded down; modulo 2^64, null for 0. They are smaller than the statistics, and change less."""
DOUBLE_FOLDS = {name: f"{name}_double" for name in FOLDS}
"""Columns of those of DOUBLE. Null: the statistic is that of equal samples: the last value, or count times it."""
ROLLUP_FILE_SCHEMA = pa.schema(
    [
        ("source", pa.int32()),
        ("series", pa.int64()),
        ("time", STAMP),
        ("birth", STAMP),
        ("first_time", STAMP),
        ("last_time", STAMP),
        ("count", pa.int64()),
        *VALUE_FIELDS,
        *((column, pa.int64()) for column in INTEGER_FOLDS.values()),
        *((column, pa.float64()) for column in DOUBLE_FOLDS.values()),
    ]
)
"""Columns inside the data files. `first_time` is null if it is `last_time`."""
_NONE: Ints = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class RollupRows:
    """n rows in any order. A row of type ENDED has no samples: `last_time` is the time of the newest end marker."""

    source: Ints = field(default_factory=lambda: _NONE)
    series: Ints = field(default_factory=lambda: _NONE)
    end_ms: Ints = field(default_factory=lambda: _NONE)
    """End of the bucket."""
    birth_ms: Ints = field(default_factory=lambda: _NONE)
    type: Types = field(default_factory=lambda: np.zeros(0, np.uint8))
    first_ms: Ints = field(default_factory=lambda: _NONE)
    """Time of the first sample."""
    stats: Stats = field(default_factory=lambda: dict.fromkeys(STATISTICS, _NONE))
    """All of STATISTICS."""
    strings: tuple[str, ...] = ()
    """Distinct and sorted; cells of STRING index it."""

    def __len__(self) -> int:
        return len(self.source)

    def select(self, which: Bools | npt.NDArray[np.intp] | slice) -> RollupRows:
        """Return the rows of a mask, of indices or of a slice."""
        return RollupRows(
            self.source[which],
            self.series[which],
            self.end_ms[which],
            self.birth_ms[which],
            self.type[which],
            self.first_ms[which],
            {name: column[which] for name, column in self.stats.items()},
            self.strings,
        )

    def with_used_strings(self) -> RollupRows:
        """Return the same rows with only those strings that they index."""
        used = np.unique(self.stats["last"][self.type == STRING])
        return _renumbered(self, tuple(self.strings[i] for i in used.tolist()))


def roll_up(samples: Any, step_ms: int) -> RollupRows:
    """Return the rows of samples (FILE_SCHEMA, in any order), one per bucket, birth and type; those from the future are
    left out, as in shards."""
    if samples.column("future").combine_chunks().true_count:
        samples = samples.filter(pc.invert(samples.column("future")))
    types, cells, strings = read_values(samples)
    source, series = (samples.column(name).cast(pa.int64()).to_numpy() for name in ("source", "series"))
    time_ms, birth_ms = (to_milliseconds(samples.column(name)) for name in ("time", "birth"))
    return roll_up_cells(source, series, time_ms, birth_ms, types, cells, strings, step_ms)


def roll_up_cells(
    source: Ints,
    series: Ints,
    time_ms: Ints,
    birth_ms: Ints,
    types: Types,
    cells: Ints,
    strings: tuple[str, ...],
    step_ms: int,
) -> RollupRows:
    """`roll_up` of columns of one length; cells of STRING index `strings`, which is sorted."""
    end_ms, ranks = bucket_ends(time_ms, step_ms), rank(cells, types == DOUBLE)
    order = order_of(source, series, end_ms, birth_ms, types, time_ms, ranks)
    if order is not None:
        source, series, end_ms, birth_ms, time_ms, cells = (
            column[order] for column in (source, series, end_ms, birth_ms, time_ms, cells)
        )
        types = types[order]
    if not len(source):
        return RollupRows()
    starts = run_starts(source, series, end_ms, birth_ms, types)
    stats = bucketize_samples(starts, time_ms, cells, types == DOUBLE)
    made = RollupRows(
        source[starts], series[starts], end_ms[starts], birth_ms[starts], types[starts], time_ms[starts], stats, strings
    )
    return _without_folds(made)


def merge_rows(rows: RollupRows, step_ms: int) -> RollupRows:
    """Return rows at this step, a multiple of theirs: sorted, one per source, series, bucket, birth and type."""
    if not len(rows):
        return rows
    rows = replace(rows, end_ms=bucket_ends(rows.end_ms, step_ms))
    ranks = rank(rows.stats["last"], rows.type == DOUBLE)
    order = order_of(rows.source, rows.series, rows.end_ms, rows.birth_ms, rows.type, rows.stats["last_time"], ranks)
    if order is not None:
        rows = rows.select(order)
    starts = run_starts(rows.source, rows.series, rows.end_ms, rows.birth_ms, rows.type)
    if len(starts) == len(rows):
        return rows
    stats = coarsen_buckets(starts, rows.stats, rows.type == DOUBLE)
    first_ms = np.minimum.reduceat(rows.first_ms, starts)
    return _without_folds(replace(rows.select(starts), first_ms=first_ms, stats=stats))


def concat_rows(parts: Sequence[RollupRows]) -> RollupRows:
    """Return the rows of all parts."""
    parts = [part for part in parts if len(part)]
    if len(parts) <= 1:
        return parts[0] if parts else RollupRows()
    strings = tuple(sorted({text for part in parts for text in part.strings}))
    parts = [_renumbered(part, strings) for part in parts]
    return RollupRows(
        np.concatenate([part.source for part in parts]),
        np.concatenate([part.series for part in parts]),
        np.concatenate([part.end_ms for part in parts]),
        np.concatenate([part.birth_ms for part in parts]),
        np.concatenate([part.type for part in parts]),
        np.concatenate([part.first_ms for part in parts]),
        {name: np.concatenate([part.stats[name] for part in parts]) for name in STATISTICS},
        strings,
    )


def to_table(rows: RollupRows) -> Any:
    """Return the rows as an Arrow table of ROLLUP_FILE_SCHEMA."""
    stats, types = rows.stats, rows.type
    made: dict[str, Any] = {
        "source": pa.array(rows.source.astype(np.int32)),
        "series": pa.array(rows.series),
        "time": _stamps(rows.end_ms),
        "birth": _stamps(rows.birth_ms),
        "first_time": _stamps(rows.first_ms, rows.first_ms == stats["last_time"]),
        "last_time": _stamps(stats["last_time"]),
        "count": pa.array(stats["count"]),
    }
    for type_, traits in TRAITS.items():
        made[traits.column] = traits.to_column(stats["last"], rows.strings, types != int(type_))
    whole, double = np.isin(types, WHOLE_TYPES), types == DOUBLE
    for name, cells in _integer_columns(stats).items():
        made[INTEGER_FOLDS[name]] = pa.array(cells, pa.int64(), mask=~whole | (cells == 0))
    predicted = _of_equal_samples(stats)
    for name, column in DOUBLE_FOLDS.items():
        null = ~double | (stats[name] == predicted[name])
        made[column] = pa.array(stats[name].view(np.float64), pa.float64(), mask=null, from_pandas=False)
    return pa.table([made[one.name] for one in ROLLUP_FILE_SCHEMA], schema=ROLLUP_FILE_SCHEMA)


def from_table(table: Any, source: Ints, series: Ints) -> RollupRows:
    """Return the rows of a table with the columns of ROLLUP_FILE_SCHEMA but `source` and `series`, which are given. If
    those of a folded statistic are not there, it is not valid."""
    types, cells, strings = read_values(table)
    last_ms = to_milliseconds(table.column("last_time"))
    count = table.column("count").to_numpy()
    first = table.column("first_time")
    first_ms = last_ms
    if not first.null_count:
        first_ms = to_milliseconds(first)
    elif first.null_count < len(table):
        first_ms = np.where(first.is_valid().to_numpy(), to_milliseconds(first.fill_null(0)), last_ms)
    rows = RollupRows(
        source,
        series,
        to_milliseconds(table.column("time")),
        to_milliseconds(table.column("birth")),
        types,
        first_ms,
        {"count": count, "last": cells, "last_time": last_ms},
        strings,
    )
    folds = dict.fromkeys(FOLDS, np.zeros(len(rows), np.int64)) | folds_of(table, types, rows.stats)
    return _without_folds(replace(rows, stats={**rows.stats, **folds}))


def folds_of(table: Any, types: Types, stats: Stats) -> dict[str, Ints]:
    """Return the folded statistics of rows of these types, as far as the table has their columns; those of texts and
    end markers are arbitrary. `stats`: count and last."""
    double = types == DOUBLE
    if double.all():
        return _folds_of_numbers(table, True, stats)
    found = _folds_of_numbers(table, False, stats)
    if double.any():
        own = _folds_of_numbers(table, True, stats)
        found |= {name: np.where(double, cells, found[name]) for name, cells in own.items()}
    return found


def _folds_of_numbers(table: Any, double: bool, stats: Stats) -> dict[str, Ints]:
    """Return the folded statistics of rows of DOUBLE, or of another type, as far as the table has their columns.
    `stats`: count and last."""
    columns = DOUBLE_FOLDS if double else INTEGER_FOLDS
    predicted = _of_equal_samples(stats) if double else {}
    held = {
        name: _filled(table.column(column), predicted.get(name))
        for name, column in columns.items()
        if column in table.column_names
    }
    return held if double else _from_integer_columns(stats, held)


def _integer_columns(stats: Stats) -> dict[str, Ints]:
    with np.errstate(over="ignore"):
        mean = _mean(stats["min"], stats["max"])
        return {
            "min": stats["last"] - stats["min"],
            "max": stats["max"] - stats["last"],
            "sum": stats["sum"] - stats["count"] * mean,
        }


def _from_integer_columns(stats: Stats, held: Mapping[str, Ints]) -> dict[str, Ints]:
    """Inverse of `_integer_columns`, as far as the columns are there; `sum` needs all."""
    found = {}
    with np.errstate(over="ignore"):
        if "min" in held:
            found["min"] = stats["last"] - held["min"]
        if "max" in held:
            found["max"] = stats["last"] + held["max"]
        if "sum" in held:
            found["sum"] = held["sum"] + stats["count"] * _mean(found["min"], found["max"])
    return found


def _mean(low: Ints, high: Ints) -> Ints:
    """Return the mean, rounded down, without overflow."""
    return np.asarray((low & high) + ((low ^ high) >> 1))


def _of_equal_samples(stats: Stats) -> dict[str, Ints]:
    """Return the folded statistics of DOUBLE buckets whose samples are all equal."""
    with np.errstate(all="ignore"):
        total = (stats["count"] * stats["last"].view(np.float64)).view(np.int64)
    return {"min": stats["last"], "max": stats["last"], "sum": total}


def _filled(column: Any, predicted: Ints | None) -> Ints:
    """Return the cells of a column of a folded statistic; nulls are as predicted, None: 0."""
    if column.null_count == len(column):
        return np.zeros(len(column), np.int64) if predicted is None else predicted
    whole = column.fill_null(0) if column.null_count else column
    cells: Ints = (whole.chunk(0) if whole.num_chunks == 1 else whole.combine_chunks()).to_numpy().view(np.int64)
    if predicted is None or not column.null_count:
        return cells
    return np.where(column.is_valid().to_numpy(), cells, predicted)


def _without_folds(rows: RollupRows) -> RollupRows:
    """Clear the statistics that texts and end markers do not have."""
    ended = rows.type == ENDED
    plain = ended | (rows.type == STRING)
    if not plain.any():
        return rows
    stats = {**rows.stats, **{name: np.where(plain, 0, rows.stats[name]) for name in FOLDS}}
    for name in ("count", "last"):
        stats[name] = np.where(ended, 0, stats[name])
    return replace(rows, stats=stats)


def _renumbered(rows: RollupRows, strings: tuple[str, ...]) -> RollupRows:
    if not rows.strings or rows.strings == strings:
        return rows
    place = {text: i for i, text in enumerate(strings)}
    numbers = np.array([place.get(text, -1) for text in rows.strings], np.int64)
    texts = rows.type == STRING
    last = rows.stats["last"].copy()
    last[texts] = numbers[last[texts]]
    return replace(rows, stats={**rows.stats, "last": last}, strings=strings)


def order_of(*columns: npt.NDArray[Any]) -> npt.NDArray[np.intp] | None:
    """Return the order of the rows by these columns, the first decides first; None if they are in order."""
    return None if in_order(*columns) else np.lexsort(columns[::-1])


def in_order(*columns: npt.NDArray[Any], strictly: bool = False) -> bool:
    """True if the rows ascend by these columns, the first decides first; `strictly`: no two are equal."""
    undecided = np.ones(max(0, len(columns[0]) - 1), np.bool_)
    for column in columns:
        before, after = column[:-1], column[1:]
        if (undecided & (after < before)).any():
            return False
        undecided &= after == before
        if not undecided.any():
            return True
    return not strictly


def _stamps(ms: Ints, missing: Bools | None = None) -> Any:
    return pa.array(ms * 1000, pa.int64(), mask=missing).view(STAMP)
