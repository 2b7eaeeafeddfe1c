"""Reads the pruned files in this process, without Spark: row group by row group, in several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from artimon.model.value_traits import VALUE_COLUMNS
from artimon.rawtable.parquet_reader import GroupReader, OpenFiles
from artimon.rawtable.schema import FILE_SCHEMA
from query_dsl.stores.history.file_pruning import BOUNDS, STAMP, Ints, RawFile, RowFilter
from query_dsl.stores.history.sample_query import HistoryInterrupted, SampleQuery
from query_dsl.stores.history.shares import Share, shares_of
from query_dsl.stores.history.task_pool import TaskPool, TaskResult

VALUES = ("birth", "future", *VALUE_COLUMNS)
COLUMNS = ("time", *VALUES)
Rows = npt.NDArray[np.int32]
Progress = Callable[[float, str], None]
"""Callback that is called at times with the fraction done, 0 to 1, and a text."""


class PickedRows(NamedTuple):
    """Wanted rows of a row group, None for all of them; (rows,) number of the pair and time in us of each."""

    rows: Rows | None
    pairs: Ints
    time_us: Ints


def no_progress(_done: float, _text: str) -> None:
    """Ignore the progress."""


class LocalReader:
    """One reading of the raw table, or of a table with its key columns. Files are distributed over threads; `_lock`
    guards their counts."""

    def __init__(
        self,
        uri: str,
        wanted: RowFilter,
        question: SampleQuery,
        stop: threading.Event,
        columns: Sequence[str] = COLUMNS,
        opened: OpenFiles | None = None,
    ) -> None:
        """`opened`: files that stay open."""
        self._uri, self._wanted, self._question, self._stop = uri, wanted, question, stop
        self._columns, self._opened = columns, opened
        self._lock = threading.Lock()
        self._samples = 0
        self.fetched_bytes = 0
        """Bytes of column chunks that were fetched."""

    def read(self, files: Sequence[RawFile], progress: Progress = no_progress) -> Any:
        """Return rows as `time`, VALUES and `pair` (number in `wanted`), in no order. Raises TooMuchHistory,
        HistoryInterrupted, OSError (FileNotFoundError for a file that is gone)."""
        parts: list[Any] = []
        self.read_each(files, parts.append, progress)
        return pa.concat_tables(parts) if parts else _empty()

    def read_each(
        self, files: Sequence[RawFile], take: Callable[[Any], None], progress: Progress = no_progress
    ) -> None:
        """Call `take` with the rows of each row group, from several threads, in no order: only these are in memory.
        Raises as `read`, and exceptions of `take`."""

        def work(share: Share, ended: threading.Event) -> None:
            share.prefetch()
            for part in self._parts(share, ended):
                take(part)

        self.shares(files, work, progress)

    def stream(self, files: Sequence[RawFile]) -> Iterator[Any]:
        """As `read`, in this thread: yield the rows of each row group; only these are in memory."""
        for file in files:
            for share in self._shares(file):
                share.prefetch()
                yield from self._parts(share, self._stop)
                self.add_fetched(share.reader)
            if self._stop.is_set():
                raise HistoryInterrupted("reading the history was interrupted")

    def shares(
        self, files: Sequence[RawFile], work: Callable[[Share, threading.Event], None], progress: Progress
    ) -> None:
        """Call `work` with every share that may hold a wanted row, from several threads; the event is set once its
        results are no longer needed. Raises as `read`, and exceptions of `work`."""
        pool = TaskPool(self._stop)

        def begin(file: RawFile) -> TaskResult:
            shares = self._shares(file)
            return TaskResult(0 if shares else file.size, tuple(partial(go_on, share) for share in shares))

        def go_on(share: Share) -> TaskResult:
            if not pool.ended.is_set():
                work(share, pool.ended)
                self.add_fetched(share.reader)
            return TaskResult(share.size)

        total, text = sum(file.size for file in files) or 1, f"of {len(files):,} files"
        tasks = [partial(begin, file) for file in files]
        pool.run(tasks, lambda size: progress(size / total, text), fetching=True)

    def pick_rows(self, reader: GroupReader, group: int) -> PickedRows | None:
        """Return the wanted rows of a row group, None if there are none. Raises TooMuchHistory."""
        keys = reader.read(group, BOUNDS)
        source, series, time = (to_numpy(keys.column(name)) for name in BOUNDS)
        rows, pairs = self._wanted.match(source, series, time)
        if not len(pairs):
            return None
        with self._lock:
            self._samples += len(pairs)
            if self._samples > self._question.samples:
                raise self._question.too_many_samples()
        return PickedRows(None, pairs, time) if rows is None else PickedRows(rows.astype(np.int32), pairs, time[rows])

    def add_fetched(self, reader: GroupReader) -> None:
        """Add the bytes that the reader has fetched."""
        with self._lock:
            self.fetched_bytes += reader.fetched_bytes
        reader.fetched_bytes = 0

    def _shares(self, file: RawFile) -> list[Share]:
        return shares_of(f"{self._uri}/{file.path}", file, self._wanted, self._opened)

    def _parts(self, share: Share, ended: threading.Event) -> Iterator[Any]:
        for group in share.groups:
            if ended.is_set():
                break
            if (rows := self.rows_of(share.reader, group)) is not None:
                yield rows

    def rows_of(self, reader: GroupReader, group: int) -> Any:
        """Return the wanted rows of a row group, None if there are none. Raises as `read`."""
        picked = self.pick_rows(reader, group)
        if picked is None:
            return None
        others = [name for name in self._columns if name != "time"]  # the keys contain it
        table = fetch(reader, group, picked.rows, others)
        table = table.append_column("time", pa.array(picked.time_us).view(STAMP))
        return table.append_column("pair", pa.array(picked.pairs)).select([*self._columns, "pair"])


def fetch(reader: GroupReader, group: int, rows: Rows | None, columns: Sequence[str] = COLUMNS) -> Any:
    """Fetch these columns of some rows of a row group; None: of all."""
    table = reader.read(group, columns).select(columns)
    return table if rows is None else table.take(pa.array(rows))


def to_numpy(column: Any) -> Any:
    """Convert a column of numbers or times without nulls to numpy, times as epoch microseconds; no copy."""
    whole = combine_chunks(column)
    if pa.types.is_timestamp(whole.type):
        whole = whole.cast(STAMP).view(pa.int64())
    return whole.to_numpy()


def combine_chunks(column: Any) -> Any:
    """Return a column as one array."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def _empty() -> Any:
    return pa.schema([*(FILE_SCHEMA.field(name) for name in COLUMNS), ("pair", pa.int64())]).empty_table()
