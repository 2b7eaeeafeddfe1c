"""How many tasks an append has, how much a task holds before it writes a file, and how long the query rests after an
append: so that an hour to which rows are still appended has at most HOUR_FILES files. Pure: no I/O, no clock.

An ordinary load never gets near it: an append every 30 s in one file is 120 an hour. A backlog is not made slower: its
files are made larger. Only many classes of retention, each of which needs a file in every append, make the query rest:
(classes x 120) above HOUR_FILES means appends less often than every 30 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from artimon.rawtable.schema import DataFile, period_of

HOUR_FILES = 480
FREE_FILES = HOUR_FILES // 2
"""Of an hour, at any pace and of any size; after that files are scarce."""
TASK_ROWS = 1_500_000
"""Rows of an append for which one more task is worth one more file."""
SCARCE_TASK_ROWS = 4_000_000
CHUNK_BYTES = 64 * 1024 * 1024
"""Decoded bytes that a task holds before it writes a file, 40 to 45 a row: what bounds the memory of a worker."""
SCARCE_CHUNK_BYTES = 176 * 1024 * 1024
FULL_ROWS = 1_000_000
"""Nobody rests after files of so many rows."""
MAX_PAUSE_S = 300.0
APPEND_ROWS = 12_000_000
"""Rows of an append, at most, about."""
LEAST_MESSAGES = 250
GUESSED_ROWS = 1_500
"""Rows of a batch, as long as none is stored."""
KNOWN_HOURS = 100
HOUR_MS = 3_600_000


def messages(most: int, rows: int, batches: int, fruitless: int = 0) -> int:
    """Messages of an append, at most `most`: as many as make APPEND_ROWS if they are like the `batches` stored so far,
    which had `rows`. Half of that for each of the `fruitless` lives of the query, one after the other, that ended
    before their first append: what takes longer than there is between two faults would never be done."""
    each = max(1.0, rows / batches) if batches else GUESSED_ROWS
    return max(min(most, LEAST_MESSAGES), min(most, int(APPEND_ROWS / each)) >> min(fruitless, 16))


class Pace:
    """Counts the files of each hour. Used by one thread at a time."""

    def __init__(self, interval_s: float = 30.0, files: Mapping[str, int] | None = None) -> None:
        """`files`: number of live files of each period."""
        self._interval_s = interval_s
        self._files = {period: number for period, number in (files or {}).items() if "T" in period}
        self._last: dict[str, int] = {}
        """Files of the last append, per period."""
        self._rows_a_file = 0

    def is_scarce(self, hour: str) -> bool:
        """Whether files of this hour should be large."""
        return self._files.get(hour, 0) >= FREE_FILES

    def tasks(self, rows: int, slots: int, hour: str) -> int:
        """Tasks of the next append, when about `rows` wait and `slots` can run at once."""
        each = SCARCE_TASK_ROWS if self.is_scarce(hour) else TASK_ROWS
        return max(1, min(slots, rows // each))

    def chunk_bytes(self, hour: str) -> int:
        """What a task holds at most before it writes a file."""
        return SCARCE_CHUNK_BYTES if self.is_scarce(hour) else CHUNK_BYTES

    def note(self, files: Iterable[DataFile]) -> None:
        """An append was made."""
        last: dict[str, int] = {}
        rows = number = 0
        for file in files:
            period = file.partition["period"]
            last[period] = last.get(period, 0) + 1
            rows, number = rows + file.rows, number + 1
        for period, more in last.items():
            self._files[period] = self._files.get(period, 0) + more
        self._last, self._rows_a_file = last, rows // number if number else 0
        for period in sorted(self._files)[:-KNOWN_HOURS]:
            del self._files[period]

    def pause_s(self, now_ms: int) -> float:
        """How long the next append should wait, 0 for not at all: appends like the last one, made as often as the
        answer says, keep within what is left of the hour of `now_ms`."""
        hour = period_of(now_ms)
        if not self.is_scarce(hour) or self._rows_a_file >= FULL_ROWS:
            return 0.0
        left_s = (HOUR_MS - now_ms % HOUR_MS) / 1000
        appends = max(0, HOUR_FILES - self._files[hour]) // max(1, self._last.get(hour, 0))
        every = left_s / (appends + 1)  # the last of them stands before the end of the hour, not at it
        return 0.0 if every <= self._interval_s else min(every, MAX_PAUSE_S)


def count_hours(periods: Iterable[str]) -> dict[str, int]:
    """Number of files per period, of the periods of all files."""
    counts: dict[str, int] = {}
    for period in periods:
        counts[period] = counts.get(period, 0) + 1
    return counts
