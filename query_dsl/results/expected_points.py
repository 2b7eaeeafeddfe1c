"""Certificate of an answer, from the buckets that it read: points that should be there, those that are, those that are
missing, and since when, by host.

A series is due in each of its periods, from its first sample in the range (or the beginning of the range, if it lived
before) until its end marker or the end of the range. Its period is the usual distance of its own samples, in buckets. A
series that has not ended and has no sample in its last two periods is silent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from artimon.model.grid import Grid
from artimon.model.select import Buckets
from artimon.model.series_table import EncodedLabel, RowIndexes, SeriesTable
from query_dsl.results.result_cells import Bools, Ints
from query_dsl.tree.times import format_time

PLACE = "host"
"""Label by which series are summed up."""
LATE_PERIODS = 2
MAX_LISTED = 100
LEAST_COLUMNS = 30
"""Buckets from which the period of a series is known well enough."""


@dataclass(frozen=True, slots=True)
class HostPoints:
    """Points of the selected series of a host. `since_ms`: time of the last sample, if none of the series has reported
    since, else 0. `state`: of such a host by the acks of its agent (query_dsl/evaluation/host_acks.py), "" if unknown;
    `acked_ms`: time up to which its agent's data is acked, 0 if unknown."""

    name: str
    series: int
    expected: int
    present: int
    since_ms: int = 0
    state: str = ""
    acked_ms: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return a dict that is ready for JSON."""
        told: dict[str, Any] = {PLACE: self.name, "series": self.series}
        told |= {"expected": self.expected, "present": self.present}
        return told if not self.since_ms else told | {
            "since_ms": self.since_ms, "state": self.state, "acked_ms": self.acked_ms
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Completeness:
    """Counts over all selections of a query. `silent` lists at most MAX_LISTED hosts, the longest silence first;
    `silent_hosts` counts all of them, `silent_series` the silent series of other hosts. `lacking` lists at most as many
    other hosts that lack points, those that lack most first."""

    expected: int
    present: int
    series: int
    silent: tuple[HostPoints, ...] = ()
    silent_hosts: int = 0
    silent_series: int = 0
    lacking: tuple[HostPoints, ...] = ()

    @property
    def missing(self) -> int:
        """Points that are due and not there."""
        return self.expected - self.present

    @property
    def is_lacking(self) -> bool:
        """True if a point is missing or a series is silent."""
        return bool(self.missing or self.silent_hosts or self.silent_series)

    @property
    def share(self) -> float:
        """Present samples by expected ones; 1.0 if none are expected."""
        return self.present / self.expected if self.expected else 1.0

    def __str__(self) -> str:
        """Return the text for people: "99.98 % of expected points; 3 hosts silent, the first since 14:02"."""
        if not self.series:
            return "no series is selected"
        percent = "100" if self.present == self.expected else f"{np.floor(self.share * 10_000) / 100:.2f}"
        return "; ".join((f"{percent} % of expected points", *self.silence()))

    def silence(self) -> list[str]:
        """Return the parts of the text about silent hosts and series."""
        parts = []
        if self.silent:
            one = self.silent_hosts == 1
            who = f"{PLACE} {self.silent[0].name}" if one else f"{self.silent_hosts:,} {PLACE}s"
            since, told = format_time(self.silent[0].since_ms), self._states(one)
            parts.append(f"{who} silent since {since}{told}" if one else f"{who} silent, the first since {since}{told}")
        if self.silent_series:
            parts.append(f"{self.silent_series:,} {'' if not self.silent else 'other '}series silent")
        return parts

    def _states(self, one: bool) -> str:
        """Return the states of the silent hosts in parentheses, "" if none is known."""
        counts = Counter(host.state for host in self.silent if host.state)
        told = ", ".join(state if one else f"{count} {state}" for state, count in sorted(counts.items()))
        return f" ({told})" if told else ""

    def to_dict(self) -> dict[str, Any]:
        """Return a dict that is ready for JSON."""
        return {
            "text": str(self),
            "share": self.share,
            "expected": self.expected,
            "present": self.present,
            "missing": self.missing,
            "series": self.series,
            "silent": [one.to_dict() for one in self.silent],
            "silent_hosts": self.silent_hosts,
            "silent_series": self.silent_series,
            "lacking": [one.to_dict() for one in self.lacking],
        }


@dataclass(slots=True)
class _HostSum:
    """Sums of the series of a host over all selections; `since_ms`: newest sample of the silent ones."""

    series: int = 0
    expected: int = 0
    present: int = 0
    silent: int = 0
    reporting: int = 0
    since_ms: int = 0

    def add(self, series: int, expected: int, present: int, silent: int, reporting: int, newest_ms: int) -> None:
        """Add the sums of one selection."""
        self.series += series
        self.expected += expected
        self.present += present
        self.silent += silent
        self.reporting += reporting
        self.since_ms = max(self.since_ms, newest_ms)

    def points(self, name: str) -> HostPoints:
        """Return the sums; the time only if no series reports."""
        dark = self.silent and not self.reporting
        return HostPoints(name, self.series, self.expected, self.present, self.since_ms if dark else 0)


@dataclass(frozen=True, slots=True)
class _Due:
    """Series of one selection: points due and present, time of the last sample of those that are silent, else 0."""

    expected: Ints
    present: Ints
    silent_ms: Ints


def completeness_of(answers: Sequence[tuple[Buckets, int]]) -> Completeness:
    """Measure the completeness of answers to selections with the statistic `count`. Each comes with the number of its
    first columns that tell the periods of its series only and do not count."""
    hosts: dict[str, _HostSum] = {}
    for buckets, lead in answers:
        _add(_due(buckets, lead), SeriesTable.from_series(buckets.series), hosts)
    found = [one.points(name) for name, one in hosts.items() if name]
    dark = sorted((one for one in found if one.since_ms), key=lambda one: (one.since_ms, one.name))
    gaps = [one for one in found if not one.since_ms and one.present < one.expected]
    gaps.sort(key=lambda one: (one.present - one.expected, one.name))
    return Completeness(
        sum(one.expected for one in hosts.values()),
        sum(one.present for one in hosts.values()),
        sum(one.series for one in hosts.values()),
        tuple(dark[:MAX_LISTED]),
        len(dark),
        sum(one.silent for one in hosts.values()) - sum(hosts[one.name].silent for one in dark),
        tuple(gaps[:MAX_LISTED]),
    )


def silence_of(buckets: Buckets, settled_ms: int) -> list[str]:
    """Return the parts of the text about series that fell silent within the range of an answer, from its buckets up to
    the settled one. Without such series only two times of each are compared."""
    grid, newest_ms = buckets.grid, buckets.newest_ms
    columns = (min(grid.end_ms, settled_ms) - grid.start_ms) // grid.step_ms
    if columns < LEAST_COLUMNS or len(newest_ms) != len(buckets.series):
        return []
    late_ms = grid.start_ms + (columns - LATE_PERIODS) * grid.step_ms
    rows = np.flatnonzero((newest_ms <= late_ms) & (newest_ms > grid.start_ms) & ~_has_ended(buckets))
    if not len(rows):
        return []
    codes, _ = _hosts_of(SeriesTable.from_series(buckets.series))
    settled = _rows_of(buckets, np.flatnonzero(np.isin(codes, codes[rows])), columns)
    return completeness_of([(settled, 0)]).silence()


def _rows_of(buckets: Buckets, rows: RowIndexes, columns: int) -> Buckets:
    """Return the counts of some series in the first columns."""
    grid, ended_ms = buckets.grid, buckets.ended_ms
    place = np.full(len(buckets.series), -1, np.int64)
    place[rows] = np.arange(len(rows))
    births = buckets.births[place[buckets.births["row"]] >= 0].copy()
    births["row"] = place[births["row"]]
    return Buckets(
        Grid(grid.start_ms + columns * grid.step_ms, grid.step_ms, columns),
        SeriesTable.from_series(buckets.series).take(rows),
        {"count": np.asarray(buckets.statistics["count"])[rows, :columns]},
        births=births,
        ended_ms=ended_ms[rows] if len(ended_ms) else ended_ms,
        newest_ms=buckets.newest_ms[rows],
    )


def _hosts_of(table: SeriesTable) -> EncodedLabel:
    """Return the host of each series as a number, and the name of each number; "" for those without one."""
    return table.columns.get(PLACE) or (np.zeros(len(table), np.int32), ("",))


def _add(due: _Due, table: SeriesTable, hosts: dict[str, _HostSum]) -> None:
    """Add the series of a selection to the sums of their hosts, "" for those without one."""
    codes, names = _hosts_of(table)
    is_silent = due.silent_ms > 0
    columns = (np.ones(len(codes)), due.expected, due.present, is_silent, ~is_silent & (due.expected > 0))
    since_ms = np.zeros(len(names), np.int64)
    np.maximum.at(since_ms, codes, due.silent_ms)
    sums = np.array([*(np.bincount(codes, column, len(names)) for column in columns), since_ms])
    for name, own in zip(names, sums.astype(np.int64).T.tolist(), strict=True):
        if own[0]:
            hosts.setdefault(name, _HostSum()).add(*own)


def _due(buckets: Buckets, lead: int) -> _Due:
    n, columns = len(buckets.series), buckets.grid.n
    here = np.asarray(buckets.statistics["count"], np.int64).reshape(n, columns) > 0
    samples = here.any(axis=1)
    first = np.where(samples, here.argmax(axis=1), columns)
    newest_ms = buckets.newest_ms if len(buckets.newest_ms) == n else np.zeros(n, np.int64)
    first[_lived_before(buckets) | ((newest_ms > 0) & (newest_ms <= buckets.grid.start_ms))] = 0
    last = _last_column(here)
    end = np.where(_has_ended(buckets), last, columns - 1)
    period = _periods(here)
    begin = np.maximum(first, _next_due(here[:, :lead], period))
    expected = np.where(begin <= end, (end - begin) // period + 1, 0)
    present = np.minimum(here[:, lead:].sum(axis=1), expected)
    is_silent = (first <= end) & (end - last >= LATE_PERIODS * period) & (newest_ms > 0) & ~_has_ended(buckets)
    return _Due(expected, present, np.where(is_silent, newest_ms, 0))


def _last_column(here: Bools) -> Ints:
    """Return the column of the last sample of each series, -1 without one."""
    columns = here.shape[1]
    if not columns:
        return np.full(len(here), -1, np.int64)
    last: Ints = columns - 1 - np.where(here.any(axis=1), here[:, ::-1].argmax(axis=1), columns)
    return last


def _next_due(lead: Bools, period: Ints) -> Ints:
    """Return the first column after those of `lead` in which a series with samples in them is due."""
    width, last = lead.shape[1], _last_column(lead)
    due: Ints = np.where(last < 0, width, last + period * -((last - width) // period))
    return due


def _lived_before(buckets: Buckets) -> Bools:
    """Return True for series that had a sample before the range."""
    found = np.zeros(len(buckets.series), np.bool_)
    early = buckets.births["first_ms"] <= buckets.grid.start_ms
    found[buckets.births["row"][early]] = True
    return found


def _has_ended(buckets: Buckets) -> Bools:
    n = len(buckets.series)
    return buckets.ended_ms > 0 if len(buckets.ended_ms) == n else np.zeros(n, np.bool_)


def _periods(here: Bools) -> Ints:
    """Return the usual distance of the samples of each series in columns; with less than three that of most series."""
    rows, columns = np.nonzero(here)
    same = rows[1:] == rows[:-1]
    owner, gaps = rows[1:][same], np.diff(columns)[same]
    order = np.lexsort((gaps, owner))
    owner, gaps = owner[order], gaps[order]
    counts = np.bincount(owner, minlength=len(here))
    starts = np.cumsum(counts) - counts
    usual = int(np.median(gaps)) if len(gaps) else 1
    periods = np.full(len(here), max(1, usual), np.int64)
    known = counts >= 2
    periods[known] = gaps[(starts + (counts - 1) // 2)[known]]
    return periods
