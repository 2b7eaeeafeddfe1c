"""CSV, Parquet and Arrow: with a mapping of columns, or in the form of `artimon history export`."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq

from artimon.model.batch import SeriesInfo
from artimon.model.import_chunk import FIND_START_MS, ImportChunk
from artimon.model.value_traits import TRAITS
from artimon.model.values import CONTENTS, CellContent, Kind, ValueType, double_to_cell
from sources.base.source_errors import FileRefusedError
from sources.history.column_mapping import ColumnMapping, TimeColumn, TimeUnit
from sources.history.file_lines import open_input
from sources.history.import_builder import REFUSED, Bools, ImportBuilder, Ints, ParsedColumns

BATCH_ROWS = 250_000
BLOCK_BYTES = 8 << 20
_MS = pa.timestamp("ms", tz="UTC")
_FACTORS: dict[TimeUnit, tuple[int, int]] = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
"""Milliseconds are a number times the first, divided by the second."""
_TYPES = {"ended": ValueType.ENDED, **{traits.column: type_ for type_, traits in TRAITS.items()}}
_FLAGS = {"true": 1, "1": 1, "false": 0, "0": 0}
NATIVE_CSV = ("series", "source", "time", "birth", "type", "value")
NATIVE = ("series", "source", "time", "birth", "future", *(traits.column for traits in TRAITS.values()))
DESCRIPTION = ("kind", "unit", "help")
"""Columns that an export may have besides."""
Batches = Callable[[Path, Sequence[str], ImportBuilder], Iterator[Any]]


def read_table(
    file: Path, builder: ImportBuilder, batches: Batches, mapping: ColumnMapping | None
) -> Iterator[ImportChunk]:
    """Yield the samples of a table. Raises FileRefusedError, OSError."""
    columns = mapping.columns() if mapping else ()
    row = 1
    try:
        for batch in batches(file, columns, builder):
            parsed = _mapped(batch, row, builder, mapping) if mapping else _native(batch, row, builder)
            row += len(batch)
            yield builder.chunk(parsed)
            if builder.is_full:
                builder.forget()
    except pa.ArrowException as error:
        raise FileRefusedError("table", f"{file}: after row {row - 1}: {str(error).splitlines()[0]}") from error


def csv_batches(file: Path, columns: Sequence[str], builder: ImportBuilder) -> Iterator[Any]:
    """Yield a CSV file with a header as batches of texts; rows with too few or too many cells are counted."""
    with open_input(file) as stream:
        header = next(csv.reader(io.TextIOWrapper(stream, "utf-8-sig", newline="")), [])
    _check(file, header, columns or NATIVE_CSV)

    def count(row: Any) -> str:
        told = f"{row.actual_columns} cells, the header has {row.expected_columns}"
        builder.rejects.add("bad row", told, line=row.number or 0)
        return "skip"

    with open_input(file) as stream:
        reader = pc_csv.open_csv(
            stream,
            read_options=pc_csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
            parse_options=pc_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=count),
            convert_options=pc_csv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.utf8()),
                include_columns=list(columns or NATIVE_CSV),
                strings_can_be_null=False,
            ),
        )
        yield from reader


def parquet_batches(file: Path, columns: Sequence[str], builder: ImportBuilder) -> Iterator[Any]:
    del builder
    with pq.ParquetFile(file) as opened:
        names = opened.schema_arrow.names
        _check(file, names, columns or NATIVE)
        wanted = list(columns or [*NATIVE, *(name for name in DESCRIPTION if name in names)])
        yield from opened.iter_batches(BATCH_ROWS, columns=wanted)


def arrow_batches(file: Path, columns: Sequence[str], builder: ImportBuilder) -> Iterator[Any]:
    """Yield the batches of an Arrow IPC stream or file."""
    del builder
    with pa.OSFile(str(file)) as source:
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        if is_file:
            opened = pa.ipc.open_file(source)
            _check(file, opened.schema.names, columns or NATIVE)
            yield from (opened.get_batch(at) for at in range(opened.num_record_batches))
        else:
            stream = pa.ipc.open_stream(source)
            _check(file, stream.schema.names, columns or NATIVE)
            yield from stream


def _check(file: Path, names: Sequence[str], wanted: Sequence[str]) -> None:
    if missing := [name for name in wanted if name not in names]:
        raise FileRefusedError(
            "columns",
            f"{file}:1: no column {', '.join(missing)}; it has {', '.join(names)[:200]}: give --mapping, or correct it",
        )


# --- rows to columns


def _mapped(batch: Any, row: int, builder: ImportBuilder, mapping: ColumnMapping) -> ParsedColumns:
    line = np.arange(row, row + len(batch))
    type_ = _TYPES[mapping.value.type]
    kind = Kind[mapping.kind.upper()]

    def code(cells: dict[str, str], at: int) -> int:
        name = cells.get(mapping.name_column) or mapping.name
        labels = {label: cells[column] for label, column in mapping.labels.items()}
        source = cells.get(mapping.source_column, "")
        return builder.series(name, labels, at, kind, type_, mapping.unit, mapping.help, source)

    codes = _codes(batch, mapping.key_columns(), line, code)
    time_ms, bad = _times(batch.column(mapping.time.column), mapping.time.unit)
    cell, wrong, strings = _cells(batch.column(mapping.value.column), type_)
    birth_ms = _births(batch, mapping.birth) if mapping.birth else None
    types = np.full(len(batch), type_, np.uint8)
    return _kept(builder, ParsedColumns(codes, time_ms, types, cell, line, strings, birth_ms), bad, wrong)


def _native(batch: Any, row: int, builder: ImportBuilder) -> ParsedColumns:
    line = np.arange(row, row + len(batch))
    names = [name for name in ("series", "source", *DESCRIPTION) if name in batch.schema.names]
    is_csv = "value" in batch.schema.names
    n = len(batch)
    types, cell, wrong = np.full(n, ValueType.ENDED, np.uint8), np.zeros(n, np.int64), np.zeros(n, np.bool_)
    strings: tuple[str, ...] = ()
    if is_csv:
        told = [_TYPES.get(name, -1) for name in batch.column("type").to_pylist()]
        wrong |= np.array([one < 0 for one in told], np.bool_)
        types = np.array([max(one, 0) for one in told], np.uint8)
    for type_, traits in TRAITS.items():
        column = batch.column("value" if is_csv else traits.column)
        here = types == type_ if is_csv else column.is_valid().to_numpy(zero_copy_only=False)
        if not here.any():
            continue
        at = np.flatnonzero(here)
        cell[at], bad, texts = _cells(column.take(pa.array(at)), type_)
        types[at], wrong[at] = type_, wrong[at] | bad
        strings = texts or strings
    newest = _type_of_each(types, batch.column("series"), batch.column("source"))

    def code(cells: dict[str, str], at: int) -> int:
        kind = Kind.__members__.get(cells.get("kind", "").upper(), Kind.UNKNOWN)
        type_ = newest.get((cells["series"], cells["source"]), ValueType.DOUBLE)
        info = SeriesInfo(cells["series"], type_, kind, cells.get("help", ""), cells.get("unit", ""))
        return builder.canonical_series(cells["series"], at, cells["source"], info)

    codes = _codes(batch, names, line, code)
    time_ms, bad = _times(batch.column("time"), "iso")
    birth_ms, odd = _times(batch.column("birth"), "iso")
    future = None if is_csv else np.asarray(batch.column("future").fill_null(False))
    return _kept(builder, ParsedColumns(codes, time_ms, types, cell, line, strings, birth_ms, future), bad | odd, wrong)


def _type_of_each(types: Any, series: Any, source: Any) -> dict[tuple[str, str], ValueType]:
    """Return the last type of each series in the batch."""
    valued = np.flatnonzero(types != ValueType.ENDED)
    keys, _ = _distinct([series.take(pa.array(valued)), source.take(pa.array(valued))])
    last: dict[int, int] = dict(zip(keys.tolist(), valued.tolist(), strict=True))
    return {(series[at].as_py(), source[at].as_py()): ValueType(int(types[at])) for at in last.values()}


def _kept(builder: ImportBuilder, given: ParsedColumns, bad_time: Bools, bad_value: Bools) -> ParsedColumns:
    """Return the rows that have a series, a time and a value; others are counted."""
    if refused := int((given.code == REFUSED).sum()):
        builder.rejects.counts["bad series"] += refused
    for wrong, text in ((bad_time, "not a time"), (bad_value, "not a value of the column's type, or none")):
        if count := int(wrong.sum()):
            builder.rejects.add("bad row", text, count, int(given.line[np.argmax(wrong)]))
    at = np.flatnonzero((given.code != REFUSED) & ~bad_time & ~bad_value)
    birth_ms = None if given.birth_ms is None else given.birth_ms[at]
    future = None if given.future is None else given.future[at]
    return ParsedColumns(
        given.code[at],
        given.time_ms[at],
        given.type[at],
        given.cell[at],
        given.line[at],
        given.strings,
        birth_ms,
        future,
    )


def _codes(batch: Any, columns: Sequence[str], line: Ints, code: Callable[[dict[str, str], int], int]) -> Ints:
    """Return the code of each row; `code` is called once for each distinct combination of these columns."""
    texts = [batch.column(name).cast(pa.utf8()).fill_null("") for name in columns]
    keys, firsts = _distinct(texts) if texts else (np.zeros(len(batch), np.int64), np.zeros(1, np.int64))
    codes = [
        code({name: text[at].as_py() for name, text in zip(columns, texts, strict=True)}, int(line[at]))
        for at in firsts.tolist()
        if at < len(batch)
    ]
    return np.array(codes or [REFUSED], np.int64)[keys]


def _distinct(texts: Sequence[Any]) -> tuple[Ints, Ints]:
    """Return the number of the combination of each row, and the first row of each combination."""
    keys: Ints = np.zeros(len(texts[0]), np.int64)
    first: Ints = np.zeros(0, np.int64)
    for column in texts:
        coded = column.cast(pa.utf8()).dictionary_encode()
        keys = keys * (len(coded.dictionary) + 1) + coded.indices.to_numpy(zero_copy_only=False)
        _, first, keys = np.unique(keys, return_index=True, return_inverse=True)
    return keys.reshape(-1), first


def _births(batch: Any, birth: TimeColumn) -> Ints:
    found, bad = _times(batch.column(birth.column), birth.unit)
    return np.where(bad, FIND_START_MS, found)


def _times(column: Any, unit: TimeUnit) -> tuple[Ints, Bools]:
    """Return times in epoch ms, and the mask of rows that have none."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(_MS, safe=False).cast(pa.int64())
        unit = "ms"
    if unit == "iso":
        return _converted(column, _iso_ms)
    up, down = _FACTORS[unit]
    try:
        whole = column.cast(pa.int64())
        return whole.fill_null(0).to_numpy(zero_copy_only=False) * up // down, _nulls(column)
    except pa.ArrowInvalid:
        return _converted(column, lambda value: round(float(value) * up / down))


