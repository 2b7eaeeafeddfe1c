"""Levels, roles and principals, and the principal of the request in progress. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from artimon.model.select import Matcher

LIMITED = ("series", "cells_read", "cells_reduced", "samples_read", "cells_answered", "found", "query_s")
"""Limits of queries that a role or user may have of its own (`ApiLimits`)."""


class Level(IntEnum):
    """Permissions; a higher one includes the lower ones."""

    VIEWER = 1
    """Read."""
    EDITOR = 2
    """Also change what others see: silences, acknowledgements, queries of others."""
    ADMIN = 3
    """Also see what concerns everybody: the audit log, all users' queries."""


class Area(StrEnum):
    """Areas of the API, to which the scopes of a token restrict it."""

    QUERY = "query"
    """Data: queries, lists, exports."""
    ALERTS = "alerts"
    """Alerts, rules, silences, acknowledgements."""
    STATUS = "status"
    """State of the platform."""
    DASHBOARDS = "dashboards"
    """Dashboards: read and change them."""


class LoginMethod(StrEnum):
    """Credentials by which an principal was proven."""

    LOCAL = "local"
    """No login is configured: everybody on loopback."""
    PASSWORD = "password"  # noqa: S105 - a name
    TOKEN = "token"  # noqa: S105 - a name
    OIDC = "oidc"
    PROXY = "proxy"
    CERTIFICATE = "certificate"
    ENGINE = "engine"
    """Another alert engine of a pair."""


@dataclass(frozen=True, slots=True)
class LoginRequest:
    """Begin of a login at a provider. `url`: its page; the others prove at the end that it is the same browser."""

    url: str
    state: str
    nonce: str
    verifier: str


@dataclass(frozen=True, slots=True)
class Role:
    """Named role. `sees`: matchers that every visible series fulfils; () for all. `limits`, `hard_limits`: values of
    LIMITED; `queries`: concurrent queries of one user, 0 for no limit."""

    name: str
    level: Level
    sees: tuple[Matcher, ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)
    hard_limits: Mapping[str, float] = field(default_factory=dict)
    queries: int = 0


@dataclass(frozen=True, slots=True)
class Principal:
    """User of a request. `scopes` None: every area. `address`: of the client. `from_browser`: the browser attaches the
    credentials by itself, so another site could send the request."""

    user: str
    role: Role
    method: LoginMethod
    scopes: frozenset[Area] | None = None
    address: str = ""
    from_browser: bool = False

    @property
    def is_restricted(self) -> bool:
        """True if the role sees a part of the series only."""
        return bool(self.role.sees)

    def may(self, level: Level, area: Area | None = None) -> bool:
        """Return True if the role has the level and the token, if it is one, the area."""
        return self.role.level >= level and (area is None or self.scopes is None or area in self.scopes)


LOCAL = Principal("local", Role("local", Level.ADMIN), LoginMethod.LOCAL, from_browser=True)
"""Everybody, where no login is configured."""
_current: ContextVar[Principal | None] = ContextVar("artimon_principal", default=None)


def current_principal() -> Principal | None:
    """Return the principal of the request in progress; None outside of a request that was admitted."""
    return _current.get()


@contextmanager
def acting_as(principal: Principal) -> Iterator[None]:
    """Set the principal for the block and the tasks that it starts."""
    token = _current.set(principal)
    try:
        yield
    finally:
        _current.reset(token)
