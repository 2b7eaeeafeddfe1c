"""ZooKeeper server of the stack, run from the jars inside PySpark."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from artimon.stack.child_process import ProcessCommand
from artimon.stack.java import jvm_flags
from artimon.stack.stack_part import StackContext, StackPart, numbered_addresses, numbered_name, tcp_request

# The server needs only these of PySpark's jars; with all of them on the classpath it costs a second and 40 MB more.
_JAR_PREFIXES = (
    "zookeeper-", "slf4j-api-", "log4j-", "netty-", "metrics-core-", "snappy-java-", "commons-io-", "commons-cli-",
    "audience-annotations-", "jackson-", "commons-lang",
)  # fmt: skip

MAX_SERVERS = 9
_LOG4J = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
"""


def write_log4j2(folder: Path) -> Path:
    """Write a log4j 2 configuration for standard output into `folder`; returns its path."""
    path = folder / "log4j2.properties"
    path.write_text(_LOG4J)
    return path


class ZooKeeperPart(StackPart):
    """One server, alone or of an ensemble. Session timeouts are 2 to 60 s."""

    memory_mb = 320
    heap_mb = 96

    def __init__(self, number: int = 1, servers: int = 1) -> None:
        self.number, self.servers, self.name = number, servers, zookeeper_name(number)
        names = {"client": 2181} if servers == 1 else {"client": 2181, "peer": 2888, "election": 3888}
        self.ports = MappingProxyType({f"{self.name}.{what}": port + number - 1 for what, port in names.items()})

    def prepare(self, context: StackContext) -> list[ProcessCommand]:
        folder = context.folder(self.name)
        (folder / "data").mkdir(exist_ok=True)
        lines = {
            "tickTime": "1000",
            "maxSessionTimeout": "60000",
            "dataDir": str(folder / "data"),
            "clientPort": str(context.port(f"{self.name}.client")),
            "clientPortAddress": context.host(self.name).address,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,srvr,mntr",
            "autopurge.snapRetainCount": "3",
            "autopurge.purgeInterval": "1",
            "maxClientCnxns": "4096",
            **self._ensemble(context),
        }
        (folder / "data" / "myid").write_text(str(self.number))
        (folder / "zoo.cfg").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        write_log4j2(folder)
        return []

    def command(self, context: StackContext) -> ProcessCommand:
        folder = context.folder(self.name)
        jars = sorted(str(jar) for jar in context.spark_jars.glob("*.jar") if jar.name.startswith(_JAR_PREFIXES))
        argv = [
            str(context.java.program),
            *jvm_flags(self.heap_mb, context.temporary(self.name)),
            *context.archive_flags("zookeeper", context.spark_jars),
            "-Dzookeeper.preAllocSize=4096",
            "-Dzookeeper.jmx.log4j.disable=true",
            f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
            "-cp",
            ":".join(jars),
            f"org.apache.zookeeper.server.{'ZooKeeperServerMain' if self.servers == 1 else 'quorum.QuorumPeerMain'}",
            str(folder / "zoo.cfg"),
        ]
        return ProcessCommand(argv)

    def check(self, context: StackContext) -> str:
        address = context.address(f"{self.name}.client")
        answer = tcp_request(address, b"ruok", enough=4)
        if answer == b"imok" and self.servers > 1:  # a server without a quorum says imok too
            answer = tcp_request(address, b"srvr", enough=4096)
            return "" if b"\nMode: " in answer else "belongs to no quorum"
        return "" if answer == b"imok" else f"answered {answer[:40]!r} to ruok"

    def addresses(self, context: StackContext) -> dict[str, str]:
        return {"ARTIMON_ZOOKEEPER": zookeeper_address(context)}

    def _ensemble(self, context: StackContext) -> dict[str, str]:
        """Return the lines of zoo.cfg that name the servers of the ensemble; none for a server alone."""
        if self.servers == 1:
            return {}
        found = {"initLimit": "20", "syncLimit": "10"}
        for number in range(1, self.servers + 1):
            name = zookeeper_name(number)
            peer, election = context.address(f"{name}.peer"), context.port(f"{name}.election")
            found[f"server.{number}"] = f"{peer}:{election}"
        return found


def zookeeper_name(number: int) -> str:
    """Return the name of a server's part; `number` counts from 1."""
    return numbered_name("zookeeper", number)


def zookeeper_address(context: StackContext) -> str:
    """Return host:port of each server of this stack, separated by commas; "" if it has none."""
    return numbered_addresses(context, "zookeeper", "client", MAX_SERVERS)
