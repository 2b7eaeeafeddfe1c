"""Hosts in namespaces reach each other by address and name, not while they are cut off; all ends with kill -9."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.programs import ISOLATED, require_isolated
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _permitted() -> None:
    """Skip where namespaces cannot be made; the script says how to permit them."""
    require_isolated()


def two_hosts(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [str(ISOLATED), sys.executable, "-m", "tests.cluster.two_hosts", str(folder), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "ARTIMON_VENV": sys.prefix})


def test_hosts_are_cut_off_heal_and_die(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as process:
        answer, _ = process.communicate(timeout=200)
    seen, killed = map(json.loads, answer.splitlines())
    assert seen == {"name": True, "cut": False, "healed": True}
    assert killed == {"killed": -9}
    assert process.returncode == 0


def test_nothing_is_left_of_a_killed_command(tmp_path: Path) -> None:
    with two_hosts(tmp_path, "wait") as process:
        assert process.stdout is not None
        process.stdout.readline()
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 5  # first process, command, two holders, server
        process.kill()
        eventually(lambda: not any(child.is_running() for child in children), "all processes end")
    assert not Path("/sys/class/net/cluster").exists()


def test_outside_of_it_hosts_are_refused(tmp_path: Path) -> None:
    code = "from pathlib import Path; from tests.cluster.cluster_hosts import ClusterHosts; ClusterHosts(1, Path('.'))"
    clean = {name: value for name, value in os.environ.items() if name != "ARTIMON_ISOLATED"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=clean, check=False
    )
    assert done.returncode == 1
    assert "run ./scripts/cluster" in done.stderr
