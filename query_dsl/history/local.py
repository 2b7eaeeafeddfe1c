"""Reads the pruned files in this process, without Spark: row group after row group, some files at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.series.parquet import GroupReader
from pipeline.spark.table import FILE_SCHEMA
from query_dsl.history.files import BOUNDS, Ints, RawFile, Wanted, microseconds
from query_dsl.history.question import HistoryInterrupted, Question

THREADS = 4
VALUES = ("birth", "future", "integer", "double", "boolean", "string")
LOOK_S = 0.2
Progress = Callable[[float, str], None]
"""Called now and then with the part that is done, 0 to 1, and what that is."""


def no_progress(_done: float, _text: str) -> None:
    """Where nobody looks."""


class LocalReader:
    """One reading. Files are shared among threads; `_lock` guards what they add up."""

    def __init__(self, uri: str, wanted: Wanted, question: Question, stop: threading.Event) -> None:
        self._uri, self._wanted, self._question, self._stop = uri, wanted, question, stop
        self._lock = threading.Lock()
        self._samples = 0
        self.touched = 0
        """Bytes of column chunks that were fetched."""

    def read(self, files: Sequence[RawFile], progress: Progress = no_progress) -> Any:
        """Rows as BOUNDS, VALUES and `pair` (number in `wanted`), in no order. Raises TooMuchHistory,
        HistoryInterrupted, OSError (FileNotFoundError for a file that is gone)."""
        parts: list[Any] = []
        self.each(files, parts.append, progress)
        return pa.concat_tables(parts) if parts else _empty()

    def each(self, files: Sequence[RawFile], take: Callable[[Any], None], progress: Progress = no_progress) -> None:
        """Have `take` called with the rows of one row group after another, by several threads, in no order: no more
        than these are held. Raises as `read`, and what `take` raises."""
        given_up = threading.Event()
        total = sum(file.size for file in files) or 1
        done = 0
        with ThreadPoolExecutor(THREADS, thread_name_prefix="history") as pool:
            waiting: dict[Future[None], RawFile] = {
                pool.submit(self._file, file, given_up, take): file for file in files
            }
            try:
                while waiting:
                    ready, _ = wait(waiting, LOOK_S, FIRST_COMPLETED)
                    if self._stop.is_set():
                        raise HistoryInterrupted("reading the history was interrupted")
                    for future in ready:
                        done += waiting.pop(future).size
                        future.result()
                    progress(done / total, f"{len(files) - len(waiting)} of {len(files)} files")
            finally:  # whatever ended it: threads look at it between two row groups
                given_up.set()
                pool.shutdown(wait=False, cancel_futures=True)

    def stream(self, files: Sequence[RawFile]) -> Iterator[Any]:
        """As `read`, in this thread: the rows of one row group after another, and no more are held."""
        for file in files:
            yield from self._parts(file, self._stop)
            if self._stop.is_set():
                raise HistoryInterrupted("reading the history was interrupted")

    def _file(self, file: RawFile, given_up: threading.Event, take: Callable[[Any], None]) -> None:
        for part in self._parts(file, given_up):
            take(part)

    def _parts(self, file: RawFile, given_up: threading.Event) -> Iterator[Any]:
        reader = GroupReader(f"{self._uri}/{file.path}")
        for group in range(reader.groups):
            if given_up.is_set():
                break
            bounds = reader.bounds(group)
            if all(name in bounds for name in BOUNDS) and not self._may_hold(bounds):
                continue
            part = self._group(reader, group)
            if part is not None:
                yield part
        with self._lock:
            self.touched += reader.touched

    def _may_hold(self, bounds: dict[str, tuple[Any, Any]]) -> bool:
        least, most = ([bounds[name][side] for name in BOUNDS] for side in (0, 1))
        return self._wanted.may_hold([*least[:2], microseconds(least[2])], [*most[:2], microseconds(most[2])])

    def _group(self, reader: GroupReader, group: int) -> Any:
        """The wanted rows of a row group; None if there are none, and then its values are not fetched."""
        keys = reader.read(group, BOUNDS)
        source = keys.column("source").to_numpy().astype(np.int64)
        rows, pairs = self._wanted.rows(source, keys.column("series").to_numpy(), numbers(keys.column("time")))
        if not len(rows):
            return None
        with self._lock:
            self._samples += len(rows)
            if self._samples > self._question.samples:
                raise self._question.too_many_samples()
        values = reader.read(group, VALUES).select(VALUES)
        if len(rows) < len(keys):
            taken = pa.array(rows)
            keys, values = keys.take(taken), values.take(taken)
        table = keys
        for name, column in zip(VALUES, values.columns, strict=True):
            table = table.append_column(name, column)
        return table.append_column("pair", pa.array(pairs))


def numbers(column: Any) -> Ints:
    """Epoch microseconds of a column of times."""
    whole: Ints = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy()
    return whole


def _empty() -> Any:
    return pa.schema([*(FILE_SCHEMA.field(name) for name in (*BOUNDS, *VALUES)), ("pair", pa.int64())]).empty_table()
