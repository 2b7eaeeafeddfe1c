"""Routes of the HTTP API of Prometheus that Grafana's data source and clients of Prometheus call.

`status/flags` and `features` of `status/buildinfo` are left out: from them Grafana would conclude that this server is
Thanos or Mimir."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request, Response

from artimon.api.api_errors import ApiError
from artimon.api.endpoint_states import EndpointReader
from artimon.api.prometheus_exports import PrometheusExports
from artimon.api.prometheus_format import failure
from artimon.api.prometheus_listings import PrometheusListings
from artimon.api.prometheus_queries import PrometheusQueries
from artimon.api.prometheus_status import PrometheusStatus
from artimon.api.query_executor import QueryExecutor
from artimon.api.shared_answers import plain_headers
from query_dsl.promql.promql_settings import PromqlSettings

PREFIX = "/api/v1/"
FEDERATE = "/federate"


def add_prometheus_routes(
    app: FastAPI,
    executor: QueryExecutor,
    alerts: Callable[[], Awaitable[Mapping[str, Any]]],
    endpoints: EndpointReader,
    promql: PromqlSettings,
) -> Mapping[str, Callable[[Request], Awaitable[Response]]]:
    """Add the routes; those that clients post forms to also take GET. Return the handlers of the most frequent ones."""
    queries, listings = PrometheusQueries(executor, promql), PrometheusListings(executor, promql)
    status, exports = PrometheusStatus(executor, alerts, endpoints), PrometheusExports(executor, promql)
    posted = {
        "query": queries.query,
        "query_range": queries.query_range,
        "format_query": queries.format_query,
        "parse_query": queries.parse_query,
        "query_exemplars": queries.query_exemplars,
        "series": listings.series,
        "labels": listings.labels,
    }
    read = {
        "label/{name}/values": listings.label_values,
        "metadata": listings.metadata,
        "rules": status.rules,
        "alerts": status.alerts,
        "targets": status.targets,
        "status/buildinfo": status.build_info,
        "status/runtimeinfo": status.runtime_info,
        "status/config": status.config,
        "status/tsdb": status.tsdb,
    }
    _add(app, ["GET", "POST"], {PREFIX + path: handler for path, handler in posted.items()})
    _add(app, ["GET"], {PREFIX + path: handler for path, handler in read.items()})
    _add(app, ["GET"], {FEDERATE: exports.federate})
    _add(app, ["POST"], {PREFIX + "read": exports.read})
    _add(app, ["GET", "HEAD"], {"/-/healthy": status.ready, "/-/ready": status.ready})
    return {f"{PREFIX}query": queries.query, f"{PREFIX}query_range": queries.query_range}


def _add(app: FastAPI, methods: list[str], routes: Mapping[str, Any]) -> None:
    for path, handler in routes.items():
        app.add_api_route(path, handler, methods=methods, response_class=Response, include_in_schema=False)


def is_of_prometheus(path: str) -> bool:
    """True for paths whose errors have the form of Prometheus."""
    return path.startswith(PREFIX) or path == FEDERATE


def error_response(problem: ApiError) -> Response:
    """Return an error in the form of Prometheus."""
    status = 422 if problem.status == 413 else 503 if problem.status in (504, 499) else problem.status
    return Response(failure(problem), status, headers=plain_headers())
