"""Last values of counters before an import: a reset between two files is found like one within a file."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from artimon.rawtable.commit import CompactionLog
from artimon.rawtable.schema import DAY_MS
from pipeline.history.found_starts import number_values
from pipeline.history.row_selection import Floats, Ints, Prune, Select, matching_groups

LOOK_BACK_MS = 8 * DAY_MS
"""Time before the first sample of a counter in which its last one is searched, as for the newest samples of a query."""
MAX_ATTEMPTS = 5
COLUMNS = ("time", "birth", "integer", "double")


class SampleSearch(NamedTuple):
    """Functions that find samples in the raw table."""

    prune: Prune
    select: Select


class LastCounts(NamedTuple):
    """Last sample of each counter, arrays of shape (counters,); 0 in `time_us`: none was found."""

    source: Ints
    series: Ints
    value: Floats
    time_us: Ints
    birth_us: Ints

    def found(self) -> LastCounts:
        """Return those with a sample."""
        keep = self.time_us > 0
        return LastCounts(
            self.source[keep], self.series[keep], self.value[keep], self.time_us[keep], self.birth_us[keep]
        )


class FirstTimes:
    """Time of the first sample of each counter of an import. Memory: 24 bytes a counter."""

    def __init__(self) -> None:
        self.source: Ints = np.zeros(0, np.int64)
        self.series: Ints = np.zeros(0, np.int64)
        self.time_us: Ints = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self.source)

    def add(self, source: Ints, series: Ints, time_us: Ints) -> None:
        """Add samples; afterwards the counters are distinct and sorted by (source, series)."""
        if not len(source):
            return
        starts = np.flatnonzero(np.append(True, (source[1:] != source[:-1]) | (series[1:] != series[:-1])))
        source, series, time_us = source[starts], series[starts], np.minimum.reduceat(time_us, starts)
        columns = [np.concatenate(pair) for pair in ((self.source, source), (self.series, series))]
        times = np.concatenate((self.time_us, time_us))
        order = np.lexsort((times, columns[1], columns[0]))
        sources, numbers = (column[order] for column in columns)
        first = np.append(True, (sources[1:] != sources[:-1]) | (numbers[1:] != numbers[:-1]))
        self.source, self.series, self.time_us = sources[first], numbers[first], times[order][first]


def find_last_counts(log: CompactionLog, firsts: FirstTimes, search: SampleSearch) -> LastCounts:
    """Return the last sample with a number of each counter in LOOK_BACK_MS before its first time. Raises TableError,
    OSError."""
    for attempt in range(MAX_ATTEMPTS):
        try:
            return _find(log, firsts, search).found()
        except FileNotFoundError:  # compaction replaced a file
            if attempt == MAX_ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _find(log: CompactionLog, firsts: FirstTimes, search: SampleSearch) -> LastCounts:
    """Search one day after another, the newest first: most counters are found on the first."""
    count = len(firsts)
    found = LastCounts(firsts.source, firsts.series, np.zeros(count), *(np.zeros(count, np.int64) for _ in range(2)))
    if not count:
        return found
    table = log.refresh()
    until_ms = -(-int(firsts.time_us.max()) // 1000)
    least_ms = int(firsts.time_us.min()) // 1000 - LOOK_BACK_MS
    while until_ms > least_ms:
        after_ms = until_ms - DAY_MS
        near = (firsts.time_us > after_ms * 1000) & (firsts.time_us - LOOK_BACK_MS * 1000 < until_ms * 1000)
        rows = np.flatnonzero(near & (found.time_us == 0))
        if len(rows):
            selection = search.select(firsts.source[rows], firsts.series[rows], after_ms, until_ms)
            for path in search.prune(table, selection):
                for reader, group, mask, pairs in matching_groups(f"{log.uri}/{path}", selection):
                    held = reader.read(group, COLUMNS).filter(pa.array(mask))
                    _keep_last(found, rows[pairs], held, firsts.time_us)
        until_ms = after_ms
    return found


def _keep_last(found: LastCounts, counters: Ints, rows: pa.Table, first_us: Ints) -> None:
    """Keep the last row of each counter before its first time. `counters`: number of the counter of each row."""
    time_us, birth_us = (rows.column(name).cast(pa.int64()).to_numpy() for name in ("time", "birth"))
    value = number_values(rows)
    good = ~np.isnan(value) & (time_us < first_us[counters]) & (time_us > found.time_us[counters])
    counters, time_us, birth_us, value = counters[good], time_us[good], birth_us[good], value[good]
    order = np.lexsort((value, time_us, counters))
    last = order[np.append(counters[order][1:] != counters[order][:-1], True)[: len(order)]]
    at = counters[last]
    found.value[at], found.time_us[at], found.birth_us[at] = value[last], time_us[last], birth_us[last]
