"""`artimon deadletter` where nothing is right: one line that says what to do, and the exit code."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from artimon.cli import app


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay"], "or --all"),
        (["replay", "0:1", "--all"], "or --all"),
        (["replay", "0-1"], "PARTITION:OFFSET"),
        (["replay", "0:1x"], "PARTITION:OFFSET"),
        (["list", "--limit", "0"], "--limit"),
    ],
)
def test_misuse(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["deadletter", *arguments], terminal_width=200)
    assert result.exit_code == 2
    assert said in result.output


def test_nothing_answers() -> None:
    """HDFS is asked first: what the table holds decides about every letter."""
    command = [sys.executable, "-m", "artimon.cli", "deadletter", "list", "--hdfs", "hdfs://127.0.0.1:1"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 1
    assert "NameNode at hdfs://127.0.0.1:1 is not reachable" in answer.stderr
