"""Segment files of a log: one open for appending, full ones before it, and the records that each must still keep.

Not thread-safe for writing: only the flusher of the log writes, rolls and deletes; any thread may call `read`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pipeline.wal.file_system import FileSystem, LogError
from pipeline.wal.recovery import segment_path, segments_in
from pipeline.wal.segment_format import RECORD_BYTES, SegmentHeader, encode_header, read_record
from pipeline.wal.state_records import LogPosition


class CorruptRecordError(LogError):
    """The disk returns other bytes for an accepted record than were written."""

    def __init__(self, path: Path, place: LogPosition) -> None:
        super().__init__(path, place)
        self.path, self.place = path, place

    def __str__(self) -> str:
        return (
            f"the record at byte {self.place.offset} of {self.path} does not match its checksum: check the disk; "
            "a restart sets it aside and continues with the intact records"
        )


class Segments:
    """Invariant: segments are consecutive; the newest is open for appending, never deleted; `synced` <= `size`."""

    def __init__(self, files: FileSystem, folder: Path, next_segment: int) -> None:
        self._files, self._folder = files, folder
        self._lock = threading.Lock()
        """Guards `_descriptors` and `_live`. No writing under it."""
        self._descriptors: dict[int, int] = {}
        numbers = segments_in(folder, files)
        self._sizes = {number: files.size(segment_path(folder, number)) for number in numbers}
        self._live: dict[int, dict[int, int]] = {number: {} for number in numbers}
        """Lengths of the payloads to keep, by segment and offset."""
        self.deleted_below = min(numbers, default=next_segment)
        """Segments below this are gone for good: no loss of power brings them back once `begin` was called."""
        self.active: int | None = None
        self._next = next_segment
        self.size = 0
        """Bytes written to the active segment."""
        self.synced = 0
        """Bytes of the active segment known to be on the disk."""

    @property
    def used_bytes(self) -> int:
        """Total bytes of all segments."""
        return sum(self._sizes.values())

    @property
    def segment_range(self) -> range:
        """Return the numbers of the segments that a later start may find; callable from any thread."""
        return range(self.deleted_below, self._next)

    def create_next(self, epoch: int, next_sequences: Sequence[int]) -> None:
        """Create the next segment; the file and its folder entry are durable when this returns."""
        number = self._next
        header = encode_header(SegmentHeader(number, epoch, tuple(next_sequences)))
        descriptor = self._files.create(segment_path(self._folder, number))
        try:
            self._files.write(descriptor, 0, header)
            self._files.fsync(descriptor)
            self._files.fsync_folder(self._folder)
        except OSError:
            self._files.close(descriptor)
            self._files.unlink(segment_path(self._folder, number))  # it is empty, so it can be created again
            raise
        with self._lock:
            self._descriptors[number] = descriptor
            self._live[number] = {}
        self._sizes[number] = self.size = self.synced = len(header)
        self.active, self._next = number, number + 1

    def close_active(self) -> None:
        """Close the active segment for writing; its END record has been synced."""
        self.active = None

    def write(self, data: bytes) -> int:
        """Append to the active segment; returns the offset. On OSError `size` is unchanged: call `cut_back`."""
        number = self._active()
        at = self.size
        self._files.write(self._descriptors[number], at, data)
        self.size = self._sizes[number] = at + len(data)
        return at

    def cut_back(self) -> None:
        """Truncate to the last synced byte, which removes the remains of a failed write."""
        number = self._active()
        descriptor = self._descriptors[number]
        self._files.truncate(descriptor, self.synced)
        self._files.fsync(descriptor)
        self.size = self._sizes[number] = self.synced

    def sync(self) -> None:
        """Make everything written so far durable. After an OSError nothing may be written or synced again, ever."""
        self._files.fsync(self._descriptors[self._active()])
        self.synced = self.size

    def read(self, place: LogPosition) -> bytes:
        """Return the payload at `place`; raises CorruptRecordError if it differs from what was written."""
        data = self.read_raw(place)
        found = read_record(data, 0, place.segment)
        if found is None or found.length != place.length:
            raise CorruptRecordError(segment_path(self._folder, place.segment), place)
        return data[RECORD_BYTES:]

    def read_raw(self, place: LogPosition) -> bytes:
        """Return the bytes on disk where the record of that payload was written."""
        with self._lock:
            descriptor = self._descriptors.get(place.segment)
            if descriptor is None:
                descriptor = self._files.open(segment_path(self._folder, place.segment))
                self._descriptors[place.segment] = descriptor
        return self._files.read(descriptor, place.offset - RECORD_BYTES, RECORD_BYTES + place.length)

    def hold(self, places: Iterable[LogPosition]) -> None:
        """Keep these records."""
        with self._lock:
            for place in places:
                self._live[place.segment][place.offset] = place.length

    def release(self, places: Iterable[LogPosition]) -> None:
        """Stop keeping these records."""
        with self._lock:
            for place in places:
                self._live.get(place.segment, {}).pop(place.offset, None)

    def oldest_live(self) -> list[LogPosition]:
        """Return the records to keep of the oldest full segment that holds any, in log order."""
        with self._lock:
            for number in sorted(self._live):
                if number == self.active:
                    break
                if held := self._live[number]:
                    return [LogPosition(number, at, length) for at, length in sorted(held.items())]
        return []

    def live_count(self) -> int:
        """Return the number of payloads to keep."""
        with self._lock:
            return sum(map(len, self._live.values()))

    def delete_done(self, before: Callable[[], None] | None = None) -> list[int]:
        """Delete full segments without live records, oldest first, up to the first one with live records: later
        segments hold the SENT and ACKED records of its batches. The newest stays, active or not: only it records which
        sequences were given. If `before` raises OSError nothing is deleted.

        One fsync of the folder for each deletion: with one for all, a loss of power could bring back a segment without
        the later one that holds its acks."""
        done = []
        with self._lock:
            newest = max(self._sizes, default=0)
            for number in sorted(self._sizes):
                if number == newest or number == self.active or self._live.get(number):
                    break
                done.append(number)
        if done and before is not None:
            before()
        for number in done:
            self._drop(number)
            self._files.fsync_folder(self._folder)
            self.deleted_below = number + 1
        return done

    def close(self) -> None:
        with self._lock:
            for descriptor in self._descriptors.values():
                self._files.close(descriptor)
            self._descriptors.clear()

    def _drop(self, number: int) -> None:
        self._files.unlink(segment_path(self._folder, number))
        self._sizes.pop(number)
        with self._lock:
            self._live.pop(number, None)
            descriptor = self._descriptors.pop(number, None)
        if descriptor is not None:
            self._files.close(descriptor)

    def _active(self) -> int:
        if self.active is None:
            raise OSError("no segment is open")
        return self.active
