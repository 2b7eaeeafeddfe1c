"""Channel over the write-ahead log: a put is durable, under an identity, until every branch has committed it.
docs/formats/wal.md; the spill channel adds a memory cache. With disk failover it delivers straight to the sink while
that works, and the log keeps what the sink refused.

Commits of a branch are recorded in the log within half a second and synced with the next put. A crash in between
repeats the deliveries, under the same identities."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from pydantic import Field

from artimon.model.batch import NO_LANE, BatchError, BatchHeader, BatchId, BatchKind
from artimon.model.batch_codec import verify_limits
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.protocols import SinkRefusedError
from pipeline.delivery.batch_numbers import BatchNumberer, LaneNumbers
from pipeline.delivery.delivery_mode import DeliveryMode, clear_marker, prepare_log
from pipeline.delivery.failover_log import FailoverLog
from pipeline.flows.accepted_ids import AcceptedIds, AcceptedIdsFile
from pipeline.flows.channels.branch_ledger import BranchPolicy
from pipeline.flows.channels.ledger_channel import LedgerChannel, branches_of
from pipeline.flows.context import DIRECT_SINK, Context
from pipeline.flows.event import EventBatch, memory_bytes, with_identity_and_bytes
from pipeline.flows.options import Options
from pipeline.flows.registry import Component
from pipeline.flows.spi import ChannelFailed, ChannelFull, Figures, Sink, SinkFailed
from pipeline.wal.file_system import LOCAL_FILE_SYSTEM, FileSystem, LogError, is_temporary
from pipeline.wal.log import LogEntry, LogWriteError, QuotaExceededError, WriteAheadLog
from pipeline.wal.segment_format import RecordType
from pipeline.wal.segments import CorruptRecordError
from pipeline.wal.state_records import LogPosition, encode_acked, encode_cursor, encode_forgotten

log = logging.getLogger(__name__)

_DISK_TIMEOUT_S = 10.0
"""Least seconds that a put waits for the disk. After an earlier timeout the caller would not know the outcome."""
_MIN_SEGMENTS = 8
"""Least number of segments in a quota, so that space is freed in small steps."""

_EVENT_OBJECTS = 200
"""Estimate of the memory of one event's objects, in bytes."""


class FileOptions(Options):
    """`lanes`: numbered sequences for event batches without an identity; one lane keeps the order."""

    quota_bytes: int = Field(default=1024**3, ge=64 * 1024)
    segment_bytes: int = Field(default=64 * 1024 * 1024, ge=4 * 1024)
    lanes: int = Field(default=1, ge=1, le=64)
    parcels: int = Field(default=200_000, ge=1)
    """Limit of event batches, since each takes memory: beyond it `put` waits and refuses, as at the quota."""
    cache_bytes: int = Field(default=0, ge=0)


class SpillOptions(FileOptions):
    """Options of the file channel with a cache, whose event batches need not be read back."""

    cache_bytes: int = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """Event batch in the log."""

    id: BatchId
    place: LogPosition
    is_series: bool
    """True for an announcement, which is released by place because it has no identity of its own."""


class BatchCache:
    """Memory cache of the oldest event batches that fit into `most` bytes, so that they need not be read back; its loss
    loses no data. Thread-safe. Invariant: `bytes` is the sum of the costs of its event batches."""

    def __init__(self, most: int) -> None:
        self.max_bytes, self.bytes = most, 0
        self._lock = threading.Lock()
        self._batches: dict[BatchId, tuple[EventBatch, int]] = {}

    def add(self, event_batches: Sequence[EventBatch]) -> None:
        """Add the event batches that fit."""
        with self._lock:
            for event_batch in event_batches:
                cost = memory_bytes(event_batch) + sum(len(e.body) + _EVENT_OBJECTS for e in event_batch.events)
                if event_batch.id is None or event_batch.id.lane == NO_LANE or self.bytes + cost > self.max_bytes:
                    continue
                self._drop(event_batch.id)
                self._batches[event_batch.id] = (event_batch, cost)
                self.bytes += cost

    def get(self, id: BatchId) -> EventBatch | None:
        with self._lock:
            found = self._batches.get(id)
            return found[0] if found else None

    def drop(self, ids: Iterable[BatchId]) -> None:
        with self._lock:
            for id in ids:
                self._drop(id)

    def _drop(self, id: BatchId) -> None:
        found = self._batches.pop(id, None)
        if found:
            self.bytes -= found[1]


