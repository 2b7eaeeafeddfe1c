"""What sources polled becomes numbered batches: which lane, which number, one batch or several. No threads, no clock;
`Intake` drives it under its lock, the simulation without one."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from artimon.model.batch import MAX_BYTES, MAX_SAMPLES, Batch, BatchError, BatchId, Polled, Samples, SeriesBlock
from artimon.model.codec import encode_samples, encode_series
from artimon.model.protocols import SinkRefused
from artimon.model.routing import lane_of
from pipeline.log.audit import minutes_of
from pipeline.log.core import Entry
from pipeline.log.framing import RecordType

log = logging.getLogger(__name__)

Accepted = TypeVar("Accepted", covariant=True)


class Accepting(Protocol[Accepted]):
    """A log, as far as numbers go."""

    @property
    def epoch(self) -> int: ...

    @property
    def next_sequences(self) -> list[int]: ...

    def append(self, entries: Sequence[Entry]) -> Accepted:
        """Raises SinkRefused when nothing is kept."""
        ...


class Encoder(Protocol):
    """Makes the bytes of batches (artimon.model.codec). Raises BatchError beyond the limits of a batch."""

    def samples(
        self, id: BatchId, source: str, endpoint: bytes, birth_ms: int, poll_ms: int, keep: str, samples: Samples
    ) -> Batch: ...

    def series(self, agent: str, block: SeriesBlock) -> Batch: ...


class _Codec:
    def samples(
        self, id: BatchId, source: str, endpoint: bytes, birth_ms: int, poll_ms: int, keep: str, samples: Samples
    ) -> Batch:
        return encode_samples(id, source, endpoint, birth_ms, poll_ms, keep, samples)

    def series(self, agent: str, block: SeriesBlock) -> Batch:
        return encode_series(agent, block)


class Numbering(Generic[Accepted]):
    """Not thread-safe: its owner locks from `begin` on, so that a lane's numbers are in log order.

    Numbers of a batch that the disk then refused are not given again."""

    def __init__(self, log_: Accepting[Accepted], agent: str, encoder: Encoder | None = None) -> None:
        self._log, self._agent, self._encoder = log_, agent, encoder or _Codec()
        self._epoch, self._next = log_.epoch, log_.next_sequences
        self.refused: Counter[str] = Counter()

    def begin(self, polled: Sequence[Polled]) -> tuple[list[Entry], Accepted] | None:
        """Hand all of it to the log, or nothing; None if there is nothing. Raises SinkRefused."""
        if self._epoch != self._log.epoch:  # the log began another one while in use
            self._epoch, self._next = self._log.epoch, self._log.next_sequences
        numbers = list(self._next)
        entries = list(self._entries(polled, numbers))
        if not entries:
            return None
        try:
            accepted = self._log.append(entries)
        except SinkRefused as error:
            self.refused[str(error).split(":", 1)[0]] += 1
            raise
        self._next = numbers
        return entries, accepted

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
            batch = self._encoder.series(self._agent, block)
        except BatchError as error:
            log.error("announcement left out: %s", error)
            self.refused["announcement"] += 1
            return
        yield Entry(RecordType.SERIES, batch.header, batch.data)

    def _batches(self, one: Polled, samples: Samples, lane: int, numbers: list[int]) -> Iterator[Entry]:
        """One batch, or two halves as long as one would be beyond 512 KiB."""
        id = BatchId(self._agent, self._epoch, lane, numbers[lane])
        try:
            batch = self._encoder.samples(id, one.source, one.endpoint, one.birth_ms, one.poll_ms, one.keep, samples)
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
