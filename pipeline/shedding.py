"""Room in a full log: the oldest batches are given up once a record that names them is durable (pipeline/log/shed.py)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Protocol

from artimon.model.batch import BatchHeader, BatchKind, Polled
from artimon.model.codec import parse_header
from artimon.model.protocols import SinkRefused
from pipeline.log.core import LogFailed
from pipeline.log.records import Place
from pipeline.log.segments import CorruptRecord
from pipeline.log.shed import carried, records

log = logging.getLogger(__name__)

GiveUp = Callable[[Sequence[Place]], Container[Place]]
"""Send none of these any more; returns those that Kafka has said to hold."""
Keep = Callable[[Iterable[Polled]], None]
"""Make records durable, beyond the quota if need be. Raises SinkRefused, LogFailed, OSError, TimeoutError."""


class Shedable(Protocol):
    """The log that is full."""

    def oldest_live(self) -> list[Place]: ...

    def read(self, place: Place) -> bytes: ...

    def release(self, places: Iterable[Place]) -> None: ...

    def tidy(self) -> None: ...


class Shedding:
    """Not thread-safe: its owner locks."""

    def __init__(self, wal: Shedable, agent: str, give_up: GiveUp, keep: Keep) -> None:
        self._log, self._agent, self._give_up, self._keep = wal, agent, give_up, keep
        self.batches = 0
        """Accepted and given up since start."""

    def make_room(self) -> bool:
        """Give up what the oldest full segment holds; False if there is none, or its record cannot be written."""
        places = self._log.oldest_live()
        if not places:
            return False
        sent = self._give_up(places)
        try:
            self._keep(carried(self._agent, self._read(places, sent)))
            self._keep(records(self._agent, self._read(places, sent)))
        except (SinkRefused, LogFailed, CorruptRecord, OSError, TimeoutError) as error:
            log.error("the log could not shed: %s", error)
            return False
        count = sum(1 for header, _, _ in self._read(places, sent) if header.kind != BatchKind.SERIES)
        log.error("the log is full: %d batches were given up to make room", count)
        self.batches += count
        self._log.release(places)
        self._log.tidy()
        return True

    def _read(self, places: Sequence[Place], sent: Container[Place]) -> Iterator[tuple[BatchHeader, bytes, bool]]:
        for place in places:
            payload = self._log.read(place)
            yield parse_header(payload), payload, place in sent
