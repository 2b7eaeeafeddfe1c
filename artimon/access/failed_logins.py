"""Rate limit of failed logins, by address and by user, in bounded memory."""

from __future__ import annotations

import ipaddress
import threading
from collections import OrderedDict

from artimon.access.route_rules import AccessError
from artimon.model.clock import Clock

PERIOD_S = 60.0
MAX_KEYS = 20_000
"""Addresses and users that are remembered; the one that failed longest ago is forgotten."""
ADDRESS_FAILURES, USER_FAILURES = 20, 10
"""Failures in PERIOD_S after which an address, and a user name, must wait."""


class FailedLogins:
    """Leaky buckets of failures: (level, time). An attempt counts as failed from its begin until it succeeds, so that
    attempts at the same time do not exceed the limit. Thread-safe."""

    def __init__(self, clock: Clock, keys: int = MAX_KEYS) -> None:
        self._clock, self._most_keys, self._lock = clock, keys, threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self.refused = 0

    def __len__(self) -> int:
        return len(self._buckets)

    def begin(self, address: str, user: str) -> None:
        """Count an attempt. Raises AccessError 429 if the address or the user failed too often."""
        now = self._clock.monotonic()
        with self._lock:
            for key, most in _keys(address, user):
                level = self._level(key, most, now)
                if level + 1 > most:
                    self.refused += 1
                    wait_s = int((level + 1 - most) * PERIOD_S / most) + 1
                    raise AccessError(429, f"too many failed logins: try again in {wait_s} s", wait_s)
            for key, most in _keys(address, user):
                self._put(key, self._level(key, most, now) + 1, now)

    def succeeded(self, address: str, user: str) -> None:
        """Take back an attempt."""
        now = self._clock.monotonic()
        with self._lock:
            for key, most in _keys(address, user):
                self._put(key, max(0.0, self._level(key, most, now) - 1), now)

    def _level(self, key: str, most: int, now: float) -> float:
        level, at = self._buckets.get(key, (0.0, now))
        return max(0.0, level - (now - at) * most / PERIOD_S)

    def _put(self, key: str, level: float, now: float) -> None:
        self._buckets[key] = level, now
        self._buckets.move_to_end(key)
        while len(self._buckets) > self._most_keys:
            self._buckets.popitem(last=False)


def _keys(address: str, user: str) -> tuple[tuple[str, int], tuple[str, int]]:
    return (f"address {network_of(address)}", ADDRESS_FAILURES), (f"user {user[:200]}", USER_FAILURES)


def network_of(address: str) -> str:
    """Return an IPv4 address, or the /64 network of an IPv6 address, of which a client has all addresses."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:100]
    return f"{found.exploded[:19]}::/64" if found.version == 6 else str(found)
