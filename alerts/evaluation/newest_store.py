"""Store wrapper that answers with the newest values, also before their minute has ended."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from alerts.evaluation.rule_answer import STEP_MS
from alerts.rules.rule_file import NEWEST_ONLY
from artimon.model.grid import Grid, bucket_end
from artimon.model.select import Buckets, Matcher, SelectError, SelectRequest, Series, Store
from query_dsl.stores.query_limits import QueryBudget

STATISTICS = frozenset(("last", "count", "last_time"))
CLOCK_SLACK_MS = 2_000
"""Difference of clocks: a sample may be so much newer than the evaluation that reads it."""


def newest_buckets(time_ms: int) -> Grid:
    """Return the buckets that hold the newest samples at a time: from the minute before it, up to that of a sample of a
    clock that is ahead."""
    end_ms = bucket_end(time_ms + CLOCK_SLACK_MS, STEP_MS)
    return Grid(end_ms, STEP_MS, (end_ms - bucket_end(time_ms, STEP_MS)) // STEP_MS + 2)


class NewestStore:
    """Store whose newest bucket has, for a series without a sample in it, the newest one of the `buckets` - 1 before.
    Series that ended have none."""

    def __init__(self, store: Store, buckets: int = 2) -> None:
        self._store, self._buckets = store, buckets

    def select(self, request: SelectRequest) -> Buckets:
        """See Store. Raises SelectError for statistics of windows."""
        grid = request.grid
        if grid.n != 1 or grid.step_ms != STEP_MS or not STATISTICS.issuperset(request.statistics):
            raise SelectError(NEWEST_ONLY)
        wanted = tuple(dict.fromkeys((*request.statistics, "count")))
        read = Grid(grid.end_ms, STEP_MS, self._buckets)
        found = self._store.select(replace(request, grid=read, statistics=wanted))
        newest = self._buckets - 1 - np.argmax(found.statistics["count"][:, ::-1] > 0, axis=1)[:, None]
        statistics = {name: np.take_along_axis(cells, newest, axis=1) for name, cells in found.statistics.items()}
        if len(found.ended_ms):
            statistics["count"] = np.where(found.ended_ms[:, None] > 0, 0, statistics["count"])
        return replace(found, grid=grid, statistics=statistics)

    def watching(self, watch: QueryBudget) -> NewestStore:  # noqa: ARG002
        """Return this store: the store below has limits of its own."""
        return self

    def levels(self) -> tuple[tuple[int, int], ...]:
        return self._store.levels()

    def names(self) -> list[str]:
        return self._store.names()

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        return self._store.label_values(label, limit)

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        return self._store.find(matchers, limit)
