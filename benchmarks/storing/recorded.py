"""First hour of mix.parquet in a separate raw table: appends every 30 s, as the raw query makes them.

Values and times were recorded on a stack. Series with the same poll times form a source. Names and labels are made up,
as the file has none: three series a name and four labels, so that the peers need about as many bytes a sample (3.20 and
4.95) as for the stack's own names (3.31 and 5.01).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from artimon.model.batch import SeriesBlock, SeriesInfo
from artimon.model.fingerprint import fingerprint, signed
from artimon.model.labels import canonical
from artimon.model.values import Kind, ValueType
from artimon.rawtable.announced_rows import rows_of
from artimon.rawtable.schema import FILE_SCHEMA
from artimon.rawtable.series_delta import SeriesTable
from artimon.rawtable.sources import SourcesTable
from benchmarks.peers.series import Ints
from benchmarks.storing.mix import FILE
from pipeline.compaction.row_order import sort_rows
from tests.compaction.builder import HOUR_MS, Builder

APPEND_MS = 30_000
BIRTH_AGE_MS = 7_000_123


@dataclass(frozen=True, slots=True)
class Hour:
    """Columns of the samples, sorted by time; `source` of each series."""

    series: Ints
    times_ms: Ints
    integers: pa.Array
    doubles: pa.Array
    source: Ints


def read() -> Hour:
    """Read the hour from the file."""
    table = pq.read_table(FILE)
    table = table.filter(pa.array(table["time"].to_numpy() < HOUR_MS)).sort_by([("time", "ascending")])
    series, times = table["series"].to_numpy().astype(np.int64), table["time"].to_numpy().astype(np.int64)
    integers, doubles = (table[name].combine_chunks() for name in ("integer", "double"))
    return Hour(series, times, integers, doubles, _sources(series, times))


def _sources(series: Ints, times: Ints) -> Ints:
    """Return the source number of each series; series with the same first poll time share it."""
    first = np.zeros(int(series.max()) + 1, np.int64)
    first[series[::-1]] = times[::-1]
    return np.unique(first, return_inverse=True)[1].astype(np.int64)


def fill(hdfs: str, start_ms: int) -> None:
    """Announce the series, and append the hour that begins at `start_ms`."""
    hour, builder = read(), Builder(hdfs)
    names = [f"mix/host-{number:02}/0" for number in range(int(hour.source.max()) + 1)]
    ids = SourcesTable(hdfs).assign(names)
    texts = [_text(number, int(source)) for number, source in enumerate(hour.source)]
    _announce(hdfs, hour, names, ids, texts, start_ms)
    numbers = np.array([ids[name] for name in names], np.int32)[hour.source]
    prints = np.array([signed(fingerprint(text)) for text in texts], np.int64)
    for begin in range(0, HOUR_MS, APPEND_MS):
        first, last = np.searchsorted(hour.times_ms, [begin, begin + APPEND_MS])
        if last > first:
            part = slice(int(first), int(last))
            made = _rows(hour, part, numbers, prints, start_ms)
            builder.append_tables([(start_ms + begin + APPEND_MS - 1, "default", made)])


def _text(number: int, source: int) -> str:
    labels = {"context": f"context-{source}", "host": "host-1.example", "instance": "0", "part": f"p{number % 3}"}
    return canonical(f"application.part.figure{number // 3}", labels)


def _announce(hdfs: str, hour: Hour, names: list[str], ids: dict[str, int], texts: list[str], start_ms: int) -> None:
    doubles = set(hour.series[np.asarray(hour.doubles.is_valid())].tolist())
    blocks = []
    for source, name in enumerate(names):
        mine = np.flatnonzero(hour.source == source).tolist()
        infos = [
            SeriesInfo(texts[i], ValueType.DOUBLE if i in doubles else ValueType.INTEGER, Kind.GAUGE) for i in mine
        ]
        blocks.append(SeriesBlock(name, 0, start_ms, tuple(infos)))
    rows, refused = rows_of(blocks, ids)
    if refused or not SeriesTable(hdfs).add(rows, "bench", {0: 0}, {0: 1}):
        raise RuntimeError(f"{len(refused)} series were refused")


def _rows(hour: Hour, part: slice, numbers: np.ndarray, prints: Ints, start_ms: int) -> pa.Table:
    series = hour.series[part]
    count, stamp = len(series), FILE_SCHEMA.field("time").type
    length = part.stop - part.start
    columns = [
        pa.array(numbers[series]),
        pa.array(prints[series]),
        pa.array((start_ms + hour.times_ms[part]) * 1000).view(stamp),
        pa.array(np.full(count, (start_ms - BIRTH_AGE_MS) * 1000)).view(stamp),
        pa.array(np.zeros(count, bool)),
        hour.integers.slice(part.start, length),
        hour.doubles.slice(part.start, length),
        *(pa.nulls(count, FILE_SCHEMA.field(name).type) for name in ("boolean", "string")),
    ]
    return sort_rows(pa.table(columns, schema=FILE_SCHEMA))
