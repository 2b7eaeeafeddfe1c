"""Script that an agent runs periodically, as configured in the file of sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sources.targets.http_target import SourceTarget

Format = Literal["lines", "prometheus"]


@dataclass(frozen=True, slots=True)
class ScriptTarget(SourceTarget):
    """`command` is run without a shell. Its output becomes variables with the label `context` = `name` unless they give
    another."""

    name: str
    command: tuple[str, ...]
    format: Format = "lines"
    period_ms: int | None = None
    """None: the period of all polls."""
    deadline_s: float = 10.0
    max_bytes: int = 1 << 20
    given: Mapping[str, str] = field(default_factory=dict)
    """Labels of all its variables."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the only inherited variables: PATH, HOME, LANG, LC_ALL, TZ, TMPDIR."""

    kind = "script"
    host = "127.0.0.1"
    port = 0

    @property
    def address(self) -> str:
        return "this host"

    @property
    def identity(self) -> list[str]:
        return [self.name, self.format]

    @property
    def labels(self) -> Mapping[str, str]:
        return {"context": self.name, **self.given}

    def source(self, host: str) -> str:
        return f"script/{host}/{self.name}"

    def __str__(self) -> str:
        return f"script {self.name}"
