"""Measurements of the machine while the stack runs, read beside the system under test, to check its answers."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from artimon.model.clock import SYSTEM_CLOCK, Clock


@dataclass(slots=True)
class Witness:
    """Reads /proc/stat and statvfs once a second, beside the system under test, to check its answers against.

    Locks: none; one thread appends, readers look after `stop`."""

    clock: Clock = SYSTEM_CLOCK
    cpu: dict[str, list[tuple[int, float, float]]] = field(default_factory=lambda: defaultdict(list))
    """cpu -> (time_ms, busy jiffies, all jiffies)."""
    volumes: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    """mount point -> (time_ms, free share)."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5)

    def busy_share(self, cpu: str, start_ms: float, end_ms: float) -> float:
        """Busy share of `cpu` over [start, end], readings interpolated; NaN where there are none."""
        readings = np.array(self.cpu[cpu], float)
        if len(readings) < 2 or start_ms < readings[0, 0] or end_ms > readings[-1, 0]:
            return float("nan")
        busy = np.diff(np.interp([start_ms, end_ms], readings[:, 0], readings[:, 1]))[0]
        total = np.diff(np.interp([start_ms, end_ms], readings[:, 0], readings[:, 2]))[0]
        return float(busy / total) if total else float("nan")

    def free_share(self, volume: str, time_ms: int, around_ms: int = 2_000) -> tuple[float, float]:
        """Least and greatest free share of `volume` read within `around_ms` of a time; NaN where there are none."""
        near = [share for at, share in self.volumes[volume] if abs(at - time_ms) <= around_ms]
        return (min(near), max(near)) if near else (float("nan"), float("nan"))

    def _run(self) -> None:
        while not self.clock.wait(self._stop, 1.0):
            self._read_cpu()
            for volume in _volumes():
                self._read_volume(volume)

    def _read_cpu(self) -> None:
        now = self.clock.now_ms()
        for line in Path("/proc/stat").read_text().splitlines():
            name, *figures = line.split()
            if name.startswith("cpu") and name != "cpu":
                jiffies = [float(figure) for figure in figures[:8]]
                idle = jiffies[3] + jiffies[4]
                self.cpu[name[3:]].append((now, sum(jiffies) - idle, sum(jiffies)))

    def _read_volume(self, volume: str) -> None:
        try:
            stat = os.statvfs(volume)
        except OSError:
            return
        if stat.f_blocks:
            self.volumes[volume].append((self.clock.now_ms(), stat.f_bfree / stat.f_blocks))


def _volumes() -> list[str]:
    return [line.split()[1].encode().decode("unicode_escape") for line in Path("/proc/mounts").read_text().splitlines()]
