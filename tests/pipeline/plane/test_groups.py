"""Groups of servers: clients name a group; its last known members stay valid, also after a restart
without ZooKeeper."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.control.control_tree import ControlPlaneError
from pipeline.link.collector_choice import CollectorEndpoint, CollectorMode, Collectors
from tests.pipeline.plane.world import Operator, new_name, running
from tests.waiting import eventually


@pytest.mark.stack
def test_members_are_found_and_remembered(tmp_path: Path, zookeeper: str) -> None:
    name, group, operator = new_name(), new_name(), Operator(zookeeper)
    with running(name, tmp_path, zookeeper) as agent:
        directory = agent.plane.directory
        assert directory.problem(group)
        serving = directory.register(group, "tier2-1", CollectorEndpoint("10.0.0.7", 4141))
        eventually(
            lambda: directory.members(group) == {"tier2-1": CollectorEndpoint("10.0.0.7", 4141)}, "the member is known"
        )
        serving.stop()
        eventually(lambda: not operator.client.exists(f"/artimon/groups/{group}/tier2-1"), "it is gone")
        assert directory.members(group), "an empty group is ignored"
        with pytest.raises(ControlPlaneError):
            directory.members("10.0.0.7:4141")
        agent.plane.wake()
        eventually(lambda: group in (tmp_path / "plane" / "plane.json").read_text(), "it is on the disk")
    with running(name, tmp_path, "127.0.0.1:1") as agent:
        assert agent.plane.directory.members(group) == {"tier2-1": CollectorEndpoint("10.0.0.7", 4141)}
    operator.close()


FIRST, SECOND, THIRD = (CollectorEndpoint("h", port, group) for port, group in ((1, "near"), (2, "near"), (3, "far")))


def known(*groups: str, mode: CollectorMode = CollectorMode.FAILOVER) -> Collectors:
    collectors = Collectors("agent")
    collectors.update({"1": FIRST, "2": SECOND, "3": THIRD})
    collectors.prefer(groups, mode)
    return collectors


def test_the_preferred_group_is_used_while_one_of_its_members_may_be_tried() -> None:
    collectors = known("near", "far")
    used = set()
    for now in (0.0, 0.01):
        picked = collectors.pick(now)
        assert picked is not None
        assert picked.group == "near"
        used.add(picked)
        collectors.note_failure(picked, now)
    assert used == {FIRST, SECOND}
    assert collectors.pick(0.02) == THIRD
    back = collectors.pick(5.0)
    assert back is not None
    assert back.group == "near", "it comes back by itself"
    assert known("nobody").pick(0.0) is None
    assert known().pick(0.0) is not None


def test_round_robin_alternates_and_least_loaded_counts_calls_in_flight() -> None:
    turns = known("near", mode=CollectorMode.ROUND_ROBIN)
    picked = []
    for _ in range(4):
        one = turns.pick(0.0)
        assert one is not None
        turns.note_call(one)
        picked.append(one)
    assert set(picked[:2]) == {FIRST, SECOND}
    assert picked[:2] == picked[2:]
    loaded = known("near", mode=CollectorMode.LEAST_LOADED)
    for _ in range(2):
        loaded.note_call(FIRST)
    assert loaded.pick(0.0) == SECOND
    loaded.note_call(SECOND)
    assert loaded.pick(0.0) == SECOND
    for _ in range(2):
        loaded.note_answer(FIRST)
    assert loaded.pick(0.0) == FIRST
