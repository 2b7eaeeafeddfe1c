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
        self._what, self._ask, self._clock, self._wait_s, self._fresh_s = what, ask, clock, wait_s, fresh_s
        self._lock = threading.Lock()
        self._asked: Future[None] | None = None
        self._began = 0.0
        self._value: T | None = None
        self._at: float | None = None
        self._failure = ""

    def get(self) -> LatestAnswer[T]:
        """Return the newest answer after at most `wait_s` seconds; never raises the errors of `ask`."""
        with self._lock:
            if self._is_fresh() and not self._failure:
                return self._told("")
            if self._asked is None:
                self._begin()
            asked = self._asked
        late = False
        if asked is not None:
            try:
                asked.result(self._wait_s)
            except TimeoutError:
                late = True
        with self._lock:
            waited = self._clock.monotonic() - self._began
            problem = f"{self._what}: no answer for {waited:.1f} s" if late else self._failure
            return self._told(problem)

    def _is_fresh(self) -> bool:
        return self._at is not None and self._clock.monotonic() - self._at <= self._fresh_s

    def _told(self, problem: str) -> LatestAnswer[T]:
        age_s = 0.0 if self._at is None else max(0.0, self._clock.monotonic() - self._at)
        if problem and self._at is not None:
            problem += f"; the data shown is {age_s:.0f} s old"
        return LatestAnswer(self._value, age_s, problem)

    def _begin(self) -> None:
        self._asked, self._began = Future(), self._clock.monotonic()
        threading.Thread(target=self._run, args=(self._asked,), name=f"api-{self._what}", daemon=True).start()

    def _run(self, asked: Future[None]) -> None:
        try:
            value, failure = self._ask(), ""
        except Exception as error:
            value, failure = None, f"{self._what}: {error}"
        with self._lock:
            self._failure, self._asked = failure, None
            if not failure:
                self._value, self._at = value, self._clock.monotonic()
        asked.set_result(None)
