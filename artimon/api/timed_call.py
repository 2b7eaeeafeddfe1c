"""Calls with a timeout to a function that may be slow or hang: the new answer, else the last known one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

from artimon.model.clock import Clock

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LatestAnswer(Generic[T]):
    """Last answer: `value`, None if there never was one; its age `age_s`; `problem`: why it is not new."""

    value: T | None
    age_s: float = 0.0
    problem: str = ""


class TimedCall(Generic[T]):
    """Runs at most one call at a time, in a separate thread; concurrent callers wait for the same one.

    `what` names the call in errors, `wait_s` is the timeout of a caller. An answer counts as new for `fresh_s`, also
    one that came too late. Locks: `_lock` guards all fields and is never held while waiting."""

    def __init__(
        self, what: str, ask: Callable[[], T], clock: Clock, wait_s: float = 1.5, fresh_s: float = 1.0
    ) -> None:
        self._name, self._call, self._clock, self._wait_s, self._fresh_s = what, ask, clock, wait_s, fresh_s
        self._lock = threading.Lock()
        self._running: Future[None] | None = None
        self._started_at = 0.0
        self._value: T | None = None
        self._received_at: float | None = None
        self._failure = ""

    def get(self) -> LatestAnswer[T]:
        """Return the newest answer after at most `wait_s` seconds; never raises the errors of `ask`."""
        with self._lock:
            if self._is_fresh() and not self._failure:
                return self._answer("")
            if self._running is None:
                self._start()
            asked = self._running
        late = False
        if asked is not None:
            try:
                asked.result(self._wait_s)
            except TimeoutError:
                late = True
        with self._lock:
            waited = self._clock.monotonic() - self._started_at
            problem = f"{self._name}: no answer for {waited:.1f} s" if late else self._failure
            return self._answer(problem)

    def _is_fresh(self) -> bool:
        return self._received_at is not None and self._clock.monotonic() - self._received_at <= self._fresh_s

    def _answer(self, problem: str) -> LatestAnswer[T]:
        age_s = 0.0 if self._received_at is None else max(0.0, self._clock.monotonic() - self._received_at)
        if problem and self._received_at is not None:
            problem += f"; the data shown is {age_s:.0f} s old"
        return LatestAnswer(self._value, age_s, problem)

    def _start(self) -> None:
        self._running, self._started_at = Future(), self._clock.monotonic()
        threading.Thread(target=self._run, args=(self._running,), name=f"api-{self._name}", daemon=True).start()

    def _run(self, asked: Future[None]) -> None:
        try:
            value, failure = self._call(), ""
        except Exception as error:
            value, failure = None, f"{self._name}: {error}"
        with self._lock:
            self._failure, self._running = failure, None
            if not failure:
                self._value, self._received_at = value, self._clock.monotonic()
        asked.set_result(None)
