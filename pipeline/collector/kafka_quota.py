"""Quota on the bytes of the topic of samples in Kafka. Near it a collector answers `buffer full`, and data waits in the
logs of the agents.

Collectors share no count: each asks Kafka every few seconds and adds its own writes since then. Writes of other
collectors are unknown until the next answer; the room between FULL and the quota is for them.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.topic_spec import MAX_PARTITIONS
from artimon.runtime.supervision import LoopGuard

log = logging.getLogger(__name__)

FULL_SHARE, RESUME_SHARE = 0.95, 0.90
"""Fractions of the quota: at the first nothing more is accepted, until the use falls below the second."""
MEASURE_INTERVAL_S = 2.0
STALE_S = 60.0
"""Age of an answer in seconds from which own bytes count double: once for other collectors, whose bytes are unknown."""
MIN_FREE_BYTES = 256 * 1024 * 1024
"""Free bytes that a disk of Kafka must keep: a broker whose disk is full ends."""
MESSAGE_OVERHEAD = 100
"""Bytes of a message in Kafka's log besides its value, rounded up."""


class QuotaError(RuntimeError):
    """Kafka does not report the size of the topic. The text gives the reason."""


@dataclass(frozen=True, slots=True)
class LogSizes:
    """Sizes of a topic as reported by the brokers: bytes of each partition (its largest replica), and the fewest free
    bytes of a disk that holds any of it (None: not reported). Partitions without a report are absent."""

    partitions: Mapping[int, int]
    usable: int | None = None

    @property
    def total(self) -> int:
        return sum(self.partitions.values())


def sizes_of(answers: Iterable[Any], topic: str) -> LogSizes:
    """Extract the sizes from answers to DescribeLogDirs. Replicas that are moving to another disk do not count."""
    partitions: dict[int, int] = {}
    usable: list[int] = []
    for place in (place for answer in answers for place in answer.results if not place.error_code):
        found = [p for t in place.topics if t.name == topic for p in t.partitions if not p.is_future_key]
        for one in found:
            partitions[one.partition_index] = max(partitions.get(one.partition_index, 0), one.partition_size)
        free = getattr(place, "usable_bytes", None)
        if found and free is not None and free >= 0:
            usable.append(free)
    return LogSizes(partitions, min(usable, default=None))


def add_generations(sizes: LogSizes, older: Sequence[LogSizes]) -> LogSizes:
    """Add the sizes of older generations to those of a topic, under negative numbers, which no partition has."""
    more = {
        -1 - MAX_PARTITIONS * place - partition: size
        for place, one in enumerate(older)
        for partition, size in one.partitions.items()
    }
    usable = [one.usable for one in (sizes, *older) if one.usable is not None]
    return LogSizes({**sizes.partitions, **more}, min(usable, default=None))


