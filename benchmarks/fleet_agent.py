"""Weight of one agent: `artimon agent` beside a process of 1,500 variables, in a memory cgroup of 64 MiB.

`fleet.agent.rss`: resident memory (VmRSS), `fleet.agent.rss@cgroup`: all memory charged to it (its own and the part of
the page cache that it touched), which the kernel holds at or below 64 MiB or kills it.
`fleet.agent.cpu`: percent of a core at one poll a minute.
`fleet.agent.install`: the wheel `artimon-agent` with its dependencies on the disk.
Where memory cgroups are not permitted, the agent runs without a limit and the line `@cgroup` fails.

python -m benchmarks.fleet_agent [--seconds S] [--variables N]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Iterator
from functools import partial
from importlib import metadata
from pathlib import Path

import psutil
from packaging.requirements import Requirement

from artimon.model.clock import SYSTEM_CLOCK
from artimon.stack.stack import Stack
from benchmarks.common import Parts, emit, fail
from benchmarks.fleet import collector

ROOT = Path(__file__).resolve().parent.parent
WHEEL = ROOT / "scripts" / "agent_wheel" / "pyproject.toml"
CGROUPS = Path("/sys/fs/cgroup/memory")
LIMIT_BYTES = 64 << 20
VARIABLES = 1_500
SECONDS = 120.0
WARM_S = 75.0
"""Seconds until every source was polled once."""
APPLICATION = """
import sys, threading, bookkeeper
for n in range(int(sys.argv[1])):
    bookkeeper.set_integer_var("bench.variable", {"n": str(n)}, n)
threading.Event().wait()
"""
MIB = 1 << 20


@contextlib.contextmanager
def memory_cgroup() -> Iterator[Path | None]:
    """Make a cgroup (version 1) with the limit; None if that is not permitted."""
    place = CGROUPS / f"artimon-bench-{os.getpid()}"
    try:
        place.mkdir()
        (place / "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
    except OSError:
        yield None
        return
    try:
        yield place
    finally:
        place.rmdir()


@contextlib.contextmanager
def program(command: list[str], environment: dict[str, str], cgroup: Path | None = None) -> Iterator[psutil.Process]:
    """Run a program, in a cgroup if there is one, until the end of the block."""

    def enter() -> None:
        if cgroup is not None:
            (cgroup / "cgroup.procs").write_text(str(os.getpid()))

    with subprocess.Popen(command, env={**os.environ, **environment}, preexec_fn=enter) as process:
        try:
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(30)


def measure(zookeeper: str, folder: Path, variables: int, seconds: float) -> None:
    """Run the agent and print its memory and its CPU."""
    environment = {"ARTIMON_ZOOKEEPER": zookeeper, "ARTIMON_HOST": "bench", "OPENBLAS_NUM_THREADS": "1"}
    application = [sys.executable, "-c", APPLICATION, str(variables)]
    data, drop_in = folder / "agent", folder / "drop-in"
    agent = [sys.executable, "-m", "artimon.cli", "agent", "--name", "bench", "--data", str(data)]
    agent += ["--zookeeper", zookeeper, "--dropin", str(drop_in)]
    drop_in.mkdir()
    with (
        memory_cgroup() as cgroup,
        program(application, environment),
        program(agent, environment, cgroup) as process,
    ):
        never = threading.Event()
        SYSTEM_CLOCK.wait(never, WARM_S)
        before = process.cpu_times()
        SYSTEM_CLOCK.wait(never, seconds)
        after = process.cpu_times()
        used = after.user + after.system - before.user - before.system
        emit("fleet.agent.rss", process.memory_info().rss / MIB, "MiB")
        emit("fleet.agent.rss@anonymous", process.memory_full_info().uss / MIB, "MiB")
        if cgroup is None:
            fail("fleet.agent.rss@cgroup", f"no cgroup below {CGROUPS}: not permitted here")
        else:
            peak = int((cgroup / "memory.max_usage_in_bytes").read_text())
            emit("fleet.agent.rss@cgroup", peak / MIB, "MiB")
        emit("fleet.agent.cpu", 100 * used / seconds, "% of a core")


def installed_bytes() -> int:
    """Return the bytes of the agent's dependencies, as installed here, and of its own files."""
    project = tomllib.loads(WHEEL.read_text())
    own = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"].values()
    sizes = [_tree_bytes(ROOT / path) for path in (*own, "bookkeeper")]
    return sum(sizes) + sum(map(_distribution_bytes, _closure(project["project"]["dependencies"])))


def _closure(needs: list[str]) -> set[str]:
    found: set[str] = set()
    waiting = [Requirement(text) for text in needs]
    while waiting:
        need = waiting.pop()
        if need.name not in found and (need.marker is None or need.marker.evaluate({"extra": ""})):
            found.add(need.name)
            waiting += map(Requirement, metadata.requires(need.name) or ())
    return found


def _distribution_bytes(name: str) -> int:
    files = metadata.files(name) or ()
    return sum(path.stat().st_size for one in files if (path := Path(str(one.locate()))).is_file())


def _tree_bytes(path: Path) -> int:
    files = [path] if path.is_file() else path.rglob("*.py")
    return sum(one.stat().st_size for one in files)


def main() -> None:
    """Run the benchmark."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="benchmarks.fleet_agent", description=__doc__, formatter_class=form)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="duration of the measurement")
    parser.add_argument("--variables", type=int, default=VARIABLES, help="variables of the polled process")
    options, parts = parser.parse_args(), Parts()
    parts.run("fleet.agent.install", lambda: emit("fleet.agent.install", installed_bytes() / 1e6, "MB"))
    with tempfile.TemporaryDirectory() as place, Stack(Path(place) / "stack", ["zookeeper"], base_port=25_100) as stack:
        folder = Path(place) / "agent"
        folder.mkdir()
        with collector(stack.zookeeper):
            run = partial(measure, stack.zookeeper, folder, options.variables, options.seconds)
            parts.run("fleet.agent.rss", run)
    parts.finish()


if __name__ == "__main__":
    main()