def _iso_ms(value: Any) -> int:
    moment = datetime.fromisoformat(value)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def _cells(column: Any, type_: ValueType) -> tuple[Ints, Bools, tuple[str, ...]]:
    """Return cells of values of this type, the mask of rows that have none, and the texts that cells index."""
    nulls = _nulls(column)
    match CONTENTS[type_]:
        case CellContent.TEXT:
            coded = column.cast(pa.utf8()).fill_null("").dictionary_encode()
            places = coded.indices.cast(pa.int64()).to_numpy(zero_copy_only=False)
            return places, nulls, tuple(coded.dictionary.to_pylist())
        case CellContent.FLOAT64:
            try:
                values = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
                return np.ascontiguousarray(values).view(np.int64), nulls, ()
            except pa.ArrowInvalid:
                return *_converted(column, lambda value: double_to_cell(float(value))), ()
        case CellContent.FLAG:
            return *_converted(column, lambda value: _FLAGS[str(value).strip().lower()]), ()
    try:
        return column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), nulls, ()
    except pa.ArrowInvalid:
        return *_converted(column, _whole), ()


def _whole(value: Any) -> int:
    number = int(value) if isinstance(value, str) or float(value).is_integer() else None
    if number is None or not -(2**63) <= number < 2**63:
        raise ValueError(value)
    return number


def _converted(column: Any, convert: Callable[[Any], int]) -> tuple[Ints, Bools]:
    """Convert value by value; those that cannot be converted are in the mask."""
    found, bad = np.zeros(len(column), np.int64), np.zeros(len(column), np.bool_)
    for at, value in enumerate(column.to_pylist()):
        try:
            found[at] = convert(value)
        except (ValueError, TypeError, KeyError, OverflowError):
            bad[at] = True
    return found, bad


def _nulls(column: Any) -> Bools:
    mask: Bools = column.is_null().to_numpy(zero_copy_only=False)
    return mask
