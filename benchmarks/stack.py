"""Start of the whole stack on this machine, and its cost at rest.

`stack.up`: seconds from `artimon up` on a new folder, the start of Python included, until every part is healthy;
`@again`: on the same folder once more. The limit of both is the processor time of all processes until then, shared by
all cores: a start that never waits.
`stack.resident`: sum of the proportional set sizes of all processes, which counts a page that several share once.
`stack.cpu`: processor time of all processes at rest, when the agent polls only the stack itself.
The progress names both for each part.

python -m benchmarks.stack [--seconds S] [--rest S]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from artimon.model.clock import SYSTEM_CLOCK
from artimon.stack.stack_errors import StackError
from artimon.stack.stack_state import StackState, read_state
from benchmarks.common import CORES, Parts, emit, say
from benchmarks.limits import emit_limit

BASE_PORT = 25_400
SECONDS = 60.0
REST_S = 15.0
"""Seconds from the end of a start to the measurement at rest: the first polls start Spark's workers."""
UP_S = 300.0
STOP_S = 120.0
POLL_S = 0.05
SAMPLE_S = 2.0
MIB = 1 << 20


class RunningStack:
    """`artimon up` on a folder in a process of its own."""

    def __init__(self, data: Path, log: Path) -> None:
        command = [sys.executable, "-P", "-m", "artimon.cli", "up", "--data", str(data), "--base-port", str(BASE_PORT)]
        self._data, self._log = data, log
        began = time.monotonic()
        with log.open("ab") as out:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            self._await_healthy()
            self.up_s = time.monotonic() - began
            self.up_cpu_s = sum(processor_times(self.processes()).values())
        except BaseException:
            self.stop()
            raise

    def state(self) -> StackState | None:
        """Return the state that this process wrote; None before the first one."""
        state = read_state(self._data)
        return state if state is not None and state.pid == self._process.pid else None

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the stack."""
        root = psutil.Process(self._process.pid)
        return [root, *root.children(recursive=True)]

    def part_of(self, pid: int) -> str:
        """Return the part that a process belongs to."""
        state, session = self.state(), session_of(pid)
        names = {part.pid: part.name for part in state.parts} if state else {}
        return names.get(session, "supervisor")

    def stop(self) -> None:
        """Stop the stack and wait for its end."""
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _await_healthy(self) -> None:
        deadline, pause = time.monotonic() + UP_S, threading.Event()
        while time.monotonic() < deadline:
            state = self.state()
            if state and state.parts and all(part.state == "healthy" for part in state.parts):
                return
            if self._process.poll() is not None:
                raise StackError(f"the stack ended: {self._log.read_text()[-500:]}")
            SYSTEM_CLOCK.wait(pause, POLL_S)
        raise StackError(f"the stack is not healthy after {UP_S:.0f} s: {self._log.read_text()[-500:]}")


@contextmanager
def started(data: Path, log: Path) -> Iterator[RunningStack]:
    """Start a stack, and stop it at the end of the block."""
    running = RunningStack(data, log)
    try:
        yield running
    finally:
        running.stop()


def session_of(pid: int) -> int:
    """Return the session of a process, 0 if it has ended."""
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def processor_times(processes: list[psutil.Process]) -> dict[int, float]:
    """Return processor seconds by process, those of ended children included."""
    found = {}
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        found[process.pid] = times.user + times.system + times.children_user + times.children_system
    return found


def proportional_bytes(processes: list[psutil.Process]) -> dict[int, int]:
    """Return the proportional set size by process."""
    found = {}
    for process in processes:
        try:
            found[process.pid] = int(process.memory_full_info().pss)
        except psutil.Error:
            continue
    return found


def used_at_rest(running: RunningStack, seconds: float) -> dict[int, float]:
    """Return the processor seconds of each process within `seconds`. Processes that end in between are counted up to
    the last look at them."""
    first, last = processor_times(running.processes()), dict[int, float]()
    until, pause = time.monotonic() + seconds, threading.Event()
    while (left := until - time.monotonic()) > 0:
        SYSTEM_CLOCK.wait(pause, min(SAMPLE_S, left))
        last.update(processor_times(running.processes()))
    return {pid: spent - first.get(pid, 0.0) for pid, spent in last.items()}


def emit_start(name: str, running: RunningStack) -> None:
    """Print the duration of a start and its limit."""
    emit(name, running.up_s, "s")
    emit_limit(name, running.up_s, running.up_cpu_s / CORES, f"s ({running.up_cpu_s:.1f} core-seconds)", more=False)


def measure_rest(running: RunningStack, seconds: float) -> None:
    """Print memory and processor time at rest."""
    used, memory, cpu = used_at_rest(running, seconds), Counter[str](), defaultdict[str, float](float)
    sizes = proportional_bytes(running.processes())
    for pid, size in sizes.items():
        memory[running.part_of(pid)] += size
    for pid, spent in used.items():
        cpu[running.part_of(pid)] += spent
    for name, size in memory.most_common():
        say(f"{name:<12} {size / MIB:6.0f} MiB {100 * cpu[name] / seconds:6.2f} % of a core")
    emit("stack.resident", sum(sizes.values()) / MIB, f"MiB (PSS of {len(sizes)} processes)")
    emit("stack.cpu", 100 * sum(used.values()) / seconds, "% of a core")


def main() -> None:
    """Run the benchmark."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="benchmarks.stack", description=__doc__, formatter_class=form)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="duration of the measurement at rest")
    parser.add_argument("--rest", type=float, default=REST_S, help="seconds between start and measurement")
    options, parts = parser.parse_args(), Parts()
    with tempfile.TemporaryDirectory(prefix="artimon-bench-", ignore_cleanup_errors=True) as place:
        data, log = Path(place) / "stack", Path(place) / "up.log"

        def first() -> None:
            with started(data, log) as running:
                emit_start("stack.up", running)
                SYSTEM_CLOCK.wait(threading.Event(), options.rest)
                measure_rest(running, options.seconds)

        def again() -> None:
            with started(data, log) as running:
                emit_start("stack.up@again", running)

        parts.run("stack.up", first)
        parts.run("stack.up@again", again)
    parts.finish()


if __name__ == "__main__":
    main()
