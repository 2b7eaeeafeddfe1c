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


def open_bucket_end(time_ms: int) -> int:
    """Return the end of the minute that has not ended for a sample of this time."""
    return bucket_end(time_ms + CLOCK_SLACK_MS, STEP_MS)


class NewestStore:
    """Store whose bucket at `open_bucket_end` has, for a series without a sample in it, the sample of the minute
    before. Series that ended have none."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def select(self, request: SelectRequest) -> Buckets:
        """See Store. Raises SelectError for statistics of windows."""
        grid = request.grid
        if grid.n != 1 or grid.step_ms != STEP_MS or not STATISTICS.issuperset(request.statistics):
            raise SelectError(NEWEST_ONLY)
        wanted = tuple(dict.fromkeys((*request.statistics, "count")))
        found = self._store.select(replace(request, grid=Grid(grid.end_ms, STEP_MS, 2), statistics=wanted))
        counts = found.statistics["count"]
        is_older = counts[:, 1] == 0
        statistics = {
            name: np.where(is_older, cells[:, 0], cells[:, 1])[:, None] for name, cells in found.statistics.items()
        }
        if len(found.ended_ms):
            statistics["count"] = np.where(found.ended_ms > 0, 0, statistics["count"][:, 0])[:, None]
        return replace(found, grid=grid, statistics={name: statistics[name] for name in wanted})

    def watching(self, watch: QueryBudget) -> NewestStore:  # noqa: ARG002
        """Return this store: the store below has limits of its own."""
        return self

    def levels(self) -> tuple[tuple[int, int], ...]:
        """See Store."""
        return self._store.levels()

    def names(self) -> list[str]:
        """See Store."""
        return self._store.names()

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        """See Store."""
        return self._store.label_values(label, limit)

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        """See Store."""
        return self._store.find(matchers, limit)
