"""Choice between raw files and roll-ups: of each raw file its samples, or its roll-up of the coarsest level that fits
the grid. docs/formats/rollups.md says why no sample is then counted twice or left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from artimon.model.grid import Grid
from artimon.rawtable.delta import ListedTable, files_of
from artimon.rawtable.rollups import RollupFile, month_files, rollup_files, stem_of
from artimon.rawtable.schema import day_of, end_ms
from artimon.runtime.text import format_duration
from query_dsl.stores.history.file_pruning import PrunedFiles, RawFile, RowFilter, prune

Partition = tuple[str, str]
"""Day and class."""


@dataclass(frozen=True, slots=True)
class FileChoice:
    """Files of one reading. `raw` are read as samples, `rollups` as buckets; `levels`: pairs of a level in ms and the
    number of these; `expired`: notes on samples that have expired, whose buckets are too coarse for the grid."""

    raw: PrunedFiles
    rollups: tuple[RawFile, ...] = ()
    levels: tuple[tuple[int, int], ...] = ()
    expired: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return self.raw.size + sum(file.size for file in self.rollups)

    def within(self, wanted: RowFilter) -> FileChoice:
        """Return those roll-ups that may have rows of its times."""
        near = (one for one in self.rollups if one.newest_us > wanted.after_us and one.oldest_us <= wanted.until_us)
        return replace(self, rollups=tuple(near))

    def to_text(self) -> str:
        """Return the levels for notes: "1h of 30 files"."""
        return " and ".join(f"{format_duration(level)} of {count:,} files" for level, count in self.levels)


def choose_files(
    table: ListedTable,
    rollups: ListedTable | None,
    wanted: RowFilter,
    grid: Grid | None,
    appended_ms: int | None,
    months: Mapping[str, int],
) -> FileChoice:
    """Choose the files that may hold wanted rows. `grid`: that of the buckets to make; None: samples are wanted.
    `appended_ms`: append time of the newest batch in the version of `table`; None: unknown. `months`: path and size of
    the month files that exist."""
    pruned = prune(table, wanted)
    if rollups is None or grid is None:
        return FileChoice(pruned)
    raw = [(str(path), (day_of(str(period)), str(keep))) for path, period, keep in _raw_files(table)]
    names, partitions = {stem_of(path) for path, _ in raw}, {partition for _, partition in raw}
    live = rollup_files(rollups)
    fit = fitting_levels(live, grid)
    relevant = {file.path: file for file in prune(rollups, wanted).files}
    chosen: list[RollupFile] = []
    coarse: list[RollupFile] = []
    for made in _by_raw_file(live):
        one = made[0]
        if one.raw_name not in names and not _has_expired(one, partitions, appended_ms):
            continue  # compaction replaced its raw file, or this version of the raw table is older
        usable = [file for file in made if file.level_ms in fit]
        if usable:
            chosen.append(usable[-1])
        elif one.raw_name not in names:
            coarse.append(one)
    covered = {file.raw_name for file in chosen}
    left = tuple(file for file in pruned.files if stem_of(file.path) not in covered)
    read = [file for file in chosen if file.path in relevant]
    counts = {level: sum(file.level_ms == level for file in read) for level in sorted(fit)}
    return FileChoice(
        replace(pruned, files=left),
        _by_month(chosen, {file.path: relevant[file.path] for file in read}, months),
        tuple((level, count) for level, count in counts.items() if count),
        _coarse_notes(_overlapping(rollups, wanted, coarse), grid),
    )


def _by_month(
    chosen: Sequence[RollupFile], relevant: Mapping[str, RawFile], months: Mapping[str, int]
) -> tuple[RawFile, ...]:
    """Return the files to read instead of `relevant`: a month file for those that it copies, if all of these are chosen
    and at least half are relevant."""
    read = dict(relevant)
    for path, days in month_files(chosen).items() if months else ():
        near = [read[file.path] for file in days if file.path in read]
        if path not in months or 2 * len(near) < len(days):
            continue
        for file in near:
            del read[file.path]
        bounds = max(file.newest_us for file in near), min(file.oldest_us for file in near)
        known = bounds if len(near) == len(days) else ()
        read[path] = RawFile(path, months[path], sum(file.rows for file in days), *known)
    return tuple(read.values())


def fitting_levels(files: Iterable[RollupFile], grid: Grid) -> set[int]:
    """Return the levels whose buckets nest in those of the grid."""
    levels = {file.level_ms for file in files}
    return {level for level in levels if grid.step_ms % level == 0 and grid.end_ms % level == 0}


def _has_expired(file: RollupFile, partitions: set[Partition], appended_ms: int | None) -> bool:
    """True if the samples of this roll-up have expired: its partition has no raw file, and did not begin later."""
    gone = (file.period, file.keep) not in partitions
    return gone and (appended_ms is None or end_ms(file.period) <= appended_ms)


def _by_raw_file(files: Sequence[RollupFile]) -> list[list[RollupFile]]:
    """Return the roll-ups of each raw file, one per level, finest first."""
    made: dict[tuple[str, str, str], dict[int, RollupFile]] = {}
    for file in files:
        made.setdefault((file.period, file.keep, file.raw_name), {}).setdefault(file.level_ms, file)
    return [[levels[level] for level in sorted(levels)] for levels in made.values()]


def _overlapping(rollups: ListedTable, wanted: RowFilter, coarse: Sequence[RollupFile]) -> list[RollupFile]:
    """Return those of `coarse` that may hold a bucket which overlaps the wanted time, and ends after it."""
    if not coarse:
        return []
    after_ms, until_ms = wanted.after_us // 1000, wanted.until_us // 1000 + max(file.level_ms for file in coarse)
    wider = RowFilter(wanted.source, wanted.series, after_ms, until_ms)
    relevant = {file.path for file in prune(rollups, wider).files}
    return [file for file in coarse if file.path in relevant]


def _coarse_notes(coarse: Sequence[RollupFile], grid: Grid) -> tuple[str, ...]:
    if not coarse:
        return ()
    days = sorted({file.period for file in coarse})
    level = format_duration(max(file.level_ms for file in coarse))
    return (
        f"the samples of {len(days)} days up to {days[-1]} have expired, and their buckets of {level} do not fit a step"
        f" of {format_duration(grid.step_ms)}: they are missing; ask with a step of {level}",
    )


def _raw_files(table: ListedTable) -> list[tuple[Any, ...]]:
    return files_of(table, "path", "partition.period", "partition.keep")
