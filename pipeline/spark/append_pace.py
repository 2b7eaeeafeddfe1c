"""Pacing of appends to the raw table: messages of an append, number of tasks, bytes that a task buffers before it
writes a file, pause after an append. An append is made at each interval, or as soon as enough rows for a whole one
wait. The aim: an hour that still receives rows has at most HOUR_FILES files of each class of retention. Pure: no I/O,
no clock.

A backlog is not slowed down: its files become larger. The query pauses only after small appends in quick succession.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from artimon.rawtable.schema import DataFile, period_of

HOUR_FILES = 120
"""Files of one class in an hour: two appends a minute."""
PACED_FILES = HOUR_FILES - 6
"""Files by which appends are paced: the last rows of an hour are appended after its end, with some files more."""
TASK_ROWS = 4_500_000
"""Rows of an append that justify one more task, and so one more file: 8 million a minute are one file an append."""
CHUNK_BYTES = 192 * 1024 * 1024
"""Decoded bytes that a task buffers before it writes a file, 40 to 45 a row: bounds the memory of a worker."""
MAX_PAUSE_S = 300.0
APPEND_ROWS = 12_000_000
"""Approximate maximum number of rows of an append."""
MIN_MESSAGES = 250
DEFAULT_ROWS = 1_500
"""Assumed rows of a batch until one is stored."""
MAX_HOURS = 100
HOUR_MS = 3_600_000


def message_limit(most: int, rows: int, batches: int, fruitless: int = 0) -> int:
    """Return the maximum number of messages of an append, at most `most`: enough for APPEND_ROWS rows if they resemble
    the `batches` stored so far, which had `rows`. It is halved for each of the `fruitless` consecutive runs that
    ended before their first append: an append that takes longer than the time between faults would never end."""
    each = max(1.0, rows / batches) if batches else DEFAULT_ROWS
    return max(min(most, MIN_MESSAGES), min(most, int(APPEND_ROWS / each)) >> min(fruitless, 16))


class AppendPace:
    """Counts the files of each hour. Used by one thread at a time."""

    def __init__(self, interval_s: float = 30.0, files: Mapping[tuple[str, str], int] | None = None) -> None:
        """`files`: number of live files of each period and class."""
        self._interval_s = interval_s
        self._files = Counter({part: number for part, number in (files or {}).items() if "T" in part[0]})
        self._rows, self._is_full = 0, False

    @staticmethod
    def task_count(rows: int, slots: int) -> int:
        """Return the number of tasks of the next append, when about `rows` wait and `slots` tasks can run at once."""
        return max(1, min(slots, rows // TASK_ROWS))

    def record(self, files: Collection[DataFile], is_full: bool = False) -> None:
        """Record the files of an append. `is_full`: it had as many messages as it may have."""
        self._is_full = is_full
        self._files.update((file.partition["period"], file.partition["keep"]) for file in files)
        self._rows = sum(file.rows for file in files)
        kept = sorted({period for period, _ in self._files})[-MAX_HOURS:]
        self._files = Counter({part: number for part, number in self._files.items() if part[0] in kept})

    def _count(self, hour: str) -> tuple[int, int]:
        """Return the number of files of an hour, and of their classes."""
        found = [number for (period, _), number in self._files.items() if period == hour]
        return sum(found), len(found)

    def pause_s(self, now_ms: int) -> float:
        """Return the pause before the next append in seconds, 0 for none. Appends like the last one, made at this
        interval, stay within the files left for the hour of `now_ms`."""
        hour = period_of(now_ms)
        files, classes = self._count(hour)
        if not classes or self._is_full or self._rows > TASK_ROWS:
            return 0.0
        left_s = (HOUR_MS - now_ms % HOUR_MS) / 1000
        appends = max(0, PACED_FILES * classes - files) // classes
        every = left_s / (appends + 1)  # the last append is before the end of the hour, not at it
        return 0.0 if every <= self._interval_s else min(every, MAX_PAUSE_S)
