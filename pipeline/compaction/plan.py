"""Plan of compaction and expiry. Pure: no I/O, no clock.

An hour is compacted when it gets no more appends, a day when all its hours are closed and compacted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from artimon.rawtable.schema import DAY_MS, LiveFile, day_of, end_ms, is_hour
from artimon.rawtable.table_state import RawState

HOUR_FILES = 4
DAY_FILES = 8
TARGET_ROWS = 64_000_000
"""Rows of one file; a partition with more is written as more files, up to its limit."""
IDLE_MARGIN_MS = 60_000
"""Maximum clock difference between the broker and the publisher of acks."""
FUTURE_DAYS = 30
"""Limit of expiry's trust in a clock: at most this many days ahead of the newest append."""
JobKey = tuple[str, str, int]
"""Period, class, number of files."""


@dataclass(frozen=True, slots=True)
class Job:
    """Rewrite `inputs` as at most `outputs` files of the partition (`period`, `keep`)."""

    period: str
    keep: str
    inputs: tuple[LiveFile, ...]
    outputs: int

    @property
    def kind(self) -> str:
        """ "hour" or "day"."""
        return "hour" if is_hour(self.period) else "day"

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.inputs)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.inputs)

    @property
    def key(self) -> JobKey:
        """Identifies this job; changes when the number of its files does."""
        return self.period, self.keep, len(self.inputs)

    def __str__(self) -> str:
        return f"{self.kind} {self.period}, keep {self.keep}"


@dataclass(frozen=True, slots=True)
class ClassRetention:
    """Retention of each class in days; `default_days` for a class without an entry."""

    days: Mapping[str, int] = field(default_factory=dict)
    default_days: int = 400

    def until_ms(self, file: LiveFile) -> int:
        """Return the time at which the file expires."""
        return end_ms(file.period) + self.days.get(file.keep, self.default_days) * DAY_MS


def closed_before_ms(state: RawState, acks: Mapping[str, Any] | None) -> int:
    """Return the Kafka append time below which everything is in the table; 0 if that is unknown.

    Append times never decrease within a partition: below that of its newest batch nothing is missing. An idle partition
    is known from `acks`, the document of the current topic in ZooKeeper: at the document's time the log ended where the
    table ends."""
    current = state.current
    if current is None or not current.until:
        return 0
    idle = _idle(current.topic_id, acks)
    return min(max(_newest(state, p), idle.get(p, 0)) for p in current.until)


def _newest(state: RawState, partition: int) -> int:
    lanes = state.lanes.get(partition)
    return max((state.last_ms.get(lane, 0) for lane in lanes.lanes()), default=0) if lanes else 0


def _idle(topic_id: str, acks: Mapping[str, Any] | None) -> dict[int, int]:
    if not acks or acks.get("topic_id") != topic_id:
        return {}
    at = int(acks["time_ms"]) - IDLE_MARGIN_MS
    return {int(p): at for p, one in acks["partitions"].items() if one["until"] >= one["log_end"]}


def plan_jobs(files: Iterable[LiveFile], settled: int, given_up: Collection[JobKey] = ()) -> list[Job]:
    """Return the jobs that are due, the oldest first, hours before their day. A partition appears at most once.

    A job in `given_up` is left out, and for an hour so is its day; all others go on."""
    groups = _by_partition(file for file in files if is_known_period(file.period))
    hours = _hours(groups, settled)
    if fresh := [job for job in hours if job.key not in given_up]:
        return fresh
    stuck = {(day_of(job.period), job.keep) for job in hours}
    return [job for job in _days(groups, settled) if job.key not in given_up and (job.period, job.keep) not in stuck]


def due_keys(files: Iterable[LiveFile], settled: int) -> set[JobKey]:
    """Return the keys of all possible jobs: failures of jobs that are not among them can be forgotten."""
    groups = _by_partition(file for file in files if is_known_period(file.period))
    return {job.key for job in [*_hours(groups, settled), *_days(groups, settled)]}


