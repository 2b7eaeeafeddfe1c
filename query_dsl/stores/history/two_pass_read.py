"""Reading into the answer in two passes: the first finds the place of each row by its keys, the second decodes the
values of each row group and copies them there. So no row is held twice, and the limit is checked before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

from artimon.rawtable.parquet_reader import GroupReader
from query_dsl.stores.history.answer_builder import AnswerBuilder
from query_dsl.stores.history.file_pruning import RawFile, RowFilter
from query_dsl.stores.history.local_reader import LocalReader, Progress, Rows, fetch
from query_dsl.stores.history.row_layout import Runs, runs_of
from query_dsl.stores.history.series_lookup import FoundSeries
from query_dsl.stores.history.shares import Share
from query_dsl.stores.history.task_pool import TaskPool, TaskResult

KEPT_SHARE_BYTES = 64 * 1024 * 1024
"""Maximum bytes of the first pass that are kept for the second, which fetches the rest again."""
READER_BYTES = 64 * 1024
"""Estimated overhead of an open file, in bytes."""


class _WantedGroup(NamedTuple):
    """Wanted rows of a row group; `rows` is None for all of them."""

    number: int
    rows: Rows | None
    runs: Runs


class _KeyedShare(NamedTuple):
    """Row groups with wanted rows of one share; `share` is None if keeping it would exceed HELD_BYTES."""

    uri: str
    size: int
    share: Share | None
    groups: Sequence[_WantedGroup]

    def reopen(self) -> Share:
        """Return the share that was kept, or fetch it again."""
        if self.share is not None:
            return self.share
        numbers = range(self.groups[0].number, self.groups[-1].number + 1)
        share = Share(GroupReader(self.uri), tuple(numbers), self.size)
        share.prefetch()
        return share


class TwoPassRead:
    """Reading of one answer. `_lock` guards `_held`; `_looked` is only appended to."""

    def __init__(self, reader: LocalReader, found: FoundSeries, wanted: RowFilter, stop: threading.Event) -> None:
        self._reader, self._found, self._wanted, self._stop = reader, found, wanted, stop
        self._lock = threading.Lock()
        self._keyed: list[_KeyedShare] = []
        self._kept_bytes = 0

    def table(self, files: Sequence[RawFile], progress: Progress) -> Any:
        """Return every wanted row of these files as RESULT_SCHEMA. Raises as LocalReader.read."""
        self._reader.shares(files, self._key_share, lambda done, text: progress(done / 2, text))
        self._keyed.sort(key=lambda one: (one.uri, one.groups[0].number))
        assembly = AnswerBuilder([group.runs for one in self._keyed for group in one.groups], self._found)
        self._fetch(assembly, lambda done: progress(0.5 + done / 2, f"of {len(files):,} files"))
        return assembly.table()

    def _key_share(self, share: Share, ended: threading.Event) -> None:
        groups = []
        share.prefetch()
        for number in share.groups:
            if ended.is_set():
                return
            picked = self._reader.pick_rows(share.reader, number)
            if picked is not None:
                groups.append(
                    _WantedGroup(number, picked.rows, runs_of(self._wanted.order[picked.pairs], picked.time_us))
                )
        if groups:
            self._keyed.append(
                _KeyedShare(share.reader.uri, share.size, share if self._may_keep(share) else None, groups)
            )

    def _may_keep(self, share: Share) -> bool:
        takes = share.reader.buffered_bytes + READER_BYTES
        with self._lock:
            fits = self._kept_bytes + takes <= KEPT_SHARE_BYTES
            self._kept_bytes += takes if fits else 0
        return fits

    def _fetch(self, assembly: AnswerBuilder, progress: Callable[[float], None]) -> None:
        pool = TaskPool(self._stop)

        def values(looked: _KeyedShare, first: int) -> TaskResult:
            if not pool.ended.is_set():
                reader = looked.reopen().reader
                for at, group in enumerate(looked.groups, first):
                    if not pool.ended.is_set():
                        assembly.put(at, fetch(reader, group.number, group.rows))
                self._reader.add_fetched(reader)
            return TaskResult(looked.size)

        firsts = accumulate((len(looked.groups) for looked in self._keyed), initial=0)
        total = sum(looked.size for looked in self._keyed) or 1
        tasks = [partial(values, looked, first) for looked, first in zip(self._keyed, firsts, strict=False)]
        pool.run(tasks, lambda size: progress(size / total))
