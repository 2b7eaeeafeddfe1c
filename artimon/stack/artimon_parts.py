"""Artimon's own processes as parts of the stack: each is `python -m artimon.cli COMMAND` with a JSON health file."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime.health import read_health
from artimon.stack.child_process import ProcessCommand
from artimon.stack.kafka_part import kafka_address
from artimon.stack.stack_part import AGENT, HOST, OWN, StackContext, StackPart, numbered_name
from artimon.stack.zookeeper_part import zookeeper_address
from pipeline.control.signatures import create_key_file

HEALTH_STALE_MS = 20_000  # ten times the usual interval of 2 s, for a busy machine


def health_problem(context: StackContext, part: str) -> str:
    """Return "" if the part's health file is fresh and says "ok", else the problem."""
    health = read_health(context.health(part))
    if health is None:
        return "has not reported its health yet"
    age_ms = SYSTEM_CLOCK.now_ms() - health.time_ms
    if age_ms > HEALTH_STALE_MS:
        return f"has not reported its health for {age_ms / 1000:.0f} s"
    return "" if health.state == "ok" else f"{health.state}: {health.problem}"


def cli_arguments(options: Mapping[str, str], *names: str) -> list[str]:
    """Return command line arguments for the options `names`; each line of a value repeats the option."""
    given = ((name, value) for name in names for value in options.get(name, "").splitlines())
    return [word for name, value in given for word in (f"--{name.replace('_', '-')}", value)]


class ArtimonPart(StackPart):
    """Base of Artimon's own processes; subclasses define `arguments`. A stale health file counts as unhealthy."""

    starts_after: tuple[str, ...] = ("zookeeper", "kafka")
    layer = OWN
    stop_s = 15.0

    def arguments(self, context: StackContext) -> list[str]:
        """Return the command line after `artimon`, without --health."""
        raise NotImplementedError

    def prepare(self, context: StackContext) -> list[ProcessCommand]:
        health = context.health(self.name)
        health.parent.mkdir(parents=True, exist_ok=True)
        health.unlink(missing_ok=True)  # the health of an earlier process must not count for the next one
        return []

    def environment(self, context: StackContext) -> dict[str, str]:
        """Return additions to the environment of the process."""
        return {"PYTHONUNBUFFERED": "1", "TMPDIR": str(context.temporary(self.name))}

    def command(self, context: StackContext) -> ProcessCommand:
        module = [sys.executable, "-P", "-m", "artimon.cli"]
        argv = [*module, *self.arguments(context), "--health", str(context.health(self.name))]
        return ProcessCommand(argv, self.environment(context))

    def check(self, context: StackContext) -> str:
        return health_problem(context, self.name)


def _servers(context: StackContext, *names: str) -> list[str]:
    """Return options that name servers: those of this stack, else those of the settings."""
    settings = context.settings
    known = {
        "zookeeper": zookeeper_address(context) or settings.zookeeper,
        "kafka": kafka_address(context) or settings.kafka,
        "hdfs": f"hdfs://{namenode}" if (namenode := context.server("namenode.rpc")) else settings.hdfs,
    }
    return [word for name in names for word in (f"--{name}", known[name])]


def _quota(context: StackContext) -> list[str]:
    return ["--kafka-quota", str(context.settings.kafka_quota_bytes)]


def _engine_token(context: StackContext) -> Path | None:
    """Return the file with the token by which this stack's API acts at its alert engine; None without an access file.
    The file is made if it is missing."""
    if not context.options.get("access"):
        return None
    path = context.data / "alerts.token"
    if not path.exists():
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
            file.write(f"{secrets.token_urlsafe(32)}\n")
    return path


def _listen(context: StackContext, part: str, **options: str) -> list[str]:
    """Return the arguments for the ports of a part, `options` by the port's name, and for a host beyond loopback its
    address."""
    ports = [word for name, option in options.items() for word in (option, str(context.port(f"{part}.{name}")))]
    address = context.host(part).address
    return ports if address == HOST else [*ports, "--host", address, "--insecure"]


class CollectorPart(ArtimonPart):
    """A collector."""

    memory_mb = 512

    def __init__(self, number: int = 0) -> None:
        self.name = f"collector-{number}"
        self.ports = MappingProxyType({f"{self.name}.rpc": 8710 + number})

    def arguments(self, context: StackContext) -> list[str]:
        servers, ports = _servers(context, "zookeeper", "kafka"), _listen(context, self.name, rpc="--port")
        return ["collector", "--id", self.name, *servers, *ports, *_quota(context)]


