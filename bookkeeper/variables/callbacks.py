"""Callbacks: functions of the application that provide values at a poll, called in separate threads with a deadline."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any

from bookkeeper.runtime.application_log import LOG_PERIOD_S, warn
from bookkeeper.variables.canonical import short_repr
from bookkeeper.variables.cell import BOOLEAN, COUNTER, DOUBLE, GAUGE, INT_MAX, INT_MIN, INTEGER, STRING, AnyCell
from bookkeeper.variables.cell_table import CALLBACK_ERRORS
from bookkeeper.variables.validation import (
    STRING_BYTES,
    VariableRefused,
    to_bool,
    to_finite_float,
    to_float,
    to_int,
    to_str,
    to_word,
)
from bookkeeper.variables.variable_registry import KINDS, VariableRegistry

DEADLINE_S = 1.0
MAX_DEADLINE_S = 10.0
MAX_CALLBACKS = 1_000
MAX_THREADS = 32
POLL_STEP_S = 0.05
"""Seconds without a completed function, after which another thread continues with the waiting ones."""
MAX_FAILURES = 5
"""Failures in a row after which a gauge ends, because its value is too old. A counter stays: it would restart."""


class Callback:
    """Function called at each poll. With a `cell` its result becomes the value of that variable; None ends the variable
    for now. Without a cell the function sets variables itself. `late`: a poll timed out on it, and it still runs."""

    def __init__(
        self, book: Callbacks, name: str, function: Callable[[], Any], deadline_s: float, cell: AnyCell | None
    ) -> None:
        self._book, self.name, self.function, self.deadline_s, self.cell = book, name, function, deadline_s, cell
        self.kind = GAUGE
        self.is_late = False
        self.failures = 0
        self.logged = -LOG_PERIOD_S

    def remove(self) -> None:
        """Stops the calls and ends the variable."""
        self._book.remove(self)


class Callbacks:
    """Runs all callbacks before a poll reads values, and waits no longer than the longest deadline among them.

    A separate thread runs one after another. If one hangs, another thread continues with the rest. The hanging one is
    not called again until it returns, and its late result is discarded.

    Locks: `_turn` is held during a round, `_changed` guards all state; the variables' lock is never taken under it."""

    def __init__(self, variables: VariableRegistry) -> None:
        self._variables = variables
        self._all: tuple[Callback, ...] = ()
        self.forget()

    def forget(self) -> None:
        """In a forked child: resets the state, because the parent's threads do not exist there."""
        self._update_lock, self._changed = threading.Lock(), threading.Condition()
        self._threads: set[int] = set()
        self._round_started = 0.0
        self._polling = 0  # id of the thread that runs a round, 0 without one
        for one in self._all:
            one.is_late, one.failures = False, 0

    def add(
        self, name: str, function: Callable[[], Any], deadline_s: float, cell: AnyCell | None = None, kind: str = ""
    ) -> Callback:
        """Adds a callback from the next poll on. A second function for a variable replaces the first."""
        made = Callback(self, name, function, DEADLINE_S, cell)
        try:
            made.deadline_s, made.kind = _validate(name, function, deadline_s, kind)
            if len(self._all) >= MAX_CALLBACKS:
                raise VariableRefused("limit", f"callback {short_repr(name)}: there are {MAX_CALLBACKS} already")
            if cell is not None and cell.refused is not None:
                raise cell.refused
        except VariableRefused as error:
            self._variables.refuse(error)
            return made
        with self._changed:
            others = [one for one in self._all if cell is None or one.cell is None or not _same(one.cell, cell)]
            self._all = (*others, made)
        self._variables.start_use()
        return made

    def remove(self, callback: Callback) -> None:
        """See Callback.remove."""
        with self._changed:
            known = callback in self._all
            self._all = tuple(one for one in self._all if one is not callback)
        if known and callback.cell is not None:
            self._variables.remove(callback.cell)

    def update(self, _ends: bool = False) -> None:
        """Runs all callbacks; one round serves all polls that arrived before it began. Does nothing inside a callback
        or a signal handler that interrupts a round: it would wait for itself."""
        me = threading.get_ident()
        if not self._all or self._variables.off or me in self._threads or me == self._polling:
            return
        arrived = monotonic()
        if not self._update_lock.acquire(timeout=MAX_DEADLINE_S):
            return
        self._polling = me
        try:
            if self._round_started < arrived:
                self._round_started = monotonic()
                self._run_all()
        finally:
            self._polling = 0
            self._update_lock.release()

    def _run_all(self) -> None:
        begun, all_ = self._round_started, self._all
        waiting = deque(one for one in all_ if not one.is_late)
        left, failed = set(waiting), [one for one in all_ if one.is_late]
        with self._changed:
            before = 0
            while left:
                until = begun + max(one.deadline_s for one in left)
                if monotonic() >= until:
                    break
                if len(left) >= before:  # no callback has ended since: the thread hangs, or there is none yet
                    self._start(waiting, left)
                before = len(left)
                self._changed.wait_for(lambda: not left, min(POLL_STEP_S, max(0.0, until - monotonic())))
            waiting.clear()
            for one in left:
                one.is_late = True
            failed += left
            left.clear()
        for one in failed:
            self._note_failure(one, "timeout", f"no answer within {one.deadline_s} s")

    def _start(self, waiting: deque[Callback], left: set[Callback]) -> None:
        if not waiting or len(self._threads) >= MAX_THREADS:
            return
        try:
            threading.Thread(target=self._work, args=(waiting, left), name="bookkeeper-callback", daemon=True).start()
        except RuntimeError as error:  # no more threads, or the interpreter is ending
            warn(f"no thread for callbacks: {error}")

    def _work(self, waiting: deque[Callback], left: set[Callback]) -> None:
        me = threading.get_ident()
        self._threads.add(me)
        try:
            while True:
                try:
                    one = waiting.popleft()
                except IndexError:
                    return
                result, reason, why = _call(one)
                if one in left:
                    reason, why = self._store(one, result) if not reason else (reason, why)
                    if reason:
                        self._note_failure(one, reason, why)
                with self._changed:
                    one.is_late = False
                    left.discard(one)
                    self._changed.notify_all()
        finally:
            self._threads.discard(me)

    def _store(self, one: Callback, result: Any) -> tuple[str, str]:
        """Store the result as the value. Returns the kind of failure and its reason, "" without one."""
        one.failures = 0
        if one.cell is None:
            return "", ""
        try:
            if result is None:
                self._variables.remove(one.cell)
            else:
                self._variables.store(one.cell, _CHECKS[one.cell.type](result), one.kind)
        except VariableRefused as error:
            return "value", str(error)
        return "", ""

    def _note_failure(self, one: Callback, reason: str, why: str) -> None:
        self._variables.count(CALLBACK_ERRORS, {"variable": one.name, "reason": reason})
        one.failures += 1
        if one.failures >= MAX_FAILURES and one.cell is not None and one.kind != COUNTER:
            self._variables.remove(one.cell)
        now = monotonic()
        if now - one.logged >= LOG_PERIOD_S:
            one.logged = now
            warn(f"the callback of {one.name} failed ({reason}; further ones are only counted): {why}")


