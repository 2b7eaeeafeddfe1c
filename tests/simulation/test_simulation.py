"""Promises of the transport hold in simulated runs, runs are reproducible, and the shipped classes are simulated."""

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

from artimon.cli import agent_process
from artimon.cli import process_wiring as processes
from artimon.rawtable.commit import RawTable
from pipeline.delivery.send_planner import SendPlanner
from pipeline.delivery.slow_start import SlowStart
from pipeline.delivery.tracker import Tracker
from pipeline.link.collector_choice import Collectors
from pipeline.link.timer import AdaptiveTimer
from pipeline.spark.buckets_query import BucketsQuery, BucketsRun
from pipeline.spark.raw_query import RawQuery, RawRun
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
    4326323483,
    411636909931,
    3000050117,
    3000058460,
)
OFTEN = ("late", "recreated", "checkpoint", "zombie")
"""Each must happen in at least 5 % of the runs."""
SCARCE = 20
"""Fresh seeds with scarce credits."""
FIXED = 40
"""The first seeds; the slow run takes 3,000 others."""
QUICK = 100
"""Runs in which most faults are found; the slow run takes up to 2,000."""
SHOWN_BY = {
    "ack across topic ids": 4,
    "acks go back": 59,
    "agents ignore leader epochs": 8,
    "applied above a gap": 35,
    "checkpoint believed": 14,
    "commit made again": 12,
    "epoch kept after damage": 35,
    "failed fsync retried": 19,
    "folder not fsynced": 3,
    "holes not named": 3,
    "lost never looked for": 28,
    "lost not noted": 28,
    "lost range not skipped": 8,
    "numbers from zero": 2,
    "numbers lost with a new topic": 4,
    "old offsets in a new topic": 15,
    "refill without ranges": 15,
    "rewind forgets numbers": 3,
    "shed batches not named": 32,
    "shed batches still sent": 2,
    "short log taken for whole": 15,
    "silent call withdrawn": 6,
    "site record not saved": 9,
    "table ignores leader epochs": 8,
    "time window, table": 3,
    "two drivers commit": 2,
}
"""Seed that showed a fault before; it is run first, and others if it shows the fault no more."""
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
"""Faults that need more than some tens of runs."""


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_every_promise_is_kept() -> None:
    """A run below the minimum size, or in which a role is never killed, is a violation too."""
    summary = run_many(1, FIXED, processes=1)
    assert not summary.violations, [f"{one.seed}: {one.violation}" for one in summary.violations]
    check_shares(summary)


def test_seeds_that_once_broke_a_promise_keep_it() -> None:
    """Seeds found by an audit in ranges that were not run before. Their defects have planted faults, and separate
    tests."""
    broken = [found for seed in ONCE_BROKEN if (found := run_seed(seed)).violation]
    assert not broken, [f"{one.seed}: {one.violation}; {replay(one.seed)}" for one in broken]


def test_every_promise_is_kept_on_fresh_seeds(record_property: Callable[[str, object], None]) -> None:
    """Each run of the tests uses other seeds, and prints them at its end."""
    first = fresh_seed()
    record_property(SEEDS_PRINTED, f"simulation: fresh seeds, again with `{repeat(first, FRESH)}`")
    summary = run_many(first, FRESH, processes=1)
    failures = [f"{one.violation}: `{replay(one.seed)}`" for one in summary.violations]
    assert not failures, f"seeds {first} to {first + FRESH - 1}: {failures}"


def test_every_promise_is_kept_with_scarce_credits() -> None:
    """The seed of the run of the tests repeats these seeds; `./scripts/simulate` has ordinary credits."""
    outcomes = run_scarce(drawn("simulation with scarce credits"), SCARCE)
    broken = [f"{one.seed}: {one.violation}" for one in outcomes if one.violation]
    assert not broken


def check_shares(summary: Summary) -> None:
    """Check that frequent events took effect in at least 5 % of the runs, and were not only planned."""
    found = {name: summary.figures[f"happened: {name}"] / summary.seeds for name in OFTEN}
    assert all(share >= 0.05 for share in found.values()), found


def test_every_planned_run_has_the_minimum_size() -> None:
    """Check the plans of the ten thousand runs of `./scripts/simulate --seeds 10000`."""
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
def test_a_run_that_is_too_small_is_a_violation(plan: Plan, what: str) -> None:
    with pytest.raises(Violation, match=what):
        Scenario(1, plan=plan).run()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_promise_is_kept_in_thousands_of_runs() -> None:
    summary = run_many(100_000, 3_000)
    assert not summary.violations, [f"{one.seed}: {one.violation}" for one in summary.violations]
    check_shares(summary)


