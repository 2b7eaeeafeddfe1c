"""The agent's own counts of accepted samples, by minute and source: the baseline for proofs that no sample was lost.

Files `<folder>/<hour>.csv` hold lines `minute_end_ms,source,samples` (samples with a value; the source quoted as in
csv), and lines `#,segment,offset`: the lines above count the log up to there. At start the rest is counted from the
log, so a kill between fsync and this file neither loses nor doubles a line.
"""

from __future__ import annotations

import csv
import io
import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path

from artimon.model.batch import BatchError, BatchHeader, BatchKind
from artimon.model.batch_codec import decode_samples, parse_header
from pipeline.wal.file_system import LOCAL_FILE_SYSTEM
from pipeline.wal.recovery import records_of, segments_in
from pipeline.wal.segment_format import RecordType
from pipeline.wal.shed_records import Minutes, minutes_of
from pipeline.wal.state_records import LogPosition

log = logging.getLogger(__name__)

HOUR_MS = 3_600_000
KEEP_HOURS = 24
MAX_UNWRITTEN_BYTES = 16 * 1024 * 1024
"""Limit of the bytes in memory that wait for a failing disk."""
_POSITION = re.compile(rb"^#,(\d+),(\d+)\n", re.MULTILINE)


class AcceptedCounts:
    """Writer of the count files; used by one thread. Invariant: every batch up to `position` has been counted."""

    def __init__(self, folder: Path, now_ms: int) -> None:
        """Cut half a line off the newest file and find the position."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.position = self._find_position()
        self._drop_old(now_ms)
        self._hour = -1
        self._unwritten = b""
        """Lines that the disk has not taken yet."""

    def add(self, counted: Sequence[tuple[str, Minutes, LogPosition]], now_ms: int) -> None:
        """Count entries (source, minutes, place), in log order. Raises OSError; the unwritten lines are retried with
        the next call."""
        lines = io.StringIO()
        writer = csv.writer(lines, lineterminator="\n")
        for source, minutes, place in counted:
            if (place.segment, place.offset) <= self.position:
                continue
            writer.writerows((minute, source, samples) for minute, samples in minutes)
            self.position = (place.segment, place.offset)
        text = lines.getvalue()
        if text:
            self._append(text, now_ms)
        if now_ms // HOUR_MS != self._hour:
            self._hour = now_ms // HOUR_MS
            self._drop_old(now_ms)

    def _find_position(self) -> tuple[int, int]:
        for path in reversed(_files(self._folder)):
            data = path.read_bytes()
            positions = list(_POSITION.finditer(data))
            last = positions[-1] if positions else None
            with path.open("r+b") as file:
                file.truncate(last.end() if last else 0)
            if last is not None:
                return int(last[1]), int(last[2])
        return (0, 0)

    def catch_up(self, log_folder: Path, own_segment: int, now_ms: int) -> None:
        """Count batches in segments before `own_segment` that earlier processes accepted and did not count."""
        if self.position[0] >= own_segment:
            self.position = (0, 0)  # it belongs to another log
        for segment in segments_in(log_folder):
            if not self.position[0] <= segment < own_segment:
                continue
            for record, payload in records_of(log_folder, segment):
                if record.type == RecordType.BATCH and (segment, record.payload_at) > self.position:
                    header = parse_header(payload)
                    minutes = _minutes(header, payload)
                    self.add([(header.source, minutes, LogPosition(segment, record.payload_at, record.length))], now_ms)

    def skip_to(self, place: LogPosition, now_ms: int) -> None:
        """Move the position to `place` without counting: the batches before it have been counted already."""
        self.position = (place.segment, place.offset)
        self._append("", now_ms)

    def _append(self, text: str, now_ms: int) -> None:
        """Append lines and the position they count to. A failed write leaves nothing in the file; a kill leaves at most
        half a line, which the next start cuts off."""
        self._unwritten += f"{text}#,{self.position[0]},{self.position[1]}\n".encode()
        if len(self._unwritten) > MAX_UNWRITTEN_BYTES:
            log.error(
                "audit: dropped %d bytes that the disk did not take; their samples are not counted",
                len(self._unwritten),
            )
            self._unwritten = b""
            return
        path = self._folder / f"{now_ms // HOUR_MS * HOUR_MS}.csv"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            end = os.fstat(descriptor).st_size
            try:
                LOCAL_FILE_SYSTEM.write(descriptor, end, self._unwritten)
            except OSError:
                os.ftruncate(descriptor, end)
                raise
        finally:
            os.close(descriptor)
        self._unwritten = b""

    def _drop_old(self, now_ms: int) -> None:
        for path in _files(self._folder)[:-1]:  # the newest holds the position
            if int(path.stem) < now_ms - (KEEP_HOURS + 1) * HOUR_MS:
                path.unlink(missing_ok=True)


def _minutes(header: BatchHeader, payload: bytes) -> Minutes:
    """Return samples by minute; empty for other kinds of batches and for batches that this program cannot decode."""
    if header.kind != BatchKind.SAMPLES:
        return ()
    try:
        return minutes_of(decode_samples(header, payload))
    except BatchError as error:
        log.error("audit: a batch in the log is not counted: %s", error)
        return ()


def _files(folder: Path) -> list[Path]:
    return sorted((p for p in folder.glob("*.csv") if p.stem.isdigit()), key=lambda p: int(p.stem))
