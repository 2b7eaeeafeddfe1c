"""Calls what may never return: own functions run in a thread of their own, which is ended when their time is over.

The thread holds no lock of ours, so ending it leaves nothing half done. Code in C that never comes back to Python
cannot be ended: its thread is given up and lives for as long as the process does; there may be only a few of these.
"""

from __future__ import annotations

import contextvars
import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Generic, TypeVar

from query_dsl.stores.limits import LimitExceeded
from query_dsl.tree.errors import QueryError

SECONDS = 60.0
"""What own functions of one node may take where the query has no limit of time: one that never returns ends too."""
LOOK_S = 0.1
STOP_S = 1.0
AGAIN_S = 0.05
MAX_GIVEN_UP = 8
_NAME, _GIVEN_UP = "artimon-own-function", "artimon-own-function-given-up"

T = TypeVar("T")


class _Ended(SystemExit):
    """Raised inside the thread that is to end. A SystemExit, of which threads make no noise."""


@dataclass(frozen=True, slots=True)
class Watch:
    """For how long own functions may run (None: no limit), and what is called meanwhile; it may raise to end them."""

    seconds: float | None = SECONDS
    check: Callable[[], None] | None = None


WATCH = Watch()


class Failed(Exception):
    """What the call raised, whatever it was."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class _Work(Generic[T]):
    """What the thread does and how it came out; `done` whatever happens.

    A bare lock is held until then: an interruption (KeyboardInterrupt) while it is waited for does no harm, as it may
    to an Event."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._going = threading.Lock()
        self._going.acquire()
        self.done = False
        self.given_up = False
        self.results: list[T] = []
        self.failures: list[BaseException] = []

    def run(self) -> None:
        try:
            try:
                if not self.given_up:
                    self.results.append(self._call())
            except BaseException as error:  # also SystemExit: it is the function's, not ours
                self.failures.append(error)
            finally:
                self._end()
        except _Ended:  # came late, between two lines of the above
            self._end()

    def _end(self) -> None:
        if not self.done:
            self.done = True
            self._going.release()

    def wait(self, seconds: float) -> bool:
        """Whether it is done, after at most so many seconds."""
        if not self.done and self._going.acquire(timeout=seconds):
            self._going.release()
        return self.done


def call_within(call: Callable[[], T], watch: Watch, out_of_time: Callable[[float], QueryError]) -> T:
    """What `call` returns, in a thread of its own; Failed with what it raises. After `watch.seconds` it is ended and
    `out_of_time` of them is raised; what `watch.check` raises, and KeyboardInterrupt, end it too."""
    if sum(thread.name == _GIVEN_UP for thread in threading.enumerate()) >= MAX_GIVEN_UP:
        raise QueryError(f"{MAX_GIVEN_UP} own functions that could not be ended still run in this process: restart it")
    work = _Work(call)
    thread = threading.Thread(target=contextvars.copy_context().run, args=(work.run,), name=_NAME, daemon=True)
    try:
        thread.start()  # an interruption may come as early as here
        _wait(work, watch, out_of_time)
    except BaseException:
        _end(thread, work)
        raise
    if work.failures:
        raise Failed(work.failures[0])
    return work.results[0]


def _wait(work: _Work[T], watch: Watch, out_of_time: Callable[[float], QueryError]) -> None:
    until = inf if watch.seconds is None else monotonic() + watch.seconds
    while not work.wait(max(0.0, min(LOOK_S, until - monotonic()))):
        try:
            if watch.check is not None:
                watch.check()
        except LimitExceeded:  # of the same time, perhaps a moment sooner; it knows less of what was going on
            raise out_of_time(watch.seconds or 0.0) from None
        if watch.seconds is not None and monotonic() >= until:
            raise out_of_time(watch.seconds)


def _end(thread: threading.Thread, work: _Work[T]) -> None:
    """Raise inside the thread until it ends: again and again, as its code may catch it; after STOP_S give it up."""
    work.given_up = True  # if it has not begun yet
    until = monotonic() + STOP_S
    while not work.done and monotonic() < until:
        if thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Ended))
        work.wait(AGAIN_S)
    if not work.done:
        thread.name = _GIVEN_UP
