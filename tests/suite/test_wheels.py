"""The wheel of the agent: what it holds, and that it runs with its own dependencies only."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from artimon.runtime.health import read_health
from artimon.stack.stack import Stack
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
MAX_INSTALLED_BYTES = 120_000_000


def pip(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "pip", *map(str, arguments)], check=True, timeout=600)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Wheels of the library and of the agent."""
    folder = tmp_path_factory.mktemp("wheels")
    for project in ("bookkeeper", "scripts/agent_wheel"):
        pip("wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, ROOT / project)
    return sorted(folder.glob("*.whl"))


def test_the_wheel_holds_the_agent_and_nothing_of_the_platform(wheels: list[Path]) -> None:
    (agent,) = (path for path in wheels if path.name.startswith("artimon_agent"))
    names = zipfile.ZipFile(agent).namelist()
    folders = {name.split("/")[0] for name in names if not name.startswith("artimon_agent")}
    assert folders == {"artimon", "pipeline", "sources"}
    assert "artimon/cli/agent_process.py" in names
    assert not [name for name in names if name.startswith(("pipeline/spark", "artimon/rawtable", "artimon/api"))]
    assert not [name for name in names if "__pycache__" in name]


def test_with_the_wheel_of_the_agent_alone_its_version_is_known(wheels: list[Path]) -> None:
    """A host without the platform's wheel must not look like one that runs another version."""
    (agent,) = (path for path in wheels if path.name.startswith("artimon_agent"))
    code = f"import sys; sys.path.insert(0, {str(agent)!r}); from artimon.runtime import version as v"
    command = [sys.executable, "-I", "-S", "-c", f"{code}; print(v.__file__, v.installed_version())"]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.split()
    assert told == [f"{agent}/artimon/runtime/version.py", agent.name.split("-")[1]]


@pytest.fixture(scope="module")
def environment(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """New environment in which only the agent is installed; byte code is written for what runs."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
    pip("--python", folder / "bin" / "python", "install", "--quiet", "--no-compile", *wheels)
    return folder


@pytest.mark.slow
@pytest.mark.stack
def test_the_agent_runs_with_what_its_wheel_requires(environment: Path, tmp_path: Path) -> None:
    """It polls itself and accepts the poll into its log, without a module of the platform."""
    health = tmp_path / "health.json"
    with Stack(tmp_path / "stack", ["zookeeper"]) as stack:
        command = [environment / "bin" / "artimon", "agent", "--name", "a", "--data", tmp_path / "agent"]
        command += ["--zookeeper", stack.zookeeper, "--health", health, "--dropin", tmp_path / "drop-in"]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        with subprocess.Popen(list(map(str, command)), env=clean, cwd=tmp_path) as agent:
            try:
                eventually(lambda: accepted(health))
            finally:
                agent.terminate()
                assert agent.wait(60) == 0
    assert not list(environment.rglob("pyarrow"))
    installed = sum(path.stat().st_size for path in environment.rglob("*") if path.is_file() and not path.is_symlink())
    assert installed <= MAX_INSTALLED_BYTES


def accepted(health: Path) -> int:
    """Return the samples that the agent has accepted."""
    said = read_health(health)
    return int(said.figures["accepted_samples"]) if said else 0
