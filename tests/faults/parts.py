"""Parts of the stack as the fault tests need them: with probes, a second driver, a second collector, and the load."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from artimon.stack.own import Collector, Compactor, OwnPart, Shard, Spark
from artimon.stack.part import AGENT, Context, Part
from artimon.stack.process import Command

ROOT = Path(__file__).resolve().parents[2]
ORDERS = "orders"
HDFS_PROXY = "hdfs_proxy"
"""Option of the stack: the driver's way to the NameNode, if not the direct one."""


def _python(part: OwnPart, context: Context, module: str, *arguments: str) -> Command:
    argv = [sys.executable, "-P", "-m", module, *arguments, *part.arguments(context)]
    health = ["--health", str(context.health(part.name))]
    return Command([*argv, *health], {**part.environment(context), "PYTHONPATH": str(ROOT)})


def _probed(part: OwnPart, context: Context) -> Command:
    return _python(part, context, "tests.faults.probed", str(context.folder(ORDERS)), part.name)


class ProbedSpark(Spark):
    """The Spark application. It is never restarted for being silent: a stopped one must stay stopped."""

    hung_s = 3600.0

    def command(self, context: Context) -> Command:
        return _probed(self, context)

    def arguments(self, context: Context) -> list[str]:
        words = super().arguments(context)
        if HDFS_PROXY in context.options:
            words[words.index("--hdfs") + 1] = context.options[HDFS_PROXY]
        return words


class SecondSpark(ProbedSpark):
    """Another driver of the same queries, with a folder of its own."""

    name = "spark-2"


class ProbedCompactor(Compactor):
    """The compactor, which looks often."""

    def command(self, context: Context) -> Command:
        return _probed(self, context)

    def arguments(self, context: Context) -> list[str]:
        return [*super().arguments(context), "--interval", "2s"]


class SecondCollector(Collector):
    """So that agents have somewhere to go when one is killed."""

    name = "collector-1"
    ports = MappingProxyType({"collector-1.rpc": 8711})

    def arguments(self, context: Context) -> list[str]:
        ports = {**context.ports, "collector-0.rpc": context.port("collector-1.rpc")}
        words = super().arguments(replace(context, ports=ports))
        words[words.index("--id") + 1] = self.name
        return words


class Load(OwnPart):
    """Agents under load, tests/faults/load.py. Its options: rate, sources, series, quota_mb."""

    name = "load"
    after = ("zookeeper",)
    layer = AGENT
    memory_mb = 3072

    def arguments(self, context: Context) -> list[str]:
        where = ["--zookeeper", context.address("zookeeper.client"), "--data", str(context.folder(self.name))]
        for option in ("rate", "sources", "series", "quota_mb"):
            if option in context.options:
                where += [f"--{option.replace('_', '-')}", context.options[option]]
        return where

    def command(self, context: Context) -> Command:
        return _python(self, context, "tests.faults.load")


def fault_parts(shards: int) -> list[Part]:
    """All parts but the servers, in their order."""
    return [
        *(Shard(number, shards) for number in range(shards)),
        *(ProbedSpark(), SecondSpark()),
        *(Collector(), SecondCollector(), ProbedCompactor(), Load()),
    ]