def _hours(groups: Mapping[tuple[str, str], list[LiveFile]], settled: int) -> list[Job]:
    keeps = Counter(period for period, _ in groups)
    return [
        Job(period, keep, tuple(inputs), _outputs(inputs, max(1, HOUR_FILES // keeps[period])))
        for (period, keep), inputs in sorted(groups.items())
        if is_hour(period) and end_ms(period) <= settled and _hour_is_due(inputs, max(1, HOUR_FILES // keeps[period]))
    ]


def _hour_is_due(inputs: Sequence[LiveFile], limit: int) -> bool:
    return len(inputs) > limit or (len(inputs) > 1 and not all(file.compacted for file in inputs))


def _days(groups: Mapping[tuple[str, str], list[LiveFile]], settled: int) -> list[Job]:
    days: dict[tuple[str, str], list[LiveFile]] = {}
    for (period, keep), inputs in groups.items():
        if is_hour(period) and end_ms(day_of(period)) <= settled:
            days.setdefault((day_of(period), keep), []).extend(inputs)
    keeps = {day: len({k for d, k in [*days, *groups] if d == day}) for day, _ in days}
    jobs = [
        _day_job(day, keep, hours, groups.get((day, keep), []), max(1, DAY_FILES // keeps[day]))
        for (day, keep), hours in sorted(days.items())
    ]
    whole = [
        Job(day, keep, tuple(inputs), _outputs(inputs, DAY_FILES))
        for (day, keep), inputs in sorted(groups.items())
        if not is_hour(day) and (day, keep) not in days and len(inputs) > DAY_FILES
    ]
    return jobs + whole


def _day_job(day: str, keep: str, hours: list[LiveFile], merged: list[LiveFile], limit: int) -> Job:
    """Return the job of a day. The first merge leaves room: late hours become one more file each, until it is used."""
    if not merged:
        return Job(day, keep, tuple(hours), _outputs(hours, max(1, limit // 2)))
    if len(merged) < limit:
        return Job(day, keep, tuple(hours), 1)
    inputs = hours + merged
    return Job(day, keep, tuple(inputs), _outputs(inputs, limit))


def _outputs(inputs: Sequence[LiveFile], limit: int) -> int:
    rows = sum(file.rows for file in inputs)
    return max(1, min(limit, -(-rows // TARGET_ROWS)))


def expiry_ms(now_ms: int, newest_append_ms: int) -> int:
    """Return the time by which data expires: that of the clock, if it is not far ahead of the newest append."""
    return min(now_ms, newest_append_ms + FUTURE_DAYS * DAY_MS)


def expired_files(
    files: Iterable[LiveFile], keeping: ClassRetention, now_ms: int, newest_append_ms: int
) -> list[LiveFile]:
    """Return the files whose samples were all appended longer ago than their class is kept."""
    now = expiry_ms(now_ms, newest_append_ms)
    return [file for file in files if is_known_period(file.period) and keeping.until_ms(file) <= now]


@dataclass(frozen=True, slots=True)
class FileCounts:
    """Counts of live files: all, and the maximum in an open hour, in a closed hour, and in a day."""

    files: int = 0
    bytes: int = 0
    rows: int = 0
    open_hour: int = 0
    closed_hour: int = 0
    day: int = 0
    open_hours: int = 0
    """Number of open hours."""


def count_files(files: Sequence[LiveFile], settled: int) -> FileCounts:
    """Return the counts that `artimon status` shows. Files of all classes of a period are counted together."""
    most, open_hours = {"open": 0, "closed": 0, "day": 0}, 0
    for period, number in Counter(file.period for file in files).items():
        if is_known_period(period):
            kind = "day" if not is_hour(period) else "closed" if end_ms(period) <= settled else "open"
            most[kind] = max(most[kind], number)
            open_hours += kind == "open"
    size, rows = sum(file.size for file in files), sum(file.rows for file in files)
    return FileCounts(len(files), size, rows, most["open"], most["closed"], most["day"], open_hours)


def is_known_period(period: str) -> bool:
    """Return False for a period that this program did not name; it is left alone."""
    try:
        end_ms(period)
    except ValueError:
        return False
    return True


def _by_partition(files: Iterable[LiveFile]) -> dict[tuple[str, str], list[LiveFile]]:
    groups: dict[tuple[str, str], list[LiveFile]] = {}
    for file in files:
        groups.setdefault((file.period, file.keep), []).append(file)
    return groups
