"""Limits of roles and users: their own in place of those of the process, never above its hard limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from artimon.access.principal import Principal, Role
from artimon.api.api_limits import ApiLimits


class RoleLimits:
    """Soft and hard limits by role; as many as the access file has roles and users. The objects stay the same."""

    def __init__(self, soft: ApiLimits, hard: ApiLimits) -> None:
        self._soft, self._hard = soft, hard
        self._of_role: dict[int, tuple[Role, ApiLimits, ApiLimits]] = {}
        """By the principal of the role object, which the entry keeps alive."""

    def soft(self, principal: Principal | None) -> ApiLimits:
        return self._soft if principal is None else self._limits(principal.role)[1]

    def hard(self, principal: Principal | None) -> ApiLimits:
        """Return the hard limits, at least the soft ones."""
        return self._hard if principal is None else self._limits(principal.role)[2]

    def _limits(self, role: Role) -> tuple[Role, ApiLimits, ApiLimits]:
        if not role.limits and not role.hard_limits:
            return role, self._soft, self._hard
        if id(role) not in self._of_role:
            hard = replace(self._hard, **self._lowest(role.hard_limits, self._hard, self._hard))
            given = {**{name: getattr(self._soft, name) for name in role.hard_limits}, **role.limits}
            self._of_role[id(role)] = role, replace(self._soft, **self._lowest(given, self._soft, hard)), hard
        return self._of_role[id(role)]

    def _lowest(self, given: Mapping[str, float], types: ApiLimits, most: ApiLimits) -> dict[str, Any]:
        """Return the values, at most those of `most`, in the types of `types`."""
        return {name: type(getattr(types, name))(min(value, getattr(most, name))) for name, value in given.items()}
