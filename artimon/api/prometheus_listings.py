"""Lists of the API of Prometheus: series, labels, their values, and the types of metrics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from fastapi import Request, Response

from artimon.access.principal import Area, Level
from artimon.access.route_rules import requires
from artimon.api import prefix_search as listing
from artimon.api.api_errors import ApiError
from artimon.api.buffered_answer import BufferedAnswer
from artimon.api.limited_store import LimitedStore
from artimon.api.prometheus_format import Fields, success, unescaped
from artimon.api.prometheus_handlers import PrometheusHandlers, read_fields
from artimon.api.query_parameters import TIME_MAX_MS
from artimon.api.sampled_series import Span, in_order, labels_of, sampled_series, values_of
from artimon.model.select import NAME, Matcher
from artimon.model.values import Kind

MAX_DESCRIBED = 200
"""Limit of the metrics of a search: the kind of each is one call to the store."""
FAMILY_SUFFIXES = tuple(separator + part for separator in "._" for part in ("bucket", "sum", "count"))
"""Suffixes of the variables of a histogram or summary: those of Artimon and those of Prometheus."""
ListWork = Callable[[LimitedStore, int], tuple[Any, bool]]
"""Returns at most so many entries, and True if there are more."""


class PrometheusListings(PrometheusHandlers):
    """Handlers of lists, which the memory store answers."""

    @requires(Level.VIEWER, Area.QUERY)
    async def series(self, request: Request) -> Response:
        """List the series that match any of `match[]`."""
        fields = await read_fields(request)
        selectors, span = self._selectors(fields, required=True), self._span(fields)

        def work(store: LimitedStore, limit: int) -> tuple[list[Any], bool]:
            rows: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
            for matchers in selectors:
                sampled = None if span is None else sampled_series(store, matchers, span)
                for one in store.find(matchers, limit + 1) if sampled is None else in_order(sampled):
                    labels = {NAME: one.name, **one.labels}
                    rows.setdefault(tuple(sorted(labels.items())), labels)
            return list(rows.values())[:limit], len(rows) > limit

        return await self._list(request, fields, work)

    @requires(Level.VIEWER, Area.QUERY)
    async def labels(self, request: Request) -> Response:
        """List the names of the labels of all series, or of those that match."""
        fields = await read_fields(request)
        selectors, span = self._selectors(fields), self._span(fields)

        def work(store: LimitedStore, limit: int) -> tuple[list[str], bool]:
            if not selectors:
                found, more = listing.labels(store, limit)
                return sorted({NAME, *found})[:limit], more
            labels = {one for matchers in selectors for one in labels_of(store, matchers, span, limit + 1)}
            return _cut(labels, limit)

        return await self._list(request, fields, work)

    @requires(Level.VIEWER, Area.QUERY)
    async def label_values(self, request: Request, name: str) -> Response:
        """List the values of a label of all series, or of those that match."""
        fields, label = await read_fields(request), unescaped(name)
        selectors, span = self._selectors(fields), self._span(fields)

        def work(store: LimitedStore, limit: int) -> tuple[list[str], bool]:
            if not selectors:
                return listing.label_values(store, label, "", limit)
            return _cut({one for found in selectors for one in values_of(store, label, found, span, limit + 1)}, limit)

        return await self._list(request, fields, work)

    @requires(Level.VIEWER, Area.QUERY)
    async def metadata(self, request: Request) -> Response:
        """Return type, help and unit of each metric, as far as its series and announcements tell them, and of the
        families of histograms and summaries; `search`: of the metrics that fit its words, at most MAX_DESCRIBED."""
        fields = await read_fields(request)
        wanted, search = fields.one("metric"), fields.many("search")
        fields.limit("limit_per_metric")  # every metric has one entry, which each limit admits

        def work(store: LimitedStore, limit: int) -> tuple[dict[str, Any], bool]:
            if wanted is not None:
                names = [wanted, *(wanted + suffix for suffix in FAMILY_SUFFIXES)]
                kinds = _kinds(store, names)
                types = metric_types(list(kinds), kinds)
                return _described([wanted] if wanted in types else [], types, store.metadata(names)), False
            if search:
                names, more = listing.variables(store, search[-1], min(limit, MAX_DESCRIBED))
                types = {name: _type(kind) for name, kind in _kinds(store, names).items()}
                return _described(names, types, store.metadata(names)), more
            kinds = {one.name: one.kind for one in store.find((Matcher(NAME, "!=", ""),), self._limits.found)}
            types = metric_types(store.names(), kinds)
            return _described(sorted(types)[:limit], types, store.metadata(None)), len(types) > limit

        return await self._list(request, fields, work)

    def _span(self, fields: Fields) -> Span | None:
        """Return the range that `start` and `end` name; None without them. Raises ApiError."""
        if fields.one("start") is None and fields.one("end") is None:
            return None
        now_ms = self._executor.clock.now_ms()
        span = Span(fields.time_ms("start", -TIME_MAX_MS), fields.time_ms("end", now_ms), now_ms)
        if span.end_ms < span.start_ms:
            raise ApiError(400, 'invalid parameter "end": the end must not be before the start')
        return span

    async def _list(self, request: Request, fields: Fields, work: ListWork) -> Response:
        most = self._entries(fields)

        def listed(store: LimitedStore) -> BufferedAnswer:
            found, more = work(store, most)
            warnings = [f"the results are truncated to {most} entries due to limit"] if more else []
            return self._packed(request, [success(found, [*warnings, *store.remarks])])

        return await self._answer(request, listed)


def _cut(found: set[str], limit: int) -> tuple[list[str], bool]:
    return sorted(found)[:limit], len(found) > limit


def _kinds(store: LimitedStore, names: Iterable[str]) -> dict[str, Kind]:
    """Return the kind of those names that have series."""
    return {name: one.kind for name in names for one in store.find((Matcher(NAME, "=", name),), 1)}


def metric_types(names: Collection[str], kinds: Mapping[str, Kind]) -> dict[str, str]:
    """Return the type of each name and, beside them, of each family. A family has counts and sums: with buckets it is a
    histogram; without them, if both are counters, a summary, for only metadata tell that sums are a counter."""
    known = set(names)
    types = {name: _type(kinds.get(name, Kind.UNKNOWN)) for name in names}
    for name in names:
        family, separator = name[:-6], name[-6:-5]
        sums = f"{family}{separator}sum"
        if not family or not name.endswith((".count", "_count")) or sums not in known:
            continue
        if f"{family}{separator}bucket" in known:
            types[family] = "histogram"
        elif kinds.get(name) is kinds.get(sums) is Kind.COUNTER:
            types[family] = "summary"
    return types


def _type(kind: Kind) -> str:
    return kind.name.lower() if kind in (Kind.COUNTER, Kind.GAUGE) else "unknown"


def _described(
    names: Iterable[str], types: Mapping[str, str], texts: Mapping[str, tuple[str, str]]
) -> dict[str, list[dict[str, str]]]:
    """Return the entry of each name; a family has the texts of its counts."""
    found = {}
    for name in names:
        told = next((texts[one] for one in (name, f"{name}_count", f"{name}.count") if one in texts), ("", ""))
        found[name] = [{"type": types.get(name, "unknown"), "help": told[0], "unit": told[1]}]
    return found
