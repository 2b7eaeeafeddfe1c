"""The simulation keeps every promise, is the same each time, and drives the classes that ship."""

from __future__ import annotations

import json
import logging
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from artimon.cli import processes
from artimon.rawtable.commit import RawTable
from pipeline.delivery.dispatch import Sending
from pipeline.delivery.probe import Probing
from pipeline.delivery.tracker import Tracker
from pipeline.link.endpoints import Collectors
from pipeline.link.timer import AdaptiveTimer
from pipeline.spark.buckets import BucketsQuery
from pipeline.spark.buckets import Life as BucketsLife
from pipeline.spark.raw import Life as RawLife
from pipeline.spark.raw import RawQuery
from tests.seeds import drawn
from tests.simulation import spark, table
from tests.simulation.__main__ import app
from tests.simulation.credit import run_scarce
from tests.simulation.faults import FAULTS as COMMON_FAULTS
from tests.simulation.faults_of_readers import READER_FAULTS
from tests.simulation.machines import MACHINES
from tests.simulation.plan import AGENTS, BATCHES, COLLECTORS, PARTITIONS, ROLES, SHARDS, Plan, draw
from tests.simulation.planting import Fault
from tests.simulation.run import FRESH_FROM, Outcome, Summary, fresh_seed, repeat, replay, run_many, run_seed
from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Violation
from tests.simulation.world import halves

FAULTS = [*COMMON_FAULTS, *READER_FAULTS]
FRESH = 40
"""Fresh seeds of each run of the tests."""
SEEDS_PRINTED = "seeds"
"""Property of a test whose value is printed at the end of the run (tests/conftest.py)."""
ONCE_BROKEN = (
    920418,
    5000190,
    5000577,
    77000116,
    77004172,
    77005185,
    3000009355,
    3000009535,
    3000031959,
    3000050117,
    3000058460,
)
OFTEN = ("late", "recreated", "checkpoint", "zombie")
"""Each must happen in at least 5 % of the runs."""
SCARCE = 40
"""Fresh seeds with scarce credits."""
QUICK = 100
"""Runs in which most faults are found; the slow run takes up to 2,000."""
RARE = {
    "dead collector for ever",
    "never probes again",
    "newest segment deleted",
    "lost forgotten by a snapshot",
    "a part named taken for all",
    "failed save believed",
    "raw ignores log start",
    "buckets ignore log start",
}
"""These need more than some tens of runs."""


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_every_promise_is_kept() -> None:
    """A run that is smaller than it must be, or in which some role is never killed, breaks one too."""
    summary = run_many(1, 80, processes=1)
    assert not summary.violations, [f"{one.seed}: {one.violation}" for one in summary.violations]
    has_its_share(summary)


def test_seeds_that_once_broke_a_promise() -> None:
    """Found by an audit in ranges that nobody had run. What they showed has planted faults, and tests of its own."""
    broken = [found for seed in ONCE_BROKEN if (found := run_seed(seed)).violation]
    assert not broken, [f"{one.seed}: {one.violation}; {replay(one.seed)}" for one in broken]


def test_every_promise_is_kept_on_fresh_seeds(record_property: Callable[[str, object], None]) -> None:
    """Other seeds in each run of the tests; the end of the run prints them."""
    first = fresh_seed()
    record_property(SEEDS_PRINTED, f"simulation: fresh seeds, again with `{repeat(first, FRESH)}`")
    summary = run_many(first, FRESH, processes=1)
    told = [f"{one.violation}: `{replay(one.seed)}`" for one in summary.violations]
    assert not told, f"seeds {first} to {first + FRESH - 1}: {told}"


def test_every_promise_is_kept_with_scarce_credits() -> None:
    """The seed of the run of the tests repeats these seeds; `./scripts/simulate` has ordinary credits."""
    outcomes = run_scarce(drawn("simulation with scarce credits"), SCARCE)
    broken = [f"{one.seed}: {one.violation}" for one in outcomes if one.violation]
    assert not broken


def has_its_share(summary: Summary) -> None:
    """What must happen in one of twenty runs did, and was not only planned."""
    found = {name: summary.figures[f"happened: {name}"] / summary.seeds for name in OFTEN}
    assert all(share >= 0.05 for share in found.values()), found


