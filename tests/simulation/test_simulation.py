"""The simulation keeps every promise, is the same each time, and drives the classes that ship."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module

import pytest
from typer.testing import CliRunner

from artimon.cli import app
from artimon.simulation import spark, table
from artimon.simulation.plan import AGENTS, BATCHES, COLLECTORS, PARTITIONS, ROLES, SHARDS
from artimon.simulation.run import Outcome, run_many, run_seed
from artimon.simulation.world import World
from pipeline.collectors import Collectors
from pipeline.probing import Probing
from pipeline.sending import Sending
from pipeline.spark.buckets import BucketsQuery
from pipeline.spark.buckets import Life as BucketsLife
from pipeline.spark.raw import Life as RawLife
from pipeline.spark.raw import RawQuery
from pipeline.spark.table import RawTable
from pipeline.timer import AdaptiveTimer
from pipeline.tracker import Tracker
from tests.simulation.faults import FAULTS
from tests.simulation.planting import Fault

QUICK = 100
"""Runs in which most faults are found; the slow run takes up to 2,000."""
RARE = {
    "acks go back",
    "applied above a gap",
    "dead collector for ever",
    "holes not named",
    "never probes again",
    "newest segment deleted",
    "short log taken for whole",
}
"""These need more than some tens of runs."""


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_every_promise_is_kept() -> None:
    summary = run_many(1, 60, processes=1)
    assert not summary.violations, [f"{one.seed}: {one.violation}" for one in summary.violations]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_promise_is_kept_in_thousands_of_runs() -> None:
    summary = run_many(100_000, 3_000)
    assert not summary.violations, [f"{one.seed}: {one.violation}" for one in summary.violations]
    for name in ("late", "recreated", "checkpoint", "zombie"):
        assert summary.figures[f"special: {name}"] >= 0.05 * summary.seeds


def test_every_run_is_as_large_as_it_must_be() -> None:
    assert AGENTS >= 3
    assert COLLECTORS >= 2
    assert PARTITIONS >= 3
    assert SHARDS >= 2
    assert BATCHES >= 60
    world = World(7)
    assert len(world.agents) >= 3
    assert len(world.collectors) >= 2
    assert len(world.shards) == 2 * SHARDS
    world.run()
    assert len(world.checks.tokens) >= 60
    assert {role for _, role in world.plan.crashes} == set(ROLES)


SAME = """
import logging, sys
logging.disable(logging.CRITICAL)
from artimon.simulation.run import run_seed
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
    ("agents", "LogCore", "pipeline.log.log"),
    ("agents", "Numbering", "pipeline.intake"),
    ("agents", "Tracker", "pipeline.agent"),
    ("agents", "Sending", "pipeline.sender"),
    ("agents", "restore", "pipeline.sender"),
    ("agents", "notes_of_sent", "pipeline.sender"),
    ("agents", "notes_of_done", "pipeline.sender"),
    ("agents", "Control", "pipeline.agent"),
    ("collectors", "Collector", "pipeline.collector"),
    ("collectors", "Quota", "pipeline.collector"),
    ("kafka", "is_same_leader", "pipeline.broker"),
    ("kafka", "position_of", "pipeline.broker"),
    ("spark", "AcksPublisher", "pipeline.spark.application"),
    ("spark", "Retention", "pipeline.spark.application"),
    ("spark", "Reader", "pipeline.spark.tasks"),
    ("spark", "feed_records", "pipeline.spark.feeding"),
    ("shards", "admit", "varstore.shard"),
    ("shards", "sift", "varstore.shard"),
    ("shards", "advance", "varstore.shard"),
    ("shards", "check_range", "varstore.shard"),
    ("shards", "Groups", "varstore.holdings"),
    ("shards", "can_go_on", "varstore.server"),
    ("shards", "is_from_table", "varstore.images.bringing"),
    ("shards", "parse", "varstore.images.raw_state"),
]
"""Module of the simulation, name, and the module of the shipped process that drives the same thing."""


@pytest.mark.parametrize(("module", "name", "driver"), SHARED)
def test_the_simulation_drives_what_the_processes_drive(module: str, name: str, driver: str) -> None:
    simulated = getattr(import_module(f"artimon.simulation.{module}"), name)
    assert simulated is getattr(import_module(driver), name)
    assert not simulated.__module__.startswith("artimon.simulation")


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
    parts = [type(part) for part in (sending.timer, sending.probing, sending.collectors)]
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
    fine = runner.invoke(app, ["simulate", "--seeds", "2", "--seed", "11", "--json"])
    assert fine.exit_code == 0
    assert json.loads(fine.stdout)["violations"] == []
    fault = next(one for one in FAULTS if one.name == "forgotten when sent")
    with fault.planted():
        broken = runner.invoke(app, ["simulate", "--seeds", "1", "--seed", "1"])
        traced = runner.invoke(app, ["simulate", "--seeds", "1", "--seed", "1", "--trace"])
    assert broken.exit_code == 1
    assert "artimon simulate --seed 1 --seeds 1 --trace" in broken.output
    assert traced.exit_code == 1
    assert "VIOLATION" in traced.output
    assert runner.invoke(app, ["simulate", "--seeds", "2", "--trace"]).exit_code == 2
