"""Link of one process to its collectors: the collector to call next, the deadline of a call, the bytes on their way.
Pure: no I/O, no clock, no threads.

Everything that is sent to a collector, or to an agent that answers as one, goes through a link: the lanes of a log, a
batch that passes the log by, a hop between agents, a hand-over between sites.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pipeline.link.credits import Credits
from pipeline.link.endpoints import Collectors, Endpoint
from pipeline.link.timer import AdaptiveTimer

CALL_BYTES = 4 * 1024 * 1024 - 64 * 1024
"""Most bytes of the messages of one call, below the frame that collectors take."""
CALL_COUNT = 2_000
"""Most messages of one call."""
LEAST_DEADLINE_S = 15.0
"""Above the time that a collector gives Kafka (pipeline/collector/broker.py), so that its own answer comes first."""
OTHER_DEADLINE_S = 5.0
"""Deadline while another collector is known that is not slow: a repeat is better than a lane that waits."""
SLOW_S = 3.0
"""A collector that takes longer for a call is slow: for a while others are preferred."""
SLOW_FOR_S = 30.0
"""Time in seconds for which others are preferred."""


@dataclass(slots=True, eq=False)
class Flight:
    """Bytes reserved for one call. `deadline_s`: time to wait for the answer, 0 until the call began."""

    endpoint: Endpoint
    size: int
    began: float
    deadline_s: float = 0.0


@dataclass(slots=True)
class Link:
    """Not thread-safe: its owner locks. Times (`now`) are seconds of a clock that never goes back.

    A call is reserved, begun, and ends once: by `answered`, `silent` or `cancel`. Invariant: the bytes of the flights
    that have not ended count against the credit of their collector."""

    collectors: Collectors
    timer: AdaptiveTimer = field(default_factory=lambda: AdaptiveTimer(least=LEAST_DEADLINE_S))
    other_deadline_s: float | None = OTHER_DEADLINE_S
    """Least deadline while another collector may be tried; None: that of the timer."""
    credits: Credits[Endpoint] = field(default_factory=Credits)
    carried_bytes: int = 0
    """Payload of all calls that got a connection, answered or not: what is sent again counts again."""
    calls: int = 0
    """Begun since start."""
    unanswered: Counter[str] = field(default_factory=Counter)
    """Calls without an answer, `late` or `broken`."""
    slow: int = 0
    """Number of times that a collector was found to be slow."""
    _flying: set[Flight] = field(default_factory=set)

    @classmethod
    def of(cls, caller: str, least_s: float = LEAST_DEADLINE_S, most_s: float = 60.0) -> Link:
        """Return a link that knows no collector yet and has one deadline, whoever else may be tried. `caller`: name
        by which many callers spread over the collectors."""
        return cls(Collectors(caller), AdaptiveTimer(least=least_s, most=most_s), None)

    def update(self, found: Mapping[str, Endpoint]) -> None:
        """Take over what the registry lists, by id."""
        self.collectors.update(found)
        self.credits.keep(self.collectors.known())

    def fit(self, endpoint: Endpoint, sizes: Iterable[int]) -> int:
        """Return the number of messages of these sizes, in order, that one call may take now; at least one while
        nothing is on its way to that collector."""
        room, free = min(self.credits.room(endpoint), CALL_BYTES), not self.credits.flying(endpoint)
        count = total = 0
        for size in sizes:
            total += size
            if count >= CALL_COUNT or (total > room and (count or not free)):
                break
            count += 1
        return count

    def reserve(self, endpoint: Endpoint, size: int, now: float) -> Flight:
        """Count bytes against the credit of a collector before they are read."""
        flight = Flight(endpoint, size, now)
        self.credits.began(endpoint, size)
        self._flying.add(flight)
        return flight

    def begin(self, flight: Flight, endpoint: Endpoint, now: float) -> bool:
        """Begin the call, to `endpoint`; False and no change if that is another one without room for it."""
        if endpoint != flight.endpoint:
            if self.credits.room(endpoint) < flight.size:
                return False
            self.credits.returned(flight.endpoint, flight.size)
            self.credits.began(endpoint, flight.size)
            flight.endpoint = endpoint
        self.carried_bytes += flight.size
        self.calls += 1
        self.collectors.chosen(endpoint)
        other = self.collectors.another(endpoint, now)
        flight.began, flight.deadline_s = now, self.timer.deadline(self.other_deadline_s if other else None)
        return True

    def answered(self, flight: Flight, granted: int, now: float, useful: bool = True) -> None:
        """The collector answered. `granted`: its new credit, or NOT_TOLD. Not `useful`: it took nothing, for a reason
        of its own."""
        self.collectors.worked(flight.endpoint)
        self.timer.answered(now - flight.began)
        self._end(flight, granted)
        if now - flight.began > SLOW_S or not useful:
            self._is_slow(flight.endpoint, now)

    def silent(self, flight: Flight, now: float, late: bool, reached: bool = True) -> None:
        """No answer; `late`: none in time, else the connection broke. Not `reached`: there was none, and nothing was
        sent."""
        if not reached:
            self.carried_bytes -= flight.size
        self.collectors.failed(flight.endpoint, now)
        self.unanswered["late" if late else "broken"] += 1
        if late:
            self.timer.timed_out()
        self._end(flight, None)

    def cancel(self, flight: Flight) -> None:
        """The call is not made, or its end was told already."""
        if flight in self._flying:
            self._flying.discard(flight)
            self.credits.returned(flight.endpoint, flight.size)

    def find_slow(self, now: float) -> None:
        """Note collectors that keep a call waiting, before their answer comes."""
        for flight in self._flying:
            if now - flight.began > SLOW_S:
                self._is_slow(flight.endpoint, now)

    @property
    def flying_bytes(self) -> int:
        """Bytes on their way to collectors."""
        return sum(flight.size for flight in self._flying)

    def _end(self, flight: Flight, granted: int | None) -> None:
        if flight in self._flying:
            self._flying.discard(flight)
            self.credits.ended(flight.endpoint, flight.size, granted)

    def _is_slow(self, endpoint: Endpoint, now: float) -> None:
        self.slow += self.collectors.slow(endpoint, now + SLOW_FOR_S, now)
