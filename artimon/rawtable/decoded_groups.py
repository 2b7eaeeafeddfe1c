"""Row groups of data files as a reader has decoded them, in memory. Files never change, so an entry is valid as long as
its file may be read."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

DECODED_BYTES = 128 * 1024 * 1024
"""Limit of DecodedGroups: five million packed rows of roll-ups, those of 3,000 series in hours over 70 days."""


class DecodedGroups:
    """Decoded row groups by file and number; the least recently used ones are dropped first. Threads may share it;
    `_lock` guards `_held` and `_bytes`."""

    def __init__(self, max_bytes: int = DECODED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[str, int], tuple[Any, int]] = OrderedDict()
        self._bytes = 0

    def get(self, uri: str, group: int) -> Any:
        """Return what was added last of a row group, None without an entry."""
        with self._lock:
            found = self._held.get((uri, group))
            if found is None:
                return None
            self._held.move_to_end((uri, group))
            return found[0]

    def add(self, uri: str, group: int, decoded: Any, size: int) -> None:
        """Add or replace an entry of `size` bytes, unless it would take more than a quarter of all."""
        key = uri, group
        with self._lock:
            if (before := self._held.pop(key, None)) is not None:
                self._bytes -= before[1]
            if size > self._max_bytes // 4:
                return
            self._held[key] = decoded, size
            self._bytes += size
            while self._bytes > self._max_bytes:
                self._bytes -= self._held.popitem(last=False)[1][1]

    def keep_only(self, uris: set[str]) -> None:
        """Drop the entries of other files."""
        with self._lock:
            for key in [key for key in self._held if key[0] not in uris]:
                self._bytes -= self._held.pop(key)[1]
