"""Reads of one whole version of a table. A lease protects the files of that version from deletion.

An ephemeral znode /artimon/readers/<name> holds {"table", "version"}; version -1 protects every version until the
reader has opened the table. A lease expires after LEASE_MS. A reader that misses a file, because it took longer or
could not reach ZooKeeper, restarts at the newest version.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from math import inf
from time import monotonic
from typing import Any, TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from artimon.model.znode import parse_json_object
from artimon.rawtable.delta import CALL_TIMEOUT_S, files_of
from artimon.rawtable.head import newest_document
from artimon.rawtable.parquet_reader import KeptRanges, OpenFiles
from artimon.rawtable.schema import TableError
from artimon.runtime.deadline import call_with_timeout

log = logging.getLogger(__name__)

LEASES_PATH = "/artimon/readers"
ANY_VERSION = -1
LEASE_MS = 3_600_000
LEASE_TIMEOUT_S = 5.0
MAX_ATTEMPTS = 5
MAX_COMMITS = 50
"""Maximum number of commits read to find the newest append; other commits are few."""
REOPEN_S = 600.0
"""Age at which an open table is opened anew, in seconds: one that was made again under its name is then noticed."""

T = TypeVar("T")
V = TypeVar("V")


class ReadLease:
    """Lease of one reader in ZooKeeper. Methods never raise: without ZooKeeper a reader may only restart more often."""

    def __init__(self, uri: str, zookeeper: KazooClient | None) -> None:
        self._uri, self._zookeeper = uri, zookeeper
        self._path = ""

    def acquire(self) -> None:
        """Protect every version from now on."""
        if self._zookeeper is None:
            return
        try:
            data = self._data(ANY_VERSION)
            made = self._zookeeper.create_async(f"{LEASES_PATH}/r-", data, ephemeral=True, sequence=True, makepath=True)
            self._path = str(made.get(timeout=LEASE_TIMEOUT_S))
        except (KazooException, KazooTimeoutError) as error:
            log.warning("reading %s without a lease: %s", self._uri, error)

    def pin(self, version: int) -> None:
        """Protect this version only."""
        self._request(lambda zookeeper: zookeeper.set_async(self._path, self._data(version)))

    def release(self) -> None:
        self._request(lambda zookeeper: zookeeper.delete_async(self._path))
        self._path = ""

    def _request(self, say: Callable[[KazooClient], object]) -> None:
        if self._zookeeper is None or not self._path:
            return
        try:
            say(self._zookeeper).get(timeout=LEASE_TIMEOUT_S)  # type: ignore[attr-defined]
        except (KazooException, KazooTimeoutError) as error:
            log.warning("lease on %s: %s", self._uri, error)

    def _data(self, version: int) -> bytes:
        return json.dumps({"table": self._uri, "version": version}).encode()


@contextmanager
def open_leased(uri: str, zookeeper: KazooClient | None = None) -> Iterator[DeltaTable]:
    """Open the newest version of the table at `uri`; its files are protected inside the context, at most for an hour.
    Raises deltalake's errors."""
    with _lease(uri, zookeeper) as lease:
        table = DeltaTable(uri)
        lease.pin(table.version())
        yield table


@contextmanager
def _lease(uri: str, zookeeper: KazooClient | None) -> Iterator[ReadLease]:
    lease = ReadLease(uri, zookeeper)
    lease.acquire()
    try:
        yield lease
    finally:
        lease.release()


class TableSnapshot:
    """One version of a table: its number and Delta's list of its files. Unlike the client's table it never changes."""

    def __init__(self, uri: str, table: DeltaTable) -> None:
        self._uri, self._version = uri, table.version()
        self._actions = pa.table(table.get_add_actions(flatten=True))
        self._newest_append: Mapping[str, Any] | None = None

    def version(self) -> int:
        return self._version

    def appended_ms(self) -> int | None:
        """Return the append time of the newest batch, of the raw table; None if the log does not contain it. It is read
        once."""
        if self._newest_append is None:
            try:
                found = newest_document(self._uri, self._version, max(-1, self._version - MAX_COMMITS))
            except (OSError, TableError):
                return None
            self._newest_append = {} if found is None else found[1]
        told = self._newest_append.get("newest_append_ms")
        return told if isinstance(told, int) else None

    def get_add_actions(self, flatten: bool = False) -> pa.Table:
        """Return Delta's list of files, with a column for each partition and statistic. Raises ValueError for the other
        form, which is not held."""
        if not flatten:
            raise ValueError("a snapshot has the flat list of files only")
        return self._actions


