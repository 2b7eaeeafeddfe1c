"""Handlers of the API routes: read parameters, run the executor, return the answer. No arithmetic here."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

from fastapi import FastAPI, Path, Query, Request, Response

from artimon.access.principal import LOCAL, Area, Level, LoginMethod, current_principal
from artimon.access.route_rules import public, requires
from artimon.api import prefix_search as listing
from artimon.api.active_queries import QueryOrigin
from artimon.api.alert_visibility import visible_alerts
from artimon.api.api_errors import ApiError
from artimon.api.api_limits import ApiLimits
from artimon.api.bounded_executor import BoundedExecutor
from artimon.api.buffered_answer import BufferedAnswer, BufferedResponse, buffer_answer
from artimon.api.endpoint_states import EndpointPage, EndpointReader
from artimon.api.fleet_status import FleetPage
from artimon.api.formats import headers_of, negotiate_format
from artimon.api.limited_store import (
    LimitedStore,
    evaluate_query,
    explain_query,
    measure_promql_query,
    measure_query,
    until_cancelled,
)
from artimon.api.pages import accepts_gzip
from artimon.api.query_executor import QueryExecutor, as_api_errors
from artimon.api.query_parameters import NEWEST_MAX, TIME_MAX_MS, QueryParameters, parse_body, parse_hard
from artimon.api.rollout_status import UNKNOWN
from artimon.api.shared_answers import plain_headers
from artimon.model.labels import canonical
from query_dsl import parse_selector
from query_dsl.lint import lint
from query_dsl.promql import parse as parse_promql
from query_dsl.promql.promql_settings import PromqlSettings

T = TypeVar("T")
Status = Callable[[FleetPage], Mapping[str, Any]]
Alerts = Callable[[], Mapping[str, Any]]
Configuration = Callable[[], Mapping[str, Any]]
CONCURRENT_STATUS_CALLS = 4
PROMQL_DEFAULTS = PromqlSettings()
NO_ENGINE: Mapping[str, Any] = {
    "engines": [],
    "rules": [],
    "recordings": [],
    "alerts": [],
    "truncated": 0,
    "problem": "no alert engine is known here: start one with `artimon alerts`",
}

TextParameter = Annotated[
    str | None, Query(description="The query, such as fetch('host.cpu.ms').rate(); at most 16 KiB")
]
TimeParameter = Annotated[
    int | None, Query(ge=0, le=TIME_MAX_MS, description="Evaluation time in epoch milliseconds; default now")
]
FormatParameter = Annotated[
    str | None, Query(description="json, csv or arrow; default: by the header Accept, else json")
]
EngineParameter = Annotated[
    str | None, Query(description="memory, history, or auto (default): the history for ranges older than memory")
]
ExplainParameter = Annotated[bool, Query(description="Return plan and cost of the query instead of the answer")]
PartialParameter = Annotated[
    bool, Query(description="Answer windows that memory does not hold whole; else they are NA")
]
NewestParameter = Annotated[
    int | None,
    Query(ge=1, le=NEWEST_MAX, description="Only so many newest buckets, if their values do not depend on the others"),
]
CompletenessParameter = Annotated[bool, Query(description="Add the completeness of what the query reads")]
LanguageParameter = Annotated[Literal["artimon", "promql"], Query(description="Language of the query")]
RangeParameter = Annotated[
    int, Query(ge=0, le=TIME_MAX_MS, description="Range of a query in PromQL, in milliseconds; 0: at one time")
]
SeriesParameter = Annotated[int | None, Query(ge=1, description="Refuse a query that selects more series")]
LimitParameter = Annotated[int, Query(ge=1, description="Maximum number of entries, at most the limit `found`")]
LimitsParameter = Annotated[str, Query(description="soft, or hard: apply the hard limits (docs/api.md)")]
IdParameter = Annotated[str, Path(max_length=40, description="`id` of a query in /api/queries")]
PrefixParameter = Annotated[str, Query(max_length=2_000, description="Prefix of the entries")]
FilterParameter = Annotated[str, Query(max_length=200, description="Only processes with this value")]
OffsetParameter = Annotated[int, Query(ge=0, le=1_000_000, description="Number of processes to skip")]
WordsParameter = Annotated[
    str,
    Query(max_length=200, description="Words that context, instance, host or label=value of a process must contain"),
]
ProcessWordsParameter = Annotated[
    str, Query(max_length=200, description="Words that instance, host, version or problem of a process must contain")
]


class Routes:
    """Handlers of the endpoints. `lifespan` creates the gates in the server's event loop."""

    def __init__(
        self,
        desk: QueryExecutor,
        status: Status,
        alerts: Alerts | None,
        configuration: Configuration | None = None,
        promql: PromqlSettings = PROMQL_DEFAULTS,
    ) -> None:
        self._executor, self._promql = desk, promql
        self._status, self._alerts = status, alerts or (lambda: NO_ENGINE)
        self._configuration = configuration or (lambda: UNKNOWN)
        self.endpoint_reader = EndpointReader(desk.clock)

    @property
    def _limits(self) -> ApiLimits:
        """Limits of the principal of the request."""
        return self._executor.limits

    @asynccontextmanager
    async def lifespan(self, _app: FastAPI) -> AsyncIterator[None]:
        """Open the executor, and separate threads for the status, so that it answers while queries use all others."""
        self._executor.open()
        self._status_executor = BoundedExecutor(self._limits, CONCURRENT_STATUS_CALLS, "api-status")
        try:
            yield
        finally:
            self._executor.close()
            self._status_executor.close()

    @requires(Level.VIEWER, Area.QUERY)
    async def query(
        self,
        request: Request,
        q: TextParameter = None,
        time_ms: TimeParameter = None,
        format: FormatParameter = None,
        engine: EngineParameter = None,
        explain: ExplainParameter = False,
        partial_windows: PartialParameter = False,
        limits: LimitsParameter = "soft",
        completeness: CompletenessParameter = False,
        newest: NewestParameter = None,
    ) -> Response:
        """Evaluate `q` to a matrix on one grid, in JSON, CSV or Arrow."""
        flags = explain, partial_windows, parse_hard(limits), completeness
        return await self.answer(request, QueryParameters(q, time_ms, format, engine, *flags, newest))

    @requires(Level.VIEWER, Area.QUERY)
    async def query_posted(self, request: Request) -> Response:
        """Evaluate `q` with `time_ms`, `format`, `engine` and `explain_query` in a form or a JSON object."""
        require_plain(request)
        question = parse_body(request.headers.get("content-type", ""), await request.body())
        return await self.answer(request, question)

    async def answer(self, request: Request, question: QueryParameters) -> Response:
        """Return the matrix or its explanation. Raises ApiError."""
        text = question.validate(self._limits)
        form = negotiate_format(question.format, request.headers.get("accept", ""))
        gzip = accepts_gzip(request.headers.get("accept-encoding", ""))
        now_ms = self._executor.clock.now_ms() if question.time_ms is None else question.time_ms
        asked: dict[str, Any] = {
            "origin": QueryOrigin(text, client=request.client.host if request.client else ""),
            "limits": self._executor.hard if question.hard else None,
        }
        if question.explain:
            told = lambda store: explain_query(text, store, now_ms, question.partial_windows).to_dict()  # noqa: E731
            return await self._run(request, told, question.engine, **asked)

        agents = self._executor.agents if question.time_ms is None else None

        def work(store: LimitedStore) -> tuple[BufferedAnswer, dict[str, str]]:
            matrix = evaluate_query(text, store, now_ms, question.partial_windows, question.newest)
            measured = measure_query(text, store, now_ms, agents).to_dict() if question.completeness else None
            pieces = until_cancelled(form.write(matrix, measured), store)
            most = self._limits.answer_bytes
            parcel = buffer_answer(pieces, self._executor.budget, most=most, gzip=gzip, smaller=form.smaller_hint)
            return parcel, headers_of(form, matrix, measured)

        evaluate = lambda gone: self._executor.run(work, gone, question.engine, **asked)  # noqa: E731
        return await self._executor.shared.respond(request, evaluate, self._limits)

    @requires(Level.VIEWER, Area.QUERY)
    async def completeness(
        self,
        request: Request,
        q: TextParameter = None,
        time_ms: TimeParameter = None,
        engine: EngineParameter = None,
        lang: LanguageParameter = "artimon",
        range_ms: RangeParameter = 0,
        limit: SeriesParameter = None,
    ) -> Response:
        """Measure what `q` reads over its range: samples that are due, those that are there, silent hosts."""
        text = QueryParameters(q, time_ms, None, engine).validate(self._limits)
        now_ms = self._executor.clock.now_ms()
        end_ms, agents = (now_ms, self._executor.agents) if time_ms is None else (time_ms, None)
        names = self._promql.similar_names

        def measured(store: LimitedStore) -> Mapping[str, Any]:
            if lang == "artimon":
                return measure_query(text, store, end_ms, agents).to_dict()
            span = now_ms, end_ms - range_ms, end_ms
            return measure_promql_query(parse_promql(text), store, *span, agents, similar_names=names).to_dict()

        bounds = self._limits if limit is None else replace(self._limits, series=min(limit, self._limits.series))
        origin = QueryOrigin(text, lang, request.client.host if request.client else "")
        return await self._run(request, measured, engine, origin=origin, limits=bounds)

    @requires(Level.VIEWER, Area.QUERY)
    async def lint(self, request: Request, q: TextParameter = None, lang: LanguageParameter = "artimon") -> Response:
        """Find what is probably wrong in `q`, by its text and the series in memory. It is not evaluated."""
        text, now_ms = QueryParameters(q).validate(self._limits), self._executor.clock.now_ms()
        options = {"promql": lang == "promql", "similar_names": self._promql.similar_names}

        def work(store: LimitedStore) -> Mapping[str, Any]:
            return {"findings": [one.to_dict() for one in lint(text, store, now_ms, **options)]}

        return await self._run(request, work)

    @requires(Level.VIEWER, Area.QUERY)
    async def find(self, request: Request, selector: str, limit: LimitParameter = 1_000) -> Response:
        """Find the series that match a selector, in canonical order, with or without current samples."""
        self._check_limit(limit)
        text = QueryParameters(selector, None).validate(self._limits)

        def work(store: LimitedStore) -> Mapping[str, Any]:
            found = store.find(parse_selector(text).matchers, limit + 1)
            rows = [
                {
                    "series": canonical(one.name, one.labels),
                    "name": one.name,
                    "labels": dict(one.labels),
                    "type": one.type.name,
                    "kind": one.kind.name,
                }
                for one in found[:limit]
            ]
            return {"series": rows, "truncated": len(found) > limit}

        return await self._run(request, work)

    @requires(Level.VIEWER, Area.QUERY)
    async def names(self, request: Request, prefix: PrefixParameter = "", limit: LimitParameter = 1_000) -> Response:
        """List names of variables, sorted."""
        self._check_limit(limit)
        return await self._list(request, "names", lambda store: listing.names(store, prefix, limit))

    @requires(Level.VIEWER, Area.QUERY)
    async def labels(self, request: Request, limit: LimitParameter = 1_000) -> Response:
        """List names of labels, sorted."""
        self._check_limit(limit)
        return await self._list(request, "labels", lambda store: listing.labels(store, limit))

    @requires(Level.VIEWER, Area.QUERY)
    async def label_values(
        self, request: Request, label: str, prefix: PrefixParameter = "", limit: LimitParameter = 1_000
    ) -> Response:
        """List values of one label, sorted; those of `__name__` are the names of variables."""
        self._check_limit(limit)
        work = lambda store: listing.label_values(store, label, prefix, limit)  # noqa: E731
        return await self._list(request, "values", work)

    @requires(Level.VIEWER, Area.STATUS)
    async def endpoints(
        self,
        request: Request,
        filter: WordsParameter = "",
        state: FilterParameter = "",
        limit: LimitParameter = 1_000,
        offset: OffsetParameter = 0,
    ) -> Response:
        """List a page of the processes that agents poll, those that are down first."""
        self._check_limit(limit)
        page = EndpointPage(filter, state, offset, limit)
        return await self._run(request, lambda store: self.endpoint_reader.read(store).to_json(page))

    @requires(Level.VIEWER, Area.STATUS)
    async def queries(self) -> Response:
        """List the queries that run or wait, oldest first; below the level admin one's own."""
        found = self._executor.active.to_dicts(current_principal() or LOCAL)
        return Response(json.dumps({"queries": found}), headers=plain_headers())

    @requires(Level.VIEWER, Area.STATUS, changes=True)
    async def cancel_query(self, id: IdParameter) -> Response:
        """Cancel a query that runs or waits."""
        self._executor.active.cancel(id, current_principal() or LOCAL)
        return Response(json.dumps({"cancelled": id}), headers=plain_headers())

    @requires(Level.VIEWER, Area.ALERTS)
    async def alerts(self, request: Request) -> Response:
        """Return rules and alerts of every running engine after its last evaluation."""
        packed = self._accepts_gzip(request)
        work = lambda: packed(visible_alerts(self._alerts()))  # noqa: E731
        return buffered_response(await self._status_executor.run(lambda: as_api_errors(work)))

    async def read_alerts(self) -> Mapping[str, Any]:
        """Read rules and alerts of every running engine, off the event loop. Raises ApiError."""
        return await self._status_executor.run(lambda: as_api_errors(lambda: visible_alerts(self._alerts())))

    @requires(Level.VIEWER, Area.STATUS, whole=True)
    async def status(
        self,
        request: Request,
        role: FilterParameter = "",
        state: FilterParameter = "",
        host: FilterParameter = "",
        filter: ProcessWordsParameter = "",
        limit: LimitParameter = 1_000,
        offset: OffsetParameter = 0,
    ) -> Response:
        """Return the state of every part, hop and shard, and a page of the processes of the cluster."""
        self._check_limit(limit)
        page, packed = FleetPage(role, state, host, offset, limit, filter), self._accepts_gzip(request)
        work = lambda: packed(self._status(page))  # noqa: E731
        return buffered_response(await self._status_executor.run(lambda: as_api_errors(work)))

    @requires(Level.VIEWER, Area.STATUS, whole=True)
    async def configuration(self, request: Request) -> Response:
        """Return the versions of the configuration of agents: pushed, running and refused ones."""
        packed = self._accepts_gzip(request)
        work = lambda: packed(self._configuration())  # noqa: E731
        return buffered_response(await self._status_executor.run(lambda: as_api_errors(work)))

    @requires(Level.VIEWER)
    async def whoami(self) -> Response:
        """Return user, role and level of the request; `login` false if no login is configured."""
        principal = current_principal() or LOCAL
        told = {
            "user": principal.user,
            "role": principal.role.name,
            "level": principal.role.level.name.lower(),
            "method": principal.method,
            "scopes": None if principal.scopes is None else sorted(principal.scopes),
            "restricted": principal.is_restricted,
            "login": principal.method != LoginMethod.LOCAL,
        }
        return Response(json.dumps(told), headers=plain_headers())

    @public
    async def health(self) -> Response:
        """Answer if this process runs; the shards are not checked."""
        return Response('{"state": "ok"}', headers=plain_headers())

    async def _list(
        self, request: Request, word: str, work: Callable[[LimitedStore], tuple[list[str], bool]]
    ) -> Response:
        def listed(store: LimitedStore) -> Mapping[str, Any]:
            found, more = work(store)
            return {word: found, "truncated": more}

        return await self._run(request, listed)

    async def _run(
        self,
        request: Request,
        work: Callable[[LimitedStore], Mapping[str, Any]],
        engine: str | None = "memory",
        **more: Any,
    ) -> Response:
        packed = self._accepts_gzip(request)

        def answered(store: LimitedStore) -> tuple[BufferedAnswer, Mapping[str, str]]:
            return packed(work(store)), {}

        evaluate = lambda gone: self._executor.run(answered, gone, engine, **more)  # noqa: E731
        return await self._executor.shared.respond(request, evaluate, self._limits)

    def _accepts_gzip(self, request: Request) -> Callable[[Mapping[str, Any]], BufferedAnswer]:
        """Return a function that encodes an answer as JSON; lone surrogates become escapes."""
        gzip = accepts_gzip(request.headers.get("accept-encoding", ""))

        def packed(found: Mapping[str, Any]) -> BufferedAnswer:
            text = json.dumps(found, ensure_ascii=False).encode("utf-8", "backslashreplace")
            return buffer_answer([text], self._executor.budget, most=self._limits.answer_bytes, gzip=gzip)

        return packed

    def _check_limit(self, limit: int) -> None:
        if limit > self._limits.found:
            raise ApiError(
                413, f"limit = {limit} is above found = {self._limits.found}: ask for fewer, or add matchers"
            )


def require_plain(request: Request) -> None:
    """Refuse a compressed body. Raises ApiError."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(415, "the body has an encoding that is not supported: use identity")


def buffered_response(parcel: BufferedAnswer) -> Response:
    """Return a response with a buffered answer of JSON."""
    return BufferedResponse(parcel, plain_headers())