class AgentPart(ArtimonPart):
    """The agent of a machine."""

    starts_after = ("zookeeper",)
    layer = AGENT
    memory_mb = 1024

    def __init__(self, number: int = 1) -> None:
        self.number, self.name = number, numbered_name("agent", number)
        self.ports = MappingProxyType({f"{self.name}.receive": 8730 + number - 1})

    def _receiver(self, context: StackContext) -> str:
        """Return the address for senders, of this machine only: they have no token."""
        return f"{HOST}:{context.port(f'{self.name}.receive')}"

    def _dropin(self, context: StackContext) -> Path:
        return context.data / numbered_name("dropin", self.number)

    @staticmethod
    def _keys(context: StackContext) -> Path:
        """Return the key file of this stack's operator; only the user who started the stack may read it."""
        return context.data / "config.keys"

    def prepare(self, context: StackContext) -> list[ProcessCommand]:
        self._dropin(context).mkdir(parents=True, exist_ok=True)
        keys = self._keys(context)
        if not keys.exists():
            create_key_file(keys, "stack")
        return super().prepare(context)

    def addresses(self, context: StackContext) -> dict[str, str]:
        return {
            "ARTIMON_DROPIN": str(self._dropin(context)),
            "ARTIMON_RECEIVE": f"http://{self._receiver(context)}",
            "ARTIMON_CONFIG_KEYS": str(self._keys(context)),
        }

    def arguments(self, context: StackContext) -> list[str]:
        return [
            *("agent", "--name", numbered_name(context.options.get("agent_name", "local"), self.number)),
            *_servers(context, "zookeeper"),
            *("--data", str(context.folder(self.name)), "--dropin", str(self._dropin(context))),
            *("--sources", str(context.data / "sources.yaml"), "--keys", str(self._keys(context))),
            *("--receive", self._receiver(context)),
            *cli_arguments(context.options, "poll", "level", "keep_class"),
            *(_bean_servers(context) if self.number == 1 else ()),
        ]


def _bean_servers(context: StackContext) -> list[str]:
    """Return options that name the JMX pages of this stack's HDFS."""
    servers = {"hdfs-namenode": context.server("namenode.http"), "hdfs-datanode": context.server("datanode.http")}
    return [word for name, place in servers.items() if place for word in ("--jmx", f"{name}=http://{place}/jmx")]


class ShardPart(ArtimonPart):
    """One varstore process. Shards 0 to `members` - 1 are the members of a new cluster."""

    memory_mb = 1536
    stop_s = 30.0  # it takes a last snapshot

    def __init__(self, number: int, members: int) -> None:
        self.number, self.members = number, members
        self.name = f"shard-{number}"
        first = 8720 if number < 5 else 8795
        self.ports = MappingProxyType({f"{self.name}.rpc": first + number})

    def arguments(self, context: StackContext) -> list[str]:
        members = ",".join(str(number) for number in range(self.members))
        servers = _servers(context, "zookeeper", "kafka", *(("hdfs",) if context.server("namenode.rpc") else ()))
        return [
            *("shard", "--id", str(self.number), "--members", members, *servers),
            *("--data", str(context.folder(self.name)), *_listen(context, self.name, rpc="--port")),
            *("--sharing", str(self.members), *cli_arguments(context.options, "replicas", "capacity", "memory")),
        ]


class ApiPart(ArtimonPart):
    """HTTP and Thrift API. Without shards it runs too, and reports that there are none."""

    starts_after = ("zookeeper",)
    memory_mb = 512

    def __init__(self, number: int = 1) -> None:
        self.name = numbered_name("api", number)
        ports = {"http": 8780, "thrift": 8781}
        self.ports = MappingProxyType({f"{self.name}.{what}": port + 10 * (number - 1) for what, port in ports.items()})

    def arguments(self, context: StackContext) -> list[str]:
        ports = _listen(context, self.name, http="--port", thrift="--thrift-port")
        folders = ("--data", str(context.data), "--dashboards", str(context.data / "dashboards"))
        access, token = cli_arguments(context.options, "access"), _engine_token(context)
        access += ["--alerts-token", str(token)] if token else []
        return ["api", "--id", self.name, *_servers(context, "zookeeper"), *folders, *ports, *access]

    def addresses(self, context: StackContext) -> dict[str, str]:
        http, thrift = context.address(f"{self.name}.http"), context.address(f"{self.name}.thrift")
        scheme = context.options.get("api_scheme", "http")
        return {"ARTIMON_API": f"{scheme}://{http}", "ARTIMON_MATRIX": thrift}


