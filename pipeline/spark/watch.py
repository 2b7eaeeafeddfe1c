"""Whether the Spark session can still be used: its JVM may end, and a cluster may end the application by itself."""

from __future__ import annotations

import threading

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from artimon.model.clock import SYSTEM_CLOCK, Clock

ASK_S = 5.0
SILENT = 120
"""Looks, a second apart, without a word of the JVM: it is given up. A long collection of garbage takes less. Looks are
counted, not seconds: a process that was stopped itself does not blame the JVM."""


class SessionWatch:
    """Asks in a thread of its own, which ends with `stop`, so that a JVM that hangs holds up nobody else."""

    def __init__(self, session: SparkSession, stop: threading.Event, clock: Clock = SYSTEM_CLOCK) -> None:
        self._session, self._stop, self._clock = session, stop, clock
        self._ended = False
        self._looks = 0
        threading.Thread(target=self._run, name="session-watch", daemon=True).start()

    def alive(self) -> bool:
        """Whether JVM and Spark application run, as far as is known. Asked once a second."""
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
