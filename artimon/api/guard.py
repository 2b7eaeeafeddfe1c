"""Guard before all routes: who asks, what the route needs, and whether another site sent the request.

A route without a declared rule is refused. Without a login everybody is LOCAL, and the same rules hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import quote, urlsplit

from fastapi import Request, Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from artimon.access.authenticator import Authenticator
from artimon.access.principal import LOCAL, Level, Principal, acting_as
from artimon.access.route_rules import AccessError, RouteRule, rule_of
from artimon.api.api_limits import ApiLimits
from artimon.api.bounded_executor import BoundedExecutor
from artimon.api.sessions import BegunLogins, SessionStore
from artimon.model.clock import Clock
from artimon.runtime.http.http_limits import HttpError

CONCURRENT_LOGINS = 2
"""Verifications at once, of which at most one hashes a password; the others wait in a bounded queue."""
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
LOGIN_PATH = "/login"
UNKNOWN = RouteRule(Level.VIEWER)
"""Rule of an address without a route: who is not logged in does not learn which addresses exist."""
Refuse = Callable[[HttpError, str], Response]


class LoginState:
    """Login of one API process. `authenticator` None: no login."""

    def __init__(self, authenticator: Authenticator | None, clock: Clock, limits: ApiLimits) -> None:
        self.authenticator, self._limits = authenticator, limits
        access = authenticator.access if authenticator else None
        self.url = access.url if access else ""
        self.prefix = urlsplit(self.url).path
        """Path below which a proxy serves this API."""
        self.is_secure = access is not None and access.is_encrypted
        length_ms, idle_ms = (access.session_ms, access.idle_ms) if access else (0, 0)
        self.sessions = SessionStore(clock, length_ms / 1000, idle_ms / 1000)
        self.begun = BegunLogins(clock)
        self._executor: BoundedExecutor | None = None
        prefix = "__Host-" if self.is_secure else ""  # browsers accept such a cookie from this host by TLS only
        self.session_cookie, self.begun_cookie = f"{prefix}artimon-session", f"{prefix}artimon-login"

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        """Run a slow verification. Raises AccessError, ApiError 503 if too many wait."""
        if self._executor is None:
            self._executor = BoundedExecutor(self._limits, CONCURRENT_LOGINS, "api-login")
        return await self._executor.run(work)


class AccessMiddleware:
    """ASGI middleware; `routes` are those of the application, `refuse` makes the answer to a refusal."""

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute], login: LoginState, refuse: Refuse) -> None:
        self._app, self._routes, self._login, self._refuse = app, routes, login, refuse
        self._fixed: dict[tuple[str, str], RouteRule | None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        try:
            rule = self._rule(scope)
            if rule is None:
                raise AccessError(403, "this address declares no rule of access: it is closed")
            principal = await self._admit(rule, scope, headers)
        except HttpError as problem:
            await self._refused(problem, scope, headers)(scope, receive, send)
            return
        if principal is None:
            await self._run(rule, None, scope, receive, send)
            return
        with acting_as(principal):
            await self._run(rule, principal, scope, receive, send)

    async def _run(
        self, rule: RouteRule, principal: Principal | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Run the handler; a change goes to the audit log. Browsers are told not to guess the type of any answer."""
        authenticator, status = self._login.authenticator, 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if not any(name == b"x-content-type-options" for name, _ in message["headers"]):
                    message = {**message, "headers": [*message["headers"], (b"x-content-type-options", b"nosniff")]}
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            if authenticator is not None and rule.changes:
                authenticator.audit.write(f"{scope['method']} {scope['path'][:500]}", principal, status=status)

    def _rule(self, scope: Scope) -> RouteRule | None:
        """Return the rule of the route that answers."""
        key = scope["method"], scope["path"]
        if key not in self._fixed:
            found, has_parameters = self._search(scope)
            if has_parameters or found is UNKNOWN:
                return found  # clients choose these paths: they are not kept
            self._fixed[key] = found
        return self._fixed[key]

    def _search(self, scope: Scope) -> tuple[RouteRule | None, bool]:
        for route in self._routes:
            match, child = route.matches(scope)
            if match is Match.FULL:
                return rule_of(getattr(route, "endpoint", None)), bool(child.get("path_params"))
        return UNKNOWN, False

    async def _admit(self, rule: RouteRule, scope: Scope, headers: Mapping[bytes, bytes]) -> Principal | None:
        """Return who asks; None for a public route that needs no login. Raises AccessError."""
        login, by_cookie = self._login, False
        if login.authenticator is None:
            principal: Principal | None = LOCAL
        else:
            peer = str((scope.get("client") or ("",))[0])
            given = login.authenticator.credentials(headers, peer)
            principal = self._by_cookie(login.authenticator, headers, given.address)
            by_cookie = principal is not None
            if principal is None:
                if rule.level is None:
                    return None
                found = login.authenticator.identify(given)
                principal = await login.in_thread(found) if callable(found) else found
        if principal is None:
            raise AccessError(401, "log in, or send a token: Authorization: Bearer TOKEN")
        if scope["method"] not in SAFE_METHODS and principal.from_browser and rule is not UNKNOWN:
            check_origin(headers, scope, login.url, needed=by_cookie)
        try:
            rule.check(principal)
        except AccessError as problem:
            if login.authenticator is not None:
                path = scope["path"][:500]
                login.authenticator.audit.write("denied", principal, request=f"{scope['method']} {path}")
            raise problem
        return principal

    def _by_cookie(
        self, authenticator: Authenticator, headers: Mapping[bytes, bytes], address: str
    ) -> Principal | None:
        key = read_cookie(headers, self._login.session_cookie)
        return self._login.sessions.find(key, address, authenticator.proof_of) if key else None

    def _refused(self, problem: HttpError, scope: Scope, headers: Mapping[bytes, bytes]) -> Response:
        request = Request(scope)
        if problem.status == 401 and scope["method"] == "GET" and b"text/html" in headers.get(b"accept", b""):
            query = f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else ""
            return Response(
                status_code=303,
                headers={
                    "location": f"{self._login.prefix}{LOGIN_PATH}?next={quote(request.url.path + query, safe='')}",
                    "cache-control": "no-store",
                },
            )
        answer = self._refuse(problem, scope["path"])
        if problem.status == 401:
            # a browser would open a dialog of its own for Basic
            schemes = "Bearer" if b"sec-fetch-mode" in headers else 'Basic realm="artimon", Bearer'
            answer.headers["www-authenticate"] = schemes
        if isinstance(problem, AccessError) and problem.retry_s:
            answer.headers["retry-after"] = str(problem.retry_s)
        return answer


def read_cookie(headers: Mapping[bytes, bytes], name: str) -> str:
    """Return a cookie; "" without it."""
    try:
        found = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(name)
    except CookieError:
        return ""
    return found.value if found else ""


def check_origin(headers: Mapping[bytes, bytes], scope: Scope, url: str, *, needed: bool) -> None:
    """Refuse a request that a page of another site sent. `needed`: refuse one that does not tell its origin. Raises
    AccessError."""
    site = headers.get(b"sec-fetch-site", b"").decode("latin-1")
    origin = headers.get(b"origin", b"").decode("latin-1").lower()
    if site in ("same-origin", "none"):
        return
    if not site and not origin and not needed:
        return
    own = {f"{scope.get('scheme', 'http')}://{headers.get(b'host', b'').decode('latin-1')}".lower()}
    if url:
        parts = urlsplit(url)
        own.add(f"{parts.scheme}://{parts.netloc}".lower())
    if site or origin not in own:
        raise AccessError(403, "a page of another site sent this request: its origin is not the address of this API")
