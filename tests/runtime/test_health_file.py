"""When a process writes its health file."""

from __future__ import annotations

from artimon.model.clock import ManualClock
from artimon.runtime.health import REPEAT_S, HealthFile


def test_a_report_is_due_after_a_change_and_after_the_interval() -> None:
    clock = ManualClock(1_000)
    health = HealthFile(None, "t", clock)
    assert health.is_due("ok", 1)
    assert not health.is_due("ok", 1)
    assert health.is_due("ok", 2)
    assert health.is_due("failing", 2)
    clock.advance(int(REPEAT_S * 1000) - 1)
    assert not health.is_due("failing", 2)
    clock.advance(1)
    assert health.is_due("failing", 2)
    assert not health.is_due("failing", 2)
