"""A fleet in memory that grows by the minute: hosts that come and go, late samples, restarts, versions."""

from __future__ import annotations

import random
from collections import defaultdict

from artimon.model.values import Kind
from tests.query_dsl.plain_store import MINUTE, PlainSeries, PlainStore, Sample

HOSTS = tuple("abcdef")
COMES, GOES, FIRST, LAST = "e", "b", 64, 66
"""Host that comes in minute FIRST, and host whose last sample is of minute LAST."""
LATE = {2: 9, 5: 2, 6: 4}
"""Minutes after the world is asked first, and by how many minutes a sample of then comes too late."""
BOUNDS = ("0.1", "1", "+Inf")
ASKED = 62
"""Minute in which the world is asked first."""


class GrowingWorld:
    """Store with one sample a minute of each series."""

    def __init__(self, begin_ms: int, seed: int = 5) -> None:
        self.store, self.begin_ms, self.minute = PlainStore(), begin_ms, 0
        self._random = random.Random(seed)
        self._totals: dict[str, int] = defaultdict(int)
        self._series: dict[str, PlainSeries] = {}
        self._waiting: list[tuple[int, PlainSeries, Sample]] = []

    @property
    def now_ms(self) -> int:
        """End of the minute, which has settled."""
        return self.begin_ms + self.minute * MINUTE + 20_000

    def grow(self, minutes: int = 1) -> None:
        """Add the samples of the next minutes."""
        for _ in range(minutes):
            self.minute += 1
            for host in HOSTS:
                if (host != COMES or self.minute >= FIRST) and (host != GOES or self.minute <= LAST):
                    self._poll(host)
            version = "1.0" if self.minute < FIRST else "1.1"
            self._add("shop.version", {}, version, Kind.UNKNOWN)
            for due, series, sample in list(self._waiting):
                if due <= self.minute:
                    self._waiting.remove((due, series, sample))
                    series.samples.append(sample)
                    series.samples.sort(key=lambda one: one.time)

    def _poll(self, host: str) -> None:
        rack = "r1" if host in "abc" else "r2"
        value = self._random.randint(0, 400) / 4
        late = LATE.get(self.minute - ASKED, 0) if host == "c" else 0
        self._add("load", {"host": host, "rack": rack}, value, Kind.GAUGE, late)
        self._totals[host] = 0 if self._random.random() < 0.02 else self._totals[host] + self._random.randint(0, 50)
        self._add("requests", {"host": host, "rack": rack}, self._totals[host], Kind.COUNTER)
        grown = 0
        for bound in BOUNDS:
            grown += self._random.randint(0, 9)
            self._totals[f"{host} {bound}"] += grown
            self._add("duration.bucket", {"host": host, "le": bound}, self._totals[f"{host} {bound}"], Kind.COUNTER)

    def _add(self, name: str, labels: dict[str, str], value: float | str, kind: Kind, late: int = 0) -> None:
        key = f"{name} {labels}"
        sample = Sample(self.begin_ms + self.minute * MINUTE - 30_000, value, self.begin_ms)
        if key not in self._series:
            self.store.add(name, labels, [sample], kind)
            self._series[key] = self.store.series[-1]
        elif late:
            self._waiting.append((self.minute + late, self._series[key], sample))
        else:
            self._series[key].samples.append(sample)
