"""Write-ahead log without threads: acceptance, durability and recovery. docs/formats/wal.md.

One owner, one writer: `append`, `note` and `collect` are the owner's (it locks), `write` is called by one thread at a
time and does all the I/O. `pipeline.wal.log.WriteAheadLog` drives it with a thread; the simulation drives it step by
step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from artimon.model.batch import BatchHeader
from artimon.model.batch_codec import parse_header
from artimon.model.protocols import SinkRefusedError
from pipeline.wal import epoch as epochs
from pipeline.wal.file_system import LOCAL_FILE_SYSTEM, FileSystem, LogError, ensure_folder
from pipeline.wal.quarantine import QuarantineSize, quarantine_batch, quarantine_size
from pipeline.wal.recovery import (
    Recovery,
    check_versions,
    count_of_newest,
    missing_segments,
    recover_segments,
    segments_in,
)
from pipeline.wal.repair import quarantine_bytes, repair_segments
from pipeline.wal.segment_format import RECORD_BYTES, RecordType, encode_record
from pipeline.wal.segments import Segments
from pipeline.wal.state_records import LogPosition, encode_end

log = logging.getLogger(__name__)

SEGMENT_BYTES = 64 * 1024 * 1024
QUOTA_BYTES = 8 * 1024**3
MAX_WAITING_BYTES = 64 * 1024 * 1024
MAX_BATCHES = 1_000_000
"""Limit of unacked records in one log: each costs its sender half a KB of memory, however small it is."""
_MAX_NOTES_BYTES = 16 * 1024 * 1024


class LogWriteError(LogError):
    """The disk failed while it made these entries durable. Whether they are delivered is known only after a restart."""


class QuotaExceededError(SinkRefusedError):
    """The log has reached its quota; nothing of the request was kept."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """Batch or announcement to accept. `minutes`: (end of the minute in ms, samples with a value in it)."""

    type: RecordType
    header: BatchHeader
    payload: bytes
    minutes: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True, eq=False)
class AppendRequest:
    """Entries that are accepted together or not at all. After `write` the ticket has places or an error."""

    entries: Sequence[LogEntry]
    size: int
    places: list[LogPosition] | None = None
    error: SinkRefusedError | LogWriteError | None = None

    @property
    def done(self) -> bool:
        return self.places is not None or self.error is not None


@dataclass(slots=True)
class PendingWrites:
    """Tickets and notes that one `write` takes."""

    tickets: list[AppendRequest] = field(default_factory=list)
    notes: list[tuple[RecordType, bytes]] = field(default_factory=list)


WrittenEntries = list[tuple[LogEntry, LogPosition]]
OnWritten = Callable[[Sequence[AppendRequest], WrittenEntries], None]
"""Callback of the writer, in log order, once these tickets are durable; gets the entries of all of them, in order."""


class LogCore:
    """One log folder, locked by one process."""

    def __init__(
        self,
        folder: Path,
        agent: str,
        lanes: int,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        quota_bytes: int = QUOTA_BYTES,
        files: FileSystem | None = None,
        host: str | None = None,
        lazy: bool = False,
        draw: Callable[[], int] = epochs.random_epoch,
    ) -> None:
        """Lock the folder and recover it; if `lazy`, only what must precede the first accept: call
        `recover_next_segment` for the rest. `draw` returns the numbers of new epochs. Raises LogLockedError,
        NewerFormatError, OSError."""
        self._files: FileSystem = files or LOCAL_FILE_SYSTEM
        self.folder, self.segment_bytes, self.quota_bytes = folder, segment_bytes, quota_bytes
        self._agent, self._lanes, self._host, self._draw = agent, lanes, host or epochs.host_identity(), draw
        self._unseen: list[int] = []
        """Old segments not yet recovered since the log was opened."""
        self._seen_from = 0
        self._older: list[Recovery] = []
        """Recovered content of the first segments in `_unseen`."""
        self.recovered = Recovery()
        """Content of the log when it was opened; only that of its newest segments until `complete`."""
        self._waiting: list[AppendRequest] = []
        self._waiting_bytes = 0
        self._notes: list[tuple[RecordType, bytes]] = []
        self._notes_bytes = 0
        self.deletion_paused = False
        """While True no segment is deleted, because a reader reads the log from its beginning."""
        self.problem = ""
        """Reason why the log accepts nothing until a restart; "" while it works."""
        self.fsyncs = 0
        self.before_delete: Callable[[], None] | None = None
        """Called by the writer before it deletes segments, to save elsewhere their content that is still needed."""
        ensure_folder(self._files, folder)
        self._lock_file = self._files.lock(folder)
        try:
            self._open(lazy)
        except BaseException:
            self._lock_file.release()
            raise

    # -- called by the owner, under its lock

    def append(self, entries: Sequence[LogEntry], beyond_quota: bool = False) -> AppendRequest:
        """Accept all of `entries` or none with the next `write`. Raises SinkRefusedError (QuotaExceededError) when
        nothing is kept. `beyond_quota`: for small records that free space."""
        ticket = AppendRequest(entries, sum(RECORD_BYTES + len(entry.payload) for entry in entries))
        self._refusal_of(ticket.size, beyond_quota)
        self._waiting.append(ticket)
        self._waiting_bytes += ticket.size
        return ticket

    def has_room(self, size: int) -> bool:
        """Return True if `size` more bytes may wait in memory for the disk."""
        return not self._waiting or self._waiting_bytes + size <= MAX_WAITING_BYTES

    def append_notes(self, type: RecordType, payloads: Iterable[bytes]) -> None:
        """Queue records about the state of batches for the next `write`, best effort. They are dropped when the disk
        cannot keep up or has failed."""
        for payload in payloads:
            if self.problem or self._notes_bytes + len(payload) > _MAX_NOTES_BYTES:
                return
            self._notes.append((type, payload))
            self._notes_bytes += RECORD_BYTES + len(payload)

    def take_pending(self) -> PendingWrites:
        """Take all waiting tickets and notes; pass them to `write`, then call `written`."""
        work = PendingWrites(self._waiting, self._notes)
        self._waiting, self._notes, self._notes_bytes = [], [], 0
        return work

    def release_memory(self, work: PendingWrites) -> None:
        """Deduct the bytes of `work` from those that wait, after the writer has finished it."""
        self._waiting_bytes -= sum(ticket.size for ticket in work.tickets)

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def used_bytes(self) -> int:
        """Bytes on disk plus bytes waiting to be written."""
        return self._segments.used_bytes + self._waiting_bytes

    @property
    def next_sequences(self) -> list[int]:
        """Next free sequence of each lane, as of the opening of the log or its last write."""
        return list(self._written)

    @property
    def segment_range(self) -> range:
        """Return the numbers of the segments that a later start may find; callable from any thread."""
        return self._segments.segment_range

    @property
    def live_count(self) -> int:
        """Number of records that must be kept; complete once `complete` is True."""
        return self._segments.live_count()

    def oldest_live(self) -> list[LogPosition]:
        """Return the records to keep of the oldest full segment: giving up all of them frees it. Empty while nothing
        may be deleted."""
        return self._segments.oldest_live() if self.is_recovered and not self.deletion_paused else []

    def release(self, places: Iterable[LogPosition]) -> None:
        """Stop keeping these records; segments that hold no others are deleted with the next `write`."""
        self._segments.release(places)

    # -- callable from any thread

    def read(self, place: LogPosition) -> bytes:
        """Return the payload at `place` after checking it. Raises CorruptRecordError, OSError."""
        return self._segments.read(place)

    # -- called by the writer

    def flush(self) -> WrittenEntries:
        """Write everything that waits and return the durable entries, in log order. For owners without threads; the
        tickets of refused entries hold the error."""
        durable: WrittenEntries = []
        work = self.take_pending()

        self.write(work, lambda _tickets, placed: durable.extend(placed))
        self.release_memory(work)
        return durable

    def write(self, work: PendingWrites, tell: OnWritten) -> None:
        """Write and fsync `work` with as few fsyncs as segments allow; afterwards every ticket is done."""
        groups = list(work.tickets)
        try:
            if not self.problem:
                self._write_notes(work.notes)
            while groups and not self.problem:
                count, size = self._fit_to_segment(groups)
                self._write_group(groups[:count], size, tell)
                del groups[:count]
            self._roll_acked()
            self.delete_unneeded()
        except LogWriteError as error:
            _refuse_all(groups, error)
        except OSError as error:
            log.error("log %s: %s", self.folder, error)
            _refuse_all(groups, SinkRefusedError(f"the disk of {self.folder} refuses writes: {error}"))
            self._make_room()
        _refuse_all(groups, SinkRefusedError(f"the log accepts nothing until a restart: {self.problem}"))

    def delete_unneeded(self) -> None:
        """Delete segments that are no longer needed."""
        if self._may_delete:
            self._segments.delete_done(self.before_delete)

    def _roll_acked(self) -> None:
        """Begin a new segment if the active one fills half of the quota and no record is needed any more: the newest
        segment is never deleted, so the log would refuse everything for ever."""
        large = self._segments.active is not None and self._segments.size > self.quota_bytes // 2
        if large and self._may_delete and not self.live_count:
            self._next_segment()

    @property
    def _may_delete(self) -> bool:
        """True if segments may be deleted now."""
        return not self.deletion_paused and self.is_recovered and not self.problem

    def _make_room(self) -> None:
        """Free space after a refused write: the disk may be full, and a later write may then fit."""
        try:
            self.delete_unneeded()
        except OSError as error:
            log.error("log %s: cannot delete segments: %s", self.folder, error)

    def sync(self) -> None:
        """Make durable the notes written since the last batch."""
        if not self.problem and self._segments.active is not None:
            try:
                self._sync()
            except LogWriteError:  # logged already
                pass

    def close(self) -> None:
        """Close the segments and release the lock of the folder."""
        self._segments.close()
        self._lock_file.release()

    def quarantine_batch(self, place: LogPosition, why: str) -> None:
        """Quarantine a batch in `error/` until an operator handles it; it is not sent. Afterwards call `note` for it
        with FORGOTTEN, and `release`. Raises CorruptRecordError, OSError."""
        payload = self.read(place)
        quarantine_batch(self._files, self.folder, parse_header(payload), payload, why)

    def quarantine_bytes(self, place: LogPosition) -> None:
        """Copy the bytes of the unreadable record at `place` to `damaged/`. Call `release` afterwards, else it holds
        back all younger segments until the quota is full. Raises OSError."""
        data = self._segments.read_raw(place)
        quarantine_bytes(self._files, self.folder, place.segment, place.offset - RECORD_BYTES, data)

    def quarantine_size(self) -> QuarantineSize:
        """Return counts and bytes of the quarantined files."""
        return quarantine_size(self.folder, self._files)

    # -- recovery

    @property
    def is_recovered(self) -> bool:
        """True once every segment has been recovered and `recovered` holds the whole content at opening."""
        return not self._unseen

    @property
    def first_own_segment(self) -> int:
        """First segment written by this process."""
        return self.recovered.next_segment

    def recover_next_segment(self) -> bool:
        """Recover one more old segment (read only, so concurrently with the writer); True when none is left. Then the
        writer calls `finish_recovery`. Raises NewerFormatError, OSError."""
        if len(self._older) < len(self._unseen):
            number = self._unseen[len(self._older)]
            following = [*self._unseen, self._seen_from][len(self._older) + 1]
            self._older.append(recover_segments(self._files, self.folder, [number], until=following))
        return len(self._older) == len(self._unseen)

    def finish_recovery(self) -> None:
        """Repair the segments that `recover_next_segment` read; `recovered` is complete afterwards. Called by the
        writer."""
        if self.is_recovered:
            return
        while not self.recover_next_segment():
            pass
        trouble = "; ".join(older.damage_summary() for older in self._older if older.damage_summary())
        if trouble and not self.new_epoch_because:  # else one was begun when the log was opened
            self._switch_epoch(trouble)
        found = self.recovered
        for older in reversed(self._older):
            repair_segments(self._files, self.folder, older, newest=False)
            found = older.merged_with(found)
        self._unseen, self._older = [], []
        self._finish(found)

    def _open(self, lazy: bool) -> None:
        numbers = segments_in(self.folder, self._files)
        failure = epochs.read_failure(self.folder, self._files)
        count = (
            count_of_newest(self._files, self.folder, numbers, failure, self.segment_bytes) if lazy else len(numbers)
        )
        at = len(numbers) - count
        check_versions(self._files, self.folder, numbers[:at])
        found = recover_segments(self._files, self.folder, numbers[at:], failure)
        found.missing = sorted({*found.missing, *missing_segments(numbers)})
        self._unseen, self._seen_from = numbers[:at], numbers[at] if at else 0
        self._choose_epoch(found, bool(failure), new=not numbers)
        repair_segments(self._files, self.folder, found)
        epochs.clear_failure(self._files, self.folder)
        self._written = found.next_sequences_of(self.epoch, self._lanes)
        """Next sequence of each lane by the records written; stored in the header of a new segment."""
        self._segments = Segments(self._files, self.folder, found.next_segment)
        self._segments.create_next(self.epoch, self._written)
        self._unseen = [n for n in segments_in(self.folder, self._files) if n < self._seen_from]
        self.recovered = found
        if self.is_recovered:
            self._finish(found)

    def _finish(self, found: Recovery) -> None:
        found.drop_acked()
        self.recovered = found
        self._segments.hold(place for _, place in (*found.batches, *found.series))

    def _choose_epoch(self, found: Recovery, failed: bool, new: bool) -> None:
        said = epochs.read_epoch(self.folder, self._files)
        reasons = [
            epochs.reason_for_new_epoch(self.folder, said, self._agent, self._host, self._lanes, self._files),
            found.damage_summary(),
            "an earlier fsync failed" if failed else "",
            "no segment is left that records the sequences that were assigned" if new and said is not None else "",
        ]
        self.new_epoch_because = "; ".join(reason for reason in reasons if reason)
        if said is None and new:  # a new log: no sequence was assigned before
            self.new_epoch_because = ""
        if said is not None and not self.new_epoch_because:
            self.epoch = said.number
            return
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self.epoch = epochs.begin_epoch(self._files, self.folder, self._agent, self._host, self._lanes, self._draw)
        if self.new_epoch_because:
            log.warning("log %s: new epoch %016x: %s", self.folder, self.epoch, self.new_epoch_because)

    def _switch_epoch(self, because: str) -> None:
        """Begin an epoch while the log is in use. Batches accepted under the old epoch keep it and may still arrive."""
        self.new_epoch_because = because
        self._begin_epoch()
        self._written = [0] * self._lanes
        self._next_segment()

    # -- writing

    def _refusal_of(self, size: int, beyond_quota: bool) -> None:
        if self.problem:
            raise SinkRefusedError(f"the log accepts nothing until a restart: {self.problem}")
        if not self.has_room(size):
            raise SinkRefusedError(f"the disk is too slow: {self._waiting_bytes} bytes wait in memory")
        if self.used_bytes + size > self.quota_bytes and not beyond_quota:
            raise QuotaExceededError(
                f"quota: the log {self.folder} holds {self.used_bytes} of {self.quota_bytes} bytes without ack; "
                "see `artimon status` for the receiver that does not take them, or raise the quota"
            )
        if self.live_count >= MAX_BATCHES and not beyond_quota:
            raise QuotaExceededError(
                f"quota: the log {self.folder} holds {self.live_count} batches without ack, at most {MAX_BATCHES} "
                "of any size: see `artimon status` for the receiver that does not take them"
            )

    def _fit_to_segment(self, groups: list[AppendRequest]) -> tuple[int, int]:
        """Return number and bytes of the first tickets that fit into the rest of the segment, at least one ticket."""
        left = max(1, self.segment_bytes - self._segments.size)
        count = size = 0
        for ticket in groups:
            if count and size + ticket.size > left:
                break
            count, size = count + 1, size + ticket.size
        return count, size

    def _write_group(self, tickets: list[AppendRequest], size: int, tell: OnWritten) -> None:
        number = self._open_segment(size)
        at = self._segments.size
        parts: list[bytes] = []
        placed: WrittenEntries = []
        for ticket in tickets:
            for entry in ticket.entries:
                parts.append(encode_record(number, entry.type, entry.payload))
                placed.append((entry, LogPosition(number, at + RECORD_BYTES, len(entry.payload))))
                at += len(parts[-1])
        self._write(b"".join(parts))
        self._sync()
        self._segments.hold(place for _, place in placed)
        self._mark_used(placed)
        first = 0
        for ticket in tickets:
            ticket.places = [place for _, place in placed[first : first + len(ticket.entries)]]
            first += len(ticket.entries)
        tell(tickets, placed)

    def _mark_used(self, placed: WrittenEntries) -> None:
        """Mark the sequences of written batches as assigned."""
        for entry, _ in placed:
            id = entry.header.id
            if entry.type == RecordType.BATCH and id.epoch == self.epoch and id.lane < len(self._written):
                self._written[id.lane] = max(self._written[id.lane], id.sequence + 1)

    def _write_notes(self, notes: list[tuple[RecordType, bytes]]) -> None:
        if notes:
            number = self._open_segment(0)
            self._write(b"".join(encode_record(number, type_, payload) for type_, payload in notes))

    def _open_segment(self, size: int) -> int:
        """Return the segment to write to, a new one if the active one is full."""
        if self._segments.active is not None and self._segments.size + size > self.segment_bytes:
            self.roll()
        if self._segments.active is None:
            self._segments.create_next(self.epoch, self._written)
        if self._segments.active is None:
            raise OSError("no segment could be opened")
        return self._segments.active

    def _next_segment(self) -> None:
        """Seal the active segment and begin the next one."""
        self.roll()
        self._segments.create_next(self.epoch, self._written)

    def roll(self) -> None:
        """Write the END record of the active segment, whatever its size, and retire it."""
        if self._segments.active is not None:
            self._write(encode_record(self._segments.active, RecordType.END, encode_end(self._segments.active + 1)))
            self._sync()
            self._segments.close_active()

    def _write(self, data: bytes) -> None:
        try:
            self._segments.write(data)
        except OSError:
            try:
                self._segments.cut_back()
            except OSError as error:
                self._stop_writing(error)
            raise

    def _sync(self) -> None:
        try:
            self._segments.sync()
            self.fsyncs += 1
        except OSError as error:
            self._stop_writing(error)

    def _stop_writing(self, error: OSError) -> None:
        """Refuse all later writes. After a failed fsync the page may be clean and the data gone, so no retry is
        safe."""
        segment = self._segments.active or 0
        self.problem = f"the disk of {self.folder} failed ({error}): check it, then restart the agent"
        log.critical("log: %s", self.problem)
        try:
            epochs.save_failure(self._files, self.folder, epochs.FsyncFailure(segment, self._segments.synced))
        except OSError as second:
            log.error("log: cannot record the failed fsync: %s", second)
        raise LogWriteError(self.problem) from error


def _refuse_all(tickets: Iterable[AppendRequest], error: SinkRefusedError | LogWriteError) -> None:
    for ticket in tickets:
        if not ticket.done:
            ticket.error = error
