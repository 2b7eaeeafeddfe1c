"""The targets of `dns_sd_configs`, discovered by us and by a running Prometheus: equal labels and URLs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import require, require_isolated

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.programs
def test_a_running_prometheus_finds_the_same_targets_by_dns(tmp_path: Path) -> None:
    """All types, search domains, absent and failing names, before and after changes."""
    require("prometheus")
    command = [require_isolated(), sys.executable, "-m", "tests.sources.discovery.dns_comparison", str(tmp_path)]
    environment = {**os.environ, "ARTIMON_VENV": sys.prefix}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    word, count = done.stdout.split()[-2:]
    assert word == "equal"
    assert int(count) > 50
