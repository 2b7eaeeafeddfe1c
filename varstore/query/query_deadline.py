"""Deadline and cancellation of a query, checked between steps of the work so that it ends soon."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from artimon.model.select import SelectError

DISCONNECT_CHECK_S = 0.02
"""Least interval in seconds between checks for a closed connection, each one system call."""

IsDisconnected = Callable[[], bool]


class DeadlinePassed(SelectError):
    """The deadline of the query has passed."""

    of_query = False


class CallerDisconnected(SelectError):
    """The caller has closed the connection."""

    of_query = False


def never_disconnected() -> bool:
    """`IsDisconnected` of a caller that cannot disconnect."""
    return False


class QueryDeadline:
    """Deadline and cancellation of one query, for the thread that answers it."""

    def __init__(self, gone: IsDisconnected = never_disconnected, deadline_ms: int | None = None) -> None:
        """deadline_ms: timeout in milliseconds from now; None: no timeout."""
        now = monotonic()
        self._gone, self._deadline_ms, self._look = gone, deadline_ms, now
        self._deadline = None if deadline_ms is None else now + deadline_ms / 1000

    def check(self) -> None:
        """Raise DeadlinePassed or CallerDisconnected if the query should end."""
        now = monotonic()
        if self._deadline is not None and now > self._deadline:
            raise DeadlinePassed(f"the deadline of {self._deadline_ms} ms has passed: ask for less")
        if now >= self._look:
            self._look = now + DISCONNECT_CHECK_S
            if self._gone():
                raise CallerDisconnected("the caller has closed the connection")
