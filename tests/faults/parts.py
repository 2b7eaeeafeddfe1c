"""Parts of the stack as the fault tests need them: with probes, a second driver, a second collector, and the load."""

from __future__ import annotations

import sys
from pathlib import Path

from artimon.stack.artimon_parts import ArtimonPart, CollectorPart, CompactorPart, ShardPart, SparkPart
from artimon.stack.child_process import ProcessCommand
from artimon.stack.stack_part import AGENT, StackContext, StackPart
from artimon.stack.zookeeper_part import zookeeper_address

ROOT = Path(__file__).resolve().parents[2]
ORDERS = "orders"
HDFS_PROXY = "hdfs_proxy"
"""Option of the stack: the driver's way to the NameNode, if not the direct one."""


def _python(part: ArtimonPart, context: StackContext, module: str, *arguments: str) -> ProcessCommand:
    argv = [sys.executable, "-P", "-m", module, *arguments, *part.arguments(context)]
    health = ["--health", str(context.health(part.name))]
    return ProcessCommand([*argv, *health], {**part.environment(context), "PYTHONPATH": str(ROOT)})


def _probed(part: ArtimonPart, context: StackContext) -> ProcessCommand:
    return _python(part, context, "tests.faults.probed", str(context.folder(ORDERS)), part.name)


class ProbedSpark(SparkPart):
    """The Spark application. It is never restarted for being silent: a stopped one must stay stopped."""

    hung_s = 3600.0

    def command(self, context: StackContext) -> ProcessCommand:
        return _probed(self, context)

    def arguments(self, context: StackContext) -> list[str]:
        words = super().arguments(context)
        if HDFS_PROXY in context.options:
            words[words.index("--hdfs") + 1] = context.options[HDFS_PROXY]
        return words


class SecondSpark(ProbedSpark):
    """Another driver of the same queries, with a folder of its own."""

    name = "spark-2"


class ProbedCompactor(CompactorPart):
    """The compactor, which looks often."""

    def command(self, context: StackContext) -> ProcessCommand:
        return _probed(self, context)

    def arguments(self, context: StackContext) -> list[str]:
        return [*super().arguments(context), "--interval", "2s"]


class Load(ArtimonPart):
    """Agents under load, tests/faults/load.py. Its options: rate, sources, series, quota_mb."""

    name = "load"
    starts_after = ("zookeeper",)
    layer = AGENT
    memory_mb = 3072

    def arguments(self, context: StackContext) -> list[str]:
        where = ["--zookeeper", zookeeper_address(context), "--data", str(context.folder(self.name))]
        for option in ("rate", "sources", "series", "quota_mb"):
            if option in context.options:
                where += [f"--{option.replace('_', '-')}", context.options[option]]
        return where

    def command(self, context: StackContext) -> ProcessCommand:
        return _python(self, context, "tests.faults.load")


def fault_parts(shards: int) -> list[StackPart]:
    """All parts but the servers, in their order."""
    return [
        *(ShardPart(number, shards) for number in range(shards)),
        *(ProbedSpark(), SecondSpark()),
        *(CollectorPart(), CollectorPart(1), ProbedCompactor(), Load()),
    ]
