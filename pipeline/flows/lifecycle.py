"""Start and stop of components, each within a deadline."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import StrEnum

from artimon.runtime.deadline import DeadlineExceededError, call_with_timeout

log = logging.getLogger(__name__)


class LifecycleState(StrEnum):
    """State of a flow or of one of its parts."""

    IDLE = "idle"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    ERROR = "error"


class ManagedPart:
    """One part with its state. A transition that fails or exceeds its deadline ends in ERROR, with the reason."""

    def __init__(self, name: str, start: Callable[[], None], stop: Callable[[float], None]) -> None:
        self.name, self._start, self._stop = name, start, stop
        self.state, self.problem = LifecycleState.IDLE, ""

    def start(self, deadline_s: float) -> bool:
        """Start the part; True if it runs."""
        self.state, self.problem = LifecycleState.STARTING, ""
        return self._transition(LifecycleState.RUNNING, "start", deadline_s, self._start)

    def stop(self, deadline_s: float) -> bool:
        """Stop the part; True if it did in time. A part whose start failed is stopped too."""
        if self.state in (LifecycleState.IDLE, LifecycleState.STOPPED):
            return True
        self.state = LifecycleState.STOPPING
        # the part gets less time, so that it can report a timeout itself
        return self._transition(LifecycleState.STOPPED, "stop", deadline_s, lambda: self._stop(deadline_s * 0.8))

    def _transition(self, to: LifecycleState, verb: str, deadline_s: float, call: Callable[[], None]) -> bool:
        try:
            call_with_timeout(deadline_s, f"{verb} of {self.name}", call)
        except DeadlineExceededError:
            self._failed(f"{self.name} did not {verb} within {deadline_s:g} s")
        except Exception as error:
            self._failed(f"{self.name} did not {verb}: {error}", error)
        else:
            self.state = to
            return True
        return False

    def _failed(self, problem: str, error: Exception | None = None) -> None:
        self.state, self.problem = LifecycleState.ERROR, problem
        log.error("%s", problem, exc_info=error if not isinstance(error, OSError | RuntimeError | None) else None)


def start_all(members: Sequence[ManagedPart], deadline_s: float) -> str:
    """Start in order. At the first failure stop those that run and return the reason; "" if all run."""
    for at, member in enumerate(members):
        if not member.start(deadline_s):
            stop_all(members[: at + 1], deadline_s)
            return member.problem
    return ""


def stop_all(members: Sequence[ManagedPart], deadline_s: float) -> list[str]:
    """Stop in reverse order, each within the deadline, continuing after failures; return the problems."""
    problems = []
    for member in reversed(members):
        failed = member.problem if member.state is LifecycleState.ERROR else ""
        if not member.stop(deadline_s):
            problems.append(member.problem)
        elif failed:  # it has stopped, but the reason of its failure must stay visible
            member.state, member.problem = LifecycleState.ERROR, failed
    return problems
