"""Plan of roll-ups: which raw files lack them, which roll-ups are stale or expired, which raw files must wait for them.
Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from artimon.rawtable.rollups import LEVELS_MS, RollupFile, stem_of
from artimon.rawtable.schema import DAY_MS, LiveFile, day_of, end_ms, is_hour
from pipeline.compaction.plan import ClassRetention, is_known_period

NEVER_MS = 2**62
HOLD_MS = 30 * DAY_MS
"""Time for which expired samples wait for roll-ups that cannot be written: a damaged file must not keep them
for ever."""
Partition = tuple[str, str]
"""Day and class."""


def _default_days() -> dict[tuple[int, str], int | None]:
    return {(3_600_000, "*"): 3650, (86_400_000, "*"): 3650}


@dataclass(frozen=True, slots=True)
class RollupRetention:
    """Retention of the roll-ups by level and class, in days; None: for ever; "*": every class without an entry. A level
    without an entry for a class is not written for it."""

    days: Mapping[tuple[int, str], int | None] = field(default_factory=_default_days)

    def levels(self, period: str, keep: str, now_ms: int) -> tuple[int, ...]:
        """Return the levels at which roll-ups of this partition exist at `now_ms`, finest first."""
        return tuple(level for level in LEVELS_MS if self.until_ms(level, period, keep) > now_ms)

    def until_ms(self, level_ms: int, period: str, keep: str) -> int:
        """Return the time at which roll-ups of this partition expire."""
        key = (level_ms, keep) if (level_ms, keep) in self.days else (level_ms, "*")
        if key not in self.days:
            return 0
        days = self.days[key]
        return NEVER_MS if days is None else end_ms(period) + days * DAY_MS


@dataclass(frozen=True, slots=True)
class RollupJob:
    """Write the missing roll-ups of a partition and remove the stale ones, in one commit."""

    period: str
    keep: str
    missing: tuple[tuple[LiveFile, tuple[int, ...]], ...]
    """Raw files, and the levels that each lacks."""
    stale: tuple[RollupFile, ...]
    """Roll-ups of raw files that compaction has replaced."""

    @property
    def key(self) -> tuple[str, str, frozenset[str]]:
        """Identifies this job; changes with its raw files."""
        return self.period, self.keep, frozenset(file.path for file, _ in self.missing)

    @property
    def rows(self) -> int:
        """Samples to read."""
        return sum(file.rows for file, _ in self.missing)

    def __str__(self) -> str:
        return f"roll-ups of {self.period}, keep {self.keep}"


def plan_rollups(
    raw: Iterable[LiveFile], rollups: Iterable[RollupFile], retention: RollupRetention, now_ms: int
) -> list[RollupJob]:
    """Return the jobs that are due, the oldest day first. Only files of compacted days get roll-ups."""
    days, held = _days(raw), _by_partition(rollups)
    jobs = []
    for (period, keep), files in sorted(days.items()):
        mine = held.get((period, keep), [])
        done = {(one.level_ms, one.raw_name) for one in mine}
        levels = retention.levels(period, keep, now_ms)
        missing = [
            (file, lacking)
            for file in files
            if (lacking := tuple(level for level in levels if (level, stem_of(file.path)) not in done))
        ]
        stale = stale_rollups(files, mine)
        if missing or stale:
            jobs.append(RollupJob(period, keep, tuple(missing), stale))
    return jobs


def stale_rollups(raw: Iterable[LiveFile], rollups: Iterable[RollupFile]) -> tuple[RollupFile, ...]:
    """Return the roll-ups of a partition whose raw files are no longer live."""
    names = {stem_of(file.path) for file in raw}
    return tuple(one for one in rollups if one.raw_name not in names)


def expired_rollups(rollups: Iterable[RollupFile], retention: RollupRetention, now_ms: int) -> list[RollupFile]:
    """Return the roll-ups that have expired by the retention of their level and class."""
    return [
        one
        for one in rollups
        if is_known_period(one.period) and retention.until_ms(one.level_ms, one.period, one.keep) <= now_ms
    ]


@dataclass(frozen=True, slots=True)
class ExpirySplit:
    """Expired raw files: those that may be removed, and those that wait for their roll-ups. `stale`: roll-ups to remove
    first, so that readers do not take them for those of expired files."""

    ready: tuple[LiveFile, ...]
    waiting: tuple[LiveFile, ...] = ()
    stale: tuple[RollupFile, ...] = ()


def split_expired(
    old: Sequence[LiveFile],
    live: Iterable[LiveFile],
    rollups: Iterable[RollupFile],
    retention: RollupRetention,
    keeping: ClassRetention,
    now_ms: int,
    hold_ms: int,
) -> ExpirySplit:
    """Split the expired raw files `old`. A file waits until the roll-ups of its day and class are those of exactly its
    live files, at most for `hold_ms`."""
    groups, held = _by_day(live), _by_partition(rollups)
    ready: list[LiveFile] = []
    waiting: list[LiveFile] = []
    stale: dict[str, RollupFile] = {}
    for file in old:
        key = day_of(file.period), file.keep
        mine = held.get(key, [])
        if is_covered(groups.get(key, []), mine, retention.levels(*key, now_ms)):
            ready.append(file)
        elif keeping.until_ms(file) + hold_ms <= now_ms:
            ready.append(file)
            stale |= {one.path: one for one in stale_rollups(groups.get(key, []), mine)}
        else:
            waiting.append(file)
    return ExpirySplit(tuple(ready), tuple(waiting), tuple(stale.values()))


def is_covered(raw: Iterable[LiveFile], rollups: Sequence[RollupFile], levels: Collection[int]) -> bool:
    """True if the roll-ups of a day and class are those of exactly its live raw files, at all `levels`. Files of hours
    have none."""
    names = {stem_of(file.path) for file in raw}
    made = {level: {one.raw_name for one in rollups if one.level_ms == level} for level in levels}
    return all(found == names for found in made.values())


def _days(raw: Iterable[LiveFile]) -> dict[Partition, list[LiveFile]]:
    """Return the files of compacted days."""
    days: dict[Partition, list[LiveFile]] = {}
    for file in raw:
        if file.compacted and is_known_period(file.period) and not is_hour(file.period):
            days.setdefault((file.period, file.keep), []).append(file)
    return days


def _by_day(raw: Iterable[LiveFile]) -> dict[Partition, list[LiveFile]]:
    """Return all files, of hours too, by day and class."""
    groups: dict[Partition, list[LiveFile]] = {}
    for file in raw:
        if is_known_period(file.period):
            groups.setdefault((day_of(file.period), file.keep), []).append(file)
    return groups


def _by_partition(rollups: Iterable[RollupFile]) -> dict[Partition, list[RollupFile]]:
    held: dict[Partition, list[RollupFile]] = {}
    for one in rollups:
        held.setdefault((one.period, one.keep), []).append(one)
    return held
