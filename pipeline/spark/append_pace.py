"""Pacing of appends: number of tasks, bytes a task buffers before it writes a file, pause after an append. The aim: an
hour that still receives rows has at most HOUR_FILES files. Pure: no I/O, no clock.

An ordinary load stays far below the limit: one file every 30 s is 120 an hour. A backlog is not slowed down: its files
become larger. The query pauses only with many classes of retention, because each needs a file in every append:
(classes x 120) above HOUR_FILES means appends less often than every 30 s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from artimon.rawtable.schema import DataFile, period_of

HOUR_FILES = 480
UNPACED_FILES = HOUR_FILES // 2
"""Files of an hour that may be written at any pace and of any size; above that, files are scarce."""
TASK_ROWS = 1_500_000
"""Rows of an append that justify one more task, and so one more file."""
SCARCE_TASK_ROWS = 4_000_000
CHUNK_BYTES = 64 * 1024 * 1024
"""Decoded bytes that a task buffers before it writes a file, 40 to 45 a row: bounds the memory of a worker."""
SCARCE_CHUNK_BYTES = 176 * 1024 * 1024
FULL_ROWS = 1_000_000
"""No pause after files with at least this many rows on average."""
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

    def __init__(self, interval_s: float = 30.0, files: Mapping[str, int] | None = None) -> None:
        """`files`: number of live files of each period."""
        self._interval_s = interval_s
        self._files = Counter({period: number for period, number in (files or {}).items() if "T" in period})
        self._last_appends: Counter[str] = Counter()
        """Files of the last append, per period."""
        self._rows_a_file = 0

    def is_scarce(self, hour: str) -> bool:
        """Return True if files of this hour should be large."""
        return self._files[hour] >= UNPACED_FILES

    def task_count(self, rows: int, slots: int, hour: str) -> int:
        """Return the number of tasks of the next append, when about `rows` wait and `slots` tasks can run at once."""
        each = SCARCE_TASK_ROWS if self.is_scarce(hour) else TASK_ROWS
        return max(1, min(slots, rows // each))

    def chunk_bytes(self, hour: str) -> int:
        """Return the bytes that a task may buffer before it writes a file."""
        return SCARCE_CHUNK_BYTES if self.is_scarce(hour) else CHUNK_BYTES

    def record(self, files: Collection[DataFile]) -> None:
        """Record the files of an append."""
        self._last_appends = Counter(file.partition["period"] for file in files)
        self._files.update(self._last_appends)
        self._rows_a_file = sum(file.rows for file in files) // max(1, len(files))
        for period in sorted(self._files)[:-MAX_HOURS]:
            del self._files[period]

    def pause_s(self, now_ms: int) -> float:
        """Return the pause before the next append in seconds, 0 for none. Appends like the last one, made at this
        interval, stay within the files left for the hour of `now_ms`."""
        hour = period_of(now_ms)
        if not self.is_scarce(hour) or self._rows_a_file >= FULL_ROWS:
            return 0.0
        left_s = (HOUR_MS - now_ms % HOUR_MS) / 1000
        appends = max(0, HOUR_FILES - self._files[hour]) // max(1, self._last_appends[hour])
        every = left_s / (appends + 1)  # the last append is before the end of the hour, not at it
        return 0.0 if every <= self._interval_s else min(every, MAX_PAUSE_S)
