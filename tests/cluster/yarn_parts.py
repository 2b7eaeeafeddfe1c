"""YARN for the cluster of the tests: a ResourceManager, NodeManagers, and the Spark application in cluster mode."""

from __future__ import annotations

import http.client
import json
import sys
from pathlib import Path
from types import MappingProxyType
from typing import Any

import artimon
from artimon.stack.artimon_parts import SparkPart
from artimon.stack.child_process import ProcessCommand
from artimon.stack.hdfs_parts import write_configuration, write_xml
from artimon.stack.java import jvm_flags
from artimon.stack.kafka_part import kafka_address
from artimon.stack.stack_part import StackContext, StackPart, numbered_name
from artimon.stack.zookeeper_part import zookeeper_address

MANAGER = "resourcemanager"
LOCK = Path(__file__).with_name("yarn.lock")
ROOT = Path(__file__).resolve().parents[2]
NODE_MB = 3072
_SERVER = "org.apache.hadoop.yarn.server"
_ANSWER_LIMIT = 1 << 20


def request_manager(address: str, path: str, timeout_s: float = 3.0) -> dict[str, Any]:
    """Ask the ResourceManager's HTTP interface. Raises OSError, ValueError."""
    connection = http.client.HTTPConnection(address, timeout=timeout_s)
    try:
        connection.request("GET", f"/ws/v1/cluster/{path}", headers={"Accept": "application/json"})
        found: dict[str, Any] = json.loads(connection.getresponse().read(_ANSWER_LIMIT))
    except http.client.HTTPException as problem:
        raise OSError(f"{address}: {problem!r}") from problem
    finally:
        connection.close()
    return found


def _yarn_site(context: StackContext) -> dict[str, str]:
    addresses = {"": "client", ".scheduler": "scheduler", ".resource-tracker": "tracker", ".admin": "admin"}
    manager = {
        f"yarn.resourcemanager{kind}.address": context.address(f"{MANAGER}.{port}") for kind, port in addresses.items()
    }
    return {
        **manager,
        "yarn.resourcemanager.webapp.address": context.address(f"{MANAGER}.http"),
        "yarn.resourcemanager.am.max-attempts": "100",
        # applications outlive the manager
        "yarn.resourcemanager.recovery.enabled": "true",
        "yarn.resourcemanager.store.class": f"{_SERVER}.resourcemanager.recovery.FileSystemRMStateStore",
        "yarn.resourcemanager.fs.state-store.uri": f"file://{context.folder(MANAGER)}/state",
        # a host that is gone is noticed after 20 s; the default is ten minutes
        "yarn.nm.liveness-monitor.expiry-interval-ms": "20000",
        "yarn.scheduler.minimum-allocation-mb": "128",
        "yarn.nodemanager.resource.memory-mb": str(NODE_MB),
        "yarn.nodemanager.resource.cpu-vcores": "8",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.5",
        "yarn.nodemanager.container-executor.os.sched.priority.adjustment": "0",
    }


def write_yarn_configuration(context: StackContext) -> Path:
    """Write the folder for HADOOP_CONF_DIR with HDFS and YARN; returns its path. Idempotent."""
    hdfs, folder = write_configuration(context), context.folder("yarn") / "conf"
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("core-site.xml", "hdfs-site.xml", "log4j.properties"):
        (folder / file).write_text((hdfs / file).read_text())
    write_xml(folder / "yarn-site.xml", _yarn_site(context))
    write_xml(folder / "capacity-scheduler.xml", _CAPACITY)
    return folder


_CAPACITY = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "0.9",
    "yarn.scheduler.capacity.resource-calculator": "org.apache.hadoop.yarn.util.resource.DefaultResourceCalculator",
    "yarn.scheduler.capacity.node-locality-delay": "-1",
}


class YarnPart(StackPart):
    """Base of both servers."""

    jar_sets = ("hdfs",)
    memory_mb = 640
    program = ""

    def prepare(self, context: StackContext) -> list[ProcessCommand]:
        write_yarn_configuration(context)
        return []

    def settings(self, context: StackContext) -> dict[str, str]:
        """Return what differs between the servers of a kind."""
        return {}

    def command(self, context: StackContext) -> ProcessCommand:
        conf = context.folder("yarn") / "conf"
        own = [word for name, value in self.settings(context).items() for word in ("-D", f"{name}={value}")]
        argv = [
            str(context.java.program),
            *jvm_flags(160, context.temporary(self.name)),
            *("--add-opens", "java.base/java.lang=ALL-UNNAMED"),
            f"-Dyarn.log.dir={context.data / 'logs'}",
            *("-cp", f"{conf}:{context.jars / 'yarn'}/*:{context.jars / 'hdfs'}/*"),
            *(self.program, *own),
        ]
        return ProcessCommand(argv, {"HADOOP_CONF_DIR": str(conf), "JAVA_HOME": str(context.java.home)})


class ResourceManager(YarnPart):
    """ResourceManager; its state is on the local disk, so that applications outlive its restarts."""

    name = MANAGER
    ports = MappingProxyType(
        {f"{MANAGER}.{what}": 8030 + n for n, what in enumerate(("scheduler", "tracker", "client", "admin"))}
        | {f"{MANAGER}.http": 8088}
    )
    program = f"{_SERVER}.resourcemanager.ResourceManager"

    def check(self, context: StackContext) -> str:
        state = request_manager(context.address(f"{MANAGER}.http"), "info")["clusterInfo"]["state"]
        return "" if state == "STARTED" else f"is in state {state}"


