"""A run draws its seed, prints it, and the printed command repeats order, examples and drawn seeds."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.seeds import VARIABLE, drawn, fixed_and_drawn, run_seed

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import random

import pytest
from hypothesis import given, strategies as st

from tests.seeds import drawn


def say(*words):
    with open("said", "a") as out:
        print(*words, file=out)


@pytest.mark.parametrize("number", range(6))
def test_order(number):
    say("order", number, drawn("x"), random.random())


@given(st.integers())
def test_examples(value):
    say("example", value)
"""


def run(folder: Path, *arguments: str, **environment: str) -> tuple[str, list[str]]:
    """Output of a run of TESTS in its own process, and the words that its tests said."""
    folder.mkdir(exist_ok=True)
    (folder / "test_it.py").write_text(TESTS)
    (folder / "said").unlink(missing_ok=True)
    env = {name: value for name, value in os.environ.items() if name not in (VARIABLE, "PYTEST_XDIST_WORKER")}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.seeds",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        ".",
        "test_it.py",
    ]
    made = subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env={**env, "PYTHONPATH": str(ROOT), "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "found"), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return made.stdout, (folder / "said").read_text().splitlines()


def seeds_in(output: str) -> list[int]:
    return [int(found) for found in re.findall(r"^seed (\d+); to repeat: ", output, re.MULTILINE)]


def test_the_printed_command_repeats_the_run(tmp_path: Path) -> None:
    """The seed is printed at both ends; the command repeats order, drawn seeds, `random` and examples."""
    output, said = run(tmp_path)
    seed, again = seeds_in(output)
    assert seed == again
    found = re.search(r"to repeat: \S+ (.*)$", output, re.MULTILINE)
    assert found is not None
    words = shlex.split(found[1])
    assert words[:2] == ["--seed", str(seed)]
    assert run(tmp_path, *words[:2])[1] == said


def test_another_run_draws_another_seed_that_its_workers_share(tmp_path: Path) -> None:
    """Under CI too, where Hypothesis itself would repeat the same examples."""
    first, said = run(tmp_path, "-n", "2", CI="true")
    seed = str(seeds_in(first)[0])
    second, other = run(tmp_path, CI="true")
    assert seeds_in(second)[0] != int(seed)
    assert sorted(other) != sorted(said)
    assert sorted(run(tmp_path, **{VARIABLE: seed})[1]) == sorted(said)


def test_fixed_seeds_come_first_and_the_names_of_drawn_ones_stay() -> None:
    given = fixed_and_drawn([3, 4], "x", 2)
    assert given[:2] == [3, 4]
    assert [one.id for one in given[2:]] == ["drawn0", "drawn1"]
    assert given[2].values == (drawn("x 0"),) != given[3].values


def test_a_name_draws_its_own_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "5")
    assert run_seed() == 5
    five = drawn("a"), drawn("b")
    monkeypatch.setenv(VARIABLE, "6")
    assert len({*five, drawn("a"), drawn("b")}) == 4


def test_no_test_fixes_its_examples() -> None:
    """A test with this setting would try the same examples in each run."""
    assert settings().derandomize is False
    fixed = "derandomize=" + str(True)
    assert not [
        path
        for path in (ROOT / "tests").rglob("*.py")
        if fixed in path.read_text() and path.name != Path(__file__).name
    ]
