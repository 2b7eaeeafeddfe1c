"""Windows of PromQL that a store computes from its buckets: plans of the request, and vectors of the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from types import MappingProxyType

import numpy as np

from artimon.compute.aggregate import Aggregate, AggregateRequest, ClassLabels, arrays_of
from artimon.compute.cells import STRING, Ints, as_floats, take
from artimon.compute.partials import result_of
from artimon.compute.promql_functions import PROMQL_FUNCTIONS
from artimon.compute.reduction import WindowPlan, map_windows
from artimon.model.grid import Grid
from artimon.model.select import Buckets
from artimon.model.series_table import SeriesTable
from query_dsl.promql.label_sets import LabelSets
from query_dsl.promql.promql_values import VectorValue
from query_dsl.promql.sample_source import Reducer, WindowQuery
from query_dsl.stores.levels import LevelSnapshot

MAX_PUSHED_SERIES = 2_000_000
MAX_PHASES = 6
"""Limit of the requests of a query whose steps are no multiple of those of the level."""
GAP_MS = 300_000
"""Greatest age of the sample before a window, at its begin, of exact increases; or two buckets."""
ALIGNED: Mapping[str, str] = MappingProxyType(
    {
        "": "promql.last",
        "last_over_time": "promql.last",
        "max_over_time": "max",
        "min_over_time": "min",
        "sum_over_time": "promql.sum",
        "avg_over_time": "promql.mean",
        "count_over_time": "promql.count",
    }
)
"""Functions that statistics of whole buckets give exactly, at every level."""
EXACT: Mapping[str, str] = MappingProxyType({"increase": "increase", "rate": "rate"})
HISTORY_STEPS_MS = (86_400_000, 3_600_000)
"""Steps of the buckets that the history is asked for, coarsest first: those of its roll-ups."""
REDUCERS: Mapping[str, str] = MappingProxyType(
    {
        **{name: name for name in ("sum", "min", "max", "count", "quantile", "topk", "bottomk")},
        "avg": "mean",
        "group": "count",
        "stddev": "variance",
        "stdvar": "variance",
    }
)
"""Reducers of stores by aggregation."""
NAN_SENSITIVE = frozenset(("min", "max", "quantile", "variance"))
"""Functions and reducers of stores for which NaN differs from PromQL, where a value that is no NaN beats it."""


@dataclass(frozen=True, slots=True)
class LevelChoice:
    """Function of a store over the buckets of a level. `scale`: factor of its values; `approximate`: they are not those
    of the raw samples."""

    level: LevelSnapshot
    function: str
    args: tuple[tuple[str, int | bool], ...] = ()
    scale: float = 1.0
    approximate: bool = False

    def plan(self, ends_ms: Ints, step_ms: int, range_ms: int, now_ms: int) -> tuple[Grid, WindowPlan] | None:
        """Return the buckets and windows for these ends, `step_ms` apart; None if nothing of it is in the past."""
        each_ms = self.level.step_ms
        shift = -int(ends_ms[0]) % each_ms
        width = -(-(range_ms + shift) // each_ms)
        before = max(2, GAP_MS // each_ms) if self.function in EXACT.values() else 0
        first, last = int(ends_ms[0]) + shift, int(ends_ms[-1]) + shift
        start = first - (width + before) * each_ms
        held_start = max(start, self.level.ring_start_ms)
        held_end = min(last, -(-now_ms // each_ms) * each_ms)
        if held_end <= held_start:
            return None
        args = (*self.args, ("shift_ms", shift)) if shift else self.args
        windows = WindowPlan(
            self.function,
            len(ends_ms),
            width,
            first_end=before + width - 1,
            each=step_ms // each_ms,
            left=(held_start - start) // each_ms,
            right=(last - held_end) // each_ms,
            max_gap_ms=max(GAP_MS, 2 * each_ms),
            args=args,
        )
        return Grid(held_end, each_ms, (held_end - held_start) // each_ms), windows


def choose_level(
    asked: WindowQuery, levels: Sequence[LevelSnapshot], exact: bool, has_history: bool
) -> LevelChoice | None:
    """Return the finest level of memory that gives the value of the raw samples, else with a history its coarsest one,
    without also one that gives an approximation of a rate; None if there is none. `exact`: only if increases count from
    the starts of processes."""
    name, range_ms = asked.function, asked.range_ms
    first_ms = int(asked.ends_ms.min()) - range_ms
    fit = [level for level in levels if level.holds(first_ms)]
    wants_past = has_history and name and levels[0] not in fit
    past = [LevelSnapshot(step_ms, 2**62 // step_ms, 0, 0) for step_ms in HISTORY_STEPS_MS if wants_past]
    aligned = [
        one
        for one in (*fit, *past)
        if not (asked.ends_ms % one.step_ms).any() and (not name or range_ms % one.step_ms == 0)
    ]
    if exact:
        return LevelChoice(aligned[0], EXACT[name]) if aligned else None
    if aligned and name in ALIGNED:
        args = (("range_ms", range_ms), ("ended", not name)) if ALIGNED[name] == "promql.last" else ()
        return LevelChoice(aligned[0], ALIGNED[name], args)
    function = f"promql.{name or 'newest'}"
    if levels[0] in fit and function in PROMQL_FUNCTIONS:
        return LevelChoice(levels[0], function, (("range_ms", range_ms),))
    if aligned and name in EXACT and not has_history:
        return LevelChoice(aligned[0], "rate", scale=1.0 if name == "rate" else range_ms / 1000, approximate=True)
    return None


def plan_requests(
    choice: LevelChoice, asked: WindowQuery, now_ms: int
) -> tuple[list[tuple[Grid, WindowPlan]], Ints] | None:
    """Return the buckets and windows of each request, and for each step the number of its window in all of them, one
    request after another. None if the steps are irregular, need too many requests, or are all in the future."""
    ends_ms, back = asked.ends_ms, np.arange(len(asked.ends_ms))
    if (np.diff(ends_ms) <= 0).any():
        ends_ms, back = np.unique(ends_ms, return_inverse=True)
    distances, each_ms = np.diff(ends_ms), choice.level.step_ms
    step_ms = int(distances[0]) if len(distances) else each_ms
    phases = min(len(ends_ms), each_ms // gcd(step_ms, each_ms))
    if (distances != step_ms).any() or phases > MAX_PHASES:
        return None
    made = [choice.plan(ends_ms[k::phases], step_ms * phases, asked.range_ms, now_ms) for k in range(phases)]
    order = np.concatenate([np.arange(len(ends_ms))[k::phases] for k in range(phases)])
    found = [one for one in made if one is not None]
    return (found, np.argsort(order)[back]) if len(found) == phases else None


def reduce_request(asked: WindowQuery, reducer: Reducer, grid: Grid, windows: WindowPlan) -> AggregateRequest:
    """Return the request of a reduction."""
    by, without = (None, reducer.labels) if reducer.without else (reducer.labels, None)
    return AggregateRequest(
        asked.matchers, grid, windows, REDUCERS[reducer.name], by, without, MAX_PUSHED_SERIES, args=reducer.args
    )


def vector_of_classes(
    found: Sequence[Aggregate], back: Ints, asked: WindowQuery, reducer: Reducer, scale: float
) -> VectorValue:
    """Return the answers of all requests as one vector; `scale`: factor of the values of series."""
    rows: dict[ClassLabels, int] = {}
    places = [np.array([rows.setdefault(one, len(rows)) for one in part.classes], np.intp) for part in found]
    outputs = [part.values.count.shape[1] for part in found]
    values, here = np.zeros((len(rows), sum(outputs))), np.zeros((len(rows), sum(outputs)), np.bool_)
    at = 0
    for part, place, wide in zip(found, places, outputs, strict=True):
        cells = result_of(part.values)
        values[place, at : at + wide] = as_floats(cells.types, cells.cells)
        here[place, at : at + wide] = part.values.count > 0
        at += wide
    if reducer.name == "group":
        values = np.ones_like(values)
    elif reducer.name in ("stddev", "stdvar"):
        values = scale * np.sqrt(values) if reducer.name == "stddev" else scale**2 * values
    elif reducer.name != "count":
        values = scale * values
    dropped = np.full(len(rows), not asked.keeps_name)
    return VectorValue(LabelSets.from_dicts([dict(one) for one in rows]), values[:, back], here[:, back], dropped)


def vector_of_series(buckets: Buckets, windows: WindowPlan, asked: WindowQuery, scale: float) -> VectorValue:
    """Return the windows of each series, without those of texts."""
    table = SeriesTable.from_series(buckets.series)
    column, labels = map_windows(windows, arrays_of(buckets)).column, LabelSets.from_table(table)
    if (table.types == STRING).any():
        rows = np.flatnonzero(table.types != STRING)
        column, labels = take(column, rows), labels.take(rows)
    values = as_floats(column.types, column.cells)
    dropped = np.full(labels.count, not asked.keeps_name)
    return VectorValue(labels, values if scale == 1.0 else scale * values, column.present, dropped)
