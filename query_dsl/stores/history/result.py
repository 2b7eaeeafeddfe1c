"""Answer of the history: unchanged samples with their series, convertible to several formats."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from artimon.model.value_traits import VALUE_COLUMNS, VALUE_FIELDS
from artimon.model.values import Value
from query_dsl.results.query_result import json_value, to_frame, to_polars
from query_dsl.tree.times import format_time

if TYPE_CHECKING:
    import pandas as pd

TIME = pa.timestamp("ms", tz="UTC")
_CODED = pa.dictionary(pa.int32(), pa.utf8())
RESULT_SCHEMA = pa.schema(
    [
        ("series", _CODED),
        ("source", _CODED),
        ("time", TIME),
        ("birth", TIME),
        ("future", pa.bool_()),
        *VALUE_FIELDS,
    ]
)
DESCRIPTION_COLUMNS = ("kind", "unit", "help")
EXPORT_SCHEMA = pa.schema([*RESULT_SCHEMA, *((name, _CODED) for name in DESCRIPTION_COLUMNS)])
"""Columns of an export: the samples, and what was announced of their series."""
COLUMNS = ("series", "source", "time", "birth", "type", "value")


class Sample(NamedTuple):
    """One sample. `type` is one of VALUE_COLUMNS, or "ended" for an end marker, which has no value."""

    series: str
    source: str
    time_ms: int
    birth_ms: int
    type: str
    value: Value | None


@dataclass(frozen=True, slots=True)
class ReadStats:
    """Files and bytes of the raw table that were read. `bytes` are those of the column chunks fetched (local), or of
    the files given to Spark."""

    engine: str
    files: int
    of_files: int
    bytes: int
    of_bytes: int
    paths: tuple[str, ...] = field(default=(), repr=False)


class HistoryAnswer:
    """Samples sorted by series, source and time. `table` has RESULT_SCHEMA, `series` a row for each matching series,
    with or without samples."""

    def __init__(self, table: Any, series: Any, touched: ReadStats, notes: tuple[str, ...]) -> None:
        self.table, self.series, self.touched, self.notes = table, series, touched, notes

    def __len__(self) -> int:
        return len(self.table)

    def to_arrow(self) -> Any:
        """Return the Arrow table itself: integers are int64, a row without value marks the end of its series."""
        return self.table

    def to_pandas(self) -> pd.DataFrame:
        """Return a frame with nullable columns: integers stay exact, a missing value is pd.NA, NaN stays NaN."""
        return to_frame(self.table)

    def to_polars(self) -> Any:
        """Return a polars.DataFrame. Raises QueryError if Polars is not installed."""
        return to_polars(self.table)

    def samples(self) -> Iterator[Sample]:
        """Iterate over the samples as Python values."""
        for batch in self.table.to_batches(max_chunksize=10_000):
            times = [batch.column(name).cast(pa.int64()).to_pylist() for name in ("time", "birth")]
            texts = [batch.column(name).to_pylist() for name in ("series", "source")]
            values = [batch.column(name).to_pylist() for name in VALUE_COLUMNS]
            for text, source, time, birth, *given in zip(*texts, *times, *values, strict=True):
                at = next((i for i, value in enumerate(given) if value is not None), None)
                kind, value = ("ended", None) if at is None else (VALUE_COLUMNS[at], given[at])
                yield Sample(text, source, time, birth, kind, value)

    def write_json(self, out: IO[str]) -> None:
        """Write one JSON object per line, with the fields of Sample; NaN and infinities become the texts "NaN",
        "Infinity", "-Infinity"."""
        for one in self.samples():
            plain = {**one._asdict(), "value": json_value(one.value)}
            out.write(json.dumps(plain, ensure_ascii=False, allow_nan=False) + "\n")

    def write_csv(self, out: IO[str], header: bool = True) -> None:
        """Write a header of COLUMNS and one line per sample; times are ISO 8601 in UTC."""
        writer, quoting = (
            csv.writer(out, lineterminator="\n", quoting=how) for how in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)
        )
        if header:
            writer.writerow(COLUMNS)
        for one in self.samples():
            value = json_value(one.value)
            value = "" if value is None else str(value).lower() if one.type == "boolean" else value
            times = format_time(one.time_ms), format_time(one.birth_ms)
            row = [one.series, one.source, *times, one.type, value]
            # before Python 3.13, csv leaves a carriage return bare if lines end without one
            (quoting if any("\r" in str(field) for field in row) else writer).writerow(row)

    def write_arrow(self, out: IO[bytes]) -> None:
        """Write `table` as an Arrow IPC stream."""
        with pa.ipc.new_stream(out, self.table.schema) as stream:
            stream.write_table(self.table)

    def __repr__(self) -> str:
        return f"<history: {len(self):,} samples of {len(self.series):,} series; {'; '.join(self.notes)}>"
