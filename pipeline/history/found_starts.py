"""Start times of counters whose files do not tell them: a value below the one before is a reset, and the count began
with the sample before it, as for scraped counters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from artimon.model.import_chunk import FIND_START_MS, UNKNOWN_START_MS
from artimon.rawtable.schema import STAMP
from pipeline.compaction.row_order import Ints, SortKeys

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
        births = rows.column("birth").cast(pa.int64()).to_numpy()
        unknown = births == FIND_START_MS * 1000
        if not unknown.any():
            return rows
        if unknown.all():
            births = self._births(rows)
        else:
            births = np.array(births)
            births[unknown] = self._births(rows.filter(pa.array(unknown)))
        at = rows.schema.get_field_index("birth")
        return rows.set_column(at, rows.schema.field(at), pa.array(births).view(STAMP))

    def _births(self, rows: Any) -> Ints:
        """Return the births of rows of counters, (n,) in us."""
        held, value = SortKeys.of(rows), number_values(rows)
        source, series, time = held.source, held.series, held.time
        starts = np.flatnonzero(np.append(True, (series[1:] != series[:-1]) | (source[1:] != source[:-1])))
        lengths = np.diff(starts, append=len(time))
        keys = _keys(source[starts], series[starts])
        known, place = self._known(keys)
        last = np.where(known, self._value[place], np.nan)
        # rows with a number: a reset is less than the one before, in this table or an earlier one
        valid = np.flatnonzero(~np.isnan(value))
        number, of = value[valid], np.repeat(np.arange(len(starts)), lengths)[valid]
        firsts = np.flatnonzero(np.append(True, of[1:] != of[:-1])[: len(of)])
        less = np.append(False, number[1:] < number[:-1])[: len(of)]
        less[firsts] = number[firsts] < last[of[firsts]]
        resets, reset_of = valid[less], of[less]
        is_first = resets == starts[reset_of]
        before_us = np.where(is_first, np.where(known, self._time_us[place], time[starts])[reset_of], time[resets - 1])
        # stretches of rows of one birth: each begins with a series or a reset
        carried = np.where(known, self._birth_us[place], UNKNOWN_START_MS * 1000)
        carried[reset_of[is_first]] = before_us[is_first]
        begins = np.append(starts, resets[~is_first])
        order = np.argsort(begins)
        births = np.append(carried, before_us[~is_first])[order]
        births = np.repeat(births, np.diff(begins[order], append=len(time)))
        newest = np.append(firsts[1:], len(of))[: len(firsts)] - 1
        last[of[newest]] = number[newest]
        ends = starts + lengths - 1
        self._keep(keys, last, time[ends], births[ends])
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
    if rows.column("integer").null_count == len(rows):
        return double
    whole = rows.column("integer").cast(pa.float64(), safe=False).to_numpy()
    return np.where(np.isnan(double), whole, double)