class MailServerPart(ArtimonPart):
    """Local SMTP server, which keeps every mail in the data folder."""

    name = "mail"
    starts_after = ()
    ports = MappingProxyType({"mail.smtp": 8725})
    memory_mb = 256

    def arguments(self, context: StackContext) -> list[str]:
        port = str(context.port("mail.smtp"))
        return ["smtp", *_servers(context, "zookeeper"), "--port", port, "--data", str(context.data)]

    def addresses(self, context: StackContext) -> dict[str, str]:
        return {"ARTIMON_SMTP": context.address("mail.smtp")}


class AlertsPart(ArtimonPart):
    """Alert engine. A new stack gets the shipped example rules; later the folder belongs to its owner."""

    name = "alerts"
    starts_after = ("zookeeper",)
    ports = MappingProxyType({"alerts.http": 8782})
    memory_mb = 768

    def prepare(self, context: StackContext) -> list[ProcessCommand]:
        from alerts.rules.rule_folder import seed_rules

        seed_rules(context.folder(self.name) / "rules")
        return super().prepare(context)

    def arguments(self, context: StackContext) -> list[str]:
        folder, page = context.folder(self.name), context.server("api.http")
        return [
            *("alerts", *_servers(context, "zookeeper"), "--rules", str(folder / "rules"), "--data", str(folder)),
            *("--smtp", context.server("mail.smtp") or context.settings.smtp),
            *("--link", f"{context.options.get('api_scheme', 'http')}://{page}" if page else context.settings.api),
            *("--port", str(context.port("alerts.http"))),
            *("--recordings", str(context.data / numbered_name("dropin", 1))),
            *(("--api-token", str(token)) if (token := _engine_token(context)) else ()),
        ]

    def addresses(self, context: StackContext) -> dict[str, str]:
        token = _engine_token(context)
        return {"ARTIMON_TOKEN_FILE": str(token)} if token else {}


class SparkPart(ArtimonPart):
    """Spark application with both queries: a Python driver, its JVM, its Python workers. It waits for the servers after
    the start of its JVM, which takes as long as theirs."""

    name = "spark"
    starts_after: tuple[str, ...] = ()
    jar_sets = ("spark",)
    memory_mb = 4096
    stop_s = 20.0

    def arguments(self, context: StackContext) -> list[str]:
        jars = ",".join(str(jar) for jar in sorted((context.jars / "spark").glob("*.jar")))
        return [
            *("spark", *_servers(context, "zookeeper", "kafka", "hdfs"), "--data", str(context.folder("spark"))),
            *("--jars", jars, *cli_arguments(context.options, "master", "driver_memory", "raw_interval")),
            *_quota(context),
        ]

    def environment(self, context: StackContext) -> dict[str, str]:
        launcher = [
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            *context.archive_flags("launcher", context.spark_jars),
        ]
        spark = {
            "JAVA_HOME": str(context.java.home),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(context.temporary(self.name)),
            "SPARK_HOME": str(context.spark_jars.parent),  # else the scripts of Spark start Python to search for it
            "SPARK_LAUNCHER_OPTS": " ".join(launcher),  # of the JVM that makes a command line
            **({"ARTIMON_RECORD_CLASSES": "1"} if context.settings.recording_classes else {}),
        }
        return {**super().environment(context), **spark}


class CompactorPart(ArtimonPart):
    """Compaction and expiry of the raw table, at the lowest priority."""

    name = "compactor"
    starts_after = ("zookeeper", "datanode")
    memory_mb = 1024

    def arguments(self, context: StackContext) -> list[str]:
        data = str(context.folder("compactor"))
        servers, keep = _servers(context, "zookeeper", "hdfs"), cli_arguments(context.options, "keep")
        return ["compactor", *servers, "--data", data, *keep]
