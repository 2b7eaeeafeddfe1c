"""Lists of the API of Prometheus: series, labels, their values, and the types of metrics."""

from __future__ import annotations

from collections.abc import Callable
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
        """Return type, help and unit of each metric, as far as its series and announcements tell them; `search`: of
        those that fit its words, at most MAX_DESCRIBED."""
        fields = await read_fields(request)
        wanted, search = fields.one("metric"), fields.many("search")

        def work(store: LimitedStore, limit: int) -> tuple[dict[str, Any], bool]:
            if wanted is not None:
                found = store.find((Matcher(NAME, "=", wanted),), 1)
                texts = store.metadata([wanted])
                return {one.name: _metadata(one.kind, *texts.get(one.name, ())) for one in found}, False
            if search:
                names, more = listing.variables(store, search[-1], min(limit, MAX_DESCRIBED))
                texts = store.metadata(names)
                kinds = {name: one.kind for name in names for one in store.find((Matcher(NAME, "=", name),), 1)}
                return {name: _metadata(kinds.get(name, Kind.UNKNOWN), *texts.get(name, ())) for name in names}, more
            names, more = listing.names(store, "", limit)
            kinds = {one.name: one.kind for one in store.find((Matcher(NAME, "!=", ""),), self._limits.found)}
            texts = store.metadata(None)
            return {name: _metadata(kinds.get(name, Kind.UNKNOWN), *texts.get(name, ())) for name in names}, more

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


def _metadata(kind: Kind, help: str = "", unit: str = "") -> list[dict[str, str]]:
    name = kind.name.lower()
    return [{"type": name if name in ("counter", "gauge") else "unknown", "help": help, "unit": unit}]
