"""The write-ahead log of an agent: what it has accepted and nobody else is known to hold. docs/formats/wal.md.

`append` hands records to one flusher thread, which writes everything that waits, calls fsync once, and only then
answers: *accepted* means on the disk. What became of batches (SENT, ACKED) is noted without waiting, since losing a
note costs a repeat that the stores drop.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from artimon.model.batch import BatchHeader
from artimon.model.protocols import SinkRefused
from pipeline.epoch import (
    Failure,
    begin_epoch,
    note_failure,
    read_epoch,
    read_failure,
    settle_failure,
    this_host,
    why_new,
)
from pipeline.files import Files, FolderLock, LogError, SystemFiles
from pipeline.framing import RECORD_BYTES, RecordType, encode_record
from pipeline.records import Place, encode_end
from pipeline.recovery import Recovery, look, repair
from pipeline.segments import Segments

log = logging.getLogger(__name__)

SEGMENT_BYTES = 64 * 1024 * 1024
QUOTA_BYTES = 8 * 1024**3
_WAITING_BYTES = 64 * 1024 * 1024
_NOTES_BYTES = 16 * 1024 * 1024
_NOTE_DELAY_S = 0.5
_ROOM_S = 10.0


class LogFailed(LogError):
    """The disk failed while this was being made durable. It may or may not be delivered; only a restart can tell."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A batch or announcement to be accepted. `minutes`: (end of the minute in ms, samples with a value in it)."""

    type: RecordType
    header: BatchHeader
    payload: bytes
    minutes: tuple[tuple[int, int], ...] = ()


Durable = Callable[[Sequence[tuple[Entry, Place]]], None]
"""Called by the flusher, in log order, once entries are durable and before those who wait are told."""


