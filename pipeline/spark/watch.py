"""Liveness of the Spark session: its JVM may end, and a cluster may end the application."""

from __future__ import annotations

import threading

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from artimon.model.clock import SYSTEM_CLOCK, Clock

ASK_S = 5.0
SILENT = 120
"""Calls of `alive`, one a second, without an answer of the JVM before it is given up; a long garbage collection is
shorter. Calls are counted, not seconds, so that a process that was itself stopped does not blame the JVM."""


class SessionWatch:
    """Asks the JVM in a thread of its own until `stop`, so that a JVM that hangs blocks no other thread."""

    def __init__(self, session: SparkSession, stop: threading.Event, clock: Clock = SYSTEM_CLOCK) -> None:
        self._session, self._stop, self._clock = session, stop, clock
        self._ended = False
        self._looks = 0
        threading.Thread(target=self._run, name="session-watch", daemon=True).start()

    def alive(self) -> bool:
        """Return False if JVM or application have ended, or the JVM is silent too long. Called once a second."""
        process = getattr(self._session.sparkContext._gateway, "proc", None)
        if process is not None and process.poll() is not None:
            return False
        self._looks += 1
        return not self._ended and self._looks < SILENT

    def _run(self) -> None:
        while not self._ended:
            try:
                self._ended = bool(self._session.sparkContext._jsc.sc().isStopped())
            except (Py4JError, OSError, AttributeError):  # no JVM, or the context is gone
                self._ended = True
            self._looks = 0
            if self._clock.wait(self._stop, ASK_S):
                return
