"""Completeness of an answer: samples that should be there, those that are, and the hosts that are silent.

A series is due in each of its periods, from its first sample in the range (or the beginning of the range, if it lived
before) until its end marker or the end of the range. Its period is the usual distance of its own samples, in buckets. A
series that has not ended and has no sample in its last two periods is silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from artimon.model.grid import Grid
from artimon.model.select import Buckets, Store
from artimon.model.series_table import SeriesTable
from query_dsl.evaluation.evaluator import QueryEvaluator, prepare
from query_dsl.evaluation.fetches import fetches_of, held_grid, level_of
from query_dsl.language.expression import Expr
from query_dsl.results.result_cells import Bools, Ints
from query_dsl.stores.query_limits import QueryBudget
from query_dsl.tree.query_errors import NothingHeld
from query_dsl.tree.times import format_time

PLACE = "host"
"""Label by which silent series are summed up."""
LATE_PERIODS = 2
MAX_LISTED = 100


@dataclass(frozen=True, slots=True)
class SilentPlace:
    """A host none of whose selected series has reported since `since_ms`."""

    name: str
    series: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class Completeness:
    """Counts over all fetches of a query. `silent` lists at most MAX_LISTED hosts, the longest silence first;
    `silent_hosts` counts all of them, `silent_series` the silent series of other hosts."""

    expected: int
    present: int
    series: int
    silent: tuple[SilentPlace, ...] = ()
    silent_hosts: int = 0
    silent_series: int = 0

    @property
    def share(self) -> float:
        """Present samples by expected ones; 1.0 if none are expected."""
        return self.present / self.expected if self.expected else 1.0

    def __str__(self) -> str:
        """Return the text for people: "99.98 % of expected points; 3 hosts silent since 14:02"."""
        if not self.series:
            return "no series is selected"
        percent = "100" if self.present == self.expected else f"{np.floor(self.share * 10_000) / 100:.2f}"
        parts = [f"{percent} % of expected points"]
        if self.silent:
            one = self.silent_hosts == 1
            who = f"{PLACE} {self.silent[0].name}" if one else f"{self.silent_hosts:,} {PLACE}s"
            since = format_time(self.silent[0].since_ms)
            parts.append(f"{who} silent since {since}" if one else f"{who} silent, the first since {since}")
        if self.silent_series:
            parts.append(f"{self.silent_series:,} {'' if not self.silent else 'other '}series silent")
        return "; ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return a dict that is ready for JSON."""
        return {
            "text": str(self),
            "share": self.share,
            "expected": self.expected,
            "present": self.present,
            "series": self.series,
            "silent": [{PLACE: one.name, "series": one.series, "since_ms": one.since_ms} for one in self.silent],
            "silent_hosts": self.silent_hosts,
            "silent_series": self.silent_series,
        }


@dataclass(frozen=True, slots=True)
class _Due:
    """Series of one fetch: points due and present, time of the last sample of those that are silent, else 0."""

    expected: Ints
    present: Ints
    silent_ms: Ints
    places: Sequence[str]


def measure_completeness(query: str | Expr, store: Store, now_ms: int, watch: QueryBudget) -> Completeness:
    """Measure the completeness of what the query reads, over its range. Raises QueryError, SelectError."""
    return measure_prepared(prepare(query, store, now_ms, watch))


def measure_prepared(evaluator: QueryEvaluator) -> Completeness:
    """Measure the completeness of a prepared query; it is not evaluated."""
    plan = evaluator.plan
    grid, step_ms = plan.grid, max(ring.step_ms for ring in plan.levels if not plan.base_step_ms % ring.step_ms)
    columns = max(1, (grid.end_ms - grid.start_ms) // step_ms)
    found: list[Buckets] = []
    for node, offset_ms in fetches_of(evaluator.tree):
        moved = Grid((grid.end_ms - offset_ms) // step_ms * step_ms, step_ms, columns)
        try:
            held = held_grid(moved, level_of(moved, "ask with another step", evaluator))
        except NothingHeld:
            continue
        buckets = evaluator.select(node.selector.matchers, held, ("count",), node.resolution is not None)
        found.append(buckets)
    return completeness_of(found)


def completeness_of(answers: Sequence[Buckets]) -> Completeness:
    """Measure the completeness of answers to selections with the statistic `count`."""
    return _summed([_due(buckets) for buckets in answers])


def _due(buckets: Buckets) -> _Due:
    n, columns = len(buckets.series), buckets.grid.n
    here = np.asarray(buckets.statistics["count"], np.int64).reshape(n, columns) > 0
    samples = here.sum(axis=1)
    first = np.where(samples > 0, here.argmax(axis=1), columns)
    newest_ms = buckets.newest_ms if len(buckets.newest_ms) == n else np.zeros(n, np.int64)
    first[_lived_before(buckets) | ((newest_ms > 0) & (newest_ms <= buckets.grid.start_ms))] = 0
    last = columns - 1 - np.where(samples > 0, here[:, ::-1].argmax(axis=1), columns)
    end = _last_due(buckets, last)
    period = _periods(here)
    alive = first <= end
    expected = np.where(alive, (end - first) // period + 1, 0)
    is_silent = alive & (end - last >= LATE_PERIODS * period) & (newest_ms > 0) & ~_has_ended(buckets)
    return _Due(expected, np.minimum(samples, expected), np.where(is_silent, newest_ms, 0), _places(buckets))


def _lived_before(buckets: Buckets) -> Bools:
    """Return True for series that had a sample before the range."""
    found = np.zeros(len(buckets.series), np.bool_)
    early = buckets.births["first_ms"] <= buckets.grid.start_ms
    found[buckets.births["row"][early]] = True
    return found


def _has_ended(buckets: Buckets) -> Bools:
    n = len(buckets.series)
    return buckets.ended_ms > 0 if len(buckets.ended_ms) == n else np.zeros(n, np.bool_)


def _last_due(buckets: Buckets, last: Ints) -> Ints:
    """Return the last column in which a series is due: that of its last sample if it has ended, else the newest."""
    return np.where(_has_ended(buckets), last, buckets.grid.n - 1)


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


def _places(buckets: Buckets) -> list[str]:
    """Return the host of each series, "" without one."""
    table = SeriesTable.from_series(buckets.series)
    return [dict(pairs).get(PLACE, "") for _, pairs in table.texts()]


def _summed(found: Sequence[_Due]) -> Completeness:
    silent: dict[str, list[int]] = {}
    reporting: set[str] = set()
    others = 0
    for due in found:
        for place, since_ms, expected in zip(due.places, due.silent_ms.tolist(), due.expected.tolist(), strict=True):
            if since_ms and place:
                silent.setdefault(place, []).append(since_ms)
            elif since_ms:
                others += 1
            elif expected:
                reporting.add(place)
    others += sum(len(times) for place, times in silent.items() if place in reporting)
    dark = [SilentPlace(place, len(times), max(times)) for place, times in silent.items() if place not in reporting]
    dark.sort(key=lambda one: (one.since_ms, one.name))
    return Completeness(
        sum(int(due.expected.sum()) for due in found),
        sum(int(due.present.sum()) for due in found),
        sum(len(due.expected) for due in found),
        tuple(dark[:MAX_LISTED]),
        len(dark),
        others,
    )
