"""Health file of a process: small JSON, replaced atomically, for the supervisor and `artimon status`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artimon.model.clock import SYSTEM_CLOCK, Clock

REPEAT_S = 5.0
"""Interval of the reports of a process in which nothing happens. Variables are polled once a minute."""

Publish = Callable[[str, Mapping[str, Any]], None]
"""Callback with state and figures of each health report, called from one thread. It must neither raise nor block."""


def unpublished(_state: str, _figures: Mapping[str, Any]) -> None:
    """Default `Publish`: figures go to the file only."""


@dataclass(frozen=True, slots=True)
class Health:
    """Health report of one part. `state` is "ok", "starting" or "failing"; `figures` are its counts and lags."""

    part: str
    state: str
    time_ms: int
    pid: int
    problem: str = ""
    figures: dict[str, Any] = field(default_factory=dict)


class HealthFile:
    """Writer of `Health` to `path` (None: no file); readers see the old or the new file, never a partial one."""

    def __init__(
        self, path: Path | None, part: str, clock: Clock = SYSTEM_CLOCK, publish: Publish = unpublished
    ) -> None:
        """`publish` gets the same figures; artimon/runtime/self_metrics.py converts them to variables."""
        self._path, self._part, self._clock, self._publish = path, part, clock, publish
        self._told: tuple[object, ...] = ()
        self._told_at = 0.0
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)

    def is_due(self, *told: object) -> bool:
        """Return True if a report is to be written: `told`, which is never empty, differs from that of the last
        True, or REPEAT_S passed since."""
        now = self._clock.monotonic()
        if told == self._told and now - self._told_at < REPEAT_S:
            return False
        self._told, self._told_at = told, now
        return True

    def write(self, state: str = "ok", problem: str = "", **figures: Any) -> None:
        """Replace the file and publish; `figures` must be JSON-serializable."""
        self._publish(state, figures)
        if self._path is None:
            return
        health = {
            "part": self._part,
            "state": state,
            "time_ms": self._clock.now_ms(),
            "pid": os.getpid(),
            "problem": problem,
            "figures": figures,
        }
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(health))
        fresh.replace(self._path)


def read_health(path: Path) -> Health | None:
    """Return the newest health in `path`; None if the file is missing or unreadable."""
    try:
        return Health(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
