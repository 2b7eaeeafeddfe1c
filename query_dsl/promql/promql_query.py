"""Front door: instant and range queries in PromQL."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from artimon.compute.cells import Bools, Floats, Ints
from artimon.model.grid import Grid
from artimon.model.select import Matcher
from query_dsl.promql.dsl_text import PromqlMatrix
from query_dsl.promql.evaluation import evaluate, raw_range
from query_dsl.promql.evaluation_context import LOOK_BACK_MS, MAX_STEPS, Context, Remarks
from query_dsl.promql.label_sets import NAME, LabelSets
from query_dsl.promql.promql_values import ScalarValue, TextValue
from query_dsl.promql.sample_source import SampleSource
from query_dsl.promql.samples import SeriesSamples
from query_dsl.promql.store_samples import StoreSamples
from query_dsl.promql.tree import (
    TOO_DEEP,
    Node,
    PromqlError,
    Query,
    Selector,
    Subquery,
    parse,
    value_type,
    without_parens,
)
from query_dsl.results.matrix import sort_rows
from query_dsl.results.result_cells import DOUBLE, Rows, SeriesKey, of_type
from query_dsl.stores.engine_store import EngineStore
from query_dsl.stores.query_limits import QueryBudget

INSTANT_STEP_MS = 60_000
"""Step of the grid of an instant answer."""
ResultType = Literal["scalar", "string", "vector", "matrix"]


@dataclass(frozen=True, slots=True)
class PromqlResult:
    """Answer of a query.

    `values` and `here` are (series, steps) at `times_ms`; a scalar is one series without labels, a string only `text`.
    A range vector of an instant query has its samples in `samples` instead. Series are in the order of their labels,
    unless the query sorts them."""

    type: ResultType
    times_ms: Ints
    labels: LabelSets
    values: Floats
    here: Bools
    text: str = ""
    samples: SeriesSamples | None = None
    warnings: tuple[str, ...] = ()
    infos: tuple[str, ...] = ()

    def series(self) -> list[tuple[dict[str, str], list[tuple[int, float]]]]:
        """Return labels and (time, value) of each series."""
        if self.samples is not None:
            edges, found = self.samples.offsets.tolist(), self.samples
            rows = [
                list(zip(found.times_ms[a:b].tolist(), found.values[a:b].tolist(), strict=True))
                for a, b in pairwise(edges)
            ]
            return list(zip(found.labels.dicts(), rows, strict=True))
        rows = [
            list(zip(self.times_ms[here].tolist(), values[here].tolist(), strict=True))
            for values, here in zip(self.values, self.here, strict=True)
        ]
        return list(zip(self.labels.dicts(), rows, strict=True))

    def to_matrix(self) -> PromqlMatrix:
        """Return the answer as a matrix, whose notes are the warnings and remarks. Raises PromqlError for a string and
        for a range vector."""
        if self.type == "string" or self.samples is not None:
            raise PromqlError(
                f"a {'string' if self.type == 'string' else 'range vector'} has no matrix form: use series() or text"
            )
        step_ms = int(self.times_ms[1] - self.times_ms[0]) if len(self.times_ms) > 1 else INSTANT_STEP_MS
        keys = [SeriesKey(labels.pop(NAME, ""), tuple(labels.items())) for labels in self.labels.dicts()]
        cells = np.where(self.here, self.values, 0.0).astype(np.float64)
        column = of_type(DOUBLE, cells.view(np.int64), self.here)
        grid = Grid(int(self.times_ms[-1]), step_ms, len(self.times_ms))
        notes = (*self.warnings, *self.infos)
        ordered, cells_of = sort_rows(keys, column)
        made = PromqlMatrix(ordered, grid, cells_of)
        return made.with_notes(notes, True, bool(self.warnings))


def query_store(
    query: str | Query,
    store: EngineStore,
    now_ms: int,
    *,
    start_ms: int | None = None,
    end_ms: int | None = None,
    step_ms: int = 0,
    look_back_ms: int = LOOK_BACK_MS,
    budget: QueryBudget | None = None,
    exact_increase: bool = False,
    similar_names: bool = False,
) -> PromqlResult:
    """Answer a query from a store: at each step from start to end, or at `end_ms` if there is no start.

    `now_ms` is the current time. `exact_increase`: `increase` and `rate` count from the starts of processes, without
    extrapolation. `similar_names`: a name finds those that differ in dots and underscores only. Raises PromqlError,
    SelectError and QueryError."""
    watch = budget or QueryBudget()
    remarks = Remarks()
    source = StoreSamples(store.watching(watch), now_ms, remarks, watch, exact_increase, similar_names)
    until_ms = now_ms if end_ms is None else end_ms
    if start_ms is None:
        found = instant_query(query, until_ms, source, look_back_ms=look_back_ms, budget=watch)
    else:
        found = range_query(query, start_ms, until_ms, step_ms, source, look_back_ms=look_back_ms, budget=watch)
    return replace(
        found,
        warnings=(*remarks.lines(infos=False), *found.warnings),
        infos=(*remarks.lines(infos=True), *found.infos, *watch.notes()),
    )


def read_samples(
    matchers: tuple[Matcher, ...],
    store: EngineStore,
    now_ms: int,
    after_ms: int,
    until_ms: int,
    *,
    budget: QueryBudget | None = None,
) -> tuple[SeriesSamples, tuple[str, ...]]:
    """Return the raw samples with time in (after_ms, until_ms] of the series that match, and warnings.

    `now_ms` is the current time. Raises SelectError and QueryError."""
    watch, remarks = budget or QueryBudget(), Remarks()
    found = StoreSamples(store.watching(watch), now_ms, remarks, watch).read(matchers, after_ms, until_ms)
    return found, tuple(remarks.warnings)


def instant_query(
    query: str | Query,
    time_ms: int,
    source: SampleSource,
    *,
    look_back_ms: int = LOOK_BACK_MS,
    budget: QueryBudget | None = None,
) -> PromqlResult:
    """Answer a query at one time. Raises PromqlError, and what the source raises."""
    text, node = _parsed(query)
    times_ms = np.array([time_ms], np.int64)
    context = Context(source, text, times_ms, time_ms, time_ms, True, look_back_ms, 0, budget or QueryBudget())
    whole = without_parens(node)
    if isinstance(whole, Subquery) or (isinstance(whole, Selector) and whole.range_ms):
        samples = raw_range(whole, context)
        order = samples.labels.sort_order()
        return _result("matrix", context, samples=_take_series(samples, order))
    return _answer(node, context, "vector")


def range_query(
    query: str | Query,
    start_ms: int,
    end_ms: int,
    step_ms: int,
    source: SampleSource,
    *,
    look_back_ms: int = LOOK_BACK_MS,
    budget: QueryBudget | None = None,
) -> PromqlResult:
    """Answer a query at each step from start to end, both inclusive. Raises PromqlError, and what the source raises."""
    text, node = _parsed(query)
    if step_ms <= 0:
        raise PromqlError("the step must be greater than 0")
    if end_ms < start_ms:
        raise PromqlError("the end must not be before the start")
    if (end_ms - start_ms) // step_ms >= MAX_STEPS:
        raise PromqlError(f"more than {MAX_STEPS:,} points per series: use a longer step or a shorter range")
    if value_type(node) not in ("vector", "scalar"):
        raise PromqlError(f"a range query needs a scalar or an instant vector, not a {value_type(node)}", None, text)
    times_ms = np.arange(start_ms, end_ms + 1, step_ms, dtype=np.int64)
    context = Context(source, text, times_ms, start_ms, end_ms, False, look_back_ms, step_ms, budget or QueryBudget())
    return _answer(node, context, "matrix")


def _parsed(query: str | Query) -> tuple[str, Node]:
    found = parse(query) if isinstance(query, str) else query
    return found.text, found.node


def _answer(node: Node, context: Context, kind: ResultType) -> PromqlResult:
    try:
        found = evaluate(node, context)
    except RecursionError:
        raise PromqlError(TOO_DEEP, None, context.text) from None
    except PromqlError as problem:
        raise problem.with_position(None, context.text) from None
    match found:
        case TextValue(text):
            return _result("string", context, text=text)
        case ScalarValue(values):
            here = np.ones((1, len(values)), np.bool_)
            return _result("scalar" if kind == "vector" else "matrix", context, LabelSets(1, {}), values[None, :], here)
    order: Rows = np.arange(found.labels.count) if found.ordered and kind == "vector" else found.labels.sort_order()
    found = found.take(order)
    return _result(kind, context, found.labels, found.values, found.here)


def _result(
    kind: ResultType,
    context: Context,
    labels: LabelSets | None = None,
    values: Floats | None = None,
    here: Bools | None = None,
    text: str = "",
    samples: SeriesSamples | None = None,
) -> PromqlResult:
    empty = np.zeros((0, len(context.times_ms)))
    return PromqlResult(
        kind,
        context.times_ms,
        LabelSets(0, {}) if labels is None else labels,
        empty if values is None else values,
        empty.astype(np.bool_) if here is None else here,
        text,
        samples,
        context.remarks.lines(infos=False),
        context.remarks.lines(infos=True),
    )


def _take_series(samples: SeriesSamples, order: Rows) -> SeriesSamples:
    """Return the series in another order."""
    counts = np.diff(samples.offsets)[order]
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    places = np.repeat(samples.offsets[:-1][order] - offsets[:-1], counts) + np.arange(int(counts.sum()))
    return SeriesSamples(
        offsets, samples.times_ms[places], samples.values[places], samples.labels.take(order), samples.dropped[order]
    )