class SinkRoute:
    """Route past a flow's log to its sink, which has one call at a time. While the log holds a backlog, only the runner
    that drains it calls the sink."""

    is_reachable = True

    def __init__(
        self, sink: Sink, waiting: Callable[[], bool], event_batch_of: Callable[[LogEntry], EventBatch]
    ) -> None:
        self._sink, self._waiting, self._event_batch_of = sink, waiting, event_batch_of

    def has_backlog(self, entries: Sequence[LogEntry]) -> bool:
        """Return True while the log holds a backlog, whatever the entries."""
        del entries
        return self._waiting()

    def send(self, entries: Sequence[LogEntry]) -> list[tuple[LogEntry, str]]:
        """Deliver all entries, or report all as refused."""
        try:
            self._sink.deliver([self._event_batch_of(entry) for entry in entries])
        except Exception as error:
            if not isinstance(error, SinkFailed):
                log.exception("unexpected error of the sink; its event batches go into the log")
            return [(entry, str(error)) for entry in entries]
        return []


class FileChannel(LedgerChannel[LoggedBatch]):
    """Locks: `_order` is held from numbering to handing entries to the log, so that numbers are in log order; then
    `_cond`. No thread waits for the disk under either."""

    def __init__(
        self,
        options: FileOptions,
        folder: Path,
        agent: str,
        source: str,
        branches: Mapping[str, BranchPolicy] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        files: FileSystem = LOCAL_FILE_SYSTEM,
        straight: Sink | None = None,
    ) -> None:
        """`straight`: sink of disk failover, tried before the log."""
        most = options.quota_bytes // 2
        policies = {n: replace(p, behind_bytes=min(p.behind_bytes, most)) for n, p in (branches or {}).items()}
        super().__init__(policies, clock)
        self._options, self._folder, self._agent, self._source = options, folder, agent, source
        self._files, self._number_lock, self._direct_sink = files, threading.Lock(), straight
        self._numbering: BatchNumberer[Future[list[LogPosition]]] | None = None
        self._failover: FailoverLog | None = None
        self._cache = BatchCache(options.cache_bytes)
        self._seen_file = AcceptedIdsFile(files, folder / "seen")
        self._in_flight: dict[BatchId, tuple[Future[list[LogPosition]], EventBatch]] = {}
        """Event batches on their way to the disk or, past it, to the sink."""
        self._log_end = (0, 0)
        """Position behind the last place in the log."""
        self._log: WriteAheadLog | None = None
        self.damaged = 0
        """Event batches that can no longer be read from the disk."""

    def start(self) -> None:
        """Raises ChannelFailed if another process uses the folder, or the disk refuses."""
        options, delivery = self._options, DeliveryMode.DISK_FAILOVER if self._direct_sink else DeliveryMode.END_TO_END
        segment = min(options.segment_bytes, max(4096, options.quota_bytes // _MIN_SEGMENTS))
        try:
            prepare_log(self._folder, delivery, self._files)
            self._log = WriteAheadLog(
                self._folder,
                self._agent,
                options.lanes,
                self._on_durable,
                segment_bytes=segment,
                quota_bytes=options.quota_bytes,
                files=self._files,
            )
            clear_marker(self._folder, delivery, self._files)
            self._log.on_delete(self._save_seen)
            self._restore(self._log)
        except (LogError, OSError) as error:
            raise ChannelFailed(f"{self._folder}: {error}") from error

    def put(self, event_batches: Sequence[EventBatch], deadline_s: float) -> None:
        wal, ends = self._wal(), self._clock.monotonic() + deadline_s
        while True:
            try:
                for future in self._append(event_batches):
                    self._wait_for_disk(future, ends)
                break
            except QuotaExceededError as error:
                self._wait_for_room(wal, str(error), ends)
            except SinkRefusedError as error:
                raise ChannelFailed(str(error)) if wal.problem else ChannelFull(str(error)) from error
        self._skip_excess()

    def stop(self, deadline_s: float) -> None:
        self._close_ledger()
        if self._failover is not None:
            self._failover.stop()
        if self._log is not None:
            self._log.close(deadline_s)

    def figures(self) -> Figures:
        wal = self._log
        found = super().figures()
        problems = [*found["problems"], *([self._seen_file.problem] if self._seen_file.problem else [])]
        if wal is None:
            return {**found, "problems": problems}
        if wal.problem:
            problems.append(wal.problem)
        failover = self._failover
        straight = {"direct": failover.direct_batches, "logged": failover.logged_batches} if failover else {}
        return {
            **found,
            **straight,
            "problems": problems,
            "log_bytes": wal.used_bytes,
            "quota_bytes": wal.quota_bytes,
            "fsyncs": wal.fsyncs,
            "damaged": self.damaged,
            "lanes_seen": len(self._accepted.lanes),
            "cache_bytes": self._cache.bytes,
        }

    # -- in

    @property
    def waiting(self) -> int:
        with self._cond:
            return len(self._ledger) + len(self._in_flight)

    def _on_bypass(self, entries: Sequence[LogEntry]) -> None:
        """Note the identities of entries delivered without the log; a crash forgets them."""
        now_ms = self._clock.now_ms()
        with self._cond:
            for entry in entries:
                self._accepted.add(entry.header.id, now_ms)

    def _append(self, event_batches: Sequence[EventBatch]) -> list[Future[list[LogPosition]]]:
        """Append new event batches; return the futures of these, and of repeats that are not on the disk yet."""
        with self._number_lock:
            waits, fresh = self._split_repeats(event_batches)
            if fresh and self._numbering is not None:
                self._check_count(len(fresh))
                found: list[EventBatch] = []

                def entries_of(numbers: LaneNumbers) -> Iterator[LogEntry]:
                    now_ms = self._clock.now_ms()
                    for event_batch in fresh:
                        found.append(with_identity_and_bytes(event_batch, numbers, self._source, now_ms))
                        yield _entry(found[-1])

                if begun := self._numbering.append(entries_of):
                    self._note_in_flight(found, begun[1])
                    self._cache.add(found)
                    waits.append(begun[1])
        return waits

    def _split_repeats(
        self, event_batches: Sequence[EventBatch]
    ) -> tuple[list[Future[list[LogPosition]]], list[EventBatch]]:
        waits: list[Future[list[LogPosition]]] = []
        fresh: list[EventBatch] = []
        mine: set[BatchId] = set()
        with self._cond:
            for event_batch in event_batches:
                id = event_batch.id
                if id is not None and (id in mine or self._accepted.has(id)):
                    self.repeats += 1
                elif id is not None and id in self._in_flight:
                    self.repeats += 1
                    waits.append(self._in_flight[id][0])
                else:
                    fresh.append(event_batch)
                    if id is not None and not _is_series(id):
                        mine.add(id)
        return waits, fresh

    def _note_in_flight(self, event_batches: Sequence[EventBatch], future: Future[list[LogPosition]]) -> None:
        """Note event batches until the disk has answered, which may have happened already."""
        known = {one.id: (future, one) for one in event_batches if one.id is not None and not _is_series(one.id)}
        with self._cond:
            self._in_flight.update(known)

        def forget(_: object) -> None:
            with self._cond:
                for id in known:
                    self._in_flight.pop(id, None)

        future.add_done_callback(forget)

    def _event_batch_of(self, entry: LogEntry) -> EventBatch:
        """Return the event batch of an entry, with its events if they are still in memory."""
        with self._cond:
            _, found = self._in_flight.get(entry.header.id, (None, None))
        return found or EventBatch((), entry.header.id, entry.payload)

    def _has_backlog(self) -> bool:
        with self._cond:
            return len(self._ledger) > 0

    def _on_durable(self, placed: Sequence[tuple[LogEntry, LogPosition]]) -> None:
        """Called by the log's flusher, in log order."""
        now_ms = self._clock.now_ms()
        with self._cond:
            for entry, place in placed:
                kept = LoggedBatch(entry.header.id, place, entry.type == RecordType.SERIES)
                self._restore_item(kept, now_ms)
                self._accepted.add(kept.id, now_ms)
            self._cond.notify_all()

    def _wait_for_disk(self, future: Future[list[LogPosition]], ends: float) -> None:
        patience = (
            None if self._direct_sink else max(_DISK_TIMEOUT_S, ends - self._clock.monotonic())
        )  # sinks have own timeouts
        try:
            future.result(patience)
        except FutureTimeout:
            raise ChannelFailed(f"the disk of {self._folder} is slow: put these again, they may be kept") from None
        except LogWriteError as error:
            raise ChannelFailed(str(error)) from error
        except QuotaExceededError:
            raise
        except SinkRefusedError as error:  # the disk refused the write: nothing of the call was kept
            raise ChannelFull(str(error)) from error

    def _check_count(self, more: int) -> None:
        with self._cond:
            if len(self._ledger) + more > self._options.parcels:
                raise QuotaExceededError(
                    f"quota: {self._folder} holds {len(self._ledger)} of {self._options.parcels} event batches"
                )

    def _wait_for_room(self, wal: WriteAheadLog, reason: str, ends: float) -> None:
        """Wait until space was freed. Raises ChannelFull at the deadline."""
        with self._cond:
            used, count = wal.used_bytes, len(self._ledger)
            while wal.used_bytes >= used and len(self._ledger) >= count:
                left = ends - self._clock.monotonic()
                if not self._open:
                    raise ChannelFailed("the channel is closed")
                if left <= 0:
                    raise ChannelFull(reason)
                self._cond.wait(min(left, 0.1))  # a segment is deleted shortly after its last release

    # -- out

    def _read(self, items: Sequence[LoggedBatch]) -> tuple[list[EventBatch], list[int]]:
        wal = self._wal()
        event_batches: list[EventBatch] = []
        lost: list[int] = []
        for index, kept in enumerate(items):
            cached = self._cache.get(kept.id) if not kept.is_series else None
            try:
                event_batches.append(cached or EventBatch((), kept.id, wal.read(kept.place)))
            except (CorruptRecordError, OSError) as error:
                if is_temporary(error):
                    raise ChannelFailed(f"{self._folder} cannot be read now: {error}") from error
                log.error("batch %s is lost: %s", kept.id, error)
                self.damaged += 1
                lost.append(index)
        return event_batches, lost

    def _release_items(self, items: Iterable[LoggedBatch]) -> None:
        wal, free = self._log, list(items)
        if wal is None or not free:
            return
        self._cache.drop(kept.id for kept in free)
        wal.append_notes(RecordType.ACKED, encode_acked(kept.id for kept in free if not kept.is_series))
        wal.append_notes(RecordType.FORGOTTEN, encode_forgotten([kept.place for kept in free if kept.is_series]))
        wal.release([kept.place for kept in free])

    def _save_cursor(self, branch: str) -> None:
        """Record the cursor, only with several branches: for a single one the ACKED records suffice."""
        if len(self._policies) == 1 or self._log is None:
            return
        with self._cond:
            first = self._ledger.item_at(self._ledger.cursor(branch))
            segment, offset = (first.place.segment, first.place.offset) if first else self._log_end
        self._log.append_notes(RecordType.CURSOR, [encode_cursor(branch, segment, offset)])

    # -- at start

    def _restore(self, wal: WriteAheadLog) -> None:
        """Restore ledger and identities from the log."""
        found, now_ms = wal.recovered, self._clock.now_ms()
        if self._direct_sink is not None:
            way = SinkRoute(self._direct_sink, self._has_backlog, self._event_batch_of)
            self._failover = FailoverLog(wal, way, self._clock, lambda _: 0, self._on_bypass)
        self._numbering = BatchNumberer(cast(WriteAheadLog, self._failover) if self._failover else wal, self._agent)
        held = sorted((*found.batches, *found.series), key=lambda one: one[1])
        free = []
        with self._cond:
            self._accepted = self._seen_file.load()
            self._accepted.add_all(found.acked, now_ms)
            for header, place in held:
                kept = LoggedBatch(header.id, place, header.kind == BatchKind.SERIES)
                if not self._restore_item(kept, min(now_ms, header.poll_ms), found.cursors):
                    free.append(kept)
                self._accepted.add(kept.id, now_ms)
            self._open = True
        self._release_items(free)

    def _restore_item(
        self, kept: LoggedBatch, since_ms: int, cursors: Mapping[str, tuple[int, int]] | None = None
    ) -> bool:
        """Add an event batch on the disk, called under `_cond`; False if every branch has committed it."""
        place = (kept.place.segment, kept.place.offset)
        self._log_end = max(self._log_end, (place[0], place[1] + 1))
        wanted = [name for name in self._policies if place >= (cursors or {}).get(name, (0, 0))]
        if wanted:
            self._ledger.add(kept, kept.place.length, wanted, since_ms)
            if not kept.is_series and any(self._policies[name].required for name in wanted):
                self._pending.add(kept.id)
        return bool(wanted)

    def _save_seen(self) -> None:
        """Called by the flusher before it deletes segments: their identities must survive in this file."""
        now_ms = self._clock.now_ms()
        with self._cond:
            self._accepted.forget_silent(now_ms)
            data = AcceptedIds(self._accepted.lanes.copy(), dict(self._accepted.last_ms))
        self._seen_file.save(data)

    def _wal(self) -> WriteAheadLog:
        if self._log is None or not self._open:
            raise ChannelFailed("the channel is closed")
        return self._log


def _entry(event_batch: EventBatch) -> LogEntry:
    """Return the log entry of an event batch. Raises BatchError for damaged bytes: none go into a log."""
    if event_batch.data is None:
        raise BatchError(f"an event batch without bytes: {event_batch.id}")
    header: BatchHeader = verify_limits(event_batch.data)
    kind = RecordType.SERIES if header.kind == BatchKind.SERIES else RecordType.BATCH
    return LogEntry(kind, header, event_batch.data)


def _is_series(id: BatchId) -> bool:
    return id.lane == NO_LANE


def _build(options: FileOptions, context: Context) -> FileChannel:
    folder = context.folder / "log"
    straight: Sink | None = context.shared.get(DIRECT_SINK)
    return FileChannel(
        options, folder, context.agent, context.flow, branches_of(context), context.clock, straight=straight
    )


FILE = Component("file", FileOptions, _build, outside={})
SPILL = Component("spill", SpillOptions, _build, outside={})
