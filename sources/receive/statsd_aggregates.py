"""Aggregates of StatsD: counters, gauges, timers and histograms, sets."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Mapping
from itertools import accumulate

import xxhash

from sources.receive.line_body import LineFault, finite
from sources.receive.received_columns import bound_text

MS_BOUNDS = (1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000)
"""Upper bounds of timers in ms."""
BOUNDS = tuple(digit * 10.0**power for power in range(-3, 6) for digit in (1, 2.5, 5))
"""Upper bounds of histograms and distributions, which have any unit: 0.001 to 500,000."""
MAX_MEMBERS = 10_000
"""Different values of a set in a period."""
Values = list[tuple[str, str, float]]


class Aggregate(ABC):
    """Values of one metric since the last period. `read` returns suffix, bound and value of its samples, `settle`
    removes what was read last.

    `is_delta`: its values are increases; `begun_ms`: begin of its first period; `is_over`: it ends with this period."""

    kind, unit, series, is_delta = "gauge", "", 1, False

    def __init__(self, name: str, labels: dict[str, str], begun_ms: int) -> None:
        self.name, self.labels, self.begun_ms = name, labels, begun_ms
        self.heard_ms, self.read_ms = begun_ms, 0
        self.is_over = False

    @property
    def is_new(self) -> bool:
        """True if it has a value since `read`."""
        return self.heard_ms > self.read_ms

    @abstractmethod
    def add(self, text: bytes, rate: float) -> None:
        """Add a value that was sampled at a rate. Raises LineFault."""

    @abstractmethod
    def read(self) -> Values: ...

    @abstractmethod
    def settle(self) -> None: ...


class CounterAggregate(Aggregate):
    """Sum of increments."""

    kind, is_delta = "counter", True

    def __init__(self, name: str, labels: dict[str, str], begun_ms: int) -> None:
        super().__init__(name, labels, begun_ms)
        self._sum = self._read = 0.0

    def add(self, text: bytes, rate: float) -> None:
        self._sum += finite(text) / rate

    def read(self) -> Values:
        self._read, self.read_ms = self._sum, self.heard_ms
        return [("", "", _number(self._sum))]

    def settle(self) -> None:
        self._sum, self._read = self._sum - self._read, 0.0


class GaugeAggregate(Aggregate):
    """Last value. A value with a sign is a change. Changes before the first value apply to the value of the agent's
    previous run."""

    def __init__(self, name: str, labels: dict[str, str], begun_ms: int) -> None:
        super().__init__(name, labels, begun_ms)
        self.is_delta, self._value, self._read = True, 0.0, 0.0

    def add(self, text: bytes, rate: float) -> None:  # noqa: ARG002
        value = finite(text)
        if text[:1] in (b"+", b"-"):
            self._value += value
        else:
            self.is_delta, self._value = False, value

    def read(self) -> Values:
        self._read, self.read_ms = self._value if self.is_delta else 0.0, self.heard_ms
        return [("", "", self._value)]

    def settle(self) -> None:
        if self.is_delta:
            self._value -= self._read
        self._read = 0.0


class HistogramAggregate(Aggregate):
    """Counts by bounds, and the sum."""

    kind, is_delta, series = "histogram", True, len(BOUNDS) + 3
    bounds: tuple[float, ...] = BOUNDS

    def __init__(self, name: str, labels: dict[str, str], begun_ms: int) -> None:
        super().__init__(name, labels, begun_ms)
        self._counts = [0.0] * (len(self.bounds) + 1)
        self._sum = 0.0
        self._read, self._read_sum = self._counts, 0.0

    def add(self, text: bytes, rate: float) -> None:
        value = finite(text)
        self._counts[bisect_left(self.bounds, value)] += 1 / rate
        self._sum += value / rate

    def read(self) -> Values:
        self._read, self._read_sum, self.read_ms = list(self._counts), self._sum, self.heard_ms
        totals = list(map(_number, accumulate(self._counts)))
        bounds = map(bound_text, (*self.bounds, math.inf))
        found = [("_bucket", bound, total) for bound, total in zip(bounds, totals, strict=True)]
        return [*found, ("_count", "", totals[-1]), ("_sum", "", self._sum)]

    def settle(self) -> None:
        self._counts = [now - read for now, read in zip(self._counts, self._read, strict=True)]
        self._sum -= self._read_sum
        self._read, self._read_sum = [0.0] * len(self._counts), 0.0


class TimerAggregate(HistogramAggregate):
    """Durations in ms."""

    unit, series, bounds = "ms", len(MS_BOUNDS) + 3, MS_BOUNDS


class SetAggregate(Aggregate):
    """Number of different values in a period."""

    def __init__(self, name: str, labels: dict[str, str], begun_ms: int) -> None:
        super().__init__(name, labels, begun_ms)
        self._members: set[int] = set()
        self._read: set[int] = set()

    def add(self, text: bytes, rate: float) -> None:  # noqa: ARG002
        if len(self._members) >= MAX_MEMBERS:
            raise LineFault(f"a set of more than {MAX_MEMBERS:,} values in a period", "large set")
        self._members.add(xxhash.xxh3_64_intdigest(text))

    def read(self) -> Values:
        self._read, self.read_ms = set(self._members), self.heard_ms
        return [("", "", float(len(self._read)))]

    def settle(self) -> None:
        self._members -= self._read
        self._read = set()


AGGREGATES: Mapping[bytes, Callable[[str, dict[str, str], int], Aggregate]] = {
    b"c": CounterAggregate,
    b"m": CounterAggregate,
    b"g": GaugeAggregate,
    b"ms": TimerAggregate,
    b"h": HistogramAggregate,
    b"d": HistogramAggregate,
    b"s": SetAggregate,
}


def _number(value: float) -> float:
    """Return a whole number as int, so that counts are exact."""
    return int(value) if value.is_integer() else value
