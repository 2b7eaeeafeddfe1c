"""Calls with a time limit: user-defined functions run in a separate thread, which is ended at the timeout.

The thread holds no lock of ours, so ending it leaves nothing half done. C code that never returns to Python cannot be
ended: its thread is abandoned and lives until the process ends. MAX_GIVEN_UP limits the number of such threads.
"""

from __future__ import annotations

import contextvars
import ctypes
import threading
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

from query_dsl.stores.query_limits import LimitExceeded, QueryBudget
from query_dsl.tree.query_errors import QueryError

DEFAULT_TIMEOUT_S = 60.0
"""Timeout of queries over `offline` stores and of the own functions of one node, unless the query sets one, seconds."""
POLL_S = 0.1
ABANDON_S = 1.0
RAISE_INTERVAL_S = 0.05
MAX_ABANDONED = 8
_NAME, _GIVEN_UP = "artimon-own-function", "artimon-own-function-given-up"

T = TypeVar("T")


class _Ended(SystemExit):
    """Raised inside a thread to end it. A SystemExit, which threads do not report."""


class CallFailed(Exception):
    """Wrapper of any exception that the call raised."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class _Call(Generic[T]):
    """Call of the thread and its outcome; `done` is set in any case.

    A bare lock is held until then: unlike an Event it is not harmed by a KeyboardInterrupt during a wait."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._running_lock = threading.Lock()
        self._running_lock.acquire()
        self.done = False
        self.abandoned = False
        self.results: list[T] = []
        self.failures: list[BaseException] = []

    def run(self) -> None:
        try:
            try:
                if not self.abandoned:
                    self.results.append(self._call())
            except BaseException as error:  # also SystemExit: it is the function's, not ours
                self.failures.append(error)
            finally:
                self._end()
        except _Ended:  # raised between two lines of the above
            self._end()

    def _end(self) -> None:
        if not self.done:
            self.done = True
            self._running_lock.release()

    def wait(self, seconds: float) -> bool:
        """Wait for at most `seconds`; True if the call is done."""
        if not self.done and self._running_lock.acquire(timeout=seconds):
            self._running_lock.release()
        return self.done


def call_with_limit(call: Callable[[], T], watch: QueryBudget, out_of_time: Callable[[float], QueryError]) -> T:
    """Run `call` in a separate thread and return its result. Raises CallFailed with its exception. After the time left
    of the watch it is ended and `out_of_time` is raised; an exception of its check and KeyboardInterrupt end it,
    too."""
    if sum(thread.name == _GIVEN_UP for thread in threading.enumerate()) >= MAX_ABANDONED:
        raise QueryError(f"{MAX_ABANDONED} own functions that could not be ended still run in this process: restart it")
    work = _Call(call)
    thread = threading.Thread(target=contextvars.copy_context().run, args=(work.run,), name=_NAME, daemon=True)
    try:
        thread.start()  # an interruption may come as early as here
        _wait(work, watch, out_of_time)
    except BaseException:
        _end(thread, work)
        raise
    if work.failures:
        raise CallFailed(work.failures[0])
    return work.results[0]


def _wait(work: _Call[T], watch: QueryBudget, out_of_time: Callable[[float], QueryError]) -> None:
    left = watch.seconds_left()
    seconds = DEFAULT_TIMEOUT_S if left is None else left
    until = monotonic() + seconds
    while not work.wait(max(0.0, min(POLL_S, until - monotonic()))):
        try:
            watch.check()
        except LimitExceeded:
            if watch.seconds_left() != 0.0:
                raise
            raise out_of_time(seconds) from None  # the same deadline, with a more exact message
        if monotonic() >= until:
            raise out_of_time(seconds)


def _end(thread: threading.Thread, work: _Call[T]) -> None:
    """Raise in the thread until it ends, repeatedly, as its code may catch the exception; abandon it after STOP_S."""
    work.abandoned = True  # a thread that has not begun skips the call
    until = monotonic() + ABANDON_S
    while not work.done and monotonic() < until:
        if thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Ended))
        work.wait(RAISE_INTERVAL_S)
    if not work.done:
        thread.name = _GIVEN_UP
