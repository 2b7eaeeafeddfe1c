"""Repair of a log after a crash or damage: quarantine the cut or broken bytes, give every segment an END record."""

from __future__ import annotations

import logging
from pathlib import Path

from pipeline.wal.file_system import FileSystem, ensure_folder, read_file, replace_file
from pipeline.wal.recovery import Recovery, SegmentState, segment_path
from pipeline.wal.segment_format import RecordType, encode_record, encode_skips
from pipeline.wal.state_records import encode_end

log = logging.getLogger(__name__)

DAMAGED = "damaged"
"""Folder of quarantined bytes."""
DAMAGE_SUFFIX, TAIL_SUFFIX = ".bin", ".tail"
"""Suffixes: damaged bytes between or in place of records; bytes after the last record of the log."""
KEEP_TAILS = 8


def repair_segments(files: FileSystem, folder: Path, found: Recovery, newest: bool = True) -> None:
    """Repair the segments: copy damage to `damaged/` and overwrite it with SKIP records, cut tails, write END records.
    `newest`: the last of these segments is the last of the log."""
    for state in found.segments:
        last = newest and state is found.segments[-1]
        if last and state.blank:
            _quarantine_range(files, folder, state.number, 0, state.size)
            files.unlink(segment_path(folder, state.number))
        else:
            _repair_segment(files, folder, state, last)
    have = {state.number for state in found.segments}
    for number in found.missing:
        if number not in have and number != found.next_segment:
            _write_placeholder(files, folder, number)  # its entry becomes durable with the next segment's


def _repair_segment(files: FileSystem, folder: Path, state: SegmentState, last: bool) -> None:
    """Repair and fsync one segment: after a kill its intact records may still be in the page cache only."""
    for start, end in state.damage:
        _quarantine_range(files, folder, state.number, start, end - start)
    if state.tail < state.size:
        _quarantine_range(
            files, folder, state.number, state.tail, state.size - state.tail, TAIL_SUFFIX if last else DAMAGE_SUFFIX
        )
    descriptor = files.open(segment_path(folder, state.number))
    try:
        for start, end in state.damage:
            files.write(descriptor, start, encode_skips(state.number, end - start))
        if state.tail < state.size:
            files.truncate(descriptor, state.tail)
        if not state.ended:
            end_record = encode_record(state.number, RecordType.END, encode_end(state.number + 1))
            files.write(descriptor, state.tail, end_record)
        files.fsync(descriptor)
    finally:
        files.close(descriptor)


def _quarantine_range(
    files: FileSystem, folder: Path, segment: int, offset: int, length: int, suffix: str = DAMAGE_SUFFIX
) -> None:
    with files.load(segment_path(folder, segment)) as whole:
        data = whole[offset : offset + length]
    quarantine_bytes(files, folder, segment, offset, data, suffix)


def quarantine_bytes(
    files: FileSystem, folder: Path, segment: int, offset: int, data: bytes, suffix: str = DAMAGE_SUFFIX
) -> None:
    """Quarantine bytes under a name that tells their place; durable when this returns."""
    if not data or (suffix == TAIL_SUFFIX and not data.strip(b"\0")):
        return
    aside = folder / DAMAGED
    ensure_folder(files, aside)
    target = _free_name(files, aside / f"{segment:016x}-{offset:012x}", suffix, data)
    replace_file(files, target, data)
    if suffix == TAIL_SUFFIX:
        _drop_old_tails(files, aside)
    else:
        log.error("damage in segment %016x at byte %d: %d bytes quarantined in %s", segment, offset, len(data), target)


def _free_name(files: FileSystem, stem: Path, suffix: str, data: bytes) -> Path:
    """Return a file name for bytes of this place; a new one if other bytes of the place are stored already."""
    target, number = stem.with_name(stem.name + suffix), 0
    while files.exists(target) and read_file(files, target) != data:
        number += 1
        target = stem.with_name(f"{stem.name}-{number}{suffix}")
    return target


def _drop_old_tails(files: FileSystem, aside: Path) -> None:
    """Keep only a few tails: nearly every crash leaves half a record that was never accepted."""
    tails = sorted(name for name in files.list_names(aside) if name.endswith(TAIL_SUFFIX))
    for name in tails[:-KEEP_TAILS]:
        files.unlink(aside / name)


def _write_placeholder(files: FileSystem, folder: Path, number: int) -> None:
    """Write an empty segment in place of a missing one, so that it is counted once only."""
    descriptor = files.create(segment_path(folder, number))
    try:
        files.write(descriptor, 0, encode_record(number, RecordType.END, encode_end(number + 1)))
        files.fsync(descriptor)
    finally:
        files.close(descriptor)
