"""Series that have samples in a range of time, for lists. Memory knows the begin and the newest sample of each
series; one without samples between them is listed, too, as in Prometheus, which looks at whole blocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from artimon.api.api_errors import QueryTooLargeError
from artimon.api.limited_store import LimitedStore
from artimon.compute.cells import Ints
from artimon.model.grid import Grid
from artimon.model.select import NAME, Buckets, Matcher, SelectRequest, Series
from artimon.model.series_table import SeriesTable

NEVER_MS = 2**62


@dataclass(frozen=True, slots=True)
class Span:
    """Range of time, both ends included, at the current time `now_ms`."""

    start_ms: int
    end_ms: int
    now_ms: int


def sampled_series(store: LimitedStore, matchers: tuple[Matcher, ...], span: Span) -> SeriesTable | None:
    """Return the series that match and have samples in the range. None, with a remark, if too many match."""
    step_ms, _ = store.levels()[0]
    grid = Grid(-(-span.now_ms // step_ms) * step_ms, step_ms, 1)
    try:
        found = store.select(SelectRequest(matchers, grid, ("count",), store.limits.series))
    except QueryTooLargeError as problem:
        store.remarks[f"start and end are not applied: {problem}"] = None
        return None
    store.remarks.update(dict.fromkeys(found.notes))
    table = SeriesTable.from_series(found.series)
    here = found.newest_ms >= span.start_ms
    coarsest_ms, kept = store.levels()[-1]
    if span.end_ms > span.now_ms - coarsest_ms * kept:  # before that, other series were here than memory knows
        here &= _begun_ms(found) <= span.end_ms
    return table.take(np.flatnonzero(here))


def _begun_ms(found: Buckets) -> Ints:
    """Return the start of the first known incarnation of each series, or the time of its first sample."""
    births, begun_ms = found.births, np.full(len(found.series), NEVER_MS)
    started_ms = np.where(births["birth_ms"] > 0, births["birth_ms"], births["first_ms"])
    np.minimum.at(begun_ms, births["row"], np.minimum(started_ms, births["first_ms"]))
    return begun_ms


def in_order(found: Iterable[Series]) -> list[Series]:
    """Return series in canonical order."""
    return sorted(found, key=lambda one: (one.name, sorted(one.labels.items())))


def values_of(
    store: LimitedStore, label: str, matchers: tuple[Matcher, ...], span: Span | None, limit: int
) -> list[str]:
    """Return at most `limit` values of a label among the series that match."""
    sampled = None if span is None else sampled_series(store, matchers, span)
    return store.matching_values(label, matchers, limit) if sampled is None else sorted(_values(sampled, label))[:limit]


def labels_of(store: LimitedStore, matchers: tuple[Matcher, ...], span: Span | None, limit: int) -> list[str]:
    """Return at most `limit` labels of the series that match, `__name__` included."""
    sampled = None if span is None else sampled_series(store, matchers, span)
    if sampled is not None:
        return sorted(label for label in sampled.columns if _values(sampled, label))[:limit]
    found = store.matching_values(None, matchers, limit)
    return [NAME, *found][:limit] if found or store.find(matchers, 1) else []


def _values(found: SeriesTable, label: str) -> set[str]:
    if label not in found.columns:
        return set()
    codes, values = found.columns[label]
    return {values[code] for code in np.unique(codes).tolist()} - {""}
