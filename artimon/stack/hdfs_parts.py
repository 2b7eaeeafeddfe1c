"""HDFS: a NameNode and DataNodes, by default one, with one copy of each block."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from xml.sax.saxutils import escape

from artimon.stack.child_process import ProcessCommand
from artimon.stack.java import jvm_flags
from artimon.stack.stack_part import StackContext, StackPart, numbered_name

_LOG4J = """\
log4j.rootLogger=WARN,out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
"""
_ANSWER_LIMIT = 4 * 1024 * 1024


def hdfs_uri(context: StackContext) -> str:
    """Return the URI of the file system, such as hdfs://127.0.0.1:8020."""
    return f"hdfs://{context.address('namenode.rpc')}"


def request_jmx(address: str, bean: str, attribute: str, timeout_s: float = 3.0) -> Any:
    """Fetch one attribute of a bean of Hadoop from a server's /jmx page, None if absent: a whole bean costs the server
    ten times as much. Raises OSError, ValueError."""
    connection = http.client.HTTPConnection(address, timeout=timeout_s)
    try:
        connection.request("GET", f"/jmx?get=Hadoop:{bean}::{attribute}")
        beans = json.loads(connection.getresponse().read(_ANSWER_LIMIT)).get("beans")
    except http.client.HTTPException as problem:
        raise OSError(f"/jmx on {address}: {problem!r}") from problem
    finally:
        connection.close()
    return beans[0].get(attribute) if beans else None


def namenode_state(address: str) -> str | None:
    """Return "Operational" or "safeMode", None before the NameNode knows it. Raises OSError, ValueError."""
    state: str | None = request_jmx(address, "service=NameNode,name=FSNamesystemState", "FSState")
    return state


def write_xml(path: Path, values: Mapping[str, str]) -> None:
    rows = [f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in values.items()]
    path.write_text('<?xml version="1.0"?>\n<configuration>\n' + "\n".join(rows) + "\n</configuration>\n")


def _hdfs_site(context: StackContext) -> dict[str, str]:
    folder = context.folder("hdfs")
    return {
        "dfs.replication": context.options.get("hdfs_copies", "1"),
        "dfs.namenode.name.dir": f"file://{folder / 'name'}",
        "dfs.namenode.rpc-address": context.address("namenode.rpc"),
        "dfs.namenode.http-address": context.address("namenode.http"),
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.datanode.synconclose": "true",
        "dfs.blocksize": str(64 * 1024 * 1024),
        "dfs.permissions.enabled": "false",
        "dfs.heartbeat.interval": "1",
        "dfs.namenode.handler.count": "8",
        "dfs.datanode.handler.count": "4",
        "dfs.namenode.safemode.extension": "0",
        "dfs.namenode.accesstime.precision": "0",
        "dfs.client.block.write.replace-datanode-on-failure.enable": "false",
        "dfs.datanode.du.reserved": str(1024 * 1024 * 1024),
        "dfs.namenode.checkpoint.txns": "100000",
        # a thread that looks for blocks of deleted files: a hundred times a second by default
        "dfs.namenode.block.deletion.unlock.interval.ms": "200",
    }


def _site_options(context: StackContext, option: str) -> dict[str, str]:
    """Parse an option of the stack with lines NAME=VALUE."""
    lines = [line.partition("=") for line in context.options.get(option, "").splitlines() if line]
    return {name: value for name, _, value in lines}


def write_configuration(context: StackContext) -> Path:
    """Write the folder for HADOOP_CONF_DIR, shared by both servers and clients; returns its path. Idempotent."""
    folder = context.folder("hdfs") / "conf"
    for page in ("webapps/hdfs", "webapps/datanode"):  # the servers refuse to start without these
        (folder / page).mkdir(parents=True, exist_ok=True)
    core = {"fs.defaultFS": hdfs_uri(context), "hadoop.tmp.dir": str(context.temporary("hdfs"))}
    write_xml(folder / "core-site.xml", {**core, **_site_options(context, "core_site")})
    write_xml(folder / "hdfs-site.xml", {**_hdfs_site(context), **_site_options(context, "hdfs_site")})
    (folder / "log4j.properties").write_text(_LOG4J)
    return folder


