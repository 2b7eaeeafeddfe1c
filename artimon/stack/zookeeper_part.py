"""ZooKeeper server of the stack, run from the jars inside PySpark."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from artimon.stack.child_process import ProcessCommand
from artimon.stack.java import jvm_flags
from artimon.stack.stack_part import HOST, StackContext, StackPart, tcp_request

# The server needs only these of PySpark's jars; with all of them on the classpath it costs a second and 40 MB more.
_JAR_PREFIXES = (
    "zookeeper-", "slf4j-api-", "log4j-", "netty-", "metrics-core-", "snappy-java-", "commons-io-", "commons-cli-",
    "audience-annotations-", "jackson-", "commons-lang",
)  # fmt: skip

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
    """One server, no quorum. Session timeouts are 2 to 60 s."""

    name = "zookeeper"
    ports = MappingProxyType({"zookeeper.client": 2181})
    memory_mb = 320

    def prepare(self, context: StackContext) -> list[ProcessCommand]:
        folder = context.folder(self.name)
        (folder / "data").mkdir(exist_ok=True)
        lines = {
            "tickTime": "1000",
            "maxSessionTimeout": "60000",
            "dataDir": str(folder / "data"),
            "clientPort": str(context.port("zookeeper.client")),
            "clientPortAddress": HOST,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,srvr,mntr",
            "autopurge.snapRetainCount": "3",
            "autopurge.purgeInterval": "1",
            "maxClientCnxns": "4096",
        }
        (folder / "zoo.cfg").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        write_log4j2(folder)
        return []

    def command(self, context: StackContext) -> ProcessCommand:
        folder = context.folder(self.name)
        jars = sorted(str(jar) for jar in context.spark_jars.glob("*.jar") if jar.name.startswith(_JAR_PREFIXES))
        argv = [
            str(context.java.program),
            *jvm_flags(96, context.temporary(self.name), small=True),
            "-Dzookeeper.preAllocSize=4096",
            "-Dzookeeper.jmx.log4j.disable=true",
            f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
            "-cp",
            ":".join(jars),
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            str(folder / "zoo.cfg"),
        ]
        return ProcessCommand(argv)

    def check(self, context: StackContext) -> str:
        answer = tcp_request(context.port("zookeeper.client"), b"ruok", enough=4)
        return "" if answer == b"imok" else f"answered {answer[:40]!r} to ruok"

    def addresses(self, context: StackContext) -> dict[str, str]:
        return {"ARTIMON_ZOOKEEPER": context.address("zookeeper.client")}
