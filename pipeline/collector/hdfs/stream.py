"""Driver of one stream: batches wait in memory, one thread writes them to files, others close the full ones.

Closing takes half a second on HDFS whatever the size, so the next file is written meanwhile. Callers never wait for
the store: batches that do not fit into memory are refused.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from artimon.model.ack_state import AckState, Position
from artimon.model.batch import BatchHeader, BatchId
from artimon.model.clock import Clock
from artimon.model.ranges import LaneRanges
from pipeline.collector.hdfs.batch_file import encode_batch_record, encode_header, encode_index, record_bytes
from pipeline.collector.hdfs.file_names import FinishedName, Scheme, UnfinishedName, finished_path
from pipeline.collector.hdfs.stream_state import FileState, RollConfig, StreamFile, StreamState
from pipeline.link.timer import backoff_s
from pipeline.rolling_files.file_store import FileStore, StoreError
from pipeline.rolling_files.rolling_file import RollingFile

log = logging.getLogger(__name__)

CHUNK_BYTES = 1024 * 1024
CLOSER_THREADS, MAX_CLOSING = 2, 4
OPEN_TIMEOUT_S = 60.0
"""Seconds after which a stream gives up a file that it cannot open, so that agents turn to other collectors."""
_IDLE_S = 1.0


@dataclass(slots=True, eq=False)
class _FileWrite:
    """State of one file while it is written. Owner: the writer thread, then one closer."""

    file: StreamFile
    name: UnfinishedName
    opened_ms: int
    rolling_file: RollingFile | None = None
    lanes: LaneRanges = field(default_factory=LaneRanges)
    count: int = 0
    is_header_written: bool = False
    """True once its header is written."""
    synced_at: float = 0.0


class Stream:
    """Construct, `start`, `put`, `stop`. `changed` is called, from any thread and under no lock, whenever `state` may
    have changed.

    Locks: `_cond` guards the core and the queue; no I/O under it. Threads: one writes, two close; each ends with the
    stream. A call to the store that hangs is abandoned at its deadline."""

    def __init__(
        self,
        store: FileStore,
        name: str,
        topic: str,
        clock: Clock,
        changed: Callable[[], None],
        scheme: Scheme = Scheme.ROLL,
        config: RollConfig | None = None,
        sync_s: float = 1.0,
        open_s: float = OPEN_TIMEOUT_S,
    ) -> None:
        self.name, self.topic, self.scheme = name, topic, scheme
        self._store, self._clock, self._changed, self._sync_s = store, clock, changed, sync_s
        self._open_s = open_s
        self._state = StreamState(scheme, config or RollConfig())
        self._cond = threading.Condition()
        self._queue: deque[tuple[StreamFile, BatchId, bytes]] = deque()
        self._handles: dict[StreamFile, _FileWrite] = {}
        self._closing: deque[_FileWrite] = deque()
        self._at_closers: list[_FileWrite] = []
        self._stopping = self._ended = False
        self._failures, self._retry_at = 0, 0.0
        self.problem = ""
        """Last error of the store, "" once it works again. Until `_again_at` every batch is refused."""
        names = ["write", *(f"close {n}" for n in range(CLOSER_THREADS))]
        runs = [self._write_all, *[self._close_all] * CLOSER_THREADS]
        self._threads = [
            threading.Thread(target=r, name=f"{n} {name}", daemon=True) for n, r in zip(names, runs, strict=True)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def append(self, batches: Sequence[tuple[BatchHeader, bytes]]) -> list[Position | str]:
        """Return the future position of each batch, or the reason for its refusal. Never waits. After one refusal the
        rest is refused as well, so that a lane stays in order."""
        results: list[Position | str] = []
        refused = ""
        with self._cond:
            for header, data in batches:
                refused = refused or self._refusal(len(data))
                results.append(refused or self._append_record(header.id, data))
            self._cond.notify_all()
        return results

    def state(self) -> AckState:
        """Return the state that agents compare with the positions from `put`."""
        with self._cond:
            partition = self._state.state()
        return AckState(self._store.uri, self.topic, self.name, self._clock.now_ms(), {0: partition})

    @property
    def is_exhausted(self) -> bool:
        """True if a new stream must replace this one."""
        with self._cond:
            return self._state.is_exhausted

    def open_names(self) -> set[str]:
        """Return the names of the files that are being written or closed."""
        with self._cond:
            handles = (*self._handles.values(), *self._closing, *self._at_closers)
            return {handle.name.name for handle in handles}

    def roll(self) -> None:
        """End the current file now."""
        with self._cond:
            self._state.roll()
            self._cond.notify_all()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Finish the waiting batches within `timeout_s`; `state` names the rest as lost. Returns in time in any
        case."""
        with self._cond:
            self._stopping = True
            self._state.roll()
            self._cond.notify_all()
            self._cond.wait_for(lambda: not self._state.files or self._state.closed, timeout_s)
        self.fence("stopped")

    def fence(self, why: str) -> None:
        """Close the stream; batches that are not durable are lost."""
        with self._cond:
            if not self._state.closed:
                self._state.close(why)
            self._stopping = self._ended = True
            self._cond.notify_all()
        self._changed()

    def figures(self) -> dict[str, Any]:
        """Return the counts for the health file."""
        with self._cond:
            core, oldest = self._state, self._state.oldest_opened()
            age = 0 if oldest is None else int((self._clock.monotonic() - oldest) * 1000)
            overdue = max(0, age - int(core.config.seconds * 1000))
            return {
                "stream": self.name,
                "until": core.until,
                "end": core.end,
                "waiting_bytes": core.waiting_bytes,
                "open_files": len(core.files),
                "rolls": core.rolls,
                "failed_rolls": core.failed_rolls,
                "lost_ranges": len(core.lost),
                "oldest_open_ms": age,
                "overdue_ms": overdue,
            }

    def _refusal(self, size: int) -> str:
        """Under `_cond`."""
        if self._stopping:
            return "store: the collector is stopping"
        if self.problem and self._clock.monotonic() < self._retry_at:
            return f"store: {self.problem}"
        why = self._state.refusal(record_bytes(size))
        return f"full: {why}" if why else ""

    def _append_record(self, id: BatchId, data: bytes) -> Position:
        """Under `_cond`."""
        head = len(encode_header(self.name, 0))
        file, at = self._state.add_record(record_bytes(len(data)), head, self._clock.monotonic())
        if file not in self._handles:
            place = UnfinishedName(self.name, file.base, self.scheme)
            self._handles[file] = _FileWrite(file, place, self._clock.now_ms())
        self._queue.append((file, id, data))
        return Position(self._store.uri, self.name, 0, at)

    # the writer

    def _write_all(self) -> None:
        while True:
            try:
                if not self._write_next():
                    return
            except Exception:  # a dead writer would hold everything for ever
                log.exception("stream %s", self.name)
                self.fence("a defect of the program")

    def _write_next(self) -> bool:
        """Do one step of the writer; False at the end."""
        with self._cond:
            handle, chunk = self._next()
            if handle is None:
                if self._ended:
                    return False
                self._cond.wait(self._idle_s())
                return True
        if handle.rolling_file is None and not self._open(handle):
            return True
        if chunk or not handle.is_header_written:
            self._write(handle, chunk)
        self._sync(handle)
        self._hand_over(handle)
        return True

    def _next(self) -> tuple[_FileWrite | None, list[tuple[BatchId, bytes]]]:
        """Return the oldest file that needs work, and its next batches to write. Under `_cond`."""
        if self._state.is_full(self._clock.monotonic()):
            self._state.roll()
        while self._queue and self._queue[0][0].state is FileState.FAILED:
            self._queue.popleft()
        handle = next(iter(self._handles.values()), None)  # dicts keep the order: the oldest file
        if handle is None or self._ended or len(self._closing) + len(self._at_closers) >= MAX_CLOSING:
            return None, []
        if handle.file.state is FileState.FAILED:
            self._drop(handle)
            return self._next()
        chunk = self._chunk(handle) if handle.rolling_file is not None else []
        needed = (
            handle.rolling_file is None or chunk or handle.file.state is FileState.CLOSING or self._is_sync_due(handle)
        )
        return (handle, chunk) if needed else (None, [])

    def _chunk(self, handle: _FileWrite) -> list[tuple[BatchId, bytes]]:
        chunk: list[tuple[BatchId, bytes]] = []
        size = 0
        while self._queue and self._queue[0][0] is handle.file and size < CHUNK_BYTES:
            _, id, data = self._queue.popleft()
            chunk.append((id, data))
            size += len(data)
        return chunk

    def _idle_s(self) -> float:
        due = self._state.roll_due()
        wait = _IDLE_S if due is None else min(_IDLE_S, max(0.0, due - self._clock.monotonic()))
        return min(wait, self._sync_s) if self.scheme is Scheme.LENGTH else wait

    def _open(self, handle: _FileWrite) -> bool:
        """Create the file. While that fails its batches stay in memory, since none of them was written."""
        try:
            writing = RollingFile(self._store, handle.name.path)
        except StoreError as error:  # the store may have created the file: a later sweep removes it
            log.warning("stream %s: %s", self.name, error)
            with self._cond:
                pause = self._store_failed(str(error))
                handle.name = handle.name._replace(attempt=handle.name.attempt + 1)
                if self._clock.monotonic() - handle.file.opened_at > self._open_s:
                    self._fail(handle, str(error))
                self._cond.wait_for(lambda: self._ended, pause)
            self._changed()
            return False
        handle.rolling_file, handle.synced_at = writing, self._clock.monotonic()
        return True

    def _write(self, handle: _FileWrite, chunk: list[tuple[BatchId, bytes]]) -> None:
        base = handle.file.base
        parts = [encode_batch_record(base, data) for _, data in chunk]
        if not handle.is_header_written:
            parts.insert(0, encode_header(self.name, base))
        data = b"".join(parts)
        try:
            if handle.rolling_file is not None and data:
                handle.rolling_file.write(data)
        except StoreError as error:
            self._failed(handle, error)
            return
        handle.is_header_written = True
        for id, _ in chunk:
            handle.lanes.add(id.lane_id, id.sequence)
        handle.count += len(chunk)
        with self._cond:
            self._state.mark_written(handle.file, len(data))

    def _is_sync_due(self, handle: _FileWrite) -> bool:
        waits = self.scheme is Scheme.LENGTH and handle.file.written > handle.file.durable
        return waits and self._clock.monotonic() - handle.synced_at >= self._sync_s

    def _sync(self, handle: _FileWrite) -> None:
        """Scheme `length`: make all written bytes durable, and note the durable length that the store reports."""
        file, writing = handle.file, handle.rolling_file
        if writing is None or file.state is FileState.FAILED or not self._is_sync_due(handle):
            return
        try:
            length = writing.durable_length()
        except StoreError as error:
            self._failed(handle, error)
            return
        handle.synced_at = self._clock.monotonic()
        with self._cond:
            self._state.mark_durable(file, length)
            self._store_recovered()
        self._changed()

    def _hand_over(self, handle: _FileWrite) -> None:
        with self._cond:
            file = handle.file
            if file.state is FileState.CLOSING and file.written >= file.length:
                self._handles.pop(file, None)
                self._closing.append(handle)
                self._cond.notify_all()

    # the closers

    def _close_all(self) -> None:
        while True:
            with self._cond:
                self._cond.wait_for(lambda: self._closing or self._ended)
                if not self._closing:
                    return
                handle = self._closing.popleft()
                self._at_closers.append(handle)
            try:
                self._close(handle)
            except Exception as error:  # a dead closer would hold its file for ever
                log.exception("stream %s", self.name)
                self._failed(handle, error)
            finally:
                with self._cond:
                    self._at_closers.remove(handle)
                    self._cond.notify_all()

    def _close(self, handle: _FileWrite) -> None:
        """Write the index, close and rename the file, which is done only then. Any failure before acks nothing."""
        file, writing = handle.file, handle.rolling_file
        if writing is None or file.state is not FileState.CLOSING:
            return
        try:
            writing.write(encode_index(file.base, handle.lanes, handle.count))
            writing.close()
            final = finished_path(FinishedName(self.name, file.base, file.end), handle.opened_ms)
            if self._ended:
                raise StoreError("the stream was closed meanwhile")
            writing.close_as(final)
        except StoreError as error:
            self._failed(handle, error)
            return
        with self._cond:
            self._state.mark_closed(file)
            self._store_recovered()
            self._cond.notify_all()
        self._changed()

    def _failed(self, handle: _FileWrite, error: Exception) -> None:
        log.error("stream %s, file at %d: %s: agents send its batches again", self.name, handle.file.base, error)
        with self._cond:
            self._store_failed(str(error))
            self._fail(handle, str(error))
        if handle.rolling_file is not None:
            handle.rolling_file.abandon()
        self._changed()

    def _fail(self, handle: _FileWrite, why: str) -> None:
        """Under `_cond`."""
        self._state.mark_failed(handle.file, why)
        self._drop(handle)
        self._cond.notify_all()

    def _store_failed(self, why: str) -> float:
        """Note a failure of the store and refuse batches for a growing pause, since refused agents retry at once. Under
        `_cond`."""
        self._failures += 1
        self.problem = why
        pause = backoff_s(self._failures, 0.25, 15.0)
        self._retry_at = self._clock.monotonic() + pause
        return pause

    def _store_recovered(self) -> None:
        """Note that the store works. Under `_cond`."""
        self._failures, self.problem = 0, ""

    def _drop(self, handle: _FileWrite) -> None:
        self._handles.pop(handle.file, None)
