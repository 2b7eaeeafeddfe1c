"""Groups, silences, acknowledgements and history of alerts, asked of the alert engine for the page.

A browser talks to this API alone. It passes a fixed list of calls on to the engine that leads, which is found in
ZooKeeper, and names the user of the request as the author. The engine accepts that name from the holder of its token,
or on loopback from everybody."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import orjson
from fastapi import FastAPI, Query, Request, Response
from fastapi import Path as PathParameter

from alerts.dispatch.matchers import parse_matchers
from alerts.state.publication import leading_engine
from artimon.access.principal import LOCAL, Area, Level, LoginMethod, current_principal
from artimon.access.route_rules import requires
from artimon.api.alert_visibility import visible_groups
from artimon.api.api_errors import ApiError
from artimon.api.api_limits import ApiLimits
from artimon.api.bounded_executor import BoundedExecutor
from artimon.api.prometheus_handlers import json_response
from artimon.api.query_parameters import TIME_MAX_MS
from artimon.api.schemas import ENGINE_ANSWERS
from artimon.model.clock import Clock
from artimon.runtime.http.engine_client import EngineClient, EngineError
from artimon.runtime.settings import SettingsError
from artimon.runtime.text import parse_duration
from artimon.saved_queries import rule_text
from query_dsl import QueryError
from query_dsl.tree.times import format_time

TIMEOUT_S = 10.0
CONCURRENT_CALLS = 2
MAX_SILENCE_MS = 366 * 86_400_000
_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")
PAGE_AUTHOR = "page"
"""Author of an action without a login and without a name."""
MatchersParameter = Annotated[str, Query(max_length=8_000, description='Matchers, such as host="a", job=~"b.*"')]
FingerprintParameter = Annotated[str, Query(max_length=200, description="Fingerprint of an alert")]
UntilParameter = Annotated[int, Query(ge=0, le=TIME_MAX_MS, description="Only entries up to this time, epoch ms")]
EntriesParameter = Annotated[int, Query(ge=1, le=1_000, description="Maximum number of entries")]
SilenceParameter = Annotated[str, PathParameter(max_length=64, pattern=r"^[\w-]+$", description="Id of a silence")]
ReadAlerts = Callable[[], Mapping[str, Any]]


def read_engine_token(path: Path | None) -> str:
    """Return the token of the engine's API, "" without one. Raises SettingsError."""
    if path is None:
        return ""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise SettingsError(f"--alerts-token: {path} cannot be read: {type(problem).__name__}") from None


class AlertRoutes:
    """Handlers. `read_alerts` returns the answer of /api/alerts; `token` is that of the engine, "" for none."""

    def __init__(self, read_alerts: ReadAlerts, token: str, clock: Clock, limits: ApiLimits) -> None:
        self._read_alerts, self._token, self._clock, self._limits = read_alerts, token, clock, limits
        self._executor: BoundedExecutor | None = None

    @requires(Level.VIEWER, Area.ALERTS)
    async def groups(self, filter: MatchersParameter = "") -> Response:
        """List the groups of alerts that fire, as the engine sends them; those of a role's series for that role."""
        groups = await self.ask_engine("GET", "/api/v2/alerts/groups", filter=_texts(filter))
        return _reply({"groups": visible_groups(groups)})

    @requires(Level.VIEWER, Area.ALERTS)
    async def matching(self, filter: MatchersParameter) -> Response:
        """List the alerts that match, to see what a silence would hide."""
        if not _texts(filter):
            raise ApiError(400, 'filter: write at least one matcher, such as host="a"')
        alerts = await self.ask_engine("GET", "/api/v2/alerts", filter=_texts(filter))
        seen = visible_groups([{"alerts": alerts}])
        return _reply({"alerts": seen[0]["alerts"] if seen else []})

    @requires(Level.VIEWER, Area.ALERTS, whole=True)
    async def silences(self) -> Response:
        """List the silences: pending, active, and those that ended lately."""
        return _reply({"silences": await self.ask_engine("GET", "/api/v2/silences")})

    @requires(Level.VIEWER, Area.ALERTS, whole=True)
    async def history(
        self,
        fingerprint: FingerprintParameter = "",
        limit: EntriesParameter = 100,
        until_ms: UntilParameter = TIME_MAX_MS,
    ) -> Response:
        """List the last messages and actions up to `until_ms`, of all alerts or of one, the newest first."""
        asked: dict[str, Any] = {"fingerprint": fingerprint or None, "limit": limit, "until_ms": until_ms}
        entries = await self.ask_engine("GET", "/api/alerts/history", **asked)
        return _reply({"history": entries})

    @requires(Level.VIEWER, Area.ALERTS)
    async def draft(self, request: Request) -> Response:
        """Write the rule file of a query (`q`, `lang`, `name`, `threshold`, `for`, `missing`, `summary`), checked as
        the engine checks it. Nothing is saved: rules are files of the engine."""
        given = {key: str(value) for key, value in read_object(await request.body()).items() if value is not None}
        name, lang, keys = given.get("name", ""), given.get("lang", "artimon"), {}
        if given.get("summary"):
            keys["summary"] = given["summary"]
        judged = given.get("threshold", ""), given.get("for", "5m"), given.get("missing", "keep")
        try:
            text = rule_text(given.get("q", ""), name, *judged, keys, lang)
        except QueryError as problem:
            raise ApiError(400, problem.message) from None
        return _reply({"file": f"{_UNSAFE.sub('-', name)}.yaml", "text": text})

    @requires(Level.EDITOR, Area.ALERTS, whole=True, changes=True)
    async def silence(self, request: Request) -> Response:
        """Create a silence, or change the one with `id`, from `matchers`, `duration` and `comment`. One that hides
        everything needs `force`."""
        given = read_object(await request.body())
        matchers = _silence_matchers(str(given.get("matchers", "")))
        now_ms, length_ms = self._clock.now_ms(), _duration_ms(given)
        author = _author(given)
        silence = {
            "id": str(given.get("id") or ""),
            "matchers": matchers,
            "startsAt": format_time(now_ms),
            "endsAt": format_time(now_ms + length_ms),
            "createdBy": author,
            "comment": str(given.get("comment") or ""),
        }
        force = "true" if given.get("force") is True else None
        return _reply(await self.ask_engine("POST", "/api/v2/silences", silence, author=author, force=force))

    @requires(Level.EDITOR, Area.ALERTS, whole=True, changes=True)
    async def expire(self, id: SilenceParameter, request: Request) -> Response:
        """End a silence now."""
        author = _author(read_object(await request.body()))
        await self.ask_engine("DELETE", f"/api/v2/silence/{id}", author=author)
        return _reply({"expired": id})

    @requires(Level.EDITOR, Area.ALERTS, whole=True, changes=True)
    async def acknowledge(self, request: Request) -> Response:
        """Acknowledge the alerts with these fingerprints (`alerts`), for a `duration` or until they end."""
        given = read_object(await request.body())
        author = _author(given)
        body = {
            "alerts": given.get("alerts"),
            "comment": str(given.get("comment") or ""),
            "createdBy": author,
            **({"duration": str(given["duration"])} if given.get("duration") else {}),
        }
        return _reply(await self.ask_engine("POST", "/api/alerts/acknowledgements", body, author=author))

    @requires(Level.EDITOR, Area.ALERTS, whole=True, changes=True)
    async def withdraw(self, request: Request) -> Response:
        """Withdraw the acknowledgements of the alerts with these fingerprints (`alerts`)."""
        given = read_object(await request.body())
        body = {"alerts": given.get("alerts")}
        return _reply(await self.ask_engine("DELETE", "/api/alerts/acknowledgements", body, author=_author(given)))

    async def ask_engine(
        self, method: str, path: str, body: Any = None, author: str = PAGE_AUTHOR, **query: Any
    ) -> Any:
        """Return the answer of the engine that leads. Raises ApiError."""
        if self._executor is None:
            self._executor = BoundedExecutor(self._limits, CONCURRENT_CALLS, "api-alerts")
        return await self._executor.run(lambda: self._ask_now(method, path, body, author, query))

    def _ask_now(self, method: str, path: str, body: Any, author: str, query: Mapping[str, Any]) -> Any:
        try:
            address = leading_engine(self._read_alerts())
        except EngineError as problem:
            raise ApiError(404, str(problem)) from None
        try:
            return EngineClient(address, author, self._token, TIMEOUT_S).ask(method, path, body, **query)
        except EngineError as problem:
            if problem.status in (401, 403):
                text = f"the alert engine does not accept this API: give --alerts-token (docs/alerts.md): {problem}"
                raise ApiError(502, text) from None
            raise ApiError(problem.status if 400 <= problem.status < 500 else 503, str(problem)) from None


