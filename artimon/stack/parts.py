"""All parts of the default stack, in the order in which they start."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from artimon.stack.errors import UnknownPart
from artimon.stack.examples import Shop, ShopLoad
from artimon.stack.hdfs import DataNode, NameNode
from artimon.stack.kafka import Kafka
from artimon.stack.own import Agent, Alerts, Api, Collector, Compactor, MailServer, Shard, Spark
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
    "compactor": Compactor,
    "collector-0": Collector,
    "agent": Agent,
    "api": Api,
    "mail": MailServer,
    "alerts": Alerts,
}
ALL_PARTS = tuple(_MAKERS)
_EXAMPLES: dict[str, Callable[[], Part]] = {"shop": Shop, "shop-load": ShopLoad}
_KNOWN = {**_MAKERS, **_EXAMPLES}
GROUPS = {
    "hdfs": ("namenode", "datanode"),
    "base": ("zookeeper", "kafka", "namenode", "datanode"),
    "shards": ("shard-0", "shard-1"),
    "all": ALL_PARTS,
    "examples": tuple(_EXAMPLES),
}


def choose_parts(names: Iterable[str]) -> list[Part]:
    """The named parts and members of the named groups, in start order. Raises UnknownPart, ExampleMissing."""
    chosen = {member for name in names for member in GROUPS.get(name, (name,))}
    unknown = chosen - set(_KNOWN)
    if unknown:
        raise UnknownPart(min(unknown), sorted({*_KNOWN, *GROUPS}))
    return [make() for name, make in _KNOWN.items() if name in chosen]
