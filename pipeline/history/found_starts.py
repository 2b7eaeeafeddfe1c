"""Start times of counters whose files do not tell them: a value below the one before is a reset, and the count began
with the sample before it, as for scraped counters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from artimon.model.import_chunk import FIND_START_MS, UNKNOWN_START_MS
from artimon.rawtable.schema import STAMP
from pipeline.compaction.row_order import Ints

_ODD = np.uint64(0x9E3779B97F4A7C15)


class FoundStarts:
    """Last number, last time and start of each counter. Takes tables of FILE_SCHEMA in the order of time for each
    series; memory: 32 bytes a counter."""

    def __init__(self) -> None:
        self._keys = np.zeros(0, np.uint64)
        self._value, self._time_us, self._birth_us = np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64)

    def begin(self, source: Ints, series: Ints, value: Any, time_us: Ints, birth_us: Ints) -> None:
        """Enter the last samples before the first table, (counters,) each."""
        self._keep(_keys(source, series), value, time_us, birth_us)

    def fill(self, rows: Any) -> Any:
        """Return the rows, which are sorted, with the births that are FIND_START_MS replaced."""
        births = np.array(rows.column("birth").cast(pa.int64()).to_numpy())
        places = np.flatnonzero(births == FIND_START_MS * 1000)
        if not len(places):
            return rows
        births[places] = self._births(rows.take(pa.array(places)))
        at = rows.schema.get_field_index("birth")
        return rows.set_column(at, rows.schema.field(at), pa.array(births).view(STAMP))

    def _births(self, rows: Any) -> Ints:
        """Return the births of rows of counters, (n,) in us."""
        source, series, time = (rows.column(name).cast(pa.int64()).to_numpy() for name in ("source", "series", "time"))
        value = number_values(rows)
        keys = _keys(source, series)
        starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
        known, place = self._known(keys[starts])
        row = np.arange(len(keys))
        of = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(keys)))
        # the last number up to each row, and before it: in this table, or of an earlier one
        valid = np.maximum.accumulate(np.where(np.isnan(value), -1, row))
        here = valid >= starts[of]
        earlier = np.where(known, self._value[place], np.nan)[of]
        last = np.where(here, value[np.maximum(valid, 0)], earlier)
        is_first = row == starts[of]
        before = np.where(is_first, earlier, np.roll(last, 1))
        before_us = np.where(is_first, np.where(known, self._time_us[place], time[starts])[of], np.roll(time, 1))
        reset = np.maximum.accumulate(np.where(value < before, row, -1))
        carried = np.where(known, self._birth_us[place], UNKNOWN_START_MS * 1000)[of]
        births = np.where(reset >= starts[of], before_us[np.maximum(reset, 0)], carried)
        ends = np.append(starts[1:], len(keys)) - 1
        self._keep(keys[ends], last[ends], time[ends], births[ends])
        return births

    def _known(self, keys: Any) -> tuple[Any, Any]:
        if not len(self._keys):
            self._keep(keys[:1], np.array([np.nan]), np.zeros(1, np.int64), np.full(1, UNKNOWN_START_MS * 1000))
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return (self._keys[place] == keys) & ~np.isnan(self._value[place]), place

    def _keep(self, keys: Any, value: Any, time_us: Ints, birth_us: Ints) -> None:
        """Replace what is known of these keys."""
        merged = np.concatenate([keys, self._keys])
        self._keys, first = np.unique(merged, return_index=True)
        self._value = np.concatenate([value, self._value])[first]
        self._time_us = np.concatenate([time_us, self._time_us])[first]
        self._birth_us = np.concatenate([birth_us, self._birth_us])[first]


def _keys(source: Ints, series: Ints) -> Any:
    return series.view(np.uint64) + source.astype(np.uint64) * _ODD


def number_values(rows: Any) -> Any:
    """Return the values of a table of samples as float64, NaN without a number."""
    double = rows.column("double").to_numpy()
    whole = rows.column("integer").cast(pa.float64(), safe=False).to_numpy()
    return np.where(np.isnan(double), whole, double)
