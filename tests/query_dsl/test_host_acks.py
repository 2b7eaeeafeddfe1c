"""States of silent hosts by the acks of their agents, in memory and in ZooKeeper."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from artimon.model.select import Buckets, SelectError, SelectRequest
from query_dsl.evaluation.host_acks import (
    GONE,
    LATE,
    STOPPED,
    UNACKED,
    UNHEARD,
    AgentReport,
    add_host_states,
    state_of,
)
from query_dsl.results.expected_points import Completeness, HostPoints
from tests.query_dsl.plain_store import MINUTE, PlainStore

NOW = 1_800_000_000_000 // (60 * MINUTE) * 60 * MINUTE
SINCE = NOW - 10 * MINUTE


def at(minutes: float, acked: float | None = None) -> AgentReport:
    """A report so many minutes ago, with acks up to `acked` minutes ago."""
    return AgentReport(NOW - int(minutes * MINUTE), 0 if acked is None else NOW - int(acked * MINUTE))


@pytest.mark.parametrize(
    ("heard", "live", "state"),
    [
        pytest.param(at(0.5, 1), None, STOPPED, id="acked_after_the_silence_began"),
        pytest.param(at(0.5, 10), None, LATE, id="oldest_batch_is_of_the_last_sample"),
        pytest.param(at(0.5, 9.5), None, LATE, id="within_a_period_of_it"),
        pytest.param(at(9, 9), None, UNHEARD, id="nothing_since"),
        pytest.param(at(9, 9), at(0.5, 9.5), LATE, id="lives_and_holds_the_data"),
        pytest.param(at(9, 9), at(0.5, 1), LATE, id="acked_but_not_in_memory"),
        pytest.param(at(0.5, 1), at(0.7, 1.2), STOPPED, id="both_agree"),
        pytest.param(at(9, 9), at(8, 9), UNHEARD, id="its_node_is_old"),
    ],
)
def test_state_of_a_host_silent_for_ten_minutes(heard: AgentReport, live: AgentReport | None, state: str) -> None:
    assert state_of(SINCE, heard, live, NOW) == state


def silent(*hosts: str) -> Completeness:
    told = tuple(HostPoints(host, 1, 10, 0, SINCE) for host in hosts)
    return Completeness(10 * len(hosts), 0, len(hosts), told, len(hosts))


def agent(store: PlainStore, host: str, name: str, minutes: int, unacked_ms: int) -> None:
    """Reports of an agent once a minute, the last one `minutes` ago."""
    times = [(NOW - one * MINUTE - MINUTE // 2, unacked_ms) for one in range(minutes + 20, minutes - 1, -1)]
    store.add(UNACKED, {"host": host, "instance": name, "context": "artimon"}, times)


def fleet() -> PlainStore:
    store = PlainStore()
    agent(store, "stopped", "agent-1", 0, 5_000)
    agent(store, "late", "agent-2", 0, 11 * MINUTE)
    agent(store, "away", "agent-3", 10, 5_000)
    agent(store, "long.gone", "agent-4", 80, 5_000)
    return store


def test_states_from_the_variables_of_the_agents() -> None:
    found = add_host_states(silent("stopped", "late", "away", "long.gone", "no-agent"), fleet(), NOW)
    assert [one.state for one in found.silent] == [STOPPED, LATE, UNHEARD, UNHEARD, ""]
    assert found.silent[0].acked_ms == NOW - MINUTE // 2 - 5_000
    assert "5 hosts silent" in str(found)
    assert str(found).endswith("(2 agent silent, 1 late, 1 stopped)")
    assert str(add_host_states(silent("late"), fleet(), NOW)).endswith("Z (late)")


def test_nodes_in_zookeeper_tell_late_from_gone() -> None:
    asked: list[set[str]] = []
    figures = {"oldest_unacked_ms": 9 * MINUTE}
    live: dict[str, Mapping[str, Any]] = {
        "3": {"time_ms": NOW - 1_000, "figures": figures},
        "agent-1": {"time_ms": "x", "figures": None},
    }

    def read(names: Collection[str]) -> Mapping[str, Mapping[str, Any]]:
        asked.append(set(names))
        return {name: live[name] for name in names if name in live}

    found = add_host_states(silent("stopped", "away", "long.gone", "no-agent"), fleet(), NOW, read)
    assert [one.state for one in found.silent] == [STOPPED, LATE, GONE, ""]
    assert found.silent[1].acked_ms == NOW - 1_000 - 9 * MINUTE
    assert asked == [{"agent-1", "1", "agent-3", "3", "agent-4", "4"}]


def test_without_zookeeper_the_variables_tell() -> None:
    found = add_host_states(silent("stopped", "away"), fleet(), NOW, lambda _: None)
    assert [one.state for one in found.silent] == [STOPPED, UNHEARD]


def test_the_agent_that_was_heard_last_counts() -> None:
    store = PlainStore()
    agent(store, "a", "agent-old", 15, 5_000)
    agent(store, "a", "agent-new", 0, 5_000)
    assert add_host_states(silent("a"), store, NOW).silent[0].state == STOPPED


def test_a_whole_answer_asks_nothing_and_a_failure_leaves_the_state_unknown() -> None:
    class Broken(PlainStore):
        def select(self, request: SelectRequest) -> Buckets:
            raise SelectError("no shard")

    whole = Completeness(10, 10, 1)
    assert add_host_states(whole, Broken(), NOW) is whole
    assert add_host_states(silent("a"), Broken(), NOW) == silent("a")
