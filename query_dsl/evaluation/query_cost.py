"""Cost of a query before it runs: the series and buckets that its fetches would read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from artimon.model.select import Store
from query_dsl.evaluation.evaluator import QueryEvaluator
from query_dsl.evaluation.fetches import fetches_of
from query_dsl.tree import nodes
from query_dsl.tree.times import format_duration

MAX_COUNTED = 50_000
"""Series of a selector that are counted; more are told as "at least"."""


@dataclass(frozen=True, slots=True)
class FetchCost:
    """Series that a selector finds, and buckets of each from the first window to the end of the range."""

    selector: str
    series: int
    buckets: int
    is_lower_bound: bool

    def __str__(self) -> str:
        least = "at least " if self.is_lower_bound else ""
        return f"{self.selector}: {least}{self.series:,} series x {self.buckets:,} buckets"


@dataclass(frozen=True, slots=True)
class QueryCost:
    """Cost of all fetches of a query. `step_ms`: width of their buckets; `engine`: stores that would answer."""

    fetches: tuple[FetchCost, ...]
    step_ms: int
    engine: str

    @property
    def series(self) -> int:
        return sum(one.series for one in self.fetches)

    @property
    def cells(self) -> int:
        """Buckets of all series, the unit of the limits `cells_read` and `cells_reduced`."""
        return sum(one.series * one.buckets for one in self.fetches)

    @property
    def is_lower_bound(self) -> bool:
        return any(one.is_lower_bound for one in self.fetches)

    def to_dict(self) -> dict[str, Any]:
        """Return a dict that is ready for JSON."""
        return {
            "engine": self.engine,
            "step_ms": self.step_ms,
            "series": self.series,
            "cells": self.cells,
            "is_lower_bound": self.is_lower_bound,
            "fetches": [
                {"selector": one.selector, "series": one.series, "buckets": one.buckets} for one in self.fetches
            ],
        }

    def __str__(self) -> str:
        least = "at least " if self.is_lower_bound else ""
        step = format_duration(self.step_ms)
        head = f"{least}{self.series:,} series, {self.cells:,} buckets of {step}, from {self.engine}"
        return "\n".join([head, *(f"  {one}" for one in self.fetches)] if len(self.fetches) > 1 else [head])

    __repr__ = __str__


def estimate_cost(evaluator: QueryEvaluator, catalogue: Store) -> QueryCost:
    """Count what a prepared query would read; it is not evaluated. `catalogue` finds the series. Raises SelectError."""
    plan, found = evaluator.plan, []
    span_ms = plan.grid.end_ms - plan.grid.start_ms + _windows_ms(evaluator.tree)
    for node, _ in fetches_of(evaluator.tree):
        series = len(catalogue.find(node.selector.matchers, MAX_COUNTED + 1))
        buckets = max(1, -(-span_ms // plan.base_step_ms))
        found.append(FetchCost(str(node.selector), min(series, MAX_COUNTED), buckets, series > MAX_COUNTED))
    return QueryCost(tuple(found), plan.base_step_ms, plan.engine)


def _windows_ms(tree: nodes.Node) -> int:
    """Return the total length of the windows, an upper bound of what is read before the range."""
    windows = (node for node in nodes.walk(tree) if isinstance(node, nodes.Window))
    return sum((one.since.most_ms if one.since else one.before_ms or 0) + one.after_ms for one in windows)