def test_a_run_has_the_promised_size() -> None:
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
    def trace_digest(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", SAME, "19"], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert trace_digest("1") == trace_digest("2")


SHARED = [
    ("agents", "LogCore", "pipeline.wal.log"),
    ("agents", "BatchNumberer", "pipeline.delivery.wal_sink"),
    ("agents", "Tracker", "pipeline.flows.runtime.agent_transport"),
    ("agents", "Shedder", "pipeline.delivery.wal_sink"),
    ("two_sites", "SiteRouter", "pipeline.sites.multi_site_sender"),
    ("two_sites", "SiteAssignment", "pipeline.sites.multi_site_sender"),
    ("two_sites", "save_record", "pipeline.sites.multi_site_sender"),
    ("two_sites", "load_record", "pipeline.sites.multi_site_sender"),
    ("agents", "SendPlanner", "pipeline.delivery.sender"),
    ("agents", "restore_tracker", "pipeline.delivery.sender"),
    ("agents", "notes_of_sent", "pipeline.delivery.sender"),
    ("agents", "notes_of_released", "pipeline.delivery.sender"),
    ("agents", "AckWatcher", "pipeline.flows.runtime.agent_transport"),
    ("collectors", "Collector", "pipeline.collector.collector_process"),
    ("collectors", "KafkaQuotaGate", "pipeline.collector.collector_process"),
    ("kafka", "is_same_leader", "pipeline.collector.kafka_writer"),
    ("kafka", "position_of", "pipeline.collector.kafka_writer"),
    ("spark", "AcksPublisher", "pipeline.spark.application"),
    ("spark", "TopicTrimmer", "pipeline.spark.application"),
    ("spark", "PartitionReader", "pipeline.spark.raw_task"),
    ("spark", "feed_records", "pipeline.spark.feed_task"),
    ("shards", "admit", "varstore.shard.shard"),
    ("shards", "drop_repeats", "varstore.shard.shard"),
    ("shards", "advance", "varstore.shard.shard"),
    ("shards", "check_range", "varstore.shard.shard"),
    ("shards", "FeedGroups", "varstore.store.ownership"),
    ("shards", "can_continue", "varstore.shard_process"),
    ("shards", "prefers_table", "varstore.snapshot.restore"),
    ("shards", "table_has", "varstore.snapshot.restore"),
    ("shards", "RawHead", "varstore.snapshot.refill"),
]
"""Module of the simulation, name, and module of the shipped process that uses the same object."""


@pytest.mark.parametrize(("module", "name", "driver"), SHARED)
def test_the_simulation_uses_the_objects_of_the_shipped_processes(module: str, name: str, driver: str) -> None:
    simulated = getattr(import_module(f"tests.simulation.{module}"), name)
    assert simulated is getattr(import_module(driver), name)
    assert not simulated.__module__.startswith("tests")


ENTRIES = (
    "pipeline.flows.runtime.agent_transport",
    "pipeline.collector.collector_process",
    "pipeline.spark.application",
    "varstore.shard_process",
)
"""Modules behind the commands `agent`, `collector`, `spark` and `shard`."""
LOADED = f"""
import json, sys
import {", ".join(ENTRIES)}
print(json.dumps(sorted(sys.modules)))
"""


def test_the_processes_import_the_state_machines_and_no_simulation() -> None:
    wired = "".join(Path(module.__file__ or "").read_text() for module in (agent_process, processes))
    assert all(f"from {entry} import" in wired for entry in ENTRIES)
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    machines = {path.removesuffix(".py").replace("/", ".") for path in MACHINES}
    assert machines <= set(loaded), machines - set(loaded)
    assert not [name for name in loaded if name.startswith("tests")]


def test_simulated_classes_override_no_decisions() -> None:
    for ours, shipped in (
        (spark.SimRaw, RawQuery),
        (spark.SimRawRun, RawRun),
        (spark.SimBuckets, BucketsQuery),
        (spark.SimBucketsRun, BucketsRun),
        (table.SimTable, RawTable),
    ):
        assert issubclass(ours, shipped)
    assert vars(table.SimTable).keys().isdisjoint({"append"})
    assert vars(spark.SimRawRun).keys().isdisjoint({"on_batch", "_step", "_holes", "_check_still_ours"})
    assert vars(spark.SimRaw).keys().isdisjoint({"open", "begin", "_close_gaps", "_look_at"})
    sending = SendPlanner.for_agent(Tracker(), "a")
    parts = [type(part) for part in (sending.link.timer, sending.slow_start, sending.collectors)]
    assert parts == [AdaptiveTimer, SlowStart, Collectors]


def find(fault: Fault, most: int) -> Outcome | None:
    """Return a run that shows a planted fault: that of SHOWN_BY, else the first one."""
    seeds = (SHOWN_BY.get(fault.name, 1), *range(1, most + 1))
    with fault.planted():
        return next((found for seed in seeds if (found := run_seed(seed)).violation), None)


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


def test_the_command_prints_the_replay_command() -> None:
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


def test_the_command_runs_fresh_seeds_for_a_given_time() -> None:
    runner = CliRunner()
    fine = runner.invoke(app, ["--minutes", "0.001", "--processes", "1"])
    assert fine.exit_code == 0
    summary_line = re.search(r"(\d+) seeds, (\d+) to (\d+), in", fine.output)
    assert summary_line is not None, fine.output
    count, first, last = map(int, summary_line.groups())
    assert (count > 0, last - first + 1, first >= FRESH_FROM) == (True, count, True)
    assert f"again: ./scripts/simulate --seed {first} --seeds {count}" in fine.output
    assert f"seeds from {first} for 0.001 minutes" in fine.output
    fault = next(one for one in FAULTS if one.name == "forgotten when sent")
    with fault.planted():
        broken = runner.invoke(app, ["--minutes", "30", "--seed", "1", "--processes", "1"])
    assert broken.exit_code == 1, "the run ends with the first violation"
    assert "1 violations" in broken.output
    assert runner.invoke(app, ["--minutes", "1", "--seeds", "2"]).exit_code == 2
