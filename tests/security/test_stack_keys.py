"""The stack of one machine: its operator signs without being told, and somebody else cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from artimon.cli import app
from artimon.stack.stack import Stack
from artimon.stack.status import read_status
from tests.conftest import TEST_PORTS
from tests.waiting import eventually

pytestmark = pytest.mark.stack


def run_cli(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_the_operator_of_a_stack_commands_its_agent_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Stack(tmp_path, ["zookeeper", "agent"], base_port=TEST_PORTS) as stack:
        keys = Path(stack.addresses()["ARTIMON_CONFIG_KEYS"])
        assert keys.stat().st_mode & 0o777 == 0o600
        place = ("--zookeeper", stack.zookeeper)
        eventually(lambda: "1 of 1 agents live" in run_cli("agents", *place).stdout, "the agent is there")
        refused = run_cli("agents", "pause", "local", *place)
        assert refused.exit_code == 1
        assert "not signed" in refused.stdout
        file = tmp_path / "c.toml"
        file.write_text('[metrics]\nlevel = "kafka"\n')
        push = ("config", "push", str(file), "--agent", "local", *place, "--wait", "60")
        assert run_cli(*push).exit_code == 1
        monkeypatch.setenv("ARTIMON_CONFIG_KEYS", str(keys))
        assert run_cli(*push).exit_code == 0
        assert run_cli("agents", "pause", "local", *place).stdout == "done: paused\n"
        assert "warning: local: ZooKeeper has no access lists" in run_cli("agents", *place).stdout
        told = eventually(lambda: read_status(tmp_path).warnings, "status warns too")
        assert any("ZooKeeper has no access lists" in text for text in told)
        assert not any("access lists" in text for text in read_status(tmp_path).problems), "and is healthy all the same"