class KafkaQuotaGate:
    """Quota of one collector. Thread-safe. `limit` in bytes; 0: unlimited.

    Invariant: used >= bytes in Kafka at the last answer + bytes that this collector has written since or is still
    writing. A partition that cannot be measured keeps its last size."""

    def __init__(self, limit: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self.limit, self._clock = limit, clock
        self._lock = threading.Lock()
        self._sizes: dict[int, tuple[int, float]] = {}
        """Bytes by partition, with the time of the answer."""
        self._in_flight: Counter[int] = Counter()
        self._written_since: Counter[int] = Counter()
        self._usable: int | None = None
        self._full = False
        self._failure = ""

    def admit(self, partition: int, size: int) -> str:
        """Count the bytes and return "" (`settled` must follow), or return why they may not go to Kafka now."""
        with self._lock:
            if self.limit and not self._full:
                self._full = self._used() + size > FULL_SHARE * self.limit or self._disk_full()
            if self.limit and self._full:
                return self._reason()
            self._in_flight[partition] += size
            return ""

    def mark_written(self, partition: int, size: int) -> None:
        """Move bytes from in flight to written: Kafka answered or never will, so it may hold them."""
        with self._lock:
            self._in_flight[partition] -= size
            self._written_since[partition] += size

    def measure(self, ask: Callable[[], LogSizes]) -> None:
        """Ask Kafka, outside the lock. A failure is kept for `problem`; earlier sizes stay."""
        with self._lock:
            before, asked = Counter(self._written_since), self._clock.monotonic()
        try:
            found, failure = ask(), ""
        except (QuotaError, OSError, RuntimeError) as error:
            found, failure = LogSizes({}), str(error)
        with self._lock:
            self._apply_sizes(found, before, asked, failure)

    @property
    def is_measured(self) -> bool:
        """True once Kafka has reported the size of the topic, or without a quota."""
        with self._lock:
            return not self.limit or bool(self._sizes)

    @property
    def problem(self) -> str:
        """Problem to show to operators, "" if none."""
        with self._lock:
            if self.limit and self._full:
                return self._reason()
            if not self.limit or not self._is_stale():
                return ""
            age = self._clock.monotonic() - min(asked for _, asked in self._sizes.values())
            return f"Kafka's size is unknown for {age:.0f} s, own bytes count double: {self._failure or 'no answer'}"

    @property
    def failure(self) -> str:
        """Reason why Kafka did not report its size at the last request, "" if it did."""
        with self._lock:
            return self._failure

    def figures(self) -> dict[str, Any]:
        """Return figures for the health file; "bytes" is absent until Kafka has reported it."""
        with self._lock:
            if not self._sizes:
                return {"quota_bytes": self.limit}
            oldest = min(asked for _, asked in self._sizes.values())
            return {
                "bytes": self._used(),
                "quota_bytes": self.limit,
                "full": self._full,
                "usable_bytes": self._usable,
                "age_ms": round((self._clock.monotonic() - oldest) * 1000),
            }

    def _apply_sizes(self, found: LogSizes, before: Counter[int], asked: float, failure: str) -> None:
        for partition, size in found.partitions.items():
            self._sizes[partition] = size, asked
            self._written_since[partition] -= before[partition]
        if found.partitions:
            self._usable = found.usable
        if failure and failure != self._failure:
            log.warning("quota: %s", failure)
        self._failure = failure
        if not self._sizes:
            return
        mark = RESUME_SHARE if self._full else FULL_SHARE
        full = bool(self.limit) and (self._used() >= mark * self.limit or self._disk_full())
        if full != self._full:
            log.warning("quota: %s", self._reason() if full else f"room again, {self._used()} of {self.limit} bytes")
        self._full = full

    def _used(self) -> int:
        total = 0
        for partition in {*self._sizes, *self._in_flight, *self._written_since}:
            size, asked = self._sizes.get(partition, (0, 0.0))
            own = self._written_since[partition] + self._in_flight[partition]
            total += size + own * (2 if self._is_old(asked) else 1)
        return total

    def _is_old(self, asked: float) -> bool:
        return self._clock.monotonic() - asked > STALE_S

    def _is_stale(self) -> bool:
        return any(self._is_old(asked) for _, asked in self._sizes.values())

    def _disk_full(self) -> bool:
        return self._usable is not None and self._usable < MIN_FREE_BYTES

    def _reason(self) -> str:
        if self._disk_full():
            return f"buffer full: a disk of Kafka has {self._usable} bytes left; data waits in the agents' logs"
        return f"buffer full: {self._used()} of {self.limit} bytes used in Kafka; data waits in the agents' logs"


def measure_until(
    quota: KafkaQuotaGate, ask: Callable[[], LogSizes], stop: threading.Event, clock: Clock = SYSTEM_CLOCK
) -> None:
    """Measure every few seconds until `stop`; runs in its own thread."""
    turns = LoopGuard("quota")
    while not clock.wait(stop, MEASURE_INTERVAL_S):
        turns.attempt(lambda: quota.measure(ask))
