"""Sorted runs: files whose rows are in order, read batch by batch in little memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from artimon.rawtable.parquet_reader import RangeReader, byte_range, oversized_group
from artimon.rawtable.schema import FILE_SCHEMA
from pipeline.compaction.row_order import Key, SortKeys

FLAT_ROW_BYTES = 56
"""Bytes of a row in memory without its string."""
LOAD_BYTES = 16 * 1024 * 1024
"""Row groups up to this size are read by one request; of larger ones each column, piece by piece."""
PIECE_BYTES = 1024 * 1024
SPILL_BYTES = 4 * 1024 * 1024
HEAVY_BYTES = 64 * 1024 * 1024
PROBE_ROWS, HEAVY_PROBE_ROWS = 65_536, 64
_CODED = frozenset({"PLAIN", "RLE", "RLE_DICTIONARY", "PLAIN_DICTIONARY"})
"""Encodings of strings that Arrow reads as a dictionary."""
OnBatch = Callable[[Any], None]


class RunError(RuntimeError):
    """A file cannot be merged: it is not what the table says. The text names it."""


class Run(Protocol):
    """Batches of FILE_SCHEMA whose rows are in order, within and across batches."""

    @property
    def name(self) -> str:
        """Name for messages."""
        ...

    @property
    def weight(self) -> int:
        """Bytes of memory that reading it takes, without its batches."""
        ...

    def batches(self, rows: int) -> Iterator[Any]:
        """Yield RecordBatches of at most `rows` rows."""
        ...


class ParquetRun:
    """A data file of the table. `on_batch` is called with every batch that is read from it."""

    def __init__(self, uri: str, rows: int, size: int, on_batch: OnBatch | None = None) -> None:
        self.name, self.uri, self.rows, self.size = uri, uri, rows, size
        self._on_batch, self._weight = on_batch, None if size else 0

    @property
    def weight(self) -> int:
        """Bytes of a stored row group, a page of each column, and one of strings, which may be long. Opens the file."""
        if self._weight is None:
            _, file = self._open()
            groups = [file.metadata.row_group(n) for n in range(file.metadata.num_row_groups)]
            self._weight = max(map(_group_weight, groups), default=0)
        return self._weight

    def batches(self, rows: int) -> Iterator[Any]:
        """Yield batches of at most `rows` rows and at most about twice the bytes of `rows` rows without strings. Raises
        RunError if the number of rows is not what the table says; OSError, FileNotFoundError."""
        source, file = self._open()
        for group in range(file.metadata.num_row_groups):
            for batch in _coalesced(self._group(source, file, group, rows), rows):
                fitting = batch if batch.schema.equals(FILE_SCHEMA) else conform(batch)
                if self._on_batch:
                    self._on_batch(fitting)
                yield fitting

    def _open(self) -> tuple[RangeReader, Any]:
        source = RangeReader(self.uri)
        try:
            file = pq.ParquetFile(source, pre_buffer=False, memory_map=False)
        except pa.ArrowInvalid as error:
            raise RunError(f"{self.uri} is not a complete Parquet file: {error}") from error
        if unfit := oversized_group(file.metadata):
            raise RunError(f"{self.uri}: {unfit}")
        if file.metadata.num_rows != self.rows:
            raise RunError(f"{self.uri} holds {file.metadata.num_rows} rows, the table says {self.rows}")
        if unknown := sorted({*file.schema_arrow.names} - {*FILE_SCHEMA.names}):
            raise RunError(
                f"{self.uri} has columns that this program does not know and would lose: {', '.join(unknown)};"
                " run the version that wrote it, or a newer one (docs/upgrade.md)"
            )
        return source, file

    def _group(self, source: RangeReader, file: Any, group: int, rows: int) -> Iterator[Any]:
        meta = file.metadata.row_group(group)
        start, length = byte_range(meta)
        if length <= LOAD_BYTES:
            source.load(start, length)
        else:
            source.load(start, 0)
            file = pq.ParquetFile(source, metadata=file.metadata, pre_buffer=False, buffer_size=PIECE_BYTES)
        count = _rows_that_fit(source, file, group, rows)
        yield from file.iter_batches(batch_size=count, row_groups=[group], use_threads=False)


class SpilledRun:
    """A run in a local file, made by `spill`, at an offset of the file."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.name, self.path, self._offset = str(path), path, offset

    @property
    def weight(self) -> int:
        return SPILL_BYTES

    def batches(self, rows: int) -> Iterator[Any]:
        with pa.memory_map(str(self.path)) as source:  # without compression, batches are pages of the file
            source.seek(self._offset)
            with pa.ipc.open_stream(source) as reader:
                for whole in reader:
                    for start in range(0, len(whole), rows):
                        yield whole.slice(start, rows)


