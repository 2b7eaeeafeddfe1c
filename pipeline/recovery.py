"""What a log folder holds at start, and how it is put right after a crash or damage.

Three steps, in this order: look (read only), begin a new epoch if anything was cut or set aside, repair. A crash
between any two of them leads to the same decision at the next start, so a sequence is never given away twice.
"""

from __future__ import annotations

import logging
import mmap
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from artimon.model.batch import BatchError, BatchHeader, BatchId, BatchKind, UnknownFormat
from artimon.model.codec import parse_header
from artimon.model.ranges import LaneRanges
from pipeline.acks import Position
from pipeline.epoch import Failure
from pipeline.files import Files, write_whole
from pipeline.framing import (
    Found,
    NewerFormat,
    RecordType,
    Scan,
    check_version,
    encode_record,
    encode_skips,
    scan,
)
from pipeline.records import BadPayload, Place, decode_acked, decode_end, decode_forgotten, decode_sent, encode_end

log = logging.getLogger(__name__)

DAMAGED = "damaged"
_NAME = re.compile(r"[0-9a-f]{16}\.wal")


def segment_path(folder: Path, segment: int) -> Path:
    """File of a segment."""
    return folder / f"{segment:016x}.wal"


def segments_in(folder: Path) -> list[int]:
    """Numbers of the segments that are there, ascending."""
    return sorted(int(path.name[:16], 16) for path in folder.iterdir() if _NAME.fullmatch(path.name))


@dataclass(slots=True)
class SegmentState:
    """One segment as it was found, and what it needs."""

    number: int
    size: int
    tail: int
    damage: list[tuple[int, int]]
    ended: bool
    """Its last record is END."""
    blank: bool
    """It holds neither header nor record."""


@dataclass(slots=True)
class Recovery:
    """What the log holds, oldest first, and what was wrong with it."""

    segments: list[SegmentState] = field(default_factory=list)
    batches: list[tuple[BatchHeader, Place]] = field(default_factory=list)
    """Batches that are not acked."""
    series: list[tuple[BatchHeader, Place]] = field(default_factory=list)
    """Announcements that Kafka is not known to have."""
    sent: dict[BatchId, Position] = field(default_factory=dict)
    acked: LaneRanges = field(default_factory=LaneRanges)
    forgotten: set[tuple[int, int]] = field(default_factory=set)
    next_sequences: dict[tuple[int, int], int] = field(default_factory=dict)
    """By (epoch, lane)."""
    missing: list[int] = field(default_factory=list)
    cut_bytes: int = 0
    set_aside: list[tuple[int, int, int]] = field(default_factory=list)
    """(segment, offset, length) of damage."""
    next_segment: int = 1

    def trouble(self) -> str:
        """What makes a new epoch necessary, "" if nothing."""
        parts = []
        if self.cut_bytes:
            parts.append(f"{self.cut_bytes} bytes of a torn tail were cut")
        if self.set_aside:
            parts.append(f"damage set aside at {[f'{s:016x}+{at} ({n} bytes)' for s, at, n in self.set_aside]}")
        if self.missing:
            parts.append(f"segments missing: {[f'{n:016x}' for n in self.missing]}")
        return "; ".join(parts)

    def sequences(self, epoch: int, lanes: int) -> list[int]:
        """The next sequence of each lane of `epoch`."""
        return [self.next_sequences.get((epoch, lane), 0) for lane in range(lanes)]


def look(folder: Path, failure: Failure | None = None) -> Recovery:
    """Read every segment; nothing is changed. `failure`: bytes that were written and never accepted do not count."""
    result = Recovery()
    numbers = segments_in(folder)
    end_to: int | None = None
    for number in numbers:
        limit = failure.synced if failure is not None and failure.segment == number else None
        _missing_before(result, number, end_to)
        end_to = _look_at(result, folder, number, limit, last=number == numbers[-1])
    if end_to is not None:  # its successor was never made, or is gone: we cannot tell, so we do not trust
        result.missing.append(end_to)
    if numbers:
        blank = result.segments[-1].blank
        result.next_segment = numbers[-1] if blank else numbers[-1] + 1
    result.batches = [b for b in result.batches if not result.acked.seen(b[0].id.lane_id, b[0].id.sequence)]
    result.series = [s for s in result.series if (s[1].segment, s[1].offset) not in result.forgotten]
    return result


def repair(files: Files, folder: Path, found: Recovery) -> None:
    """Put the segments right: damage copied to `damaged/` and overwritten by SKIP records, tails cut, ends written."""
    for state in found.segments:
        if state is found.segments[-1] and state.blank:
            _keep_copy(files, folder, state.number, 0, state.size)
            files.unlink(segment_path(folder, state.number))
        else:
            _repair_segment(files, folder, state, last=state is found.segments[-1])
    have = {state.number for state in found.segments}
    for number in found.missing:
        if number not in have and number != found.next_segment:
            _write_placeholder(files, folder, number)
    files.fsync_folder(folder)


def records_of(folder: Path, segment: int) -> Iterator[tuple[Found, bytes]]:
    """Every whole record of a segment, in order, with its payload."""
    path = segment_path(folder, segment)
    if path.stat().st_size == 0:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for record in scan(data, segment).records:
            yield record, data[record.payload_at : record.end]


