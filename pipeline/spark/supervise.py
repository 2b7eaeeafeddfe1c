"""Keeps one activity running: a failure restarts it after a pause that grows, and never touches another."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from artimon.model.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0
"""Running this long makes the next pause short again."""


class Supervised:
    """A thread that calls `run(stop)` again and again until `stop`. `problem` is the reason of the last failure, ""
    once `run` says by `healthy()` that it works."""

    def __init__(
        self, name: str, run: Callable[[threading.Event], None], stop: threading.Event, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.name, self._run, self._stop, self._clock = name, run, stop, clock
        self.problem = "starting"
        self.restarts = 0
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def healthy(self) -> None:
        """Called by the activity when it works."""
        self.problem = ""

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def _loop(self) -> None:
        pause = FIRST_PAUSE_S
        while not self._stop.is_set():
            began = self._clock.monotonic()
            try:
                self._run(self._stop)
            except Exception as error:
                self.problem = one_line(error)
            if self._stop.is_set():
                return
            if self._clock.monotonic() - began > STEADY_S:
                pause = FIRST_PAUSE_S
            self.restarts += 1
            log.error("%s stopped: %s; again in %.0f s", self.name, self.problem or "its query ended", pause)
            self._clock.wait(self._stop, pause)
            pause = min(pause * 2, LONGEST_PAUSE_S)


def one_line(error: BaseException) -> str:
    """The first lines of an error, without the traceback of another language that some carry."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.strip().startswith("at ")]
    return f"{type(error).__name__}: {' '.join(lines[:3])}"[:600]