class _OpenTable:
    """Table that stays open. `_lock` guards all; calls of the client have a timeout.

    Invariant: `_table` is None after a call that failed, because an abandoned one may still use it."""

    def __init__(self, uri: str) -> None:
        self._uri, self._lock = uri, threading.Lock()
        self._table: DeltaTable | None = None
        self._snapshot: TableSnapshot | None = None
        self._opened_s = 0.0
        self._asked_s, self.answered_s = -inf, -inf
        """Monotonic times at which the newest version was last asked for, and known."""

    def newest(self, since_s: float = inf) -> TableSnapshot:
        """Return the version that is the newest one now, or was at the monotonic time `since_s` or later. Raises
        deltalake's errors, OSError."""
        with self._lock:
            if self._table is not None and self._snapshot is not None and self._asked_s >= since_s:
                return self._snapshot
            asked_s = monotonic()
            held, self._table = self._table, None
            table = self._updated(held) or self._open()
            if held is not table or self._snapshot is None or self._snapshot.version() != table.version():
                self._snapshot = TableSnapshot(self._uri, table)
            self._table, self._asked_s, self.answered_s = table, asked_s, monotonic()
            return self._snapshot

    def _updated(self, table: DeltaTable | None) -> DeltaTable | None:
        """Return the table at its newest version; None if it must be opened anew."""
        if table is None or monotonic() - self._opened_s > REOPEN_S:
            return None
        try:
            call_with_timeout(CALL_TIMEOUT_S, f"reading {self._uri}", table.update_incremental)
        except DeltaError as error:
            log.info("%s: opened anew, as its log cannot be followed: %s", self._uri, error)
            return None
        return table

    def _open(self) -> DeltaTable:
        table = call_with_timeout(CALL_TIMEOUT_S, f"opening {self._uri}", lambda: DeltaTable(self._uri))
        self._opened_s = monotonic()
        return table

    def close(self) -> None:
        with self._lock:
            self._table = self._snapshot = None


class OpenTables:
    """Tables that stay open between reads, which then fetch the commits since the last one alone, and their data
    `files`, those of roll-ups with what was read of them. Threads may share it. `_lock` guards `_open`, which has an
    entry for each table that was ever read: those of one history."""

    def __init__(self) -> None:
        self.files = OpenFiles()
        self.rollup_files = OpenFiles(kept=KeptRanges())
        self._swept: TableSnapshot | None = None
        self._lock = threading.Lock()
        self._open: dict[str, _OpenTable] = {}

    def read_ahead(self, uri: str, beside: str) -> float:
        """Begin to read two tables in threads, for a `read_both` that follows, which raises the errors; return its
        `since_s`."""
        since_s = monotonic()

        def first() -> None:
            self._opened(uri).newest(since_s).appended_ms()

        def second() -> None:
            self._opened(beside).newest(-inf)  # its log is followed once the version of the first is known

        for read in (first, second):
            threading.Thread(target=_quietly, args=(read,), name="read-ahead", daemon=True).start()
        return since_s

    @contextmanager
    def open_leased(
        self, uri: str, zookeeper: KazooClient | None = None, since_s: float = inf
    ) -> Iterator[TableSnapshot]:
        """As the function of this name; `since_s`: see `read_both`."""
        with _lease(uri, zookeeper) as lease:
            snapshot = self._opened(uri).newest(since_s)
            lease.pin(snapshot.version())
            yield snapshot

    def read(
        self,
        uri: str,
        read: Callable[[TableSnapshot], T],
        zookeeper: KazooClient | None = None,
        since_s: float = inf,
    ) -> T:
        """As `read_with_retry`; `since_s`: see `read_both`."""
        return _with_retry(
            uri, lambda: self.open_leased(uri, zookeeper, since_s), read, lambda: self._opened(uri).close()
        )

    def read_both(
        self,
        uri: str,
        beside: str,
        read: Callable[[TableSnapshot, TableSnapshot | None], T],
        zookeeper: KazooClient | None = None,
        since_s: float = inf,
    ) -> T:
        """As `read`, of two tables: that at `beside`, None if it does not exist, is opened after the first. Their
        versions are the newest ones, or were at the monotonic time `since_s` or later."""

        def read_first(table: TableSnapshot) -> T:
            after_s = inf if since_s == inf else self._opened(uri).answered_s
            with ExitStack() as opened:
                try:
                    other = opened.enter_context(self.open_leased(beside, zookeeper, after_s))
                except TableNotFoundError:
                    return read(table, None)
                self._close_replaced(beside, other)
                try:
                    return read(table, other)
                except FileNotFoundError:
                    self._opened(beside).close()
                    raise

        return self.read(uri, read_first, zookeeper, since_s)

    def _close_replaced(self, uri: str, rollups: TableSnapshot) -> None:
        """Close files of roll-ups that a new version does not name, with what was kept of them: their samples may have
        been deleted."""
        with self._lock:
            known, self._swept = self._swept, rollups
        if known is not rollups:
            self.rollup_files.keep_only({f"{uri}/{path}" for path, *_ in files_of(rollups, "path")})

    def _opened(self, uri: str) -> _OpenTable:
        with self._lock:
            return self._open.setdefault(uri, _OpenTable(uri))


