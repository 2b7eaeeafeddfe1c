"""Checks of `artimon doctor`: one a line, each with a finding and its fix."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

from artimon.runtime.settings import Settings
from artimon.runtime.text import parse_address
from artimon.stack import jars
from artimon.stack.hdfs_parts import request_jmx
from artimon.stack.java import find_java
from artimon.stack.part_catalogue import ALL_PARTS, choose_parts
from artimon.stack.port_leases import is_free
from artimon.stack.stack_errors import NotRunningError, StackError
from artimon.stack.stack_part import HOST, tcp_request
from artimon.stack.stack_state import StackState, read_state
from artimon.stack.status import read_status

DISK_FREE_GB = 5
MEMORY_FREE_GB = 5
GIB = 1024**3


class CheckResult(StrEnum):
    """Result of a check; only FAILED makes `artimon doctor` exit 1."""

    GOOD = "good"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report; `fix` is empty if there is nothing to do."""

    name: str
    mark: CheckResult
    detail: str
    fix: str = ""


def run_checks(settings: Settings, data: Path, *, verify_jars: bool = False) -> Iterator[Check]:
    """Run all checks, one after another; a check that raises counts as failed."""
    state = read_state(data)
    running = state if state is not None and state.alive() else None
    checks: list[tuple[str, Callable[[], Iterator[Check]]]] = [
        ("python", _python),
        ("java", lambda: _java(settings)),
        ("jars", lambda: _jars(settings, verify_jars)),
        ("disk", lambda: _disk(data)),
        ("memory", lambda: _memory(running is not None)),
        ("ports", lambda: _ports(running)),
        ("stack", lambda: _stack(data, running)),
        ("kafka buffer", lambda: _buffer(data, running)),
        ("servers", lambda: _servers(settings, running)),
        ("access", lambda: _access(settings, running)),
    ]
    for name, check in checks:
        try:
            yield from check()
        except Exception as problem:  # the report must be complete
            yield Check(name, CheckResult.FAILED, f"{type(problem).__name__}: {problem}", "report this as a defect")


def _python() -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    good = sys.version_info >= (3, 11)
    yield Check(
        "python", CheckResult.GOOD if good else CheckResult.FAILED, version, "" if good else "install Python 3.11"
    )


def _java(settings: Settings) -> Iterator[Check]:
    try:
        java = find_java(settings)
    except StackError as problem:
        yield Check("java", CheckResult.FAILED, "no suitable Java", str(problem))
    else:
        yield Check("java", CheckResult.GOOD, f"{java.version} at {java.program}")


def _jars(settings: Settings, verify: bool) -> Iterator[Check]:
    folder = settings.cache / "jars"
    wanted = jars.read_lock()
    missing = [jar.file for jar in wanted if not (folder / jar.jar_set / jar.file).is_file()]
    if missing:
        detail = f"{len(missing)} of {len(wanted)} not in {folder}"
        yield Check("jars", CheckResult.FAILED, detail, "run ./scripts/setup")
        return
    damaged = [jar.file for jar in wanted if verify and jars.digest_of(folder / jar.jar_set / jar.file) != jar.digest]
    if damaged:
        yield Check(
            "jars", CheckResult.FAILED, f"damaged: {', '.join(damaged)}", f"delete them in {folder}, ./scripts/setup"
        )
        return
    yield Check("jars", CheckResult.GOOD, f"{len(wanted)} in {folder}{', digests verified' if verify else ''}")


def _disk(data: Path) -> Iterator[Check]:
    there = next(folder for folder in (data, *data.parents) if folder.is_dir())
    free = shutil.disk_usage(there).free / GIB
    good = free >= DISK_FREE_GB
    fix = "" if good else f"free {DISK_FREE_GB} GiB of disk space, or choose another folder with --data"
    yield Check("disk", CheckResult.GOOD if good else CheckResult.WARNING, f"{free:.1f} GiB free at {there}", fix)
    nearest = next(path for path in (data, *data.parents) if path.exists())
    if nearest != there or not os.access(there, os.W_OK | os.X_OK):
        yield Check("data folder", CheckResult.FAILED, f"{data} cannot be made or written", "name another with --data")


def _memory(running: bool) -> Iterator[Check]:
    free = psutil.virtual_memory().available / GIB
    good = running or free >= MEMORY_FREE_GB
    fix = "" if good else f"end other programs; the whole stack takes up to {MEMORY_FREE_GB} GiB"
    yield Check("memory", CheckResult.GOOD if good else CheckResult.WARNING, f"{free:.1f} GiB available", fix)


def _ports(running: StackState | None) -> Iterator[Check]:
    if running is not None:
        yield Check("ports", CheckResult.GOOD, "held by the running stack")
        return
    wished = {port: name for part in choose_parts(ALL_PARTS) for name, port in part.ports.items()}
    taken = [f"{port} ({name})" for port, name in wished.items() if not is_free(port)]
    if not taken:
        yield Check("ports", CheckResult.GOOD, f"all {len(wished)} default ports are free")
        return
    fix = "no action needed: the stack takes the next free ports, and `artimon env` prints them"
    yield Check("ports", CheckResult.WARNING, f"taken: {', '.join(taken)}", fix)


