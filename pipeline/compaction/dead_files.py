"""Deletion of files that are no longer part of the table, and of the old part of its log.

A removed file is deleted once no reader holds a version from before its removal. A file that no commit ever named was
left by a task, driver or compactor that died; it is deleted when it is too old to be committed any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from artimon.rawtable.commit import CompactionLog, MaintainedTable
from artimon.rawtable.head import LOG_FOLDER, last_checkpoint
from artimon.rawtable.schema import PROPERTIES
from artimon.runtime import file_access as files

log = logging.getLogger(__name__)

ORPHAN_AGE_MS = 24 * 3_600_000
APPEND_ORPHAN_AGE_MS = 7 * ORPHAN_AGE_MS
"""Age at which files of tasks are deleted: a driver that was stopped for days may still commit them."""
KEEP_MS = 3_600_000
"""Minimum age of deleted files of the log: a reader may hold a version for this long."""
LEAST = 16
"""Least number of old files of the log: below it a new checkpoint costs more than it frees."""


@dataclass(slots=True)
class SweepResult:
    """Result of one sweep. `waiting` are dead files that a reader may still need."""

    deleted: int = 0
    deleted_bytes: int = 0
    waiting: int = 0
    waiting_bytes: int = 0
    orphans: int = 0


class FileSweeper:
    """Deletes dead files. Used by one thread. `_since`: path of a removed file -> version at which its removal was
    first seen, so at or above that of the removal. Files below `beside` are not the table's."""

    def __init__(
        self, table: MaintainedTable[Any], on_delete: Callable[[], None] = lambda: None, beside: str = LOG_FOLDER
    ) -> None:
        self._table, self._on_delete = table, on_delete
        self._skipped = (f"{LOG_FOLDER}/", f"{beside}/")
        self._removal_seen: dict[str, int] = {}
        self._deleted_paths: set[str] = set()

    def sweep(self, version: int, held: Iterable[int], now_ms: int) -> SweepResult:
        """Delete the files that are safe to delete. The table must be at `version`; `held` are the versions that
        readers hold. Raises TableError, OSError."""
        present = {
            path: (size, changed_ms)
            for path, size, changed_ms in files.list_files(self._table.uri)
            if not path.startswith(self._skipped)
        }
        removed = self._table.removed()
        self._table.forget(removed - present.keys())  # already deleted
        live = {file.path for file in self._table.live()}
        dead = [path for path in present if path in removed and path not in live]
        self._removal_seen = {path: self._removal_seen.get(path, version) for path in dead}
        oldest = min(held, default=version)
        swept = SweepResult()
        for path in dead:
            size = present[path][0]
            if self._removal_seen[path] > oldest:
                swept.waiting += 1
                swept.waiting_bytes += size
            else:
                self._delete(path, size, swept)
        orphans = [path for path in present if path not in removed and path not in live]
        old = {path: present[path][0] for path in orphans if now_ms - present[path][1] > _orphan_age_ms(path)}
        self._sweep_orphans(old, swept)
        self._remove_folders(set(present))
        return swept

    def _remove_folders(self, seen: set[str]) -> None:
        """Delete folders emptied by deletions: each would cost every later sweep a request. HDFS itself refuses to
        delete one into which a task has just written."""
        gone, self._deleted_paths = self._deleted_paths, set()
        for depth in (1, 2):
            for folder in sorted({path.rsplit("/", depth)[0] for path in gone if path.count("/") >= depth}):
                if not any(path.startswith(folder + "/") for path in seen - gone):
                    try:
                        files.delete_file(f"{self._table.uri}/{folder}")
                    except (OSError, RuntimeError) as error:  # the client raises the latter for "not empty"
                        log.debug("%s stays: %s", folder, error)

    def _sweep_orphans(self, sizes: Mapping[str, int], swept: SweepResult) -> None:
        """Delete orphans after a commit: it forces a writer about to commit them to re-read, and find them too old."""
        if not sizes:
            return
        self._table.fence({"orphans": len(sizes)})
        live = {file.path for file in self._table.live()}
        for path, size in sizes.items():
            if path not in live:
                swept.orphans += 1
                self._delete(path, size, swept)

    def _delete(self, path: str, size: int, swept: SweepResult) -> None:
        self._on_delete()
        files.delete_file(f"{self._table.uri}/{path}")
        self._table.forget([path])
        self._removal_seen.pop(path, None)
        self._deleted_paths.add(path)
        swept.deleted += 1
        swept.deleted_bytes += size


def _orphan_age_ms(path: str) -> int:
    name = path.rsplit("/", 1)[-1]
    return ORPHAN_AGE_MS if name.startswith(("hour-", "day-")) else APPEND_ORPHAN_AGE_MS


class Tidier:
    """Deletes old commits and checkpoints of the log, each once a checkpoint contains it. Used by one thread.

    Kept are: everything from the newest append on, whose commit holds the state and is in no checkpoint; the newest
    checkpoint and its successors; and files younger than KEEP_MS. So the name of a version that is not decided yet is
    never free again: commits are compared and set by their names. A writer that slept longer finds its version below a
    checkpoint and is refused; `head.HeadReader` mistrusts a commit below a checkpoint."""

    def __init__(
        self, table: CompactionLog, on_delete: Callable[[], None] = lambda: None, keep_ms: int = KEEP_MS
    ) -> None:
        self._table, self._on_delete, self._keep_ms = table, on_delete, keep_ms

    def tidy(self, newest_append: int, now_ms: int) -> int:
        """Write a checkpoint and delete older files; return their number. `newest_append`: its version, 0 if there is
        none. Raises TableError, OSError."""
        old = self._old(newest_append, now_ms)
        if len(old) < LEAST:
            return 0
        self._table.configure(PROPERTIES)
        checkpoint = self._table.checkpoint()
        if last_checkpoint(self._table.uri) < checkpoint:  # a writer's older one was registered later: retry next time
            return 0
        going = [name for name in old if _version(name) < checkpoint]
        for name in sorted(going):  # in order: a crash leaves no holes in the log
            self._on_delete()
            files.delete_file(f"{self._table.uri}/{LOG_FOLDER}/{name}")
        log.info("deleted %d files of the log, all below version %d", len(going), min(checkpoint, newest_append))
        return len(going)

    def _old(self, newest_append: int, now_ms: int) -> list[str]:
        """Return the names of commits and checkpoints below the newest append that are old enough."""
        return [
            name
            for name, _, changed_ms in files.list_files(f"{self._table.uri}/{LOG_FOLDER}")
            if 0 <= _version(name) < newest_append and now_ms - changed_ms > self._keep_ms
        ]


def _version(name: str) -> int:
    """Return the version of a commit or checkpoint; -1 for any other file."""
    number, _, rest = name.partition(".")
    known = rest == "json" or (rest.startswith("checkpoint.") and rest.endswith("parquet"))
    return int(number) if known and number.isdigit() and len(number) == 20 else -1
