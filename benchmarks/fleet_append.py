"""State of an append of a fleet: `fleet.append.state`, bytes in the commit at 12,000 lanes (3,000 agents of four lanes,
eight partitions). Names, epochs, counts and times are random, as compression finds them in a fleet.

python -m benchmarks.fleet_append
"""

from __future__ import annotations

import json
import random

from artimon.model.hash_routing import partition_of
from artimon.model.ranges import LaneId, LaneRanges
from artimon.rawtable import table_state as states
from artimon.rawtable.table_state import Increment, RawState, TableTotals
from benchmarks.common import Parts, emit

AGENTS, LANES, PARTITIONS = 3_000, 4, 8
NOW_MS = 1_795_000_000_000
BATCHES = 600_000
"""Maximum number of batches of a lane: two years of one a minute, and half of that."""


def fleet_state(agents: int = AGENTS) -> RawState:
    """Return the state after an append of a fleet whose lanes all sent within the last minute."""
    chance = random.Random(1)
    received: dict[int, LaneRanges] = {p: LaneRanges() for p in range(PARTITIONS)}
    last_ms: dict[LaneId, int] = {}
    for n in range(agents):
        name, epoch = f"node{chance.randrange(10**5):05d}.dc{n % 3}.example.com", chance.getrandbits(64)
        for lane in range(LANES):
            id_ = LaneId(name, epoch, lane)
            partition = partition_of(*id_, PARTITIONS)
            received[partition].add_range(id_, 0, chance.randrange(1, BATCHES))
            last_ms[id_] = NOW_MS - chance.randrange(60_000)
    before = states.close_gaps(RawState(), "w", "cluster", "artimon.samples", "topic", PARTITIONS, [])
    until = dict.fromkeys(range(PARTITIONS), BATCHES * agents)
    return states.advance(before, "w", Increment(until, received, last_ms, TableTotals(), NOW_MS))


def state_bytes(state: RawState) -> int:
    """Return the bytes of a state in a commit."""
    return len(json.dumps(states.to_json(state, state)))


def measure() -> None:
    """Print the figure."""
    emit("fleet.append.state", state_bytes(fleet_state()), "bytes")


if __name__ == "__main__":
    parts = Parts()
    parts.run("fleet.append.state", measure)
    parts.finish()
