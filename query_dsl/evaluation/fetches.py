"""Fetches: from a selector and a grid to bucket data, with notes on data that the store does not hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from artimon.compute.true_sums import BEYOND_64_BITS
from artimon.model.grid import Grid, bucket_end
from artimon.model.select import NAME, Matcher
from query_dsl.evaluation.execution import QueryExecution
from query_dsl.results.bucket_data import BucketData, from_buckets, padded
from query_dsl.results.matrix import Matrix
from query_dsl.results.result_cells import BOOLEAN, Bools, SeriesKey, of_type
from query_dsl.stores.levels import SETTLE_MS, LevelSnapshot
from query_dsl.tree import nodes
from query_dsl.tree.query_errors import NothingHeld, NothingSelected, QueryError, similar_hint
from query_dsl.tree.selector import Selector, accepts, matcher_text, parse_selector, series_text
from query_dsl.tree.times import format_duration, format_time

LabelSet = tuple[tuple[str, str], ...]
SHOWN_VALUES = 5
"""Number of label values that an error lists if none is similar."""
MAX_EXPECTED = 10_000
"""Maximum number of expected label sets of one `absent`."""


def fetch_data(node: nodes.Fetch, grid: Grid, statistics: Sequence[str], execution: QueryExecution) -> BucketData:
    """Return the buckets of matching series on `grid`, in canonical order; series without samples in them are left out.

    Raises NothingSelected if no series matches; QueryError if no level has the step or holds any of the grid."""
    held = held_grid(grid, level_of(grid, "bucketize this side too", execution))
    wanted = ("count", *(s for s in statistics if s != "count"))
    buckets = execution.select(node.selector.matchers, held, wanted, node.resolution is not None)
    if not buckets.series:
        raise NothingSelected(explain_empty(node.selector, execution))
    if any(BEYOND_64_BITS in note for note in buckets.notes):  # of the sums: count, min and max tell the true ones
        wanted = tuple(dict.fromkeys((*wanted, "min", "max")))
        buckets = execution.select(node.selector.matchers, held, wanted, node.resolution is not None)
    data = from_buckets(buckets)
    sampled = np.flatnonzero(data.present.any(axis=1))
    if len(sampled) < len(data.keys):
        lacking = len(data.keys) - len(sampled)
        newest = int(buckets.newest_ms.max(initial=0))
        if not newest and not len(sampled):
            newest = newest_known_ms(node.selector, execution)
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


def explain_empty(selector: Selector, execution: QueryExecution) -> str:
    """Explain an empty selection: a matcher that selects nothing alone, with similar values, or the combination."""
    for matcher in selector.matchers:
        if not execution.store.find((matcher,), 1):
            return f"{selector} selects nothing: {_explain_matcher(matcher, execution)}"
    for i in range(2, len(selector.matchers) + 1):
        if not execution.store.find(selector.matchers[:i], 1):
            first, last = ", ".join(map(matcher_text, selector.matchers[: i - 1])), selector.matchers[i - 1]
            return f"{selector} selects nothing: series fit {first}, but none of them {matcher_text(last)}"
    return f"{selector} selects nothing now{_history_hint(selector, execution)}"


def _history_hint(selector: Selector, execution: QueryExecution) -> str:
    """Hint at matching series that only the history knows: one of them, and the newest sample time of all."""
    found = execution.store.find(selector.matchers, 2) if execution.store.has_history else []
    if not found:
        return ""
    shown = series_text(found[0].name, dict(found[0].labels))
    newest = newest_known_ms(selector, execution)
    seen = f", whose newest sample is of {format_time(newest)}" if newest else ""
    of = shown if len(found) == 1 else f"such series as {shown}"
    return f': only the history knows {of}{seen}; ask for that time, or with engine="history"'


def newest_known_ms(selector: Selector, execution: QueryExecution) -> int:
    """Time of the newest sample of matching series that the store remembers, up to the end of the grid; 0: none."""
    return max(execution.store.newest(selector.matchers, execution.plan.grid.end_ms).values(), default=0)


_NOT_NAMED = {"=": "no variable is named {value!r:.40}", "prefix": "no variable's name begins with {value!r:.40}"}


def _explain_matcher(matcher: Matcher, execution: QueryExecution) -> str:
    store = execution.store
    if matcher.label == NAME:
        known = store.names()
        what = _NOT_NAMED.get(matcher.op, "no name fits {text}").format(value=matcher.value, text=matcher_text(matcher))
        hint = (
            similar_hint(matcher.value, known) or similar_hint(matcher.value.rstrip("."), known) or _first_values(known)
        )
        return what + (hint or "; there are no variables at all")
    labels = store.label_values(None)
    if matcher.label not in labels:
        hint = similar_hint(matcher.label, labels) or _first_values(labels)
        return f"no series has the label {matcher.label!r:.80}{hint}"
    values = store.label_values(matcher.label)
    return f"no series fits {matcher_text(matcher)}{similar_hint(matcher.value, values) or _first_values(values)}"


def _first_values(values: Sequence[str]) -> str:
    """List the first SHOWN values and count the others."""
    if not values:
        return ""
    rest = f" and {len(values) - SHOWN_VALUES:,} more" if len(values) > SHOWN_VALUES else ""
    return f"; there are: {', '.join(values[:SHOWN_VALUES])}{rest}"


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
