"""Agent and control plane with a real ZooKeeper: pushes, refusals, rollbacks, commands, groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.control import rollout as decide
from pipeline.control.agent_commands import AgentMode
from pipeline.control.config_document import ConfigError
from pipeline.control.control_tree import ControlPlaneError
from pipeline.wal.recovery import segments_in
from tests.pipeline.helpers import polled
from tests.pipeline.plane.world import Operator, new_name, running, serving
from tests.waiting import eventually

pytestmark = pytest.mark.stack


@pytest.fixture
def operator(zookeeper: str) -> Iterator[Operator]:
    made = Operator(zookeeper)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _short_probation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "PROBATION_S", 0.5)


def test_a_push_is_applied_reported_and_kept_for_a_start_without_zookeeper(
    tmp_path: Path, zookeeper: str, operator: Operator
) -> None:
    name, group = new_name(), new_name()
    operator.push(f"group/{group}", quota="100MiB", poll="30s")
    with running(name, tmp_path, zookeeper, groups=(group,)) as agent:
        eventually(lambda: agent.log.quota_bytes == 100 * 2**20, "the group's quota is in force")
        stamp = operator.push(f"agent/{name}", quota="200MiB")
        eventually(lambda: agent.log.quota_bytes == 200 * 2**20, "the agent's own goes over it")
        wanted = f"group/{group}@1 {stamp}"
        eventually(lambda: operator.report(name).get("config", {}).get("good") == wanted, "it is reported as good")
        assert operator.report(name)["config"]["running"] == wanted
    with running(name, tmp_path, "127.0.0.1:1", groups=(group,)) as agent:
        assert agent.log.quota_bytes == 200 * 2**20, "at once, from the disk"
        assert any("not reachable" in text for text in agent.figures()["problems"]) or agent.plane.problem == ""
    assert [one.stamp.number for one in operator.tree.history(f"group/{group}")] == [1]


def test_an_invalid_version_is_refused_and_the_last_one_stays(
    tmp_path: Path, zookeeper: str, operator: Operator
) -> None:
    name = new_name()
    scope = f"agent/{name}"
    with pytest.raises(ConfigError, match="poll"):
        operator.push(scope, poll="soon")
    operator.push(scope, quota="100MiB")
    with running(name, tmp_path, zookeeper) as agent:
        eventually(lambda: agent.plane.figures()["good"] == f"{scope}@1", "the first is good")
        operator.push(scope, quota="200MiB", delivery="best-effort")  # as by an agent of an older version
        agent.controls._appliers.pop("delivery", None)
        eventually(lambda: bool(operator.report(name)["config"]["refused"]), "it says why")
        told = operator.report(name)["config"]
        assert "delivery" in told["refused"]
        assert (told["wanted"], told["running"]) == (f"{scope}@2", f"{scope}@1")
        assert agent.log.quota_bytes == 100 * 2**20, "nothing of it was applied"
        operator.push(scope, quota="300MiB")
        eventually(lambda: agent.log.quota_bytes == 300 * 2**20, "a better one is taken")


def test_a_version_that_fails_while_it_is_applied_or_tried_is_rolled_back(
    tmp_path: Path, zookeeper: str, operator: Operator
) -> None:
    name = new_name()
    scope = f"agent/{name}"
    operator.push(scope, quota="100MiB", poll="60s")
    with running(name, tmp_path, zookeeper) as agent:
        polls: list[object] = []

        def poll(value: object) -> None:
            if value == 7_000:
                raise OSError("no thread for that")
            polls.append(value)

        agent.controls.on_setting("poll", poll)
        eventually(lambda: agent.plane.figures()["good"] == f"{scope}@1", "the first is good")
        operator.push(scope, quota="200MiB", poll="7s")
        eventually(lambda: "no thread for that" in agent.plane.figures()["refused"], "it is refused")
        assert agent.log.quota_bytes == 100 * 2**20, "settings applied before the failure are rolled back"
        assert polls[-1] == 60_000
        fault: list[str] = []
        agent.controls._fault = lambda: fault[0] if fault else ""
        operator.push(scope, quota="300MiB")
        eventually(lambda: agent.log.quota_bytes == 300 * 2**20, "the third is tried")
        fault.append("a flow does not start")
        eventually(lambda: agent.log.quota_bytes == 100 * 2**20, "and taken back")
        assert "a flow does not start" in agent.plane.figures()["refused"]


def test_drain_pause_resume_and_roll(tmp_path: Path, zookeeper: str, operator: Operator) -> None:
    """Each command is answered once, however often it is read; a restart keeps its effect."""
    name, group = new_name(), new_name()
    operator.push(f"agent/{name}", collectors=[group])
    with serving(operator.client, new_name(), group) as store, running(name, tmp_path, zookeeper) as agent:
        paused = operator.give(name, "pause")
        eventually(lambda: operator.answer(name, paused) is not None, "it is paused")
        for number in range(5):
            agent.wal_sink.accept_now([polled(f"source-{number}")])
        assert agent.figures()["pending_batches"] == 5
        assert store.messages == 0, "a paused agent sends nothing"
        segment = segments_in(agent.log.folder)[0]
        rolled = operator.give(name, "roll")
        eventually(lambda: operator.answer(name, rolled) is not None, "it rolled")
        drain = operator.give(name, "drain")
        eventually(lambda: operator.answer(name, drain) is not None, "it is drained")
        answer = operator.answer(name, drain)
        assert answer is not None
        assert answer.state == "done"
        assert store.messages == 5
        list(agent.sink.replay())
        eventually(lambda: segments_in(agent.log.folder)[0] > segment, "the rolled segment is gone")
        assert agent.plane.mode is AgentMode.DRAINING
    with running(name, tmp_path, "127.0.0.1:1") as agent:
        assert agent.plane.mode is AgentMode.DRAINING, "also after a restart, without ZooKeeper"
    with running(name, tmp_path, zookeeper) as agent:
        again = operator.give(name, "drain", id=drain)
        resume = operator.give(name, "resume")
        eventually(lambda: operator.answer(name, resume) is not None, "it is resumed")
        assert agent.plane.mode is AgentMode.RUNNING
        assert operator.answer(name, again) == answer, "the old answer, and no action"
        late = operator.give(name, "pause", patience_ms=-1)
        eventually(lambda: operator.answer(name, late) is not None, "it is answered")
        expired = operator.answer(name, late)
        assert expired is not None
        assert expired.state == "expired"
        assert agent.plane.mode is AgentMode.RUNNING


def test_agents_use_collectors_by_group_and_preference(tmp_path: Path, zookeeper: str, operator: Operator) -> None:
    """Clients name groups, never hosts; the preferred group is used while it answers, and again once it is back."""
    name, first, second = new_name(), new_name(), new_name()
    operator.push(f"agent/{name}", collectors=[first, second])
    with running(name, tmp_path, zookeeper) as agent:
        eventually(lambda: agent.plane.figures()["good"] == f"agent/{name}@1", "it knows its groups")
        with serving(operator.client, new_name(), second) as other:
            with serving(operator.client, new_name(), first) as preferred:
                eventually(lambda: agent.figures()["collectors"] >= 2, "both are known")
                agent.wal_sink.accept_now([polled("source-1")])
                eventually(lambda: preferred.messages == 1, "it goes to the preferred group")
            agent.wal_sink.accept_now([polled("source-1")])
            eventually(lambda: other.messages == 1, "and to the other one while that is gone")


def test_two_pushes_at_once_do_not_lose_one(operator: Operator) -> None:
    scope = f"agent/{new_name()}"
    operator.push(scope, poll="10s")
    with pytest.raises(ControlPlaneError, match="version 1, not 0"):
        operator.tree.push(scope, {}, now_ms=0, by="other", expected=0)
    assert operator.push(scope, poll="20s").number == 2
