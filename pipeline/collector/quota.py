"""How full Kafka is: bytes of the topic of samples against a quota. Near it a collector answers `buffer full`, and data
waits in the agents' logs.

Nobody shares a count: each collector asks Kafka every few seconds and adds what it wrote itself since. What others
wrote since is unknown until the next answer, which the room between FULL and the quota is for.
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
from artimon.runtime.supervise import LoopGuard

log = logging.getLogger(__name__)

FULL, AGAIN = 0.95, 0.90
"""Parts of the quota: from the first on nothing is taken, until the use is below the second."""
EVERY_S = 2.0
STALE_S = 60.0
"""From this age of an answer on, own bytes count double: once for the others, whose bytes cannot be seen."""
LEAST_USABLE = 256 * 1024 * 1024
"""Free bytes that a disk of Kafka must keep: a broker whose disk is full ends."""
MESSAGE_OVERHEAD = 100
"""Bytes of a message in Kafka's log besides its value, rounded up."""


class QuotaError(RuntimeError):
    """Kafka does not say how large the topic is. The text says why."""


@dataclass(frozen=True, slots=True)
class LogSizes:
    """What the brokers say of a topic: bytes of each partition (its largest replica), and the fewest free bytes of a
    disk that holds any of it (None: not told). A partition of which no broker spoke is absent."""

    partitions: Mapping[int, int]
    usable: int | None = None

    @property
    def total(self) -> int:
        return sum(self.partitions.values())


def sizes_of(answers: Iterable[Any], topic: str) -> LogSizes:
    """From the brokers' answers to DescribeLogDirs. Copies that are on their way to another disk do not count."""
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


def with_older(sizes: LogSizes, older: Sequence[LogSizes]) -> LogSizes:
    """The sizes of a topic with those of its older generations: under numbers below 0, which no partition has."""
    more = {
        -1 - MAX_PARTITIONS * place - partition: size
        for place, one in enumerate(older)
        for partition, size in one.partitions.items()
    }
    usable = [one.usable for one in (sizes, *older) if one.usable is not None]
    return LogSizes({**sizes.partitions, **more}, min(usable, default=None))


class Quota:
    """The count of one collector. Thread-safe. `limit` in bytes; 0: there is no quota.

    Invariant: used >= what Kafka held when it was last asked + what this collector has since been answered or is still
    waiting for. A partition that cannot be measured keeps its last size."""

    def __init__(self, limit: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self.limit, self._clock = limit, clock
        self._lock = threading.Lock()
        self._sizes: dict[int, tuple[int, float]] = {}
        """Partition -> bytes, and when Kafka was asked."""
        self._flying: Counter[int] = Counter()
        self._since: Counter[int] = Counter()
        self._usable: int | None = None
        self._full = False
        self._failure = ""

    def admit(self, partition: int, size: int) -> str:
        """ "" and the bytes are counted (`settled` must follow), or why they may not go to Kafka now."""
        with self._lock:
            if self.limit and not self._full:
                self._full = self._used() + size > FULL * self.limit or self._disk_full()
            if self.limit and self._full:
                return self._reason()
            self._flying[partition] += size
            return ""

    def settled(self, partition: int, size: int) -> None:
        """Kafka answered or will not: it may hold these bytes now."""
        with self._lock:
            self._flying[partition] -= size
            self._since[partition] += size

    def measure(self, ask: Callable[[], LogSizes]) -> None:
        """Ask Kafka, outside the lock. A failure is kept for `problem`; what was known stays."""
        with self._lock:
            before, asked = Counter(self._since), self._clock.monotonic()
        try:
            found, failure = ask(), ""
        except (QuotaError, OSError, RuntimeError) as error:
            found, failure = LogSizes({}), str(error)
        with self._lock:
            self._take(found, before, asked, failure)

    @property
    def known(self) -> bool:
        """Whether Kafka has ever said how large the topic is (or there is no quota)."""
        with self._lock:
            return not self.limit or bool(self._sizes)

    @property
    def problem(self) -> str:
        """What a person should know, "" if nothing."""
        with self._lock:
            if self.limit and self._full:
                return self._reason()
            if not self.limit or not self._stale():
                return ""
            age = self._clock.monotonic() - min(asked for _, asked in self._sizes.values())
            return f"Kafka's size is not known for {age:.0f} s, own bytes count double: {self._failure or 'no answer'}"

    @property
    def failure(self) -> str:
        """Why Kafka did not say its size when it was last asked, "" if it did."""
        with self._lock:
            return self._failure

    def figures(self) -> dict[str, Any]:
        """For health; "bytes" is absent until Kafka has said it."""
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

    def _take(self, found: LogSizes, before: Counter[int], asked: float, failure: str) -> None:
        for partition, size in found.partitions.items():
            self._sizes[partition] = size, asked
            self._since[partition] -= before[partition]
        if found.partitions:
            self._usable = found.usable
        if failure and failure != self._failure:
            log.warning("quota: %s", failure)
        self._failure = failure
        if not self._sizes:
            return
        mark = AGAIN if self._full else FULL
        full = bool(self.limit) and (self._used() >= mark * self.limit or self._disk_full())
        if full != self._full:
            log.warning("quota: %s", self._reason() if full else f"room again, {self._used()} of {self.limit} bytes")
        self._full = full

    def _used(self) -> int:
        total = 0
        for partition in {*self._sizes, *self._flying, *self._since}:
            size, asked = self._sizes.get(partition, (0, 0.0))
            own = self._since[partition] + self._flying[partition]
            total += size + own * (2 if self._old(asked) else 1)
        return total

    def _old(self, asked: float) -> bool:
        return self._clock.monotonic() - asked > STALE_S

    def _stale(self) -> bool:
        return any(self._old(asked) for _, asked in self._sizes.values())

    def _disk_full(self) -> bool:
        return self._usable is not None and self._usable < LEAST_USABLE

    def _reason(self) -> str:
        if self._disk_full():
            return f"buffer full: a disk of Kafka has {self._usable} bytes left; data waits in the agents' logs"
        return f"buffer full: {self._used()} of {self.limit} bytes used in Kafka; data waits in the agents' logs"


def watch(quota: Quota, ask: Callable[[], LogSizes], stop: threading.Event, clock: Clock = SYSTEM_CLOCK) -> None:
    """Measure every few seconds until `stop`; for a thread of its own."""
    turns = LoopGuard("quota")
    while not clock.wait(stop, EVERY_S):
        turns.turn(lambda: quota.measure(ask))
