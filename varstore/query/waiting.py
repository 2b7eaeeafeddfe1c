"""Whether somebody still waits for an answer: looked at between steps of the work, so that it ends soon if not."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from artimon.model.select import SelectError

GONE_S = 0.02
"""So often it is looked whether who asked is gone: one system call."""

Gone = Callable[[], bool]


class DeadlinePassed(SelectError):
    """Nobody waits for this answer any more."""

    of_query = False


class Cancelled(SelectError):
    """Who asked has closed the connection."""

    of_query = False


def never() -> bool:
    """Of who cannot go."""
    return False


class Waiting:
    """Of one question, for the thread that answers it."""

    def __init__(self, gone: Gone = never, deadline_ms: int | None = None) -> None:
        """`deadline_ms`: milliseconds from now after which nobody waits; None: for ever."""
        now = monotonic()
        self._gone, self._deadline_ms, self._look = gone, deadline_ms, now
        self._until = None if deadline_ms is None else now + deadline_ms / 1000

    def check(self) -> None:
        """Raises DeadlinePassed, Cancelled."""
        now = monotonic()
        if self._until is not None and now > self._until:
            raise DeadlinePassed(f"the deadline of {self._deadline_ms} ms has passed: ask for less")
        if now >= self._look:
            self._look = now + GONE_S
            if self._gone():
                raise Cancelled("who asked has closed the connection")
