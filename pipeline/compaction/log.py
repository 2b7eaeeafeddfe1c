"""The raw table's log as compaction uses it: which files are live, and commits that replace or remove some.

Such a commit is a compare-and-set on the table's version, like an append, and carries no state: the chain of appends
goes past it. Whether it went through is decided by reading the table again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import RemoveAction

from artimon.model import files
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.deadline import within
from pipeline.compaction.plan import LiveFile
from pipeline.spark.table import PARTITION_BY, RAW_SCHEMA, DataFile, TableError, first_line, raw_uri

log = logging.getLogger(__name__)

METADATA_KEY = "artimonCompaction"
"""In `commitInfo`: what the commit did. Never the key of appends."""
TIMEOUT_S = 60.0
ATTEMPTS = 8
FRESH_S = 12 * 3600.0
"""A commit whose files were begun longer ago is given up: orphans are deleted after dead.ORPHAN_MS, which is more."""


class Superseded(TableError):
    """A file that was to be replaced is gone already: somebody else did it."""


class RawLog:
    """Used by one thread at a time."""

    def __init__(self, hdfs: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self.uri = raw_uri(hdfs)
        self._clock = clock
        self._table: DeltaTable | None = None
        self._taken_out: set[str] = set()
        """Paths that commits up to version `_read_to` removed and that were not deleted yet, as far as is known."""
        self._read_to: int | None = None

    def refresh(self) -> int:
        """Go to the newest version; its number. Raises FileNotFoundError if there is no table, TableError, OSError."""
        files.check_reachable(self.uri)
        try:
            return int(self._within("opening", self._refresh))
        except TableNotFoundError:
            raise FileNotFoundError(f"{self.uri} does not exist yet") from None
        except DeltaError as error:
            self._table = None
            raise TableError(f"{self.uri} cannot be read: {first_line(error)}") from error

    def live(self) -> list[LiveFile]:
        """Files of the version last refreshed. Raises TableError."""
        table = self._open()
        actions = pa.table(self._within("reading", lambda: table.get_add_actions(flatten=True)))
        names = ("path", "size_bytes", "num_records", "partition.period", "partition.keep")
        return [LiveFile(*row) for row in zip(*(actions.column(name).to_pylist() for name in names), strict=True)]

    def removed(self) -> set[str]:
        """Paths that were removed from the table and may still lie on HDFS, by the commits that the log still holds:
        checkpoints of delta-rs name no removed file. Raises TableError, OSError."""
        newest = int(self._open().version())
        if self._read_to is None:
            names = (name for name, _, _ in files.listing(f"{self.uri}/_delta_log"))
            versions = sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())
        else:
            versions = list(range(self._read_to + 1, newest + 1))
        for version in versions:
            if version <= newest:
                self._taken_out |= self._removed_by(version)
        self._read_to = newest
        return set(self._taken_out)

    def _removed_by(self, version: int) -> set[str]:
        try:
            text = files.read(f"{self.uri}/_delta_log/{version:020d}.json")
        except FileNotFoundError:
            return set()  # tidied meanwhile: what it removed was deleted before
        try:
            return {json.loads(line)["remove"]["path"] for line in text.splitlines() if line.startswith(b'{"remove"')}
        except (ValueError, KeyError, TypeError) as error:
            raise TableError(f"{self.uri}: commit {version} cannot be read: {first_line(error)}") from error

    def forget(self, paths: Iterable[str]) -> None:
        """These removed files do not lie on HDFS any more."""
        self._taken_out.difference_update(paths)

    def checkpoint(self) -> int:
        """Write one of the newest version, whose number is returned. Raises TableError, OSError."""
        self.refresh()
        table = self._open()
        try:
            self._within("writing a checkpoint of", table.create_checkpoint)
        except DeltaError as error:
            raise TableError(f"{self.uri}: no checkpoint: {first_line(error)}") from error
        return int(table.version())

    def configure(self, properties: dict[str, str]) -> None:
        """Set properties of the table that it does not have yet, with a commit. Raises TableError, OSError."""
        self.refresh()
        table = self._open()
        if properties.items() <= table.metadata().configuration.items():
            return
        hooks = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)

        def run() -> None:
            table.alter.set_table_properties(properties, post_commithook_properties=hooks)

        try:
            self._within("setting properties of", run)
        except DeltaError as error:
            self._table = None
            raise TableError(f"{self.uri}: its properties cannot be set: {first_line(error)}") from error

    def replace(self, old: Sequence[LiveFile], new: Sequence[DataFile], note: dict[str, Any], began: float) -> int:
        """One commit that removes exactly `old` and adds `new`, which hold the same rows; the version. `began`: by
        the monotonic clock, when the first of `new` was begun.

        Raises Superseded if one of `old` is gone (then `new` is not part of the table and never will be), TableError
        if that cannot be decided."""
        wanted, added = {file.path for file in old}, {file.path for file in new}

        def check(live: set[str]) -> bool:
            if added <= live:
                return True
            if not wanted <= live:
                gone = sorted(wanted - live)
                raise Superseded(f"{self.uri}: {len(gone)} of {len(wanted)} files are gone, such as {gone[0]}")
            if self._clock.monotonic() - began > FRESH_S:
                raise TableError(f"{self.uri}: files begun {FRESH_S / 3600:.0f} h ago are not committed any more")
            return False

        version = self._commit(check, self._actions(old, new, data_change=False), note)
        self._taken_out |= wanted
        return version

    def expire(self, old: Sequence[LiveFile], note: dict[str, Any]) -> int:
        """One commit that removes `old`; those that are gone already are left out. Raises TableError."""
        wanted = {file.path for file in old}

        def check(live: set[str]) -> bool:
            if wanted.isdisjoint(live):
                return True
            if not wanted <= live:
                raise Superseded(f"{self.uri}: files that were to expire are gone")
            return False

        version = self._commit(check, self._actions(old, [], data_change=True), note)
        self._taken_out |= wanted
        return version

    def fence(self, note: dict[str, Any]) -> int:
        """A commit that changes nothing: whoever wanted to commit on an older version must look again."""
        done: list[bool] = []

        def check(_live: set[str]) -> bool:
            return bool(done)

        return self._commit(check, [], note, lambda: done.append(True))

    def _commit(
        self,
        check: Callable[[set[str]], bool],
        actions: list[Any],
        note: dict[str, Any],
        on_success: Callable[[], None] = lambda: None,
    ) -> int:
        """Commit on the newest version until `check`, asked with its live files, says that it is done."""
        failure = ""
        for _ in range(ATTEMPTS):
            version = self.refresh()
            if check({file.path for file in self.live()}):
                return version
            try:
                self._write(actions, note)
                on_success()
            except (DeltaError, OSError) as error:
                failure = first_line(error)
                self._table = None  # a call that was given up may still use it
                log.warning("commit on version %d: %s; looking at the table", version, failure)
        version = self.refresh()
        if check({file.path for file in self.live()}):
            return version
        raise TableError(f"{self.uri}: no commit in {ATTEMPTS} attempts: {failure}")

    def _write(self, actions: list[Any], note: dict[str, Any]) -> None:
        """Raises DeltaError or OSError: the outcome is then unknown."""
        table = self._open()
        properties = CommitProperties(custom_metadata={METADATA_KEY: note}, max_commit_retries=0)
        # the newest append may be old: its commit must stay, however many commits of ours follow
        hooks = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)

        def run() -> None:
            table.create_write_transaction(
                actions,
                "append",
                RAW_SCHEMA,
                PARTITION_BY,
                commit_properties=properties,
                post_commithook_properties=hooks,
            )

        self._within("committing to", run)

    def _actions(self, old: Sequence[LiveFile], new: Sequence[DataFile], data_change: bool) -> list[Any]:
        now = self._clock.now_ms()
        removes = [RemoveAction(f.path, data_change, now, f.size, {"period": f.period, "keep": f.keep}) for f in old]
        return [*removes, *(file.action(data_change) for file in new)]

    def _refresh(self) -> int:
        if self._table is None:
            self._table = DeltaTable(self.uri)
        else:
            self._table.update_incremental()
        return int(self._table.version())

    def _open(self) -> DeltaTable:
        if self._table is None:
            raise TableError(f"{self.uri} is not open")
        return self._table

    def _within(self, what: str, call: Callable[[], Any]) -> Any:
        return within(TIMEOUT_S, f"{what} {self.uri}", call)
