"""Special events of a run, each a method by the name that the plan gives it."""

from __future__ import annotations

from artimon.model.hash_routing import VIRTUAL_SHARDS
from pipeline.link.collector_choice import CollectorEndpoint
from tests.simulation.agents import SimAgent
from tests.simulation.collectors import SimCollector
from tests.simulation.crashes import Crashes
from tests.simulation.kafka import SAMPLES
from tests.simulation.plan import SHEDDER
from tests.simulation.world import World

FLOOD_S = 10.0


class Troubles:
    """Events of plan.SPECIALS that happen at some moment; the others are conditions of a whole run."""

    def __init__(self, world: World, crashes: Crashes) -> None:
        self._world, self._crashes, self._scheduler = world, crashes, world.scheduler
        self._unreachable: tuple[str, SimCollector, bool] | None = None

    def _log_was_lost(self) -> None:
        for shard in self._world.shards:
            shard.log_was_lost()

    def unreachable(self) -> None:
        """Cut an agent off from one of the collectors until the end, also after all other faults have ended."""
        chance = self._scheduler.random
        self._unreachable = (
            chance.choice(self._world.agents).name,
            chance.choice(self._world.collectors),
            chance.random() < 0.5,
        )
        self.cut_off()

    def cut_off(self) -> None:
        """Renew the cut, because restarted collectors have new endpoints."""
        if self._unreachable is not None:
            agent, collector, refused = self._unreachable
            pairs = self._world.network.refused if refused else self._world.network.partitioned
            pairs.add((agent, collector.endpoint))
            self._scheduler.later(1.0, self.cut_off)

    def recreated(self) -> None:
        """Delete the topic and create it again."""
        self._world.say("the topic is made again")
        self._world.happened["recreated"] += any(log.end for log in self._world.kafka.samples)
        self._log_was_lost()
        self._world.kafka.recreate(SAMPLES)

    def checkpoint(self) -> None:
        """Delete Spark's folders."""
        self._world.say("the checkpoints are deleted")
        self._world.happened["checkpoint"] += bool(self._world.raw.checkpoints)
        self._world.raw.lose_checkpoints()

    def zombie(self) -> None:
        """Suspend the driver between its files and its commit; another one takes over; the first continues later."""
        asleep, stopped = self._world.raw, 15 + self._scheduler.random.random() * 40

        def sleep() -> None:
            self._world.say(f"the driver is stopped for {stopped:.0f} s, and another one starts")
            self._world.zombies.append(asleep)
            self._world.happened["zombie"] += 1
            self._world.raw = self._world.driver(f"raw-{len(self._world.zombies) + 1}")
            self._world.raw.checkpoints = asleep.checkpoints
            self._scheduler.later(2.0, self._world.raw.start)
            asleep.stopped_until, asleep.passes = (
                self._scheduler.now + stopped,
                self._scheduler.random.randrange(2),
            )
            self._scheduler.later(0.0, asleep.publish, asleep)  # it was about to publish
            self._scheduler.block(asleep, stopped)

        asleep.at_point.setdefault("written", []).append(sleep)

    def wiped(self) -> None:
        """Wipe ZooKeeper."""
        self._world.say("ZooKeeper is wiped")
        self._world.checks.wiped = True
        self._world.zookeeper.wipe()

    def cut(self) -> None:
        """Fail the power of Kafka's machine, and lose the end of the log of some partitions."""
        chance = self._scheduler.random
        for p, log in enumerate(self._world.kafka.samples):
            if chance.random() < 0.6 and log.end > log.start:
                end = max(log.start, log.end - 1 - chance.randrange(6))
                self._world.say(f"partition {p} is cut at {end} of {log.end}")
                self._log_was_lost()
                log.cut(end)

    def hidden(self) -> None:
        """Hide a message from one read, from two, or for ever."""
        chance = self._scheduler.random
        for log in self._world.kafka.samples:
            if log.end > log.start:
                log.records[chance.randrange(log.start, log.end)].hidden = chance.choice((1, 2, 1_000))

    def garbage(self) -> None:
        """Append messages of another program to the topic."""
        chance = self._scheduler.random
        for log in self._world.kafka.samples:
            whole = log.records[-1].record.value if log.records else None
            kinds: list[bytes | None] = [None, b"", b"nonsense", whole[:-1] if whole else b"ARTB"]
            log.append(self._scheduler.now_ms, chance.choice(kinds))

    def fsync_fails(self) -> None:
        """Let the disk of an agent fail an fsync soon, and its machine in the end."""
        chance = self._scheduler.random
        agent = chance.choice(self._world.agents)
        agent.disk.fails_after = chance.randrange(4)
        self._scheduler.later(1 + chance.random() * 8, lambda: self._fails(agent))

    def _fails(self, agent: SimAgent) -> None:
        if agent.up:
            agent.kill(power=True)
            self._crashes.again(agent)

    def rot(self) -> None:
        """Change a bit in the newest segment of an agent, and start the agent again."""
        agent = self._scheduler.random.choice(self._world.agents)
        if not agent.up:
            return
        folder = agent.log.folder
        begins_anew = self._scheduler.random.random() < 0.5
        if begins_anew:
            agent.kill(power=False)
        names = sorted(name for name in agent.disk.list_names(folder) if name.endswith(".wal"))
        if names and agent.disk.rot(folder / names[-1]):
            self._world.say(f"{agent.name}: a bit of {names[-1]} changes")
            self._world.checks.rotten.add(agent.name)
        if begins_anew:
            self._crashes.again(agent)

    def deleted(self) -> None:
        """Delete unread messages in Kafka."""
        chance = self._scheduler.random
        self._log_was_lost()
        for log in self._world.kafka.samples:
            log.trim(chance.randrange(log.start, log.end + 1))

    def outrun(self) -> None:
        """Stop the buckets query while the raw query reads on; Kafka keeps little more than the table lacks, at times
        less. Shards that now lack records may be killed before they are complete again."""
        chance, feed = self._scheduler.random, self._world.feed
        self._world.say("the buckets query is away for a while")
        if feed.up:
            feed.kill()

        def delete() -> None:
            read = self._world.store.head[1]
            until = read.until() if read.current and read.current.topic_id == self._world.kafka.samples_id else {}
            starts = [log.start for log in self._world.kafka.samples]
            for p, log in enumerate(self._world.kafka.samples):
                start = until.get(p, 0) + chance.choice((-2, 0, 0, 2, 5))
                log.start = max(log.start, min(log.end, start))
            self._world.happened["outrun"] += starts != [log.start for log in self._world.kafka.samples]
            self._crashes.again(feed)
            if chance.random() < 0.4:
                self._crashes.crash_hdfs()
                self._scheduler.later(14.0, self.snapshot)
                self._scheduler.later(16.0, self._crashes.crash_shard)

        self._scheduler.later(8 + chance.random() * 12, delete)

    def empty(self) -> None:
        """Delete everything in a partition, including an unread newest message; nothing newer need arrive."""
        self._world.say("partitions are emptied")
        self._log_was_lost()
        for log in self._world.kafka.samples:
            if log.end and self._scheduler.chance(0.7):
                log.append(self._scheduler.now_ms, b"deleted unread")
                log.trim(log.end)
                self._world.happened["emptied"] += 1

    def disk_full(self) -> None:
        """Fill the disk of an agent for a while, or allow no new files, and fail its machine in the end."""
        chance = self._scheduler.random
        agent, what = chance.choice(self._world.agents), chance.choice(("full", "no_more_files"))
        setattr(agent.disk, what, True)
        full_s = 5 + chance.random() * 30
        self._scheduler.later(full_s, lambda: setattr(agent.disk, what, False))
        self._scheduler.later(full_s - 0.5, lambda: self._fails(agent))

    def moved(self) -> None:
        """Move an agent's folder to another machine."""
        agent = self._scheduler.random.choice(self._world.agents)
        if agent.up:
            agent.kill(power=False)
            agent.host = "another host"
            self._crashes.again(agent)

    def partition(self) -> None:
        """Separate an agent from a collector for a while."""
        chance = self._scheduler.random
        agent = chance.choice(self._world.agents).name
        pairs = {(agent, endpoint) for endpoint in list(self._world.network.servers)[: chance.choice((1, 2))]}
        self._world.network.partitioned |= pairs
        self._scheduler.later(
            10 + chance.random() * 40, lambda: self._world.network.partitioned.difference_update(pairs)
        )

    def paused(self) -> None:
        """Pause an agent for a while, as an operator does."""
        agent = self._scheduler.random.choice(self._world.agents)
        if agent.up:
            agent.hold(True)
            self._scheduler.later(20.0, lambda: agent.hold(False), agent)

    def stretched(self) -> None:
        """Cut an agent off from every collector for longer than a period, so that it has a backlog."""
        agent = self._scheduler.random.choice(self._world.agents).name
        pairs = {(agent, endpoint) for endpoint in self._world.network.servers}
        self._world.network.refused |= pairs
        self._scheduler.later(75.0, lambda: self._world.network.refused.difference_update(pairs))

    def sheds(self) -> None:
        """Cut the agent that may shed off from every collector until its log is full."""
        agent = self._world.agents[SHEDDER].name
        until, gone = self._scheduler.now + 30.0, set[tuple[str, CollectorEndpoint]]()

        def cut_off() -> None:
            if self._world.healed or self._scheduler.now > until:
                self._world.network.refused.difference_update(gone)
                return
            gone.update((agent, endpoint) for endpoint in self._world.network.servers)
            self._world.network.refused |= gone
            self._scheduler.later(1.0, cut_off)

        cut_off()

    def flood(self) -> None:
        """Send a collector more than it accepts, again and again."""
        collector = self._scheduler.random.choice(self._world.collectors)
        if collector.up:
            collector.flood()
        if not self._world.healed:
            self._scheduler.later(FLOOD_S, self.flood)

    def malformed(self) -> None:
        """Send a shard ranges that contradict themselves, or are not for it."""
        for shard in self._world.shards:
            if shard.up:
                shard.refuses_malformed(self._world.kafka.samples_id)

    def hangs(self) -> None:
        """Let a shard hang for a while."""
        shard = self._scheduler.random.choice(self._world.shards)
        shard.hangs = True
        self._scheduler.later(5 + self._scheduler.random.random() * 20, lambda: setattr(shard, "hangs", False))

    def moves(self) -> None:
        """Move virtual shards now and then: a shard copies some of its own from its replica."""
        chance = self._scheduler.random
        taker = chance.choice(self._world.shards)
        giver = next(one for one in self._world.shards if one is not taker and one.vshards == taker.vshards)
        if taker.up and giver.up:
            self._world.say(f"{taker.name} takes virtual shards over from {giver.name}")
            self._world.happened["moves"] += 1
            taker.take_from(giver, taker.vshards & chance.getrandbits(VIRTUAL_SHARDS), chance.random() * 3)
        if not self._world.healed:
            self._scheduler.later(4 + chance.random() * 8, self.moves)

    def commits_fail(self) -> None:
        """Let the next commits fail, before or after they take effect, or let another commit come first."""
        chance = self._scheduler.random
        self._world.store.faults = [chance.choice(("before", "after", "compaction", "")) for _ in range(8)]

    def slow(self) -> None:
        """Slow Kafka down."""
        self._world.kafka.slow = 5 + self._scheduler.random.random() * 20
        self._scheduler.later(30.0, lambda: setattr(self._world.kafka, "slow", 0.0))

    def snapshot(self) -> None:
        """Take snapshots of some shards."""
        for shard in self._world.shards:
            if self._scheduler.chance(0.5):
                shard.take_snapshot()
