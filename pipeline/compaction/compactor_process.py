"""Compactor process: one core, the lowest priority, little memory."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import threading
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.failpoints import Failpoint, no_failpoint
from artimon.rawtable.delta import first_line
from artimon.runtime.health import HealthFile, Publish, unpublished
from artimon.runtime.zookeeper_client import zookeeper_session
from pipeline.compaction.compaction_settings import CompactorConfig
from pipeline.compaction.compactor import Compactor
from pipeline.compaction.merge import be_frugal, give_back

log = logging.getLogger(__name__)

HEALTH_S = 1.0
START_INTERVAL_S = 0.1
"""Interval of health reports until the table was read once."""
NICENESS = 19
STOP_TIMEOUT_S = 10.0
HUNG_TIMEOUT_S = 1800.0
"""Silence in seconds after which the thread is hung: no call takes longer, nor does a batch of rows."""
MAX_PROBLEMS = 5


def run_compactor(
    config: CompactorConfig,
    stop: threading.Event,
    clock: Clock = SYSTEM_CLOCK,
    probe: Failpoint = no_failpoint,
    publish: Publish = unpublished,
) -> None:
    """Run until `stop`; `publish` gets the figures too. Missing services (ZooKeeper, HDFS, the table) are named in the
    health file and waited for."""
    lower_priority()
    health = HealthFile(config.health or config.data / "health.json", "compactor", clock, publish)
    health.write("starting", "the table was not read yet")
    with zookeeper_session(config.zookeeper) as zookeeper:
        life = _CompactorThread(Compactor(config, zookeeper, clock, probe), config.interval_s, clock)
        thread = threading.Thread(target=life.run, args=(stop,), name="compactor", daemon=True)
        thread.start()
        while not clock.wait(stop, HEALTH_S if life.attempted else START_INTERVAL_S):
            life.report(health)
        thread.join(STOP_TIMEOUT_S)  # a longer job is abandoned: nothing of it was committed


class _CompactorThread:
    """The working thread and its health report."""

    def __init__(self, compactor: Compactor, interval_s: float, clock: Clock) -> None:
        self._compactor, self._interval_s, self._clock = compactor, interval_s, clock
        self._problem = "the table was not read yet"
        self._last_problem = ""
        self.attempted = False
        self._succeeded_at = clock.monotonic()

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            problem = ""
            try:
                self._compactor.run_due(stop)
            except FileNotFoundError as error:
                log.debug("nothing to compact: %s", error)
            except Exception as error:  # the loop must survive any error
                problem = first_line(error)
                log.error("compaction: %s", problem)
            if not problem:
                self._succeeded_at = self._clock.monotonic()
            give_back()
            self._problem, self.attempted = problem, True
            self._last_problem = problem or self._last_problem
            self._clock.wait(stop, self._interval_s)

    def report(self, health: HealthFile) -> None:
        """Write the health file. A problem with the table is reported but does not fail the process; a hung thread
        does. A first turn that works through a backlog counts as ok once it knows its jobs."""
        problem, done, silent_s = self._problem, self._compactor.figures(), self._compactor.silent_s()
        if not self.attempted and not done["settled_ms"]:
            state, told = "starting", problem
        elif silent_s > HUNG_TIMEOUT_S + self._interval_s:
            state, told = "failing", f"no progress for {silent_s:.0f} s"
        else:
            state, told = "ok", ""
        if not health.is_due(state, told):
            return
        given_up = self._compactor.given_up()
        figures = {
            **done,
            "problems": [text for text in (problem, *given_up[:MAX_PROBLEMS]) if text and self.attempted],
            "failing_ms": round((self._clock.monotonic() - self._succeeded_at) * 1000)
            if problem and self.attempted
            else 0,
            "last_problem": self._last_problem,
            **resource_usage(),
        }
        health.write(state, told, **figures)


def lower_priority(niceness: int = NICENESS) -> None:
    """Set the lowest priority, one thread of Arrow, and an allocator that returns freed memory."""
    os.nice(niceness)
    with contextlib.suppress(psutil.Error, OSError, AttributeError):
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    pa.set_memory_pool(pa.system_memory_pool())
    be_frugal()


def resource_usage() -> dict[str, Any]:
    """Return peak resident memory and CPU time of this process."""
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return {"peak_bytes": _peak(spent.ru_maxrss * 1024), "cpu_s": round(spent.ru_utime + spent.ru_stime, 1)}


def _peak(otherwise: int) -> int:
    """Return the peak from /proc: that of getrusage includes the process that started this one."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmHWM:"))) * 1024
    return otherwise
