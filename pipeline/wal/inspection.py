"""Operations of `artimon wal` on a log folder: inspect, verify, repair, and restore quarantined batches."""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artimon.model.batch import BatchError, BatchHeader, BatchKind
from artimon.model.batch_codec import verify
from pipeline.wal import quarantine as aside
from pipeline.wal.accepted_counts import AcceptedCounts
from pipeline.wal.epoch import EpochFile, host_identity, read_epoch, read_failure
from pipeline.wal.file_system import LOCAL_FILE_SYSTEM, LogError
from pipeline.wal.log_core import LogCore, LogEntry
from pipeline.wal.recovery import Recovery, recover_folder, segment_path, segments_in
from pipeline.wal.segment_format import RecordType, check_version, scan_segment


class LogNotFoundError(LogError):
    """The folder is not a log, or has too little information to continue it."""


@dataclass(slots=True)
class SegmentReport:
    """Report on one file. `live`: batches and announcements in it that must still be kept."""

    number: int
    bytes: int
    epoch: int | None = None
    records: Counter[str] = field(default_factory=Counter)
    live: int = 0
    damage: list[tuple[int, int]] = field(default_factory=list)
    tail_bytes: int = 0
    bad_digests: int = 0


@dataclass(slots=True)
class LogReport:
    """Report on a whole folder as it was found. Nothing was changed."""

    folder: Path
    epoch_file: EpochFile | None
    used_by: str
    """Process that holds the folder, "" if none. While it is held, an unfinished tail is not damage."""
    fsync_failed: bool
    segments: list[SegmentReport]
    batches: int
    series: int
    sent: int
    sources: int
    oldest_ms: int | None
    newest_ms: int | None
    next_sequences: dict[str, int]
    missing: list[int]
    quarantined: list[aside.QuarantinedFile]

    @property
    def damage_summary(self) -> list[str]:
        """Return the damage that the next start will cut or quarantine, and the damage that no start can repair."""
        found = [f"segment {n:016x} is missing" for n in self.missing]
        for one in self.segments:
            found += [f"segment {one.number:016x} byte {at}: {end - at} damaged bytes" for at, end in one.damage]
            if one.tail_bytes and not (self.used_by and one is self.segments[-1]):
                found.append(f"segment {one.number:016x}: {one.tail_bytes} bytes after the last whole record")
            if one.bad_digests:
                found.append(f"segment {one.number:016x}: {one.bad_digests} batches do not match their digest")
        if self.fsync_failed:
            found.append("an fsync failed: the bytes that it covered were never accepted and will be cut")
        if self.epoch_file is None and self.segments:
            found.append("the file `epoch` is missing or unreadable: a new epoch will begin")
        return found

    def to_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "agent": self.epoch_file and self.epoch_file.agent,
            "epoch": self.epoch_file and self.epoch_file.epoch,
            "lanes": self.epoch_file and self.epoch_file.lanes,
            "host": self.epoch_file and self.epoch_file.host,
            "used_by": self.used_by,
            "bytes": sum(one.bytes for one in self.segments),
            "batches": self.batches,
            "announcements": self.series,
            "sent": self.sent,
            "sources": self.sources,
            "oldest_ms": self.oldest_ms,
            "newest_ms": self.newest_ms,
            "next_sequences": self.next_sequences,
            "segments": [_segment_json(one) for one in self.segments],
            "missing": self.missing,
            "set_aside": [_aside_json(one) for one in self.quarantined],
            "trouble": self.damage_summary,
        }


@dataclass(frozen=True, slots=True)
class RepairReport:
    """Result of `repair`."""

    recovery: Recovery
    new_epoch_because: str
    restored: list[tuple[Path, BatchHeader]]

    def to_json(self) -> dict[str, Any]:
        return {
            "cut_bytes": self.recovery.cut_bytes,
            "set_aside": [{"segment": s, "offset": at, "bytes": n} for s, at, n in self.recovery.quarantined],
            "missing": self.recovery.missing,
            "new_epoch_because": self.new_epoch_because,
            "batches": len(self.recovery.batches),
            "brought_back": [{"file": path.name, "batch": str(header.id)} for path, header in self.restored],
        }


def inspect(folder: Path, deep: bool = False) -> LogReport:
    """Report on a folder, in use or not. `deep`: check the digest of each batch as well. Raises LogNotFoundError,
    NewerFormatError, OSError."""
    if not folder.is_dir() or not (segments_in(folder) or read_epoch(folder)):
        raise LogNotFoundError(
            f"{folder} is not a log: give `log` in the data folder of an agent, for a flow `flows/NAME/log`"
        )
    used_by = lock_holder(folder)
    failure = read_failure(folder)
    found = recover_folder(folder, failure)
    live = Counter(place.segment for _, place in (*found.batches, *found.series))
    reports = [_segment(folder, number, live[number], deep) for number in segments_in(folder)]
    missing = [n for n in found.missing if not (used_by and n >= found.next_segment)]
    times = [header.poll_ms for header, _ in found.batches]
    return LogReport(
        folder,
        read_epoch(folder),
        used_by,
        failure is not None,
        reports,
        len(found.batches),
        len(found.series),
        sum(1 for header, _ in found.batches if header.id in found.sent),
        len({header.source for header, _ in found.batches}),
        min(times, default=None),
        max(times, default=None),
        {f"{epoch:016x}/{lane}": number for (epoch, lane), number in sorted(found.next_sequences.items())},
        missing,
        list(aside.quarantined_files(folder)),
    )


