"""Newest sample times of series: reads the newest files first, and only as many as necessary."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from query_dsl.stores.history.files import RawFile, Wanted
from query_dsl.stores.history.local import LocalReader
from query_dsl.stores.history.question import NO_LIMIT, Question
from query_dsl.stores.rows import ENDED, Ints, raw_rows

NEVER = -(2**62)
"""Placeholder for a time that was not found."""
LOOK_BACK_MS = 8 * 24 * 3_600_000
MOST_BYTES = 256 * 1024 * 1024
"""Limit on the bytes of files that are read; older samples are not found."""


def newest_times(
    uri: str, wanted: Wanted, row_of: Ints, rows: int, files: Sequence[RawFile], stop: threading.Event
) -> Ints:
    """Return (rows,) times of the newest wanted sample of each series in `files`, NEVER if none was found; `row_of` is
    the series of each pair of `wanted`. Raises HistoryInterrupted, OSError."""
    found = np.full(rows, NEVER, np.int64)
    sought = np.zeros(rows, np.bool_)
    sought[row_of] = True
    asked = Question("the query", (), wanted.after_us // 1000, wanted.until_us // 1000, NO_LIMIT)
    reader = LocalReader(uri, wanted, asked, stop)
    read = 0
    for file in sorted(files, key=lambda one: one.newest_us, reverse=True):
        if read > MOST_BYTES or (found[sought] * 1000 >= file.newest_us).all():
            break
        read += file.size
        for table in reader.stream([file]):
            samples = raw_rows(table, row_of)
            valued = samples.type != ENDED
            np.maximum.at(found, samples.row[valued], samples.time_ms[valued])
    return found


__all__ = ["LOOK_BACK_MS", "NEVER", "newest_times"]
