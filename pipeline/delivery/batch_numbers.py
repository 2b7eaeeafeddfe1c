"""Numbering of batches: cuts polls into batches and gives each its lane and sequence number. No threads, no clock: the
intake drives it under a lock, the simulation without one."""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from artimon.model.batch import MAX_BYTES, MAX_SAMPLES, Batch, BatchError, BatchId, PollResult, Samples, SeriesBlock
from artimon.model.batch_codec import encode_samples, encode_series
from artimon.model.hash_routing import lane_of
from artimon.model.protocols import SinkRefusedError
from pipeline.wal.log_core import LogEntry
from pipeline.wal.segment_format import RecordType
from pipeline.wal.shed_records import minutes_of

log = logging.getLogger(__name__)

Accepted = TypeVar("Accepted", covariant=True)


class LaneNumbers:
    """Next number of each lane of one epoch; each is given once. Not thread-safe.

    A channel that does not keep its numbers over a restart takes a new random epoch at each start."""

    def __init__(self, agent: str, epoch: int | None = None, next_sequences: Sequence[int] = (0,)) -> None:
        self.agent, self.epoch = agent, secrets.randbits(64) if epoch is None else epoch
        self.next = list(next_sequences)

    def copy(self) -> LaneNumbers:
        """Return a copy for a trial: its numbers count only if the copy is kept."""
        return LaneNumbers(self.agent, self.epoch, self.next)

    def lane_of(self, source: str) -> int:
        return lane_of(source, len(self.next))

    def peek(self, lane: int) -> BatchId:
        """Return the next identity of a lane without using it, see `take`."""
        return BatchId(self.agent, self.epoch, lane, self.next[lane])

    def use(self, lane: int) -> BatchId:
        """Use the next identity of a lane and return it."""
        id = self.peek(lane)
        self.next[lane] += 1
        return id


class NumberedLog(Protocol[Accepted]):
    """Part of a log that numbering needs."""

    @property
    def epoch(self) -> int: ...

    @property
    def next_sequences(self) -> list[int]: ...

    def append(self, entries: Sequence[LogEntry]) -> Accepted:
        """Raises SinkRefusedError if nothing is kept."""
        ...


class BatchEncoder(Protocol):
    """Encoder of batches (artimon.model.batch_codec). Raises BatchError beyond the limits of a batch."""

    def samples(
        self, id: BatchId, source: str, endpoint: bytes, birth_ms: int, poll_ms: int, keep: str, samples: Samples
    ) -> Batch: ...

    def series(self, agent: str, block: SeriesBlock) -> Batch: ...


class _ModelEncoder:
    def samples(
        self, id: BatchId, source: str, endpoint: bytes, birth_ms: int, poll_ms: int, keep: str, samples: Samples
    ) -> Batch:
        return encode_samples(id, source, endpoint, birth_ms, poll_ms, keep, samples)

    def series(self, agent: str, block: SeriesBlock) -> Batch:
        return encode_series(agent, block)


class BatchNumberer(Generic[Accepted]):
    """Numbers what is appended to a log. Not thread-safe: its owner locks from `begin` or `append` on, so that a lane's
    numbers are in log order.

    Numbers of a batch that the disk then refused are not given again."""

    def __init__(self, log_: NumberedLog[Accepted], agent: str, encoder: BatchEncoder | None = None) -> None:
        self._log, self._agent, self._encoder = log_, agent, encoder or _ModelEncoder()
        self.numbers = LaneNumbers(agent, log_.epoch, log_.next_sequences)
        self.refused: Counter[str] = Counter()

    def begin(self, polled: Sequence[PollResult]) -> tuple[list[LogEntry], Accepted] | None:
        """Append all batches of these polls to the log, or none; None if there are none. Raises SinkRefusedError."""
        return self.append(lambda numbers: self._entries(polled, numbers))

    def append(self, entries_of: Callable[[LaneNumbers], Iterable[LogEntry]]) -> tuple[list[LogEntry], Accepted] | None:
        """Append all entries to the log, or none; None if there are none. `entries_of` takes numbers as needed; they
        stay free if it or the log raises. Raises SinkRefusedError."""
        if self.numbers.epoch != self._log.epoch:  # the log began a new epoch while in use
            self.numbers = LaneNumbers(self._agent, self._log.epoch, self._log.next_sequences)
        numbers = self.numbers.copy()
        entries = list(entries_of(numbers))
        if not entries:
            return None
        try:
            accepted = self._log.append(entries)
        except SinkRefusedError as error:
            self.refused[str(error).split(":", 1)[0]] += 1
            raise
        self.numbers = numbers
        return entries, accepted

    def _entries(self, polled: Iterable[PollResult], numbers: LaneNumbers) -> Iterator[LogEntry]:
        """Yield announcements before the samples that they describe."""
        for one in polled:
            for block in one.blocks:
                yield from self._announcement(block)
            lane = numbers.lane_of(one.source)
            for at in range(0, len(one.samples), MAX_SAMPLES):
                yield from self._batches(one, one.samples.slice(at, at + MAX_SAMPLES), lane, numbers)

    def _announcement(self, block: SeriesBlock) -> Iterator[LogEntry]:
        try:
            batch = self._encoder.series(self._agent, block)
        except BatchError as error:
            log.error("announcement dropped: %s", error)
            self.refused["announcement"] += 1
            return
        yield LogEntry(RecordType.SERIES, batch.header, batch.data)

    def _batches(self, one: PollResult, samples: Samples, lane: int, numbers: LaneNumbers) -> Iterator[LogEntry]:
        """Yield one batch, or halves of it, again and again, until each fits into 512 KiB."""
        id = numbers.peek(lane)
        try:
            batch = self._encoder.samples(id, one.source, one.endpoint, one.birth_ms, one.poll_ms, one.keep, samples)
        except BatchError as error:
            if len(samples) == 1:
                log.error("sample dropped, larger than a batch of %d bytes: %s", MAX_BYTES, error)
                self.refused["sample"] += 1
                return
            middle = len(samples) // 2
            yield from self._batches(one, samples.slice(0, middle), lane, numbers)
            yield from self._batches(one, samples.slice(middle, len(samples)), lane, numbers)
            return
        numbers.use(lane)
        yield LogEntry(RecordType.BATCH, batch.header, batch.data, minutes_of(samples))