def _author(given: Mapping[str, Any]) -> str:
    """Return the user of the request; without a login the name that the body gives."""
    principal = current_principal() or LOCAL
    if principal.method is not LoginMethod.LOCAL:
        return principal.user
    return str(given.get("author") or PAGE_AUTHOR)[:200]


def _reply(value: Any) -> Response:
    return json_response(orjson.dumps(value))


def read_object(body: bytes) -> dict[str, Any]:
    """Return the body, an object; {} for an empty one. Raises ApiError."""
    try:
        found = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise ApiError(400, "the body is not valid JSON") from None
    if not isinstance(found, dict):
        raise ApiError(400, "the body is not an object of JSON")
    return found


def _texts(filter: str) -> list[str]:
    return [filter] if filter.strip() else []


def _silence_matchers(text: str) -> list[dict[str, Any]]:
    """Return the matchers of a text in the form of Alertmanager. Raises ApiError."""
    try:
        found = parse_matchers(text)
    except ValueError as problem:
        raise ApiError(400, f"matchers: {problem}") from None
    return [
        {"name": one.label, "value": one.value, "isRegex": "~" in one.op, "isEqual": not one.op.startswith("!")}
        for one in found
    ]


def _duration_ms(given: Mapping[str, Any]) -> int:
    """Return the length of a silence. Raises ApiError."""
    try:
        found = parse_duration(str(given.get("duration", "")))
    except ValueError as problem:
        raise ApiError(400, f"duration: {problem}") from None
    if not 0 < found <= MAX_SILENCE_MS:
        raise ApiError(400, "duration: from a moment to a year, such as 2h")
    return found


def add_alert_routes(app: FastAPI, routes: AlertRoutes) -> None:
    for path, handler, method in (
        ("/api/alerts/groups", routes.groups, "GET"),
        ("/api/alerts/matching", routes.matching, "GET"),
        ("/api/alerts/draft", routes.draft, "POST"),
        ("/api/alerts/silences", routes.silences, "GET"),
        ("/api/alerts/silences", routes.silence, "POST"),
        ("/api/alerts/silences/{id}", routes.expire, "DELETE"),
        ("/api/alerts/history", routes.history, "GET"),
        ("/api/alerts/acknowledgements", routes.acknowledge, "POST"),
        ("/api/alerts/acknowledgements", routes.withdraw, "DELETE"),
    ):
        responses = ENGINE_ANSWERS[handler.__name__]
        app.add_api_route(path, handler, methods=[method], response_class=Response, responses=responses)
