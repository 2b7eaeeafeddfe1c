"""Rules of handlers, declared beside them. A handler without one is refused. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from artimon.access.principal import Area, Level, Principal
from artimon.runtime.http.http_limits import HttpError

F = TypeVar("F", bound=Callable[..., Any])
_RULE = "__access_rule__"


class AccessError(HttpError):
    """Refusal: 401 without valid credentials, 403 without the permission, 429 after too many failures."""

    def __init__(self, status: int, message: str, retry_s: int = 0) -> None:
        super().__init__(status, message)
        self.retry_s = retry_s


@dataclass(frozen=True, slots=True)
class RouteRule:
    """Permission that a handler needs. `level` None: public. `whole`: a role that sees a part of the series is refused.
    `changes`: the request goes to the audit log."""

    level: Level | None
    area: Area | None = None
    whole: bool = False
    changes: bool = False

    def check(self, principal: Principal) -> None:
        """Raise AccessError 403 if the principal may not call the handler."""
        if self.level is None:
            return
        if principal.role.level < self.level:
            raise AccessError(
                403, f"this needs the level {self.level.name.lower()}, the role {principal.role.name} has less"
            )
        if not principal.may(self.level, self.area):
            raise AccessError(403, f"the token has not the scope {self.area}: create one that has")
        if self.whole and principal.is_restricted:
            raise AccessError(
                403, f"this concerns all series, and the role {principal.role.name} sees a part of them only"
            )


PUBLIC = RouteRule(None)


def requires(level: Level, area: Area | None = None, *, whole: bool = False, changes: bool = False) -> Callable[[F], F]:
    """Declare the rule of a handler."""

    def declare(handler: F) -> F:
        setattr(handler, _RULE, RouteRule(level, area, whole, changes))
        return handler

    return declare


def public(handler: F) -> F:
    """Declare a handler that needs no login."""
    setattr(handler, _RULE, PUBLIC)
    return handler


def rule_of(handler: Any) -> RouteRule | None:
    """Return the declared rule of a handler; None without one."""
    return getattr(handler, _RULE, None)
