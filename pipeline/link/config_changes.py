"""Last changes of the configuration and of commands: one znode that collectors watch for all agents. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

from artimon.model.znode import parse_json_object

CHANGES_PATH = "/artimon/config/changes"
MAX_CHANGES = 100
"""Changes that the node keeps. An agent that has seen none of them reads all of its configuration."""


@dataclass(frozen=True, slots=True)
class ConfigChanges:
    """Changes counted from 1. `lineage`: random text of this node, another one if it was created anew. `last`: number
    and scope of the last changes, oldest first."""

    lineage: str = ""
    number: int = 0
    last: tuple[tuple[int, str], ...] = ()

    @classmethod
    def from_json(cls, data: bytes) -> ConfigChanges:
        """Decode the data of the node. Raises ValueError."""
        try:
            parsed = parse_json_object(data)
            last = tuple((int(number), str(scope)) for number, scope in parsed["last"])
            return cls(str(parsed["lineage"]), int(parsed["number"]), last[-MAX_CHANGES:])
        except (KeyError, TypeError) as error:
            raise ValueError(f"{CHANGES_PATH} holds no changes: {error!r}") from error

    def to_json(self) -> bytes:
        """Return the data of the node."""
        return json.dumps({"lineage": self.lineage, "number": self.number, "last": self.last}).encode()

    def with_change(self, scope: str) -> ConfigChanges:
        """Return the changes with one more."""
        number = self.number + 1
        return ConfigChanges(self.lineage, number, (*self.last, (number, scope))[-MAX_CHANGES:])

    def since(self, lineage: str, number: int, scopes: Collection[str]) -> list[str]:
        """Return those of `scopes` that may have changed since an agent saw `number`."""
        if lineage != self.lineage or not self.number - len(self.last) <= number <= self.number:
            return list(scopes)
        return [scope for scope in scopes if any(n > number and one == scope for n, one in self.last)]
