"""Table of a run: seconds and processor time of each test file and worker, and the share that the machine was idle.

Printed at the end, longest first; the whole table is `.pytest_cache/v/artimon/durations`. Processor time is that of the
worker and of all processes that it started. A server counts for the file whose tests run meanwhile."""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

SHOWN = 40
"""Files of the printed table."""
TICKS_S = os.sysconf("SC_CLK_TCK")
Row = list[float]
"""Seconds, processor seconds, tests."""


def processor_s(process: str = "self") -> float:
    """Processor time of a process, of its ended children and of its living descendants; 0.0 where it cannot be read."""
    folder = Path("/proc") / process
    try:
        own = (folder / "stat").read_text().rpartition(")")[2].split()[11:15]
        tasks = list(folder.glob("task/*/children"))
        children = [child for task in tasks for child in task.read_text().split()]
    except OSError:  # no Linux, or a process that has just ended
        return 0.0
    return sum(map(int, own)) / TICKS_S + sum(map(processor_s, children))


def machine_s() -> tuple[float, float]:
    """(Idle seconds, seconds) of all processors since the machine started; zeros where they cannot be read."""
    try:
        with open("/proc/stat") as file:
            told = [int(word) / TICKS_S for word in file.readline().split()[1:9]]
    except OSError:
        return 0.0, 0.0
    return told[3] + told[4], sum(told)


class Durations:
    """Plugin of one process: of a worker, of the run that started workers, or of a run without them."""

    def __init__(self) -> None:
        self.files: dict[str, Row] = {}
        self.workers: dict[str, Row] = {}
        self._began, self._machine = monotonic(), machine_s()
        self._file, self._since, self._used = "", self._began, 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Begin the row of the file of a test."""
        if item.location[0] != self._file:
            self._end_file()
            self._file = item.location[0]
        self.files.setdefault(self._file, [0.0, 0.0, 0])[2] += 1

    def _end_file(self) -> None:
        now, used = monotonic(), processor_s()
        if self._file:
            row = self.files[self._file]
            row[0] += now - self._since
            row[1] += max(0.0, used - self._used)  # the time of a child that nobody waited for is lost
        self._since, self._used = now, used

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand the table of a worker to the run that started it."""
        self._end_file()
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            tests = sum(row[2] for row in self.files.values())
            output["durations"] = self.files, [monotonic() - self._began, processor_s(), tests]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Take the table of a worker."""
        files, worker = getattr(node, "workeroutput", {}).get("durations") or ({}, [0.0, 0.0, 0])
        self.workers[node.gateway.id] = worker
        for file, row in files.items():
            self.files[file] = [a + b for a, b in zip(self.files.get(file, (0, 0, 0)), row, strict=True)]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        """Print the longest rows and keep them all."""
        files = sorted(self.files.items(), key=lambda file: -file[1][0])
        if (cache := getattr(config, "cache", None)) is not None:
            cache.set("artimon/durations", {"files": dict(files), "workers": self.workers})
        if not self.workers:
            return
        idle, whole = (now - before for now, before in zip(machine_s(), self._machine, strict=True))
        share = f"; processors idle {idle / whole:.0%}" if whole else ""
        terminalreporter.section(f"{monotonic() - self._began:.0f} s{share}")
        terminalreporter.line("seconds processor  tests")
        for name, (seconds, used, tests) in [*sorted(self.workers.items()), *files[:SHOWN]]:
            terminalreporter.line(f"{seconds:7.0f} {used:9.0f} {tests:6.0f}  {name}")


def pytest_configure(config: pytest.Config) -> None:
    """Begin the table."""
    config.pluginmanager.register(Durations(), "artimon-durations")
