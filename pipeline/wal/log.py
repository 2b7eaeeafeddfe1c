"""Write-ahead log of an agent: accepted records that no other process is known to hold. docs/formats/wal.md.

`append` hands records to one flusher thread, which writes everything that waits, calls fsync once, and only then
answers: *accepted* means on the disk. State changes of batches (SENT, ACKED) are noted without waiting, since a lost
note costs only a repeat that the stores drop. The decisions are in `pipeline.wal.log_core`; here are the threads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path

from artimon.model.protocols import SinkRefusedError
from pipeline.wal.file_system import FileSystem
from pipeline.wal.log_core import (
    QUOTA_BYTES,
    SEGMENT_BYTES,
    AppendRequest,
    LogCore,
    LogEntry,
    LogWriteError,
    PendingWrites,
    QuotaExceededError,
    WrittenEntries,
)
from pipeline.wal.recovery import Recovery
from pipeline.wal.segment_format import RECORD_BYTES, RecordType
from pipeline.wal.segments import CorruptRecordError
from pipeline.wal.state_records import LogPosition, encode_forgotten

__all__ = [
    "QUOTA_BYTES",
    "SEGMENT_BYTES",
    "LogEntry",
    "LogWriteError",
    "OnDurable",
    "QuotaExceededError",
    "WriteAheadLog",
]

log = logging.getLogger(__name__)

MAX_NOTE_DELAY_S = 0.5
"""Longest pause of the flusher in seconds, and so the longest delay of notes and of deletions."""
_ROOM_TIMEOUT_S = 10.0

OnDurable = Callable[[Sequence[tuple[LogEntry, LogPosition]]], None]
"""Called by the flusher, in log order, once entries are durable and before the futures of `append` end."""


class WriteAheadLog:
    """One log folder, locked by one process.

    Locks: `_cond` guards the queues and the counts of the core; the flusher writes to the disk without holding it.
    """

    def __init__(
        self,
        folder: Path,
        agent: str,
        lanes: int,
        durable: OnDurable,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        quota_bytes: int = QUOTA_BYTES,
        files: FileSystem | None = None,
        host: str | None = None,
        lazy: bool = False,
    ) -> None:
        """Lock the folder and recover it; `lazy`: call `recover` before anything that needs `recovered`. Raises
        LogLockedError, NewerFormatError, OSError."""
        self._core = LogCore(
            folder,
            agent,
            lanes,
            segment_bytes=segment_bytes,
            quota_bytes=quota_bytes,
            files=files,
            host=host,
            lazy=lazy,
        )
        self.folder, self.read, self.quarantine_size = folder, self._core.read, self._core.quarantine_size
        self.oldest_live = self._core.oldest_live
        self._durable = durable
        self._cond = threading.Condition()
        self._futures: dict[int, Future[list[LogPosition]]] = {}
        """Waiting callers by the id of their ticket."""
        self._jobs: list[tuple[Callable[[], None], Future[None]]] = []
        """Calls that only the flusher may make."""
        self._tidy = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    @property
    def epoch(self) -> int:
        """Epoch of new batches; changes while the log is in use if `recover` finds damage."""
        return self._core.epoch

    @property
    def new_epoch_because(self) -> str:
        return self._core.new_epoch_because

    @property
    def recovered(self) -> Recovery:
        """Content of the log when it was opened; only that of its newest segments until `complete`."""
        return self._core.recovered

    @property
    def is_recovered(self) -> bool:
        return self._core.is_recovered

    @property
    def problem(self) -> str:
        """Reason why the log accepts nothing until a restart; "" while it works."""
        return self._core.problem

    @property
    def fsyncs(self) -> int:
        return self._core.fsyncs

    @property
    def quota_bytes(self) -> int:
        return self._core.quota_bytes

    @quota_bytes.setter
    def quota_bytes(self, quota_bytes: int) -> None:
        with self._cond:
            self._core.quota_bytes = quota_bytes
            self._cond.notify_all()

    @property
    def deletion_paused(self) -> bool:
        """While True no segment is deleted, because a reader reads the log from its beginning."""
        return self._core.deletion_paused

    @deletion_paused.setter
    def deletion_paused(self, keep: bool) -> None:
        self._core.deletion_paused = keep

    def on_delete(self, before: Callable[[], None]) -> None:
        """Set the callback that the flusher calls before it deletes segments; if it raises OSError they stay."""
        self._core.before_delete = before

    @property
    def used_bytes(self) -> int:
        """Bytes on disk plus bytes waiting to be written."""
        return self._core.used_bytes

    @property
    def next_sequences(self) -> list[int]:
        """Next free sequence of each lane, as of the opening of the log or its last write."""
        return self._core.next_sequences

    @property
    def segment_range(self) -> range:
        """Numbers of the segments that a later start may find."""
        return self._core.segment_range

    @property
    def first_own_segment(self) -> int:
        """First segment written by this process."""
        return self._core.first_own_segment

    def append(self, entries: Sequence[LogEntry], beyond_quota: bool = False) -> Future[list[LogPosition]]:
        """Accept all of `entries` or none; the future ends when they are durable.

        Raises SinkRefusedError (here or through the future) when nothing was kept, LogWriteError through the future
        when the disk failed meanwhile. Waits up to 10 s for room when the disk is slower than the sources."""
        size = sum(RECORD_BYTES + len(entry.payload) for entry in entries)
        future: Future[list[LogPosition]] = Future()
        future.set_running_or_notify_cancel()  # a caller that stops waiting does not take the batch back
        with self._cond:
            self._cond.wait_for(lambda: self._stopping or self.problem or self._core.has_room(size), _ROOM_TIMEOUT_S)
            if self._stopping and not self.problem:
                raise SinkRefusedError("the log is closed")
            ticket = self._core.append(entries, beyond_quota)
            self._futures[id(ticket)] = future
            self._cond.notify_all()
        return future

    def append_notes(self, type: RecordType, payloads: Iterable[bytes]) -> None:
        """Write records about the state of batches soon, best effort; dropped if the disk is too slow or has failed."""
        with self._cond:
            if not self._stopping:
                self._core.append_notes(type, payloads)
            self._cond.notify_all()

    def release(self, places: Iterable[LogPosition]) -> None:
        """Stop keeping these records; segments that hold no others are deleted."""
        self._core.release(places)
        with self._cond:
            self._cond.notify_all()

    def recover(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Recover the rest of the log while it is in use; when this returns True `recovered` is complete. False: `stop`
        returned True or the log was closed. Raises NewerFormatError, OSError, LogWriteError."""
        while not self._core.recover_next_segment():
            if stop() or self._stopping:
                return False
        return self._run_in_flusher(self._core.finish_recovery)

    def quarantine_batches(self, places: Iterable[tuple[LogPosition, str]]) -> list[LogPosition]:
        """Quarantine batches (place, reason) in `error/`, where they are counted until `artimon wal repair --again`
        restores them. Returns the places that succeeded; retry the others."""
        gone = []
        for place, why in places:
            try:
                self._core.quarantine_batch(place, why)
            except (CorruptRecordError, OSError) as error:
                log.error("log %s: %s could not be quarantined: %s", self.folder, place, error)
            else:
                gone.append(place)
        self.append_notes(RecordType.FORGOTTEN, encode_forgotten(gone))
        self.release(gone)
        return gone

    def quarantine_bytes(self, places: Iterable[LogPosition]) -> None:
        """Copy the bytes of unreadable, abandoned batches to `damaged/`, so that they no longer hold back segments.
        Bytes that cannot be copied now stay in place until the next start."""
        gone = []
        for place in places:
            try:
                self._core.quarantine_bytes(place)
            except OSError as error:
                log.error("log %s: the bytes at %s could not be quarantined: %s", self.folder, place, error)
            else:
                gone.append(place)
        self.release(gone)

    def delete_unneeded(self) -> None:
        """Delete at once the segments that are no longer needed."""
        self._run_in_flusher(self._core.delete_unneeded)

    def roll(self) -> bool:
        """End the open segment; later records go to a new one. False if the log is closed. Raises OSError."""
        return self._run_in_flusher(self._core.roll)

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what waits and release the folder. Takes at most about `timeout_s` unless the disk hangs."""
        with self._cond:
            self._stopping = True
            self._cond.notify_all()
        self._thread.join(timeout_s)
        if not self._thread.is_alive():
            self._core.close()

    def _run_in_flusher(self, job: Callable[[], None], timeout_s: float = 60.0) -> bool:
        """Run `job` in the flusher; False if the log is closed."""
        done: Future[None] = Future()
        with self._cond:
            if self._stopping:
                return False
            self._jobs.append((job, done))
            self._cond.notify_all()
        done.result(timeout_s)
        return True

    def _run(self) -> None:
        while True:
            with self._cond:
                self._cond.wait_for(lambda: self._core.has_waiting or self._stopping or self._jobs, MAX_NOTE_DELAY_S)
                work, jobs, self._jobs = self._core.take_pending(), self._jobs, []
                stopping = self._stopping
            for job, done in jobs:
                self._run_job(job, done)
            self._write(work)
            if stopping:
                self._core.sync()
            for ticket in work.tickets:  # only those without an answer so far
                self._set_result(ticket)
            with self._cond:
                self._core.release_memory(work)
                self._cond.notify_all()
                if stopping and not self._core.has_waiting:
                    return

    def _write(self, work: PendingWrites) -> None:
        try:
            self._core.write(work, self._notify)
        except Exception as error:  # a bug: no caller may wait for ever, and nothing more is accepted
            log.exception("log %s", self.folder)
            self._core.problem = self._core.problem or f"the log {self.folder} failed: {error!r}"
            for ticket in work.tickets:
                if not ticket.done:
                    ticket.error = LogWriteError(self._core.problem)

    def _run_job(self, job: Callable[[], None], done: Future[None]) -> None:
        try:
            job()
        except Exception as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    def _notify(self, tickets: Sequence[AppendRequest], placed: WrittenEntries) -> None:
        try:
            self._durable(placed)
        except Exception:  # the flusher must live on; accepted entries stay accepted
            log.exception("log: a listener failed")
        for ticket in tickets:
            self._set_result(ticket)

    def _set_result(self, ticket: AppendRequest) -> None:
        with self._cond:
            future = self._futures.pop(id(ticket), None)
        if future is None:
            return
        if ticket.error is not None:
            future.set_exception(ticket.error)
        else:
            future.set_result(ticket.places or [])
