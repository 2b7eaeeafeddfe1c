"""Known collectors, and the choice of the next one. Pure: the caller brings the time and the list from ZooKeeper."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import xxhash

from artimon.model.znode import parse_json_object
from pipeline.link.timer import backoff_s

log = logging.getLogger(__name__)
COLLECTORS_PATH = "/artimon/collectors"
DEFAULT_GROUP = "default"
JOIN_SPREAD_S = 600.0
"""Seconds within which agents turn to a collector that joined."""


class CollectorEndpoint(NamedTuple):
    """Address of a collector, and the group that it serves."""

    host: str
    port: int
    group: str = DEFAULT_GROUP


class CollectorMode(StrEnum):
    """Policy by which agents choose among the collectors of a group."""

    FAILOVER = "failover"
    ROUND_ROBIN = "round-robin"
    LEAST_LOADED = "least-loaded"


@dataclass(slots=True)
class _EndpointHealth:
    join_delay_s: float = 0.0
    """Seconds, from the first choice that sees it, for which others are preferred."""
    failures: int = 0
    not_before: float = 0.0
    in_flight: int = 0
    """Calls without an answer yet."""
    calls: int = 0
    """Number of the choice that last took it."""
    slow_until: float = 0.0
    """Until then it is used only if no other may be tried: it answers late, or cannot reach Kafka."""

    joined_at: float | None = None

    def rank(self, now: float) -> int:
        """Return 2 if it is slow, or failed and already has a call that tries it again; 1 if it joined lately."""
        if self.slow_until > now or (self.failures > 0 and self.in_flight > 0):
            return 2
        if self.joined_at is None:
            self.joined_at = now
        return 1 if now < self.joined_at + self.join_delay_s else 0


def parse_endpoint(data: bytes) -> CollectorEndpoint:
    """Decode the data of a collector's znode. Raises ValueError."""
    return _endpoint(parse_json_object(data))


def _endpoint(parsed: Mapping[str, Any]) -> CollectorEndpoint:
    try:
        found = CollectorEndpoint(str(parsed["host"]), int(parsed["port"]), str(parsed.get("group", DEFAULT_GROUP)))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not the data of a collector: {parsed!r:.200}") from error
    if not 0 < found.port < 65_536 or not 0 < len(found.host) < 256:
        raise ValueError(f"not the address of a collector: {parsed!r:.200}")
    return found


def parse_endpoints(nodes: Iterable[tuple[str, bytes]]) -> dict[str, CollectorEndpoint]:
    """Return the addresses in the nodes of collectors, by id."""
    found = {}
    for name, data in nodes:
        try:
            found[name] = parse_endpoint(data)
        except ValueError as error:
            log.warning("collector %s: %s", name, error)
    return found


def encode_collectors(found: Mapping[str, CollectorEndpoint], zxid: int) -> bytes:
    """Return the data of COLLECTORS_PATH: the collectors by id, as of `zxid`, the last change of its children."""
    return json.dumps({"zxid": zxid, "collectors": {id: one._asdict() for id, one in found.items()}}).encode()


def parse_collectors(data: bytes, zxid: int) -> dict[str, CollectorEndpoint]:
    """Inverse of `encode_collectors`; {} if the data is not of this `zxid`, or invalid: the children must be read."""
    try:
        parsed = parse_json_object(data)
        return {id: _endpoint(one) for id, one in parsed["collectors"].items()} if parsed["zxid"] == zxid else {}
    except (ValueError, KeyError, AttributeError):
        return {}


def endpoint_text(data: bytes) -> str:
    """Return the address in the data of a collector's znode as a text, "" if there is none."""
    try:
        found = parse_endpoint(data)
    except ValueError:
        return ""
    return f"{found.host} {found.port} {found.group}"


