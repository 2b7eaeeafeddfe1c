"""One run of a world: the plan disturbs it, all faults end, it settles and is checked."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.crashes import Crashes
from tests.simulation.network import Conditions
from tests.simulation.plan import (
    AGENTS,
    BATCHES,
    COLLECTORS,
    LAST_OFFER_S,
    MAIN_S,
    PARTITIONS,
    ROLES,
    SHARDS,
    Plan,
)
from tests.simulation.scheduler import Violation
from tests.simulation.troubles import Troubles
from tests.simulation.world import World

REST_S = 1_500.0
"""Maximum of virtual time from the last fault until the world has settled."""
DAY_S = 86_400.0
CHECK_S = 2.0


class Scenario:
    """The plan of a seed, applied to a new world."""

    def __init__(self, seed: int, trace: Callable[[str], None] | None = None, plan: Plan | None = None) -> None:
        self.world = World(seed, trace, plan)
        self._scheduler, self._plan = self.world.scheduler, self.world.plan
        self._crashes = Crashes(self.world)
        self._troubles = Troubles(self.world, self._crashes)

    def run(self) -> None:
        """Start, disturb, heal, rest, check. Raises Violation."""
        self._start()
        self._plan_offers()
        self._plan_faults()
        self._scheduler.run(MAIN_S)
        self._crashes.make_up()
        self._heal()
        self._rest()
        if "late" in self._plan.specials:
            self._pass_a_day()
            self._rest()
        self.world.happened["sheds"] += len(self.world.checks.shed)
        self.world.checks.at_the_end(self.world.shards)
        self._check_logs()
        self._check_size()

    def _start(self) -> None:
        for collector in self.world.collectors:
            collector.start()
        for agent in self.world.agents:
            agent.start()
        for shard in self.world.shards:
            shard.start()
        self.world.raw.start()
        self.world.feed.start()

    def _plan_offers(self) -> None:
        chance = self._scheduler.random
        for n in range(self._plan.batches):
            source = self.world.sources[n % len(self.world.sources)]
            source.left += 1
            old = n == 3 and "old" in self._plan.specials
            self._scheduler.later(0.5 + chance.random() * LAST_OFFER_S, lambda source=source, old=old: source.poll(old))  # type: ignore[misc]

    def _plan_faults(self) -> None:
        for at, role in self._plan.crashes:
            self._scheduler.later(at, getattr(self._crashes, f"crash_{role}"))
        for name in sorted(self._plan.specials):
            event = getattr(self._troubles, name.replace(" ", "_"), None)
            if event is not None:
                self._scheduler.later(5 + self._scheduler.random.random() * (MAIN_S - 25), event)
        for _ in range(3):
            self._scheduler.later(5 + self._scheduler.random.random() * MAIN_S, self._troubles.snapshot)

    # -- end of the faults

    def _heal(self) -> None:
        """End all faults."""
        if "emptied" in self._plan.specials:
            self._troubles.empty()
        world = self.world
        world.say("all faults end")
        world.healed = True
        world.network.conditions = Conditions()
        world.network.partitioned.clear()
        self._troubles.cut_off()
        self._heal_servers()
        for agent in world.agents:
            agent.disk.full = agent.disk.no_more_files = False
            agent.disk.dies_after = agent.disk.fails_after = None
        for zombie in world.zombies:
            zombie.kill()
        for driver in (world.raw, *world.zombies):
            driver.at_point.clear()
        for shard in world.shards:
            shard.hangs = False

    def _heal_servers(self) -> None:
        world = self.world
        world.kafka.down = world.zookeeper.down = world.store.down = False
        world.kafka.slow = 0.0
        world.store.faults.clear()
        for log in world.kafka.samples:
            for stored in log.records:
                stored.hidden = 0
            if "hidden" in self._plan.specials:  # only a later message shows that one is missing
                log.append(self._scheduler.now_ms, b"the end")

    def _rest(self) -> None:
        """Run until nothing is left to be done. Raises Violation if that takes too long."""
        until = self._scheduler.now + REST_S
        while left := self.world.unrest():
            if self._scheduler.now > until:
                raise Violation(f"the world does not settle: {left}")
            self._scheduler.run(self._scheduler.now + CHECK_S)

    def _pass_a_day(self) -> None:
        """Deliver requests that were kept for a day, one after another."""
        world = self.world
        world.say("a day passes")
        self._scheduler.now += DAY_S
        world.happened["late"] += bool(world.network.kept)
        for messages in world.network.kept:
            world.network.deliver_late(messages)
            self._scheduler.run(self._scheduler.now + 9.0)

    # -- final checks

    def _check_logs(self) -> None:
        """Check that logs keep only records and segments that are needed."""
        for agent in self.world.agents:
            agent.log.append_notes(0, ())  # type: ignore[arg-type]
            agent.log.flush()
            if agent.keeps_damaged:  # there was no room to keep a copy of the damaged record
                continue
            if agent.log.live_count:
                raise Violation(f"{agent.name} keeps {agent.log.live_count} records that are acked")
            kept = [name for name in agent.disk.list_names(agent.log.folder) if name.endswith(".wal")]
            if len(kept) > 2:
                raise Violation(f"{agent.name} keeps {len(kept)} segments without a needed record")

    def _check_size(self) -> None:
        """Check that the run has the minimum size, and that a process of every role was killed."""
        world = self.world
        have = {
            "agents": (len(world.agents), AGENTS),
            "collectors": (len(world.collectors), COLLECTORS),
            "partitions": (world.kafka.partition_count, PARTITIONS),
            "shards with their replicas": (len(world.shards), 2 * SHARDS),
            "batches": (len(world.checks.tokens), BATCHES),
            **{f"crashes of {role}": (world.happened[f"crash: {role}"], 1) for role in ROLES},
        }
        small = [f"{count} {what}, at least {least}" for what, (count, least) in have.items() if count < least]
        if small:
            raise Violation(f"the run is too small: {'; '.join(small)}")
