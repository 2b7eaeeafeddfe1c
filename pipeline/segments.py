"""The files of a log: one that grows, full ones behind it, and how many live batches each still holds.

Not thread-safe for writing: the flusher of the log alone writes, rolls and deletes; `read` may be called by anyone.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from pipeline.files import Files, LogError
from pipeline.framing import RECORD_BYTES, Header, encode_header, read_record
from pipeline.records import Place
from pipeline.recovery import Recovery, segment_path, segments_in


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

    def __init__(self, files: Files, folder: Path, found: Recovery) -> None:
        self._files, self._folder = files, folder
        self._lock = threading.Lock()
        """Guards `_descriptors` and `_live`. No writing under it."""
        self._descriptors: dict[int, int] = {}
        self._sizes = {number: segment_path(folder, number).stat().st_size for number in segments_in(folder)}
        self._live = dict.fromkeys(self._sizes, 0)
        for _, place in (*found.batches, *found.series):
            self._live[place.segment] += 1
        self.active: int | None = None
        self._next = found.next_segment
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
            self._live[number] = 0
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
        with self._lock:
            descriptor = self._descriptors.get(place.segment)
            if descriptor is None:
                descriptor = self._files.open(segment_path(self._folder, place.segment))
                self._descriptors[place.segment] = descriptor
        data = self._files.read(descriptor, place.offset - RECORD_BYTES, RECORD_BYTES + place.length)
        found = read_record(data, 0, place.segment)
        if found is None or found.length != place.length:
            raise CorruptRecord(segment_path(self._folder, place.segment), place)
        return data[RECORD_BYTES:]

    def hold(self, segment: int, count: int = 1) -> None:
        """So many more live records in `segment`."""
        with self._lock:
            self._live[segment] += count

    def release(self, segment: int) -> None:
        """One live record less in `segment`."""
        with self._lock:
            self._live[segment] -= 1

    def delete_done(self) -> list[int]:
        """Delete full segments without live records, oldest first, and never past one that has some: what the later
        ones say of its batches (SENT, ACKED) is still needed."""
        done = []
        with self._lock:
            for number in sorted(self._sizes):
                if number == self.active or self._live.get(number, 0) > 0:
                    break
                done.append(number)
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
