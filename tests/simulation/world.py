"""Processes and servers of one run, and the work left before they are at rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from artimon.model.batch import SeriesBlock, SeriesInfo
from artimon.model.hash_routing import ownership
from artimon.model.values import ValueType
from artimon.model.vshards import mask_of
from pipeline.spark.spark_settings import SparkConfig
from tests.simulation.agents import SimAgent
from tests.simulation.checks import Checks
from tests.simulation.collectors import SimCollector
from tests.simulation.kafka import SimKafka
from tests.simulation.network import Network
from tests.simulation.plan import PARTITIONS, SHARDS, SHEDDER, Plan, draw
from tests.simulation.scheduler import Scheduler
from tests.simulation.shards import Directory, SimShard
from tests.simulation.sources import Source
from tests.simulation.spark import FeedDriver, RawDriver
from tests.simulation.table import TableStore
from tests.simulation.zookeeper import SimZookeeper

SOURCES = 3
SHED_QUOTA = 17_000
"""Bytes of the log beyond which an agent gives up its oldest batches, in runs that have such an agent."""


@lru_cache(maxsize=1)
def halves() -> tuple[int, ...]:
    """Return the virtual shards of each shard."""
    owned = ownership([str(n) for n in range(SHARDS)])
    return tuple(mask_of(owned[str(n)]) for n in range(SHARDS))


class World:
    """Everything of one run."""

    def __init__(self, seed: int, trace: Callable[[str], None] | None = None, plan: Plan | None = None) -> None:
        self.scheduler = scheduler = Scheduler(seed, trace)
        self.plan = plan = plan or draw(scheduler.random)
        special = plan.specials
        self.kafka = SimKafka(scheduler, PARTITIONS)
        self.zookeeper = SimZookeeper(scheduler)
        self.store = TableStore(scheduler)
        self.network = Network(scheduler, plan.conditions)
        self.checks = Checks(self.kafka, self.store)
        self.store.on_append, self.zookeeper.on_write = self.checks.appended, self.checks.published
        self._tokens = 0
        self.happened: Counter[str] = Counter()
        """Special events that took effect, and crashes by role: a planned event may meet a process that is down."""
        self.healed = False
        quota = 14_000 if "quota" in special else 0
        self.config = SparkConfig(
            "sim", "sim", "sim://", Path("/nonexistent/simulation"), raw_interval_s=6.0, raw_messages=2_000,
            kafka_keep_s=20.0 if "trimmed" in special else 76 * 3600.0, kafka_quota_bytes=quota,
        )  # fmt: skip
        self.collectors = [
            SimCollector(n + 1, scheduler, self.kafka, self.zookeeper, self.network, quota)
            for n in range(plan.collectors)
        ]
        self.agents = [self._agent(n) for n in range(plan.agents)]
        self.shards = [
            SimShard(f"shard-{n}{side}", mask, scheduler, self.kafka, self.store)
            for n, mask in enumerate(halves())
            for side in "ab"
        ]
        self.directory = Directory(self.shards, self.kafka)
        self.raw = self.driver("raw")
        self.zombies: list[RawDriver] = []
        self.feed = FeedDriver(scheduler, self.kafka, self.directory, self.config, self._trouble)
        self.sources = [Source(self, agent, f"app/{agent.name}/{n}") for agent in self.agents for n in range(SOURCES)]

    def _agent(self, n: int) -> SimAgent:
        level = "kafka" if n == 0 and "level kafka" in self.plan.specials else "hdfs"
        sheds = n == SHEDDER and "sheds" in self.plan.specials
        if sheds:
            self.checks.shedders.add(f"agent-{n}")
        quota = 2_500 if n == 1 and "log full" in self.plan.specials else SHED_QUOTA if sheds else 1 << 20
        return SimAgent(f"agent-{n}", self.scheduler, self.network, self.zookeeper, self.checks, level, quota, sheds)

    def driver(self, name: str) -> RawDriver:
        """Return a process of the raw query, not started yet."""
        return RawDriver(name, self.scheduler, self.kafka, self.store, self.zookeeper, self.config)

    def _trouble(self) -> float:
        return 0.0 if self.healed else self.plan.feed_trouble

    # -- interface for sources

    def new_token(self) -> int:
        self._tokens += 1
        return self._tokens

    def announcement(self, source: str) -> tuple[SeriesBlock, ...]:
        """Return an announcement now and then; once in a while it cannot be encoded."""
        if not self.scheduler.chance(0.08):
            return ()
        series = (SeriesInfo(f'x{{a="{self._tokens}"}}', ValueType.INTEGER),) if self.scheduler.chance(0.9) else ()
        return (SeriesBlock(source, self._tokens, self.scheduler.now_ms, series),)

    # -- interface for the scenario

    def say(self, text: str) -> None:
        """Write one line of the trace."""
        if self.scheduler.tracing:
            self.scheduler.say(text)

    def unrest(self) -> str:
        """Return the first thing left to be done; empty at rest."""
        if any(source.left for source in self.sources):
            return f"{sum(source.left for source in self.sources)} polls are not accepted"
        for agent in self.agents:
            if not agent.idle:
                return f"{agent.name} waits for {agent.tracker.pending} acks"
        ends = self.kafka.ends()
        current = self.store.head[1].current
        if current is None or current.topic_id != self.kafka.samples_id or dict(current.until) != ends:
            return f"the table holds {current.until if current else {}} of {ends}"
        for shard in self.shards:
            if not shard.up or shard.groups.vshards != shard.vshards:
                return f"{shard.name} is not there"
            if shard.lacking:
                return f"{shard.name} lacks {shard.lacking}"
            for group in shard.groups:
                at = {key.partition: n for key, n in group.positions.items() if key.topic_id == self.kafka.samples_id}
                if {p: at.get(p, 0) for p in ends} != ends:
                    return f"{shard.name} holds {at} of {ends}"
        return ""
