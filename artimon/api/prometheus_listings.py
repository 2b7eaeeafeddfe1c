"""Lists of the API of Prometheus: series, labels, their values, and the types of metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import Request, Response

from artimon.api import prefix_search as listing
from artimon.api.buffered_answer import BufferedAnswer
from artimon.api.limited_store import LimitedStore
from artimon.api.prometheus_format import Fields, success, unescaped
from artimon.api.prometheus_handlers import PrometheusHandlers, parse_selectors, read_fields
from artimon.model.select import NAME, Matcher
from artimon.model.values import Kind

ListWork = Callable[[LimitedStore, int], tuple[Any, bool]]
"""Returns at most so many entries, and True if there are more."""


class PrometheusListings(PrometheusHandlers):
    """Handlers of lists, which the memory store answers."""

    async def series(self, request: Request) -> Response:
        """List the series that match any of `match[]`."""
        fields = await read_fields(request)
        selectors = parse_selectors(fields, required=True)

        def work(store: LimitedStore, limit: int) -> tuple[list[Any], bool]:
            rows: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
            for matchers in selectors:
                for one in store.find(matchers, limit + 1):
                    labels = {NAME: one.name, **one.labels}
                    rows.setdefault(tuple(sorted(labels.items())), labels)
            return list(rows.values())[:limit], len(rows) > limit

        return await self._list(request, fields, work)

    async def labels(self, request: Request) -> Response:
        """List the names of the labels of all series, or of those that match."""
        fields = await read_fields(request)
        selectors = parse_selectors(fields)

        def work(store: LimitedStore, limit: int) -> tuple[list[str], bool]:
            if not selectors:
                found, more = listing.labels(store, limit)
                return sorted({NAME, *found})[:limit], more
            labels = {one for matchers in selectors for one in store.matching_values(None, matchers, limit + 1)}
            return _cut({NAME, *labels} if labels or _matches(store, selectors) else set(), limit)

        return await self._list(request, fields, work)

    async def label_values(self, request: Request, name: str) -> Response:
        """List the values of a label of all series, or of those that match."""
        fields, label = await read_fields(request), unescaped(name)
        selectors = parse_selectors(fields)

        def work(store: LimitedStore, limit: int) -> tuple[list[str], bool]:
            if not selectors:
                return listing.label_values(store, label, "", limit)
            return _cut({one for found in selectors for one in store.matching_values(label, found, limit + 1)}, limit)

        return await self._list(request, fields, work)

    async def metadata(self, request: Request) -> Response:
        """Return the type of each metric; metrics whose series have no kind are left out."""
        fields = await read_fields(request)
        wanted = fields.one("metric")

        def work(store: LimitedStore, limit: int) -> tuple[dict[str, Any], bool]:
            if wanted is not None:
                found = store.find((Matcher(NAME, "=", wanted),), 1)
                return {one.name: _metadata(one.kind) for one in found}, False
            names, more = listing.names(store, "", limit)
            kinds = {one.name: one.kind for one in store.find((Matcher(NAME, "!=", ""),), self._limits.found)}
            return {name: _metadata(kinds.get(name, Kind.UNKNOWN)) for name in names}, more

        return await self._list(request, fields, work)

    async def _list(self, request: Request, fields: Fields, work: ListWork) -> Response:
        most = self._entries(fields)

        def listed(store: LimitedStore) -> BufferedAnswer:
            found, more = work(store, most)
            warnings = [f"the results are truncated to {most} entries due to limit"] if more else []
            return self._packed(request, [success(found, [*warnings, *store.remarks])])

        return await self._answer(request, listed)


def _matches(store: LimitedStore, selectors: list[tuple[Matcher, ...]]) -> bool:
    return any(store.find(matchers, 1) for matchers in selectors)


def _cut(found: set[str], limit: int) -> tuple[list[str], bool]:
    return sorted(found)[:limit], len(found) > limit


def _metadata(kind: Kind) -> list[dict[str, str]]:
    name = kind.name.lower()
    return [{"type": name if name in ("counter", "gauge") else "unknown", "help": "", "unit": ""}]
