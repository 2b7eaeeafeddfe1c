"""Refill of virtual shards from the raw table: all that the levels can hold, newest periods first. docs/varstore.md."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from kazoo.client import KazooClient

from artimon.rawtable.delta import files_of
from artimon.rawtable.schema import TableError, bounds_of, raw_uri, sources_uri
from artimon.rawtable.sources import iter_sources
from artimon.rawtable.table_reader import open_leased
from artimon.runtime import file_access as files
from artimon.runtime.deadline import call_with_timeout
from varstore.shard.shard import Shard
from varstore.snapshot.raw_head import RawHead, head_of
from varstore.snapshot.raw_row_loader import BATCH_ROWS, COLUMNS, RawRowLoader, Slice, TablePeriod
from varstore.store.bucket_store import FUTURE_MS
from varstore.store.range_admission import vshard_of

log = logging.getLogger(__name__)

BATCH_TIMEOUT_S = 120.0

Usable = Callable[[RawHead], bool]


@dataclass(slots=True)
class RefillProgress:
    """Progress of a refill; written by its thread, read by any."""

    vshards: int
    periods: int = 0
    periods_done: int = 0
    rows: int = 0
    period: str = ""

    def __str__(self) -> str:
        return f"{self.periods_done} of {self.periods} periods of the raw table, {self.rows} samples"


class RefillStopped(RuntimeError):
    """The process is stopping."""


class Refill:
    """Transfer of virtual shards from the table at `hdfs_uri` into a shard, in one thread."""

    def __init__(
        self, shard: Shard, hdfs_uri: str, zookeeper: KazooClient | None = None, stop: threading.Event | None = None
    ) -> None:
        self._shard, self._raw, self._sources = shard, raw_uri(hdfs_uri), sources_uri(hdfs_uri)
        self._zookeeper, self._stop = zookeeper, stop or threading.Event()
        self.progress = RefillProgress(0)

    def run(self, vshards: int, usable: Usable, begun: Callable[[], None] = lambda: None) -> bool:
        """Fill these virtual shards from the table; False without a table or if `usable` refuses its positions.

        `begun` is called once they are held and can be fed from the table's offsets on. They are ready on return.
        Raises TableError, OSError, RefillStopped: nothing is held then."""
        with self._table() as table:
            head = None if table is None else head_of(self._raw, table.version())
            if table is None or head is None or not usable(head):
                return False
            names = self._source_vshards(vshards)
            self._shard.ownership.add(head.make_group(vshards))
            begun()
            try:
                self._read(table, head, names, vshards)
            except BaseException:
                self._shard.drop(vshards)
                raise
            self._shard.ownership.set_ready(vshards)
            return True

    def head(self) -> RawHead | None:
        """Return the state of the newest append; None if there is none. Raises TableError, OSError."""
        with self._table() as table:
            return None if table is None else head_of(self._raw, table.version())

    def _table(self) -> _TableLease:
        return _TableLease(self._raw, self._zookeeper)

    def _source_vshards(self, vshards: int) -> dict[int, int]:
        """Return the virtual shard of each wanted source, by its number in the table."""
        found: dict[int, int] = {}
        for ids, names in self._with_timeout(iter_sources(self._sources)):
            placed = zip(ids, map(vshard_of, names), strict=True)
            found.update((id_, vshard) for id_, vshard in placed if vshards >> vshard & 1)
        return found

    def _read(self, table: DeltaTable, head: RawHead, sources: Mapping[int, int], vshards: int) -> None:
        rows = RawRowLoader(self._shard, sources, head.newest_append_ms)
        periods = self._periods(table, rows.floor_ms)
        self.progress = RefillProgress(vshards, len(periods))
        try:
            for period in periods:
                self.progress.period = period.name
                for slice_ in rows.slices(period):
                    self._read_slice(table, period, slice_, rows)
                self.progress.periods_done += 1
        finally:
            rows.close()
        log.info("shard %s: refilled from version %d: %s", self._shard.id, table.version(), self.progress)

    def _read_slice(self, table: DeltaTable, period: TablePeriod, slice_: Slice, rows: RawRowLoader) -> None:
        dataset = table.to_pyarrow_dataset(file_pruning_predicate=[("period", "=", period.name)])
        batches = dataset.to_batches(
            columns=list(COLUMNS), filter=rows.filter_of(slice_), batch_size=BATCH_ROWS, batch_readahead=2,
            fragment_readahead=1,
        )  # fmt: skip
        rows.begin_slice(slice_)
        for batch in self._with_timeout(batches):
            rows.apply(batch)
            self.progress.rows += len(batch)

    def _with_timeout(self, batches: Iterator[Any]) -> Iterator[Any]:
        while True:
            if self._stop.is_set():
                raise RefillStopped("the shard is being stopped")
            batch = call_with_timeout(BATCH_TIMEOUT_S, f"reading {self._raw}", lambda: next(batches, None))
            if batch is None:
                return
            yield batch

    @staticmethod
    def _periods(table: DeltaTable, floor_ms: int) -> list[TablePeriod]:
        """Return hours and days that may hold samples later than `floor_ms`, newest first. A sample may be appended
        before its time, by at most FUTURE_MS."""
        counts: dict[str, int] = {}
        for name, rows in files_of(table, "partition.period", "num_records"):
            counts[name] = counts.get(name, 0) + (rows or 0)
        found = [TablePeriod(name, *bounds_of(name), rows) for name, rows in counts.items()]
        return sorted(
            (one for one in found if one.end_ms > floor_ms - FUTURE_MS), key=lambda one: one.name, reverse=True
        )


class _TableLease:
    """Lease on the table while it is read, which keeps its files; None without a table."""

    def __init__(self, uri: str, zookeeper: KazooClient | None) -> None:
        self._uri = uri
        self._reading = open_leased(uri, zookeeper)

    def __enter__(self) -> DeltaTable | None:
        files.check_reachable(self._uri)
        try:
            return call_with_timeout(BATCH_TIMEOUT_S, f"opening {self._uri}", self._reading.__enter__)
        except TableNotFoundError:
            return None
        except DeltaError as error:
            raise TableError(f"{self._uri} cannot be read: {error}") from error

    def __exit__(self, *_: object) -> None:
        self._reading.__exit__(None, None, None)
