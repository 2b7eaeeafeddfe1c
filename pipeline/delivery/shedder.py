"""Shedding of a full log: the oldest batches go once a durable record names them (pipeline/wal/shed_records.py)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from artimon.model.batch import BatchHeader, BatchKind, PollResult
from artimon.model.batch_codec import parse_header
from artimon.model.protocols import SinkRefusedError
from pipeline.delivery.batch_numbers import BatchNumberer
from pipeline.wal.log_core import LogEntry, LogWriteError, QuotaExceededError
from pipeline.wal.segments import CorruptRecordError
from pipeline.wal.shed_records import merge_shed_records, shed_records
from pipeline.wal.state_records import LogPosition

log = logging.getLogger(__name__)

SEGMENTS_AT_ONCE = 16
"""Most segments given up by one call."""

StopSending = Callable[[Sequence[LogPosition]], Container[LogPosition]]
"""Stops sending these batches; returns the places of those that Kafka has confirmed."""

Accepted = TypeVar("Accepted")
Appended = TypeVar("Appended", covariant=True)


class SheddableLog(Protocol[Appended]):
    """Log with a quota."""

    @property
    def epoch(self) -> int: ...

    @property
    def next_sequences(self) -> list[int]: ...

    def append(self, entries: Sequence[LogEntry], beyond_quota: bool = False) -> Appended: ...

    def oldest_live(self) -> list[LogPosition]: ...

    def read(self, place: LogPosition) -> bytes: ...

    def release(self, places: Iterable[LogPosition]) -> None: ...

    def quarantine_bytes(self, places: Iterable[LogPosition]) -> None: ...

    def delete_unneeded(self) -> None: ...


class QuotaBypass(Generic[Accepted]):
    """Log for Numbering that lets a shed record exceed the quota."""

    def __init__(self, wal: SheddableLog[Accepted]) -> None:
        self._log = wal
        self.beyond_quota = False

    @property
    def epoch(self) -> int:
        return self._log.epoch

    @property
    def next_sequences(self) -> list[int]:
        return self._log.next_sequences

    def append(self, entries: Sequence[LogEntry]) -> Accepted:
        return self._log.append(entries, self.beyond_quota)


class Shedder(Generic[Accepted]):
    """Makes room in a full log. Not thread-safe: its owner locks."""

    def __init__(
        self,
        wal: SheddableLog[Accepted],
        agent: str,
        numbering: BatchNumberer[Accepted],
        appender: QuotaBypass[Accepted],
        give_up: StopSending,
        wait: Callable[[Accepted], object],
    ) -> None:
        """`wait` returns once the accepted entries are durable. It raises SinkRefusedError, LogWriteError,
        TimeoutError."""
        self._log, self._agent, self._numbering, self._appender = wal, agent, numbering, appender
        self._stop_sending, self._wait = give_up, wait
        self.batches = 0
        """Batches accepted and shed since start."""

    def begin(self, polled: Sequence[PollResult]) -> tuple[list[LogEntry], Accepted] | None:
        """Append all to the log, as Numbering.begin; shed if the log is full."""
        for _ in range(SEGMENTS_AT_ONCE):
            try:
                return self._numbering.begin(polled)
            except QuotaExceededError:
                if not self._make_room():
                    raise
                self._numbering.refused["quota"] -= 1
        return self._numbering.begin(polled)

    def _make_room(self) -> bool:
        """Give up the batches of the oldest full segment; False if there is none, or its record cannot be written."""
        held = self._log.oldest_live()
        if not held:
            return False
        try:
            places = self._drop_unreadable(held)
        except OSError as error:
            log.error("the log is full, and shedding failed: %s", error)
            return False
        if not places:
            self._log.delete_unneeded()
            return True
        sent = self._stop_sending(places)
        self._appender.beyond_quota = True
        try:
            self._append(merge_shed_records(self._agent, self._read(places, sent)))
            self._append(shed_records(self._agent, self._read(places, sent)))
        except (SinkRefusedError, LogWriteError, CorruptRecordError, OSError, TimeoutError) as error:
            log.error("the log is full, and shedding failed: %s", error)
            return False
        finally:
            self._appender.beyond_quota = False
        count = sum(1 for header, _, _ in self._read(places, sent) if header.kind != BatchKind.SERIES)
        log.error("the log is full: %d batches were shed to make room", count)
        self.batches += count
        self._log.release(places)
        self._log.delete_unneeded()
        return True

    def _drop_unreadable(self, places: Sequence[LogPosition]) -> list[LogPosition]:
        """Quarantine the batches that the disk no longer returns: no record can name their samples, and they would keep
        their segment for ever. Returns the others. Raises OSError."""
        good, bad = [], []
        for place in places:
            try:
                self._log.read(place)
                good.append(place)
            except CorruptRecordError as error:
                log.error("the log is full, and a batch is lost: %s", error)
                bad.append(place)
        if bad:
            self._stop_sending(bad)
            self._log.quarantine_bytes(bad)
        return good

    def _append(self, polled: Iterable[PollResult]) -> None:
        for one in polled:
            begun = self._numbering.begin([one])
            if begun is not None:
                self._wait(begun[1])

    def _read(
        self, places: Sequence[LogPosition], sent: Container[LogPosition]
    ) -> Iterator[tuple[BatchHeader, bytes, bool]]:
        for place in places:
            payload = self._log.read(place)
            yield parse_header(payload), payload, place in sent
