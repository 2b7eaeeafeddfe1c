"""Clean-up of the raw table's log: a commit is deleted once a checkpoint contains it.

Kept are: everything from the newest append on, whose commit holds the state and is in no checkpoint; the newest
checkpoint and its successors; and files younger than KEEP_MS. So the name of a version that is not decided yet is never
free again: commits are compared and set by their names. A writer that slept longer finds its version below a checkpoint
and is refused; `head.HeadReader` mistrusts a commit below a checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from artimon.rawtable.commit import RawLog
from artimon.rawtable.head import last_checkpoint
from artimon.rawtable.schema import PROPERTIES
from artimon.runtime import files

log = logging.getLogger(__name__)

KEEP_MS = 3_600_000
"""Minimum age of deleted files: a reader may hold a version for this long."""
LEAST = 16
"""Least number of old files of the log: below it a new checkpoint costs more than it frees."""
LOG_FOLDER = "_delta_log"


class Tidier:
    """Used by one thread."""

    def __init__(self, table: RawLog, on_delete: Callable[[], None] = lambda: None, keep_ms: int = KEEP_MS) -> None:
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
            files.delete(f"{self._table.uri}/{LOG_FOLDER}/{name}")
        log.info("deleted %d files of the log, all below version %d", len(going), min(checkpoint, newest_append))
        return len(going)

    def _old(self, newest_append: int, now_ms: int) -> list[str]:
        """Return the names of commits and checkpoints below the newest append that are old enough."""
        return [
            name
            for name, _, changed_ms in files.listing(f"{self._table.uri}/{LOG_FOLDER}")
            if 0 <= _version(name) < newest_append and now_ms - changed_ms > self._keep_ms
        ]


def _version(name: str) -> int:
    """Return the version of a commit or checkpoint; -1 for any other file."""
    number, _, rest = name.partition(".")
    known = rest == "json" or (rest.startswith("checkpoint.") and rest.endswith("parquet"))
    return int(number) if known and number.isdigit() and len(number) == 20 else -1
