"""Part of a stack, as the supervisor sees it: configuration, command, health check and resource limits."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from artimon.runtime.class_archive import archive_flags
from artimon.runtime.settings import Settings
from artimon.stack.child_process import ProcessCommand
from artimon.stack.java import Java

HOST = "127.0.0.1"
SERVERS, AGENT, OWN, EXAMPLES = range(4)
"""Layers; the highest stops first. The agent outlives the processes that register, and polls each as it leaves."""


@dataclass(frozen=True, slots=True)
class StackHost:
    """Machine that runs parts: its address, and the words before a command that is to run there."""

    address: str = HOST
    enter: tuple[str, ...] = ()


THIS_MACHINE = StackHost()


@dataclass(frozen=True, slots=True)
class StackContext:
    """Configuration input of parts: folders, ports by "part.name", Java, folder of the jar sets, PySpark's jars, hosts
    by part."""

    data: Path
    ports: Mapping[str, int]
    settings: Settings
    java: Java
    jars: Path
    spark_jars: Path
    options: Mapping[str, str] = field(default_factory=dict)
    hosts: Mapping[str, StackHost] = field(default_factory=dict)

    def host(self, part: str) -> StackHost:
        """Return the host of a part: this machine unless another one is configured."""
        return self.hosts.get(part, THIS_MACHINE)

    def port(self, name: str) -> int:
        """Return the port leased under `name`, such as "kafka.broker"."""
        return self.ports[name]

    def address(self, name: str) -> str:
        """Return host:port of the port leased under `name`."""
        return f"{self.host(name.partition('.')[0]).address}:{self.ports[name]}"

    def server(self, name: str) -> str | None:
        """Return host:port of the port leased under `name`, None if this stack has no such server."""
        return self.address(name) if name in self.ports else None

    def health(self, part: str) -> Path:
        """Return the path of the part's health file; only our own processes write one."""
        return self.data / "health" / f"{part}.json"

    def log(self, part: str) -> Path:
        """Return the path of the part's log: its standard output and error."""
        return self.data / "logs" / f"{part}.log"

    def archive_flags(self, name: str, *jars: Path) -> list[str]:
        """Return a JVM's flags for the archive `name` of its classes, which come from the jars in these folders."""
        return archive_flags(self.settings, name, (jar for one in jars for jar in one.glob("*.jar")))

    def folder(self, part: str) -> Path:
        """Return the part's own folder; creates it if missing."""
        folder = self.data / part
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def temporary(self, part: str) -> Path:
        """Return the part's scratch folder; creates it if missing."""
        folder = self.data / "tmp" / part
        folder.mkdir(parents=True, exist_ok=True)
        return folder


class StackPart:
    """One server of the stack. Subclasses define how to start and check it; the supervisor decides when.

    `check` may be called in another thread than the rest, one call at a time. An exception that it raises counts as the
    problem."""

    name: str = ""
    starts_after: tuple[str, ...] = ()  # these must have been healthy once before the first start
    ports: Mapping[str, int] = MappingProxyType({})  # "part.name" -> preferred port
    layer: int = SERVERS  # at the end, a part stops only after all parts of higher layers
    jar_sets: tuple[str, ...] = ()  # of jars.lock
    memory_mb: int = 512  # resident limit with all its children; above it the part is restarted
    stop_s: float = 10.0  # from SIGTERM to SIGKILL
    start_s: float = 600.0  # restart limit for a part not yet healthy; long, because a start may be slow
    hung_s: float = 120.0  # restart limit for a part that was healthy and no longer is

    def prepare(self, context: StackContext) -> list[ProcessCommand]:  # noqa: ARG002
        """Write the configuration; returns commands that must complete, in order, before the start."""
        return []

    def command(self, context: StackContext) -> ProcessCommand:
        """Return the command that starts the part."""
        raise NotImplementedError

    def check(self, context: StackContext) -> str:
        """Return "" if healthy, else the problem. Takes at most a few seconds."""
        raise NotImplementedError

    def addresses(self, context: StackContext) -> dict[str, str]:  # noqa: ARG002
        """Return this part's variables for `artimon env`."""
        return {}


def numbered_name(base: str, number: int) -> str:
    """Return the name of the n-th part of a kind, from 1: `kafka`, `kafka-2`, ..."""
    return base if number == 1 else f"{base}-{number}"


def numbered_addresses(context: StackContext, base: str, port: str, most: int) -> str:
    """Return the address of port `port` of each part of a kind in this stack, separated by commas; "" if none."""
    names = [f"{numbered_name(base, number)}.{port}" for number in range(1, most + 1)]
    return ",".join(context.address(name) for name in names if name in context.ports)


def tcp_request(address: str, message: bytes, enough: int = 1, timeout_s: float = 2.0) -> bytes:
    """Send `message` to host:port and read at least `enough` bytes, or up to the end. Raises OSError."""
    answer = b""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
        connection.settimeout(timeout_s)
        connection.sendall(message)
        while len(answer) < enough:
            more = connection.recv(65536)
            if not more:
                break
            answer += more
    return answer
