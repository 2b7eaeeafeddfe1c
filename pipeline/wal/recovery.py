"""Content of a log folder at start. This module only reads; `pipeline.wal.repair` makes the repairs.

Three steps, in this order: read, begin a new epoch if anything was cut or quarantined, repair. A crash between
any two of them leads to the same decision at the next start, so a sequence is never assigned twice.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from artimon.model.ack_state import Position
from artimon.model.batch import BatchError, BatchHeader, BatchId, BatchKind, UnknownFormatError
from artimon.model.batch_codec import parse_header
from artimon.model.ranges import LaneRanges
from pipeline.wal.epoch import FsyncFailure
from pipeline.wal.file_system import LOCAL_FILE_SYSTEM, FileSystem
from pipeline.wal.segment_format import (
    NewerFormatError,
    RecordFrame,
    RecordType,
    SegmentScan,
    check_version,
    scan_segment,
)
from pipeline.wal.shed_records import shed_batches
from pipeline.wal.state_records import (
    InvalidPayloadError,
    LogPosition,
    decode_acked,
    decode_cursor,
    decode_end,
    decode_forgotten,
    decode_sent,
)

log = logging.getLogger(__name__)

_NAME = re.compile(r"[0-9a-f]{16}\.wal")
_MAX_MISSING = 1000
"""Most missing segments counted between two existing ones."""


def segment_path(folder: Path, segment: int) -> Path:
    """Return the file of a segment."""
    return folder / f"{segment:016x}.wal"


def segments_in(folder: Path, files: FileSystem = LOCAL_FILE_SYSTEM) -> list[int]:
    """Return the numbers of the existing segments, ascending."""
    return sorted(int(name[:16], 16) for name in files.list_names(folder) if _NAME.fullmatch(name))


@dataclass(slots=True)
class SegmentState:
    """One segment as it was found, and the repairs it needs."""

    number: int
    size: int
    tail: int
    damage: list[tuple[int, int]]
    ended: bool
    """True if its last record is END."""
    blank: bool
    """True if it holds neither header nor record."""


@dataclass(slots=True)
class Recovery:
    """Content of the log, oldest first, and its damage."""

    segments: list[SegmentState] = field(default_factory=list)
    batches: list[tuple[BatchHeader, LogPosition]] = field(default_factory=list)
    """Batches without an ack."""
    series: list[tuple[BatchHeader, LogPosition]] = field(default_factory=list)
    """Announcements that Kafka is not known to have."""
    sent: dict[BatchId, Position] = field(default_factory=dict)
    acked: LaneRanges = field(default_factory=LaneRanges)
    forgotten: set[tuple[int, int]] = field(default_factory=set)
    next_sequences: dict[tuple[int, int], int] = field(default_factory=dict)
    """Next sequences by (epoch, lane)."""
    missing: list[int] = field(default_factory=list)
    cut_bytes: int = 0
    quarantined: list[tuple[int, int, int]] = field(default_factory=list)
    """Damaged ranges: (segment, offset, length)."""
    next_segment: int = 1
    cursors: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Position (segment, offset) of each branch of a flow: it has processed the batches that begin before it."""

    def damage_summary(self) -> str:
        """Describe the damage that requires a new epoch; "" if there is none."""
        parts = []
        if self.cut_bytes:
            parts.append(f"{self.cut_bytes} bytes of a torn tail were cut")
        if self.quarantined:
            parts.append(f"damage quarantined at {[f'{s:016x}+{at} ({n} bytes)' for s, at, n in self.quarantined]}")
        if self.missing:
            parts.append(f"segments missing: {[f'{n:016x}' for n in self.missing]}")
        return "; ".join(parts)

    def next_sequences_of(self, epoch: int, lanes: int) -> list[int]:
        """Return the next sequence of each lane of `epoch`."""
        return [self.next_sequences.get((epoch, lane), 0) for lane in range(lanes)]

    def merged_with(self, newer: Recovery) -> Recovery:
        """Return the union of this and of the content of younger segments."""
        sequences = dict(self.next_sequences)
        for (epoch, lane), sequence in newer.next_sequences.items():
            _raise_sequence(sequences, epoch, lane, sequence)
        acked = self.acked.copy()
        acked.update(newer.acked)
        return Recovery(
            [*self.segments, *newer.segments],
            [*self.batches, *newer.batches],
            [*self.series, *newer.series],
            {**self.sent, **newer.sent},
            acked,
            self.forgotten | newer.forgotten,
            sequences,
            sorted({*self.missing, *newer.missing}),
            self.cut_bytes + newer.cut_bytes,
            [*self.quarantined, *newer.quarantined],
            newer.next_segment,
            {**self.cursors, **newer.cursors},
        )

    def drop_acked(self) -> None:
        """Drop acked and forgotten batches; correct only once every segment has been read."""
        acked, forgotten = self.acked, self.forgotten
        self.batches = [
            (header, place)
            for header, place in self.batches
            if not acked.contains(header.id.lane_id, header.id.sequence)
            and (place.segment, place.offset) not in forgotten
        ]
        self.series = [s for s in self.series if (s[1].segment, s[1].offset) not in forgotten]


