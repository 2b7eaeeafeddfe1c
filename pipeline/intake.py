"""What sources polled becomes numbered batches, in the log before anybody is told. This is the agent's `Sink`."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from artimon.model.batch import MAX_BYTES, MAX_SAMPLES, BatchError, BatchId, BatchKind, Polled, Samples, SeriesBlock
from artimon.model.codec import decode_samples, decode_series, encode_samples, encode_series, parse_header
from artimon.model.protocols import SinkRefused
from artimon.model.routing import lane_of
from pipeline.audit import minutes_of
from pipeline.framing import RecordType
from pipeline.records import Place
from pipeline.recovery import records_of, segments_in
from pipeline.wal import Entry, Log, LogFailed

log = logging.getLogger(__name__)

_ANSWER_S = 60.0


class Intake:
    """Implements artimon.model.protocols.Sink over a log.

    Locks: `_order` is held from giving numbers to handing the batches to the log, so that a lane's numbers are in log
    order; nobody waits for the disk under it. Numbers of a batch that the disk then refused are not given again."""

    def __init__(self, wal: Log, agent: str, folder: Path) -> None:
        """`folder`: that of the log."""
        self._log, self._agent, self._folder = wal, agent, folder
        self._next = wal.next_sequences
        self._order = threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="intake")
        self.batches = self.samples = self.bytes = 0
        """Accepted since start; samples with a value."""
        self.refused: Counter[str] = Counter()

    async def accept(self, polled: Sequence[Polled]) -> None:
        """Durable when this returns. SinkRefused: nothing was kept; LogFailed: only a restart can tell."""
        loop = asyncio.get_running_loop()
        begun = await loop.run_in_executor(self._pool, self._begin, polled)
        if begun is None:
            return
        entries, places = begun
        try:
            await asyncio.wait_for(asyncio.wrap_future(places), _ANSWER_S)
        except (SinkRefused, LogFailed):
            self.refused["disk"] += 1
            raise
        self._count(entries)

    def accept_now(self, polled: Sequence[Polled]) -> None:
        """The same for callers without an event loop."""
        begun = self._begin(polled)
        if begun is not None:
            self._wait(*begun)

    def replay(self) -> Iterator[Polled]:
        """Everything that the log held when it was opened, oldest first, announcements as Polled without samples.
        Nothing is deleted from the log before the first replay has ended."""
        try:
            for segment in [n for n in segments_in(self._folder) if n < self._log.own_segment]:
                for record, payload in records_of(self._folder, segment):
                    if record.type in (RecordType.BATCH, RecordType.SERIES):
                        yield _polled(payload)
        finally:
            self._log.keep_segments = False

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self, polled: Sequence[Polled]) -> tuple[list[Entry], Future[list[Place]]] | None:
        with self._order:
            numbers = list(self._next)
            entries = list(self._entries(polled, numbers))
            if not entries:
                return None
            try:
                future = self._log.append(entries)
            except SinkRefused as error:
                self.refused[str(error).split(":", 1)[0]] += 1
                raise
            self._next = numbers
        return entries, future

    def _wait(self, entries: list[Entry], places: Future[list[Place]]) -> None:
        try:
            places.result(_ANSWER_S)
        except (SinkRefused, LogFailed):
            self.refused["disk"] += 1
            raise
        self._count(entries)

    def _count(self, entries: list[Entry]) -> None:
        with self._order:
            for entry in entries:
                if entry.type == RecordType.BATCH:
                    self.batches += 1
                    self.bytes += len(entry.payload)
                    self.samples += sum(samples for _, samples in entry.minutes)

    def _entries(self, polled: Iterable[Polled], numbers: list[int]) -> Iterator[Entry]:
        """Announcements before the samples that they explain."""
        for one in polled:
            for block in one.blocks:
                yield from self._announcement(block)
            lane = lane_of(one.source, len(numbers))
            for at in range(0, len(one.samples), MAX_SAMPLES):
                yield from self._batches(one, one.samples.slice(at, at + MAX_SAMPLES), lane, numbers)

    def _announcement(self, block: SeriesBlock) -> Iterator[Entry]:
        try:
            batch = encode_series(self._agent, block)
        except BatchError as error:
            log.error("announcement left out: %s", error)
            self.refused["announcement"] += 1
            return
        yield Entry(RecordType.SERIES, batch.header, batch.data)

    def _batches(self, one: Polled, samples: Samples, lane: int, numbers: list[int]) -> Iterator[Entry]:
        """One batch, or two halves as long as one would be beyond 512 KiB."""
        id = BatchId(self._agent, self._log.epoch, lane, numbers[lane])
        try:
            batch = encode_samples(id, one.source, one.endpoint, one.birth_ms, one.poll_ms, one.keep, samples)
        except BatchError as error:
            if len(samples) == 1:
                log.error("sample left out, beyond %d bytes alone: %s", MAX_BYTES, error)
                self.refused["sample"] += 1
                return
            middle = len(samples) // 2
            yield from self._batches(one, samples.slice(0, middle), lane, numbers)
            yield from self._batches(one, samples.slice(middle, len(samples)), lane, numbers)
            return
        numbers[lane] += 1
        yield Entry(RecordType.BATCH, batch.header, batch.data, minutes_of(samples))


def _polled(payload: bytes) -> Polled:
    header = parse_header(payload)
    if header.kind == BatchKind.SERIES:
        block = decode_series(header, payload)
        return Polled(header.source, header.endpoint, 0, header.poll_ms, Samples.of(()), blocks=(block,))
    samples = decode_samples(header, payload)
    return Polled(header.source, header.endpoint, header.birth_ms, header.poll_ms, samples, header.keep)
