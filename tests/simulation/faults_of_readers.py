"""Defects planted into what reads Kafka and into the log: those that were once in the program or in the simulation."""

from __future__ import annotations

from typing import Any

from pipeline.log.core import LogCore, Tell, Work
from pipeline.spark.buckets import Life
from pipeline.spark.raw import RawQuery
from tests.simulation.planting import Fault, around, on


def raw_ignores_log_start() -> list[Any]:
    return [on(RawQuery, "_check_unread", lambda self, life: None)]


def buckets_ignore_log_start() -> list[Any]:
    return [on(Life, "pass_deleted", lambda self, bounds: None)]


def done_segments_stay() -> list[Any]:
    """Segments go with the next batch only: a log that is full takes none."""

    def write(real: Any, self: LogCore, work: Work, tell: Tell) -> None:
        kept, self.keep_segments = self.keep_segments, not work.tickets
        try:
            real(self, work, tell)
        finally:
            self.keep_segments = kept

    return [around(LogCore, "write", write)]


READER_FAULTS = [
    Fault("raw ignores log start", "the raw query waits for what Kafka deleted unread", raw_ignores_log_start),
    Fault("buckets ignore log start", "shards wait for what Kafka deleted unread", buckets_ignore_log_start),
    Fault("done segments stay", "a full log keeps what nobody needs", done_segments_stay),
]
