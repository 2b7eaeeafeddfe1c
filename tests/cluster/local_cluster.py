"""A whole cluster on this machine: the stack's parts on three hosts of cluster_hosts.py."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from artimon.runtime.health import read_health
from artimon.runtime.settings import Settings
from artimon.runtime.settings import load as load_settings
from artimon.stack.artimon_parts import ArtimonPart
from artimon.stack.jars import ensure_jars
from artimon.stack.java import find_java
from artimon.stack.stack import Stack
from artimon.stack.stack_part import EXAMPLES, StackPart
from tests.cluster.cluster_hosts import ClusterHost, ClusterHosts
from tests.cluster.cluster_parts import HOSTS, LEDGERS, cluster_parts
from tests.cluster.python_archive import OURS, cached_archive
from tests.cluster.yarn_parts import LOCK, YarnSpark
from tests.faults.load import PRODUCE
from tests.upgrade.older_version import RollingPart, pack_version, unpack_version

START_S = 2400.0
OPTIONS: Mapping[str, str] = {
    "poll": "5s",
    "level": "hdfs",
    "raw_interval": "5s",
    "replicas": "2",
    "hdfs_copies": "2",
    "kafka_heap_mb": "224",
    "capacity": "100000",
    "keep": "*=400",
    "rate": "4000",
    "sources": "8",
    "series": "500",
    # a DataNode is missed after 20 s and avoided after 6 s; the defaults are ten minutes and 30 s
    "hdfs_site": "dfs.namenode.heartbeat.recheck-interval=5000\n"
    "dfs.namenode.stale.datanode.interval=6000\n"
    "dfs.namenode.avoid.read.stale.datanode=true\n"
    "dfs.namenode.avoid.write.stale.datanode=true\n"
    "dfs.datanode.socket.write.timeout=20000\n"
    "dfs.client.socket-timeout=20000",
}


def prepare() -> Path:
    """Fetch the jars of YARN, which needs the network of the machine, and return the archive of Python packages."""
    settings = load_settings()
    ensure_jars(settings, find_java(settings), ["yarn"], lock=LOCK)
    return cached_archive(settings.cache)


def older_version(settings: Settings, commit: str) -> Path:
    """Return the archive of a commit, in the cache; its content is in the folder `older_folder` beside it. Raises
    MissingVersionError."""
    archive = settings.cache / "cluster" / f"before-{commit}.tar.gz"
    folder = older_folder(archive)
    if not folder.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        pack_version(commit, archive, *OURS, "tests")
        fresh = folder.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        unpack_version(archive, fresh)
        fresh.rename(folder)
    return archive


def older_folder(archive: Path) -> Path:
    """Return the folder with the content of such an archive."""
    return archive.with_name(archive.name.removesuffix(".tar.gz"))


class LocalCluster:
    """A context manager: hosts and parts, all of them healthy once it is entered."""

    def __init__(self, data: Path, options: Mapping[str, str] | None = None, *, before: str = "") -> None:
        """`before`: commit whose version our processes but the applications run until `upgrade`; "" for none. Raises
        MissingVersionError."""
        data.mkdir(parents=True, exist_ok=True)
        self._hosts = ClusterHosts(HOSTS, data)
        self._data, self._options = data, {**OPTIONS, **(options or {})}
        self._placed = cluster_parts()
        self._older: dict[str, RollingPart | YarnSpark] = {}
        self._before = before
        if before:
            archive = older_version(load_settings(), before)
            self._placed = [(self._older_part(part, archive), number) for part, number in self._placed]
        self.stack: Stack

    def __enter__(self) -> Self:
        archive = self._data / "environment.tar.gz"
        archive.unlink(missing_ok=True)
        archive.symlink_to(prepare())
        self._hosts.__enter__()
        places = {part.name: self.hosts[number - 1].place for part, number in self._placed}
        self.stack = Stack(self._data, (), options=self._options, hosts=places)
        self.stack.parts = [part for part, _ in self._placed]
        try:
            self.stack.start()
            self.stack.wait_healthy(START_S)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stack.stop()
        finally:
            self._hosts.__exit__(kind, error, trace)

    @property
    def hosts(self) -> list[ClusterHost]:
        """The hosts, host-1 first."""
        return self._hosts.hosts

    def parts_of(self, host: ClusterHost) -> list[str]:
        """Return the names of the parts on a host, in the order in which they start."""
        return [part.name for part, number in self._placed if self.hosts[number - 1] == host]

    def figures(self, part: str) -> dict[str, Any]:
        """Return the health report of a part, {} if there is none."""
        health = read_health(self.stack.context.health(part))
        return health.figures if health else {}

    def produce(self, wanted: bool = True) -> None:
        """Let the loads accept more, or only carry on what they have."""
        path = self.stack.context.folder(LEDGERS) / PRODUCE
        fresh = path.with_suffix(".new")
        fresh.write_text("1" if wanted else "0")
        fresh.replace(path)

    def kill_host(self, host: ClusterHost) -> None:
        """Kill every process of a host, containers of YARN included, and keep its parts down."""
        host.signal(signal.SIGSTOP)  # nothing notices the end of another before its own
        for name in self.parts_of(host):
            self.stack.kill_part(name)
        host.kill()

    def start_host(self, host: ClusterHost) -> None:
        """Let the parts of a host run again."""
        for name in self.parts_of(host):
            self.stack.start_part(name)

    def kill_node(self, name: str) -> None:
        """Kill a NodeManager and its containers, and keep it down."""
        number = next(number for part, number in self._placed if part.name == name)
        self.stack.kill_part(name)
        for pid in self.hosts[number - 1].processes():
            if is_container(pid):
                os.kill(pid, signal.SIGKILL)

    def _older_part(self, part: StackPart, archive: Path) -> StackPart:
        """Return the part of the version before; a server as it is."""
        if isinstance(part, YarnSpark):
            part.before = archive
            self._older[part.name] = part
        elif isinstance(part, ArtimonPart):
            part = self._older[part.name] = RollingPart(part, older_folder(archive))
        return part

    @property
    def version(self) -> str:
        """Name of the version before, "" if none of its processes is left."""
        return "" if all(part.upgraded for part in self._older.values()) else self._before

    def upgrade(self, name: str) -> None:
        """Restart a part, in the present version. See `wait_healthy`."""
        if name in self._older:
            self._older[name].upgraded = True
        self.stack.restart(name)

    def rolling_order(self) -> list[str]:
        """Return the names of all parts in the order of an upgrade: who stores before who sends."""
        return [part.name for part, _ in self._placed if part.layer < EXAMPLES]

    def lose_disk(self, broker: str) -> None:
        """Kill a broker, delete all that it has stored, start it again."""
        self.stack.kill_part(broker)
        shutil.rmtree(self.stack.data / broker / "data")
        self.stack.start_part(broker)


def is_container(pid: int) -> bool:
    """Return True if a process belongs to a container of YARN."""
    try:
        return b"\0CONTAINER_ID=" in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
