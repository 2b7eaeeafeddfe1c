"""Blocks: row groups of roll-ups, decoded and packed to 24 bytes a row, which stay in memory between questions.

A block has all rows of its group, so it serves questions about any series and times."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.compute.kernels import PACKED, kernels
from artimon.compute.statistics import FOLDS, with_needs
from artimon.rawtable.file_parts import FileParts
from artimon.rawtable.rollup_rows import folds_of
from artimon.rawtable.value_columns import read_values
from query_dsl.stores.history.file_pruning import RowFilter
from query_dsl.stores.history.local_reader import LocalReader, to_numpy
from query_dsl.stores.history.shares import Share
from query_dsl.stores.rollup_buckets import rollup_columns
from query_dsl.stores.sample_rows import Ints, Types


@dataclass(frozen=True, slots=True, eq=False)
class RollupBlock:
    """Rows in the order of their file, and their runs of one source, series, start time and type. `begin` has the first
    row of each run, and the number of rows. Times in `rows` count from `base_ms`. `folds`: folded statistics of each
    row, as far as their columns were read. Values of texts are not in it."""

    base_ms: int
    source: Ints
    series: Ints
    birth_ms: Ints
    begin: Ints
    types: Types
    rows: npt.NDArray[np.void]
    folds: dict[str, Ints]

    @property
    def size(self) -> int:
        """Bytes in memory."""
        runs = self.source.nbytes + self.series.nbytes + self.birth_ms.nbytes + self.begin.nbytes + self.types.nbytes
        return runs + self.rows.nbytes + sum(column.nbytes for column in self.folds.values())

    def copy(self) -> RollupBlock:
        """Return the same block in memory of its own."""
        source, series, birth_ms, begin = (one.copy() for one in (self.source, self.series, self.birth_ms, self.begin))
        folds = {name: column.copy() for name, column in self.folds.items()}
        return RollupBlock(self.base_ms, source, series, birth_ms, begin, self.types.copy(), self.rows.copy(), folds)


class PackBuffers(threading.local):
    """Arrays that each thread packs into again and again: fresh memory costs more than packing."""

    def __init__(self) -> None:
        self._rows = 0
        self._arrays: list[npt.NDArray[Any]] = []

    def of(self, rows: int) -> list[npt.NDArray[Any]]:
        """Return packed rows, and of each run source, series, start time, first row and type, for this many rows."""
        if rows > self._rows or not self._arrays:
            self._rows = rows = rows + rows // 8  # files of equal series differ by a few rows
            self._arrays = [np.empty(rows, PACKED), *(np.empty(rows + 1, np.int64) for _ in range(4))]
            self._arrays.append(np.empty(rows, np.uint8))
        return self._arrays


def pack_block(table: Any, buffers: PackBuffers) -> RollupBlock | None:
    """Return the rows of a table with columns of ROLLUP_FILE_SCHEMA, valid until this thread packs the next; None
    without kernels or rows, or for times and counts that need more than 32 bits."""
    compiled, n = kernels(), len(table)
    if compiled is None or not n:
        return None
    types, cells, _ = read_values(table)
    end, birth, last, count = (to_numpy(table.column(name)) for name in ("time", "birth", "last_time", "count"))
    source, series = (to_numpy(table.column(name)) for name in ("source", "series"))
    first = _first_times(table.column("first_time"), last)
    base_us = int(end.min())
    columns = [np.ascontiguousarray(one) for one in (source, series, end, birth, first, last, count, cells, types)]
    packed = buffers.of(n)
    runs = compiled.pack_rollups(base_us, columns, packed)
    if runs < 0:
        return None
    rows, run_source, run_series, birth_ms, begin, run_types = packed
    begin[runs] = n
    return RollupBlock(
        base_us // 1000,
        run_source[:runs],
        run_series[:runs],
        birth_ms[:runs],
        begin[: runs + 1],
        run_types[:runs],
        rows[:n],
        folds_of(table, types, {"count": count, "last": cells}),
    )


def _first_times(column: Any, last: Ints) -> Ints:
    """Return the times of the first samples; null: that of the last one."""
    if column.null_count == len(column):
        return last
    found: Ints = to_numpy(column.fill_null(0))
    return np.where(column.is_valid().to_numpy(), found, last) if column.null_count else found


@dataclass(frozen=True, slots=True)
class RollupSink:
    """Receiver of roll-ups for these statistics; its functions are called from several threads."""

    statistics: tuple[str, ...]
    take: Callable[[RollupBlock, Ints], bool]
    """Take a block, and of each of its runs the number of the wanted pair, -1 if it is not wanted. False: nothing was
    taken, and the rows are needed as a table."""
    take_table: Callable[[Any], None]
    """Take the wanted rows of a row group of which no block was taken."""


class BlockReader:
    """One reading of blocks for `sink`. `reader` has the columns of its statistics."""

    def __init__(
        self, reader: LocalReader, wanted: RowFilter, decoded: FileParts[RollupBlock], sink: RollupSink
    ) -> None:
        self._reader, self._wanted, self._decoded, self._sink = reader, wanted, decoded, sink
        self._folds = FOLDS.keys() & with_needs(sink.statistics)
        self._buffers = PackBuffers()

    def read_share(self, share: Share, ended: threading.Event) -> None:
        """Read the row groups of a share, until `ended`."""
        for group in share.groups:
            if ended.is_set():
                break
            self._read_group(share, group)

    def _read_group(self, share: Share, group: int) -> None:
        block = self._block(share, group)
        if block is not None:
            pairs = self._wanted.pairs_of(block.source, block.series)
            if (pairs < 0).all() or self._sink.take(block, pairs):
                return
        rows = self._reader.rows_of(share.reader, group)
        if rows is not None:
            self._sink.take_table(rows)

    def _block(self, share: Share, group: int) -> RollupBlock | None:
        """Return a block with the folded statistics of this reading, decoded if it is not known. It is kept once its
        file is read for the second time: a copy makes a first answer a tenth slower."""
        uri = share.reader.uri
        known = self._decoded.get(uri, group)
        if known is not None and self._folds <= known.folds.keys():
            return known
        share.prefetch()
        statistics = {*self._sink.statistics, *(() if known is None else known.folds)}
        block = pack_block(share.reader.read(group, ["source", "series", *rollup_columns(statistics)]), self._buffers)
        if block is not None and share.reader.was_open:
            block = block.copy()
            self._decoded.add(uri, group, block, block.size)
        return block
