"""Queries of the API of Prometheus: values, layout and tree."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

from fastapi import Request, Response

from artimon.access.principal import Area, Level
from artimon.access.route_rules import requires
from artimon.api.api_errors import ApiError
from artimon.api.api_limits import ApiLimits
from artimon.api.buffered_answer import BufferedAnswer
from artimon.api.formats import engine_headers
from artimon.api.limited_store import LimitedStore, history_limits, measure_promql_query, until_cancelled
from artimon.api.prometheus_format import Fields, answer, success
from artimon.api.prometheus_handlers import PrometheusHandlers, json_response, origin_of, parse_query, read_fields
from artimon.api.query_parameters import QueryParameters
from query_dsl.promql import PromqlError, PromqlResult, Query, format_text, query_store, to_json
from query_dsl.promql.evaluation_context import LOOK_BACK_MS
from query_dsl.stores.query_limits import QueryBudget, make_budget

RECENT_MS = 300_000
"""Age of the end of a range up to which live agents tell the states of silent hosts."""
LATE_S = 1.0
"""Time after the timeout of the executor, which tells the client, at which the evaluation ends itself."""


class PrometheusQueries(PrometheusHandlers):
    """Handlers of queries."""

    @requires(Level.VIEWER, Area.QUERY)
    async def query(self, request: Request) -> Response:
        """Evaluate `query` at `time`."""
        fields = await read_fields(request)
        now_ms = self._executor.clock.now_ms()
        return await self._evaluate(request, fields, {"end_ms": fields.time_ms("time", now_ms)})

    @requires(Level.VIEWER, Area.QUERY)
    async def query_range(self, request: Request) -> Response:
        """Evaluate `query` at each `step` from `start` to `end`."""
        fields = await read_fields(request)
        times = {"start_ms": fields.time_ms("start"), "end_ms": fields.time_ms("end")}
        return await self._evaluate(request, fields, {**times, "step_ms": fields.duration_ms("step")})

    async def _evaluate(self, request: Request, fields: Fields, times: Mapping[str, int]) -> Response:
        bounds, began = self._bounds(fields), perf_counter()
        query = parse_query(QueryParameters(fields.required("query")).validate(self._limits))
        look_back_ms = fields.duration_ms("lookback_delta", LOOK_BACK_MS)
        options = {
            **times,
            "look_back_ms": look_back_ms,
            "exact_increase": fields.flag("exact_increase", self._promql.exact_increase),
            "similar_names": self._promql.similar_names,
        }
        seconds = self._timeout_s(fields, bounds)
        limit, wants_stats = fields.limit(), bool(fields.one("stats"))
        wants_completeness = fields.flag("completeness", False)
        headers: dict[str, str] = {}

        def work(store: LimitedStore) -> BufferedAnswer:
            watch, timings = make_budget(history_limits(store, seconds + LATE_S), store.check), {}
            timings["execQueueTime"] = perf_counter() - began
            found = self._run_query(query, store, options, watch)
            _check_size(found, bounds)
            headers.update(engine_headers(store.engines))
            timings["evalTotalTime"] = perf_counter() - began - timings["execQueueTime"]
            extra: dict[str, Any] = {"stats": _stats(timings, watch)} if wants_stats else {}
            if wants_completeness:
                extra["completeness"] = self._measure(query, store, times, look_back_ms)
            return self._packed(request, until_cancelled(answer(found, limit, extra), store))

        engine, origin = fields.one("engine"), origin_of(request, query.text)
        return await self._answer(request, work, engine, headers, origin=origin, limits=bounds, seconds=seconds)

    def _run_query(
        self, query: Query, store: LimitedStore, options: Mapping[str, Any], watch: QueryBudget
    ) -> PromqlResult:
        try:
            return query_store(query, store, self._executor.clock.now_ms(), budget=watch, **options)
        except PromqlError as problem:
            raise ApiError(422, problem.message) from problem

    def _measure(
        self, query: Query, store: LimitedStore, times: Mapping[str, int], look_back_ms: int
    ) -> Mapping[str, Any]:
        """Return the completeness of what a query reads; the states of silent hosts are those of now."""
        now_ms, end_ms = self._executor.clock.now_ms(), times["end_ms"]
        options = {"look_back_ms": look_back_ms, "similar_names": self._promql.similar_names}
        agents = self._executor.agents if now_ms - end_ms < RECENT_MS else None
        start_ms = times.get("start_ms", end_ms)
        return measure_promql_query(query, store, now_ms, start_ms, end_ms, agents, **options).to_dict()

    def _timeout_s(self, fields: Fields, bounds: ApiLimits) -> float:
        """Return the timeout: the soft limit, or what is asked for up to the hard one."""
        asked = fields.duration_ms("timeout", round(bounds.query_s * 1000)) / 1000
        return min(asked, self._executor.hard.query_s)

    @requires(Level.VIEWER, Area.QUERY)
    async def format_query(self, request: Request) -> Response:
        """Return `query` with the usual layout."""
        fields = await read_fields(request)
        text = QueryParameters(fields.required("query")).validate(self._limits)
        try:
            return json_response(success(format_text(text)))
        except PromqlError as problem:
            raise ApiError(400, f'invalid parameter "query": {problem.message}') from problem

    @requires(Level.VIEWER, Area.QUERY)
    async def parse_query(self, request: Request) -> Response:
        """Return the syntax tree of `query`."""
        fields = await read_fields(request)
        text = QueryParameters(fields.required("query")).validate(self._limits)
        return json_response(success(to_json(parse_query(text).node)))

    @requires(Level.VIEWER, Area.QUERY)
    async def query_exemplars(self, request: Request) -> Response:
        """Return no exemplars: there are none."""
        parse_query((await read_fields(request)).required("query"))
        return json_response(success([]))


def _check_size(found: PromqlResult, bounds: ApiLimits) -> None:
    cells = int(found.here.sum()) if found.samples is None else len(found.samples.values)
    if cells > bounds.cells_answered:
        raise ApiError(
            413,
            f"the answer has {cells} values, more than the limit of {bounds.cells_answered} (cells_answered):"
            " aggregate, add matchers, or ask for a longer step",
        )


def _stats(timings: Mapping[str, float], watch: QueryBudget) -> dict[str, Any]:
    """Return the statistics of a query."""
    total, samples = sum(timings.values()), watch.samples
    return {
        "timings": {
            "evalTotalTime": round(timings["evalTotalTime"], 6),
            "resultSortTime": 0,
            "queryPreparationTime": 0,
            "innerEvalTime": round(timings["evalTotalTime"], 6),
            "execQueueTime": round(timings["execQueueTime"], 6),
            "execTotalTime": round(total, 6),
        },
        "samples": {"totalQueryableSamples": samples, "peakSamples": samples},
    }
