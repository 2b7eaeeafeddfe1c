"""One Delta table: open, create if absent, refresh, commit. Every call has a timeout."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.rawtable.schema import TableError
from artimon.runtime import file_access as files
from artimon.runtime.deadline import call_with_timeout

CALL_TIMEOUT_S = 60.0
"""Timeout of one call of the Delta client, in seconds."""
COMMIT_TIMEOUT_S = 900.0
"""Time limit of the attempts of one commit, in seconds: other writers may be first many times in a row."""
MAX_FAILURES = 8
"""Attempts of one commit in a row that fail although no other writer was first."""
FAILURE_PAUSE_S, MAX_FAILURE_PAUSE_S = 0.05, 2.0
"""Upper bounds of the random pause after a failure, in seconds: of the first one, doubled with each, and of all."""
MAX_CONFLICT_PAUSE = 4
"""Upper bound of the random pause after a conflict, as a multiple of the duration of the attempt."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StartTime:
    """Start of some work by both clocks: one stops while a machine sleeps, the other may be set back."""

    wall_ms: int
    monotonic: float

    @classmethod
    def of(cls, clock: Clock) -> StartTime:
        return cls(clock.now_ms(), clock.monotonic())

    def age_s(self, clock: Clock) -> float:
        """Return the age in seconds by the clock that gives more."""
        return max((clock.now_ms() - self.wall_ms) / 1000, clock.monotonic() - self.monotonic)


class DeltaHandle:
    """One Delta table. Used by one thread at a time. With `made` it is created if absent.

    Invariant: `_table` is None after a commit that was abandoned, because its call may still use it."""

    _hooks = PostCommitHookProperties(create_checkpoint=True)
    """After a commit: periodic checkpoints, and cleanup of old commits by the table's properties."""

    def __init__(
        self,
        uri: str,
        schema: pa.Schema,
        partition_by: Sequence[str] = (),
        properties: dict[str, str] | None = None,
        made: bool = True,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock, self._jitter = clock, random.Random()
        self.uri, self._schema, self._partition_by, self._made = uri, schema, list(partition_by), made
        self._properties: dict[str, str | None] = {**(properties or {})}
        self._table: DeltaTable | None = None
        self._version = -1
        """Version last refreshed."""
        self._is_committed = False
        """True if the commit of the present attempt was answered."""

    def refresh(self) -> DeltaTable:
        """Return the table at its newest version. Raises TableError, OSError; FileNotFoundError if it is absent and
        `made` is False."""
        files.check_reachable(self.uri)
        table = self._with_timeout("opening", self._refresh)
        self._version = int(table.version())
        return table

    def _refresh(self) -> DeltaTable:
        try:
            if self._table is None:
                self._table = self._open()
            else:
                self._table.update_incremental()
        except (DeltaError, OSError) as error:
            self._table = None
            if isinstance(error, TableNotFoundError) and not self._made:
                raise FileNotFoundError(f"{self.uri} does not exist yet") from None
            raise TableError(f"{self.uri} cannot be read: {first_line(error)}") from error
        return self._table

    def _open(self) -> DeltaTable:
        try:
            return DeltaTable(self.uri)
        except TableNotFoundError:
            if not self._made:
                raise
        try:
            return DeltaTable.create(
                self.uri,
                self._schema,
                mode="error",
                partition_by=self._partition_by,
                configuration=self._properties,
            )
        except (DeltaError, OSError):
            return DeltaTable(self.uri)  # another process created it meanwhile, or this call raises the reason

    def list_files(self, *columns: str) -> list[tuple[Any, ...]]:
        """Return columns of Delta's list of files of the version last refreshed, a tuple per file. Raises TableError,
        OSError."""
        table = self._opened()
        return self._with_timeout("reading", lambda: files_of(table, *columns))

    def commit(
        self,
        actions: Sequence[AddAction | RemoveAction],
        apps: Sequence[Transaction] = (),
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Commit on exactly the version last refreshed. After a DeltaError or OSError the outcome is unknown."""
        table = self._opened()
        properties = CommitProperties(metadata, max_commit_retries=0, app_transactions=list(apps) or None)

        def run() -> None:
            table.create_write_transaction(
                list(actions),
                "append",
                self._schema,
                self._partition_by,
                commit_properties=properties,
                post_commithook_properties=self._hooks,
            )

        try:
            self._with_timeout("committing to", run)
        except OSError:
            self._table = None  # the call may have been abandoned, and still use it
            raise
        self._is_committed = True

    def attempts(self) -> Iterator[None]:
        """Yield before each attempt of one commit. The caller reads the table anew in each, and leaves the loop when
        the commit is done or has become pointless. Ends after COMMIT_TIMEOUT_S or MAX_FAILURES.

        An attempt fails if another writer is first, so the pause after a conflict is as short as a few attempts: a
        writer that has lost often must not wait much longer than one that begins. It is random, because attempts of
        several writers must not stay in step."""
        clock, failures, conflicts = self._clock, 0, 0
        ends = clock.monotonic() + COMMIT_TIMEOUT_S
        while failures < MAX_FAILURES and clock.monotonic() < ends:
            before, began = self._version, clock.monotonic()
            self._is_committed = False
            yield
            if self._is_committed:
                continue  # the caller reads the outcome
            if self._version == before:
                failures += 1
                longest_s = min(FAILURE_PAUSE_S * 2**failures, MAX_FAILURE_PAUSE_S)
            else:
                failures, conflicts = 0, min(conflicts + 1, MAX_CONFLICT_PAUSE)
                longest_s = conflicts * (clock.monotonic() - began)
            clock.wait(threading.Event(), self._jitter.uniform(0.0, longest_s))

    def _opened(self) -> DeltaTable:
        if self._table is None:
            raise TableError(f"{self.uri} is not open")
        return self._table

    def _with_timeout(self, what: str, call: Callable[[], T]) -> T:
        return call_with_timeout(CALL_TIMEOUT_S, f"{what} {self.uri}", call)


class ListedTable(Protocol):
    """Version of a table: the client's table, or a snapshot of it."""

    def version(self) -> int: ...

    def get_add_actions(self, flatten: bool = False) -> Any: ...


def files_of(table: ListedTable, *columns: str) -> list[tuple[Any, ...]]:
    """Return columns of Delta's list of live files, a tuple per file."""
    actions = pa.table(table.get_add_actions(flatten=True))
    if not len(actions):
        return []
    return list(zip(*(actions.column(name).to_pylist() for name in columns), strict=True))


def first_line(error: Exception) -> str:
    """Return the reason of an error of the Delta or HDFS client on one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:3])}"
