"""Numbers of sources in a task: those that the driver knows, and a look-up in the table for all others, so that a new
source needs no second run of the tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

Assign = Callable[[Iterable[str]], Mapping[str, int]]
"""Returns the numbers of names, and assigns them to new ones; `SourcesTable.assign`."""


class BroadcastNumbers(Protocol):
    """Spark's broadcast of names of sources and their numbers."""

    @property
    def value(self) -> Mapping[str, int]: ...

    def unpersist(self, blocking: bool) -> None: ...


class SourceNumbers:
    """Numbers of the sources of one task. `learned` are those that the driver does not know yet.

    Invariant: a number that is returned stands in the table of sources, so before the first file that uses it."""

    def __init__(self, known: Mapping[str, int], recent: Mapping[str, int], assign: Assign) -> None:
        self._known, self._recent, self._assign = known, recent, assign
        self.learned: dict[str, int] = {}

    def resolve(self, names: Iterable[str]) -> dict[str, int]:
        """Return the number of each name. Raises TableError, OSError."""
        found = {name: self._get(name) for name in names}
        unknown = [name for name, number in found.items() if number is None]
        if unknown:
            self.learned.update(self._assign(unknown))
        return {name: self.learned[name] if number is None else number for name, number in found.items()}

    def _get(self, name: str) -> int | None:
        number = self._known.get(name)
        if number is None:
            number = self._recent.get(name)
        return self.learned.get(name) if number is None else number


class KnownNumbers:
    """Numbers that the driver gives to its tasks: those that its tasks needed lately. Used by one thread.

    All are forgotten after KNOWN_S, or above MAX_KNOWN: whatever is still in use is looked up again. So no number is
    used long after its look-up, and memory does not grow with the sources of the past."""

    KNOWN_S = 12 * 3600.0
    MAX_KNOWN = 400_000
    MAX_RECENT = 1_000
    """Recent numbers from which they are broadcast with the others, not with every plan."""

    def __init__(self, broadcast: Callable[[Mapping[str, int]], BroadcastNumbers]) -> None:
        self._broadcast = broadcast
        self._all: dict[str, int] = {}
        self.recent: dict[str, int] = {}
        self.last: BroadcastNumbers | None = None
        self._begun_s = float("-inf")

    def sent(self, now_s: float) -> tuple[BroadcastNumbers, BroadcastNumbers | None]:
        """Return the broadcast of the numbers that are not in `recent`, and one that is to be freed. `now_s`: the
        monotonic time."""
        if now_s - self._begun_s > self.KNOWN_S or len(self._all) > self.MAX_KNOWN:
            self._all, self.recent, self._begun_s = {}, {}, now_s
        elif self.last is not None and len(self.recent) <= self.MAX_RECENT:
            return self.last, None
        old, self.last, self.recent = self.last, self._broadcast(dict(self._all)), {}
        return self.last, old

    def add(self, numbers: Mapping[str, int]) -> None:
        """Add what the tasks of an append have looked up."""
        self._all.update(numbers)
        self.recent.update(numbers)
