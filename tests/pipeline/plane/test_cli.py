"""`artimon agents`, `artimon flows`, `artimon config`: one or several clusters, tables and JSON, exit codes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from typer.testing import CliRunner, Result

from artimon.cli import app
from pipeline.control import rollout as decide
from tests.pipeline.plane.world import Operator, key_file, new_name, running
from tests.waiting import eventually

pytestmark = pytest.mark.stack


@pytest.fixture
def chroots(zookeeper: str) -> Iterator[list[str]]:
    """Two ZooKeeper trees, as of two clusters."""
    paths = [f"/c{uuid.uuid4().hex[:10]}" for _ in range(2)]
    client = KazooClient(zookeeper)
    client.start(60)
    for path in paths:
        client.ensure_path(path)
    yield [zookeeper + path for path in paths]
    for path in paths:
        client.delete(path, recursive=True)
    client.stop()
    client.close()


@pytest.fixture(autouse=True)
def _short_probation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "PROBATION_S", 0.3)


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Give the operator at the terminal the key of the agents."""
    monkeypatch.setenv("ARTIMON_CONFIG_KEYS", str(key_file(tmp_path / "operator")))


def run_cli(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def test_push_history_diff_show_and_rollback(tmp_path: Path, chroots: list[str]) -> None:
    file, group = tmp_path / "web.toml", ("--group", "web")
    both = [word for name, place in zip("ab", chroots, strict=True) for word in ("--zookeeper", f"{name}={place}")]
    one = ("--zookeeper", chroots[0])
    file.write_text('[metrics]\npoll = "60s"\nlevel = "hdfs"\n')
    pushed = run_cli("config", "push", str(file), *group, "--note", "first", *both)
    assert (pushed.exit_code, pushed.stdout) == (0, "a: group/web@1\nb: group/web@1\n")
    assert run_cli("config", "diff", str(file), *group, *both).exit_code == 0
    file.write_text('[metrics]\npoll = "30s"\nlevel = "hdfs"\n')
    changed = run_cli("config", "diff", str(file), *group, *one)
    assert changed.exit_code == 1
    assert "poll: 60000 -> 30000" in changed.stdout
    assert '+  "poll": "30s"' in changed.stdout
    assert run_cli("config", "push", str(file), *group, *one, "--expect", "7").exit_code == 1
    assert run_cli("config", "push", str(file), *group, *one).exit_code == 0
    assert run_cli("config", "rollback", *group, *one, "--note", "too often").exit_code == 0
    versions = json.loads(run_cli("config", "history", *group, *one, "--json").stdout)["versions"]
    assert [(v["number"], v["source"], v["note"]) for v in versions] == [
        (3, 1, "too often"),
        (2, None, ""),
        (1, None, "first"),
    ]
    assert json.loads(run_cli("config", "show", *group, *one).stdout)["metrics"]["poll"] == "60s"
    assert json.loads(run_cli("config", "show", *group, *one, "--version", "2").stdout)["metrics"]["poll"] == "30s"
    assert "group/web@3" in run_cli("config", "history", *one).stdout


def test_invalid_configurations_are_not_pushed(tmp_path: Path, chroots: list[str]) -> None:
    file = tmp_path / "bad.toml"
    file.write_text('[metrics]\npoll = "soon"\n')
    refused = run_cli("config", "push", str(file), "--agent", "a", "--zookeeper", chroots[0])
    assert refused.exit_code == 1
    assert "metrics.poll" in refused.stderr
    file.write_text('[[flow]]\nname = "x"\n[flow.source]\ntype = "no such thing"\n')
    refused = run_cli("config", "push", str(file), "--agent", "a", "--zookeeper", chroots[0])
    assert refused.exit_code == 1
    assert "no such thing" in refused.stderr
    assert run_cli("config", "push", str(file)).exit_code == 2
    assert json.loads(run_cli("config", "history", "--zookeeper", chroots[0], "--json").stdout) == {"versions": []}


def test_agents_of_two_clusters_and_one_that_does_not_answer(tmp_path: Path, chroots: list[str]) -> None:
    names = [new_name(), new_name()]
    file = tmp_path / "clusters.toml"
    file.write_text(f'[clusters]\nparis = "{chroots[0]}"\nlyon = "{chroots[1]}"\n')
    operator = Operator(chroots[0])
    with (
        running(names[0], tmp_path / "a", chroots[0]),
        running(names[1], tmp_path / "b", chroots[1], groups=("web",)),
    ):
        operator.push("agent/elsewhere", quota="20MiB")
        rows: list[dict[str, object]] = []

        def told() -> bool:
            rows[:] = json.loads(run_cli("agents", "--clusters", str(file), "--json").stdout)["agents"]
            return sum(row["mode"] == "running" for row in rows) == 2

        eventually(told, "both are there and have reported")
        assert {(row["cluster"], row["agent"], row["live"]) for row in rows} == {
            ("paris", names[0], True),
            ("paris", "elsewhere", False),
            ("lyon", names[1], True),
        }
        table = run_cli("agents", "list", "--zookeeper", chroots[1])
        assert table.exit_code == 0, table.stdout
        assert names[1] in table.stdout
        assert "1 of 1 agents live" in table.stdout
        flows = run_cli("flows", "--clusters", str(file), "--json")
        assert json.loads(flows.stdout) == {"flows": []}
        file.write_text('[metrics]\nquota = "33MiB"\n')
        waited = run_cli("config", "push", str(file), "--group", "web", "--zookeeper", chroots[1], "--wait", "20")
        assert (waited.exit_code, waited.stdout) == (0, f"group/web@1\n  {names[1]}: good\n")
    operator.close()


def test_commands_are_answered(tmp_path: Path, chroots: list[str]) -> None:
    name, place = new_name(), ("--zookeeper", chroots[0])
    with running(name, tmp_path, chroots[0]) as agent:
        paused = run_cli("agents", "pause", name, *place, "--id", "p1")
        assert (paused.exit_code, paused.stdout) == (0, "done: paused\n")
        assert run_cli("agents", "resume", name, *place).stdout == "done: running\n"
        assert run_cli("agents", "pause", name, *place, "--id", "p1").stdout == "done: paused\n", "the old answer"
        assert agent.plane.mode.value == "running"
        assert run_cli("agents", "roll", name, *place).stdout == "done: segment of the log ended\n"
        drained = run_cli("agents", "drain", name, *place)
        assert (drained.exit_code, drained.stdout) == (0, "done: everything is acked\n")
        released = run_cli("agents", "release", name, "--lane", "0", *place)
        assert (released.exit_code, released.stdout.partition(":")[0]) == (1, "failed")
        assert run_cli("agents", "pause", name, *place, "--id", "a/b").exit_code == 2
    unheard = run_cli("agents", "pause", "nobody", *place, "--wait", "0")
    assert unheard.exit_code == 0
    assert "agent nobody is not live" in unheard.stderr


def test_help_shows_the_usage() -> None:
    for words in (("agents", "--help"), ("flows", "--help"), ("config", "--help")):
        assert "Usage" in run_cli(*words).stdout
