"""Batches to one Parquet file: sorted by (source, series, time), with the statistics that Delta wants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from artimon.model.value_traits import DICTIONARY, TRAITS, VALUE_COLUMNS
from artimon.rawtable.file_statistics import PRUNED, FileStatistics
from artimon.rawtable.schema import FILE_SCHEMA
from pipeline.spark.message_checks import FUTURE_MS

Ints = npt.NDArray[np.int64]
_ENCODING = {
    "series": "DELTA_BINARY_PACKED",
    "time": "DELTA_BINARY_PACKED",
    "birth": "DELTA_BINARY_PACKED",
    **{one.column: one.encodings[0] for one in TRAITS.values() if one.encodings[0] != DICTIONARY},
}
ROW_GROUP = 1_000_000
PARQUET: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": ["source", *(one.column for one in TRAITS.values() if one.encodings[0] == DICTIONARY)],
    "column_encoding": _ENCODING,
    "write_statistics": list(PRUNED),
}
"""Options of the writer of a file."""


class SourceBatch(NamedTuple):
    """One batch on its way into a file. `columns` has artimon.model.sample_columns.SAMPLE_SCHEMA."""

    source: int
    append_ms: int
    columns: Any


def sorted_table(parts: Sequence[SourceBatch]) -> pa.Table:
    """Return all rows of `parts` as FILE_SCHEMA, sorted by (source, series, time)."""
    ordered = sorted(parts, key=lambda part: (part.source, _first_time(part.columns)))
    lengths = np.array([len(part.columns) for part in ordered])
    whole = pa.Table.from_batches([part.columns for part in ordered])
    series = _joined(whole.column("series")).view(np.int64)
    times = _joined(whole.column("time"))
    order = _order(ordered, lengths, series, times)
    append = np.repeat(np.array([part.append_ms for part in ordered], np.int64), lengths)
    taken = pa.array(order)
    columns = [
        pa.array(np.repeat(np.array([part.source for part in ordered], np.int32), lengths)),  # already in order
        pa.array(series[order]),
        _stamps(times[order]),
        _stamps(_joined(whole.column("birth"))[order]),
        pa.array((times > append + FUTURE_MS)[order]),
        *(_take(whole.column(name), taken) for name in VALUE_COLUMNS),
    ]
    return pa.table(columns, schema=FILE_SCHEMA)


def encode_file(parts: list[SourceBatch]) -> tuple[Any, int, str]:
    """Encode all rows of `parts` as one file; return its bytes (a buffer), number of rows, statistics. Empties `parts`:
    the file is made row group by row group, so that rows are not held twice."""
    parts.sort(key=lambda part: part.source, reverse=True)
    sink = pa.BufferOutputStream()
    statistics = FileStatistics()
    with pq.ParquetWriter(sink, FILE_SCHEMA, **PARQUET) as writer:
        while parts:
            table = sorted_table(_next_sources(parts))
            statistics.add(table)
            writer.write_table(table, row_group_size=ROW_GROUP)
    return sink.getvalue(), statistics.rows, statistics.to_json()


def _next_sources(parts: list[SourceBatch]) -> list[SourceBatch]:
    """Take whole sources from the end of `parts`, until they fill a row group."""
    taken = [parts.pop()]
    rows = len(taken[0].columns)
    while parts and (parts[-1].source == taken[-1].source or rows + len(parts[-1].columns) <= ROW_GROUP):
        taken.append(parts.pop())
        rows += len(taken[-1].columns)
    return taken


def _first_time(columns: Any) -> int:
    return columns.column(1)[0].as_py() if len(columns) else 0


def _order(parts: Sequence[SourceBatch], lengths: Ints, series: Ints, times: Ints) -> Ints:
    """Return row numbers in the order of the file; `parts` are already in the order of their sources."""
    starts = np.concatenate([[0], np.cumsum(lengths)])
    orders = []
    first = 0
    while first < len(parts):
        last = first + 1
        while last < len(parts) and parts[last].source == parts[first].source:
            last += 1
        bounds = starts[first : last + 1]
        orders.append(
            bounds[0] + _order_of_source(bounds - bounds[0], *(a[bounds[0] : bounds[-1]] for a in (series, times)))
        )
        first = last
    return np.concatenate(orders)


def _order_of_source(bounds: Ints, series: Ints, times: Ints) -> Ints:
    """Return the order of one source's rows by (series, time); batch k is [bounds[k], bounds[k + 1])."""
    count, width = len(bounds) - 1, int(bounds[1])
    if width and len(series) == count * width:
        # the common case: every poll has the same series in the same order, and polls do not overlap in time
        matrix, moments = series.reshape(count, width), times.reshape(count, width)
        apart = count == 1 or bool((moments[:-1].max(axis=1) <= moments[1:].min(axis=1)).all())
        if apart and (count == 1 or bool((matrix[1:] == matrix[0]).all())):
            by_series = np.argsort(matrix[0], kind="stable")
            sorted_series = matrix[0][by_series]
            if bool((sorted_series[1:] != sorted_series[:-1]).all()):
                return (by_series[:, None] + bounds[None, :-1]).reshape(-1)
    return np.lexsort((times, series))


def _joined(column: Any) -> Any:
    """Return a chunked column without nulls as one numpy array."""
    return pa.concat_arrays(column.chunks).to_numpy(zero_copy_only=True)


def _stamps(milliseconds: Ints) -> Any:
    return pa.array(milliseconds * 1000).view(FILE_SCHEMA.field("time").type)


def _take(column: Any, order: Any) -> Any:
    if column.null_count == len(column):
        return pa.nulls(len(column), column.type)
    return pa.concat_arrays(column.chunks).take(order)
