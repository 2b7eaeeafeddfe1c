"""One part's life in steps, with times given by the test."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from artimon.stack.child_process import OrphanReaper
from artimon.stack.part_runner import BACKOFF_RESET_S, BACKOFF_S, MEMORY_STRIKES, PartRunner, Phase
from tests.stack.fakes import Fake, make_context
from tests.waiting import eventually

MIB = 1024 * 1024


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[PartRunner]:
    """A runner of a healthy part that has not begun."""
    guard = OrphanReaper()
    with ThreadPoolExecutor(1) as executor:
        runner = PartRunner(Fake("a", limits={"memory_mb": 100}), make_context(tmp_path), guard, executor)
        yield runner
        runner.destroy()
    guard.close()


def step(runner: PartRunner, now: float) -> None:
    runner.step(now, wanted=True, may_start=True, may_stop=True)


def make_healthy(runner: PartRunner, now: float) -> None:
    def healthy() -> bool:
        step(runner, now)
        return runner.phase is Phase.HEALTHY

    eventually(healthy, "health")


def test_it_waits_until_it_may_start(runner: PartRunner) -> None:
    runner.step(0.0, wanted=True, may_start=False, may_stop=True)
    phases = [runner.phase]
    step(runner, 1.0)
    assert [*phases, runner.phase] == [Phase.WAITING, Phase.STARTING]


def test_backoff_grows_to_its_limit_and_forgets_after_calm(runner: PartRunner) -> None:
    now = 0.0
    pauses: list[float] = []
    step(runner, now)
    for _ in range(len(BACKOFF_S) + 2):
        runner.judge_memory(0, now)
        for _ in range(MEMORY_STRIKES):
            runner.judge_memory(101 * MIB, now)
        assert runner.phase is Phase.BACKOFF
        began = now
        while runner.phase is Phase.BACKOFF:
            now += 0.25
            step(runner, now)
        pauses.append(now - began)
    assert pauses[: len(BACKOFF_S)] == list(BACKOFF_S)
    assert pauses[len(BACKOFF_S) :] == [BACKOFF_S[-1]] * 2
    make_healthy(runner, now)
    now += BACKOFF_RESET_S + 10
    step(runner, now)
    eventually(lambda: step(runner, now) or runner._failures == 0, "the end of the backoff's memory")  # type: ignore[func-returns-value]


def test_memory_limit_needs_several_strikes_running(runner: PartRunner) -> None:
    make_healthy(runner, 0.0)
    for rss in (101, 101, 99, 101, 101):
        runner.judge_memory(rss * MIB, 1.0)
    phases = [runner.phase]
    runner.judge_memory(101 * MIB, 1.0)
    assert [*phases, runner.phase] == [Phase.HEALTHY, Phase.BACKOFF]
    assert "used 101 MiB of memory, its limit is 100 MiB" in runner.problem


def test_a_part_that_cannot_be_spawned_backs_off(tmp_path: Path, runner: PartRunner) -> None:
    (tmp_path / "logs").write_text("in the way of the folder")
    step(runner, 0.0)
    assert runner.phase is Phase.BACKOFF
    assert "could not be started" in runner.problem


def test_a_restart_of_a_part_that_does_not_end_kills_and_starts_it(
    runner: PartRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_healthy(runner, 0.0)
    assert runner.child is not None
    first = runner.child.pid
    monkeypatch.setattr(runner.child, "terminate", lambda: None)
    runner.request_restart(1.0)
    step(runner, 2.0)
    assert runner.phase is Phase.STOPPING
    step(runner, 2.0 + runner.part.stop_s)
    make_healthy(runner, 3.0 + runner.part.stop_s)
    assert runner.child is not None
    assert runner.child.pid != first
