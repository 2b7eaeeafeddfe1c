"""Login and logout of browsers: a plain form, and the OpenID provider."""

from __future__ import annotations

import html
from urllib.parse import parse_qs, quote, urlsplit

from fastapi import FastAPI, Request, Response

from artimon.access.access_file import Access
from artimon.access.authenticator import Authenticator
from artimon.access.failed_logins import network_of
from artimon.access.principal import Principal, current_principal
from artimon.access.route_rules import AccessError, public
from artimon.api.guard import LOGIN_PATH, LoginState, check_origin, read_cookie
from artimon.runtime.http.http_limits import HttpError

MAX_FIELDS = 10
CALLBACK_PATH = "/login/oidc/callback"
BEGUN_S = 600
POLICY = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'"
HEADERS = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": f"{POLICY}; form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Log in to Artimon</title>
<link rel="icon" href="{prefix}/static/favicon.svg" type="image/svg+xml">
<link rel="stylesheet" href="{prefix}/static/login.css">
</head>
<body>
<main>
<h1>Artimon</h1>
{problem}{form}{provider}
</main>
</body>
</html>
"""
_FORM = """<form method="post" action="{prefix}/login">
<input type="hidden" name="next" value="{target}">
<label for="user">User</label>
<input id="user" name="user" autocomplete="username" required autofocus value="{user}"{described}>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required{described}>
<button type="submit">Log in</button>
</form>
"""


class LoginRoutes:
    """Handlers."""

    def __init__(self, login: LoginState) -> None:
        self._login = login

    @public
    async def page(self, request: Request) -> Response:
        """Return the page with the form."""
        self._required()
        return self._page(200, local_path(request.query_params.get("next", "/")))

    @public
    async def log_in(self, request: Request) -> Response:
        """Verify user and password of the form and begin a session."""
        authenticator, headers = self._required(), dict(request.scope["headers"])
        check_origin(headers, request.scope, self._login.url, needed=False)
        user, password, target = _form(await request.body())
        address, access = authenticator.credentials(headers, _peer(request)).address, authenticator.access
        try:
            principal = await self._login.in_thread(lambda: authenticator.by_password(user, password, address))
        except HttpError as problem:
            return self._page(problem.status, target, user, problem)
        return self._begin(principal, target, access)

    @public
    async def log_out(self, request: Request) -> Response:
        """End the session."""
        authenticator, headers = self._required(), dict(request.scope["headers"])
        check_origin(headers, request.scope, self._login.url, needed=False)
        self._login.sessions.end(read_cookie(headers, self._login.session_cookie))
        authenticator.audit.write("logout", current_principal())
        answer = _redirect(f"{self._login.prefix}{LOGIN_PATH}")
        self._delete_cookie(answer, self._login.session_cookie)
        return answer

    @public
    async def begin_oidc(self, request: Request) -> Response:
        """Send the browser to the provider."""
        oidc = self._required().oidc
        if oidc is None:
            raise AccessError(404, "no OpenID provider is configured")
        begun = await self._login.in_thread(lambda: oidc.begin(self._callback))
        self._login.begun.add(begun, local_path(request.query_params.get("next", "/")))
        answer = _redirect(begun.url)
        self._set_cookie(answer, self._login.begun_cookie, begun.state, BEGUN_S)
        return answer

    @public
    async def finish_oidc(self, request: Request) -> Response:
        """Take the answer of the provider and begin a session."""
        authenticator, headers = self._required(), dict(request.scope["headers"])
        given, cookie = request.query_params, read_cookie(headers, self._login.begun_cookie)
        state = given.get("state", "")
        found = self._login.begun.take(state) if state and state == cookie else None
        address, access = authenticator.credentials(headers, _peer(request)).address, authenticator.access
        oidc = authenticator.oidc
        try:
            if found is None or oidc is None:
                raise AccessError(401, "this login has expired, or another browser began it: begin again")
            if "code" not in given:
                raise AccessError(401, f"the provider refuses the login: {given.get('error', 'no code')[:200]}")
            begun, target = found
            way = f"by OpenID Connect from {network_of(address)}"  # others are not held up by one address
            authenticator.failures.begin(address, way)
            work = lambda: oidc.finish(begun, given["code"], self._callback, address)  # noqa: E731
            principal = await self._login.in_thread(work)
            authenticator.failures.succeeded(address, way)
        except HttpError as problem:
            authenticator.audit.write("login.failed", method="oidc", address=address, reason=problem.message)
            return self._page(problem.status, "/", problem=problem)
        answer = self._begin(principal, target, access)
        self._delete_cookie(answer, self._login.begun_cookie)
        return answer

    @property
    def _callback(self) -> str:
        return f"{self._login.url}{CALLBACK_PATH}"

    def _required(self) -> Authenticator:
        if self._login.authenticator is None:
            raise AccessError(404, "this API has no login: start it with --access FILE (docs/access.md)")
        return self._login.authenticator

    def _begin(self, principal: Principal, target: str, access: Access) -> Response:
        """Begin a session with a new key. `access`: the content of the access file by which the login was verified."""
        authenticator = self._required()
        authenticator.audit.write("login", principal)
        answer = _redirect(f"{self._login.prefix}{target}")
        key = self._login.sessions.begin(principal, authenticator.proof_of(principal, access))
        self._set_cookie(answer, self._login.session_cookie, key, authenticator.access.session_ms // 1000)
        return answer

    def _set_cookie(self, answer: Response, name: str, value: str, seconds: int) -> None:
        secure = self._login.is_secure
        answer.set_cookie(name, value, max_age=seconds, path="/", secure=secure, httponly=True, samesite="lax")

    def _delete_cookie(self, answer: Response, name: str) -> None:
        answer.delete_cookie(name, path="/", secure=self._login.is_secure, httponly=True, samesite="lax")

    def _page(self, status: int, target: str, user: str = "", problem: HttpError | None = None) -> Response:
        access, prefix = self._required().access, self._login.prefix
        has_passwords = any(one.password for one in access.users.values())
        told = f'<p id="problem" role="alert">{html.escape(problem.message)}</p>\n' if problem else ""
        described = ' aria-describedby="problem"' if problem else ""
        form = _FORM.format(
            prefix=html.escape(prefix), target=html.escape(target), user=html.escape(user[:200]), described=described
        )
        link = ""
        if access.oidc is not None:
            where = html.escape(f"{prefix}/login/oidc?next={quote(target, safe='')}")
            link = f'<p><a class="provider" href="{where}">Log in by {html.escape(access.oidc.name)}</a></p>\n'
        body = _PAGE.format(prefix=html.escape(prefix), problem=told, form=form if has_passwords else "", provider=link)
        headers = dict(HEADERS)
        if isinstance(problem, AccessError) and problem.retry_s:
            headers["retry-after"] = str(problem.retry_s)
        return Response(body.encode("utf-8", "replace"), status, headers=headers)


def local_path(text: str) -> str:
    """Return a path of this server; "/" for anything that leads elsewhere."""
    parts = urlsplit(text)
    is_local = text.startswith("/") and not text.startswith(("//", "/\\")) and not parts.scheme and not parts.netloc
    return text if is_local and text.isprintable() and "\\" not in text and len(text) <= 8_192 else "/"


def _form(body: bytes) -> tuple[str, str, str]:
    """Return user, password and target. Raises AccessError."""
    try:
        found = parse_qs(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError:
        raise AccessError(400, "the body is not a form") from None
    user, password, target = (found.get(name, [""])[-1] for name in ("user", "password", "next"))
    return user[:200], password, local_path(target or "/")


def _redirect(target: str) -> Response:
    return Response(status_code=303, headers={"location": quote(target, safe="/:?=&%#+,;@!*'()~$[]"), **_NOT_KEPT})


_NOT_KEPT = {"cache-control": "no-store", "referrer-policy": "no-referrer"}


def _peer(request: Request) -> str:
    return request.client.host if request.client else ""


def add_login_routes(app: FastAPI, login: LoginState) -> None:
    routes = LoginRoutes(login)
    for path, handler, method in (
        (LOGIN_PATH, routes.page, "GET"),
        (LOGIN_PATH, routes.log_in, "POST"),
        ("/logout", routes.log_out, "POST"),
        ("/login/oidc", routes.begin_oidc, "GET"),
        (CALLBACK_PATH, routes.finish_oidc, "GET"),
    ):
        app.add_route(path, handler, methods=[method], include_in_schema=False)
