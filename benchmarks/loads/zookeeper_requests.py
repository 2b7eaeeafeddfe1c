"""ZooKeeper server that notes each request, and the counts of these: of any client, and without pings and sessions."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from artimon.stack.child_process import ProcessCommand
from artimon.stack.stack_part import StackContext
from artimon.stack.zookeeper_part import ZooKeeperPart

_LOG = """\
appender.requests.type = File
appender.requests.name = requests
appender.requests.fileName = {path}
appender.requests.layout.type = PatternLayout
appender.requests.layout.pattern = %m%n
logger.requests.name = org.apache.zookeeper.server.FinalRequestProcessor
logger.requests.level = debug
logger.requests.additivity = false
logger.requests.appenderRef.requests.ref = requests
"""
_REQUEST = re.compile(
    rb"^Processing request:: sessionid:0x([0-9a-f]+) type:\w+ [^\n]* reqpath:/([^/\s]+)", re.MULTILINE
)
"""Session, and first node of the path, of the first line about a request; pings and ends of sessions have none."""


class NotingServer(ZooKeeperPart):
    """Server with a line for each processed request in a file, and the heap of a fleet."""

    heap_mb = 256
    memory_mb = 600

    @staticmethod
    def log(context: StackContext) -> Path:
        """Return the file of the requests."""
        return context.folder("zookeeper") / "requests.log"

    def prepare(self, context: StackContext) -> list[ProcessCommand]:
        commands = super().prepare(context)
        with (context.folder(self.name) / "log4j2.properties").open("a") as file:
            file.write(_LOG.format(path=self.log(context)))
        return commands


class RequestLog:
    """Requests that a server has processed."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0

    def take(self) -> Counter[tuple[str, int]]:
        """Return the number of requests since the last call, by the first node of their path and by session."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            lines = file.read().rpartition(b"\n")[0]
        self._read += len(lines)
        return Counter((tree.decode(), int(session, 16)) for session, tree in _REQUEST.findall(lines))
