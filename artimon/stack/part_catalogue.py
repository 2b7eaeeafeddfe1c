"""All parts of the default stack, in the order in which they start."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from artimon.stack.artimon_parts import (
    AgentPart,
    AlertsPart,
    ApiPart,
    CollectorPart,
    CompactorPart,
    MailServerPart,
    ShardPart,
    SparkPart,
)
from artimon.stack.example_parts import ShopLoadPart, ShopPart
from artimon.stack.hdfs_parts import DataNode, NameNode
from artimon.stack.kafka_part import KafkaPart, broker_name
from artimon.stack.stack_errors import UnknownPartError
from artimon.stack.stack_part import StackPart
from artimon.stack.zookeeper_part import ZooKeeperPart

SHARDS = 2
MAX_SHARDS = 64
PartFactories = dict[str, Callable[[], StackPart]]
_HDFS: PartFactories = {"namenode": NameNode, "datanode": DataNode}
_PROCESSES: PartFactories = {
    "spark": SparkPart,
    "compactor": CompactorPart,
    "collector-0": CollectorPart,
    "agent": AgentPart,
    "api": ApiPart,
    "mail": MailServerPart,
    "alerts": AlertsPart,
}
_EXAMPLES: PartFactories = {"shop": ShopPart, "shop-load": ShopLoadPart}


def _shard_factories(count: int, members: int) -> PartFactories:
    """Return constructors of the shards 0 to count - 1; the first `members` are members from the start."""
    return {f"shard-{number}": partial(ShardPart, number, members) for number in range(count)}


def _server_factories(brokers: int) -> PartFactories:
    kafka = {broker_name(number): partial(KafkaPart, number, brokers) for number in range(1, brokers + 1)}
    return {"zookeeper": ZooKeeperPart, **kafka, **_HDFS}


ALL_PARTS = tuple({**_server_factories(1), **_shard_factories(SHARDS, SHARDS), **_PROCESSES})


def choose_parts(names: Iterable[str], shards: int = SHARDS, brokers: int = 1) -> list[StackPart]:
    """Return the named parts and members of the named groups, in start order. "all" and "shards" mean `shards` shards
    (others can be named); "all", "brokers" and "base" mean `brokers` brokers. Raises UnknownPartError,
    ExampleMissingError."""
    before = _server_factories(brokers)
    usual = {**before, **_shard_factories(shards, shards), **_PROCESSES}
    known = {**before, **_shard_factories(MAX_SHARDS, shards), **_PROCESSES, **_EXAMPLES}
    groups = {
        "hdfs": ("namenode", "datanode"),
        "base": tuple(before),
        "brokers": tuple(name for name in before if name.startswith("kafka")),
        "shards": tuple(_shard_factories(shards, shards)),
        "all": tuple(usual),
        "examples": tuple(_EXAMPLES),
    }
    chosen = {member for name in names for member in groups.get(name, (name,))}
    unknown = chosen - set(known)
    if unknown:
        raise UnknownPartError(min(unknown), sorted({*usual, *_EXAMPLES, *groups}))
    return [make() for name, make in known.items() if name in chosen]