def test_every_run_is_planned_as_large_as_it_must_be() -> None:
    """The plans of the ten thousand runs that `./scripts/simulate --seeds 10000` makes."""
    plans = [draw(random.Random(seed)) for seed in range(1, 10_001)]
    assert all(plan.agents >= 3 and plan.collectors >= 2 and plan.batches >= 60 for plan in plans)
    assert all({role for _, role in plan.crashes} == set(ROLES) for plan in plans)
    for name in OFTEN:
        assert sum(name in plan.specials for plan in plans) >= 0.08 * len(plans), name


@pytest.mark.parametrize(
    ("plan", "what"),
    [
        (Plan(agents=2), "2 agents, at least 3"),
        (Plan(collectors=1), "1 collectors, at least 2"),
        (Plan(batches=59), "59 batches, at least 60"),
        (Plan(), "0 crashes of kafka, at least 1"),
    ],
)
def test_a_run_that_is_too_small_counts_as_broken(plan: Plan, what: str) -> None:
    with pytest.raises(Violation, match=what):
        Scenario(1, plan=plan).run()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_promise_is_kept_in_thousands_of_runs() -> None:
    summary = run_many(100_000, 3_000)
    assert not summary.violations, [f"{one.seed}: {one.violation}" for one in summary.violations]
    has_its_share(summary)


def test_what_a_run_holds() -> None:
    assert AGENTS >= 3
    assert COLLECTORS >= 2
    assert PARTITIONS >= 3
    assert SHARDS >= 2
    assert BATCHES >= 60
    scenario = Scenario(7)
    scenario.run()
    world = scenario.world
    assert len(world.agents) >= 3
    assert len(world.collectors) >= 2
    assert len(world.kafka.samples) >= 3
    assert sorted(shard.vshards for shard in world.shards) == sorted(2 * halves()), "each has a replica"
    assert len(set(world.checks.tokens.values())) >= 60
    assert all(world.happened[f"crash: {role}"] for role in ROLES)


