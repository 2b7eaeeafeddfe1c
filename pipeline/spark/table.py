"""The raw table and the table of sources on HDFS: what is in them, and the one way to add to them.

Both are Delta tables that this program alone appends to. An append is a compare-and-set on the table's version;
whether it went through is decided by reading the head, never by the answer of the commit. docs/formats/raw.md.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from kazoo.client import KazooClient

from artimon.model import files
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.deadline import within
from artimon.model.leases import read_whole
from pipeline.spark.state import RawState, from_json, to_json

log = logging.getLogger(__name__)

APP_ID = "artimon.raw"
METADATA_KEY = "artimon"
PARTITION_BY = ["period", "keep"]
PROPERTIES = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
"""Of the raw table. Checkpoints name no removed file: who removes one deletes it, and remembers it until then."""
COMMIT_TIMEOUT_S = 60.0
COMMIT_ATTEMPTS = 5
FRESH_S = 24 * 3600.0
"""Files begun longer ago are not committed: the compactor deletes those that no commit names after 7 days."""

_TIME = pa.timestamp("us", tz="UTC")
FILE_SCHEMA = pa.schema(
    [
        ("source", pa.int32()),
        ("series", pa.int64()),
        ("time", _TIME),
        ("birth", _TIME),
        ("future", pa.bool_()),
        ("integer", pa.int64()),
        ("double", pa.float64()),
        ("boolean", pa.bool_()),
        ("string", pa.utf8()),
    ]
)
"""Columns inside the data files; `period` and `keep` are partition values."""
RAW_SCHEMA = pa.schema([("period", pa.utf8()), ("keep", pa.utf8()), *FILE_SCHEMA])
SOURCES_SCHEMA = pa.schema([("id", pa.int32()), ("source", pa.utf8())])


class TableError(RuntimeError):
    """A table cannot be read or written. The text says which, and why."""


class ChainBroken(TableError):
    """Another writer appended: this one must read the head and begin again from there."""


class Overslept(TableError):
    """The driver was stopped so long that its files may have been deleted: it must begin again from the head."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When work was begun, by both clocks: one stands still while a machine sleeps, the other may be set back."""

    wall_ms: int
    monotonic: float

    @classmethod
    def of(cls, clock: Clock) -> Moment:
        return cls(clock.now_ms(), clock.monotonic())

    def age_s(self, clock: Clock) -> float:
        """Seconds since then, by the clock that says more."""
        return max((clock.now_ms() - self.wall_ms) / 1000, clock.monotonic() - self.monotonic)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that a task has written and closed. `path` is relative to the table; `stats` is Delta's JSON of
    statistics."""

    path: str
    size: int
    rows: int
    partition: dict[str, str]
    stats: str

    def action(self, data_change: bool = True) -> AddAction:
        """As a commit adds it; without `data_change` its rows stood in the table already."""
        return AddAction(self.path, self.size, self.partition, 0, data_change, self.stats)


class Table:
    """One Delta table: opened, made if absent, refreshed, appended to. Used by one thread at a time."""

    def __init__(
        self, uri: str, schema: pa.Schema, partition_by: list[str], properties: dict[str, str] | None = None
    ) -> None:
        self.uri, self._schema, self._partition_by = uri, schema, partition_by
        self._properties: dict[str, str | None] = {**(properties or {})}
        self._table: DeltaTable | None = None

    def refresh(self) -> DeltaTable:
        """The table at its newest version. Raises TableError, OSError."""
        files.check_reachable(self.uri)
        return within(COMMIT_TIMEOUT_S, f"opening {self.uri}", self._refresh)

    def _refresh(self) -> DeltaTable:
        try:
            if self._table is None:
                self._table = self._open()
            else:
                self._table.update_incremental()
        except (DeltaError, OSError) as error:
            self._table = None
            raise TableError(f"{self.uri} cannot be read: {first_line(error)}") from error
        return self._table

    def _open(self) -> DeltaTable:
        try:
            return DeltaTable(self.uri)
        except TableNotFoundError:
            pass
        try:
            return DeltaTable.create(
                self.uri,
                self._schema,
                mode="error",
                partition_by=self._partition_by,
                configuration=self._properties,
            )
        except (DeltaError, OSError):
            return DeltaTable(self.uri)  # another process made it at the same time, or the reason shows here

    def commit(
        self,
        actions: Sequence[AddAction | RemoveAction],
        apps: Sequence[Transaction] = (),
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """One commit on exactly the version last refreshed. Raises DeltaError or OSError: the outcome is then
        unknown."""
        table = self._table
        if table is None:
            raise TableError(f"{self.uri} is not open")
        properties = CommitProperties(metadata, max_commit_retries=0, app_transactions=list(apps) or None)

        def run() -> None:
            table.create_write_transaction(
                list(actions),
                "append",
                self._schema,
                self._partition_by,
                commit_properties=properties,
                post_commithook_properties=PostCommitHookProperties(create_checkpoint=True),
            )

        within(COMMIT_TIMEOUT_S, f"committing to {self.uri}", run)


class RawTable(Table):
    """The raw table: its newest append and the compare-and-set that adds the next."""

    def __init__(self, hdfs: str, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(raw_uri(hdfs), RAW_SCHEMA, PARTITION_BY, PROPERTIES)
        self._clock = clock
        self._head: tuple[int, RawState] | None = None

    def head(self) -> tuple[int, RawState]:
        """Version of the newest append and its state; (0, RawState()) for a table without one. Raises TableError,
        OSError."""
        table = self.refresh()
        newest = table.version()
        known = self._head[0] if self._head else 0
        found = newest_append(self.uri, newest, known)
        if found is not None:
            self._head = found
        if self._head is None or self._head[0] > newest:
            self._head = 0, RawState()
        return self._head

    def periods(self) -> list[str]:
        """The period of each live file of the version last looked at. Raises TableError, OSError."""
        table = self._table or self.refresh()
        actions = within(COMMIT_TIMEOUT_S, f"reading {self.uri}", lambda: table.get_add_actions(flatten=True))
        periods: list[str] = pa.table(actions).column("partition.period").to_pylist()
        return periods

    def append(self, new: Sequence[DataFile], before: RawState, after: RawState, began: Moment | None = None) -> int:
        """Add files and state in one commit, on top of `before`; the version of the commit. `began`: before the first
        of `new` was written; it is looked at anew after every look at the head, for the compactor commits before it
        deletes what nobody named.

        Raises ChainBroken if another append stands there, Overslept if the files are too old to be there for sure,
        TableError if HDFS keeps failing (nothing was added as far as can be known: read the head before going on)."""
        actions = [file.action() for file in new]
        failure: Exception | None = None
        for _ in range(COMMIT_ATTEMPTS):
            version, head = self.head()
            if head.key == after.key:
                return version
            if head.key != before.key:
                raise ChainBroken(
                    f"{self.uri}: append {head.append} of writer {head.writer} stands where"
                    f" {before.append} was expected"
                )
            if began is not None and new and began.age_s(self._clock) > FRESH_S:
                raise Overslept(f"{self.uri}: files begun {began.age_s(self._clock) / 3600:.0f} h ago may be gone")
            try:
                self.commit(actions, [Transaction(APP_ID, after.append)], {METADATA_KEY: to_json(after, before)})
            except (CommitFailedError, DeltaError, OSError) as error:
                failure = error
                self._table = None  # a call that was given up may still use it
                log.warning("commit of append %d: %s; looking at the head", after.append, first_line(error))
        version, head = self.head()
        if head.key == after.key:
            return version
        raise TableError(f"{self.uri}: append {after.append} failed {COMMIT_ATTEMPTS} times: {failure}")


class HeadReader:
    """Follows the newest append by reading commits only: cheap enough to ask every few seconds. Used by one thread at
    a time."""

    def __init__(self, hdfs: str) -> None:
        self._uri = raw_uri(hdfs)
        self._looked_at = -1
        self._head: tuple[int, RawState] = 0, RawState()

    def head(self) -> tuple[int, RawState]:
        """As RawTable.head. Raises TableError, OSError; FileNotFoundError if there is no table yet."""
        files.check_reachable(self._uri)
        if self._looked_at < 0 or last_checkpoint(self._uri) > self._looked_at:
            self._find()
        while (state := self._next()) is not None:
            if state.append:
                self._head = self._looked_at, state
        return self._head

    def _find(self) -> None:
        try:
            newest = within(COMMIT_TIMEOUT_S, f"opening {self._uri}", lambda: DeltaTable(self._uri).version())
        except TableNotFoundError:
            raise FileNotFoundError(f"{self._uri} does not exist yet") from None
        except DeltaError as error:
            raise TableError(f"{self._uri} cannot be read: {first_line(error)}") from error
        self._head = newest_append(self._uri, newest) or self._head
        self._looked_at = newest

    def _next(self) -> RawState | None:
        """The state in the commit after the last one looked at, an empty one if it carries none; None if there is no
        commit."""
        try:
            state = read_state(self._uri, self._looked_at + 1)
        except FileNotFoundError:
            return None
        if last_checkpoint(self._uri) > self._looked_at + 1:  # compaction may have deleted it; who wrote this one then?
            self._find()
            return RawState()
        self._looked_at += 1
        return state or RawState()


class SourcesTable(Table):
    """Names of sources and the small integers that stand for them; a pair never changes."""

    def __init__(self, hdfs: str) -> None:
        super().__init__(sources_uri(hdfs), SOURCES_SCHEMA, [])
        self._ids: dict[str, int] = {}
        self._version = -1

    def ids(self) -> dict[str, int]:
        """Every source. Raises TableError, OSError."""
        table = self.refresh()
        if table.version() != self._version:
            self._ids = within(COMMIT_TIMEOUT_S, f"reading {self.uri}", lambda: _read_ids(table))
            self._version = table.version()
        return dict(self._ids)

    def allot(self, names: Iterable[str]) -> dict[str, int]:
        """Every source, `names` among them. Two drivers that allot at once never give one name two numbers."""
        wanted = sorted(set(names))
        for _ in range(COMMIT_ATTEMPTS):
            ids = self.ids()
            missing = [name for name in wanted if name not in ids]
            if not missing:
                return ids
            first = max(ids.values(), default=0) + 1
            self._try_allot(missing, first)
        raise TableError(f"{self.uri}: {len(wanted)} sources could not be added in {COMMIT_ATTEMPTS} attempts")

    def _try_allot(self, names: list[str], first: int) -> None:
        rows = pa.table([list(range(first, first + len(names))), names], schema=SOURCES_SCHEMA)
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd")
        data = sink.getvalue()
        path = f"sources-{first}-{first + len(names)}-{uuid.uuid4().hex[:12]}.parquet"
        files.write(f"{self.uri}/{path}", data)
        try:
            file = DataFile(path, len(data), len(names), {}, json.dumps({"numRecords": len(names)}))
            self.commit([file.action()])
        except (DeltaError, OSError) as error:
            log.warning("sources not added: %s; reading them again", first_line(error))


def folder(period: str, keep: str) -> str:
    """Folder of a file, relative to the table: for people only, the partition values stand in the log."""
    plain = keep if keep.isascii() and keep.replace("-", "").replace("_", "").isalnum() and len(keep) <= 64 else "other"
    return f"period={period}/keep={plain}"


def raw_uri(hdfs: str) -> str:
    """Where the raw table lies on the file system `hdfs`."""
    return hdfs.rstrip("/") + "/artimon/raw"


def sources_uri(hdfs: str) -> str:
    """Where the table of sources lies."""
    return hdfs.rstrip("/") + "/artimon/sources"


def newest_append(uri: str, newest: int, known: int = 0) -> tuple[int, RawState] | None:
    """The newest append among the commits (known, newest]: compaction and expiry may stand above it. Raises TableError
    if the log was cleaned so far that it cannot be found: the table is then never taken for an empty one; OSError."""
    for version in range(newest, known, -1):
        try:
            state = read_state(uri, version)
        except FileNotFoundError as error:
            raise TableError(
                f"{uri}: commit {version} is gone and no newer one is an append: its state is lost; restore"
                " the file from a backup, or begin a new table"
            ) from error
        if state is not None:
            return version, state
    return None


def last_checkpoint(uri: str) -> int:
    """Version of the newest checkpoint of the table at `uri`; -1 if there is none. Commits at or above it are never
    deleted. Raises OSError, TableError."""
    try:
        told = json.loads(files.read(f"{uri}/_delta_log/_last_checkpoint"))
        return int(told["version"])
    except FileNotFoundError:
        return -1
    except (ValueError, KeyError, TypeError) as error:
        raise TableError(f"{uri}/_delta_log/_last_checkpoint cannot be read: {first_line(error)}") from error


def read_state(uri: str, version: int) -> RawState | None:
    """The state that commit `version` carries; None if it is no append. Raises OSError, StateError."""
    text = files.read(f"{uri}/_delta_log/{version:020d}.json")
    for line in text.decode().splitlines():
        info = json.loads(line).get("commitInfo")
        if info is not None and METADATA_KEY in info:
            return from_json(info[METADATA_KEY])
    return None


def read_raw(
    uri: str, columns: list[str] | None = None, filter: Any = None, zookeeper: KazooClient | None = None
) -> pa.Table:
    """Rows of the raw table at `uri` (the table itself), newest version; `filter` is a pyarrow dataset expression. With
    `zookeeper` the files of that version are held meanwhile; without, reading may have to begin again."""

    def read(table: DeltaTable) -> pa.Table:
        return table.to_pyarrow_dataset().to_table(columns=columns, filter=filter)

    return read_whole(uri, read, zookeeper)


def read_sources(uri: str) -> dict[int, str]:
    """Names of sources by their number; `uri` is that of the sources table."""
    return {id_: name for name, id_ in _read_ids(DeltaTable(uri)).items()}


def _read_ids(table: DeltaTable) -> dict[str, int]:
    rows = table.to_pyarrow_dataset().to_table()
    return dict(zip(rows.column("source").to_pylist(), rows.column("id").to_pylist(), strict=True))


def first_line(error: Exception) -> str:
    """The reason in an error of the Delta or HDFS client, on one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:3])}"