def _quietly(read: Callable[[], object]) -> None:
    with suppress(DeltaError, TableError, OSError):
        read()


def read_with_retry(uri: str, read: Callable[[DeltaTable], T], zookeeper: KazooClient | None = None) -> T:
    """Return the result of `read` on the newest version; retry on the then newest if a file disappears meanwhile.
    Raises FileNotFoundError after ATTEMPTS attempts."""
    return _with_retry(uri, lambda: open_leased(uri, zookeeper), read)


def _with_retry(
    uri: str,
    open_newest: Callable[[], AbstractContextManager[V]],
    read: Callable[[V], T],
    forget: Callable[[], None] = lambda: None,
) -> T:
    for attempt in range(MAX_ATTEMPTS):
        with open_newest() as table:
            try:
                return read(table)
            except FileNotFoundError as error:
                if attempt == MAX_ATTEMPTS - 1:
                    raise
                log.info("%s: a file of the version read is gone (%s); reading the newest one", uri, error)
        forget()
    raise AssertionError("unreachable")


def read_raw(
    uri: str, columns: list[str] | None = None, filter: Any = None, zookeeper: KazooClient | None = None
) -> pa.Table:
    """Read rows of the newest version of the raw table at `uri`; `filter` is a pyarrow dataset expression. With
    `zookeeper` a lease protects the files; without, the read may have to restart."""

    def read(table: DeltaTable) -> pa.Table:
        return table.to_pyarrow_dataset().to_table(columns=columns, filter=filter)

    return read_with_retry(uri, read, zookeeper)


def leased_versions(zookeeper: KazooClient, uri: str, now_ms: int) -> list[int]:
    """Return the versions of the table at `uri` that have leases. Raises KazooException, KazooTimeoutError."""
    try:
        names = zookeeper.get_children_async(LEASES_PATH).get(timeout=LEASE_TIMEOUT_S)
    except NoNodeError:
        return []
    held = []
    for name in names:
        try:
            data, stat = zookeeper.get_async(f"{LEASES_PATH}/{name}").get(timeout=LEASE_TIMEOUT_S)
        except NoNodeError:
            continue  # the lease has just ended
        version = _leased_version(data, uri)
        if version is not None and now_ms - stat.mtime < LEASE_MS:
            held.append(version)
    return held


def _leased_version(data: bytes, uri: str) -> int | None:
    """Return the version of a lease; None for another table. An unreadable lease protects every version."""
    try:
        found = parse_json_object(data)
        return int(found["version"]) if found["table"] == uri else None
    except (ValueError, KeyError, TypeError):
        return ANY_VERSION
