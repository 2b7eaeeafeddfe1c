"""Exact counts on every interpreter that this machine has, with and without the lock; and a test that can fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import repeat
from pathlib import Path

import pytest

from benchmarks.counting.stress import SWITCH_S, THREADS, stress, together
from tests.bookkeeper.polling import REPOSITORY

pytestmark = pytest.mark.programs

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
SUPPORTED = [(3, minor) for minor in range(9, 14)]
"""What bookkeeper/pyproject.toml allows and bookkeeper/variables/cell.py knows."""


def interpreters() -> dict[str, str]:
    """An executable for each supported version that is there: this one, pyenv's, and those on the path."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = {HERE: sys.executable}
    for major, minor in SUPPORTED:
        name = f"{major}.{minor}"
        there = sorted(pyenv.glob(f"{name}.*/bin/python{name}"))
        path = str(there[-1]) if there else shutil.which(f"python{name}", path="/usr/bin:/usr/local/bin")
        if path:
            found.setdefault(name, path)
    return found


FOUND = interpreters()


@pytest.mark.parametrize(("version", "how"), [*((version, "as_it_is") for version in FOUND), (HERE, "locked")])
def test_nothing_is_lost(version: str, how: str) -> None:
    """8 threads, a switch each microsecond, handles, functions, gauges and histograms; the package needs no compiler
    and nothing that is installed."""
    command = [FOUND[version], "-s", "-m", "benchmarks.counting.stress", *(["--locked"] * (how == "locked"))]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith(f"CPython {version}."), done.stderr
    assert done.stdout.endswith(": exact\n")
    assert (done.returncode, done.stderr) == (0, "")
    lock_free = how == "as_it_is" and (3, 11) <= tuple(map(int, version.split("."))) <= (3, 13)
    assert ("without a lock" in done.stdout) == lock_free


def test_a_call_between_load_and_store_would_be_found() -> None:
    """The lost update occurs on this interpreter as soon as the code permits it, so the stress test can fail."""

    class Careless:
        value = 0

        def add(self, offset: int) -> None:
            self.value = self.value + abs(offset)

    def loses() -> bool:
        careless = Careless()
        together(lambda: list(map(careless.add, repeat(1, 5_000))))
        return careless.value < THREADS * 5_000

    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        assert any(loses() for _ in range(100))
    finally:
        sys.setswitchinterval(before)


def test_the_stress_leaves_the_application_alone() -> None:
    """The benchmark runs it before it times, in the same process."""
    interval = sys.getswitchinterval()
    assert stress(200) == []
    assert sys.getswitchinterval() == interval
