"""Processor time and resident memory of the parts of a stack during a run."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import psutil

from artimon.model.clock import SYSTEM_CLOCK
from artimon.stack.stack import Stack
from benchmarks.loads.world import cpu_s, resident

EVERY_S = 5.0
OWN = "load"
"""Name of this process among the parts: it makes the load, and the agents of the load run in it."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Usage:
    """Core-seconds since the start and resident bytes by part, at a monotonic time."""

    at_s: float
    cpu: dict[str, float]
    memory: dict[str, int]


class UsageLog:
    """Thread that notes the usage of all parts, with all descendants, every EVERY_S between `start` and `stop`."""

    def __init__(self, stack: Stack) -> None:
        self._stack, self._stop = stack, threading.Event()
        self._thread = threading.Thread(target=self._run, name="usage", daemon=True)
        self.notes: list[Usage] = []

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Note the last usage and end the thread."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self.notes.append(self._read())
            if self._stop.is_set():
                return
            SYSTEM_CLOCK.wait(self._stop, EVERY_S)

    def _read(self) -> Usage:
        own = psutil.Process()
        found = {name: _family(state.pid) for name, state in self._stack.states().items() if state.pid}
        found[OWN] = [own]
        cpu = {name: cpu_s(processes) for name, processes in found.items()}
        memory = {name: sum(map(resident, processes)) for name, processes in found.items()}
        return Usage(time.monotonic(), cpu, memory)

    @property
    def parts(self) -> list[str]:
        """Parts of the stack, and OWN."""
        return list(self.notes[-1].cpu)

    def cores(self, part: str, begin_s: float, end_s: float) -> float:
        """Return the mean number of cores that a part used between two times."""
        times = [note.at_s for note in self.notes]
        first, last = np.interp([begin_s, end_s], times, [note.cpu.get(part, 0.0) for note in self.notes])
        return float(last - first) / (end_s - begin_s)

    def bytes(self, part: str, begin_s: float, end_s: float) -> float:
        """Return the mean of the resident bytes of a part between two times."""
        found = [note.memory.get(part, 0) for note in self.notes if begin_s <= note.at_s < end_s]
        return float(np.mean(found)) if found else 0.0


def _family(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return []
