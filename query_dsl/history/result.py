"""The answer of the history: samples as they were, with the series they belong to, in whatever form is wanted."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from artimon.model.values import Value
from query_dsl.errors import QueryError
from query_dsl.history.files import Ints, Wanted
from query_dsl.history.series import Found
from query_dsl.tree.timing import format_time

if TYPE_CHECKING:
    import pandas as pd

TIME = pa.timestamp("ms", tz="UTC")
TYPES = ("integer", "double", "boolean", "string")
_CODED = pa.dictionary(pa.int32(), pa.utf8())
RESULT_SCHEMA = pa.schema(
    [
        ("series", _CODED),
        ("source", _CODED),
        ("time", TIME),
        ("birth", TIME),
        ("future", pa.bool_()),
        ("integer", pa.int64()),
        ("double", pa.float64()),
        ("boolean", pa.bool_()),
        ("string", pa.utf8()),
    ]
)
RUN_ROWS = 8
COLUMNS = ("series", "source", "time", "birth", "type", "value")


class Sample(NamedTuple):
    """One sample. `type` is one of TYPES, or "ended": then there is no value."""

    series: str
    source: str
    time_ms: int
    birth_ms: int
    type: str
    value: Value | None


@dataclass(frozen=True, slots=True)
class Touched:
    """What was read of the raw table. `bytes` are those of the column chunks fetched (local), or of the files that
    Spark was given."""

    engine: str
    files: int
    of_files: int
    bytes: int
    of_bytes: int
    paths: tuple[str, ...] = field(default=(), repr=False)


class HistoryAnswer:
    """Samples sorted by series, source and time. `table` has RESULT_SCHEMA, `series` a row for each series that fits,
    whether or not it has samples."""

    def __init__(self, table: Any, series: Any, touched: Touched, notes: tuple[str, ...]) -> None:
        self.table, self.series, self.touched, self.notes = table, series, touched, notes

    def __len__(self) -> int:
        return len(self.table)

    def to_arrow(self) -> Any:
        """The Arrow table itself: integers are int64, a row without value says that its series ended."""
        return self.table

    def to_pandas(self) -> pd.DataFrame:
        """A frame with nullable columns: integers stay exact, a missing value is pd.NA, NaN stays NaN."""
        import pandas as pd

        kinds = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype(), pa.float64(): pd.Float64Dtype()}
        kinds[pa.utf8()] = pd.StringDtype()
        frame: pd.DataFrame = self.table.to_pandas(types_mapper=kinds.get)
        return frame

    def to_polars(self) -> Any:
        """A polars.DataFrame. Raises QueryError if Polars is not installed."""
        try:
            polars: Any = import_module("polars")
        except ImportError:
            raise QueryError("Polars is not installed: pip install polars, or use to_arrow or to_pandas") from None
        return polars.from_arrow(self.table)

    def samples(self) -> Iterator[Sample]:
        """One after another, as Python sees them."""
        for batch in self.table.to_batches(max_chunksize=10_000):
            times = [batch.column(name).cast(pa.int64()).to_pylist() for name in ("time", "birth")]
            texts = [batch.column(name).to_pylist() for name in ("series", "source")]
            values = [batch.column(name).to_pylist() for name in TYPES]
            for text, source, time, birth, *given in zip(*texts, *times, *values, strict=True):
                at = next((i for i, value in enumerate(given) if value is not None), None)
                kind, value = ("ended", None) if at is None else (TYPES[at], given[at])
                yield Sample(text, source, time, birth, kind, value)

    def write_json(self, out: IO[str]) -> None:
        """A JSON object a line, with the names of COLUMNS; NaN and infinities as the texts "NaN", "Infinity",
        "-Infinity"."""
        for one in self.samples():
            plain = {**one._asdict(), "time_ms": one.time_ms, "value": _plain(one.value)}
            out.write(json.dumps(plain, ensure_ascii=False, allow_nan=False) + "\n")

    def write_csv(self, out: IO[str]) -> None:
        """A line a sample below the line of COLUMNS; times as ISO 8601 in UTC."""
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        for one in self.samples():
            value = "" if one.value is None else str(one.value).lower() if one.type == "boolean" else _plain(one.value)
            times = format_time(one.time_ms), format_time(one.birth_ms)
            writer.writerow([one.series, one.source, *times, one.type, value])

    def write_arrow(self, out: IO[bytes]) -> None:
        """An Arrow IPC stream of `table`."""
        with pa.ipc.new_stream(out, self.table.schema) as stream:
            stream.write_table(self.table)

    def __repr__(self) -> str:
        return f"<history: {len(self):,} samples of {len(self.series):,} series; {'; '.join(self.notes)}>"


def assemble(rows: Any, found: Found, wanted: Wanted) -> Any:
    """RESULT_SCHEMA from what an engine read: the columns of the raw table and `pair`, in any order."""
    number = wanted.order[rows.column("pair").to_numpy()]
    stamps = {name: rows.column(name).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()) for name in ("time", "birth")}
    order = _order(number, stamps["time"].to_numpy(), stamps["birth"].to_numpy())
    taken = pa.array(order)
    coded = [_coded(found.table.column(name), number[order]) for name in ("text", "source_name")]
    times = [stamps[name].take(taken).cast(pa.timestamp("us", tz="UTC")).cast(TIME) for name in ("time", "birth")]
    rest = [rows.column(field.name).take(taken).cast(field.type) for field in RESULT_SCHEMA if _is_plain(field)]
    return pa.table([*coded, *times, *rest], schema=RESULT_SCHEMA).combine_chunks()


def _order(number: Ints, time: Ints, birth: Ints) -> Ints:
    """Row numbers in the order of (number, time, birth). Rows come in runs of a series whose times rise: they are moved
    as wholes if that gives the order, and sorted one by one if not."""
    starts = np.flatnonzero(np.diff(number, prepend=-1)) if len(number) else number
    if len(starts) * RUN_ROWS < len(number):
        runs = np.lexsort((time[starts], number[starts]))
        lengths = np.diff(starts, append=len(number))[runs]
        order: Ints = np.repeat(starts[runs] - (np.cumsum(lengths) - lengths), lengths) + np.arange(len(number))
        columns = number[order], time[order], birth[order]
        (n, t, b), (m, u, c) = ([column[:-1] for column in columns], [column[1:] for column in columns])
        if bool(((m > n) | (u > t) | ((u == t) & (c >= b))).all()):
            return order
    return np.lexsort((birth, time, number))


def _is_plain(field: Any) -> bool:
    return field.name in ("future", *TYPES)


def _coded(texts: Any, rows: Any) -> Any:
    """Dictionary codes: texts[rows], each distinct text once."""
    whole = texts.combine_chunks().dictionary_encode()
    whole = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
    codes = np.asarray(whole.indices)[rows].astype(np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(codes), whole.dictionary)


def _plain(value: Value | None) -> Value | None:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