def _is_in_range(value: object) -> int:
    return min(max(to_int(value), INT_MIN), INT_MAX)


_CHECKS: dict[int, Callable[[Any], Any]] = {
    INTEGER: _is_in_range,
    DOUBLE: to_float,
    BOOLEAN: to_bool,
    STRING: lambda value: to_str(value, STRING_BYTES, "value"),
}


def _call(one: Callback) -> tuple[Any, str, str]:
    try:
        return one.function(), "", ""
    except BaseException as error:  # also SystemExit: nothing may leave this thread
        return None, "error", short_repr(error)


def _same(one: AnyCell, other: AnyCell) -> bool:
    return (one.name, one.key) == (other.name, other.key)


def _validate(name: str, function: object, deadline_s: float, kind: str) -> tuple[float, int]:
    """Validate the arguments; returns the deadline and the kind. Raises VariableRefused."""
    if not callable(function):
        raise VariableRefused(
            "callback", f"callback {short_repr(name)}: {short_repr(function)} cannot be called: give a function"
        )
    if to_word(kind) not in KINDS:
        raise VariableRefused(
            "callback", f"callback {short_repr(name)}: kind {short_repr(kind)}: give 'counter' or 'gauge'"
        )
    seconds = to_finite_float(deadline_s)
    if not 0.0 < seconds <= MAX_DEADLINE_S:
        why = f"a deadline of {seconds} s: give more than 0 and at most {MAX_DEADLINE_S}"
        raise VariableRefused("callback", f"callback {short_repr(name)}: {why}")
    return seconds, KINDS[to_word(kind)] or GAUGE
