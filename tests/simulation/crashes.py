"""Crashes of every role of a run, and restarts of the killed processes."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.agents import SimAgent
from tests.simulation.collectors import SimCollector
from tests.simulation.shards import SimShard
from tests.simulation.spark import FeedDriver, RawDriver
from tests.simulation.world import World


class Crashes:
    """Crashes by role: `crash_<role>` for each of plan.ROLES."""

    def __init__(self, world: World) -> None:
        self._world, self._scheduler = world, world.scheduler

    def make_up(self) -> None:
        """Kill a process of every role that was not killed yet, because it was down or did not reach the planned
        point."""
        chance = self._scheduler.random
        kills: dict[str, Callable[[], None]] = {
            "agent": lambda: self._kill_agent(chance.choice(self._world.agents), power=True),
            "collector": self.crash_collector,
            "raw": self._kill_raw,
            "buckets": self.crash_buckets,
            "shard": self.crash_shard,
        }
        for role, kill in kills.items():
            while not self._world.happened[f"crash: {role}"]:
                kill()
                self._scheduler.run(self._scheduler.now + 1.0)

    def crash_agent(self) -> None:
        """End the process or the machine, at a moment or during a write."""
        chance = self._scheduler.random
        agent = chance.choice(self._world.agents)
        if not agent.up:
            return
        if chance.random() < 0.4:
            agent.disk.dies_after = chance.randrange(6)
            self._world.say(f"{agent.name}: its power will fail after {agent.disk.dies_after} changes of its disk")
            return
        if chance.random() < 0.2:
            agent.stop()
            self.again(agent)
            return
        self._kill_agent(agent, power=chance.random() < 0.6)

    def _kill_agent(self, agent: SimAgent, power: bool) -> None:
        if agent.up:
            self._world.say(f"{agent.name} is killed, power {power}")
            self._world.happened["crash: agent"] += 1
            agent.kill(power)
            self.again(agent)

    def crash_collector(self) -> None:
        collector = self._scheduler.random.choice(self._world.collectors)
        if collector.up:
            self._world.say(f"{collector.name} is killed")
            self._world.happened["crash: collector"] += 1
            collector.kill()
            self.again(collector)

    def crash_kafka(self) -> None:
        """Restart its broker: every partition has a new leader epoch; nothing is lost."""
        self._world.say("Kafka is restarted")
        self._world.happened["crash: kafka"] += 1
        self._world.kafka.down = True

        def back() -> None:
            self._world.kafka.down = False
            for log in self._world.kafka.samples:
                log.elect()

        self._scheduler.later(self._scheduler.random.random() * 12, back)

    def crash_raw(self) -> None:
        """Kill the driver at any moment, or right before or after a commit of an append or of new sources."""
        chance = self._scheduler.random
        point = chance.choice(("", "written", "committed", "numbered", "assigned"))
        if point:
            self._world.raw.at_point.setdefault(point, []).append(self._kill_raw)
        else:
            self._kill_raw()

    def _kill_raw(self) -> None:
        if self._world.raw.up:
            self._world.say("the driver of the raw query is killed")
            self._world.happened["crash: raw"] += 1
            self._world.raw.kill()
            self.again(self._world.raw)

    def crash_buckets(self) -> None:
        if self._world.feed.up:
            self._world.say("the driver of the buckets query is killed")
            self._world.happened["crash: buckets"] += 1
            self._world.feed.kill()
            self.again(self._world.feed)

    def crash_shard(self) -> None:
        chance = self._scheduler.random
        for shard in self._world.shards if chance.random() < 0.1 else [chance.choice(self._world.shards)]:
            if shard.up:
                self._world.say(f"{shard.name} is killed")
                self._world.happened["crash: shard"] += 1
                shard.kill()
                self.again(shard)

    def crash_zookeeper(self) -> None:
        self._world.happened["crash: zookeeper"] += 1
        self._world.zookeeper.down = True
        self._scheduler.later(
            self._scheduler.random.random() * 15, lambda: setattr(self._world.zookeeper, "down", False)
        )

    def crash_hdfs(self) -> None:
        self._world.happened["crash: hdfs"] += 1
        self._world.store.down = True
        self._scheduler.later(self._scheduler.random.random() * 15, lambda: setattr(self._world.store, "down", False))

    def again(self, process: SimAgent | SimCollector | RawDriver | FeedDriver | SimShard) -> None:
        """Start the process again after a while."""
        life = process.life

        def start() -> None:
            if process.life == life and not process.up:
                process.start()

        self._scheduler.later(0.5 + self._scheduler.random.random() * 15, start)
