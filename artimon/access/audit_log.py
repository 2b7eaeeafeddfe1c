"""Audit log: who changed or tried what, as lines of JSON in files that rotate."""

from __future__ import annotations

import json
import logging
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artimon.access.principal import Principal
from artimon.model.clock import SYSTEM_CLOCK, Clock
from query_dsl.tree.times import format_time

log = logging.getLogger(__name__)
MAX_TEXT = 2_000
"""Characters of one field."""


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """File, its size in bytes before it rotates, and the number of old files. `query_ms`: duration from which a query
    is logged."""

    file: Path | None = None
    size: int = 16 << 20
    files: int = 5
    query_ms: int = 5_000


class AuditLog:
    """Writer of one process. Thread-safe. A failed write is counted and logged; the request goes on."""

    def __init__(self, settings: AuditSettings | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self.settings, self._clock = settings or AuditSettings(), clock
        self._lock = threading.Lock()
        self.written = self.failed = 0

    def write(self, action: str, principal: Principal | None = None, **fields: Any) -> None:
        """Append a line. Texts are cut; without a file nothing is written."""
        if self.settings.file is None:
            return
        who = {}
        if principal is not None:
            who = {"user": principal.user, "role": principal.role.name, "method": str(principal.method)}
            who["address"] = principal.address
        line = {"time": format_time(self._clock.now_ms()), "action": action, **who, **fields}
        data = (json.dumps({key: _cut(value) for key, value in line.items()}) + "\n").encode("ascii")
        with self._lock:
            try:
                self._append(self.settings.file, data)
                self.written += 1
            except OSError as error:
                self.failed += 1
                log.error("the audit log cannot be written: %s", error)

    def _append(self, path: Path, data: bytes) -> None:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            if os.fstat(opened).st_size + len(data) > self.settings.size and os.fstat(opened).st_size:
                self._rotate(path)
                os.close(opened)
                opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.write(opened, data)
        finally:
            os.close(opened)

    def _rotate(self, path: Path) -> None:
        names = [path, *(path.with_name(f"{path.name}.{at}") for at in range(1, self.settings.files + 1))]
        for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
            if newer.exists():
                newer.replace(older)


def _cut(value: Any) -> Any:
    return value[:MAX_TEXT] if isinstance(value, str) else value
