"""The simulation takes at least nine in ten branches of the state machines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.machines import MACHINES, covered

ROOT = Path(__file__).parents[2]
SEEDS = 2_400
SCARCE = 500
"""More seeds, with scarce credits."""
RUN = f"""
import logging
logging.disable(logging.CRITICAL)
from tests.simulation.credit import run_scarce
from tests.simulation.run import run_seed
for seed in range(1, {SEEDS}):
    run_seed(seed)
run_scarce({SEEDS}, {SCARCE})
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nine_in_ten_branches_are_taken(tmp_path: Path) -> None:
    program, data, report = tmp_path / "run.py", tmp_path / "data", tmp_path / "report.json"
    program.write_text(RUN)
    wanted = ",".join(str(ROOT / name) for name in MACHINES)
    coverage = [sys.executable, "-m", "coverage"]
    run = [*coverage, "run", "--branch", f"--data-file={data}", f"--include={wanted}", str(program)]
    subprocess.run(run, cwd=ROOT, check=True, env={"PYTHONPATH": str(ROOT), "PATH": ""})
    subprocess.run([*coverage, "json", f"--data-file={data}", "-o", str(report)], cwd=ROOT, check=True)
    found = covered(report)
    taken, all_ = sum(one.taken for one in found), sum(one.all for one in found)
    missing = sorted((one for one in found if one.taken < one.all), key=lambda one: one.taken - one.all)
    assert taken >= 0.9 * all_, f"{taken} of {all_} branches; missing in {missing[:20]}"
