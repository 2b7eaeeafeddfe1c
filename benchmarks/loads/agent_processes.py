"""Processes of `artimon agent`, each as if alone on a host."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime.zookeeper_client import child_names, zookeeper_session
from pipeline.control.control_tree import AGENTS
from sources.poll.unit_leases import CLAIMS

START_S = 600.0
STOP_S = 30.0


class AgentProcesses:
    """Context manager: at its begin every agent runs and polls its host."""

    def __init__(self, size: int, folder: Path, zookeeper: str) -> None:
        self._names = [f"p{n:05d}" for n in range(size)]
        self._folder, self._zookeeper = folder, zookeeper
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        try:
            self._processes += map(self._start, self._names)
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        place = self._folder / name
        command = [sys.executable, "-m", "artimon.cli", "agent", "--name", name, "--data", str(place)]
        command += ["--zookeeper", self._zookeeper, "--dropin", str(self._folder / f"{name}-dropin")]
        own = {"ARTIMON_ZOOKEEPER": self._zookeeper, "ARTIMON_HOST": name, "OPENBLAS_NUM_THREADS": "1"}
        with (self._folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(command, env={**os.environ, **own}, stdout=log, stderr=log)

    def _wait(self) -> None:
        """Wait until each agent has its host. Raises TimeoutError."""
        until, names = SYSTEM_CLOCK.monotonic() + START_S, set(self._names)
        with zookeeper_session(self._zookeeper, 30) as client:
            while not all(names <= set(child_names(client, path)) for path in (CLAIMS, AGENTS)):
                if SYSTEM_CLOCK.monotonic() > until:
                    raise TimeoutError(f"{len(names)} agents do not run within {START_S:.0f} s: {self._folder}")
                if any(process.poll() is not None for process in self._processes):
                    raise RuntimeError(f"an agent ended: {self._folder}")
                time.sleep(2.0)
