"""Part of a stack, as the supervisor sees it: how to prepare, start and check it, and what it may use."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from artimon.runtime.settings import Settings
from artimon.stack.java import Java
from artimon.stack.process import Command

HOST = "127.0.0.1"
SERVERS, AGENT, OWN, EXAMPLES = range(4)
"""Layers, in the order in which they start to be needed. The agent outlives all that register, and hears them leave."""


@dataclass(frozen=True, slots=True)
class Context:
    """What parts are configured from: folders, ports by "part.name", Java, folder of the jar sets, PySpark's jars."""

    data: Path
    ports: Mapping[str, int]
    settings: Settings
    java: Java
    jars: Path
    spark_jars: Path
    options: Mapping[str, str] = field(default_factory=dict)

    def port(self, name: str) -> int:
        """The port leased under `name`, such as "kafka.broker"."""
        return self.ports[name]

    def address(self, name: str) -> str:
        """host:port of the port leased under `name`."""
        return f"{HOST}:{self.ports[name]}"

    def server(self, name: str) -> str | None:
        """host:port of the port leased under `name`, None if this stack has no such server."""
        return self.address(name) if name in self.ports else None

    def health(self, part: str) -> Path:
        """Where the part says how it is, if it is one of ours."""
        return self.data / "health" / f"{part}.json"

    def log(self, part: str) -> Path:
        """Where the part's output goes."""
        return self.data / "logs" / f"{part}.log"

    def folder(self, part: str) -> Path:
        """The part's own folder, made if missing."""
        folder = self.data / part
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def temporary(self, part: str) -> Path:
        """A scratch folder of the part, made if missing."""
        folder = self.data / "tmp" / part
        folder.mkdir(parents=True, exist_ok=True)
        return folder


class Part:
    """One server of the stack. Subclasses say how; the supervisor decides when.

    `check` may be called in another thread than the rest, one call at a time. It never raises OSError for long: the
    supervisor takes any exception as the problem."""

    name: str = ""
    after: tuple[str, ...] = ()  # these must have been healthy once before the first start
    ports: Mapping[str, int] = MappingProxyType({})  # "part.name" -> wished port
    layer: int = SERVERS  # parts of a lower layer are stopped only when none of a higher one runs
    jar_sets: tuple[str, ...] = ()  # of jars.lock
    memory_mb: int = 512  # resident limit with all that it forked; above it the part is restarted
    stop_s: float = 10.0  # from SIGTERM to SIGKILL
    start_s: float = 600.0  # not healthy for so long after the start: it is restarted; slow is not dead
    hung_s: float = 120.0  # unhealthy for so long after having been healthy: it is restarted

    def prepare(self, context: Context) -> list[Command]:  # noqa: ARG002
        """Write the configuration; returns commands that must run to their end, in order, before the start."""
        return []

    def command(self, context: Context) -> Command:
        """What to start."""
        raise NotImplementedError

    def check(self, context: Context) -> str:
        """ "" when healthy, else what is wrong. At most a few seconds."""
        raise NotImplementedError

    def addresses(self, context: Context) -> dict[str, str]:  # noqa: ARG002
        """What `artimon env` prints of this part."""
        return {}


def ask_tcp(port: int, message: bytes, enough: int = 1, timeout_s: float = 2.0) -> bytes:
    """Send `message` to a local port and read at least `enough` bytes, or to the end. Raises OSError."""
    answer = b""
    with socket.create_connection((HOST, port), timeout=timeout_s) as connection:
        connection.settimeout(timeout_s)
        connection.sendall(message)
        while len(answer) < enough:
            more = connection.recv(65536)
            if not more:
                break
            answer += more
    return answer
