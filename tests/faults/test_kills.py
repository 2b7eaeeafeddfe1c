"""Processes killed at random under load, some of them between a commit and its consequences."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.conftest import Scale
from tests.faults.kills import Killer
from tests.faults.world import World
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.stack, pytest.mark.timeout(5400)]
COMPACTION = ("window", "verified", "committed")


def test_processes_killed_at_random(folder: Path, load_options: dict[str, str], scale: Scale) -> None:
    print(f"# seed {scale.seed}")
    with World(folder, load_options, earlier=60) as world:
        done = [world.order("compactor", point) for point in COMPACTION]
        world.produce()
        world.wait_appends(2)
        done.append(world.order("spark", "committed"))
        eventually(done[-1].exists, "the driver killed itself between commit and publication")
        done.append(world.order("spark", "written"))
        killer = Killer(world, scale.seed)
        killer.run(scale.kill_s)
        world.stack.wait_healthy(300)
        proof = world.prove(1800)
        print(f"# kills: {killer.summary()}; orders done: {[path.name for path in done if path.exists()]}")
        print(f"# {proof}")
        assert all(path.exists() for path in done), [path.name for path in done if not path.exists()]
        assert proof.dead_letters == 0
        assert proof.gaps == 0, "a killed broker loses nothing that it has acknowledged"