def _stack(data: Path, running: StackState | None) -> Iterator[Check]:
    if running is None:
        yield Check(
            "stack", CheckResult.WARNING, str(NotRunningError(data)).partition(":")[0], "start one with `artimon up`"
        )
        return
    for part in read_status(data).parts:
        mark = CheckResult.FAILED if not part.healthy else CheckResult.WARNING if part.problem else CheckResult.GOOD
        fix = "" if mark is CheckResult.GOOD else f"see `artimon logs {part.name}`"
        problem = part.problem.removeprefix(f"{part.state}:").strip()
        yield Check(f"part {part.name}", mark, f"{part.state} {problem}".strip(), fix)


def _buffer(data: Path, running: StackState | None) -> Iterator[Check]:
    """Check Kafka's fill level as the collectors report it, and the problems and warnings of Spark."""
    if running is None:
        return
    parts = {part.name: part.figures for part in read_status(data).parts}
    for name, figures in parts.items():
        kafka = figures.get("kafka") or {}
        if not name.startswith("collector-") or "bytes" not in kafka:
            continue
        detail = f"{kafka['bytes'] / GIB:.2f} of {kafka['quota_bytes'] / GIB:.2f} GiB, by {name}"
        mark = CheckResult.FAILED if kafka.get("full") else CheckResult.GOOD
        fix = "" if mark is CheckResult.GOOD else 'docs/operations.md, "Kafka is nearly full"'
        yield Check("kafka buffer", mark, detail, fix)
    spark = parts.get("spark", {})
    for text in (*spark.get("problems", ()), *spark.get("warnings", ())):
        yield Check("kafka log", CheckResult.WARNING, text, "docs/operations.md")


def _servers(settings: Settings, running: StackState | None) -> Iterator[Check]:
    """Check the servers of the running stack or the settings. Without a running stack an absent one is a warning."""
    known = running.addresses if running else {}
    worst = CheckResult.FAILED if running else CheckResult.WARNING
    yield _check_reachable(
        "zookeeper", known.get("ARTIMON_ZOOKEEPER", settings.zookeeper).split(",")[0], worst, _ask_zookeeper
    )
    yield _check_reachable("kafka", known.get("ARTIMON_KAFKA", settings.kafka).split(",")[0], worst, _connect)
    store = known.get("ARTIMON_HDFS", settings.hdfs)
    if store.startswith("hdfs://"):
        yield _check_reachable("hdfs", store.removeprefix("hdfs://"), worst, _connect)
    else:
        yield _check_store(store, worst)
    if running and "namenode.http" in running.ports:
        yield _check_reachable("hdfs space", f"{HOST}:{running.ports['namenode.http']}", worst, _request_hdfs_space)


def _check_store(uri: str, worst: CheckResult) -> Check:
    """Check an object store or a folder."""
    from artimon.runtime.file_access import check_reachable

    try:
        check_reachable(uri)
    except (OSError, ValueError) as problem:
        return Check("store", worst, str(problem), "docs/deploy.md")
    return Check("store", CheckResult.GOOD, uri)


def _access(settings: Settings, running: StackState | None) -> Iterator[Check]:
    """Check the access lists of ZooKeeper and the user of the agent. Reports nothing if ZooKeeper does not answer."""
    from artimon.runtime.zookeeper_client import zookeeper_session
    from artimon.runtime.zookeeper_watcher import ZOOKEEPER_ERRORS
    from pipeline.control.access import OPEN_ACCESS_WARNING, open_nodes

    known = running.addresses if running else {}
    try:
        with zookeeper_session(known.get("ARTIMON_ZOOKEEPER", settings.zookeeper), 3.0) as client:
            found = open_nodes(client)
    except ZOOKEEPER_ERRORS:
        return
    if found:
        detail = f"{len(found)} nodes are open to everyone, such as {found[0]}"
        yield Check("zookeeper access", CheckResult.WARNING, detail, OPEN_ACCESS_WARNING)
    else:
        yield Check("zookeeper access", CheckResult.GOOD, "no node of the platform is open to everyone")
    agent = next((part.pid for part in running.parts if part.name == "agent" and part.pid), 0) if running else 0
    if agent and psutil.Process(agent).uids().effective == 0:
        yield Check(
            "agent's user", CheckResult.WARNING, "root", "run `artimon up` as a user of its own: docs/deploy.md"
        )


def _check_reachable(name: str, address: str, worst: CheckResult, ask: Callable[[str, int], str]) -> Check:
    try:
        return Check(name, CheckResult.GOOD, f"{ask(*parse_address(address.rstrip('/')))} at {address}")
    except (OSError, ValueError) as problem:
        fix = f"start the stack with `artimon up`, or set ARTIMON_{name.split()[0].upper()}"
        return Check(name, worst, f"not reached at {address}: {problem}", fix)


def _connect(host: str, port: int) -> str:
    socket.create_connection((host, port), timeout=3).close()
    return "listens"


def _ask_zookeeper(host: str, port: int) -> str:
    if host not in (HOST, "localhost"):
        return _connect(host, port)
    if tcp_request(f"{host}:{port}", b"ruok", enough=4) != b"imok":
        raise OSError("does not answer ruok")
    return "answers"


def _request_hdfs_space(host: str, port: int) -> str:
    names = ("FSState", "NumLiveDataNodes", "CapacityRemaining")
    state, nodes, free = (
        request_jmx(f"{host}:{port}", "service=NameNode,name=FSNamesystemState", name) for name in names
    )
    if state != "Operational" or not nodes:
        raise OSError(f"state {state}, {nodes} live DataNodes")
    return f"{int(free or 0) / GIB:.1f} GiB remain"
