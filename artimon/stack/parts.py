"""All parts of the default stack, in the order in which they start."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from artimon.stack.errors import UnknownPart
from artimon.stack.hdfs import DataNode, NameNode
from artimon.stack.kafka import Kafka
from artimon.stack.own import Agent, Api, Collector, Shard, Spark
from artimon.stack.part import Part
from artimon.stack.zookeeper import ZooKeeper

SHARDS = 2
_MAKERS: dict[str, Callable[[], Part]] = {
    "zookeeper": ZooKeeper,
    "kafka": Kafka,
    "namenode": NameNode,
    "datanode": DataNode,
    "shard-0": lambda: Shard(0, SHARDS),
    "shard-1": lambda: Shard(1, SHARDS),
    "spark": Spark,
    "collector-0": Collector,
    "agent": Agent,
    "api": Api,
}
ALL_PARTS = tuple(_MAKERS)
GROUPS = {
    "hdfs": ("namenode", "datanode"),
    "base": ("zookeeper", "kafka", "namenode", "datanode"),
    "shards": ("shard-0", "shard-1"),
    "all": ALL_PARTS,
}


def choose_parts(names: Iterable[str]) -> list[Part]:
    """The named parts and members of the named groups, in start order. Raises UnknownPart."""
    chosen = {member for name in names for member in GROUPS.get(name, (name,))}
    unknown = chosen - set(ALL_PARTS)
    if unknown:
        raise UnknownPart(min(unknown), sorted({*ALL_PARTS, *GROUPS}))
    return [make() for name, make in _MAKERS.items() if name in chosen]