class Log:
    """One log folder, held by one process.

    Locks: `_cond` guards the queues and the counts; the flusher writes to the disk without holding it.
    """

    def __init__(
        self,
        folder: Path,
        agent: str,
        lanes: int,
        durable: Durable,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        quota_bytes: int = QUOTA_BYTES,
        files: Files | None = None,
        host: str | None = None,
    ) -> None:
        """Lock the folder and recover it. Raises LogLocked, OSError."""
        self._files = files or SystemFiles()
        self._folder, self._segment_bytes, self.quota_bytes = folder, segment_bytes, quota_bytes
        folder.mkdir(parents=True, exist_ok=True)
        self._lock_file = FolderLock(folder)
        try:
            self.recovered = self._recover(agent, lanes, host or this_host())
            self._written = self.recovered.sequences(self.epoch, lanes)
            """Next sequence of each lane by what has been written; what the header of a new segment says."""
            self._segments = Segments(self._files, folder, self.recovered)
            self._segments.begin(self.epoch, self._written)
        except BaseException:
            self._lock_file.release()
            raise
        self._durable = durable
        self._cond = threading.Condition()
        self._waiting: list[tuple[Sequence[Entry], Future[list[Place]]]] = []
        self._waiting_bytes = 0
        self._notes: list[tuple[RecordType, bytes]] = []
        self._notes_bytes = 0
        self._stopping = False
        self.keep_segments = False
        """While set nothing is deleted: somebody reads the log from its beginning."""
        self.problem = ""
        """Why the log takes nothing more until a restart, "" while it works."""
        self.fsyncs = 0
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    @property
    def used_bytes(self) -> int:
        """Bytes on the disk, waiting ones included."""
        return self._segments.used_bytes + self._waiting_bytes

    @property
    def next_sequences(self) -> list[int]:
        """The first sequence of each lane that was not yet given away when the log was opened or last written."""
        return list(self._written)

    @property
    def first_segment(self) -> int:
        return self._segments.oldest

    @property
    def own_segment(self) -> int:
        """The first segment that this process wrote."""
        return self.recovered.next_segment

    def append(self, entries: Sequence[Entry]) -> Future[list[Place]]:
        """Accept all of `entries` or none; the future ends when they are durable.

        Raises SinkRefused (here or through the future) when nothing was kept, LogFailed through the future when the
        disk failed meanwhile. Waits up to 10 s for room when the disk is slower than the sources."""
        size = sum(RECORD_BYTES + len(entry.payload) for entry in entries)
        future: Future[list[Place]] = Future()
        future.set_running_or_notify_cancel()  # who gives up waiting does not take the batch back
        with self._cond:
            self._cond.wait_for(lambda: self._room(size), _ROOM_S)
            self._refuse_if_closed(size)
            self._waiting.append((entries, future))
            self._waiting_bytes += size
            self._cond.notify_all()
        return future

    def note(self, type: RecordType, payloads: Iterable[bytes]) -> None:
        """Write soon, without promise: what became of batches. Dropped when the disk cannot keep up or has failed."""
        with self._cond:
            for payload in payloads:
                if self.problem or self._stopping or self._notes_bytes + len(payload) > _NOTES_BYTES:
                    return
                self._notes.append((type, payload))
                self._notes_bytes += RECORD_BYTES + len(payload)
            self._cond.notify_all()

    def read(self, place: Place) -> bytes:
        """The payload at `place`, checked. Raises CorruptRecord, OSError."""
        return self._segments.read(place)

    def release(self, places: Iterable[Place]) -> None:
        """These need not be kept any longer; segments that hold nothing else go."""
        for place in places:
            self._segments.release(place.segment)
        with self._cond:
            self._cond.notify_all()

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what waits, give up the folder. Bounded by `timeout_s` unless the disk itself hangs."""
        with self._cond:
            self._stopping = True
            self._cond.notify_all()
        self._thread.join(timeout_s)
        if not self._thread.is_alive():
            self._segments.close()
            self._lock_file.release()

    def _recover(self, agent: str, lanes: int, host: str) -> Recovery:
        failure = read_failure(self._folder)
        found = look(self._folder, failure)
        epoch_file = read_epoch(self._folder)
        reasons = [
            why_new(self._folder, epoch_file, agent, host, lanes),
            found.trouble(),
            "an fsync had failed" if failure else "",
        ]
        self.new_epoch_because = "; ".join(reason for reason in reasons if reason)
        if epoch_file is None and not found.segments:  # a new log: nothing was given away before
            self.new_epoch_because = ""
            self.epoch = begin_epoch(self._files, self._folder, agent, host, lanes)
        elif epoch_file is None or self.new_epoch_because:
            self.epoch = begin_epoch(self._files, self._folder, agent, host, lanes)
            log.warning("log %s: new epoch %016x: %s", self._folder, self.epoch, self.new_epoch_because)
        else:
            self.epoch = epoch_file.number
        repair(self._files, self._folder, found)
        settle_failure(self._files, self._folder)
        return found

    def _room(self, size: int) -> bool:
        return self._stopping or bool(self.problem) or not self._waiting or self._waiting_bytes + size <= _WAITING_BYTES

    def _refuse_if_closed(self, size: int) -> None:
        if self.problem:
            raise SinkRefused(f"the log takes nothing more: {self.problem}")
        if self._stopping:
            raise SinkRefused("the log is closed")
        if self._waiting and self._waiting_bytes + size > _WAITING_BYTES:
            raise SinkRefused(f"the disk is too slow: {self._waiting_bytes} bytes wait in memory")
        if self.used_bytes + size > self.quota_bytes:
            raise SinkRefused(
                f"quota: the log {self._folder} holds {self.used_bytes} of {self.quota_bytes} bytes, not acked; "
                "see `artimon status` for what does not take them, or raise the quota"
            )

    def _run(self) -> None:
        while True:
            with self._cond:
                self._cond.wait_for(lambda: self._waiting or self._stopping, _NOTE_DELAY_S)
                groups, self._waiting = self._waiting, []
                notes, self._notes, self._notes_bytes = self._notes, [], 0
                stopping = self._stopping
            if not self.problem:
                self._flush(groups, notes, stopping)
            for _, future in groups:  # only those that nobody has answered
                if not future.done():
                    future.set_exception(SinkRefused(f"the log takes nothing more: {self.problem}"))
            with self._cond:
                self._waiting_bytes = sum(RECORD_BYTES + len(e.payload) for g, _ in self._waiting for e in g)
                self._cond.notify_all()
                if stopping and not self._waiting:
                    return

    def _flush(
        self,
        groups: list[tuple[Sequence[Entry], Future[list[Place]]]],
        notes: list[tuple[RecordType, bytes]],
        stopping: bool,
    ) -> None:
        try:
            self._write_notes(notes)
            while groups:
                count, size = self._fitting(groups)
                self._write_groups(groups[:count], size)
                del groups[:count]
            if stopping and self._segments.active is not None:
                self._sync()
            if not self.keep_segments:
                self._segments.delete_done()
        except LogFailed as error:
            for _, future in groups:
                if not future.done():
                    future.set_exception(error)
        except OSError as error:
            log.error("log %s: %s", self._folder, error)
            for _, future in groups:
                future.set_exception(SinkRefused(f"the disk of {self._folder} refuses: {error}"))

    def _fitting(self, groups: list[tuple[Sequence[Entry], Future[list[Place]]]]) -> tuple[int, int]:
        """How many of the first groups go into one write, at most what is left of the segment (but at least one)."""
        left = max(1, self._segment_bytes - self._segments.size)
        count = size = 0
        for entries, _ in groups:
            more = sum(RECORD_BYTES + len(entry.payload) for entry in entries)
            if count and size + more > left:
                break
            count, size = count + 1, size + more
        return count, size

    def _write_groups(self, groups: list[tuple[Sequence[Entry], Future[list[Place]]]], size: int) -> None:
        number = self._open_segment(size)
        at = self._segments.size
        parts: list[bytes] = []
        placed: list[tuple[Entry, Place]] = []
        for entries, _ in groups:
            for entry in entries:
                parts.append(encode_record(number, entry.type, entry.payload))
                placed.append((entry, Place(number, at + RECORD_BYTES, len(entry.payload))))
                at += len(parts[-1])
        self._write(b"".join(parts))
        self._sync()
        self._segments.hold(number, len(placed))
        for entry, _ in placed:
            if entry.type == RecordType.BATCH:
                self._written[entry.header.id.lane] = entry.header.id.sequence + 1
        self._tell(placed)
        first = 0
        for entries, future in groups:
            future.set_result([place for _, place in placed[first : first + len(entries)]])
            first += len(entries)

    def _write_notes(self, notes: list[tuple[RecordType, bytes]]) -> None:
        if notes:
            number = self._open_segment(0)
            self._write(b"".join(encode_record(number, type_, payload) for type_, payload in notes))

    def _open_segment(self, size: int) -> int:
        """The segment to write to, a new one if the active one is full."""
        if self._segments.active is not None and self._segments.size + size > self._segment_bytes:
            self._write(encode_record(self._segments.active, RecordType.END, encode_end(self._segments.active + 1)))
            self._sync()
            self._segments.retire()
        if self._segments.active is None:
            self._segments.begin(self.epoch, self._written)
        if self._segments.active is None:
            raise OSError("no segment could be opened")
        return self._segments.active

    def _write(self, data: bytes) -> None:
        try:
            self._segments.write(data)
        except OSError:
            try:
                self._segments.cut_back()
            except OSError as error:
                self._fail(error)
            raise

    def _sync(self) -> None:
        try:
            self._segments.sync()
            self.fsyncs += 1
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        """A disk that failed once to make data durable is not asked again: the page may be clean and the data gone."""
        segment = self._segments.active or 0
        self.problem = f"the disk of {self._folder} failed ({error}): check it, then restart the agent"
        log.critical("log: %s", self.problem)
        try:
            note_failure(self._files, self._folder, Failure(segment, self._segments.synced))
        except OSError as second:
            log.error("log: could not leave word of the failure: %s", second)
        raise LogFailed(self.problem) from error

    def _tell(self, placed: Sequence[tuple[Entry, Place]]) -> None:
        try:
            self._durable(placed)
        except Exception:  # the flusher must live on; what was accepted stays accepted
            log.exception("log: a listener failed")
