"""All parts of the default stack, in the order in which they start."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from artimon.stack.errors import UnknownPart
from artimon.stack.examples import Shop, ShopLoad
from artimon.stack.hdfs import DataNode, NameNode
from artimon.stack.kafka import Kafka, broker_name
from artimon.stack.own import Agent, Alerts, Api, Collector, Compactor, MailServer, Shard, Spark
from artimon.stack.part import Part
from artimon.stack.zookeeper import ZooKeeper

SHARDS = 2
MAX_SHARDS = 64
Makers = dict[str, Callable[[], Part]]
_HDFS: Makers = {"namenode": NameNode, "datanode": DataNode}
_AFTER: Makers = {
    "spark": Spark,
    "compactor": Compactor,
    "collector-0": Collector,
    "agent": Agent,
    "api": Api,
    "mail": MailServer,
    "alerts": Alerts,
}
_EXAMPLES: Makers = {"shop": Shop, "shop-load": ShopLoad}


def _shards(count: int, members: int) -> Makers:
    """Return constructors of the shards 0 to count - 1; the first `members` are members from the start."""
    return {f"shard-{number}": partial(Shard, number, members) for number in range(count)}


def _before(brokers: int) -> Makers:
    kafka = {broker_name(number): partial(Kafka, number, brokers) for number in range(1, brokers + 1)}
    return {"zookeeper": ZooKeeper, **kafka, **_HDFS}


ALL_PARTS = tuple({**_before(1), **_shards(SHARDS, SHARDS), **_AFTER})


def choose_parts(names: Iterable[str], shards: int = SHARDS, brokers: int = 1) -> list[Part]:
    """Return the named parts and members of the named groups, in start order. "all" and "shards" mean `shards` shards
    (others can be named); "all", "brokers" and "base" mean `brokers` brokers. Raises UnknownPart, ExampleMissing."""
    before = _before(brokers)
    usual = {**before, **_shards(shards, shards), **_AFTER}
    known = {**before, **_shards(MAX_SHARDS, shards), **_AFTER, **_EXAMPLES}
    groups = {
        "hdfs": ("namenode", "datanode"),
        "base": tuple(before),
        "brokers": tuple(name for name in before if name.startswith("kafka")),
        "shards": tuple(_shards(shards, shards)),
        "all": tuple(usual),
        "examples": tuple(_EXAMPLES),
    }
    chosen = {member for name in names for member in groups.get(name, (name,))}
    unknown = chosen - set(known)
    if unknown:
        raise UnknownPart(min(unknown), sorted({*usual, *_EXAMPLES, *groups}))
    return [make() for name, make in known.items() if name in chosen]
