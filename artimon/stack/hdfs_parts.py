"""HDFS on one machine: a NameNode and one DataNode, replication 1."""

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
from artimon.stack.stack_part import HOST, StackContext, StackPart

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


def request_jmx(port: int, bean: str, timeout_s: float = 3.0) -> dict[str, Any]:
    """Fetch one bean's attributes from a Hadoop server's /jmx page, {} if absent. Raises OSError, ValueError."""
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout_s)
    try:
        connection.request("GET", f"/jmx?qry={bean}")
        beans = json.loads(connection.getresponse().read(_ANSWER_LIMIT))["beans"]
    except http.client.HTTPException as problem:
        raise OSError(f"/jmx on port {port}: {problem!r}") from problem
    finally:
        connection.close()
    return dict(beans[0]) if beans else {}


def _write_xml(path: Path, values: Mapping[str, str]) -> None:
    rows = [f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in values.items()]
    path.write_text('<?xml version="1.0"?>\n<configuration>\n' + "\n".join(rows) + "\n</configuration>\n")


def _hdfs_site(context: StackContext) -> dict[str, str]:
    folder = context.folder("hdfs")
    return {
        "dfs.replication": "1",
        "dfs.namenode.name.dir": f"file://{folder / 'name'}",
        "dfs.datanode.data.dir": f"file://{folder / 'data'}",
        "dfs.namenode.rpc-address": context.address("namenode.rpc"),
        "dfs.namenode.http-address": context.address("namenode.http"),
        "dfs.datanode.address": context.address("datanode.data"),
        "dfs.datanode.http.address": context.address("datanode.http"),
        "dfs.datanode.ipc.address": context.address("datanode.ipc"),
        "dfs.datanode.hostname": HOST,
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
    }


def _heartbeat_options(context: StackContext, option: str) -> dict[str, str]:
    """Parse an option of the stack with lines NAME=VALUE."""
    lines = [line.partition("=") for line in context.options.get(option, "").splitlines() if line]
    return {name: value for name, _, value in lines}


def write_configuration(context: StackContext) -> Path:
    """Write the folder for HADOOP_CONF_DIR, shared by both servers and clients; returns its path. Idempotent."""
    folder = context.folder("hdfs") / "conf"
    for page in ("webapps/hdfs", "webapps/datanode"):  # the servers refuse to start without these
        (folder / page).mkdir(parents=True, exist_ok=True)
    core = {"fs.defaultFS": hdfs_uri(context), "hadoop.tmp.dir": str(context.temporary("hdfs"))}
    _write_xml(folder / "core-site.xml", {**core, **_heartbeat_options(context, "core_site")})
    _write_xml(folder / "hdfs-site.xml", {**_hdfs_site(context), **_heartbeat_options(context, "hdfs_site")})
    (folder / "log4j.properties").write_text(_LOG4J)
    return folder


def _java(context: StackContext, part: str, heap_mb: int, *arguments: str) -> ProcessCommand:
    conf = context.folder("hdfs") / "conf"
    argv = [
        str(context.java.program),
        *jvm_flags(heap_mb, context.temporary(part), small=part == "namenode"),
        "-XX:MaxDirectMemorySize=64m",
        f"-Dhadoop.log.dir={context.data / 'logs'}",
        "-cp",
        f"{conf}:{context.jars / 'hdfs'}/*",
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
        state = request_jmx(context.port("namenode.http"), "Hadoop:service=NameNode,name=FSNamesystemState")
        return "" if state.get("FSState") else "the NameNode does not report its state yet"

    def addresses(self, context: StackContext) -> dict[str, str]:
        conf = context.folder("hdfs") / "conf"
        return {"ARTIMON_HDFS": hdfs_uri(context), "HADOOP_CONF_DIR": str(conf)}


class DataNode(StackPart):
    """DataNode. Healthy when the NameNode counts it, knows its free space and has left safe mode."""

    name = "datanode"
    ports = MappingProxyType({"datanode.data": 9866, "datanode.ipc": 9867, "datanode.http": 9864})
    jar_sets = ("hdfs",)
    memory_mb = 560

    def prepare(self, context: StackContext) -> list[ProcessCommand]:
        write_configuration(context)
        return []

    def command(self, context: StackContext) -> ProcessCommand:
        return _java(context, self.name, 160, "org.apache.hadoop.hdfs.server.datanode.DataNode")

    def check(self, context: StackContext) -> str:
        state = request_jmx(context.port("namenode.http"), "Hadoop:service=NameNode,name=FSNamesystemState")
        if not state.get("NumLiveDataNodes"):
            return "the NameNode reports no live DataNode"
        if not state.get("CapacityRemaining"):
            # a DataNode reports its volumes with its first heartbeat: no block can be placed before
            return "the NameNode reports no free space on the DataNode yet"
        return "" if state.get("FSState") == "Operational" else f"the NameNode is in state {state.get('FSState')}"