def _missing_before(result: Recovery, number: int, end_to: int | None) -> None:
    if result.segments:
        expected = result.segments[-1].number + 1
        result.missing.extend(range(expected, min(number, expected + 1000)))
        if end_to is None and number == expected:
            before = result.segments[-1]
            if before.tail == before.size:  # else what follows its tail has been counted already
                result.set_aside.append((before.number, before.tail, 0))


def _look_at(result: Recovery, folder: Path, number: int, limit: int | None, last: bool) -> int | None:
    """Scan one segment; returns the number its END record names, if it has one."""
    path = segment_path(folder, number)
    size = path.stat().st_size
    if size == 0:
        result.segments.append(SegmentState(number, 0, 0, [], False, True))
        if last:
            result.missing.append(number)
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        check_version(data, number)
        scanned = scan(data[:limit] if limit is not None else data, number)
        bad = [(r.start, r.end) for r in scanned.records if not _take(result, number, r, data[r.payload_at : r.end])]
    _note_header(result, scanned)
    blank = scanned.header is None and not scanned.records
    damage = sorted([*scanned.damage, *bad])
    end = _end_of(folder, number, scanned)
    result.segments.append(SegmentState(number, size, scanned.tail, damage, end is not None, blank))
    result.set_aside.extend((number, start, stop - start) for start, stop in damage)
    if scanned.tail < size:
        if last and not blank:
            result.cut_bytes += size - scanned.tail
        else:
            result.set_aside.append((number, scanned.tail, size - scanned.tail))
    return end


def _note_header(result: Recovery, scanned: Scan) -> None:
    if scanned.header is None:
        return
    for lane, sequence in enumerate(scanned.header.next_sequences):
        _raise_to(result, scanned.header.epoch, lane, sequence)


def _end_of(folder: Path, number: int, scanned: Scan) -> int | None:
    if not scanned.records or scanned.records[-1].type != RecordType.END:
        return None
    record = scanned.records[-1]
    with segment_path(folder, number).open("rb") as file:
        file.seek(record.payload_at)
        try:
            return decode_end(file.read(record.length))
        except BadPayload:  # counted as damage already
            return None


def _take(result: Recovery, segment: int, record: Found, payload: bytes) -> bool:
    """Note one record; False if its payload makes no sense."""
    try:
        match record.type:
            case RecordType.BATCH | RecordType.SERIES:
                _take_batch(result, Place(segment, record.payload_at, record.length), payload)
            case RecordType.SENT:
                result.sent.update(decode_sent(payload))
            case RecordType.ACKED:
                lane, ranges = decode_acked(payload)
                for start, end in ranges:
                    result.acked.add_range(lane, start, end)
            case RecordType.FORGOTTEN:
                result.forgotten.update(decode_forgotten(payload))
            case RecordType.END:
                decode_end(payload)
    except UnknownFormat as error:  # its checksum is right: a newer program wrote it, no disk did
        raise NewerFormat(f"segment {segment:016x} byte {record.start}: {error}; nothing was changed") from error
    except (BatchError, BadPayload) as error:
        log.error("segment %016x byte %d: %s", segment, record.start, error)
        return False
    return True


def _take_batch(result: Recovery, place: Place, payload: bytes) -> None:
    header = parse_header(payload)
    if header.kind == BatchKind.SERIES:
        result.series.append((header, place))
    else:
        result.batches.append((header, place))
        _raise_to(result, header.id.epoch, header.id.lane, header.id.sequence + 1)


def _raise_to(result: Recovery, epoch: int, lane: int, sequence: int) -> None:
    key = (epoch, lane)
    result.next_sequences[key] = max(result.next_sequences.get(key, 0), sequence)


def _repair_segment(files: Files, folder: Path, state: SegmentState, last: bool) -> None:
    clean = not state.damage and state.tail == state.size and state.ended
    if clean:
        return
    for start, end in state.damage:
        _keep_copy(files, folder, state.number, start, end - start)
    if state.tail < state.size and not last:
        _keep_copy(files, folder, state.number, state.tail, state.size - state.tail)
    descriptor = files.open(segment_path(folder, state.number))
    try:
        for start, end in state.damage:
            files.write(descriptor, start, encode_skips(state.number, end - start))
        files.truncate(descriptor, state.tail)
        if not state.ended:
            end_record = encode_record(state.number, RecordType.END, encode_end(state.number + 1))
            files.write(descriptor, state.tail, end_record)
        files.fsync(descriptor)
    finally:
        files.close(descriptor)


def _keep_copy(files: Files, folder: Path, segment: int, offset: int, length: int) -> None:
    """Set damaged bytes aside under a name that tells where they stood."""
    if not length:
        return
    aside = folder / DAMAGED
    aside.mkdir(exist_ok=True)
    with segment_path(folder, segment).open("rb") as file:
        file.seek(offset)
        data = file.read(length)
    target = aside / f"{segment:016x}-{offset:012x}.bin"
    write_whole(files, target, data)
    log.error("damage in segment %016x at byte %d: %d bytes set aside in %s", segment, offset, length, target)


def _write_placeholder(files: Files, folder: Path, number: int) -> None:
    """A segment that is gone was counted once; from now on an empty one stands in its place."""
    descriptor = files.create(segment_path(folder, number))
    try:
        files.write(descriptor, 0, encode_record(number, RecordType.END, encode_end(number + 1)))
        files.fsync(descriptor)
    finally:
        files.close(descriptor)
