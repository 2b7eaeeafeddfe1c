"""HTTP application: queries answered with matrices, and the web page that sends them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any

import psutil
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.routing import Route

from artimon.access.authenticator import Authenticator
from artimon.access.principal import Level
from artimon.access.route_rules import requires
from artimon.api import schemas
from artimon.api.alert_routes import AlertRoutes, add_alert_routes
from artimon.api.api_errors import ApiError
from artimon.api.api_limits import ApiLimits
from artimon.api.dashboard_routes import add_dashboard_routes
from artimon.api.fast_path import FastQueryMiddleware
from artimon.api.guard import AccessMiddleware, LoginState
from artimon.api.login_routes import add_login_routes
from artimon.api.pages import Pages
from artimon.api.prometheus_routes import add_prometheus_routes, error_response, is_of_prometheus
from artimon.api.query_executor import QueryExecutor
from artimon.api.replay_routes import ReplayRoutes, add_replay_route
from artimon.api.request_counters import CountingMiddleware, RequestCounters
from artimon.api.routes import NO_ENGINE, Alerts, Configuration, Routes, Status
from artimon.api.shared_answers import plain_headers
from artimon.dashboards.dashboard_store import DashboardStore
from artimon.model.clock import Clock
from artimon.model.select import Store
from artimon.runtime.exposure import is_loopback
from artimon.runtime.http.body_limit import BodyLimitMiddleware
from artimon.runtime.http.http_limits import HttpError
from query_dsl.evaluation.host_acks import LiveAgents
from query_dsl.promql.promql_settings import PromqlSettings

ENCODINGS = (b"identity", b"snappy")
"""Encodings of bodies; snappy is for remote read only."""
LOCAL_HOSTS = ("127.0.0.1", "localhost")


def served_hosts(host: str, names: Sequence[str] = ()) -> list[str]:
    """Return the values of the header Host that an API on `host` accepts: loopback, `host`, `names`; beyond loopback
    this machine's name; for a wildcard address all addresses of this machine."""
    found = [*LOCAL_HOSTS, host, *names]
    if not is_loopback(host):
        found.append(socket.gethostname())
    if host in ("0.0.0.0", "::"):  # noqa: S104 - a comparison
        here = [one for many in psutil.net_if_addrs().values() for one in many]
        found += [one.address.partition("%")[0] for one in here if one.family in (socket.AF_INET, socket.AF_INET6)]
    return sorted({f"[{name}]" if ":" in name else name.lower() for name in found})


