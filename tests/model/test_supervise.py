"""Retry loops and supervised threads survive any error, report it, and continue."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from artimon.model.clock import ManualClock
from artimon.runtime.supervision import (
    BACKOFF_RESET_S,
    FIRST_PAUSE_S,
    MAX_PAUSE_S,
    LoopGuard,
    RetryLoop,
    SupervisedThread,
)
from tests.waiting import eventually


class Clock(ManualClock):
    """Waits take no time, and are recorded; the test ends with the last of them."""

    def __init__(self, waits: int) -> None:
        super().__init__(0)
        self.left, self.waited = waits, list[float]()

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.waited.append(seconds)
        if len(self.waited) >= self.left:
            stop.set()
        return stop.is_set()


def failing(error: Exception) -> Callable[[], None]:
    def activity() -> None:
        raise error

    return activity


def run(activity: Callable[[], None], waits: int) -> tuple[RetryLoop, Clock]:
    clock = Clock(waits)
    retry = RetryLoop("reader", clock)
    retry.run(activity, threading.Event())
    return retry, clock


@pytest.mark.parametrize("error", [RuntimeError("has no topic"), AssertionError(), KeyError("x"), TypeError("bug")])
def test_any_exception_is_retried_with_back_off(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    retry, clock = run(failing(error), 8)
    assert clock.waited == [1.0, 2.0, 4.0, 8.0, 16.0, MAX_PAUSE_S, MAX_PAUSE_S, MAX_PAUSE_S]
    assert retry.problem.startswith(type(error).__name__)
    assert retry.restarts == 8
    assert f"reader stopped: {retry.problem}; again in 1.0 s" in caplog.text


def test_back_off_is_reset_after_a_long_run() -> None:
    clock = Clock(6)
    calls = iter([0.0, 0.0, 0.0, BACKOFF_RESET_S + 1, 0.0, 0.0])

    def activity() -> None:
        clock.advance(int(1000 * next(calls)))
        raise OSError("away")

    RetryLoop("reader", clock).run(activity, threading.Event())
    assert clock.waited == [1.0, 2.0, 4.0, FIRST_PAUSE_S, 2.0, 4.0]


def test_a_healthy_loop_has_no_problem() -> None:
    retry = RetryLoop("reader", Clock(1))
    assert retry.problem == "starting"
    retry.healthy()
    assert retry.problem == ""


def test_a_supervised_thread_continues_until_it_is_stopped() -> None:
    stop, calls = threading.Event(), list[int]()

    def activity(_stop: threading.Event) -> None:
        calls.append(1)
        raise RuntimeError("has no topic")

    life = SupervisedThread("reader", activity, stop, Clock(1_000_000))
    life.start()
    eventually(lambda: len(calls) > 3, "more than one try")
    assert life.problem == "RuntimeError: has no topic"
    stop.set()
    life.join(5)


def test_a_repeated_failure_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    turns = LoopGuard("acks are not published")
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert not turns.attempt(failing(KeyError("cluster_id")))
    assert len(caplog.records) == 1
    assert turns.problem == "KeyError: 'cluster_id'"
    assert turns.attempt(lambda: None)
    assert turns.problem == ""