SAME = """
import logging, sys
logging.disable(logging.CRITICAL)
from tests.simulation.run import run_seed
lines = []
run_seed(int(sys.argv[1]), lines.append)
import hashlib
print(len(lines), hashlib.sha256("\\n".join(lines).encode()).hexdigest())
"""


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    def told(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", SAME, "19"], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert told("1") == told("2")


SHARED = [
    ("agents", "LogCore", "pipeline.wal.log"),
    ("agents", "Numbering", "pipeline.delivery.intake"),
    ("agents", "Tracker", "pipeline.flows.runtime.agent"),
    ("agents", "Shedder", "pipeline.delivery.intake"),
    ("two_sites", "Placing", "pipeline.sites.links"),
    ("two_sites", "SiteBinding", "pipeline.sites.links"),
    ("two_sites", "save", "pipeline.sites.links"),
    ("two_sites", "load", "pipeline.sites.links"),
    ("agents", "Sending", "pipeline.delivery.sender"),
    ("agents", "restore", "pipeline.delivery.sender"),
    ("agents", "notes_of_sent", "pipeline.delivery.sender"),
    ("agents", "notes_of_done", "pipeline.delivery.sender"),
    ("agents", "Control", "pipeline.flows.runtime.agent"),
    ("collectors", "Collector", "pipeline.collector.collector"),
    ("collectors", "Quota", "pipeline.collector.collector"),
    ("kafka", "is_same_leader", "pipeline.collector.broker"),
    ("kafka", "position_of", "pipeline.collector.broker"),
    ("spark", "AcksPublisher", "pipeline.spark.application"),
    ("spark", "Retention", "pipeline.spark.application"),
    ("spark", "Reader", "pipeline.spark.tasks"),
    ("spark", "feed_records", "pipeline.spark.feeding"),
    ("shards", "admit", "varstore.shard.shard"),
    ("shards", "sift", "varstore.shard.shard"),
    ("shards", "advance", "varstore.shard.shard"),
    ("shards", "check_range", "varstore.shard.shard"),
    ("shards", "Groups", "varstore.store.holdings"),
    ("shards", "can_go_on", "varstore.server"),
    ("shards", "is_from_table", "varstore.snapshot.recovery"),
    ("shards", "has_lost", "varstore.snapshot.recovery"),
    ("shards", "RawHead", "varstore.snapshot.refill"),
]
"""Module of the simulation, name, and the module of the shipped process that drives the same thing."""


@pytest.mark.parametrize(("module", "name", "driver"), SHARED)
def test_the_simulation_drives_what_the_processes_drive(module: str, name: str, driver: str) -> None:
    simulated = getattr(import_module(f"tests.simulation.{module}"), name)
    assert simulated is getattr(import_module(driver), name)
    assert not simulated.__module__.startswith("tests")


ENTRIES = (
    "pipeline.flows.runtime.agent",
    "pipeline.collector.collector",
    "pipeline.spark.application",
    "varstore.server",
)
"""What the commands `agent`, `collector`, `spark` and `shard` run."""
LOADED = f"""
import json, sys
import {", ".join(ENTRIES)}
print(json.dumps(sorted(sys.modules)))
"""


def test_the_processes_import_the_very_state_machines_and_no_simulation() -> None:
    wired = (Path(processes.__file__)).read_text()
    assert all(f"from {entry} import" in wired for entry in ENTRIES)
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    machines = {path.removesuffix(".py").replace("/", ".") for path in MACHINES}
    assert machines <= set(loaded), machines - set(loaded)
    assert not [name for name in loaded if name.startswith("tests")]


def test_what_is_simulated_below_the_drivers_decides_nothing() -> None:
    for ours, shipped in (
        (spark.SimRaw, RawQuery),
        (spark.SimLife, RawLife),
        (spark.SimBuckets, BucketsQuery),
        (spark.SimFeed, BucketsLife),
        (table.SimTable, RawTable),
    ):
        assert issubclass(ours, shipped)
    assert vars(table.SimTable).keys().isdisjoint({"append"})
    assert vars(spark.SimLife).keys().isdisjoint({"on_batch", "_step", "_holes", "_check_still_ours"})
    assert vars(spark.SimRaw).keys().isdisjoint({"open", "begin", "_close_gaps", "_look_at"})
    sending = Sending.of(Tracker(), "a")
    parts = [type(part) for part in (sending.link.timer, sending.probing, sending.collectors)]
    assert parts == [AdaptiveTimer, Probing, Collectors]


def find(fault: Fault, most: int) -> Outcome | None:
    """The first run that shows a planted fault."""
    with fault.planted():
        return next((found for seed in range(1, most + 1) if (found := run_seed(seed)).violation), None)


def test_at_least_twenty_five_faults_are_planted() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 25


@pytest.mark.parametrize("fault", [one for one in FAULTS if one.name not in RARE], ids=lambda one: one.name)
def test_a_planted_fault_is_found(fault: Fault) -> None:
    assert find(fault, QUICK) is not None, f"{fault.what}: not found in {QUICK} runs"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fault", [one for one in FAULTS if one.name in RARE], ids=lambda one: one.name)
def test_a_rare_planted_fault_is_found(fault: Fault) -> None:
    assert find(fault, 2_000) is not None, f"{fault.what}: not found in 2,000 runs"


def test_the_command_prints_how_to_replay() -> None:
    runner = CliRunner()
    fine = runner.invoke(app, ["--seeds", "2", "--seed", "11", "--json"])
    assert fine.exit_code == 0
    assert json.loads(fine.stdout)["violations"] == []
    fault = next(one for one in FAULTS if one.name == "forgotten when sent")
    with fault.planted():
        broken = runner.invoke(app, ["--seeds", "1", "--seed", "1"])
        traced = runner.invoke(app, ["--seeds", "1", "--seed", "1", "--trace"])
    assert broken.exit_code == 1
    assert "./scripts/simulate --seed 1 --seeds 1 --trace" in broken.output
    assert traced.exit_code == 1
    assert "VIOLATION" in traced.output
    assert runner.invoke(app, ["--seeds", "2", "--trace"]).exit_code == 2


def test_the_command_runs_fresh_seeds_for_a_time() -> None:
    runner = CliRunner()
    fine = runner.invoke(app, ["--minutes", "0.001", "--processes", "1"])
    assert fine.exit_code == 0
    said = re.search(r"(\d+) seeds, (\d+) to (\d+), in", fine.output)
    assert said is not None, fine.output
    count, first, last = map(int, said.groups())
    assert (count > 0, last - first + 1, first >= FRESH_FROM) == (True, count, True)
    assert f"again: ./scripts/simulate --seed {first} --seeds {count}" in fine.output
    assert f"seeds from {first} for 0.001 minutes" in fine.output
    fault = next(one for one in FAULTS if one.name == "forgotten when sent")
    with fault.planted():
        broken = runner.invoke(app, ["--minutes", "30", "--seed", "1", "--processes", "1"])
    assert broken.exit_code == 1, "it ends with the first violation"
    assert "1 violations" in broken.output
    assert runner.invoke(app, ["--minutes", "1", "--seeds", "2"]).exit_code == 2
