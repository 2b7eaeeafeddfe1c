"""Link of one process to its collectors: the collector to call next, the timeout of a call, the bytes in flight. Pure:
no I/O, no clock, no threads.

Every call to a collector, or to an agent with the same service, goes through a link: the lanes of a log, a batch that
bypasses the log, a hop between agents, a hand-over between sites.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pipeline.link.collector_choice import CollectorEndpoint, Collectors
from pipeline.link.credits import AgentCredits
from pipeline.link.timer import AdaptiveTimer

MAX_CALL_BYTES = 4 * 1024 * 1024 - 64 * 1024
"""Most bytes of the messages of one call, below the frame limit of collectors."""
MAX_CALL_MESSAGES = 2_000
"""Most messages of one call."""
MIN_DEADLINE_S = 15.0
"""Above the collector's own timeout for Kafka (pipeline/collector/kafka_writer.py), so that its answer comes first."""
ALTERNATIVE_DEADLINE_S = 5.0
"""Timeout in seconds while another collector that is not slow is known: a repeat is better than a waiting lane."""
SLOW_S = 3.0
"""Seconds after which a call marks its collector as slow: for a while others are preferred."""
SLOW_FOR_S = 30.0
"""Seconds for which other collectors are preferred."""


@dataclass(slots=True, eq=False)
class CallReservation:
    """Bytes reserved for one call. `deadline_s`: timeout in seconds, 0 until the call began."""

    endpoint: CollectorEndpoint
    size: int
    began: float
    deadline_s: float = 0.0


@dataclass(slots=True)
class CollectorLink:
    """State of the link. Not thread-safe: its owner locks. Times (`now`) are seconds of a monotonic clock.

    A call is reserved, begun, and ends once: by `answered`, `silent` or `cancel`. Invariant: the bytes of the flights
    that have not ended count against the credit of their collector."""

    collectors: Collectors
    timer: AdaptiveTimer = field(default_factory=lambda: AdaptiveTimer(min_s=MIN_DEADLINE_S))
    other_deadline_s: float | None = ALTERNATIVE_DEADLINE_S
    """Least timeout while another collector may be tried; None: that of the timer."""
    credits: AgentCredits[CollectorEndpoint] = field(default_factory=AgentCredits)
    carried_bytes: int = 0
    """Payload of all calls that got a connection, answered or not; retries count again."""
    calls: int = 0
    """Calls begun since start."""
    unanswered_calls: Counter[str] = field(default_factory=Counter)
    """Calls without an answer, by reason: `late` or `broken`."""
    slow_count: int = 0
    """Number of times that a collector became slow."""
    _in_flight: set[CallReservation] = field(default_factory=set)

    @classmethod
    def of(cls, caller: str, least_s: float = MIN_DEADLINE_S, most_s: float = 60.0) -> CollectorLink:
        """Return a link without collectors and with one timeout for all cases. `caller`: name by which callers spread
        over the collectors."""
        return cls(Collectors(caller), AdaptiveTimer(min_s=least_s, max_s=most_s), None)

    def update(self, found: Mapping[str, CollectorEndpoint]) -> None:
        """Take over the endpoints in the registry, by id."""
        self.collectors.update(found)
        self.credits.retain(self.collectors.endpoints())

    def count_fitting(self, endpoint: CollectorEndpoint, sizes: Iterable[int]) -> int:
        """Return the number of messages of these sizes, in order, that one call may take now; at least one while
        nothing is in flight to that collector."""
        room, free = min(self.credits.room(endpoint), MAX_CALL_BYTES), not self.credits.in_flight(endpoint)
        count = total = 0
        for size in sizes:
            total += size
            if count >= MAX_CALL_MESSAGES or (total > room and (count or not free)):
                break
            count += 1
        return count

    def reserve(self, endpoint: CollectorEndpoint, size: int, now: float) -> CallReservation:
        """Count bytes against the credit of a collector before they are read."""
        flight = CallReservation(endpoint, size, now)
        self.credits.reserve(endpoint, size)
        self._in_flight.add(flight)
        return flight

    def begin(self, flight: CallReservation, endpoint: CollectorEndpoint, now: float) -> bool:
        """Begin the call to `endpoint`; False, without any change, if that is another collector without room for it."""
        if endpoint != flight.endpoint:
            if self.credits.room(endpoint) < flight.size:
                return False
            self.credits.cancel(flight.endpoint, flight.size)
            self.credits.reserve(endpoint, flight.size)
            flight.endpoint = endpoint
        self.carried_bytes += flight.size
        self.calls += 1
        self.collectors.note_call(endpoint)
        other = self.collectors.has_other(endpoint, now)
        flight.began, flight.deadline_s = now, self.timer.deadline(self.other_deadline_s if other else None)
        return True

    def end_answered(self, flight: CallReservation, granted: int, now: float, useful: bool = True) -> None:
        """End a call with an answer. `granted`: the new credit, or NOT_TOLD. Not `useful`: the collector took nothing,
        for a reason of its own."""
        self.collectors.note_answer(flight.endpoint)
        self.timer.record_answer(now - flight.began)
        self._end(flight, granted)
        if now - flight.began > SLOW_S or not useful:
            self._is_slow(flight.endpoint, now)

    def end_unanswered(self, flight: CallReservation, now: float, late: bool, reached: bool = True) -> None:
        """End a call without an answer. `late`: it timed out, else the connection broke. Not `reached`: there was no
        connection, and nothing was sent."""
        if not reached:
            self.carried_bytes -= flight.size
        self.collectors.note_failure(flight.endpoint, now)
        self.unanswered_calls["late" if late else "broken"] += 1
        if late:
            self.timer.record_timeout()
        self._end(flight, None)

    def cancel(self, flight: CallReservation) -> None:
        """Return the bytes of a call that is not made; no effect if it has ended."""
        if flight in self._in_flight:
            self._in_flight.discard(flight)
            self.credits.cancel(flight.endpoint, flight.size)

    def find_slow(self, now: float) -> None:
        """Mark collectors as slow that keep a call waiting, before their answer comes."""
        for flight in self._in_flight:
            if now - flight.began > SLOW_S:
                self._is_slow(flight.endpoint, now)

    @property
    def bytes_in_flight(self) -> int:
        return sum(flight.size for flight in self._in_flight)

    def _end(self, flight: CallReservation, granted: int | None) -> None:
        if flight in self._in_flight:
            self._in_flight.discard(flight)
            self.credits.settle(flight.endpoint, flight.size, granted)

    def _is_slow(self, endpoint: CollectorEndpoint, now: float) -> None:
        self.slow_count += self.collectors.mark_slow(endpoint, now + SLOW_FOR_S, now)
