"""Writer of announcements of series: one small file for each group of concurrent callers, answered after the rename.
Announcements are rare (new series, and a repeat a day), so half a second each does not matter. Agents forget them with
the answer, so it must mean durable."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from artimon.model.ack_state import Position
from artimon.model.clock import Clock
from pipeline.collector.hdfs.batch_file import encode_batch_record, encode_header
from pipeline.collector.hdfs.file_names import SERIES, FinishedName, series_name, series_path
from pipeline.rolling_files.file_store import FileStore, StoreError
from pipeline.rolling_files.rolling_file import RollingFile
from pipeline.wal.segment_format import RecordType

MAX_FILE_BYTES = 16 * 1024 * 1024


@dataclass(slots=True)
class _PendingFile:
    """Callers that share a file. The first of them writes it."""

    messages: list[bytes] = field(default_factory=list)
    size: int = 0
    done: threading.Event = field(default_factory=threading.Event)
    failure: str = "the announcements were not written in time"
    name: str = ""
    """Name of the file, "" if it was not written."""


class AnnouncementWriter:
    """Locks: `_lock` guards the gathering group; `_writing` is held while a group is written, and the next one gathers
    meanwhile. Order: `_writing`, then `_lock`."""

    def __init__(self, store: FileStore, collector_stream: str, clock: Clock) -> None:
        self._store, self._prefix, self._clock = store, collector_stream, clock
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._gathering = _PendingFile()
        self._files = 0

    def write(self, messages: Sequence[bytes], deadline_s: float) -> list[Position | str]:
        """Write announcements; the answer is a position once they are durable. Takes about `deadline_s` at most."""
        until = self._clock.monotonic() + deadline_s
        size = sum(map(len, messages))
        with self._lock:
            group = self._gathering
            if group.size and group.size + size > MAX_FILE_BYTES:
                return ["full: too many announcements wait"] * len(messages)
            group.messages.extend(messages)
            group.size += size
        if self._writing.acquire(timeout=deadline_s):
            try:
                if not group.done.is_set():
                    self._write(group)
            finally:
                self._writing.release()
        if not group.done.wait(max(0.0, until - self._clock.monotonic())) or not group.name:
            return [f"store: {group.failure}"] * len(messages)
        return [Position(self._store.uri, group.name, 0, 0)] * len(messages)

    def _write(self, group: _PendingFile) -> None:
        with self._lock:
            if group is self._gathering:
                self._gathering = _PendingFile()
            self._files += 1
            name, path = series_name(self._prefix, self._files), series_path(self._prefix, self._files)
        data = encode_header(name, 0) + b"".join(
            encode_batch_record(0, one, RecordType.SERIES) for one in group.messages
        )
        try:
            file = RollingFile(self._store, path)
            file.write(data)
            file.close_as(f"{SERIES}/{FinishedName(name, 0, len(data)).name}")
            group.name = name
        except StoreError as error:
            group.failure = str(error)
        finally:
            group.done.set()
