"""The bundle of the PromQL editor is what its script makes of the pinned packages."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_lock_pins_every_package_by_hash() -> None:
    lock = json.loads((ROOT / "scripts/editor/package-lock.json").read_text())
    packages = {name: one for name, one in lock["packages"].items() if name}
    assert len(packages) > 15
    assert all(one["integrity"].startswith("sha512-") and "resolved" not in one for one in packages.values())


@pytest.mark.slow
def test_the_bundle_is_reproducible() -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not on this machine: install Node.js 18 or newer")
    command = [sys.executable, "-m", "scripts.promql_editor", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
