"""Three counts of the same samples, for each closed minute and source: accepted by the agent (its audit file, written
beside its log), rows of the raw table, and the sum of the bucket counts of the memory store."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from artimon.model.fingerprint import unsigned
from artimon.model.grid import Grid, bucket_end, bucket_ends
from artimon.model.select import Matcher, SelectRequest, Store

MINUTE_MS = 60_000
VALUES = ("integer", "double", "boolean", "string")

Counts = dict[tuple[int, str], int]
"""(end of the minute, source) -> samples."""


@dataclass(frozen=True, slots=True)
class Row:
    """The three figures of one minute and source."""

    minute_ms: int
    source: str
    accepted: int
    raw: int
    buckets: int

    @property
    def equal(self) -> bool:
        return self.accepted == self.raw == self.buckets


def accepted_counts(folder: Path) -> Counts:
    """Sum of the agent's audit lines (pipeline/wal/accepted_counts.py); a last line without its end is not counted."""
    total: Counter[tuple[int, str]] = Counter()
    for path in folder.glob("*.csv"):
        text = path.read_text()
        for row in csv.reader(text[: text.rfind("\n") + 1].split("\n")):
            if len(row) == 3 and row[0] != "#":
                total[int(row[0]), row[1]] += int(row[2])
    return dict(total)


@dataclass(frozen=True, slots=True)
class RawCounts:
    """Content of the raw table: samples by minute and source, and the source of each series."""

    counts: Counts
    source_of: Mapping[int, str]


def raw_counts(table: pa.Table, sources: Mapping[int, str]) -> RawCounts:
    """Count the rows of the raw table that have a value; `sources` names the source numbers."""
    present = pc.is_valid(table["integer"])
    for name in VALUES[1:]:
        present = pc.or_(present, pc.is_valid(table[name]))
    table = table.filter(present)
    time_ms = table["time"].cast(pa.int64()).to_numpy() // 1000
    keyed = pa.table({"minute": bucket_ends(time_ms, MINUTE_MS), "source": table["source"], "series": table["series"]})
    counts = {
        (row["minute"], sources[row["source"]]): row["minute_count"]
        for row in keyed.group_by(["minute", "source"]).aggregate([("minute", "count")]).to_pylist()
    }
    pairs = keyed.group_by(["series", "source"]).aggregate([]).to_pylist()
    return RawCounts(counts, {unsigned(row["series"]): sources[row["source"]] for row in pairs})


def bucket_counts(store: Store, source_of: Mapping[int, str], minutes: Iterable[int]) -> Counts:
    """Sum of the bucket counts of the 60 s level over the series of each source."""
    ends = sorted(minutes)
    if not ends:
        return {}
    grid = Grid(ends[-1], MINUTE_MS, (ends[-1] - ends[0]) // MINUTE_MS + 1)
    everything = (Matcher("__name__", "=~", ".+"),)
    answer = store.select(SelectRequest(everything, grid, ("count",)))
    counts: Counts = defaultdict(int)
    matrix = answer.statistics["count"]
    for row, series in enumerate(answer.series):
        for column in np.flatnonzero(matrix[row]):
            end = grid.start_ms + (int(column) + 1) * MINUTE_MS
            counts[end, source_of.get(series.fingerprint, "?")] += int(matrix[row, column])
    return dict(counts)


def compare(accepted: Counts, raw: Counts, buckets: Counts, minutes: Iterable[int]) -> list[Row]:
    """One row for every (closed minute, source) that any of the three knows."""
    wanted = set(minutes)
    keys = sorted(key for key in {*accepted, *raw, *buckets} if key[0] in wanted)
    return [Row(*key, accepted.get(key, 0), raw.get(key, 0), buckets.get(key, 0)) for key in keys]


def closed_minutes(started_ms: int, now_ms: int, settle_ms: int = 15_000) -> list[int]:
    """Ends of the whole minutes between start and now, the open one and the one it began in left out."""
    first = bucket_end(started_ms, MINUTE_MS) + MINUTE_MS
    last = (now_ms - settle_ms) // MINUTE_MS * MINUTE_MS
    return list(range(first, last + 1, MINUTE_MS))
