"""Wrong calls of `artimon`: one clear message, no traceback, and nothing is started."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from artimon.runtime.text import parse_duration
from tests.forked import run_forked

pytestmark = pytest.mark.programs


def artimon(*words: str) -> subprocess.CompletedProcess[str]:
    return run_forked("artimon.cli", *words)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("up", "--poll", "5x"), 2, "not a duration"),
        (("up", "--poll", "0s"), 2, "too short"),
        (("up", "--level", "foo"), 2, "kafka"),
        (("up", "--capacity", "-5"), 2, "--capacity"),
        (("up", "--base-port", "99999"), 2, "65000"),
        (("up", "--keep", "debug=x"), 2, "CLASS=DAYS"),
        (("up", "--keep-class", "x="), 2, "1 to 64"),
        (("up", "--parts", "nonsense"), 1, "zookeeper"),
        (("up", "--data", "/dev/null", "--parts", "zookeeper"), 1, "--data"),
        (("up", "--data", "/dev/null/x", "--parts", "zookeeper", "--detach"), 1, "--data"),
        (("agent", "--poll", "5x"), 2, "not a duration"),
        (("agent", "--name", "a/b"), 2, "cannot be a name"),
        (("agent", "--keep-class", "debug"), 2, "PATTERN=CLASS"),
        (("shard", "--port", "99999"), 2, "65535"),
        (("shard", "--members", "0,,1"), 2, "cannot be a name"),
        (("api", "--zookeeper", "127.0.0.1:1", "--host", "0.0.0.0"), 2, "--insecure"),
        (("api", "--zookeeper", "127.0.0.1:1", "--access", "/nowhere/a.yaml"), 2, "a.yaml:1:1: cannot be read"),
        (("collector", "--zookeeper", "127.0.0.1:1", "--host", "::"), 2, "ARTIMON_TOKENS"),
        (("shard", "--zookeeper", "127.0.0.1:1", "--host", "0.0.0.0"), 2, "ARTIMON_TOKENS"),
        (("query", "--zookeeper", "127.0.0.1:abc", "1"), 1, "host:port"),
        (("find", "--zookeeper", "127.0.0.1:1", "host.*"), 1, "does not answer"),
        (("shards", "limits", "--zookeeper", "127.0.0.1:1"), 1, "does not answer"),
        (("bench", "nonsense"), 2, "pipeline"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_misuse_is_one_clear_message(words: tuple[str, ...], code: int, told: str) -> None:
    answer = artimon(*words)
    assert answer.returncode == code, answer.stderr
    assert told in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not answer.stdout


@pytest.mark.parametrize("command", ["query", "status", "env"])
def test_a_folder_without_a_stack_is_named(tmp_path: Path, command: str) -> None:
    words = [command, "fetch('host.load')"] if command == "query" else [command]
    answer = artimon(*words, "--data", str(tmp_path))
    assert answer.returncode == 1
    assert str(tmp_path) in answer.stderr


@pytest.mark.parametrize(("text", "ms"), [("500ms", 500), ("10s", 10_000), ("1.5m", 90_000), ("2h", 7_200_000)])
def test_durations(text: str, ms: int) -> None:
    assert parse_duration(text) == ms
