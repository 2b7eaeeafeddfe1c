"""One run: every process, what the plan does to them, and the way back to rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from artimon.model.batch import SeriesBlock, SeriesInfo
from artimon.model.routing import ownership
from artimon.model.values import ValueType
from artimon.model.vshards import mask_of
from artimon.simulation.agents import SimAgent
from artimon.simulation.checks import Checks
from artimon.simulation.collectors import SimCollector
from artimon.simulation.crashes import Crashes
from artimon.simulation.kafka import SimKafka
from artimon.simulation.network import Conditions, Network
from artimon.simulation.plan import (
    AGENTS,
    BATCHES,
    COLLECTORS,
    LAST_OFFER_S,
    MAIN_S,
    PARTITIONS,
    ROLES,
    SHARDS,
    Plan,
    draw,
)
from artimon.simulation.scheduler import Scheduler, Violation
from artimon.simulation.shards import Directory, SimShard
from artimon.simulation.sources import Source
from artimon.simulation.spark import FeedDriver, RawDriver
from artimon.simulation.table import TableStore
from artimon.simulation.troubles import SHEDDER, Troubles
from artimon.simulation.zookeeper import SimZookeeper
from pipeline.spark.config import SparkConfig

REST_S = 1_500.0
"""So long after the last fault all must have come to rest."""
DAY_S = 86_400.0
CHECK_S = 2.0
SOURCES = 3
SHED_QUOTA = 17_000
"""Bytes of the log beyond which an agent gives up its oldest batches, in runs that have one that does."""


@lru_cache(maxsize=1)
def halves() -> tuple[int, ...]:
    """The virtual shards of each shard."""
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
        """Special events that took effect, and crashes by role: what is planned may meet a process that is down."""
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
        self.crashes, self.troubles = Crashes(self), Troubles(self)
        self.sources = [Source(self, agent, f"app/{agent.name}/{n}") for agent in self.agents for n in range(SOURCES)]

    def _agent(self, n: int) -> SimAgent:
        level = "kafka" if n == 0 and "level kafka" in self.plan.specials else "hdfs"
        sheds = n == SHEDDER and "sheds" in self.plan.specials
        if sheds:
            self.checks.shedders.add(f"agent-{n}")
        quota = 2_500 if n == 1 and "log full" in self.plan.specials else SHED_QUOTA if sheds else 1 << 20
        return SimAgent(f"agent-{n}", self.scheduler, self.network, self.zookeeper, self.checks, level, quota, sheds)

    def driver(self, name: str) -> RawDriver:
        """A process of the raw query, not started yet."""
        return RawDriver(name, self.scheduler, self.kafka, self.store, self.zookeeper, self.config)

    def _trouble(self) -> float:
        return 0.0 if self.healed else self.plan.feed_trouble

    # -- what sources need

    def new_token(self) -> int:
        self._tokens += 1
        return self._tokens

    def announcement(self, source: str) -> tuple[SeriesBlock, ...]:
        """Now and then a source says what its series are; once in a while it says nonsense."""
        if not self.scheduler.chance(0.08):
            return ()
        series = (SeriesInfo(f'x{{a="{self._tokens}"}}', ValueType.INTEGER),) if self.scheduler.chance(0.9) else ()
        return (SeriesBlock(source, self._tokens, self.scheduler.now_ms, series),)

    # -- the run

    def run(self) -> None:
        """Start, disturb, heal, rest, check. Raises Violation."""
        scheduler = self.scheduler
        for collector in self.collectors:
            collector.start()
        for agent in self.agents:
            agent.start()
        for shard in self.shards:
            shard.start()
        self.raw.start()
        self.feed.start()
        self._plan_offers()
        self._plan_faults()
        scheduler.run(MAIN_S)
        self.crashes.make_up()
        self.heal()
        self.rest()
        if "late" in self.plan.specials:
            self._a_day_later()
            self.rest()
        self.happened["sheds"] += len(self.checks.shed)
        self.checks.at_the_end(self.shards)
        self._check_logs()
        self._check_size()

    def _plan_offers(self) -> None:
        chance = self.scheduler.random
        for n in range(self.plan.batches):
            source = self.sources[n % len(self.sources)]
            source.left += 1
            old = n == 3 and "old" in self.plan.specials
            self.scheduler.later(0.5 + chance.random() * LAST_OFFER_S, lambda source=source, old=old: source.poll(old))  # type: ignore[misc]

    def _plan_faults(self) -> None:
        for at, role in self.plan.crashes:
            self.scheduler.later(at, getattr(self.crashes, f"crash_{role}"))
        for name in sorted(self.plan.specials):
            event = getattr(self.troubles, name.replace(" ", "_"), None)
            if event is not None:
                self.scheduler.later(5 + self.scheduler.random.random() * (MAIN_S - 25), event)
        for _ in range(3):
            self.scheduler.later(5 + self.scheduler.random.random() * MAIN_S, self.troubles.snapshot)

    def say(self, text: str) -> None:
        if self.scheduler.tracing:
            self.scheduler.say(text)

    # -- back to rest

    def heal(self) -> None:
        """All faults end."""
        if "emptied" in self.plan.specials:
            self.troubles.empty()
        self.say("all faults end")
        self.healed = True
        self.network.conditions = Conditions()
        self.network.partitioned.clear()
        self.troubles.cut_off()
        self.kafka.down = self.zookeeper.down = self.store.down = False
        self.kafka.slow = 0.0
        self.store.faults.clear()
        for log in self.kafka.samples:
            for stored in log.records:
                stored.hidden = 0
            if "hidden" in self.plan.specials:  # only what comes after it shows that a message did not come
                log.append(self.scheduler.now_ms, b"the end")
        for agent in self.agents:
            agent.disk.full = agent.disk.no_more_files = False
            agent.disk.dies_after = agent.disk.fails_after = None
        for zombie in self.zombies:
            zombie.kill()
        for driver in (self.raw, *self.zombies):
            driver.at_point.clear()
        for shard in self.shards:
            shard.hangs = False

    def rest(self) -> None:
        """Until nothing is left to be done. Raises Violation if that takes too long."""
        until = self.scheduler.now + REST_S
        while not self.is_at_rest():
            if self.scheduler.now > until:
                raise Violation(f"it does not come to rest: {self.unrest()}")
            self.scheduler.run(self.scheduler.now + CHECK_S)

    def is_at_rest(self) -> bool:
        return not self.unrest()

    def unrest(self) -> str:
        """What is left to be done."""
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

    def _a_day_later(self) -> None:
        """Repeats that somebody kept for a day, one after another."""
        self.say("a day passes")
        self.scheduler.now += DAY_S
        self.happened["late"] += bool(self.network.kept)
        for messages in self.network.kept:
            self.network.deliver_late(messages)
            self.scheduler.run(self.scheduler.now + 9.0)

    def _check_logs(self) -> None:
        """Nothing is kept that nobody needs."""
        for agent in self.agents:
            agent.log.note(0, ())  # type: ignore[arg-type]
            agent.log.flush()
            if agent.keeps_damaged:  # there was no room to set it aside
                continue
            if agent.log.live:
                raise Violation(f"{agent.name} keeps {agent.log.live} records that are acked")
            kept = [name for name in agent.disk.names(agent.log.folder) if name.endswith(".wal")]
            if len(kept) > 2:
                raise Violation(f"{agent.name} keeps {len(kept)} segments of which nothing is needed")

    def _check_size(self) -> None:
        """Every run is as large as is promised, and every role was killed in it."""
        have = {
            "agents": (len(self.agents), AGENTS),
            "collectors": (len(self.collectors), COLLECTORS),
            "partitions": (self.kafka.partition_count, PARTITIONS),
            "shards with their replicas": (len(self.shards), 2 * SHARDS),
            "batches": (len(self.checks.tokens), BATCHES),
            **{f"crashes of {role}": (self.happened[f"crash: {role}"], 1) for role in ROLES},
        }
        small = [f"{count} {what}, at least {least}" for what, (count, least) in have.items() if count < least]
        if small:
            raise Violation(f"the run is too small: {'; '.join(small)}")
