"""Events of one run, drawn from its seed before it begins."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.simulation.network import Conditions

AGENTS, COLLECTORS, PARTITIONS, SHARDS = 3, 2, 3, 2
BATCHES = 60
MAIN_S = 60.0
LAST_OFFER_S = 40.0
SHEDDER = 2
"""Number of the agent that gives up its oldest batches when its log is full, in runs that have one."""
SPECIALS = {
    "late": 0.12,
    "recreated": 0.12,
    "checkpoint": 0.12,
    "zombie": 0.12,
    "wiped": 0.08,
    "cut": 0.25,
    "hidden": 0.10,
    "quota": 0.08,
    "garbage": 0.10,
    "trimmed": 0.12,
    "old": 0.05,
    "level kafka": 0.06,
    "fsync fails": 0.12,
    "disk full": 0.10,
    "log full": 0.05,
    "moved": 0.05,
    "partition": 0.12,
    "hangs": 0.10,
    "commits fail": 0.20,
    "slow": 0.06,
    "rot": 0.08,
    "flood": 0.03,
    "malformed": 0.05,
    "paused": 0.05,
    "stretched": 0.05,
    "unreachable": 0.08,
    "deleted": 0.08,
    "outrun": 0.12,
    "emptied": 0.20,
    "sheds": 0.08,
    "moves": 0.15,
}
"""Probability of each special event in a run."""


@dataclass(slots=True)
class Plan:
    """Choices of one run. Times in seconds."""

    agents: int = AGENTS
    collectors: int = COLLECTORS
    batches: int = BATCHES
    specials: set[str] = field(default_factory=set)
    conditions: Conditions = field(default_factory=Conditions)
    feed_trouble: float = 0.0
    crashes: list[tuple[float, str]] = field(default_factory=list)
    """Time and role of each crash; every role at least once."""


ROLES = ("agent", "collector", "kafka", "raw", "buckets", "shard", "zookeeper", "hdfs")


def draw(chance: random.Random) -> Plan:
    """Draw the plan of a run."""
    specials = {name for name, probability in SPECIALS.items() if chance.random() < probability}
    if "level kafka" in specials:
        specials -= {
            "cut",
            "recreated",
            "quota",
            "old",
            "deleted",
            "outrun",
            "emptied",
            "hidden",
        }  # events that this level does not survive
    conditions = Conditions(
        lost=chance.choice((0.0, 0.02, 0.05, 0.15)),
        repeated=chance.choice((0.0, 0.05, 0.1)),
        late=chance.choice((0.0, 0.02, 0.1)),
        damaged=chance.choice((0.0, 0.0, 0.03)),
        slow_s=chance.choice((0.005, 0.05, 0.3)),
    )
    if "late" in specials:
        conditions.repeated = 0.15
    crashes = [(3 + chance.random() * (MAIN_S - 10), role) for role in ROLES]
    crashes += [(3 + chance.random() * (MAIN_S - 10), chance.choice(ROLES[:6])) for _ in range(chance.randrange(4))]
    return Plan(
        AGENTS + (chance.random() < 0.1),
        COLLECTORS,
        BATCHES + chance.randrange(12),
        specials,
        conditions,
        chance.choice((0.0, 0.03, 0.1)),
        sorted(crashes),
    )
