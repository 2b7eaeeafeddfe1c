"""Slow and lost parts are reported within a timeout, with their last known state."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from artimon.api.timed_call import TimedCall
from artimon.model.clock import SYSTEM_CLOCK, ManualClock
from tests.waiting import eventually


class Source:
    """Answers 1, 2, 3…, when let."""

    def __init__(self) -> None:
        self.go, self.asked, self.failure = threading.Event(), 0, ""
        self.go.set()

    def ask(self) -> int:
        self.asked += 1
        assert self.go.wait(20)
        if self.failure:
            raise OSError(self.failure)
        return self.asked


def test_a_quick_answer_is_handed_on() -> None:
    source, clock = Source(), ManualClock(0)
    latest = TimedCall("shards", source.ask, clock, fresh_s=1)
    assert (latest.get().value, latest.get().value, latest.get().problem) == (1, 1, "")
    clock.advance(2_000)
    assert latest.get().value == 2


def test_a_slow_one_is_not_waited_for_and_asked_once() -> None:
    source = Source()
    latest = TimedCall("shards", source.ask, SYSTEM_CLOCK, wait_s=0.1, fresh_s=0)
    assert latest.get().value == 1
    source.go.clear()
    began = SYSTEM_CLOCK.monotonic()
    with ThreadPoolExecutor(8) as threads:
        told = list(threads.map(lambda _: latest.get(), range(8)))
    assert SYSTEM_CLOCK.monotonic() - began < 15
    assert {one.value for one in told} == {1}
    assert all("shards: no answer" in one.problem and "old" in one.problem for one in told)
    assert source.asked == 2
    source.go.set()
    eventually(lambda: not latest.get().problem, "the answer")


def test_a_failure_is_told_and_what_was_known_stays() -> None:
    source, clock = Source(), ManualClock(0)
    source.failure = "gone"
    latest = TimedCall("shards", source.ask, clock)
    assert latest.get().value is None
    assert latest.get().problem == "shards: gone"
    source.failure = ""
    assert latest.get().problem == ""
    source.failure = "gone again"
    clock.advance(60_000)
    told = latest.get()
    assert told.value
    assert told.problem == "shards: gone again; the data shown is 60 s old"