def spill(
    path: Path,
    tables: Iterable[Any],
    batch_rows: int,
    schema: pa.Schema = FILE_SCHEMA,
    compression: str | None = "lz4",
) -> SpilledRun:
    """Append sorted tables of `schema`, as one run, to a local file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    offset = path.stat().st_size if path.exists() else 0
    with pa.OSFile(str(path), "ab") as sink, pa.ipc.new_stream(sink, schema, options=options) as writer:
        for table in tables:
            for piece in slices_of(table, batch_rows, SPILL_BYTES):
                writer.write_table(piece)
    return SpilledRun(path, offset)


def check_order(keys: SortKeys, before: Key | None, name: str) -> None:
    """Check that the rows are in order, and not before the row `before`. Raises RunError."""
    if not keys.is_ordered() or (before is not None and len(keys) and keys.at(0) < before):
        raise RunError(f"{name}: its rows are not in the order of source, series and time")


def slices_of(table: Any, rows: int, size: int) -> Iterator[Any]:
    """Yield slices of the table of at most `rows` rows and `size` bytes, or of one row."""
    for start in range(0, len(table), rows):
        part = table.slice(start, rows)
        if len(part) > 1 and part.nbytes > size:
            yield from slices_of(part, -(-len(part) // 2), size)
        else:
            yield part


def _strings_of(group: Any) -> Any:
    """Return the column of strings of a row group; None if it has none."""
    columns = map(group.column, range(group.num_columns))
    return next((column for column in columns if column.path_in_schema == "string"), None)


def _string_bytes(group: Any) -> int:
    """Return the encoded size of a row group's strings: an upper bound of the longest string."""
    strings = _strings_of(group)
    return int(strings.total_uncompressed_size) if strings else 0


def _group_weight(group: Any) -> int:
    """Return the bytes that reading a row group takes, without its batches: the group as stored, pages, strings."""
    pages = min(int(group.total_byte_size), 2 * PIECE_BYTES)
    return min(byte_range(group)[1], LOAD_BYTES) + pages + min(_string_bytes(group), 2 * LOAD_BYTES)


def _rows_that_fit(source: RangeReader, file: Any, group: int, rows: int) -> int:
    """Return the rows of a row group to read at once: at most twice the bytes of `rows` rows without strings. Strings
    may be long, and long ones come together, so their lengths are read first."""
    meta = file.metadata.row_group(group)
    held = _string_bytes(meta)
    if held <= FLAT_ROW_BYTES or min(rows, meta.num_rows) * held <= rows * FLAT_ROW_BYTES:
        return rows
    lengths = _string_lengths(source, file, group)
    count = rows
    while count > 1 and np.add.reduceat(lengths, np.arange(0, len(lengths), count)).max() > rows * FLAT_ROW_BYTES:
        count //= 2
    return count


def _string_lengths(source: RangeReader, file: Any, group: int) -> Any:
    """Return the length of the string of each row in bytes. If the encoding allows it, equal strings are held once;
    otherwise few rows are read at once."""
    strings = _strings_of(file.metadata.row_group(group))
    coded = ["string"] if _CODED.issuperset(strings.encodings) else []
    few = not coded or strings.total_uncompressed_size > HEAVY_BYTES
    reader = pq.ParquetFile(
        source, metadata=file.metadata, read_dictionary=coded, pre_buffer=False, buffer_size=PIECE_BYTES
    )
    options = {"row_groups": [group], "columns": ["string"], "use_threads": False}
    batches = reader.iter_batches(batch_size=HEAVY_PROBE_ROWS if few else PROBE_ROWS, **options)
    return np.concatenate([_lengths(batch.column(0)) for batch in batches])


def _lengths(column: Any) -> Any:
    if not pa.types.is_dictionary(column.type):
        return pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    lengths = np.append(pc.binary_length(column.dictionary).to_numpy(zero_copy_only=False), 0).astype(np.int64)
    return lengths[pc.fill_null(column.indices, len(lengths) - 1).to_numpy(zero_copy_only=False)]


def _coalesced(batches: Iterator[Any], rows: int) -> Iterator[Any]:
    """Join consecutive small batches, up to `rows` rows and the bytes of `rows` rows without strings."""
    held: list[Any] = []
    count = size = 0
    for batch in batches:
        if held and (count + len(batch) > rows or size + batch.nbytes > rows * FLAT_ROW_BYTES):
            yield _join_batches(held)
            held, count, size = [], 0, 0
        held.append(batch)
        count, size = count + len(batch), size + batch.nbytes
    if held:
        yield _join_batches(held)


def _join_batches(batches: list[Any]) -> Any:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def conform(batch: Any) -> Any:
    """Return a batch with the columns and types of FILE_SCHEMA; a column that an older file lacks is null."""
    columns = []
    for field in FILE_SCHEMA:
        found = batch.schema.get_field_index(field.name)
        column = pa.nulls(len(batch), field.type) if found < 0 else batch.column(found)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.record_batch(columns, schema=FILE_SCHEMA)
