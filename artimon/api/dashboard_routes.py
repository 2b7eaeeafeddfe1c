"""Routes of dashboards: viewers read them, editors change them. Files are read and written in threads of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Path, Query, Request, Response

from artimon.access.principal import LOCAL, Area, Level, current_principal
from artimon.access.route_rules import requires
from artimon.api import schemas
from artimon.api.alert_routes import read_object
from artimon.api.api_errors import ApiError
from artimon.api.api_limits import ApiLimits
from artimon.api.bounded_executor import BoundedExecutor
from artimon.api.routes import require_plain
from artimon.api.shared_answers import plain_headers
from artimon.dashboards.dashboard_store import (
    DashboardConflictError,
    DashboardLimitError,
    DashboardNotFoundError,
    DashboardStore,
    DashboardText,
    DashboardVersion,
    ReadOnlyDashboardsError,
)
from artimon.dashboards.grafana_import import import_grafana
from artimon.runtime.config_file import ConfigFileError
from artimon.saved_queries import dashboard_text, panel_of

T = TypeVar("T")
CONCURRENT_CALLS = 2
NameParameter = Annotated[str, Path(max_length=64, description="Name of the dashboard")]
NumberParameter = Annotated[int, Query(ge=1, description="Number of a version")]
OtherParameter = Annotated[int | None, Query(ge=1, description="Number of another version; default: as it is now")]
_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (DashboardNotFoundError, 404),
    (DashboardConflictError, 409),
    (ReadOnlyDashboardsError, 403),
    (DashboardLimitError, 413),
    (ConfigFileError, 400),
)


class DashboardRoutes:
    """Handlers."""

    def __init__(self, store: DashboardStore, limits: ApiLimits) -> None:
        self._store, self._limits = store, limits
        self._executor: BoundedExecutor | None = None

    @requires(Level.VIEWER, Area.DASHBOARDS)
    async def list(self) -> Response:
        """List the dashboards, sorted by name; `problem` of those that cannot be shown."""
        return await self._run(self._listed)

    @requires(Level.VIEWER, Area.DASHBOARDS)
    async def read(self, name: NameParameter) -> Response:
        """Return a dashboard: its text, its ETag, and its content unless the text has a problem."""
        return await self._run(lambda: _told(self._store.get(name), writable=self._store.is_writable))

    @requires(Level.EDITOR, Area.DASHBOARDS, changes=True)
    async def save(self, request: Request, name: NameParameter) -> Response:
        """Save a text of YAML. The header If-Match has the ETag of the text that was changed; of a new dashboard
        If-None-Match has `*`."""
        require_plain(request)
        etag, user = _etag(request), _user()
        try:
            text = (await request.body()).decode("utf-8")
        except UnicodeDecodeError:
            raise ApiError(400, "the body is not UTF-8: send the text of a dashboard in YAML") from None
        return await self._run(lambda: _saved(self._store.save(name, text, etag, user)))

    @requires(Level.EDITOR, Area.DASHBOARDS, changes=True)
    async def add_panel(self, request: Request, name: NameParameter) -> Response:
        """Add a panel with one query (`q`, `lang`, `title`, `kind`) to a dashboard, or make a new one of it
        (`dashboard`, its title). Headers as to save."""
        require_plain(request)
        given = read_object(await request.body())
        title, kind = str(given.get("title") or ""), str(given.get("kind") or "chart")
        panel = panel_of(str(given.get("q") or ""), title, kind, str(given.get("lang") or "artimon"))
        etag, user = _etag(request), _user()

        def work() -> Mapping[str, Any]:
            if etag is not None:
                return _saved(self._store.add_panel(name, panel, etag, user))
            text = dashboard_text(str(given.get("dashboard") or name), panel)
            return _saved(self._store.save(name, text, None, user))

        return await self._run(work)

    @requires(Level.EDITOR, Area.DASHBOARDS, changes=True)
    async def delete(self, request: Request, name: NameParameter) -> Response:
        """Delete a dashboard; one of the package is shown again. Its versions are kept."""
        etag, user = _etag(request), _user()

        def work() -> Mapping[str, Any]:
            self._store.delete(name, etag, user)
            return {"deleted": name}

        return await self._run(work)

    @requires(Level.VIEWER, Area.DASHBOARDS)
    async def versions(self, name: NameParameter) -> Response:
        """List the kept versions, newest first."""

        def work() -> Mapping[str, Any]:
            return {"versions": [_version(one) for one in self._store.versions(name)]}

        return await self._run(work)

    @requires(Level.VIEWER, Area.DASHBOARDS)
    async def diff(self, name: NameParameter, number: NumberParameter, other: OtherParameter = None) -> Response:
        """Return the unified diff from a version to another."""
        return await self._run(lambda: {"diff": self._store.diff(name, number, other)})

    @requires(Level.EDITOR, Area.DASHBOARDS, changes=True)
    async def restore(self, request: Request, name: NameParameter, number: NumberParameter) -> Response:
        """Save the text of a version again. Headers as to save."""
        etag, user = _etag(request), _user()
        return await self._run(lambda: _saved(self._store.restore(name, number, etag, user)))

    @requires(Level.VIEWER, Area.DASHBOARDS)
    async def convert(self, request: Request) -> Response:
        """Convert a dashboard of Grafana in JSON to YAML, and list what could not be converted. Nothing is saved."""
        require_plain(request)
        body = await request.body()

        def work() -> Mapping[str, Any]:
            found = import_grafana(body.decode("utf-8", "replace"))
            return {"text": found.text, "problems": found.problems}

        return await self._run(work)

    def _listed(self) -> Mapping[str, Any]:
        rows: list[Mapping[str, Any]] = []
        for name in self._store.names():
            row: dict[str, Any] = {"name": name, "title": name, "description": "", "shipped": False, "problem": ""}
            try:
                found = self._store.get(name)
                row["shipped"] = found.is_shipped
                content = found.read()
                row |= {"title": content.title, "description": content.description}
            except ConfigFileError as problem:
                row["problem"] = str(problem.problems[0])
            except DashboardNotFoundError as problem:
                row["problem"] = str(problem)
            rows.append(row)
        return {"dashboards": rows, "writable": self._store.is_writable}

    async def _run(self, work: Callable[[], Mapping[str, Any]]) -> Response:
        if self._executor is None:
            self._executor = BoundedExecutor(self._limits, CONCURRENT_CALLS, "api-dashboards")
        found = await self._executor.run(lambda: _as_api_errors(work))
        headers = plain_headers()
        if "etag" in found:
            headers["etag"] = f'"{found["etag"]}"'
        return Response(json.dumps(found), headers=headers)


def _told(found: DashboardText, *, writable: bool) -> Mapping[str, Any]:
    """Return a dashboard for the page; a text with a problem can be mended there."""
    told = {"name": found.name, "etag": found.etag, "shipped": found.is_shipped, "writable": writable}
    content, problem = None, ""
    try:
        content = found.read().model_dump()
    except ConfigFileError as error:
        problem = str(error)
    return {**told, "text": found.text, "dashboard": content, "problem": problem}


def _saved(found: DashboardText) -> Mapping[str, Any]:
    return {"name": found.name, "etag": found.etag}


def _version(one: DashboardVersion) -> Mapping[str, Any]:
    return {"number": one.number, "time_ms": one.time_ms, "user": one.user, "deleted": one.text is None}


def _as_api_errors(work: Callable[[], T]) -> T:
    try:
        return work()
    except tuple(kind for kind, _ in _STATUS) as problem:
        status = next(status for kind, status in _STATUS if isinstance(problem, kind))
        raise ApiError(status, str(problem)) from None
    except ValueError as problem:
        raise ApiError(400, str(problem)) from None
    except OSError as problem:
        told = f"the folder of dashboards cannot be used: {problem.strerror or problem}: check its permissions"
        raise ApiError(500, told) from None


def _user() -> str:
    return (current_principal() or LOCAL).user


def _etag(request: Request) -> str | None:
    """Return the ETag of the state to change; None for a new dashboard."""
    given = request.headers.get("if-match", "").strip().removeprefix("W/").strip('"')
    if given and given != "*":
        return given
    if request.headers.get("if-none-match", "").strip() == "*":
        return None
    raise ApiError(428, "send If-Match with the ETag of the dashboard, or If-None-Match: * for a new one")


def add_dashboard_routes(app: FastAPI, store: DashboardStore, limits: ApiLimits) -> None:
    routes = DashboardRoutes(store, limits)
    for path, handler, method, responses in (
        ("/import", routes.convert, "POST", schemas.DASHBOARD_IMPORTED),
        ("", routes.list, "GET", schemas.DASHBOARDS),
        ("/{name}", routes.read, "GET", schemas.DASHBOARD),
        ("/{name}", routes.save, "PUT", schemas.DASHBOARD_SAVED),
        ("/{name}", routes.delete, "DELETE", schemas.DASHBOARD_DELETED),
        ("/{name}/panels", routes.add_panel, "POST", schemas.DASHBOARD_SAVED),
        ("/{name}/versions", routes.versions, "GET", schemas.DASHBOARD_VERSIONS),
        ("/{name}/diff", routes.diff, "GET", schemas.DASHBOARD_DIFF),
        ("/{name}/restore", routes.restore, "POST", schemas.DASHBOARD_SAVED),
    ):
        extra = schemas.DASHBOARD_BODIES.get(method + path)
        app.add_api_route(
            f"/api/dashboards{path}",
            handler,
            methods=[method],
            response_class=Response,
            responses=responses,
            openapi_extra=extra,
        )
