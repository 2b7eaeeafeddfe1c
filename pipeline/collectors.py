"""Which collectors there are, and which one to use next. Pure: the caller brings the time and what ZooKeeper says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import xxhash

from pipeline.timer import backoff

COLLECTORS_PATH = "/artimon/collectors"


class Endpoint(NamedTuple):
    """Where a collector listens."""

    host: str
    port: int


@dataclass(slots=True)
class _Standing:
    failures: int = 0
    not_before: float = 0.0


def parse_endpoint(data: bytes) -> Endpoint:
    """From a collector's znode; raises ValueError."""
    try:
        parsed = json.loads(data)
        return Endpoint(str(parsed["host"]), int(parsed["port"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"no collector: {data[:200]!r}") from error


class Collectors:
    """The known collectors, in an order of this agent's own, so that many agents spread over them. Not thread-safe.

    An empty list is not believed: the last known ones are kept, since a collector may serve while ZooKeeper forgets it.
    """

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._known: dict[str, Endpoint] = {}
        self._standing: dict[Endpoint, _Standing] = {}

    def update(self, found: Mapping[str, Endpoint]) -> None:
        """What ZooKeeper lists now, by id."""
        if found:
            ranked = sorted(found, key=lambda name: xxhash.xxh3_64_intdigest(f"{self._agent}@{name}".encode()))
            self._known = {name: found[name] for name in ranked}
            self._standing = {e: self._standing.get(e, _Standing()) for e in self._known.values()}

    def pick(self, now: float) -> Endpoint | None:
        """The first collector that may be tried now."""
        for endpoint, standing in self._standing.items():
            if standing.not_before <= now:
                return endpoint
        return None

    def worked(self, endpoint: Endpoint) -> None:
        """It answered."""
        if endpoint in self._standing:
            self._standing[endpoint] = _Standing()

    def failed(self, endpoint: Endpoint, now: float) -> None:
        """It did not: leave it alone for a while, longer each time (at most 10 s)."""
        standing = self._standing.get(endpoint)
        if standing is not None and standing.not_before <= now:  # several calls that fail at once count once
            standing.failures += 1
            standing.not_before = now + backoff(standing.failures, 0.2, 10.0)

    def up(self) -> int:
        """How many have not failed since they last answered."""
        return sum(1 for s in self._standing.values() if not s.failures)

    def __len__(self) -> int:
        return len(self._known)
