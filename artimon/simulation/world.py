"""One run: every process, what the plan does to them, and the way back to rest."""

from __future__ import annotations

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
from artimon.simulation.kafka import SAMPLES, SimKafka
from artimon.simulation.network import Conditions, Network
from artimon.simulation.plan import LAST_OFFER_S, MAIN_S, PARTITIONS, SHARDS, Plan, draw
from artimon.simulation.scheduler import Scheduler, Violation
from artimon.simulation.shards import Directory, SimShard
from artimon.simulation.sources import Source
from artimon.simulation.spark import FeedDriver, RawDriver
from artimon.simulation.table import TableStore
from artimon.simulation.zookeeper import SimZookeeper
from pipeline.spark.config import SparkConfig

REST_S = 1_500.0
"""So long after the last fault all must have come to rest."""
DAY_S = 86_400.0
CHECK_S = 2.0
SOURCES = 3


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
        self._unreachable: tuple[str, SimCollector, bool] | None = None
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
        self.raw = self._driver("raw")
        self.zombies: list[RawDriver] = []
        self.feed = FeedDriver(scheduler, self.kafka, self.directory, self.config, self._trouble)
        self.sources = [Source(self, agent, f"app/{agent.name}/{n}") for agent in self.agents for n in range(SOURCES)]

    def _agent(self, n: int) -> SimAgent:
        level = "kafka" if n == 0 and "level kafka" in self.plan.specials else "hdfs"
        quota = 2_500 if n == 1 and "log full" in self.plan.specials else 1 << 20
        return SimAgent(f"agent-{n}", self.scheduler, self.network, self.zookeeper, self.checks, level, quota)

    def _driver(self, name: str) -> RawDriver:
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
        self.heal()
        self.rest()
        if "late" in self.plan.specials:
            self._a_day_later()
            self.rest()
        self.checks.at_the_end(self.shards)
        self._check_logs()

    def _plan_offers(self) -> None:
        chance = self.scheduler.random
        for n in range(self.plan.batches):
            source = self.sources[n % len(self.sources)]
            source.left += 1
            old = n == 3 and "old" in self.plan.specials
            self.scheduler.later(0.5 + chance.random() * LAST_OFFER_S, lambda source=source, old=old: source.poll(old))  # type: ignore[misc]

    def _plan_faults(self) -> None:
        for at, role in self.plan.crashes:
            self.scheduler.later(at, getattr(self, f"crash_{role}"))
        for name in sorted(self.plan.specials):
            event = getattr(self, name.replace(" ", "_"), None)
            if event is not None:
                self.scheduler.later(5 + self.scheduler.random.random() * (MAIN_S - 25), event)
        for _ in range(3):
            self.scheduler.later(5 + self.scheduler.random.random() * MAIN_S, self.snapshot)

    def say(self, text: str) -> None:
        if self.scheduler.tracing:
            self.scheduler.say(text)

    # -- crashes

    def crash_agent(self) -> None:
        """The process or the machine; at a moment or in the midst of a write."""
        chance = self.scheduler.random
        agent = chance.choice(self.agents)
        if not agent.up:
            return
        if chance.random() < 0.4:
            agent.disk.dies_after = chance.randrange(6)
            self.say(f"{agent.name}: its power will fail after {agent.disk.dies_after} changes of its disk")
            return
        if chance.random() < 0.2:
            agent.stop()
            self._again(agent)
            return
        power = chance.random() < 0.6
        self.say(f"{agent.name} is killed, power {power}")
        agent.kill(power)
        self._again(agent)

    def crash_collector(self) -> None:
        collector = self.scheduler.random.choice(self.collectors)
        if collector.up:
            self.say(f"{collector.name} is killed")
            collector.kill()
            self._again(collector)

    def crash_kafka(self) -> None:
        """Its broker is restarted: every partition has a new leader epoch; nothing is lost."""
        self.say("Kafka is restarted")
        self.kafka.down = True

        def back() -> None:
            self.kafka.down = False
            for log in self.kafka.samples:
                log.elect()

        self.scheduler.later(self.scheduler.random.random() * 12, back)

    def crash_raw(self) -> None:
        """At any moment, or right before or after a commit."""
        chance = self.scheduler.random
        point = chance.choice(("", "written", "committed"))
        if point:
            self.raw.at_point.setdefault(point, []).append(self._kill_raw)
        else:
            self._kill_raw()

    def _kill_raw(self) -> None:
        if self.raw.up:
            self.say("the driver of the raw query is killed")
            self.raw.kill()
            self._again(self.raw)

    def crash_buckets(self) -> None:
        if self.feed.up:
            self.say("the driver of the buckets query is killed")
            self.feed.kill()
            self._again(self.feed)

    def crash_shard(self) -> None:
        chance = self.scheduler.random
        for shard in self.shards if chance.random() < 0.1 else [chance.choice(self.shards)]:
            if shard.up:
                self.say(f"{shard.name} is killed")
                shard.kill()
                self._again(shard)

    def crash_zookeeper(self) -> None:
        self.zookeeper.down = True
        self.scheduler.later(self.scheduler.random.random() * 15, lambda: setattr(self.zookeeper, "down", False))

    def crash_hdfs(self) -> None:
        self.store.down = True
        self.scheduler.later(self.scheduler.random.random() * 15, lambda: setattr(self.store, "down", False))

    def _again(self, process: SimAgent | SimCollector | RawDriver | FeedDriver | SimShard) -> None:
        life = process.life

        def start() -> None:
            if process.life == life and not process.up:
                process.start()

        self.scheduler.later(0.5 + self.scheduler.random.random() * 15, start)

    # -- special events, by their names in the plan

    def _log_was_lost(self) -> None:
        for shard in self.shards:
            shard.log_was_lost()

    def unreachable(self) -> None:
        """From now on, and also when all else is well again, an agent does not reach one of the collectors."""
        chance = self.scheduler.random
        self._unreachable = chance.choice(self.agents).name, chance.choice(self.collectors), chance.random() < 0.5
        self._cut_off()

    def _cut_off(self) -> None:
        if self._unreachable is not None:
            agent, collector, refused = self._unreachable
            pairs = self.network.refused if refused else self.network.partitioned
            pairs.add((agent, collector.endpoint))
            self.scheduler.later(1.0, self._cut_off)

    def recreated(self) -> None:
        """Somebody deletes the topic and makes it again."""
        self.say("the topic is made again")
        self._log_was_lost()
        self.kafka.recreate(SAMPLES)

    def checkpoint(self) -> None:
        """Spark's folders are gone."""
        self.say("the checkpoints are deleted")
        self.raw.lose_checkpoints()

    def zombie(self) -> None:
        """The driver is stopped between its files and its commit; another one takes over; the first goes on."""
        asleep, stopped = self.raw, 15 + self.scheduler.random.random() * 40

        def sleep() -> None:
            self.say(f"the driver is stopped for {stopped:.0f} s, and another one starts")
            self.zombies.append(asleep)
            self.raw = self._driver(f"raw-{len(self.zombies) + 1}")
            self.raw.checkpoints = asleep.checkpoints
            self.scheduler.later(2.0, self.raw.start)
            asleep.stopped_until = self.scheduler.now + stopped
            self.scheduler.later(0.0, asleep.publish, asleep)  # it was about to
            self.scheduler.block(asleep, stopped)

        asleep.at_point.setdefault("written", []).append(sleep)

    def wiped(self) -> None:
        """ZooKeeper loses everything."""
        self.say("ZooKeeper is wiped")
        self.zookeeper.wipe()

    def cut(self) -> None:
        """Kafka's machine loses power, and with it the end of the log of some partitions."""
        chance = self.scheduler.random
        for p, log in enumerate(self.kafka.samples):
            if chance.random() < 0.6 and log.end > log.start:
                end = max(log.start, log.end - 1 - chance.randrange(6))
                self.say(f"partition {p} is cut at {end} of {log.end}")
                self._log_was_lost()
                log.cut(end)

    def hidden(self) -> None:
        """A message cannot be read, once or twice or ever."""
        chance = self.scheduler.random
        for log in self.kafka.samples:
            if log.end > log.start:
                log.records[chance.randrange(log.start, log.end)].hidden = chance.choice((1, 2, 1_000))

    def garbage(self) -> None:
        """Somebody else writes to our topic."""
        chance = self.scheduler.random
        for log in self.kafka.samples:
            whole = log.records[-1].record.value if log.records else None
            kinds: list[bytes | None] = [None, b"", b"nonsense", whole[:-1] if whole else b"ARTB"]
            log.append(self.scheduler.now_ms, chance.choice(kinds))

    def fsync_fails(self) -> None:
        """The disk of an agent fails an fsync, soon, and in the end its machine."""
        chance = self.scheduler.random
        agent = chance.choice(self.agents)
        agent.disk.fails_after = chance.randrange(4)
        self.scheduler.later(1 + chance.random() * 8, lambda: self._fails(agent))

    def _fails(self, agent: SimAgent) -> None:
        if agent.up:
            agent.kill(power=True)
            self._again(agent)

    def rot(self) -> None:
        """A disk changes a bit of what an agent wrote last, and the agent is started again."""
        agent = self.scheduler.random.choice(self.agents)
        if not agent.up:
            return
        folder = agent.log.folder
        begins_anew = self.scheduler.random.random() < 0.5
        if begins_anew:
            agent.kill(power=False)
        names = sorted(name for name in agent.disk.names(folder) if name.endswith(".wal"))
        if names and agent.disk.rot(folder, names[-1]):
            self.say(f"{agent.name}: a bit of {names[-1]} changes")
            self.checks.rotten.add(agent.name)
        if begins_anew:
            self._again(agent)

    def deleted(self) -> None:
        """Kafka deletes what nobody has read."""
        chance = self.scheduler.random
        self._log_was_lost()
        for log in self.kafka.samples:
            log.start = chance.randrange(log.start, log.end + 1)

    def disk_full(self) -> None:
        """The disk of an agent is full for a while, and in the end its machine fails."""
        chance = self.scheduler.random
        agent = chance.choice(self.agents)
        agent.disk.full = True
        full_s = 3 + chance.random() * 20
        self.scheduler.later(full_s, lambda: setattr(agent.disk, "full", False))
        self.scheduler.later(full_s - 0.5, lambda: self._fails(agent))

    def moved(self) -> None:
        """An agent's folder is brought to another machine."""
        agent = self.scheduler.random.choice(self.agents)
        if agent.up:
            agent.kill(power=False)
            agent.host = "another host"
            self._again(agent)

    def partition(self) -> None:
        """An agent and a collector do not hear each other for a while."""
        chance = self.scheduler.random
        agent = chance.choice(self.agents).name
        pairs = {(agent, endpoint) for endpoint in list(self.network.servers)[: chance.choice((1, 2))]}
        self.network.partitioned |= pairs
        self.scheduler.later(10 + chance.random() * 40, lambda: self.network.partitioned.difference_update(pairs))

    def paused(self) -> None:
        """An operator pauses an agent for a while."""
        agent = self.scheduler.random.choice(self.agents)
        if agent.up:
            agent.hold(True)
            self.scheduler.later(20.0, lambda: agent.hold(False), agent)

    def stretched(self) -> None:
        """An agent is cut off from every collector for longer than a period, and has a backlog then."""
        agent = self.scheduler.random.choice(self.agents).name
        pairs = {(agent, endpoint) for endpoint in self.network.servers}
        self.network.refused |= pairs
        self.scheduler.later(75.0, lambda: self.network.refused.difference_update(pairs))

    def flood(self) -> None:
        """Somebody sends a collector more than it takes, again and again."""
        collector = self.scheduler.random.choice(self.collectors)
        if collector.up:
            collector.flood()
        if not self.healed:
            self.scheduler.later(0.5, self.flood)

    def malformed(self) -> None:
        """A shard is sent ranges that contradict themselves, or are not for it."""
        for shard in self.shards:
            if shard.up:
                shard.refuses_malformed(self.kafka.samples_id)

    def hangs(self) -> None:
        """A shard answers nobody for a while."""
        shard = self.scheduler.random.choice(self.shards)
        shard.hangs = True
        self.scheduler.later(5 + self.scheduler.random.random() * 20, lambda: setattr(shard, "hangs", False))

    def commits_fail(self) -> None:
        """The next commits fail, before or after they take effect; or another commit comes first."""
        chance = self.scheduler.random
        self.store.faults = [chance.choice(("before", "after", "compaction", "")) for _ in range(8)]

    def slow(self) -> None:
        """Kafka takes its time."""
        self.kafka.slow = 5 + self.scheduler.random.random() * 20
        self.scheduler.later(30.0, lambda: setattr(self.kafka, "slow", 0.0))

    def snapshot(self) -> None:
        """Of some shards."""
        for shard in self.shards:
            if self.scheduler.chance(0.5):
                shard.take_snapshot()

    # -- back to rest

    def heal(self) -> None:
        """All faults end."""
        self.say("all faults end")
        self.healed = True
        self.network.conditions = Conditions()
        self.network.partitioned.clear()
        self._cut_off()
        self.kafka.down = self.zookeeper.down = self.store.down = False
        self.kafka.slow = 0.0
        self.store.faults.clear()
        for log in self.kafka.samples:
            for stored in log.records:
                stored.hidden = 0
            if "hidden" in self.plan.specials:  # only what comes after it shows that a message did not come
                log.append(self.scheduler.now_ms, b"the end")
        for agent in self.agents:
            agent.disk.full, agent.disk.dies_after, agent.disk.fails_after = False, None, None
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
            if not shard.up or shard.lacks or shard.groups.vshards != shard.vshards:
                return f"{shard.name} is not there"
            for group in shard.groups:
                at = {key.partition: n for key, n in group.positions.items() if key.topic_id == self.kafka.samples_id}
                if {p: at.get(p, 0) for p in ends} != ends:
                    return f"{shard.name} holds {at} of {ends}"
        return ""

    def _a_day_later(self) -> None:
        """Repeats that somebody kept for a day, one after another."""
        self.say("a day passes")
        self.scheduler.now += DAY_S
        for messages in self.network.kept:
            self.network.deliver_late(messages)
            self.scheduler.run(self.scheduler.now + 9.0)

    def _check_logs(self) -> None:
        """Nothing is kept that nobody needs."""
        for agent in self.agents:
            agent.log.note(0, ())  # type: ignore[arg-type]
            agent.log.flush()
            if agent.name in self.checks.rotten:  # what it cannot read it keeps until it is started again
                continue
            if agent.log.live:
                raise Violation(f"{agent.name} keeps {agent.log.live} records that are acked")
            kept = [name for name in agent.disk.names(agent.log.folder) if name.endswith(".wal")]
            if len(kept) > 2:
                raise Violation(f"{agent.name} keeps {len(kept)} segments of which nothing is needed")
