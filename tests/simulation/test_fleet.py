"""The simulated fleet keeps its promises, and finds planted faults; docs/simulation.md."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.seeds import drawn, fixed_and_drawn
from tests.simulation import fleet_run
from tests.simulation.fleet_faults import FAULTS, planted
from tests.simulation.fleet_links_faults import FAULTS as LINK_FAULTS
from tests.simulation.fleet_links_faults import planted_in_links
from tests.simulation.fleet_links_run import run_links
from tests.simulation.fleet_run import FleetOutcome, run_fleet

SEARCHED = 8
"""Seeds of a planted fault; most are found by the first."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Errors of the simulated ZooKeeper are expected."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def kept(seed: int, agents: int, minutes: float = 10.0) -> FleetOutcome:
    outcome = run_fleet(seed, agents, minutes)
    assert not outcome.violation, f"{outcome.violation}\n  replay: {outcome.replay}"
    assert outcome.faults
    return outcome


@pytest.mark.parametrize("seed", fixed_and_drawn([104, 108], "fleet"))
def test_every_process_is_polled_by_exactly_one_agent(seed: int) -> None:
    kept(seed, 25)


def test_agents_of_two_versions_share_processes() -> None:
    """A quarter of the agents is of the version before; agents are upgraded and downgraded during the run."""
    outcome = kept(105, 25)
    assert outcome.older
    assert outcome.faults["change version"]
    assert 0 < outcome.polls_older < outcome.polls


def test_leases_that_the_version_before_does_not_find_are_noticed() -> None:
    with planted("leases in another place"):
        assert "is polled by" in run_fleet(1, 25).violation


def test_a_run_repeats_itself() -> None:
    seed = drawn("fleet, twice")
    assert run_fleet(seed, 10, 2.0) == run_fleet(seed, 10, 2.0)


@pytest.mark.parametrize("name", [name for name in FAULTS if name in ("claims without waiting", "no agent is elected")])
def test_common_planted_faults_are_found(name: str) -> None:
    with planted(name):
        assert any(run_fleet(seed, 25).violation for seed in range(1, SEARCHED + 1))


def test_a_storm_is_noticed_in_a_small_fleet_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_run, "STORM", 1.0)
    assert "a storm" in run_fleet(300, 25, 2.0).violation


@pytest.mark.parametrize("seed", fixed_and_drawn([1, 2], "links of a fleet"))
def test_agents_spread_over_collectors_and_take_their_configuration(seed: int) -> None:
    """In odd seeds one collector and a quarter of the agents are of the version before."""
    outcome = run_links(seed, 40)
    assert not outcome.violation, f"{outcome.violation}\n  replay: {outcome.replay}"
    assert outcome.push_s > 0
    assert outcome.end_connects > 0


def test_a_run_of_links_repeats_itself() -> None:
    seed = drawn("links, twice")
    assert run_links(seed, 10, 1) == run_links(seed, 10, 1)


@pytest.mark.parametrize(
    "name", ["all agents choose alike", "notices of changes ignored", "reads of a server that lags"]
)
def test_common_planted_faults_of_links_are_found(name: str) -> None:
    with planted_in_links(name):
        assert any(run_links(seed, 40).violation for seed in (2, 4))


@pytest.mark.slow
@pytest.mark.parametrize("name", LINK_FAULTS)
def test_planted_faults_of_links_are_found(name: str) -> None:
    with planted_in_links(name):
        assert any(run_links(seed, 60).violation for seed in range(1, SEARCHED + 1))


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_a_push_costs_an_agent_the_same_in_a_large_fleet() -> None:
    small, large = run_links(2, 100), run_links(4, 10_000)
    assert not small.violation + large.violation
    assert large.push <= small.push * 1.2
    assert large.end_zookeeper <= small.end_zookeeper * 1.2


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(name: str) -> None:
    with planted(name):
        assert any(run_fleet(seed, 60).violation for seed in range(1, SEARCHED + 1))


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_messages_of_an_agent_do_not_depend_on_the_size_of_the_fleet() -> None:
    """At most as many at 10,000 agents as at 100, at rest and for the start of a process; no storm."""
    small, large = kept(drawn("small fleet"), 100, 5.0), kept(drawn("large fleet"), 10_000, 5.0)
    assert large.steady <= small.steady
    assert large.peak <= 10 * max(1.0, large.steady)
