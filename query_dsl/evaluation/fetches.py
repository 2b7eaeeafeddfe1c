"""Fetches: from a selector and a grid to bucket data, with notes on data that the store does not hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from artimon.compute.true_sums import BEYOND_64_BITS
from artimon.model.grid import Grid, bucket_end
from artimon.model.select import NAME
from query_dsl.evaluation.execution import QueryExecution
from query_dsl.results.bucket_data import BucketData, from_buckets, padded
from query_dsl.results.matrix import Matrix
from query_dsl.results.result_cells import BOOLEAN, Bools, SeriesKey, of_type
from query_dsl.stores.empty_selection import explain_empty, newest_known_ms
from query_dsl.stores.levels import SETTLE_MS, LevelSnapshot
from query_dsl.tree import nodes
from query_dsl.tree.query_errors import NothingHeld, NothingSelected, QueryError
from query_dsl.tree.selector import Selector, accepts, matcher_text, parse_selector
from query_dsl.tree.times import format_duration, format_time

LabelSet = tuple[tuple[str, str], ...]
MAX_EXPECTED = 10_000
"""Maximum number of expected label sets of one `absent`."""


def fetch_data(
    node: nodes.Fetch, grid: Grid, statistics: Sequence[str], execution: QueryExecution, opening: bool = False
) -> BucketData:
    """Return the buckets of matching series on `grid`, in canonical order; series without samples in them are left out.
    `opening`: see SelectRequest.

    Raises NothingSelected if no series matches; QueryError if no level has the step or holds any of the grid."""
    held = held_grid(grid, level_of(grid, "bucketize this side too", execution))
    wanted = ("count", *(s for s in statistics if s != "count"))
    buckets = execution.select(node.selector.matchers, held, wanted, node.resolution is not None, opening)
    if not buckets.series:
        raise NothingSelected(explain_empty(node.selector, execution.store, execution.plan.grid.end_ms))
    if any(BEYOND_64_BITS in note for note in buckets.notes):  # of the sums: count, min and max tell the true ones
        wanted = tuple(dict.fromkeys((*wanted, "min", "max")))
        buckets = execution.select(node.selector.matchers, held, wanted, node.resolution is not None)
    data = from_buckets(buckets)
    sampled = np.flatnonzero(data.present.any(axis=1))
    if len(sampled) < len(data.keys):
        lacking = len(data.keys) - len(sampled)
        newest = int(buckets.newest_ms.max(initial=0))
        if not newest and not len(sampled):
            newest = newest_known_ms(node.selector, execution.store, execution.plan.grid.end_ms)
        note_unsampled(node.selector, lacking, len(data.keys), newest, held, execution)
    order = sorted(sampled.tolist(), key=data.keys.__getitem__)
    return padded(data.select_rows(np.array(order, np.intp)), grid)


def level_of(grid: Grid, remedy: str, execution: QueryExecution) -> LevelSnapshot:
    """Return the level with the step of `grid`. Raises QueryError, with the remedy, if there is none."""
    ring = execution.plan.level(grid.step_ms)
    if ring is None:
        steps, step = (
            ", ".join(format_duration(r.step_ms) for r in execution.plan.levels),
            format_duration(grid.step_ms),
        )
        raise QueryError(f"mixed grids: fetch reads levels of {steps}, the grid has {step}; {remedy}")
    return ring


def held_grid(grid: Grid, ring: LevelSnapshot) -> Grid:
    """Return the part of `grid` that the ring can hold. Raises NothingHeld if there is none."""
    start, end = max(grid.start_ms, ring.held_start_ms), min(grid.end_ms, ring.newest_ms)
    if start >= end:
        raise NothingHeld(
            f"memory holds buckets of {format_duration(ring.step_ms)} from {format_time(ring.held_start_ms)} to "
            f"{format_time(ring.newest_ms)}, nothing of ({format_time(grid.start_ms)} .. {format_time(grid.end_ms)}]: "
            'the history (engine="auto" or "history") reaches further'
        )
    return Grid(end, grid.step_ms, (end - start) // grid.step_ms)


def note_unsampled(
    selector: Selector, lacking: int, of: int, newest: int, grid: Grid, execution: QueryExecution
) -> None:
    """Add a note on series without samples in the range; if no series has any, with the time of the newest one. Nothing
    is known of a range that is cut."""
    if execution.plan.is_cut:
        return
    if lacking < of:
        execution.note(f"{selector}: {lacking} of {of} series have no sample in the range")
        return
    seen = f"; the newest sample of all is of {format_time(newest)}" if newest else ""
    ring = execution.plan.level(grid.step_ms)
    up_to_now = ring is None or grid.end_ms >= ring.newest_ms
    if up_to_now and grid.end_ms < newest <= grid.end_ms + grid.step_ms + SETTLE_MS:
        end = format_time(bucket_end(newest, grid.step_ms))
        seen += f", in the bucket of {format_duration(grid.step_ms)} that ends at {end} and is not over yet"
    execution.note(f"{selector}: none of {of} series has a sample in the range{seen}")


def evaluate_absent(node: nodes.Absent, grid: Grid, execution: QueryExecution) -> Matrix:
    """Return one BOOLEAN series per expected label set (one if none is given), true where no matching series has a
    sample. Its labels are those that the selector has with "=", and those of the set."""
    sets = _expected(node)
    here = np.zeros((len(sets), grid.n), np.bool_)
    try:
        data = fetch_data(nodes.Fetch(node.selector), grid, ("last",), execution)
    except NothingSelected:
        execution.note(f"{node.selector}: no series fits")
    else:
        over = (data.ended_ms > 0)[:, None] & (grid.ends()[None, :] >= data.ended_ms[:, None])
        _mark(here, sets, data.keys, data.present & ~over)
    fixed = {m.label: m.value for m in node.selector.matchers if m.op == "=" and m.value}
    keys = []
    for wanted in sets:
        labels = fixed | dict(wanted)
        keys.append(SeriesKey(labels.pop(NAME, ""), tuple(sorted(labels.items()))))
    return Matrix.in_order(keys, grid, of_type(BOOLEAN, (~here).astype(np.int64), np.ones(here.shape, np.bool_)))


def _expected(node: nodes.Absent) -> list[LabelSet]:
    """Return the label sets as sorted pairs. Raises QueryError if one is repeated or contradicts the selector."""
    if len(node.expected) > MAX_EXPECTED:
        raise QueryError(f"absent: {len(node.expected)} label sets are expected: use at most {MAX_EXPECTED}")
    sets: dict[LabelSet, str] = {}
    for text in node.expected:
        found = {m.label: m.value for m in parse_selector(text).matchers}
        wrong = next((m for m in node.selector.matchers if not accepts(m, found.get(m.label, m.value))
                      and m.label in found), None)  # fmt: skip
        if wrong is not None:
            raise QueryError(f"absent: the expected {text} is impossible: the selector has {matcher_text(wrong)}")
        wanted = tuple(sorted(found.items()))
        if wanted in sets:
            raise QueryError(f"absent: {text} is expected twice")
        sets[wanted] = text
    return [*sets] or [()]


def _mark(here: Bools, sets: list[LabelSet], keys: Sequence[SeriesKey], present: Bools) -> None:
    """Mark, for each label set, the buckets in which a series with all of its labels has a sample. Series are looked up
    in a dictionary for each combination of label names."""
    by_labels: dict[tuple[str, ...], dict[tuple[str, ...], int]] = {}
    for row, wanted in enumerate(sets):
        by_labels.setdefault(tuple(label for label, _ in wanted), {})[tuple(value for _, value in wanted)] = row
    for labels, rows in by_labels.items():
        for i, key in enumerate(keys):
            row = rows.get(tuple(key.get(label) for label in labels), -1)
            if row >= 0:
                here[row] |= present[i]


def fetches_of(tree: nodes.Node) -> list[tuple[nodes.Fetch, int]]:
    """Return the fetches with the sum of the offsets above each, equal ones once."""
    found: dict[tuple[str, int], tuple[nodes.Fetch, int]] = {}
    waiting = [(tree, 0)]
    while waiting:
        node, offset_ms = waiting.pop()
        if isinstance(node, nodes.Fetch):
            found.setdefault((str(node.selector), offset_ms), (node, offset_ms))
        if isinstance(node, nodes.Offset):
            offset_ms += node.offset_ms
        waiting.extend((child, offset_ms) for child in reversed(nodes.children(node)))
    return list(found.values())
