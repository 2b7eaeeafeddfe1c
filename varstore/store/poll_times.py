"""Times of the newest polls of each source, from which an evaluation sees if a minute is complete. Belongs to one
shard, under its lock of the counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from artimon.model.feed_codec import FeedEntry

MAX_PERIOD_MS = 600_000
"""A source with a longer period is not waited for, and one that was silent for twice this time is forgotten."""
MAX_ROWS = 500
"""Limit of the rows of a summary: sources in fractions of a second of their own would make many."""


@dataclass(slots=True)
class _SourcePolls:
    """Times of the newest poll and of the one before, in ms, with their numbers of batches."""

    newest_ms: int
    batches: int = 1
    before_ms: int = 0
    batches_before: int = 0

    @property
    def period_ms(self) -> int:
        """Time between the last two polls; 0: only one is known."""
        return self.newest_ms - self.before_ms if self.before_ms else 0

    @property
    def complete_ms(self) -> int:
        """Time of the newest poll of which all batches have arrived: as many as the one before had."""
        return self.newest_ms if self.batches >= self.batches_before else self.before_ms


class PollTimes:
    """Newest polls of the sources of a shard."""

    def __init__(self) -> None:
        self._sources: dict[str, _SourcePolls] = {}

    def add(self, batches: Iterable[FeedEntry]) -> None:
        """Note the batches of a range that were not repeats."""
        for batch in batches:
            known = self._sources.get(batch.source)
            if known is None:
                self._sources[batch.source] = _SourcePolls(batch.poll_ms)
            elif batch.poll_ms > known.newest_ms:
                known.before_ms, known.batches_before = known.newest_ms, known.batches
                known.newest_ms, known.batches = batch.poll_ms, 1
            elif batch.poll_ms == known.newest_ms:
                known.batches += 1

    def summary(self, head_ms: int) -> list[list[Any]]:
        """Return [period in seconds, newest complete poll in seconds (rounded up), sources, name of one of them] for
        every combination of the sources whose period is known. `head_ms`: time of the newest append."""
        floor_ms = head_ms - 2 * MAX_PERIOD_MS
        self._sources = {name: one for name, one in self._sources.items() if one.newest_ms > floor_ms}
        counts: dict[tuple[int, int], list[Any]] = {}
        for name, one in self._sources.items():
            if 0 < one.period_ms <= MAX_PERIOD_MS:
                key = max(1, round(one.period_ms / 1000)), -(-one.complete_ms // 1000)
                counts.setdefault(key, [0, name])[0] += 1
        rows = [[*key, *counted] for key, counted in counts.items()]
        rows.sort(key=lambda row: row[1] + row[0])  # those that are due first come first
        return rows[:MAX_ROWS]
