"""Shards killed, stopped and refilled under load: every bucket of every series stays what the raw table says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from artimon.compute.statistics import STATISTICS
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.grid import DEFAULT_LEVELS
from artimon.model.hash_routing import owners_of, virtual_shard
from artimon.model.select import Buckets, Matcher, SelectRequest, decode_buckets
from artimon.runtime.health import read_health
from artimon.runtime.zookeeper_client import zookeeper_client
from artimon.stack.stack import Stack
from artimon.stack.topics import TOPICS
from bookkeeper.rpc.framed_server import FramedClient
from tests.faults.batches import NAME
from tests.faults.buckets import differences, grid_of, read_rows, recompute
from tests.faults.conftest import Scale
from tests.faults.kills import Killer
from tests.faults.world import World
from tests.waiting import eventually
from varstore.cluster.cluster_directory import ClusterDirectory, ShardAddress
from varstore.cluster.log_ends import log_span
from varstore.index.shard_limits import FINEST_SPARE_ROWS, SPARE_ROWS
from varstore.shard.shard_service import idl

pytestmark = [pytest.mark.slow, pytest.mark.stack, pytest.mark.timeout(5400)]
SHARDS = ("0", "1", "2")
REPLICAS = 2
ROLES = tuple(f"shard-{n}" for n in SHARDS)
KINDS = (*ROLES, *ROLES, "driver", "worker", "kafka", "collector-0", *(f"asleep {role}" for role in ROLES))
DEADLINE_S = 60.0


@pytest.fixture
def options(load_options: dict[str, str]) -> dict[str, str]:
    """A store of three shards, two replicas each; fewer series than the other tests have, asked one by one."""
    rate = str(min(100_000.0, float(load_options["rate"])))
    return {
        **load_options,
        "rate": rate,
        "sources": "60",
        "series": "2000",
        "capacity": "200000",
        "shards": str(len(SHARDS)),
        "replicas": str(REPLICAS),
    }


def places(stack: Stack) -> dict[str, ShardAddress]:
    """Return the addresses of the shards by id."""
    client = zookeeper_client(stack.zookeeper)
    client.start()
    try:
        return {place.id: place for place in ClusterDirectory(client).read().live}
    finally:
        client.stop()
        client.close()


def held_by(place: ShardAddress, source: str, request: SelectRequest) -> Buckets:
    """Return the rows that one shard alone holds of a source."""
    with FramedClient(idl().Shard, place.host, place.port, DEADLINE_S, max_frame=512 << 20) as client:
        return decode_buckets(client.call("select", json.dumps(request.to_json()).encode()))


def wrong_buckets(stack: Stack, sources: Iterable[str], shards: Sequence[str] = SHARDS) -> list[str]:
    """Everything in which any replica of the load's series differs from the table."""
    wrong = []
    at = places(stack)
    for source in sources:
        rows = read_rows(stack.hdfs, source)
        now_ms = SYSTEM_CLOCK.now_ms()
        matchers = (Matcher("__name__", "=", NAME), Matcher("source", "=", source))
        for n, level in enumerate(DEFAULT_LEVELS):
            expected = recompute(rows, level, SPARE_ROWS if n else FINEST_SPARE_ROWS, now_ms)
            grid = grid_of(level, now_ms)
            for owner in owners_of(virtual_shard(source), shards, REPLICAS):
                mask = 1 << virtual_shard(source)
                held = held_by(at[owner], source, SelectRequest(matchers, grid, STATISTICS, vshards=mask))
                found = differences(expected, rows, held)
                wrong += [f"{source}, {level.step_s} s, shard {owner}: {line}" for line in found]
    return wrong


def holds_all(stack: Stack, roles: Sequence[str] = ROLES) -> bool:
    """Return True if every group of every shard has reached the end of the log and is complete."""
    end = log_span(stack.kafka, TOPICS[0].name)
    for place in places(stack).values():
        with FramedClient(idl().Shard, place.host, place.port, DEADLINE_S) as client:
            for group in json.loads(client.call("groups")):
                at = {partition: offset for topic, partition, offset in group["positions"] if topic == end[0]}
                if not group["ready"] or any(at.get(p, 0) < last for p, (_, last) in end[1].items()):
                    return False
    healths = [read_health(stack.context.health(role)) for role in roles]
    figures = [health.figures if health else {} for health in healths]
    return all(f.get("refilling") == 0 and f.get("vshards_ready") == f.get("vshards_wanted") for f in figures)


def test_every_bucket_after_shards_were_killed_at_random(folder: Path, options: dict[str, str], scale: Scale) -> None:
    print(f"# seed {scale.seed}")
    with World(folder, options, shards=len(SHARDS)) as world:
        world.produce()
        world.wait_appends(2)
        killer = Killer(world, scale.seed, KINDS)
        killer.kill("shard-0")
        eventually(lambda: world.figures("shard-0").get("refilling", 0) > 0, "a shard refills")
        killer.kill("shard-0")
        killer.run(scale.kill_s)
        world.stack.wait_healthy(300)
        proof = world.prove(1800)
        eventually(lambda: holds_all(world.stack), "every shard holds everything", 600)
        print(f"# kills: {killer.summary()}")
        print(f"# {proof}")
        wrong = wrong_buckets(world.stack, world.sources())
        where = Counter(tuple(line.split(",")[1:3]) for line in wrong)
        assert not wrong, f"{len(wrong)} differences, {dict(where)}: " + "; ".join(wrong[:6])
