"""The answer's columns, filled batch by batch: sorted by series, source, time and birth."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from query_dsl.stores.history.file_pruning import Ints, RowFilter
from query_dsl.stores.history.local_reader import combine_chunks, to_numpy
from query_dsl.stores.history.result import DESCRIPTION_COLUMNS, RESULT_SCHEMA
from query_dsl.stores.history.row_layout import RowLayout, RowMoves, RowPlaces, Runs, runs_of
from query_dsl.stores.history.series_lookup import FoundSeries
from query_dsl.stores.history.task_pool import THREADS

DICTIONARY_COLUMNS = {"series": "text", "source": "source_name"}
"""Columns of the answer that are columns of the table of series."""


def build_answer(rows: Any, found: FoundSeries, wanted: RowFilter) -> Any:
    """Make RESULT_SCHEMA from rows in memory: a table with the columns of the raw table and `pair`, in any order."""
    batches = rows.to_batches()
    runs = [runs_of(wanted.order[to_numpy(batch.column("pair"))], to_numpy(batch.column("time"))) for batch in batches]
    assembly = AnswerBuilder(runs, found)
    for at, batch in enumerate(batches):
        assembly.put(at, batch)
    return assembly.table()


def describe(answer: Any, found: FoundSeries) -> Any:
    """Return an answer with kind, unit and help of the series of each row, as EXPORT_SCHEMA."""
    coded = combine_chunks(answer.column("series"))
    first: dict[str, int] = {}
    for at, text in enumerate(found.table.column("text").to_pylist()):
        first.setdefault(text, at)
    rows = pa.array([first[text] for text in coded.dictionary.to_pylist()])
    for name in DESCRIPTION_COLUMNS:
        texts = found.table.column(name).take(rows).combine_chunks()
        answer = answer.append_column(name, texts.take(coded.indices).dictionary_encode())
    return answer


class AnswerBuilder:
    """Builds the answer from batches of rows, whose runs are known in advance."""

    def __init__(self, runs: Sequence[Runs], found: FoundSeries) -> None:
        self._found, self._layout = found, RowLayout(runs)
        self._columns = {
            field.name: (_TextColumn if field.type == pa.utf8() else _NumberColumn)(field.type, self._layout.rows)
            for field in RESULT_SCHEMA
            if field.name not in DICTIONARY_COLUMNS
        }

    def put(self, at: int, rows: Any) -> None:
        """Add the rows of batch `at`, a table or batch with the columns of the raw table. Threads may call this with
        different batches."""
        places = self._layout.places(at)
        for name, column in self._columns.items():
            column.put(at, combine_chunks(rows.column(name)), places)

    def table(self) -> Any:
        """Return RESULT_SCHEMA. Call it after every batch was put."""
        columns = self._columns
        with ThreadPoolExecutor(THREADS, thread_name_prefix="assemble") as pool:
            coded = pool.map(self._coded, DICTIONARY_COLUMNS.values())
            moves = self._layout.moves(columns["time"].values, columns["birth"].values)
            rest = pool.map(lambda column: column.build(moves, self._layout), columns.values())
            return pa.table([*coded, *rest], schema=RESULT_SCHEMA).combine_chunks()

    def _coded(self, name: str) -> Any:
        """Return dictionary codes of all rows, from the text of each series; each distinct text once."""
        whole = combine_chunks(combine_chunks(self._found.table.column(name)).dictionary_encode())
        codes = np.asarray(whole.indices).astype(np.int32)[self._layout.number]
        return pa.DictionaryArray.from_arrays(pa.array(np.repeat(codes, self._layout.length)), whole.dictionary)


class _NumberColumn:
    """A column of numbers, times or booleans. Arrays that are never written, as without values, take no memory: the
    system allocates pages of zeros on first use."""

    def __init__(self, type_: Any, rows: int) -> None:
        self._type = type_
        self.values: npt.NDArray[Any] = np.zeros(rows, np.bool_ if type_ == pa.bool_() else np.int64)
        """Bits of numbers of any 64-bit type, or booleans."""
        self._valid = np.zeros(rows, np.bool_)
        self._lock = threading.Lock()
        self._nulls = 0
        self._full: list[int] = []
        """Numbers of the batches without nulls; `_valid` is set for their rows only if other batches have nulls."""

    def put(self, at: int, column: Any, places: RowPlaces) -> None:
        """Add the rows of batch `at`."""
        with self._lock:
            self._nulls += column.null_count
            if not column.null_count:
                self._full.append(at)
        if column.null_count == len(column):
            return
        column = column.cast(self._type)  # raises if a time has a fraction of a millisecond
        if self._type != pa.bool_():
            places.put(self.values, _cells(column))
        elif column.true_count:
            places.put(self.values, column.fill_null(False).to_numpy(zero_copy_only=False))
        if column.null_count:
            places.put(self._valid, column.is_valid().to_numpy(zero_copy_only=False))

    def build(self, moves: RowMoves | None, layout: RowLayout) -> Any:
        """Return all rows in their order."""
        rows, mixed = len(self.values), 0 < self._nulls < len(self.values)
        if self._nulls == rows:
            return _null_column(self._type, rows)
        for at in self._full if mixed else ():
            layout.places(at).mark(self._valid)
        for array in (self.values, self._valid) if mixed else (self.values,):
            if moves is not None:
                moves.apply(array)
        values = _bits(self.values) if self._type == pa.bool_() else pa.py_buffer(self.values)
        return pa.Array.from_buffers(self._type, rows, [_bits(self._valid) if mixed else None, values], self._nulls)


class _TextColumn:
    """A column of strings: keeps all batches until the end."""

    def __init__(self, type_: Any, rows: int) -> None:
        self._type = type_
        self.values: npt.NDArray[Any] = np.zeros(rows, np.int64)
        """Index in `_kept` of each row; index 0 is null."""
        self._lock = threading.Lock()
        self._kept = [pa.nulls(1, type_)]
        self._rows = 1

    def put(self, _at: int, column: Any, places: RowPlaces) -> None:
        """Add the rows of a batch."""
        if column.null_count == len(column):
            return
        with self._lock:
            start = self._rows
            self._rows += len(column)
            self._kept.append(column.cast(self._type))
        places.put(self.values, np.arange(start, start + len(column)))

    def build(self, moves: RowMoves | None, _layout: RowLayout) -> Any:
        """Return all rows in their order."""
        if len(self._kept) == 1:
            return _null_column(self._type, len(self.values))
        if moves is not None:
            moves.apply(self.values)
        return pa.chunked_array(self._kept).take(pa.array(self.values))


def _cells(column: Any) -> Ints:
    """Return the 64 bits of each row; those of null rows are arbitrary."""
    bits: Ints = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column)]
    return bits


def _bits(flags: npt.NDArray[np.bool_]) -> Any:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _null_column(type_: Any, rows: int) -> Any:
    """Return nulls, in memory that is never touched."""
    widths = {pa.utf8(): 32, pa.bool_(): 1}
    buffers = [pa.py_buffer(np.zeros((bits * (rows + 1) + 7) // 8, np.uint8)) for bits in (1, widths.get(type_, 64))]
    texts = [pa.py_buffer(b"")] if type_ == pa.utf8() else []
    return pa.Array.from_buffers(type_, rows, [*buffers, *texts], rows)
