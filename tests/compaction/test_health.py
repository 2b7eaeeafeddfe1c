"""Health report of the compactor while its first pass works off a backlog."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from artimon.model.clock import ManualClock
from artimon.runtime.health import HealthFile, read_health
from artimon.stack.hop_limits import compactor_reason
from pipeline.compaction.compactor import Compactor
from pipeline.compaction.compactor_process import HUNG_TIMEOUT_S, _CompactorThread


class Working:
    """A compactor in the midst of a turn. `settled_ms`: 0 until it has looked at the table."""

    def __init__(self, settled_ms: int, silent_s: float) -> None:
        self._settled_ms, self._silent_s = settled_ms, silent_s

    def figures(self) -> dict[str, Any]:
        return {"settled_ms": self._settled_ms}

    def given_up(self) -> list[str]:
        return []

    def silent_s(self) -> float:
        return self._silent_s


@pytest.mark.parametrize(
    ("settled_ms", "silent_s", "state"),
    [
        pytest.param(0, 1.0, "starting", id="has not looked yet"),
        pytest.param(3_600_000, 1.0, "ok", id="works off a backlog"),
        pytest.param(3_600_000, HUNG_TIMEOUT_S + 100, "failing", id="hangs"),
    ],
)
def test_a_first_turn_of_hours_is_no_start_that_hangs(
    tmp_path: Path, settled_ms: int, silent_s: float, state: str
) -> None:
    clock = ManualClock(1_000_000)
    life = _CompactorThread(cast(Compactor, Working(settled_ms, silent_s)), 60.0, clock)
    clock.advance(3_600_000)
    life.report(HealthFile(tmp_path / "health.json", "compactor", clock))
    health = read_health(tmp_path / "health.json")
    assert health is not None
    assert health.state == state
    assert compactor_reason(health.figures) == ""
