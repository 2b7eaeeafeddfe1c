"""The files of a log: one that grows, full ones behind it, and which records each must still keep.

Not thread-safe for writing: the flusher of the log alone writes, rolls and deletes; `read` may be called by anyone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pipeline.wal.files import Files, LogError
from pipeline.wal.framing import RECORD_BYTES, Header, encode_header, read_record
from pipeline.wal.records import Place
from pipeline.wal.recovery import segment_path, segments_in


class CorruptRecord(LogError):
    """An accepted record can no longer be read as it was written: the disk changed it under us."""

    def __init__(self, path: Path, place: Place) -> None:
        super().__init__(path, place)
        self.path, self.place = path, place

    def __str__(self) -> str:
        return (
            f"the record at byte {self.place.offset} of {self.path} no longer fits its checksum: check the disk; "
            "a restart sets it aside and goes on with what is intact"
        )


class Segments:
    """Invariant: segments are consecutive; the newest is open for appending, never deleted; `synced` <= `size`."""

    def __init__(self, files: Files, folder: Path, next_segment: int) -> None:
        self._files, self._folder = files, folder
        self._lock = threading.Lock()
        """Guards `_descriptors` and `_live`. No writing under it."""
        self._descriptors: dict[int, int] = {}
        numbers = segments_in(folder, files)
        self._sizes = {number: files.size(segment_path(folder, number)) for number in numbers}
        self._live: dict[int, dict[int, int]] = {number: {} for number in numbers}
        """Length by offset of the payloads that must be kept, by segment."""
        self.active: int | None = None
        self._next = next_segment
        self.size = 0
        """Bytes written to the active segment."""
        self.synced = 0
        """Bytes of the active segment known to be on the disk."""

    @property
    def used_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(self._sizes.values())

    @property
    def oldest(self) -> int:
        return min(self._sizes, default=self._next)

    def begin(self, epoch: int, next_sequences: Sequence[int]) -> None:
        """Make the next segment, durable with its folder entry when this returns."""
        number = self._next
        header = encode_header(Header(number, epoch, tuple(next_sequences)))
        descriptor = self._files.create(segment_path(self._folder, number))
        try:
            self._files.write(descriptor, 0, header)
            self._files.fsync(descriptor)
            self._files.fsync_folder(self._folder)
        except OSError:
            self._files.close(descriptor)
            self._files.unlink(segment_path(self._folder, number))  # it holds nothing, so it can be made again
            raise
        with self._lock:
            self._descriptors[number] = descriptor
            self._live[number] = {}
        self._sizes[number] = self.size = self.synced = len(header)
        self.active, self._next = number, number + 1

    def retire(self) -> None:
        """Nothing is written to the active segment any more; its END record has been synced."""
        self.active = None

    def write(self, data: bytes) -> int:
        """Append to the active segment; returns the offset. On OSError `size` is unchanged: call `cut_back`."""
        number = self._active()
        at = self.size
        self._files.write(self._descriptors[number], at, data)
        self.size = self._sizes[number] = at + len(data)
        return at

    def cut_back(self) -> None:
        """Take back what a failed write may have left behind the last synced byte."""
        number = self._active()
        descriptor = self._descriptors[number]
        self._files.truncate(descriptor, self.synced)
        self._files.fsync(descriptor)
        self.size = self._sizes[number] = self.synced

    def sync(self) -> None:
        """Make everything written so far durable. After an OSError nothing may be written or synced again, ever."""
        self._files.fsync(self._descriptors[self._active()])
        self.synced = self.size

    def read(self, place: Place) -> bytes:
        """The payload at `place`; raises CorruptRecord if it is not what was written."""
        data = self.raw(place)
        found = read_record(data, 0, place.segment)
        if found is None or found.length != place.length:
            raise CorruptRecord(segment_path(self._folder, place.segment), place)
        return data[RECORD_BYTES:]

    def raw(self, place: Place) -> bytes:
        """What stands where the record of that payload was written."""
        with self._lock:
            descriptor = self._descriptors.get(place.segment)
            if descriptor is None:
                descriptor = self._files.open(segment_path(self._folder, place.segment))
                self._descriptors[place.segment] = descriptor
        return self._files.read(descriptor, place.offset - RECORD_BYTES, RECORD_BYTES + place.length)

    def hold(self, places: Iterable[Place]) -> None:
        """These must be kept."""
        with self._lock:
            for place in places:
                self._live[place.segment][place.offset] = place.length

    def release(self, places: Iterable[Place]) -> None:
        """These need not be kept any longer."""
        with self._lock:
            for place in places:
                self._live.get(place.segment, {}).pop(place.offset, None)

    def oldest_live(self) -> list[Place]:
        """What must be kept of the oldest full segment that holds such, in log order."""
        with self._lock:
            for number in sorted(self._live):
                if number == self.active:
                    break
                if held := self._live[number]:
                    return [Place(number, at, length) for at, length in sorted(held.items())]
        return []

    def live(self) -> int:
        """How many payloads must be kept."""
        with self._lock:
            return sum(map(len, self._live.values()))

    def delete_done(self, before: Callable[[], None] | None = None) -> list[int]:
        """Delete full segments without live records, oldest first, and never past one that has some: what the later
        ones say of its batches (SENT, ACKED) is still needed. The newest stays, active or not: nothing else says which
        numbers were given. If `before` raises OSError nothing is deleted."""
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
        if done:
            self._files.fsync_folder(self._folder)
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
