"""Series that a store knows, looked up once for each selector of a query, within limits."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from artimon.model.grid import Grid
from artimon.model.select import Matcher, SelectRequest, Series
from query_dsl.results.result_cells import Ints, SeriesKey
from query_dsl.stores.empty_selection import explain_empty
from query_dsl.stores.engine_store import EngineStore
from query_dsl.stores.levels import SETTLE_MS
from query_dsl.tree.selector import Selector

MAX_SERIES = 2_000
"""Series of a selector that are looked at. Of more, kinds and labels of these are known, but not how they pair."""
MAX_LOOKUPS = 20
"""Selectors of a query that are looked up."""
RECENT_BUCKETS = 15
"""Newest buckets that tell which series report, and how often."""
LEAST_GAPS = 2
"""Distances between samples in these buckets from which their period is known."""

Matchers = tuple[Matcher, ...]


@dataclass(frozen=True, slots=True)
class SelectedSeries:
    """Series of a selector: those that report, or all if none does. `is_whole` False: there are more, or they were not
    looked up. `period_ms`: usual period of their samples; 0 if unknown."""

    series: tuple[Series, ...] = ()
    is_whole: bool = False
    period_ms: int = 0

    @property
    def keys(self) -> list[SeriesKey]:
        """Names and labels."""
        return [SeriesKey(one.name, tuple(sorted(one.labels.items()))) for one in self.series]

    @property
    def labels(self) -> list[str]:
        """Names of the labels of all series, sorted."""
        return sorted({label for one in self.series for label in one.labels})


@dataclass(slots=True)
class Catalogue:
    """Look-ups in a store at `now_ms`. Every method may raise SelectError."""

    store: EngineStore
    now_ms: int
    _known: dict[Matchers, SelectedSeries] = field(default_factory=dict)

    def find(self, matchers: Matchers) -> SelectedSeries:
        if matchers not in self._known and len(self._known) < MAX_LOOKUPS:
            self._known[matchers] = self._read(matchers)
        return self._known.get(matchers, SelectedSeries())

    def count_values(self, label: str, matchers: Matchers, limit: int) -> int:
        """Return the number of values of a label, at most `limit`."""
        return len(self.store.matching_values(label, matchers, limit))

    def explain(self, matchers: Matchers) -> str:
        """Return why nothing matches."""
        return explain_empty(Selector(matchers), self.store, self.now_ms)

    def _read(self, matchers: Matchers) -> SelectedSeries:
        found = self.store.find(matchers, MAX_SERIES + 1)
        if not found or len(found) > MAX_SERIES:
            return SelectedSeries(tuple(found[:MAX_SERIES]), not found)
        step_ms, held = self.store.levels()[0]
        grid = Grid((self.now_ms - SETTLE_MS) // step_ms * step_ms, step_ms, min(RECENT_BUCKETS, held))
        recent = self.store.select(SelectRequest(matchers, grid, ("count",)))
        counts = np.asarray(recent.statistics["count"], np.int64).reshape(len(recent.series), grid.n)
        reporting = tuple(recent.series[row] for row in np.flatnonzero(counts.any(axis=1)).tolist())
        return SelectedSeries(reporting or tuple(found), True, _period_ms(counts, step_ms))


def _period_ms(counts: Ints, step_ms: int) -> int:
    """Return the usual distance of samples, from their numbers (series, buckets); 0 if there are too few."""
    rows, columns = np.nonzero(counts)
    gaps = np.diff(columns)[rows[1:] == rows[:-1]]
    if len(gaps) < LEAST_GAPS:
        return 0
    inside = int(np.median(counts[counts > 0]))
    return step_ms // inside if inside > 1 else int(np.median(gaps)) * step_ms
