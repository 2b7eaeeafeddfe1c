"""Sink of the agent: numbers the batches of polls and makes them durable in the log before a poll is confirmed."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from artimon.model.batch import BatchError, BatchHeader, BatchKind, PollResult, Samples
from artimon.model.batch_codec import decode_samples, decode_series, parse_header
from artimon.model.protocols import NewestPoll, SinkRefusedError
from pipeline.delivery.batch_numbers import BatchNumberer
from pipeline.delivery.shedder import QuotaBypass, Shedder, StopSending
from pipeline.wal.log import LogEntry, LogWriteError, WriteAheadLog
from pipeline.wal.recovery import records_of, segments_in
from pipeline.wal.segment_format import RecordType
from pipeline.wal.state_records import LogPosition

log = logging.getLogger(__name__)

_DISK_TIMEOUT_S = 60.0


class WalSink:
    """Implements artimon.model.protocols.Sink over a log.

    Locks: `_order` is held while batches are numbered and handed to the log, so that a lane's numbers are in log order;
    only the shedder waits for the disk under it. `_count_lock` guards the counts: an event loop takes it, and must not
    wait while other threads encode. Numbers of a batch that the disk then refused are not given again."""

    def __init__(self, wal: WriteAheadLog, agent: str, folder: Path, give_up: StopSending | None = None) -> None:
        """`folder`: that of the log. `give_up`: shed the oldest batches beyond the quota; None: refuse new ones."""
        self._log, self._agent, self._folder = wal, agent, folder
        appender = QuotaBypass(wal)
        self._numbering = numbering = BatchNumberer(appender, agent)
        self._shedder = None if give_up is None else Shedder(wal, agent, numbering, appender, give_up, _await_places)
        self._number_lock, self._count_lock = threading.Lock(), threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="intake")
        self.batches = self.samples = self.bytes = 0
        """Accepted since start; samples with a value."""
        self.refused = self._numbering.refused
        self.closed = ""
        """Reason for refusing all polls, "" while open; the sources keep counting."""

    @property
    def shed_batches(self) -> int:
        """Batches accepted and shed since start."""
        return 0 if self._shedder is None else self._shedder.batches

    async def accept(self, polled: Sequence[PollResult]) -> None:
        """Return once all is durable. Raises SinkRefusedError if nothing was kept, such as while closed; LogWriteError
        if only a restart can tell."""
        if self.closed:
            self.refused[self.closed] += 1
            raise SinkRefusedError(f"{self.closed}: the agent takes nothing until `artimon agents resume`")
        loop = asyncio.get_running_loop()
        begun = await loop.run_in_executor(self._pool, self._begin, polled)
        if begun is None:
            return
        entries, places = begun
        try:
            await asyncio.wait_for(asyncio.wrap_future(places), _DISK_TIMEOUT_S)
        except (SinkRefusedError, LogWriteError):
            self.refused["disk"] += 1
            raise
        self._count(entries)

    def accept_now(self, polled: Sequence[PollResult]) -> None:
        """`accept` for callers without an event loop."""
        begun = self._begin(polled)
        if begun is not None:
            self._wait(*begun)

    def replay(self, since: NewestPoll | None = None) -> Iterator[PollResult]:
        """Yield what the log held when it was opened, oldest first, announcements as Polled without samples. Holds one
        batch in memory at a time. Only the header is read of samples older than `since`, which the sources remember
        themselves: a log of a GiB then takes a moment, not minutes. Nothing is deleted before the first replay ends."""
        try:
            for segment in [n for n in segments_in(self._folder) if n < self._log.first_own_segment]:
                for record, payload in records_of(self._folder, segment):
                    if record.type in (RecordType.BATCH, RecordType.SERIES):
                        header = parse_header(payload)
                        if header.kind == BatchKind.SERIES or since is None or header.poll_ms >= since(header.source):
                            yield from _replayed(header, payload)
        finally:
            self._log.deletion_paused = False

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self, polled: Sequence[PollResult]) -> tuple[list[LogEntry], Future[list[LogPosition]]] | None:
        """Under `_order` only a shed record waits for the disk."""
        with self._number_lock:
            return (self._shedder or self._numbering).begin(polled)

    def _wait(self, entries: list[LogEntry], places: Future[list[LogPosition]]) -> None:
        try:
            places.result(_DISK_TIMEOUT_S)
        except (SinkRefusedError, LogWriteError):
            self.refused["disk"] += 1
            raise
        self._count(entries)

    def _count(self, entries: list[LogEntry]) -> None:
        with self._count_lock:
            for entry in entries:
                if entry.type == RecordType.BATCH:
                    self.batches += 1
                    self.bytes += len(entry.payload)
                    self.samples += sum(samples for _, samples in entry.minutes)


def _replayed(header: BatchHeader, payload: bytes) -> Iterator[PollResult]:
    try:
        yield _polled(header, payload)
    except BatchError as error:  # accepted by an older version; a collector will refuse it
        log.error("a batch in the log cannot be read: %s", error)


def _await_places(places: Future[list[LogPosition]]) -> None:
    places.result(_DISK_TIMEOUT_S)


def _polled(header: BatchHeader, payload: bytes) -> PollResult:
    if header.kind == BatchKind.SERIES:
        block = decode_series(header, payload)
        return PollResult(header.source, header.endpoint, 0, header.poll_ms, Samples.of(()), blocks=(block,))
    samples = decode_samples(header, payload)
    return PollResult(header.source, header.endpoint, header.birth_ms, header.poll_ms, samples, header.keep)
