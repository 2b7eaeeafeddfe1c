"""One Delta table: open, create if absent, refresh, commit. Every call has a timeout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from artimon.model.clock import Clock
from artimon.rawtable.schema import TableError
from artimon.runtime import file_access as files
from artimon.runtime.deadline import call_with_timeout

CALL_TIMEOUT_S = 60.0
"""Timeout of one call of the Delta client, in seconds."""
MAX_ATTEMPTS = 5
"""Attempts of one commit; after each failure the table is read again."""

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

    Invariant: `_table` is None after a call with unknown outcome, because an abandoned call may still use it."""

    _hooks = PostCommitHookProperties(create_checkpoint=True)
    """After a commit: periodic checkpoints, and cleanup of old commits by the table's properties."""

    def __init__(
        self,
        uri: str,
        schema: pa.Schema,
        partition_by: Sequence[str] = (),
        properties: dict[str, str] | None = None,
        made: bool = True,
    ) -> None:
        self.uri, self._schema, self._partition_by, self._made = uri, schema, list(partition_by), made
        self._properties: dict[str, str | None] = {**(properties or {})}
        self._table: DeltaTable | None = None

    def refresh(self) -> DeltaTable:
        """Return the table at its newest version. Raises TableError, OSError; FileNotFoundError if it is absent and
        `made` is False."""
        files.check_reachable(self.uri)
        return self._with_timeout("opening", self._refresh)

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

        self._with_timeout("committing to", run)

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
