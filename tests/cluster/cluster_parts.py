"""Parts of the cluster and the hosts that run them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from artimon.stack.artimon_parts import AgentPart, ApiPart, ArtimonPart, CollectorPart, CompactorPart, ShardPart
from artimon.stack.child_process import ProcessCommand
from artimon.stack.hdfs_parts import DataNode, NameNode
from artimon.stack.kafka_part import KafkaPart
from artimon.stack.stack_part import AGENT, EXAMPLES, StackContext, StackPart, numbered_name
from artimon.stack.zookeeper_part import ZooKeeperPart, zookeeper_address
from tests.cluster.yarn_parts import NodeManager, ResourceManager, YarnSpark

ROOT = Path(__file__).resolve().parents[2]
HOSTS = 3
SHARDS = 4
APPLICATIONS = 2
"""Applications of a host."""
LEDGERS = "ledgers"


def _python(context: StackContext, part: ArtimonPart, module: str, *arguments: str) -> ProcessCommand:
    argv = [sys.executable, "-P", "-m", module, *arguments, "--health", str(context.health(part.name))]
    return ProcessCommand(argv, {**part.environment(context), "PYTHONPATH": str(ROOT)})


class LedgerAgent(AgentPart):
    """The agent of a host, with a ledger of what its log accepted."""

    def command(self, context: StackContext) -> ProcessCommand:
        ledger = context.folder(LEDGERS) / f"{self.name}.ledger"
        return _python(context, self, "tests.cluster.ledger_agent", str(ledger), *self.arguments(context))


class HostLoad(ArtimonPart):
    """An agent under load on a host, tests/faults/load.py. Options: rate, sources, series, each of a host."""

    starts_after = ("zookeeper",)
    layer = AGENT
    memory_mb = 1024

    def __init__(self, number: int) -> None:
        self.number, self.name = number, numbered_name("load", number)

    def arguments(self, context: StackContext) -> list[str]:
        options = [word for name in ("rate", "sources", "series") for word in (f"--{name}", context.options[name])]
        own = ["--agents", "1", "--prefix", f"load-host-{self.number}", "--quota-mb", "2048"]
        return ["--zookeeper", zookeeper_address(context), "--data", str(context.folder(LEDGERS)), *options, *own]

    def command(self, context: StackContext) -> ProcessCommand:
        return _python(context, self, "tests.faults.load", *self.arguments(context))


class CountingApplication(StackPart):
    """An application of a host that counts 200 variables and writes its own final values at SIGUSR1."""

    starts_after = ("zookeeper",)
    layer = EXAMPLES
    memory_mb = 256

    def __init__(self, host: int, number: int) -> None:
        self.host, self.number, self.name = host, number, f"application-{host}-{number}"

    def final(self, context: StackContext) -> Path:
        """Return the file of the final values."""
        return context.folder(LEDGERS) / f"{self.name}.json"

    def command(self, context: StackContext) -> ProcessCommand:
        argv = [sys.executable, "-P", "-m", "tests.e2e.application", str(self.final(context)), str(10 * self.host)]
        own = {"ARTIMON_ZOOKEEPER": zookeeper_address(context), "ARTIMON_CONTEXT": f"counting-{self.number}"}
        dropin = {"ARTIMON_DROPIN": str(context.data / numbered_name("dropin", self.host))}
        return ProcessCommand(argv, {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **own, **dropin})

    def check(self, context: StackContext) -> str:
        return ""  # it serves its agent only; running is healthy


Placed = tuple[StackPart, int]


def cluster_parts() -> list[Placed]:
    """Return every part and the number of its host, in the order in which they start."""
    numbers = range(1, HOSTS + 1)
    return [
        *((ZooKeeperPart(n, HOSTS), n) for n in numbers),
        *((KafkaPart(n, HOSTS), n) for n in numbers),
        (NameNode(), 1),
        *((DataNode(n), n) for n in numbers),
        (ResourceManager(), 2),
        *((NodeManager(n), n) for n in numbers),
        *((ShardPart(n, SHARDS), 1 + n % HOSTS) for n in range(SHARDS)),
        (YarnSpark(), 2),
        (CompactorPart(), 3),
        *((CollectorPart(n), 2 + n) for n in range(2)),
        *((ApiPart(n), 2 * n - 1) for n in (1, 2)),
        *_agents(numbers),
    ]


def _agents(numbers: Sequence[int]) -> list[Placed]:
    """Return what every host has: agent, load, applications."""
    applications = [(CountingApplication(n, k), n) for n in numbers for k in range(APPLICATIONS)]
    return [*((LedgerAgent(n), n) for n in numbers), *((HostLoad(n), n) for n in numbers), *applications]