class Collectors:
    """Known collectors, in an order that differs by agent, so that many agents spread over them. Not thread-safe.

    An empty list is ignored and the last known ones are kept: a collector may serve while ZooKeeper has lost it. One
    that joins is preferred only after a time within JOIN_SPREAD_S that differs by agent, so that the load evens out
    slowly.
    """

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self._groups: tuple[str, ...] = ()
        self._mode = CollectorMode.FAILOVER
        self._choices = 0
        self._known: dict[str, CollectorEndpoint] = {}
        self._health: dict[CollectorEndpoint, _EndpointHealth] = {}

    def update(self, found: Mapping[str, CollectorEndpoint]) -> None:
        """Take over the collectors that ZooKeeper lists, by id."""
        if found:
            ranked = sorted(found, key=lambda name: xxhash.xxh3_64_intdigest(f"{self.agent}@{name}".encode()))
            first = not self._known
            self._known = {name: found[name] for name in ranked}
            self._health = {
                endpoint: self._health.get(endpoint) or _EndpointHealth(0.0 if first else self._join_delay_s(name))
                for name, endpoint in self._known.items()
            }

    def _join_delay_s(self, name: str) -> float:
        """Return the seconds for which a collector that joins is not preferred."""
        return JOIN_SPREAD_S * (xxhash.xxh3_64_intdigest(f"{name}@{self.agent}".encode()) / 2.0**64)

    def prefer(self, groups: tuple[str, ...], mode: CollectorMode = CollectorMode.FAILOVER) -> None:
        """Use these groups only, the first one with a collector that may be tried; () for all collectors together."""
        self._groups, self._mode = groups, mode

    def pick(self, now: float) -> CollectorEndpoint | None:
        """Return the collector to try now, of the most preferred group, by its mode. Stable until something changes."""
        for group in self._groups or (None,):
            free = [
                (endpoint, standing)
                for endpoint, standing in self._health.items()
                if standing.not_before <= now and group in (None, endpoint.group)
            ]
            if len(free) == 1:
                return free[0][0]
            if free:
                return min(free, key=lambda one: (one[1].rank(now), self._load_key(one[1])))[0]
        return None

    def next_try(self) -> float:
        """Return the earliest time at which one of the collectors in use may be tried; infinity if none is known."""
        used = [s for e, s in self._health.items() if not self._groups or e.group in self._groups]
        return min((standing.not_before for standing in used), default=math.inf)

    def _load_key(self, standing: _EndpointHealth) -> tuple[int, int]:
        """Return the sort key: the least burden goes first, equal ones in this agent's own order."""
        if self._mode is CollectorMode.FAILOVER:
            return 0, 0
        return standing.in_flight if self._mode is CollectorMode.LEAST_LOADED else 0, standing.calls

    def note_call(self, endpoint: CollectorEndpoint) -> None:
        """Note that a call begins."""
        standing = self._health.get(endpoint)
        if standing is not None:
            self._choices += 1
            standing.calls, standing.in_flight = self._choices, standing.in_flight + 1

    def note_answer(self, endpoint: CollectorEndpoint) -> None:
        """Record an answer of the collector."""
        standing = self._health.get(endpoint)
        if standing is not None:
            standing.failures, standing.not_before, standing.in_flight = 0, 0.0, max(0, standing.in_flight - 1)

    def note_failure(self, endpoint: CollectorEndpoint, now: float) -> None:
        """Note a failure, with a back-off of at most 10 s."""
        standing = self._health.get(endpoint)
        if standing is not None:
            standing.in_flight = max(0, standing.in_flight - 1)
        if standing is not None and standing.not_before <= now:  # parallel calls that fail together count once
            standing.failures += 1
            standing.not_before = now + backoff_s(standing.failures, 0.2, 10.0)

    def mark_slow(self, endpoint: CollectorEndpoint, until: float, now: float) -> bool:
        """Prefer other collectors until then; True if it was not slow before. Calls in flight go on."""
        standing = self._health.get(endpoint)
        if standing is None:
            return False
        is_new, standing.slow_until = standing.slow_until <= now, until
        return is_new

    def has_other(self, endpoint: CollectorEndpoint, now: float) -> bool:
        """True if another collector that is not slow may be tried now."""
        return any(
            other != endpoint and standing.not_before <= now >= standing.slow_until
            for other, standing in self._health.items()
        )

    def endpoints(self) -> set[CollectorEndpoint]:
        return set(self._health)

    def count_healthy(self) -> int:
        """Count the collectors that have not failed since their last answer."""
        return sum(1 for s in self._health.values() if not s.failures)

    def __len__(self) -> int:
        return len(self._known)
