"""scripts/test with stand-ins for the tools: its steps, the failures of each, and the command that CI runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from artimon.runtime import settings
from scripts import programs
from tests import programs as wanted

ROOT = Path(__file__).resolve().parents[2]
TOOL = """#!/bin/sh
echo "${0##*/} $*${ARTIMON_SEED:+ seed $ARTIMON_SEED}" >> "$CALLED"
case " $BROKEN " in *" ${0##*/}${1:+-$1} "*) exit 3 ;; esac
"""
STEPS = ["setup --packages --tests", "ruff check .", "ruff format --check .", "mypy", "lint-imports"]
COMPILED = "tests/__pycache__"
"""Folder of a checkout whose tests were run before."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the scripts that CI runs, and tools that note how they were called."""
    for name in ("scripts/test", ".ci/run"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for folder in (".venv/bin", COMPILED):
        (tmp_path / folder).mkdir(parents=True)
    for tool in ("scripts/setup", *(f".venv/bin/{name}" for name in ("ruff", "mypy", "lint-imports", "pytest"))):
        (tmp_path / tool).write_text(TOOL)
        (tmp_path / tool).chmod(0o755)
    return tmp_path


def run(checkout: Path, *command: str, broken: str = "") -> tuple[int, list[str]]:
    """Exit code, and the calls of the tools."""
    called = checkout / "called"
    called.write_text("")
    env = {"PATH": os.environ["PATH"], "CALLED": str(called), "BROKEN": broken}
    done = subprocess.run(command, cwd=checkout, env=env, capture_output=True, timeout=60, check=False)
    return done.returncode, [line.rstrip() for line in called.read_text().splitlines()]


def test_continuous_integration_runs_the_command_of_the_readme(checkout: Path) -> None:
    """From a clean clone: set-up first, then each check and all tests that are not slow."""
    block = re.search(r"^## Test\n+```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert block is not None
    command = block[1].splitlines()[0].partition("#")[0].strip()
    assert command == "./scripts/test"
    by_ci, by_reader = run(checkout, ".ci/run"), run(checkout, command)
    assert by_ci[0] == by_reader[0] == 0
    assert by_ci[1][:3] == STEPS[:3]
    assert (
        sorted(by_ci[1])
        == sorted(by_reader[1])
        == sorted([*STEPS, "pytest -m not slow and not cluster -n 4", "setup --tests --programs all"])
    )


def test_a_new_clone_compiles_its_tests_once(checkout: Path) -> None:
    """Before the workers of pytest begin, each of which would do it."""
    (checkout / COMPILED).rmdir()
    code, called = run(checkout, "./scripts/test")
    pytests = [line for line in called if line.startswith("pytest")]
    assert (code, pytests) == (
        0, ["pytest --collect-only -q -p no:cacheprovider", "pytest -m not slow and not cluster -n 4"]
    )  # fmt: skip


@pytest.mark.parametrize(
    "broken",
    ["setup---packages", "ruff-check", "ruff-format", "mypy", "lint-imports", "setup---tests", "pytest--m"],
)
def test_a_step_that_fails_fails_the_run(checkout: Path, broken: str) -> None:
    code, called = run(checkout, ".ci/run", broken=broken)
    assert code != 0
    assert any(line.startswith(broken.partition("-")[0]) for line in called)


FLAKY = """#!/bin/sh
echo "pytest $*" >> "$CALLED"
mkdir -p .pytest_cache/v/cache .pytest_cache/v/artimon
echo 7 > .pytest_cache/v/artimon/seed
case "$*" in *--last-failed*) exit "$ALONE" ;; esac
printf '{\n' > .pytest_cache/v/cache/lastfailed
for name in $FAILED; do printf '  "%s": true,\n' "$name" >> .pytest_cache/v/cache/lastfailed; done
exit 1
"""


@pytest.mark.parametrize(
    ("failed", "alone", "code", "runs"), [("a.py::t", 0, 0, 2), ("a.py::t", 1, 1, 2), ("a b c d", 0, 1, 1)]
)
def test_few_failed_tests_run_again_alone_with_the_same_seed(
    checkout: Path, failed: str, alone: int, code: int, runs: int
) -> None:
    """A test that passes alone is named as a defect; one that fails again, or many that fail, fail the run."""
    (checkout / ".venv" / "bin" / "pytest").write_text(FLAKY)
    env = {"PATH": os.environ["PATH"], "CALLED": str(checkout / "called"), "FAILED": failed, "ALONE": str(alone)}
    env["BROKEN"] = ""
    done = subprocess.run(["./scripts/test"], cwd=checkout, env=env, capture_output=True, timeout=60, check=False)
    called = [line for line in (checkout / "called").read_text().splitlines() if line.startswith("pytest")]
    assert (done.returncode, len(called)) == (code, runs)
    assert called[1:] == [
        "pytest --seed 7 -m not slow and not cluster --last-failed --last-failed-no-failures none"
    ] * (runs - 1)
    assert (b"passed alone" in done.stderr and b"a.py::t" in done.stderr) == (code == 0)


def test_the_fast_run_keeps_the_checks_and_leaves_out_what_needs_servers(checkout: Path) -> None:
    code, called = run(checkout, "./scripts/test", "--fast")
    assert code == 0
    assert sorted(called) == sorted(
        [*STEPS, "pytest -m not slow and not cluster and not stack and not programs -n 4", "setup --tests --programs"]
    )


@pytest.mark.parametrize(
    ("words", "call"),
    [
        (["--seed", "7"], "pytest -m not slow and not cluster -n 4 seed 7"),
        (["--slow", "--seed", "7"], "pytest -m not cluster -n 0 seed 7"),
        (
            ["--seed", "7", "tests/stack", "-k", "ports"],
            "pytest -m not slow and not cluster tests/stack -k ports seed 7",
        ),
        (["--slow", "tests/faults"], "pytest -m not cluster tests/faults"),
    ],
)
def test_options_reach_pytest(checkout: Path, words: list[str], call: str) -> None:
    """The seed goes through the environment."""
    code, called = run(checkout, "./scripts/test", *words)
    assert code == 0
    assert call in called


def test_a_program_that_cannot_be_had_is_a_failure_under_ci_and_else_a_named_omission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(names: list[str], *_: object) -> None:
        raise programs.ProgramsMissing(dict.fromkeys(names, "no network"))

    monkeypatch.setattr(programs, "ensure", none)
    monkeypatch.setattr(wanted, "find", lambda *_: None)
    wanted._found.cache_clear()
    told = programs.set_up(["thrift"], settings.load({"HOME": str(tmp_path)}))
    assert told == ["thrift is not here: no network; what needs it is left out"]
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="setup --programs thrift"):
        wanted.require("thrift")
    with pytest.raises(programs.ProgramsMissing):
        programs.set_up(["thrift"], settings.load({"HOME": str(tmp_path), "CI": "true"}))
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="setup --programs thrift"):
        wanted.require("thrift")
    wanted._found.cache_clear()
