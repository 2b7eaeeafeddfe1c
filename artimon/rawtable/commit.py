"""Commits to the raw table: appends, and the replacements and removals of compaction and expiry.

Each is a compare-and-set on the table's version. A new read of the table decides if a commit took effect, never the
answer of the commit. Appends form a chain and carry the state; the other commits carry none and are not part of the
chain. docs/formats/raw.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa
from deltalake import PostCommitHookProperties, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import RemoveAction

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.rawtable.delta import DeltaHandle, StartTime, first_line
from artimon.rawtable.head import LOG_FOLDER, METADATA_KEY, newest_append, read_actions
from artimon.rawtable.schema import PARTITION_BY, PROPERTIES, RAW_SCHEMA, DataFile, LiveFile, TableError, raw_uri
from artimon.rawtable.table_state import RawState, to_json
from artimon.runtime import file_access as files

log = logging.getLogger(__name__)

APP_ID = "artimon.raw"
IMPORT_ID = "artimon.import"
COMPACTION_KEY = "artimonCompaction"
"""Key of the note in `commitInfo` of commits of compaction and expiry. Never the key of appends."""
MAX_READ_COMMITS = 32
"""Commits that are read to follow the live files; for more, the list of all is cheaper."""
MAX_APPEND_AGE_S = 24 * 3600.0
"""Maximum age of files at their append, seconds: the compactor deletes files without a commit after 7 days."""
MAX_COMPACTION_AGE_S = 12 * 3600.0
"""Maximum age of replacement files at their commit, seconds: less than compaction.dead.ORPHAN_MS, the age at which
orphans are deleted."""


class ConcurrentAppend(TableError):
    """Another writer appended: this one must restart from the head."""


class DriverSuspended(TableError):
    """The driver was suspended so long that its files may have been deleted: it must restart from the head."""


class FileSuperseded(TableError):
    """A file to be replaced is gone: another process replaced it."""


class RawTable(DeltaHandle):
    """The raw table: its newest append and the compare-and-set that adds the next."""

    def __init__(self, hdfs: str, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(raw_uri(hdfs), RAW_SCHEMA, PARTITION_BY, PROPERTIES, clock=clock)
        self._head: tuple[int, RawState] = 0, RawState()
        self._read_to = 0
        """Version up to which no later append than `_head` was found."""

    def head(self) -> tuple[int, RawState]:
        """Return version and state of the newest append; (0, RawState()) for a table without one. Raises TableError,
        OSError."""
        newest = int(self.refresh().version())
        if self._read_to > newest:  # another table has this name
            self._head, self._read_to = (0, RawState()), 0
        self._head = newest_append(self.uri, newest, self._read_to) or self._head
        self._read_to = newest
        return self._head

    def partitions(self) -> list[tuple[str, str]]:
        """Return period and class of each live file of the version last refreshed. Raises TableError, OSError."""
        if self._table is None:
            self.refresh()
        return [(str(period), str(keep)) for period, keep in self.list_files("partition.period", "partition.keep")]

    def append(self, new: Sequence[DataFile], before: RawState, after: RawState, began: StartTime | None = None) -> int:
        """Add files and state in one commit on top of `before`; return its version. `began` precedes the first write
        of `new`. The age of the files is checked after every read of the head, because the compactor commits before
        it deletes orphans.

        Raises ConcurrentAppend if another append follows `before`, DriverSuspended if the files may have been deleted,
        TableError if HDFS keeps failing (the outcome is then uncertain: read the head first)."""
        actions = [file.action() for file in new]
        failure: Exception | None = None
        for _ in self.attempts():
            version, head = self.head()
            if head.key == after.key:
                return version
            self._check_chain(head, before)
            if new:
                self._check_age(began)
            try:
                self.commit(actions, [Transaction(APP_ID, after.append)], {METADATA_KEY: to_json(after, before)})
            except (DeltaError, OSError) as error:
                failure = error
                log.warning("commit of append %d: %s; reading the head again", after.append, first_line(error))
        version, head = self.head()
        if head.key == after.key:
            return version
        raise TableError(f"{self.uri}: append {after.append} was not committed: {failure}")

    def _check_chain(self, head: RawState, before: RawState) -> None:
        if head.key != before.key:
            raise ConcurrentAppend(
                f"{self.uri}: the newest append is {head.append} of writer {head.writer}, expected {before.append}"
            )

    def _check_age(self, began: StartTime | None) -> None:
        age_s = began.age_s(self._clock) if began is not None else 0.0
        if age_s > MAX_APPEND_AGE_S:
            raise DriverSuspended(f"{self.uri}: files begun {age_s / 3600:.0f} h ago may have been deleted")


class RemovableFile(Protocol):
    """Live file of a maintained table."""

    @property
    def path(self) -> str:
        """Path relative to the table."""
        ...

    def removal(self, data_change: bool, now_ms: int) -> RemoveAction:
        """Return the action that removes it in a commit."""
        ...


F = TypeVar("F", bound=RemovableFile)


class MaintainedTable(DeltaHandle, Generic[F]):
    """A table whose files the compactor replaces, removes and deletes: its live and removed files, and commits that are
    checked against the live ones."""

    # a commit that later commits depend on may be old: it must stay, even if many follow
    _hooks = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)

    def __init__(
        self,
        uri: str,
        schema: pa.Schema,
        partition_by: Sequence[str],
        properties: dict[str, str] | None = None,
        made: bool = True,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(uri, schema, partition_by, properties, made, clock)
        self._paths: tuple[int, set[str]] = -1, set()
        """Version, and the paths of its live files."""
        self._removed: set[str] = set()
        """Paths removed by commits up to version `_read_to` and not known to be deleted."""
        self._read_to: int | None = None

    def live(self) -> list[F]:
        """Return the files of the version last refreshed. Raises TableError."""
        raise NotImplementedError

    def removed(self) -> set[str]:
        """Return the paths that were removed from the table and may still exist on HDFS. Reads the remaining commits:
        checkpoints of delta-rs do not list removed files. Raises TableError, OSError."""
        newest = int(self._opened().version())
        if self._read_to is None:
            names = (name for name, _, _ in files.list_files(f"{self.uri}/{LOG_FOLDER}"))
            versions = sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())
        else:
            versions = list(range(self._read_to + 1, newest + 1))
        for version in versions:
            if version <= newest:
                self._removed |= self._removed_by(version)
        self._read_to = newest
        return set(self._removed)

    def _removed_by(self, version: int) -> set[str]:
        try:
            (removed,) = read_actions(self.uri, version, "remove")
            return {str(action["path"]) for action in removed}
        except FileNotFoundError:
            return set()  # cleaned up meanwhile: the files that it removed were deleted before

    def forget(self, paths: Iterable[str]) -> None:
        """Forget removed files that no longer exist on HDFS."""
        self._removed.difference_update(paths)

    def checkpoint(self) -> int:
        """Write a checkpoint of the newest version and return that version. Raises TableError, OSError."""
        table = self.refresh()
        self._configure("writing a checkpoint of", table.create_checkpoint)
        return int(table.version())

    def configure(self, properties: dict[str, str]) -> None:
        """Set properties of the table by a commit, unless they are set already. Raises TableError, OSError."""
        table = self.refresh()
        if properties.items() <= table.metadata().configuration.items():
            return
        hooks = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
        self._configure(
            "setting properties of",
            lambda: table.alter.set_table_properties(properties, post_commithook_properties=hooks),
        )

    def _configure(self, what: str, call: Callable[[], None]) -> None:
        try:
            self._with_timeout(what, call)
        except DeltaError as error:
            self._table = None
            raise TableError(f"{what} {self.uri} failed: {first_line(error)}") from error

    def expire(self, old: Sequence[F], note: dict[str, Any]) -> int:
        """Remove `old` in one commit, unless all are gone already; return the version. Raises FileSuperseded if only
        some are gone, TableError."""
        wanted = {file.path for file in old}

        def check(live: set[str]) -> bool:
            if wanted.isdisjoint(live):
                return True
            if not wanted <= live:
                raise FileSuperseded(f"{self.uri}: some of the files to expire are gone")
            return False

        version = self._commit_once(check, self._actions(old, [], data_change=True), note)
        self._removed |= wanted
        return version

    def _check_age(self, began: float, has_files: bool = True) -> None:
        """Raise TableError if new files that were begun at `began` (monotonic clock) may have been deleted."""
        if has_files and self._clock.monotonic() - began > MAX_COMPACTION_AGE_S:
            raise TableError(
                f"{self.uri}: files begun more than {MAX_COMPACTION_AGE_S / 3600:.0f} h ago are too old to commit"
            )

    def fence(self, note: dict[str, Any]) -> int:
        """Commit without changes, which makes concurrent commits on older versions fail."""
        done: list[bool] = []
        return self._commit_once(lambda _live: bool(done), [], note, lambda: done.append(True))

    def _commit_once(
        self,
        check: Callable[[set[str]], bool],
        actions: list[Any],
        note: dict[str, Any],
        on_success: Callable[[], None] = lambda: None,
        apps: Sequence[Transaction] = (),
    ) -> int:
        """Commit on the newest version until `check`, called with its live files, returns True."""
        failure = ""
        for _ in self.attempts():
            version = int(self.refresh().version())
            if check(self._live_paths()):
                return version
            try:
                self.commit(actions, apps, {COMPACTION_KEY: note})
                on_success()
            except (DeltaError, OSError) as error:
                failure = first_line(error)
                log.warning("commit on version %d: %s; reading the table again", version, failure)
        version = int(self.refresh().version())
        if check(self._live_paths()):
            return version
        raise TableError(f"{self.uri}: not committed: {failure}")

    def _live_paths(self) -> set[str]:
        """Return the paths of the live files of the version last refreshed. Only the commits since the last call are
        read: with the list of all files a commit would take longer, and others would be first more often."""
        (known, paths), newest = self._paths, self._version
        if 0 <= known <= newest <= known + MAX_READ_COMMITS:
            with suppress(FileNotFoundError):  # cleanup deleted one
                for version in range(known + 1, newest + 1):
                    removed, added = read_actions(self.uri, version, "remove", "add")
                    paths -= {str(action["path"]) for action in removed}
                    paths |= {str(action["path"]) for action in added}
                self._paths = newest, paths
                return paths
        self._paths = newest, {file.path for file in self.live()}
        return self._paths[1]

    def _actions(self, old: Sequence[F], new: Sequence[DataFile], data_change: bool) -> list[Any]:
        now = self._clock.now_ms()
        return [*(file.removal(data_change, now) for file in old), *(file.action(data_change) for file in new)]


class CompactionLog(MaintainedTable[LiveFile]):
    """The raw table for compaction, imports and deletions: live and removed files, and commits that replace, remove or
    add files. None of them is an append."""

    def __init__(self, hdfs: str, clock: Clock = SYSTEM_CLOCK, made: bool = False) -> None:
        super().__init__(raw_uri(hdfs), RAW_SCHEMA, PARTITION_BY, PROPERTIES, made, clock)

    def live(self) -> list[LiveFile]:
        """Return the files of the version last refreshed. Raises TableError."""
        names = ("path", "size_bytes", "num_records", "partition.period", "partition.keep")
        return [LiveFile(*row) for row in self.list_files(*names)]

    def imported(self, identity: str) -> int:
        """Return the position that imports of this identity have reached, 0 at first. Raises TableError, OSError."""
        return self.refresh().transaction_version(import_id(identity)) or 0

    def add(
        self, new: Sequence[DataFile], identity: str, before: int, after: int, note: dict[str, Any], began: float
    ) -> bool:
        """Add files of an import and advance its position from `before` to `after` in one commit. Returns False,
        without adding, if the position is `after` or beyond: another process added the same rows.

        Raises FileSuperseded if it is another one, TableError if the outcome is uncertain."""
        added = {file.path for file in new}
        done: list[bool] = []

        def check(live: set[str]) -> bool:
            position = self._opened().transaction_version(import_id(identity)) or 0
            if position == before:
                self._check_age(began, bool(new))
                return False
            if position < after:
                raise FileSuperseded(f"{self.uri}: the import {identity} is at {position}, expected {before}")
            done.append(bool(added) and added <= live)
            return True

        apps = [Transaction(import_id(identity), after)]
        self._commit_once(check, self._actions([], new, data_change=True), note, apps=apps)
        return done[-1]

    def replace(
        self,
        old: Sequence[LiveFile],
        new: Sequence[DataFile],
        note: dict[str, Any],
        began: float,
        data_change: bool = False,
    ) -> int:
        """Replace `old` by `new` in one commit; return its version. Without `data_change` they hold the same rows.
        `began`: start of the first of `new` by the monotonic clock.

        Raises FileSuperseded if one of `old` is gone (`new` will then never be part of the table), TableError if the
        outcome is uncertain."""
        wanted, added = {file.path for file in old}, {file.path for file in new}

        def check(live: set[str]) -> bool:
            if added <= live and wanted.isdisjoint(live):
                return True
            if not wanted <= live:
                gone = sorted(wanted - live)
                raise FileSuperseded(f"{self.uri}: {len(gone)} of {len(wanted)} files are gone, such as {gone[0]}")
            self._check_age(began)
            return False

        version = self._commit_once(check, self._actions(old, new, data_change), note)
        self._removed |= wanted
        return version


def import_id(identity: str) -> str:
    """Return the transaction id of an import."""
    return f"{IMPORT_ID}/{identity}"
