"""Parts of data files in memory: ranges as they were fetched, row groups as a reader has decoded them. Files never
change, so an entry is valid as long as its file may be read."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")
DECODED_BYTES = 128 * 1024 * 1024
"""Limit of decoded row groups: five million packed rows of roll-ups, those of 3,000 series in hours over 70 days."""


class FileParts(Generic[T]):
    """Parts of files by file and number; the least recently used ones are dropped first. Threads may share it; `_lock`
    guards `_held` and `_bytes`."""

    def __init__(self, max_bytes: int, max_part_bytes: int) -> None:
        """`max_bytes`: of all parts together; `max_part_bytes`: of one, larger ones are not kept."""
        self._max_bytes, self._max_part_bytes = max_bytes, max_part_bytes
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[str, int], tuple[T, int]] = OrderedDict()
        self._bytes = 0

    def get(self, uri: str, number: int) -> T | None:
        """Return what was added last, None without an entry."""
        with self._lock:
            found = self._held.get((uri, number))
            if found is None:
                return None
            self._held.move_to_end((uri, number))
            return found[0]

    def add(self, uri: str, number: int, part: T, size: int) -> None:
        """Add or replace an entry of `size` bytes."""
        if size > self._max_part_bytes:
            return
        key = uri, number
        with self._lock:
            if (before := self._held.pop(key, None)) is not None:
                self._bytes -= before[1]
            self._held[key] = part, size
            self._bytes += size
            while self._bytes > self._max_bytes:
                self._bytes -= self._held.popitem(last=False)[1][1]

    def keep_only(self, uris: set[str]) -> None:
        """Drop the entries of other files."""
        with self._lock:
            for key in [key for key in self._held if key[0] not in uris]:
                self._bytes -= self._held.pop(key)[1]
