"""Hosts of a cluster on one machine: network namespaces joined by a bridge, each with an address and a name of its own.

They exist only below scripts/isolated, whose own namespaces hold the bridge: the end of that command, however it comes,
ends every process and removes namespaces, bridge and mounts."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from artimon.stack.stack_part import StackHost

NETWORK = "10.77.19"
BRIDGE = "cluster"
ISOLATED = "ARTIMON_ISOLATED"
"""Variable that scripts/isolated sets."""
STEP_S = 20

# /run is where processes of one machine find each other: each host has one of its own
_HOLDER = "hostname {name} && mount -t tmpfs tmpfs /run && echo ready && exec sleep infinity"


class NotIsolatedError(RuntimeError):
    """The hosts were asked for outside scripts/isolated."""

    def __str__(self) -> str:
        return (
            "the hosts of the cluster need namespaces of their own: run ./scripts/cluster, or ./scripts/test --cluster"
        )


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=STEP_S)


@dataclass(frozen=True, slots=True)
class ClusterHost:
    """One host. `holder`: the process that keeps its namespaces; `link`: its end of the cable at the bridge."""

    name: str
    address: str
    link: str
    holder: int

    @property
    def place(self) -> StackHost:
        """Where the parts of this host run, for the stack."""
        return StackHost(self.address, ("nsenter", f"--target={self.holder}", "--net", "--uts", "--mount"))

    def cut(self) -> None:
        """Pull the cable: nothing comes through, and nobody is told."""
        _run("ip", "link", "set", self.link, "down")

    def heal(self) -> None:
        """Plug the cable in."""
        _run("ip", "link", "set", self.link, "up")

    def signal(self, number: int) -> int:
        """Send a signal to every process of the host and return their number; twice, for children forked meanwhile."""
        sent = 0
        for _ in range(2):
            for pid in self.processes():
                try:
                    os.kill(pid, number)
                    sent += 1
                except ProcessLookupError:
                    continue
        return sent

    def kill(self) -> int:
        """Kill every process of the host, as a loss of power does; returns their number."""
        return self.signal(signal.SIGKILL)

    def processes(self) -> Iterator[int]:
        """Yield the process ids of the host, those of its containers of YARN included."""
        network = os.readlink(f"/proc/{self.holder}/ns/net")
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{entry}/ns/net") == network and int(entry) != self.holder:
                    yield int(entry)
            except OSError:
                continue


class ClusterHosts:
    """A context manager: the bridge, `count` hosts `host-1` ... and their names in /etc/hosts of all."""

    def __init__(self, count: int, folder: Path) -> None:
        if not os.environ.get(ISOLATED):
            raise NotIsolatedError
        self._count, self._folder = count, folder
        self._holders: list[subprocess.Popen[str]] = []
        self.hosts: list[ClusterHost] = []

    def __enter__(self) -> Self:
        self._make_bridge()
        self._name_hosts()
        for number in range(1, self._count + 1):
            self.hosts.append(self._add_host(number))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for host in self.hosts:
            host.kill()
        for holder in self._holders:
            holder.kill()
            holder.wait()
        _run("umount", "/etc/hosts")
        _run("ip", "link", "del", BRIDGE)

    def _make_bridge(self) -> None:
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", BRIDGE, "type", "bridge")
        _run("ip", "addr", "add", f"{NETWORK}.1/24", "dev", BRIDGE)
        _run("ip", "link", "set", BRIDGE, "up")

    def _name_hosts(self) -> None:
        lines = ["127.0.0.1 localhost", f"{NETWORK}.1 operator"]
        lines += [f"{_address(number)} host-{number}" for number in range(1, self._count + 1)]
        file = self._folder / "hosts"
        file.write_text("".join(f"{line}\n" for line in lines))
        _run("mount", "--bind", str(file), "/etc/hosts")
        _run("hostname", "operator")

    def _add_host(self, number: int) -> ClusterHost:
        name, link = f"host-{number}", f"{BRIDGE}{number}"
        command = ["unshare", "--net", "--uts", "--mount", "sh", "-c", _HOLDER.format(name=name)]
        holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._holders.append(holder)
        assert holder.stdout is not None
        if holder.stdout.readline() != "ready\n":
            raise RuntimeError(f"{name}: its namespaces could not be made: {command}")
        inside = ("nsenter", f"--target={holder.pid}", "--net", "ip")
        _run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        _run("ip", "link", "set", link, "master", BRIDGE, "up")
        _run(*inside, "link", "set", "lo", "up")
        _run(*inside, "addr", "add", f"{_address(number)}/24", "dev", "eth0")
        _run(*inside, "link", "set", "eth0", "up")
        return ClusterHost(name, _address(number), link, holder.pid)


def _address(number: int) -> str:
    return f"{NETWORK}.{10 + number}"
