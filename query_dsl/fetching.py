"""From a selector and a grid to bucket data: asks the store for what it holds, and says what it does not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from artimon.model.grid import Grid, bucket_end
from artimon.model.select import NAME, Matcher, SelectRequest
from query_dsl import nodes
from query_dsl.cells import BOOLEAN, Key, of_type
from query_dsl.context import SERIES_LIMIT, Context
from query_dsl.data import BucketData, from_buckets, padded
from query_dsl.errors import NothingSelected, QueryError, near
from query_dsl.matrix import Matrix
from query_dsl.planner import Ring
from query_dsl.selector import Selector, matcher_text
from query_dsl.timing import format_duration, format_time


def fetch_data(node: nodes.Fetch, grid: Grid, statistics: Sequence[str], context: Context) -> BucketData:
    """Buckets of the selected series on `grid`, in canonical order; series without a sample in them are left out.

    NothingSelected if no series fits; QueryError if no level has the step, or memory holds nothing of the grid."""
    ring = context.plan.ring(grid.step_ms)
    if ring is None:
        steps = ", ".join(format_duration(r.step_ms) for r in context.plan.rings)
        raise QueryError(
            f"mixed grids: fetch reads levels of {steps}, the grid has {format_duration(grid.step_ms)}; "
            "bucketize this side too"
        )
    held = _held(grid, ring)
    wanted = ("count", *(s for s in statistics if s != "count"))
    buckets = context.select(SelectRequest(node.selector.matchers, held, wanted, SERIES_LIMIT))
    if not buckets.series:
        raise NothingSelected(_why_nothing(node.selector, context))
    data = from_buckets(buckets)
    sampled = np.flatnonzero(data.present.any(axis=1))
    if len(sampled) < len(data.keys):
        lacking = len(data.keys) - len(sampled)
        context.note(_without_samples(node.selector, lacking, len(data.keys), buckets.newest_ms, held))
    order = sorted(sampled.tolist(), key=lambda i: data.keys[i])
    return padded(data.only(np.array(order, np.intp)), grid)


def _held(grid: Grid, ring: Ring) -> Grid:
    """The part of `grid` that the ring can hold."""
    start, end = max(grid.start_ms, ring.held_start_ms), min(grid.end_ms, ring.newest_ms)
    if start >= end:
        raise QueryError(
            f"memory holds buckets of {format_duration(ring.step_ms)} from {format_time(ring.held_start_ms)} to "
            f"{format_time(ring.newest_ms)}, nothing of ({format_time(grid.start_ms)} .. {format_time(grid.end_ms)}]; "
            "the history engine, which reaches further, comes later"
        )
    return Grid(end, grid.step_ms, (end - start) // grid.step_ms)


def _without_samples(selector: Selector, lacking: int, of: int, newest_ms: object, grid: Grid) -> str:
    if lacking < of:
        return f"{selector}: {lacking} of {of} series have no sample in the range"
    newest = int(np.asarray(newest_ms, np.int64).max(initial=0))
    seen = f"; the newest sample of all is of {format_time(newest)}" if newest else ""
    if newest > grid.end_ms:
        end = format_time(bucket_end(newest, grid.step_ms))
        seen += f", in the bucket of {format_duration(grid.step_ms)} that ends at {end} and is not over yet"
    return f"{selector}: none of {of} series has a sample in the range{seen}"


def absence(node: nodes.Absent, grid: Grid, context: Context) -> Matrix:
    """One BOOLEAN series, true where nothing that fits has a sample; its labels are those the selector has with "="."""
    here = np.zeros(grid.n, np.bool_)
    try:
        data = fetch_data(nodes.Fetch(node.selector), grid, ("last",), context)
    except NothingSelected:
        context.note(f"{node.selector}: no series fits")
    else:
        over = (data.ended_ms > 0)[:, None] & (grid.ends()[None, :] >= data.ended_ms[:, None])
        here |= (data.present & ~over).any(axis=0)
    fixed = {m.label: m.value for m in node.selector.matchers if m.op == "=" and m.value}
    key = Key(fixed.pop(NAME, ""), tuple(sorted(fixed.items())))
    return Matrix((key,), grid, of_type(BOOLEAN, (~here[None, :]).astype(np.int64), np.ones((1, grid.n), np.bool_)))


def _why_nothing(selector: Selector, context: Context) -> str:
    """Which matcher to blame: one that nothing fits even alone, with near values, or their combination."""
    for matcher in selector.matchers:
        if not context.store.find((matcher,), 1):
            return f"{selector} selects nothing: {_blame(matcher, context)}"
    for i in range(2, len(selector.matchers) + 1):
        if not context.store.find(selector.matchers[:i], 1):
            first, last = ", ".join(map(matcher_text, selector.matchers[: i - 1])), selector.matchers[i - 1]
            return f"{selector} selects nothing: series fit {first}, but none of them {matcher_text(last)}"
    return f"{selector} selects nothing now"


_NOT_NAMED = {"=": "no variable is named {value!r}", "prefix": "no variable's name begins with {value!r}"}


def _blame(matcher: Matcher, context: Context) -> str:
    store = context.store
    if matcher.label == NAME:
        known = store.names()
        what = _NOT_NAMED.get(matcher.op, "no name fits {text}").format(value=matcher.value, text=matcher_text(matcher))
        return what + (near(matcher.value, known) or ("; there are no variables at all" if not known else ""))
    labels = store.label_values(None)
    if matcher.label not in labels:
        return f"no series has the label {matcher.label!r}{near(matcher.label, labels)}"
    return f"no series fits {matcher_text(matcher)}{near(matcher.value, store.label_values(matcher.label))}"