def make_app(
    store: Store,
    status: Status,
    clock: Clock,
    limits: ApiLimits | None = None,
    hosts: Sequence[str] = LOCAL_HOSTS,
    alerts: Alerts | None = None,
    pages: Pages | None = None,
    history: Callable[[], Store] | None = None,
    hard: ApiLimits | None = None,
    promql: PromqlSettings | None = None,
    access: Authenticator | None = None,
    alerts_token: str = "",
    dashboards: DashboardStore | None = None,
    configuration: Configuration | None = None,
    agents: LiveAgents | None = None,
) -> FastAPI:
    """Create the application; `app.state.desk` executes its queries.

    `status` and `alerts` return the answers of /api/status and /api/alerts and may block; `hosts` are the accepted
    values of the header Host (protection against DNS rebinding). `history` opens the history as a store; without it
    queries read only memory. `hard`: limits up to which a request may ask for more. `promql`: what queries in PromQL
    get without asking. `access`: verifier of credentials; without it everybody is the administrator.
    `alerts_token`: token of the API of the alert engine, "" without one. `dashboards`: without them those of the
    package, read-only. `configuration` returns the answer of /api/configuration and may block. `agents`: reports of
    live agents, for the states of silent hosts."""
    bounds = limits or ApiLimits()
    desk = QueryExecutor(store, clock, bounds, history, hard, access.audit if access else None, agents)
    settings = promql or PromqlSettings()
    routes = Routes(desk, status, alerts, configuration, settings)
    app = FastAPI(title="Artimon", docs_url=None, redoc_url=None, redirect_slashes=False, lifespan=routes.lifespan)
    app.state.desk, app.state.authenticator = desk, access
    login = LoginState(access, clock, bounds)
    for route in app.routes:  # FastAPI's own: the description
        if isinstance(route, Route):
            requires(Level.VIEWER)(route.endpoint)
    add_login_routes(app, login)
    frequent = add_prometheus_routes(app, desk, routes.read_alerts, routes.endpoint_reader, settings)
    alert_routes = AlertRoutes(alerts or (lambda: NO_ENGINE), alerts_token, clock, bounds)
    add_alert_routes(app, alert_routes)
    add_replay_route(app, ReplayRoutes(desk, alert_routes))
    _add_query_routes(app, routes)
    add_dashboard_routes(app, dashboards or DashboardStore(), bounds)
    _add_pages(app, pages or Pages())
    app.add_exception_handler(HttpError, _on_api_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_middleware(FastQueryMiddleware, answer=routes.answer, handlers=frequent, refuse=_refusal)
    app.add_middleware(AccessMiddleware, routes=app.routes, login=login, refuse=_refusal)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
    app.add_middleware(BodyLimitMiddleware, limits=bounds, encodings=ENCODINGS)
    app.state.counts = RequestCounters()
    app.add_middleware(CountingMiddleware, counts=app.state.counts)
    return app


def _add_query_routes(app: FastAPI, routes: Routes) -> None:
    """Add the API routes with the responses in schemas.py; FastAPI's defaults would be any JSON, and 422."""

    def add(path: str, route: Any, method: str, responses: Any, extra: Any = None) -> None:
        app.add_api_route(
            path, route, methods=[method], response_class=Response, responses=responses, openapi_extra=extra
        )

    add("/api/query", routes.query, "GET", schemas.QUERY)
    add("/api/queries/{id}", routes.cancel_query, "DELETE", schemas.CANCELLED)
    add("/api/query", routes.query_posted, "POST", schemas.QUERY_POSTED, schemas.POSTED)
    for name, responses in schemas.ANSWERS.items():
        add(f"/api/{name}", getattr(routes, name), "GET", responses)


def _add_pages(app: FastAPI, pages: Pages) -> None:
    for path in pages.paths:
        app.add_route(path, pages.page, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_route("/static/{name:path}", pages.file, methods=["GET", "HEAD"], include_in_schema=False)


def _error(problem: ApiError, extra: Any = None) -> Response:
    return Response(problem.body(), problem.status, headers={**plain_headers(), **(extra or {})})


def _error_response(problem: ApiError) -> Response:
    return _error(problem, {"retry-after": "5"} if problem.status == 503 else None)


async def _on_api_error(request: Request, problem: Exception) -> Response:
    if not isinstance(problem, HttpError):
        raise problem
    return _refusal(problem, request.url.path)


def _refusal(problem: HttpError, path: str) -> Response:
    """Return the answer to a refused request, in the form of its address."""
    found = problem if isinstance(problem, ApiError) else ApiError(problem.status, problem.message)
    return error_response(found) if is_of_prometheus(path) else _error_response(found)


async def _on_invalid(_request: Request, problem: Exception) -> Response:
    errors = problem.errors() if isinstance(problem, RequestValidationError) else []
    told = "; ".join(f"{'.'.join(map(str, error['loc'][1:]))}: {error['msg']}" for error in errors[:5])
    return _error(ApiError(400, f"bad parameters: {told}"))


async def _on_http_error(request: Request, problem: Exception) -> Response:
    if not isinstance(problem, HTTPException):
        raise problem
    told = f"{problem.detail}: {request.method} {request.url.path[:200]}; /openapi.json lists the routes"
    if is_of_prometheus(request.url.path):
        return error_response(ApiError(problem.status_code, told))
    return _error(ApiError(problem.status_code, told), problem.headers)
