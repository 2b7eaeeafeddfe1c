"""Routes of the HTTP API of Prometheus: what Grafana's data source and clients of Prometheus ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any

from fastapi import FastAPI, Request, Response

from artimon.api import prefix_search as listing
from artimon.api.api_errors import ApiError
from artimon.api.buffered_answer import BufferedAnswer, buffer_answer
from artimon.api.limited_store import LimitedStore, history_limits, until_cancelled
from artimon.api.pages import accepts_gzip
from artimon.api.prometheus_format import Fields, answer, failure, success, unescaped
from artimon.api.query_executor import QueryExecutor
from artimon.api.query_parameters import QueryParameters
from artimon.api.routes import buffered_response, plain_headers, wait_disconnect
from artimon.model.select import NAME, Matcher
from query_dsl.promql import PromqlError, PromqlResult, Query, format_text, parse, query_store
from query_dsl.promql.evaluation import LOOK_BACK_MS
from query_dsl.promql.tree import Selector
from query_dsl.stores.query_limits import make_budget
from query_dsl.tree.times import format_time

PREFIX = "/api/v1/"
VERSION = "2.24.0"
"""First version of Prometheus whose label routes take `match[]`. A newer one would promise more."""
DEFAULT_SERIES = 10_000


class PrometheusRoutes:
    """Handlers; `alerts` reads the rules and alerts of the engines."""

    def __init__(self, executor: QueryExecutor, alerts: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
        self._executor, self._limits, self._alerts = executor, executor.limits, alerts

    def add_to(self, app: FastAPI) -> None:
        """Add the routes; those that clients post to also take GET."""
        posted = ("query", "query_range", "series", "labels", "format_query", "query_exemplars")
        paths = {path: path for path in (*posted, "metadata", "rules", "alerts")}
        for path, name in {**paths, "label/{name}/values": "label_values", "status/buildinfo": "build_info"}.items():
            methods = ["GET", "POST"] if path in posted else ["GET"]
            app.add_api_route(
                PREFIX + path, getattr(self, name), methods=methods, response_class=Response, include_in_schema=False
            )
        for path in ("/-/healthy", "/-/ready"):
            app.add_api_route(path, self.ready, methods=["GET", "HEAD"], include_in_schema=False)

    async def query(self, request: Request) -> Response:
        """Evaluate `query` at `time`."""
        fields = await _fields(request)
        now_ms = self._executor.clock.now_ms()
        return await self._evaluate(request, fields, {"end_ms": fields.time_ms("time", now_ms)})

    async def query_range(self, request: Request) -> Response:
        """Evaluate `query` at each `step` from `start` to `end`."""
        fields = await _fields(request)
        times = {"start_ms": fields.time_ms("start"), "end_ms": fields.time_ms("end")}
        return await self._evaluate(request, fields, {**times, "step_ms": fields.duration_ms("step")})

    async def _evaluate(self, request: Request, fields: Fields, times: Mapping[str, int]) -> Response:
        query = _parsed(QueryParameters(fields.required("query")).validate(self._limits))
        look_back_ms = fields.duration_ms("lookback_delta", LOOK_BACK_MS)
        query_ms = round(self._limits.query_s * 1000)
        timeout_s = min(fields.duration_ms("timeout", query_ms), query_ms) / 1000
        limit, now_ms = fields.limit(), self._executor.clock.now_ms()

        def work(store: LimitedStore) -> BufferedAnswer:
            began = perf_counter()
            budget = make_budget(history_limits(store, timeout_s), store.check)
            try:
                found = query_store(query, store, now_ms, look_back_ms=look_back_ms, budget=budget, **times)
            except PromqlError as problem:
                raise ApiError(422, problem.message) from problem
            self._check_size(found)
            extra = {}
            if fields.one("stats"):
                taken = round(perf_counter() - began, 6)
                extra["stats"] = {
                    "timings": {"evalTotalTime": taken, "execTotalTime": taken},
                    "samples": {"totalQueryableSamples": budget.samples},
                }
            return self._packed(request, until_cancelled(answer(found, limit, extra), store))

        return buffered_response(await self._executor.run(work, wait_disconnect(request), fields.one("engine")))

    def _check_size(self, found: PromqlResult) -> None:
        cells = int(found.here.sum()) if found.samples is None else len(found.samples.values)
        if cells > self._limits.cells_answered:
            raise ApiError(
                422,
                f"the answer has {cells} values, more than the limit of {self._limits.cells_answered} (cells_answered):"
                " aggregate, add matchers, or ask for a longer step",
            )

    def _packed(self, request: Request, pieces: Any) -> BufferedAnswer:
        gzip = accepts_gzip(request.headers.get("accept-encoding", ""))
        return buffer_answer(pieces, self._executor.budget, most=self._limits.answer_bytes, gzip=gzip)

    # --- series and labels

    async def series(self, request: Request) -> Response:
        """List the series that match any of `match[]`."""
        fields = await _fields(request)
        selectors = _selectors(fields)
        if not selectors:
            raise ApiError(400, "no match[] parameter provided")

        def work(store: LimitedStore, limit: int) -> tuple[list[Any], bool]:
            found, more = self._found(store, selectors, limit)
            return found, more

        return await self._list(request, fields, work)

    async def labels(self, request: Request) -> Response:
        """List the names of the labels of all series, or of those that match."""
        fields = await _fields(request)
        selectors = _selectors(fields)

        def work(store: LimitedStore, limit: int) -> tuple[list[Any], bool]:
            if not selectors:
                found, more = listing.labels(store, limit)
                return sorted({NAME, *found}), more
            rows, more = self._found(store, selectors, self._limits.found)
            return sorted({name for row in rows for name in row})[:limit], more

        return await self._list(request, fields, work)

    async def label_values(self, request: Request, name: str) -> Response:
        """List the values of a label of all series, or of those that match."""
        fields, label = await _fields(request), unescaped(name)
        selectors = _selectors(fields)

        def work(store: LimitedStore, limit: int) -> tuple[list[Any], bool]:
            if not selectors:
                return listing.label_values(store, label, "", limit)
            rows, more = self._found(store, selectors, self._limits.found)
            return sorted({row[label] for row in rows if label in row})[:limit], more

        return await self._list(request, fields, work)

    def _found(self, store: LimitedStore, selectors: list[tuple[Matcher, ...]], limit: int) -> tuple[list[Any], bool]:
        """Return the label sets of series that match any selector, and True if there are more."""
        rows: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
        for matchers in selectors:
            for one in store.find(matchers, limit + 1):
                labels = {NAME: one.name, **one.labels}
                rows.setdefault(tuple(sorted(labels.items())), labels)
        return list(rows.values())[:limit], len(rows) > limit

    async def _list(
        self, request: Request, fields: Fields, work: Callable[[LimitedStore, int], tuple[list[Any], bool]]
    ) -> Response:
        most = min(fields.limit() or DEFAULT_SERIES, self._limits.found)

        def listed(store: LimitedStore) -> BufferedAnswer:
            found, more = work(store, most)
            warnings = [f"the results are truncated to {most} entries"] if more else []
            return self._packed(request, [success(found, warnings)])

        return buffered_response(await self._executor.run(listed, wait_disconnect(request), "memory"))

    # --- what clients ask beside queries

    async def metadata(self, request: Request) -> Response:
        """Return the type of each metric, as far as series tell it."""
        fields = await _fields(request)
        limit = min(fields.limit() or DEFAULT_SERIES, self._limits.found)
        wanted = fields.one("metric")

        def work(store: LimitedStore) -> BufferedAnswer:
            matcher = Matcher(NAME, "!=", "") if wanted is None else Matcher(NAME, "=", wanted)
            kinds: dict[str, str] = {}
            for one in store.find((matcher,), self._limits.found):
                kind = one.kind.name.lower()
                if len(kinds) < limit or one.name in kinds:
                    kinds.setdefault(one.name, kind if kind in ("counter", "gauge") else "unknown")
            told = {name: [{"type": kind, "help": "", "unit": ""}] for name, kind in sorted(kinds.items())}
            return self._packed(request, [success(told)])

        return buffered_response(await self._executor.run(work, wait_disconnect(request), "memory"))

    async def format_query(self, request: Request) -> Response:
        """Return `query` with the usual layout."""
        fields = await _fields(request)
        try:
            return _json(success(format_text(fields.required("query"))))
        except PromqlError as problem:
            raise ApiError(400, f'invalid parameter "query": {problem.message}') from problem

    async def query_exemplars(self) -> Response:
        """Return no exemplars: there are none."""
        return _json(success([]))

    async def rules(self) -> Response:
        """Return the alert rules in one group; their expressions are in our own language."""
        told = await self._alerts()
        rules: list[dict[str, Any]] = [
            {
                "name": str(one.get("name", "")),
                "query": str(one.get("expr", "")),
                "type": "alerting",
                "state": _state(str(one.get("state", ""))),
                "duration": one.get("for_ms", 0) / 1000,
                "health": "err" if one.get("error") else "ok",
                "lastError": str(one.get("error") or ""),
                "labels": {},
                "annotations": {},
                "alerts": [],
            }
            for one in told["rules"]
        ]
        groups = [{"name": "artimon", "file": "artimon", "interval": 60, "rules": rules}] if rules else []
        return _json(success({"groups": groups}))

    async def alerts(self) -> Response:
        """Return the alerts that are pending or firing."""
        found = [
            {
                "labels": {"alertname": str(one.get("rule", "")), **_texts(one.get("labels"))},
                "annotations": {"summary": str(one.get("summary", ""))},
                "state": _state(str(one.get("state", ""))),
                "activeAt": format_time(int(one.get("since_ms") or 0)),
                "value": str(one.get("value", "")),
            }
            for one in (await self._alerts())["alerts"]
        ]
        return _json(success({"alerts": [one for one in found if one["state"] != "inactive"]}))

    async def build_info(self) -> Response:
        """Return the version of the API of Prometheus that this one has."""
        told = {"version": VERSION, "revision": "", "branch": "", "buildUser": "", "buildDate": "", "goVersion": ""}
        return _json(success({**told, "application": "Artimon"}))

    async def ready(self) -> Response:
        """Answer if this process runs."""
        return Response("Artimon is ready.\n", media_type="text/plain")


def error_response(problem: ApiError) -> Response:
    """Return an error in the form of Prometheus."""
    status = 422 if problem.status == 413 else 503 if problem.status in (504, 499) else problem.status
    return Response(failure(problem), status, headers=plain_headers())


def _state(state: str) -> str:
    return state if state in ("firing", "pending") else "inactive"


def _texts(labels: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in labels.items()} if isinstance(labels, Mapping) else {}


async def _fields(request: Request) -> Fields:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await request.body()
    if body and kind != "application/x-www-form-urlencoded":
        raise ApiError(415, "send application/x-www-form-urlencoded")
    return Fields(request.scope["query_string"], body)


def _selectors(fields: Fields) -> list[tuple[Matcher, ...]]:
    """Parse the selectors of `match[]`. Raises ApiError."""
    found = []
    for text in fields.many("match[]"):
        node = _parsed(text, "match[]").node
        if not isinstance(node, Selector) or node.range_ms:
            raise ApiError(400, f'invalid parameter "match[]": {text!r:.100} is not a vector selector')
        found.append(node.matchers)
    return found


def _parsed(text: str, parameter: str = "query") -> Query:
    try:
        return parse(text)
    except PromqlError as problem:
        raise ApiError(400, f'invalid parameter "{parameter}": {problem.message}') from problem


def _json(body: bytes) -> Response:
    return Response(body, headers=plain_headers())
