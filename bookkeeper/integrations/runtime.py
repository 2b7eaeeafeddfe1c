"""Variables about the process and the interpreter, read at each poll and at no other time.

    from bookkeeper.integrations import runtime

    runtime.install()

| variable | labels | kind | meaning |
| --- | --- | --- | --- |
| `process.cpu.seconds` | mode (user, system) | counter | CPU time of this process |
| `process.context.switches` | kind (voluntary, involuntary) | counter | how often it gave up the CPU |
| `process.memory.resident.bytes`, `process.memory.virtual.bytes` | | gauge | Linux |
| `process.fds.open`, `process.fds.limit` | | gauge | descriptors; open ones on Linux |
| `process.threads` | | gauge | threads of the system on Linux, elsewhere those of Python |
| `process.started.seconds` | | gauge | start time, seconds since the epoch; Linux |
| `python.threads` | | gauge | threads known to `threading` |
| `python.gc.collections`, `python.gc.collected`, `python.gc.uncollectable` | generation | counter | runs, objects |
| `python.gc.seconds` | generation | counter | time in collections; only with `pauses=True` |
| `python.version` | | | a STRING |
"""

from __future__ import annotations

import gc
import os
import platform
import threading
import weakref
from pathlib import Path
from time import perf_counter
from typing import Any

import bookkeeper

try:
    import resource
except ImportError:  # not on Unix
    resource = None  # type: ignore[assignment]

PROC = Path("/proc")
COUNTERS = (
    "process.cpu.seconds",
    "process.context.switches",
    "python.gc.collections",
    "python.gc.collected",
    "python.gc.uncollectable",
    "python.gc.seconds",
)


def install(book: bookkeeper.Bookkeeper | None = None, *, pauses: bool = False) -> RuntimeVariables:
    """Adds the variables above to `book` (default: the default object) until `remove` of the returned object.

    `pauses`: also measure the time in garbage collections, at about a microsecond per collection."""
    return RuntimeVariables(book or bookkeeper.default(), pauses=pauses)


class RuntimeVariables:
    """Variables of one installation. A forked child inherits it; its counts begin with the fork."""

    def __init__(self, book: bookkeeper.Bookkeeper, *, pauses: bool = False) -> None:
        self._book = book
        self._last_stats: list[Any] = [{} for _ in gc.get_stats()]  # counts of the parent at a fork, subtracted
        for name in COUNTERS:
            book.describe(name, kind="counter")
        self._pauses = [0.0] * len(
            self._last_stats
        )  # seconds by generation; written only during a collection, and collections never overlap
        self._pause_started = 0.0
        if pauses:
            gc.callbacks.append(self._on_gc)
        self._callback = book.on_poll(self.read)
        _LIVE.add(self)

    def remove(self) -> None:
        """Stops reading; the variables keep their values."""
        self._callback.remove()
        if self._on_gc in gc.callbacks:
            gc.callbacks.remove(self._on_gc)

    def read(self) -> None:
        """Sets all variables to their current values."""
        self._usage()
        self._collections()
        if (PROC / "self" / "stat").exists():
            self._linux()
        else:
            self._book.integer("process.threads").set(threading.active_count())
        self._book.integer("python.threads").set(threading.active_count())
        self._book.string("python.version").set(platform.python_version())

    def _usage(self) -> None:
        if resource is None:
            return
        usage = resource.getrusage(resource.RUSAGE_SELF)
        for mode, seconds in (("user", usage.ru_utime), ("system", usage.ru_stime)):
            self._book.double("process.cpu.seconds", {"mode": mode}).set(seconds)
        for kind, count in (("voluntary", usage.ru_nvcsw), ("involuntary", usage.ru_nivcsw)):
            self._book.integer("process.context.switches", {"kind": kind}).set(count)
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._book.integer("process.fds.limit").set(limit)

    def _collections(self) -> None:
        for i, generation in enumerate(gc.get_stats()):
            collected: dict[str, int] = generation
            for what in ("collections", "collected", "uncollectable"):
                count = collected[what] - self._last_stats[i].get(what, 0)
                self._book.integer(f"python.gc.{what}", {"generation": str(i)}).set(count)
            if self._on_gc in gc.callbacks:
                self._book.double("python.gc.seconds", {"generation": str(i)}).set(self._pauses[i])

    def reset(self) -> None:
        """In a forked child: restart the variables at 0, while the interpreter's own counts continue."""
        self._last_stats = list(gc.get_stats())
        self._pauses = [0.0] * len(self._last_stats)

    def _on_gc(self, phase: str, info: dict[str, int]) -> None:
        # A collection may interrupt any code, so nothing is called here.
        if phase == "start":
            self._pause_started = perf_counter()
        elif self._pause_started:
            self._pauses[info["generation"]] += perf_counter() - self._pause_started

    def _linux(self) -> None:
        pages = (PROC / "self" / "statm").read_text().split()
        size = os.sysconf("SC_PAGE_SIZE")
        self._book.integer("process.memory.virtual.bytes").set(int(pages[0]) * size)
        self._book.integer("process.memory.resident.bytes").set(int(pages[1]) * size)
        self._book.integer("process.fds.open").set(len(os.listdir(PROC / "self" / "fd")) - 1)  # minus that of listdir
        fields = (PROC / "self" / "stat").read_text().rpartition(")")[2].split()  # the name before may contain anything
        self._book.integer("process.threads").set(int(fields[17]))
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        self._book.double("process.started.seconds").set(_boot_seconds() + started)


def _boot_seconds() -> float:
    """Boot time of the machine, in seconds since the epoch."""
    with (PROC / "stat").open() as file:
        return next((float(line.split()[1]) for line in file if line.startswith("btime ")), 0.0)


_LIVE: weakref.WeakSet[RuntimeVariables] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for installed in list(_LIVE):
        installed.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