def lock_holder(folder: Path) -> str:
    """Return the process that holds the folder, "" if none. Nothing is changed."""
    try:
        descriptor = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(descriptor, 1000, 0).decode(errors="replace").strip() or "an unnamed process"
    finally:
        os.close(descriptor)
    return ""


def repair(folder: Path, again: Sequence[str] = (), now_ms: int = 0) -> RepairReport:
    """Do what the next start would do, and restore quarantined files of these names (see `QuarantinedFile.path`;
    "all"). Cut bytes are kept in `damaged/`. Raises LogLockedError, LogNotFoundError, NewerFormatError, OSError,
    LogWriteError."""
    if not folder.is_dir() or not (segments_in(folder) or read_epoch(folder)):
        raise LogNotFoundError(f"{folder} is not a log")
    agent, lanes, host = _identity(folder)
    core = LogCore(folder, agent, lanes, host=host, quota_bytes=2**62)
    try:
        wanted = [one for one in aside.quarantined_files(folder) if "all" in again or one.path.name in again]
        unknown = set(again) - {"all"} - {one.path.name for one in wanted}
        if unknown:
            raise LogNotFoundError(f"no such quarantined file: {', '.join(sorted(unknown))}; see `artimon wal inspect`")
        back = _restore_batches(core, [one for one in wanted if one.batches], now_ms)
        return RepairReport(core.recovered, core.new_epoch_because, back)
    finally:
        core.close()


def _restore_batches(
    core: LogCore, wanted: Iterable[aside.QuarantinedFile], now_ms: int
) -> list[tuple[Path, BatchHeader]]:
    """Append the batches to the log under their own identities. They are not counted again as accepted."""
    back: list[tuple[Path, BatchHeader]] = []
    audit = _accepted_counts(core, now_ms)
    for one in wanted:
        batches = list(aside.batches_in(one.path.read_bytes()))
        ticket = core.append([_entry(header, data) for header, data in batches])
        placed = core.flush()
        if ticket.error is not None:
            raise ticket.error
        if audit is not None and placed:
            audit.skip_to(placed[-1][1], now_ms)
        aside.mark_restored(LOCAL_FILE_SYSTEM, one.path)
        back += [(one.path, header) for header, _ in batches]
    return back


def _accepted_counts(core: LogCore, now_ms: int) -> AcceptedCounts | None:
    """Return the agent's own counts, brought up to the content of its log; None for the log of a flow."""
    folder = core.folder.parent / "accepted"
    if not folder.is_dir() or core.folder.name != "log":
        return None
    audit = AcceptedCounts(folder, now_ms)
    audit.catch_up(core.folder, core.first_own_segment, now_ms)
    return audit


def _entry(header: BatchHeader, data: bytes) -> LogEntry:
    type_ = RecordType.SERIES if header.kind == BatchKind.SERIES else RecordType.BATCH
    return LogEntry(type_, header, data)


def _identity(folder: Path) -> tuple[str, int, str]:
    """Return agent, lanes and host of the last use of the log."""
    said = read_epoch(folder)
    if said is not None:
        return said.agent, said.lanes, said.host
    for number in reversed(segments_in(folder)):
        with LOCAL_FILE_SYSTEM.load(segment_path(folder, number)) as data:
            header = scan_segment(data, number).header
        found = recover_folder(folder).batches
        if header is not None and found:
            return found[-1][0].id.agent, len(header.next_sequences), host_identity()
    raise LogNotFoundError(
        f"{folder}: neither the file `epoch` nor a batch names the agent of this log: start the agent instead"
    )


def _segment(folder: Path, number: int, live: int, deep: bool) -> SegmentReport:
    with LOCAL_FILE_SYSTEM.load(segment_path(folder, number)) as data:
        check_version(data, number)
        scanned = scan_segment(data, number)
        report = SegmentReport(number, len(data), live=live, damage=scanned.damage)
        report.epoch = scanned.header.epoch if scanned.header else None
        report.tail_bytes = len(data) - scanned.tail
        for record in scanned.records:
            report.records[record.type.name] += 1
            if deep and record.type in (RecordType.BATCH, RecordType.SERIES):
                report.bad_digests += not _has_valid_digest(data[record.payload_at : record.end])
    return report


def _has_valid_digest(payload: bytes) -> bool:
    try:
        verify(payload)
    except BatchError:
        return False
    return True


def _segment_json(one: SegmentReport) -> dict[str, Any]:
    return {
        "segment": f"{one.number:016x}",
        "bytes": one.bytes,
        "epoch": None if one.epoch is None else f"{one.epoch:016x}",
        "records": dict(one.records),
        "live": one.live,
        "damage": [{"offset": at, "bytes": end - at} for at, end in one.damage],
        "tail_bytes": one.tail_bytes,
        "bad_digests": one.bad_digests,
    }


def _aside_json(one: aside.QuarantinedFile) -> dict[str, Any]:
    return {
        "file": f"{one.path.parent.name}/{one.path.name}",
        "bytes": one.size,
        "why": one.reason,
        "batches": [str(header.id) for header in one.batches],
    }
