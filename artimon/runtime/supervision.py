"""Supervision of long-running activities: errors are logged, and the activity is retried with back-off."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from artimon.model.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 30.0
BACKOFF_RESET_S = 60.0
"""Run time in seconds after which the back-off starts again from its first pause."""
MAX_DOUBLINGS = 16
ENDED_WITHOUT_ERROR = "it ended by itself"


class RetryLoop:
    """Repeats an activity, with a back-off after each end. One thread calls `run`; any may read `problem` and
    `restarts`.

    `problem` is the reason of the last failure, "" after the activity called `healthy()`."""

    def __init__(
        self, name: str, clock: Clock = SYSTEM_CLOCK, first_s: float = FIRST_PAUSE_S, longest_s: float = MAX_PAUSE_S
    ) -> None:
        self.name, self._clock = name, clock
        self._first_s, self._longest_s = first_s, longest_s
        self.problem = "starting"
        self.restarts = 0

    def healthy(self) -> None:
        """Clear `problem`; called by the activity when it works."""
        self.problem = ""

    def run(self, activity: Callable[[], None], stop: threading.Event) -> None:
        """Run `activity` until `stop`, despite any error: an ended thread would not come back."""
        row = 0
        while not stop.is_set():
            began = self._clock.monotonic()
            try:
                activity()
            except Exception as error:
                log.debug("%s", self.name, exc_info=True)
                self.problem = one_line(error)
            if stop.is_set():
                return
            row = 1 if self._clock.monotonic() - began > BACKOFF_RESET_S else row + 1
            self.restarts += 1
            pause = min(self._longest_s, self._first_s * 2.0 ** min(row - 1, MAX_DOUBLINGS))
            log.error("%s stopped: %s; again in %.1f s", self.name, self.problem or ENDED_WITHOUT_ERROR, pause)
            self._clock.wait(stop, pause)


class SupervisedThread(RetryLoop):
    """Thread that repeats `run(stop)` until `stop`."""

    def __init__(
        self,
        name: str,
        run: Callable[[threading.Event], None],
        stop: threading.Event,
        clock: Clock = SYSTEM_CLOCK,
        first_s: float = FIRST_PAUSE_S,
    ) -> None:
        super().__init__(name, clock, first_s)
        self._stop = stop
        self._thread = threading.Thread(target=self.run, args=(lambda: run(stop), stop), name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)


class LoopGuard:
    """Catches errors in the iterations of a loop with its own pace. One thread calls `turn`; any may read `problem`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problem = ""
        """Reason of the last failure, "" after a successful turn."""

    def attempt(self, action: Callable[[], object]) -> bool:
        """Run `action` and return True on success. Equal failures in a row are logged once."""
        problem = ""
        try:
            action()
        except Exception as error:  # the loop must survive any error of a client
            problem = one_line(error)
        if problem and problem != self.problem:
            log.error("%s: %s; retrying", self.name, problem)
        self.problem = problem
        return not problem


def one_line(error: BaseException) -> str:
    """Return the first lines of an error on one line, without an embedded Java stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.strip().startswith("at ")]
    return f"{type(error).__name__}: {' '.join(lines[:3])}"[:600]
