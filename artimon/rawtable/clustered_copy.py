"""Copy of the rows of a large file of series, by source and time of the first announcement. docs/formats/series.md.

Series that began together, such as those of a pod, are neighbours in the copy: a label that only they have is in one or
two of its row groups. In the file, which is sorted by name, it is in a row group for each name.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from artimon.rawtable.term_index import TermIndexBuilder

Ints = npt.NDArray[np.int64]

COPIES_FOLDER = "_clustered"
"""Folder of the copies below the table: readers of Delta tables ignore folders that begin with an underscore."""
PARTS = 8
"""Number of ranges of the sort key. Each is sorted by itself: about 250,000 rows of a full file."""
SORTED_ROWS = 500_000
"""Number of rows from which the rows of a range are sorted in two steps: limits the memory if many keys are equal."""
_SECOND_BITS = 32


def copy_path(path: str) -> str:
    """Return the path of the copy of a file, both relative to the table."""
    return f"{COPIES_FOLDER}/{path}"


class ClusteredCopyBuilder:
    """Builds the copy of a file that is written in several passes. Until the end, rows are compressed, about 50 bytes
    each."""

    def __init__(self, schema: Any, group_rows: int) -> None:
        self._schema, self._group_rows = schema, group_rows
        self._limits: Ints | None = None
        """Keys at which the ranges begin, except the first: quantiles of the first pass."""
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        self._sinks = [pa.BufferOutputStream() for _ in range(PARTS)]
        self._parts = [pa.ipc.new_stream(sink, schema, options=options) for sink in self._sinks]

    def add(self, rows: Any) -> None:
        """Add the rows of one pass: at least one."""
        rows, keys = _sort(rows)
        if self._limits is None:
            self._limits = keys[np.arange(1, PARTS) * len(keys) // PARTS]
        ends = [0, *np.searchsorted(keys, self._limits).tolist(), len(keys)]
        for part, (start, end) in zip(self._parts, pairwise(ends), strict=True):
            if end > start:
                part.write_table(rows.slice(start, end - start))

    def to_bytes(self) -> tuple[Any, bytes]:
        """Return the copy and its index of terms."""
        sink, index = pa.BufferOutputStream(), TermIndexBuilder(self._group_rows)
        # readers locate rows by the index; without statistics the footer is half as large
        with pq.ParquetWriter(sink, self._schema, compression="zstd", write_statistics=False) as writer:
            for rows in self._sorted():
                writer.write_table(rows, row_group_size=self._group_rows)
                index.add(rows)
        return sink.getvalue(), index.to_bytes()

    def _sorted(self) -> Iterator[Any]:
        """Yield the rows of one range after another."""
        for number, part in enumerate(self._parts):
            part.close()
            held, count = list[Any](), 0
            for batch in pa.ipc.open_stream(self._sinks[number].getvalue()):
                held.append(batch)
                count += len(batch)
                if count >= SORTED_ROWS:
                    yield _sort(pa.Table.from_batches(held))[0]
                    held, count = [], 0
            if held:
                yield _sort(pa.Table.from_batches(held))[0]


def _sort(rows: Any) -> tuple[Any, Ints]:
    """Return rows by source and second of the first announcement, and these keys."""
    seconds = rows.column("first_seen").cast(pa.int64()).to_numpy() // 1_000_000
    source = rows.column("source").cast(pa.int64()).to_numpy()
    keys = source << _SECOND_BITS | np.clip(seconds, 0, 2**_SECOND_BITS - 1)
    order = np.argsort(keys, kind="stable")
    return rows.combine_chunks().take(pa.array(order)).combine_chunks(), keys[order]