class NodeManager(YarnPart):
    """NodeManager. Healthy when the ResourceManager counts it as running. Its containers have sessions of their own."""

    program = f"{_SERVER}.nodemanager.NodeManager"
    starts_after = (MANAGER,)
    memory_mb = 1024

    def __init__(self, number: int = 1) -> None:
        self.name = numbered_name("nodemanager", number)
        ports = {"rpc": 8041, "localizer": 8040, "http": 8042, "collector": 8048}
        self.ports = MappingProxyType({f"{self.name}.{what}": port + 10 * number for what, port in ports.items()})

    def settings(self, context: StackContext) -> dict[str, str]:
        folder = context.folder(self.name)
        return {
            "yarn.nodemanager.address": context.address(f"{self.name}.rpc"),
            "yarn.nodemanager.localizer.address": context.address(f"{self.name}.localizer"),
            "yarn.nodemanager.webapp.address": context.address(f"{self.name}.http"),
            "yarn.nodemanager.collector-service.address": context.address(f"{self.name}.collector"),
            "yarn.nodemanager.local-dirs": str(folder / "local"),
            "yarn.nodemanager.log-dirs": str(folder / "logs"),
        }

    def check(self, context: StackContext) -> str:
        nodes = (request_manager(context.address(f"{MANAGER}.http"), "nodes")["nodes"] or {}).get("node", [])
        port = context.port(f"{self.name}.rpc")
        states = [node["state"] for node in nodes if node["id"].endswith(f":{port}")]
        return "" if "RUNNING" in states else f"the ResourceManager counts it as {states or 'absent'}"


class YarnSpark(SparkPart):
    """The Spark application in cluster mode: the part itself only submits it, and again if none runs. Healthy by the
    health file of the driver, which it writes to the disk that all hosts here share.

    With `before` it runs the packages of that archive instead of its own, until it is `upgraded` and restarted."""

    before: Path | None = None
    upgraded = False
    starts_after = ("zookeeper", "kafka", "datanode", "nodemanager")
    memory_mb = 768
    start_s = hung_s = 3600.0  # YARN starts the driver again

    def command(self, context: StackContext) -> ProcessCommand:
        manager = context.address(f"{MANAGER}.http")
        argv = [sys.executable, "-P", "-m", "tests.cluster.yarn_submission", manager, *self._submit(context)]
        conf = str(context.folder("yarn") / "conf")
        own = {
            "HADOOP_CONF_DIR": conf,
            "SPARK_SUBMIT_OPTS": "-Xmx192m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "PYTHONPATH": str(ROOT),
            "JAVA_HOME": str(context.java.home),
            "SPARK_LOCAL_IP": context.host(self.name).address,
        }
        return ProcessCommand(argv, own)

    def _submit(self, context: StackContext) -> list[str]:
        words = [
            *("--zookeeper", zookeeper_address(context), "--kafka", kafka_address(context)),
            *("--hdfs", f"hdfs://{context.address('namenode.rpc')}", "--data", "./artimon-spark"),
            *("--health", str(context.health(self.name)), "--raw-interval", context.options["raw_interval"]),
        ]
        file = Path(artimon.__file__).with_name("submit.py")
        return [
            str(context.spark_jars.parent / "bin" / "spark-submit"),
            *("--properties-file", str(self._write_properties(context)), str(file), *words),
        ]

    def _write_properties(self, context: StackContext) -> Path:
        python = str(Path(sys.executable).resolve())
        archives, path = [f"{context.data / 'environment.tar.gz'}#env"], "./env"
        if self.before is not None and not self.upgraded:
            archives, path = [*archives, f"{self.before}#before"], "./before:./env"
        jars = [f"local:{jar}" for jar in sorted((context.jars / "spark").glob("*.jar"))]
        settings = {
            "spark.master": "yarn",
            "spark.submit.deployMode": "cluster",
            "spark.yarn.submit.waitAppCompletion": "false",
            "spark.yarn.maxAppAttempts": "100",
            "spark.yarn.am.waitTime": "600s",  # for the driver to start, on a busy machine
            "spark.executor.failuresValidityInterval": "60s",
            "spark.yarn.jars": f"local:{context.spark_jars}/*",
            "spark.yarn.archive.replication": "2",
            "spark.yarn.scheduler.heartbeat.interval-ms": "1000",
            "spark.jars": ",".join(jars),
            "spark.yarn.dist.archives": ",".join(archives),
            "spark.pyspark.python": python,
            "spark.yarn.appMasterEnv.PYTHONPATH": path,
            "spark.executorEnv.PYTHONPATH": path,
            "spark.yarn.appMasterEnv.PYTHONUNBUFFERED": "1",
            "spark.driver.memory": "512m",
            "spark.driver.memoryOverhead": "768m",
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss4m",
            "spark.executor.instances": "2",
            "spark.executor.cores": "2",
            "spark.executor.memory": "512m",
            "spark.executor.memoryOverhead": "1g",
        }
        file = context.folder(self.name) / "yarn.properties"
        file.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        return file