def recover_folder(
    folder: Path, failure: FsyncFailure | None = None, files: FileSystem = LOCAL_FILE_SYSTEM
) -> Recovery:
    """Read every segment; nothing is changed. `failure`: bytes that were written and never accepted do not count."""
    result = recover_segments(files, folder, segments_in(folder, files), failure)
    result.drop_acked()
    return result


def recover_segments(
    files: FileSystem,
    folder: Path,
    numbers: Sequence[int],
    failure: FsyncFailure | None = None,
    until: int | None = None,
) -> Recovery:
    """Read these segments, ascending. `until`: the first younger segment, which has been read already; None if there is
    none. The result includes acked batches, since their ACKED records may be in another segment."""
    result = Recovery()
    end_to: int | None = None
    for number in numbers:
        limit = failure.synced if failure is not None and failure.segment == number else None
        _missing_before(result, number, end_to)
        last = until is None and number == numbers[-1]
        end_to = _recover_segment(result, files, folder, number, limit, last)
    if until is not None:
        _missing_before(result, until, end_to)
    elif end_to is not None:  # its successor was never created or is gone: assume the worst
        result.missing.append(end_to)
    if numbers:
        blank = result.segments[-1].blank
        result.next_segment = numbers[-1] if blank else numbers[-1] + 1
    return result


def count_of_newest(
    files: FileSystem, folder: Path, numbers: Sequence[int], failure: FsyncFailure | None, most: int
) -> int:
    """Return the number of segments, counted from the newest, to read before anything is accepted. They reach back to
    the last segment with content, which has the newest sequences, and to the one whose fsync failed; more are read up
    to `most` bytes."""
    count = total = 0
    enough = False
    for number in reversed(numbers):
        size = files.size(segment_path(folder, number))
        if enough and total + size > most:
            break
        count, total = count + 1, total + size
        enough = enough or (size > 0 and (failure is None or number <= failure.segment))
    return count


def check_versions(files: FileSystem, folder: Path, numbers: Sequence[int]) -> None:
    """Raise NewerFormatError if a newer program wrote one of these segments."""
    for number in numbers:
        with files.load(segment_path(folder, number)) as data:
            check_version(data, number)


def missing_segments(numbers: Sequence[int]) -> list[int]:
    """Return the missing segments between existing ones."""
    missing: list[int] = []
    for before, number in pairwise(numbers):
        missing.extend(range(before + 1, min(number, before + 1 + _MAX_MISSING)))
    return missing


def records_of(
    folder: Path, segment: int, files: FileSystem = LOCAL_FILE_SYSTEM
) -> Iterator[tuple[RecordFrame, bytes]]:
    """Yield every whole record of a segment, in order, with its payload."""
    with files.load(segment_path(folder, segment)) as data:
        for record in scan_segment(data, segment).records:
            yield record, data[record.payload_at : record.end]


