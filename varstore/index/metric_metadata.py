"""Help and unit of names, as announcements tell them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

MAX_BYTES = 16 * 1024 * 1024
"""Limit of the characters of all names, helps and units: an answer with all of them is sent in one frame."""
MAX_TEXT = 1_024
"""Characters of a help or unit that are kept."""


class Metadata(NamedTuple):
    """Help and unit of a name; "" if they are not known."""

    help: str = ""
    unit: str = ""


class MetricMetadata:
    """Texts of the newest announcement of each name that had any. Beyond MAX_BYTES the names told first are forgotten.

    `_lock` guards everything; nothing is locked under it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Metadata] = {}
        self._size = 0

    def add(self, name: str, help: str, unit: str) -> None:
        """Replace the texts of a name, unless both are empty."""
        told = Metadata(help[:MAX_TEXT], unit[:MAX_TEXT])
        if not any(told) or self._known.get(name) == told:
            return
        with self._lock:
            self._forget(name)
            self._known[name] = told
            self._size += _size(name, told)
            while self._size > MAX_BYTES:
                self._forget(next(iter(self._known)))

    def restore(self, name: str, help: str, unit: str) -> None:
        """Take over the texts of a snapshot, unless newer ones are known."""
        if name not in self._known:
            self.add(name, help, unit)

    def _forget(self, name: str) -> None:
        told = self._known.pop(name, None)
        if told is not None:
            self._size -= _size(name, told)

    def read(self, names: Sequence[str] | None) -> dict[str, Metadata]:
        """Return what is known of these names, None: of all."""
        with self._lock:
            if names is None:
                return dict(self._known)
            return {name: self._known[name] for name in names if name in self._known}


def _size(name: str, told: Metadata) -> int:
    return len(name) + len(told.help) + len(told.unit)
