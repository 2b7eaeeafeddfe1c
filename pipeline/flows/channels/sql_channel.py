"""Channel in SQLite: every put is one transaction, durable when it returns."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from artimon.model.batch import NO_LANE, BatchId
from artimon.model.batch_codec import parse_header
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.ranges import LaneId, LaneRanges
from pipeline.delivery.batch_numbers import LaneNumbers
from pipeline.flows.accepted_ids import AcceptedIds
from pipeline.flows.channels.branch_ledger import BranchPolicy
from pipeline.flows.channels.ledger_channel import LedgerChannel, branches_of
from pipeline.flows.context import Context
from pipeline.flows.event import EventBatch, with_identity_and_bytes
from pipeline.flows.options import Options
from pipeline.flows.registry import Component
from pipeline.flows.spi import ChannelFailed, ChannelFull, Figures
from pipeline.wal.file_system import LOCAL_FILE_SYSTEM, Lock, LogError, ensure_folder

_SCHEMA = """
CREATE TABLE IF NOT EXISTS parcels (n INTEGER PRIMARY KEY, size INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS cursors (branch TEXT PRIMARY KEY, n INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS seen (lane TEXT PRIMARY KEY, ranges TEXT NOT NULL, last_ms INTEGER NOT NULL);
"""
_FULL_ERRORS = ("SQLITE_FULL", "SQLITE_IOERR_WRITE")


class SqlOptions(Options):
    """Limits beyond which `put` waits, then refuses. `busy_s`: timeout for a lock of another connection, in seconds."""

    quota_bytes: int = Field(default=1024**3, ge=64 * 1024)
    parcels: int = Field(default=200_000, ge=1)
    busy_s: float = Field(default=5.0, gt=0, le=60)


@dataclass(frozen=True, slots=True)
class StoredRow:
    """Event batch in the table."""

    n: int
    id: BatchId


class SqlChannel(LedgerChannel[StoredRow]):
    """Journal mode WAL, synchronous FULL: a committed transaction survives loss of power.

    Locks: `_turn` serialises the use of the connection, then `_cond`; no SQL under `_cond`."""

    def __init__(
        self,
        options: SqlOptions,
        folder: Path,
        agent: str,
        source: str,
        branches: Mapping[str, BranchPolicy] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(branches, clock)
        self._options, self._folder = options, folder
        self._numbers, self._source = LaneNumbers(agent), source
        self._write_lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._lock_file: Lock | None = None
        self._lanes_to_delete: list[LaneId] = []
        """Lanes forgotten in memory, deleted from the database with the next put."""
        self._next = 0

    def start(self) -> None:
        """Raises ChannelFailed if another process uses the folder or the database cannot be opened."""
        try:
            ensure_folder(LOCAL_FILE_SYSTEM, self._folder)
            self._lock_file = LOCAL_FILE_SYSTEM.lock(self._folder)
            self._connection = _open_database(self._folder / "channel.db", self._options.busy_s)
            self._restore()
        except (sqlite3.Error, OSError, LogError, ValueError) as error:
            self._close()
            raise ChannelFailed(f"{self._folder}: {error}") from error

    def put(self, event_batches: Sequence[EventBatch], deadline_s: float) -> None:
        ends = self._clock.monotonic() + deadline_s
        self._wait_for_room(len(event_batches), ends)
        with self._write_lock:
            before = self._numbers.copy()
            try:
                rows = self._insert(self._without_repeats(event_batches))
            except BaseException:
                self._numbers = before
                raise
            now_ms = self._clock.now_ms()
            with self._cond:
                for row, size in rows:
                    self._ledger.add(row, size, since_ms=now_ms)
                    self._pending.add(row.id)
                    self._accepted.add(row.id, now_ms)
                self._lanes_to_delete += self._accepted.limit_size(now_ms)
                self._cond.notify_all()
        self._skip_excess()

    def stop(self, deadline_s: float) -> None:
        self._close_ledger()
        if self._write_lock.acquire(timeout=deadline_s):
            try:
                self._close()
            finally:
                self._write_lock.release()

    def figures(self) -> Figures:
        return {**super().figures(), "quota_bytes": self._options.quota_bytes, "lanes_seen": len(self._accepted.lanes)}

    def _wait_for_room(self, count: int, ends: float) -> None:
        def room() -> bool:
            few = len(self._ledger) + count <= self._options.parcels
            return not self._open or (few and self._ledger.used_bytes < self._options.quota_bytes)

        with self._cond:
            self._cond.wait_for(room, max(0.0, ends - self._clock.monotonic()))
            if not self._open:
                raise ChannelFailed(self.failure or "the channel is closed")
            if not room():
                held, quota = self._ledger.used_bytes, self._options.quota_bytes
                raise ChannelFull(
                    f"quota: {self._folder} holds {len(self._ledger)} event batches, {held} of {quota} bytes"
                )

    def _without_repeats(self, event_batches: Sequence[EventBatch]) -> list[EventBatch]:
        """Return the event batches that were not accepted before, with identity and bytes."""
        fresh: list[EventBatch] = []
        mine: set[BatchId] = set()
        for event_batch in event_batches:
            if event_batch.id is not None and (self._accepted.has(event_batch.id) or event_batch.id in mine):
                self.repeats += 1
                continue
            fresh.append(with_identity_and_bytes(event_batch, self._numbers, self._source, self._clock.now_ms()))
            if (
                event_batch.id is not None and event_batch.id.lane != NO_LANE
            ):  # announcements share one id and are no repeats
                mine.add(event_batch.id)
        return fresh

    def _insert(self, event_batches: list[EventBatch]) -> list[tuple[StoredRow, int]]:
        """Insert all event batches and the ranges of their lanes in one transaction."""
        rows: list[tuple[StoredRow, int]] = []
        lanes: dict[LaneId, LaneRanges] = {}
        if not event_batches:
            return rows
        with self._transaction() as connection:
            _delete_lanes(connection, self._lanes_to_delete)
            for n, event_batch in enumerate(event_batches, self._next):
                data, id = event_batch.data or b"", event_batch.id
                if id is None:
                    continue
                connection.execute("INSERT INTO parcels VALUES (?, ?, ?)", (n, len(data), data))
                rows.append((StoredRow(n, id), len(data)))
                if id.lane != NO_LANE:
                    self._note_lane(lanes, id)
            for lane, ranges in lanes.items():
                text = json.dumps(ranges.to_json()[str(lane)])
                values = (str(lane), text, self._clock.now_ms())
                connection.execute("INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", values)
        self._next += len(rows)
        self._lanes_to_delete.clear()
        return rows

    def _note_lane(self, lanes: dict[LaneId, LaneRanges], id: BatchId) -> None:
        lane = id.lane_id
        if lane not in lanes:
            lanes[lane] = LaneRanges()
            if lane in self._accepted.last_ms:
                for start, end in self._accepted.lanes[lane]:
                    lanes[lane].add_range(lane, start, end)
        lanes[lane].add(lane, id.sequence)

    def _read(self, items: Sequence[StoredRow]) -> tuple[list[EventBatch], list[int]]:
        event_batches: list[EventBatch] = []
        lost: list[int] = []
        with self._write_lock, self._as_channel_errors() as connection:
            for index, row in enumerate(items):
                found = connection.execute("SELECT data FROM parcels WHERE n = ?", (row.n,)).fetchone()
                if found is None:
                    lost.append(index)
                else:
                    event_batches.append(EventBatch((), row.id, found[0]))
        return event_batches, lost

    def _release_items(self, items: Iterable[StoredRow]) -> None:
        rows = list(items)
        if rows:
            with self._write_lock, self._transaction() as connection:
                connection.executemany("DELETE FROM parcels WHERE n = ?", [(row.n,) for row in rows])

    def _save_cursor(self, branch: str) -> None:
        if len(self._policies) > 1:
            with self._cond:
                first = self._ledger.item_at(self._ledger.cursor(branch))
            n = first.n if first else self._next
            with self._write_lock, self._transaction() as connection:
                connection.execute("INSERT OR REPLACE INTO cursors VALUES (?, ?)", (branch, n))

    def _restore(self) -> None:
        """Restore ledger and identities from the database."""
        connection = self._used_bytes()
        cursors = dict(connection.execute("SELECT branch, n FROM cursors"))
        seen = AcceptedIds()
        for lane, ranges, last_ms in connection.execute("SELECT lane, ranges, last_ms FROM seen"):
            seen.add_all(LaneRanges.from_json({lane: json.loads(ranges)}), last_ms)
        before = self._clock.now_ms()
        _delete_lanes(connection, seen.forget_silent(before))
        with self._cond:
            self._accepted = seen
            for n, size, data in connection.execute("SELECT n, size, data FROM parcels ORDER BY n"):
                header = parse_header(data)
                row = StoredRow(n, header.id)
                self._next = n + 1
                if wanted := [name for name in self._policies if n >= cursors.get(name, 0)]:
                    self._ledger.add(row, size, wanted, min(before, header.poll_ms))
                    if any(self._policies[name].required for name in wanted):
                        self._pending.add(row.id)
            self._open = True
        self._next = max([self._next, *cursors.values()])

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit durably at the end; roll back on an exception."""
        with self._as_channel_errors() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _as_channel_errors(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self._used_bytes()
        except sqlite3.Error as error:
            text = f"{self._folder}: {error}"
            name = getattr(error, "sqlite_errorname", "")
            raise (ChannelFull(text) if name in _FULL_ERRORS else ChannelFailed(text)) from error

    def _used_bytes(self) -> sqlite3.Connection:
        if self._connection is None:
            raise ChannelFailed("the channel is closed")
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._lock_file is not None:
            self._lock_file.release()
            self._lock_file = None


def _delete_lanes(connection: sqlite3.Connection, lanes: Iterable[LaneId]) -> None:
    connection.executemany("DELETE FROM seen WHERE lane = ?", [(str(lane),) for lane in lanes])


def _open_database(path: Path, busy_s: float) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.executescript(_SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection


def _build(options: SqlOptions, context: Context) -> SqlChannel:
    folder = context.folder / "sql"
    return SqlChannel(options, folder, context.agent, context.flow, branches_of(context), context.clock)


SQL = Component("sql", SqlOptions, _build, outside={})