def _missing_before(result: Recovery, number: int, end_to: int | None) -> None:
    if result.segments:
        expected = result.segments[-1].number + 1
        result.missing.extend(range(expected, min(number, expected + _MAX_MISSING)))
        if end_to is None and number == expected:
            before = result.segments[-1]
            if before.tail == before.size:  # else the bytes after its tail have been counted already
                result.quarantined.append((before.number, before.tail, 0))


def _recover_segment(
    result: Recovery, files: FileSystem, folder: Path, number: int, limit: int | None, last: bool
) -> int | None:
    """Scan one segment; returns the number that its END record names, or None."""
    with files.load(segment_path(folder, number)) as data:
        size = len(data)
        if not size:
            result.segments.append(SegmentState(number, 0, 0, [], False, True))
            if last:
                result.missing.append(number)
            return None
        check_version(data, number)
        scanned = scan_segment(data[:limit] if limit is not None else data, number)
        bad = [
            (r.start, r.end)
            for r in scanned.records
            if not _apply_record(result, number, r, data[r.payload_at : r.end])
        ]
        end = _end_of(data, scanned)
    _note_header(result, scanned)
    blank = scanned.header is None and not scanned.records
    damage = sorted([*scanned.damage, *bad])
    result.segments.append(SegmentState(number, size, scanned.tail, damage, end is not None, blank))
    result.quarantined.extend((number, start, stop - start) for start, stop in damage)
    if scanned.tail < size:
        if last and not blank:
            result.cut_bytes += size - scanned.tail
        else:
            result.quarantined.append((number, scanned.tail, size - scanned.tail))
    return end


def _note_header(result: Recovery, scanned: SegmentScan) -> None:
    if scanned.header is None:
        return
    for lane, sequence in enumerate(scanned.header.next_sequences):
        _raise_sequence(result.next_sequences, scanned.header.epoch, lane, sequence)


def _end_of(data: bytes | object, scanned: SegmentScan) -> int | None:
    if not scanned.records or scanned.records[-1].type != RecordType.END:
        return None
    record = scanned.records[-1]
    try:
        return decode_end(data[record.payload_at : record.end])  # type: ignore[index]
    except InvalidPayloadError:  # counted as damage already
        return None


def _apply_record(result: Recovery, segment: int, record: RecordFrame, payload: bytes) -> bool:
    """Apply one record to `result`; False if its payload is invalid."""
    try:
        match record.type:
            case RecordType.BATCH | RecordType.SERIES:
                _apply_batch(result, LogPosition(segment, record.payload_at, record.length), payload)
            case RecordType.SENT:
                result.sent.update(decode_sent(payload))
            case RecordType.ACKED:
                lane, ranges = decode_acked(payload)
                for start, end in ranges:
                    result.acked.add_range(lane, start, end)
            case RecordType.FORGOTTEN:
                result.forgotten.update(decode_forgotten(payload))
            case RecordType.CURSOR:
                branch, place = decode_cursor(payload)
                result.cursors[branch] = max(place, result.cursors.get(branch, place))
            case RecordType.END:
                decode_end(payload)
    except UnknownFormatError as error:  # its checksum is right: a newer program wrote it, not a broken disk
        raise NewerFormatError(f"segment {segment:016x} byte {record.start}: {error}; nothing was changed") from error
    except (BatchError, InvalidPayloadError) as error:
        log.error("segment %016x byte %d: %s", segment, record.start, error)
        return False
    return True


def _apply_batch(result: Recovery, place: LogPosition, payload: bytes) -> None:
    header = parse_header(payload)
    if header.kind == BatchKind.SERIES:
        result.series.append((header, place))
    else:
        result.batches.append((header, place))
        if header.kind == BatchKind.SAMPLES and len(given_up := shed_batches(header, payload)):
            result.acked.update(given_up)
        _raise_sequence(result.next_sequences, header.id.epoch, header.id.lane, header.id.sequence + 1)


def _raise_sequence(sequences: dict[tuple[int, int], int], epoch: int, lane: int, sequence: int) -> None:
    key = (epoch, lane)
    sequences[key] = max(sequences.get(key, 0), sequence)
