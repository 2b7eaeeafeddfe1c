"""Roll-out of the configuration of agents, as the API tells it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from artimon.api.rollout_status import MAX_LISTED, MAX_TEXT, UNKNOWN, read_rollout
from pipeline.control.control_tree import ConfigVersion
from pipeline.control.rollout import VersionId
from tests.api.serving import Client, served


class Tree:
    """Reports of 150 agents, two of which refuse the version of their group, and a foreign node."""

    def agents(self) -> Mapping[str, Mapping[str, Any]]:
        old, new = "group/default@3", "group/default@4"
        found: dict[str, Mapping[str, Any]] = {f"a{at:03}": {"config": {"running": new}} for at in range(150)}
        found |= {name: {"config": {"running": old, "refused": "no flow"}} for name in ("a007", "a009")}
        return {**found, "a010": {"config": {"running": new, "trial": True}}, "zz": {"config": "junk"}}

    def scopes(self) -> list[str]:
        return ["group/default", "agent/gone"]

    def current_version(self, scope: str) -> ConfigVersion | None:
        if scope == "agent/gone":
            return None
        return ConfigVersion(VersionId(scope, "x", 4), {"metrics": {}}, 1_000, "ana", "poll faster", 2)


def test_versions_that_run_and_agents_that_refuse() -> None:
    found = read_rollout(Tree())
    assert found["pushed"] == [
        {"version": "group/default@4", "made_ms": 1_000, "by": "ana", "note": "poll faster", "source": 2}
    ]
    assert found["running"] == [
        {"version": "group/default@4", "agents": 148},
        {"version": "group/default@3", "agents": 2},
        {"version": "unknown", "agents": 1},
    ]
    assert (found["agents"], found["trials"], found["refusals"]) == (151, 1, 2)
    assert found["refused"][0] == {"agent": "a007", "reason": "no flow"}


def test_lists_are_bounded() -> None:
    class Many(Tree):
        def agents(self) -> Mapping[str, Mapping[str, Any]]:
            return {f"a{at}": {"config": {"running": f"agent/a{at}@1", "refused": "x"}} for at in range(500)}

    found = read_rollout(Many())
    assert (len(found["running"]), len(found["refused"]), found["refusals"]) == (MAX_LISTED, MAX_LISTED, 500)


def test_the_api_tells_it(client: Client) -> None:
    assert client.get("/api/configuration").json == UNKNOWN
    with served(configuration=lambda: read_rollout(Tree())) as serving:
        assert serving.get("/api/configuration").json["agents"] == 151


class Talkative(Tree):
    """An agent whose node holds a megabyte."""

    def agents(self) -> Mapping[str, Mapping[str, Any]]:
        return {"a": {"config": {"running": "r" * 1_000_000, "refused": "x" * 1_000_000}}}


def test_long_texts_of_agents_are_cut() -> None:
    found = read_rollout(Talkative())
    assert len(found["refused"][0]["reason"]) == len(found["running"][0]["version"]) == MAX_TEXT
