"""Reads of one whole version of a table. A lease protects the files of that version from deletion.

An ephemeral znode /artimon/readers/<name> holds {"table", "version"}; version -1 protects every version until the
reader has opened the table. A lease expires after LEASE_MS. A reader that misses a file, because it took longer or
could not reach ZooKeeper, restarts at the newest version.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from artimon.model.znode import parse_json_object

log = logging.getLogger(__name__)

LEASES_PATH = "/artimon/readers"
ANY_VERSION = -1
LEASE_MS = 3_600_000
LEASE_TIMEOUT_S = 5.0
MAX_ATTEMPTS = 5

T = TypeVar("T")


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
    lease = ReadLease(uri, zookeeper)
    lease.acquire()
    try:
        table = DeltaTable(uri)
        lease.pin(table.version())
        yield table
    finally:
        lease.release()


def read_with_retry(uri: str, read: Callable[[DeltaTable], T], zookeeper: KazooClient | None = None) -> T:
    """Return the result of `read` on the newest version; retry on the then newest if a file disappears meanwhile.
    Raises FileNotFoundError after ATTEMPTS attempts."""
    for attempt in range(MAX_ATTEMPTS):
        with open_leased(uri, zookeeper) as table:
            try:
                return read(table)
            except FileNotFoundError as error:
                if attempt == MAX_ATTEMPTS - 1:
                    raise
                log.info("%s: version %d is gone (%s); reading the newest one", uri, table.version(), error)
    raise AssertionError("unreachable")


def read_both_with_retry(
    uri: str,
    beside: str,
    read: Callable[[DeltaTable, DeltaTable | None], T],
    zookeeper: KazooClient | None = None,
) -> T:
    """As `read_with_retry`, of two tables: that at `beside`, None if it does not exist, is opened after the first."""

    def read_first(table: DeltaTable) -> T:
        with ExitStack() as opened:
            try:
                other = opened.enter_context(open_leased(beside, zookeeper))
            except TableNotFoundError:
                return read(table, None)
            return read(table, other)

    return read_with_retry(uri, read_first, zookeeper)


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
