"""A process says how it is: one small JSON file, replaced whole, that the supervisor and `artimon status` read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artimon.model.clock import SYSTEM_CLOCK, Clock

Publish = Callable[[str, Mapping[str, Any]], None]
"""Takes state and figures as they are told, from one thread. It must neither raise nor wait."""


def unpublished(_state: str, _figures: Mapping[str, Any]) -> None:
    """Figures go to the file only: what components do unless their process says otherwise."""


@dataclass(frozen=True, slots=True)
class Health:
    """What one part says of itself. `state` is "ok", "starting" or "failing"; `figures` are its counts and lags."""

    part: str
    state: str
    time_ms: int
    pid: int
    problem: str = ""
    figures: dict[str, Any] = field(default_factory=dict)


class HealthFile:
    """Writes `Health` to `path` (None: nowhere); readers see the old or the new file, never half of one."""

    def __init__(
        self, path: Path | None, part: str, clock: Clock = SYSTEM_CLOCK, publish: Publish = unpublished
    ) -> None:
        """`publish` gets the same figures: artimon/runtime/own.py makes variables of them."""
        self._path, self._part, self._clock, self._publish = path, part, clock, publish
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, state: str = "ok", problem: str = "", **figures: Any) -> None:
        """Replace the file and publish; `figures` must be JSON."""
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
    """The newest health in `path`, None if there is none yet."""
    try:
        return Health(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