def _java(context: StackContext, part: str, heap_mb: int, *arguments: str) -> ProcessCommand:
    conf = context.folder("hdfs") / "conf"
    argv = [
        str(context.java.program),
        *jvm_flags(heap_mb, context.temporary(part)),
        *context.archive_flags(part, context.jars / "hdfs"),
        "-XX:MaxDirectMemorySize=64m",
        f"-Dhadoop.log.dir={context.data / 'logs'}",
        f"-Dlog4j.configuration={(conf / 'log4j.properties').as_uri()}",
        "-cp",
        f"{context.jars / 'hdfs'}/*:{conf}",  # an archive of classes allows folders behind the jars only
        *arguments,
    ]
    return ProcessCommand(argv, {"HADOOP_CONF_DIR": str(conf)})


class NameNode(StackPart):
    """NameNode. Formats its folder at the first start."""

    name = "namenode"
    ports = MappingProxyType({"namenode.rpc": 8020, "namenode.http": 9870})
    jar_sets = ("hdfs",)
    memory_mb = 520

    def prepare(self, context: StackContext) -> list[ProcessCommand]:
        write_configuration(context)
        if (context.folder("hdfs") / "name" / "current" / "VERSION").exists():
            return []
        # -force: a format that was killed leaves a folder without VERSION, which holds no data yet
        tool = "org.apache.hadoop.hdfs.server.namenode.NameNode"
        return [_java(context, self.name, 128, tool, "-format", "-nonInteractive", "-force")]

    def command(self, context: StackContext) -> ProcessCommand:
        return _java(context, self.name, 160, "org.apache.hadoop.hdfs.server.namenode.NameNode")

    def check(self, context: StackContext) -> str:
        return "" if namenode_state(context.address("namenode.http")) else "the NameNode does not report its state yet"

    def addresses(self, context: StackContext) -> dict[str, str]:
        conf = context.folder("hdfs") / "conf"
        return {"ARTIMON_HDFS": hdfs_uri(context), "HADOOP_CONF_DIR": str(conf)}


class DataNode(StackPart):
    """DataNode. Healthy when the NameNode counts it, knows its free space and has left safe mode."""

    jar_sets = ("hdfs",)
    memory_mb = 560

    def __init__(self, number: int = 1) -> None:
        self.number, self.name = number, numbered_name("datanode", number)
        ports = {"data": 9866, "ipc": 9867, "http": 9864}
        self.ports = MappingProxyType({f"{self.name}.{what}": port + 10 * (number - 1) for what, port in ports.items()})

    def prepare(self, context: StackContext) -> list[ProcessCommand]:
        write_configuration(context)
        return []

    def command(self, context: StackContext) -> ProcessCommand:
        own = [word for name, value in self._own_settings(context).items() for word in ("-D", f"{name}={value}")]
        return _java(context, self.name, 160, "org.apache.hadoop.hdfs.server.datanode.DataNode", *own)

    def _own_settings(self, context: StackContext) -> dict[str, str]:
        """Return the settings that differ between the DataNodes of a stack."""
        return {
            "dfs.datanode.data.dir": f"file://{context.folder('hdfs') / numbered_name('data', self.number)}",
            "dfs.datanode.address": context.address(f"{self.name}.data"),
            "dfs.datanode.http.address": context.address(f"{self.name}.http"),
            "dfs.datanode.ipc.address": context.address(f"{self.name}.ipc"),
            "dfs.datanode.hostname": context.host(self.name).address,
            # both start at once: look for the NameNode every 0.1 s, as long as Hadoop does every second
            "ipc.client.connect.retry.interval": "100",
            "ipc.client.connect.max.retries": "100",
        }

    def check(self, context: StackContext) -> str:
        free = self._free_bytes(context)
        if free is None:
            return "the NameNode does not report this DataNode as live"
        if not free:
            # a DataNode reports its volumes with its first heartbeat: no block can be placed before
            return "the NameNode reports no free space on the DataNode yet"
        state = namenode_state(context.address("namenode.http"))
        return "" if state == "Operational" else f"the NameNode is in state {state}"

    def _free_bytes(self, context: StackContext) -> int | None:
        """Return the free bytes that the NameNode counts for this DataNode; None if it is not live."""
        told = request_jmx(context.address("namenode.http"), "service=NameNode,name=NameNodeInfo", "LiveNodes")
        here = context.address(f"{self.name}.data")
        found = (node for node in json.loads(told or "{}").values() if node.get("xferaddr") == here)
        return next((int(node.get("remaining", 0)) for node in found), None)
